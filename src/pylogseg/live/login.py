"""Logins of a client: PLAIN, SCRAM and OAUTHBEARER; nothing here reads or writes a socket."""
# scramp is no substitute: it applies SASLprep to names and passwords, which Kafka does not.

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator

from pylogseg.live.settings import ClientSettings

#: A server that asks for more would keep this client busy.
_MOST_ITERATIONS = 1 << 24
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class LoginError(Exception):
    """The server is not who it says, or its answer is malformed."""


def tokens(settings: ClientSettings) -> Generator[bytes, bytes]:
    """Yield the client's tokens; the caller sends the server's answers into the generator."""
    if settings.mechanism == "PLAIN":
        yield b"\0".join((b"", settings.user.encode(), settings.password.encode()))
    elif settings.is_by_token:
        yield f"n,,\x01auth=Bearer {settings.read_token()}\x01\x01".encode()
    else:
        yield from _scram(settings.user, settings.password.encode(), _HASHES[settings.mechanism])


def _scram(user: str, password: bytes, kind: str) -> Generator[bytes, bytes]:
    nonce = secrets.token_hex(16)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = yield f"n,,{bare}".encode()
    fields = _fields(first)
    try:
        salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
        joined = fields["r"]
    except (KeyError, ValueError, binascii.Error):
        raise LoginError("the server's first answer is malformed") from None
    if not joined.startswith(nonce) or not 1 <= iterations <= _MOST_ITERATIONS:
        raise LoginError("the server's first answer has another nonce, or asks for too many iterations")
    salted = hashlib.pbkdf2_hmac(kind, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", kind)
    without_proof = f"c=biws,r={joined}"
    signed = b",".join((bare.encode(), bytes(first), without_proof.encode()))
    signature = hmac.digest(hashlib.new(kind, client_key).digest(), signed, kind)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)
    if not hmac.compare_digest(_fields(last).get("v", ""), base64.b64encode(expected).decode()):
        raise LoginError("the server does not know the password")


def _fields(text: bytes) -> dict[str, str]:
    parts = bytes(text).decode("utf-8", "replace").split(",")
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}
