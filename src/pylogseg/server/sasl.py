"""Passwords, and the exchanges that check them: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; nothing here reads or writes.

Passwords and what is made of them stand in no message and in no `repr`.
"""
# scramp (1.5) is no substitute: it applies SASLprep to names and passwords, which Kafka and its clients do not, and
# refuses salts below 12 bytes, which Kafka keeps for a user. It also needs Python 3.11, and asn1crypto beside it.

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from pylogseg.errors import RequestError

#: SCRAM's name of each hash, the stronger first.
_HASHES = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
#: Kafka's numbers of the mechanisms.
SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *reversed(_HASHES))
#: Kafka's own number: more would be a way to keep this server busy.
_ITERATIONS = 4096
_MOST_ITERATIONS = 1 << 20
#: What Kafka takes from clients.
ITERATIONS = range(_ITERATIONS, 16384 + 1)
#: Of a name or password of a client: no exchange needs more.
_MOST_BYTES = 4096
_NOBODY: Mapping[tuple[str, str], ScramCredential] = MappingProxyType({})
_STORED = ("salt", "stored_key", "server_key", "iterations")


class Denied(Exception):
    """The client has not shown that it is who it says; the text is for it, and says nothing about the cause."""


class ScramCredential(NamedTuple):
    """The keys that SCRAM keeps in place of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(cls, mechanism: str, password: bytes, salt: bytes, iterations: int = _ITERATIONS) -> ScramCredential:
        return cls.of_salted(
            mechanism, hashlib.pbkdf2_hmac(_HASHES[mechanism], password, salt, iterations), salt, iterations
        )

    @classmethod
    def of_salted(cls, mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Make it from a password that a client has salted."""
        kind = _HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", kind)
        return cls(salt, hashlib.new(kind, client_key).digest(), hmac.digest(salted, b"Server Key", kind), iterations)

    def __repr__(self) -> str:
        return "ScramCredential(...)"


def users_of(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], ScramCredential]:
    """Return the users in records of a cluster's metadata, by mechanism and name."""
    return {
        (SCRAM[record["mechanism"]], record["name"]): ScramCredential(
            record["salt"], record["storedKey"], record["serverKey"], record["iterations"]
        )
        for record in records
        if record["mechanism"] in SCRAM
    }


class Exchange(Protocol):
    """One attempt of a client to say who it is."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the client and return the answer to it; raises `Denied`."""
        ...

    @property
    def user(self) -> str | None:
        """The user; None before the end."""
        ...


