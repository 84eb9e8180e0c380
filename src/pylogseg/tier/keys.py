"""The keys of an encrypted tier: RSA keys in PEM files, which wrap a key for each segment.

Nothing here puts a key, or bytes that were decrypted, into a message.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pylogseg.errors import RequestError, StorageError
from pylogseg.tier.urls import KEYS_VARIABLE

#: The id of the key in a file that was given alone: it is tried for every id.
ANY_KEY = "*"
_PEM_LIMIT_BYTES = 1 << 20
#: Keys of segments that are kept: each takes milliseconds to unwrap.
_MOST_UNWRAPPED = 1024
_NEEDED = "reading encrypted tiers needs cryptography: pip install 'pylogseg[tier]'"

Keys = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None


class NotOpened(Exception):
    """A key is not there, or does not fit; the message has no secret."""


class _Rsa(NamedTuple):
    """A private key, by its primes: two small powers take a quarter of the time of a large one."""

    size: int
    p: int
    q: int
    dp: int
    dq: int
    q_inverse: int

    def __repr__(self) -> str:
        """Return a text without the key: tools that collect errors show the variables around them."""
        return f"<a private key of {self.size} bytes>"

    def decrypt(self, number: int) -> int:
        one, two = pow(number % self.p, self.dp, self.p), pow(number % self.q, self.dq, self.q)
        return two + self.q * ((one - two) * self.q_inverse % self.p)


class KeyRing:
    """Private keys by their ids.

    Parameters
    ----------
    keys : path, mapping or None
        A PEM file, a folder of files named ``<key id>.pem``, or paths of PEM files by key id. None: what the
        environment says in ``PYLOGSEG_TIER_KEYS``.
    """

    def __init__(self, keys: Keys = None) -> None:
        given = keys if keys is not None else os.environ.get(KEYS_VARIABLE) or {}
        self._paths = dict(given) if isinstance(given, Mapping) else _paths(os.fspath(given))
        self._keys: dict[str, _Rsa] = {}
        self._unwrapped: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def __repr__(self) -> str:
        """Return a text with the ids, and without the keys."""
        return f"<pylogseg.KeyRing: {', '.join(sorted(self._paths)) or 'empty'}>"

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return a segment's key from its wrapped form; `NotOpened` if the ring does not have what it takes."""
        known = self._unwrapped.get((key_id, wrapped))
        if known is not None:
            return known
        key = self._key(key_id)
        if len(wrapped) != key.size:
            raise NotOpened(
                f"the data key has {len(wrapped)} bytes, and key {key_id!r} wraps it in {key.size}: a wrong key?"
            )
        data = _unpadded(key.decrypt(int.from_bytes(wrapped, "big")).to_bytes(key.size, "big"))
        if data is None or len(data) not in (16, 24, 32):
            raise NotOpened(f"key {key_id!r} does not open the data key: it is another one than the segment's")
        self._unwrapped[key_id, wrapped] = data
        if len(self._unwrapped) > _MOST_UNWRAPPED:
            self._unwrapped.popitem(last=False)
        return data

    def _key(self, key_id: str) -> _Rsa:
        if key_id not in self._keys:
            path = self._paths.get(key_id, self._paths.get(ANY_KEY))
            if path is None:
                known = ", ".join(map(repr, sorted(self._paths))) or "none"
                raise NotOpened(
                    f"key {key_id!r} is not in the key ring, which has {known}: give its PEM file (keys=, --keys, or"
                    f" {KEYS_VARIABLE} in the environment)"
                )
            self._keys[key_id] = _load(os.fspath(path))
        return self._keys[key_id]


def _paths(path: str) -> dict[str, str | os.PathLike[str]]:
    """Return PEM files by key id; a file given alone fits every id."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return {ANY_KEY: path}
        names = sorted(os.listdir(path))
    except OSError as error:
        raise StorageError(path, "read", error.strerror or "no keys here", error.errno) from error
    found: dict[str, str | os.PathLike[str]] = {
        name[: -len(".pem")]: os.path.join(path, name) for name in names if name.endswith(".pem")
    }
    if not found:
        raise RequestError(f"{path}: no file named <key id>.pem here")
    return found


def _load(path: str) -> _Rsa:
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise RequestError(_NEEDED) from None
    try:
        with open(path, "rb") as file:
            data = file.read(_PEM_LIMIT_BYTES)
    except OSError as error:
        raise StorageError(path, "read", error.strerror or "unreadable", error.errno) from error
    try:
        key: Any = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise RequestError(f"{path}: no private key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey):
        raise RequestError(f"{path}: not a key of RSA")
    numbers = key.private_numbers()
    return _Rsa(key.key_size // 8, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp)


def _unpadded(block: bytes) -> bytes | None:
    """Return the message of an OAEP block by SHA3-512, with MGF1 by SHA3-512 too; None if it is none.

    OpenSSL has no OAEP with SHA-3, so `cryptography` refuses it.
    """
    size = hashlib.sha3_512().digest_size
    if len(block) < 2 * size + 2:
        return None
    seed, data = block[1 : 1 + size], block[1 + size :]
    seed = _xor(seed, _mask(data, size))
    data = _xor(data, _mask(seed, len(data)))
    body = data[size:].lstrip(b"\0")
    if block[0] or data[:size] != hashlib.sha3_512(b"").digest() or body[:1] != b"\1":
        return None
    return body[1:]


def _mask(seed: bytes, size: int) -> bytes:
    size_of_one = hashlib.sha3_512().digest_size
    parts = [hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in range(-(-size // size_of_one))]
    return b"".join(parts)[:size]


def _xor(one: bytes, two: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(two, "big")).to_bytes(len(one), "big")


def cipher(key: bytes) -> Callable[[bytes, Any, bytes], bytes]:
    """Return the function that decrypts by AES-GCM: of an IV, what was encrypted with its tag, and additional data."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise RequestError(_NEEDED) from None
    aes = AESGCM(key)

    def decrypt(iv: bytes, data: Any, aad: bytes) -> bytes:
        try:
            return bytes(aes.decrypt(iv, data, aad))
        except InvalidTag:
            raise NotOpened("its tag does not fit: the bytes are not those that were encrypted") from None

    return decrypt