class Users:
    """The users who may connect, each with a password or with the keys that SCRAM keeps of it, in the form of
    `parse_users`.

    By default all mechanisms with credentials are allowed. RequestError if there is no user, a stored
    form is malformed, or a mechanism is unknown or fits no user.
    """

    def __init__(self, passwords: Mapping[str, str], mechanisms: Iterable[str] = ()) -> None:
        if not passwords:
            raise RequestError("users: there is no user: give lines NAME:PASSWORD")
        self._passwords: dict[str, bytes] = {}
        self._stored: dict[tuple[str, str], ScramCredential] = {}
        for name, text in passwords.items():
            if not name or not text:
                raise RequestError(f"users: {name or 'a user without a name'}: a name and a password are needed")
            mechanism, is_stored, form = text.partition("=")
            if is_stored and mechanism in _HASHES:
                self._stored[mechanism, name] = _parse_stored(name, mechanism, form)
            else:
                self._passwords[name] = text.encode()
        #: What is asked of a name that is not here has to look as for one that is.
        self._secret = secrets.token_bytes(32)
        kept = {mechanism for mechanism, _ in self._stored}
        #: Returns the users that clients have made, by mechanism and name.
        self.others: Callable[[], Mapping[tuple[str, str], ScramCredential]] = lambda: _NOBODY
        #: The sizes of salts and the iterations of the users of each mechanism.
        self._forms = {
            mechanism: [(16, _ITERATIONS)] * bool(self._passwords)
            + [(len(entry.salt), entry.iterations) for (kind, _), entry in self._stored.items() if kind == mechanism]
            for mechanism in _HASHES
        }
        self._wanted = list(mechanisms)
        usable = [mechanism for mechanism in MECHANISMS if self._passwords or mechanism == PLAIN or mechanism in kept]
        for choice in self._wanted:
            if choice not in usable:
                what = "no user can use it" if choice in MECHANISMS else f"choose among {', '.join(MECHANISMS)}"
                raise RequestError(f"mechanism {choice!r}: {what}")
        self.mechanisms = [mechanism for mechanism in usable if not self._wanted or mechanism in self._wanted]

    def __repr__(self) -> str:
        return f"Users({len({*self._passwords, *(name for _, name in self._stored)})} users)"

    def take_others(self, others: Callable[[], Mapping[tuple[str, str], ScramCredential]]) -> None:
        """Let users log in that clients make, by SCRAM."""
        self.others = others
        self.mechanisms = [mechanism for mechanism in MECHANISMS if not self._wanted or mechanism in self._wanted]

    def is_fixed(self, name: str) -> bool:
        """Return whether the server was started with this user."""
        return name in self._passwords or any(name == user for _, user in self._stored)

    def _scram(self, mechanism: str, name: str) -> ScramCredential | None:
        entry = self._stored.get((mechanism, name))
        return self.others().get((mechanism, name)) if entry is None and name not in self._passwords else entry

    def begin(self, mechanism: str) -> Exchange:
        return _Plain(self) if mechanism == PLAIN else _Scram(self, mechanism)

    def has(self, name: str, password: bytes) -> bool:
        expected = self._passwords.get(name)
        if expected is not None:
            return hmac.compare_digest(expected, password)
        mechanism = next((mechanism for mechanism in _HASHES if (mechanism, name) in self._stored), None)
        if mechanism is None:
            return False
        stored = self._stored[mechanism, name]
        credential = ScramCredential.of(mechanism, password, stored.salt, stored.iterations)
        return hmac.compare_digest(credential.stored_key, stored.stored_key)

    def salt_of(self, mechanism: str, name: str) -> tuple[bytes, int]:
        """Return the salt and the iterations for a client, after the same work for every name.

        For an unknown name they look like those of a known one.
        """
        credential = self._scram(mechanism, name)
        if credential is not None:
            return credential.salt, credential.iterations
        drawn = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha512")
        others = self.others().items()
        forms = self._forms[mechanism] + [(len(e.salt), e.iterations) for (kind, _), e in others if kind == mechanism]
        forms = forms or [(16, _ITERATIONS)]
        size, iterations = (16, _ITERATIONS) if name in self._passwords else forms[drawn[-1] % len(forms)]
        return (drawn * (size // len(drawn) + 1))[:size], iterations

    def credential_of(self, mechanism: str, name: str) -> ScramCredential:
        """Return the SCRAM credential of a user; for an unknown user, one that no password matches."""
        credential = self._scram(mechanism, name)
        if credential is not None:
            return credential
        salt, iterations = self.salt_of(mechanism, name)
        password = self._passwords.get(name)
        if password is not None:
            return ScramCredential.of(mechanism, password, salt, iterations)
        nothing = hmac.digest(self._secret, salt, _HASHES[mechanism])
        return ScramCredential(salt, nothing, nothing, iterations)


class _Plain:
    """``authzid NUL user NUL password``."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(token) > _MOST_BYTES or len(parts) != 3:
            raise Denied("Invalid SASL/PLAIN response: expected authorization id, user and password")
        acts_as, user, password = parts
        name = user.decode("utf-8", "replace")
        if not user or not password or not self._users.has(name, password):
            raise Denied("Authentication failed: Invalid username or password")
        if acts_as not in (b"", user):
            raise Denied("Authentication failed: Client requested an authorization id that is different from username")
        self.user = name
        return b""


class _Scram:
    """RFC 5802, without channel binding, which no client of Kafka has."""

    def __init__(self, users: Users, mechanism: str) -> None:
        self._users, self._mechanism = users, mechanism
        self._kind = _HASHES[mechanism]
        self._name: str | None = None
        self._nonce = self._asked = b""
        self._header = b"n,,"
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        if len(token) > _MOST_BYTES:
            raise self._deny()
        return self._first(token) if not self._asked else self._last(token)

    def _deny(self) -> Denied:
        return Denied(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _first(self, token: bytes) -> bytes:
        binding, acts_as, rest = (*token.split(b",", 2), b"", b"")[:3]
        fields = _fields(rest)
        nonce, name = fields.get(b"r", b""), _unescape(fields.get(b"n", b""))
        if binding not in (b"n", b"y") or not nonce or name is None or b"m" in fields:
            raise self._deny()
        if acts_as and (acts_as[:2] != b"a=" or _unescape(acts_as[2:]) != name):
            raise self._deny()
        self._header = token[: len(token) - len(rest)]
        self._name, self._nonce = name, nonce + base64.b64encode(secrets.token_bytes(24))
        salt, iterations = self._users.salt_of(self._mechanism, name)
        said = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(salt), iterations)
        self._asked = rest + b"," + said
        return said

    def _last(self, token: bytes) -> bytes:
        assert self._name is not None
        stored, fields = self._users.credential_of(self._mechanism, self._name), _fields(token)
        without, _, proof64 = token.rpartition(b",p=")
        try:
            proof = base64.b64decode(proof64, validate=True)
            header = base64.b64decode(fields.get(b"c", b""), validate=True)
        except binascii.Error:
            raise self._deny() from None
        signed = self._asked + b"," + without
        signature = hmac.digest(stored.stored_key, signed, self._kind)
        if len(proof) != len(signature) or header != self._header or self.user is not None:
            raise self._deny()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        key_fits = hmac.compare_digest(hashlib.new(self._kind, client_key).digest(), stored.stored_key)
        if not hmac.compare_digest(fields.get(b"r", b""), self._nonce) or not key_fits:
            raise self._deny()
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(stored.server_key, signed, self._kind))


def parse_users(text: str, where: str) -> dict[str, str]:
    """Return the users of lines ``name:password``; empty lines, and lines that begin with ``#``, are skipped.

    Raises RequestError, with the number of the line, for another line and for a name that comes twice.
    """
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise RequestError(f"{where}: line {number} is not of the form NAME:PASSWORD")
        if name in passwords:
            raise RequestError(f"{where}: line {number}: there is a user {name!r} already")
        passwords[name] = password
    return passwords


def _parse_stored(name: str, mechanism: str, form: str) -> ScramCredential:
    """Read a user's credential in the form of kafka-configs.sh."""
    fields = dict(part.strip().partition("=")[::2] for part in form.split(","))
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[key], validate=True) for key in _STORED[:3])
        iterations = int(fields["iterations"])
    except (KeyError, ValueError):
        iterations, salt = 0, b""
    size = hashlib.new(_HASHES[mechanism]).digest_size
    if not salt or not _ITERATIONS <= iterations <= _MOST_ITERATIONS or not len(stored_key) == len(server_key) == size:
        raise RequestError(
            f"users: {name}: {mechanism} needs {', '.join(f'{key}=…' for key in _STORED)}, in base64 of {size} bytes "
            f"each key, with {_ITERATIONS} to {_MOST_ITERATIONS} iterations"
        )
    return ScramCredential(salt, stored_key, server_key, iterations)


def _fields(text: bytes) -> dict[bytes, bytes]:
    return {part[:1]: part[2:] for part in text.split(b",") if part[1:2] == b"="}


def _unescape(name: bytes) -> str | None:
    text = name.replace(b"=2C", b",")
    if b"=" in text.replace(b"=3D", b"") or not name:
        return None
    return text.replace(b"=3D", b"=").decode("utf-8", "replace")
