"""The keys of an encrypted tier: RSA keys in PEM files, which wrap a key for each segment. Private ones open it, and
a public one is enough to write.

Nothing here puts a key, or bytes that were decrypted, into a message.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pylogseg.errors import RequestError, StorageError, install_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: The option of a tier among those of its storage: see `KeyRing`.
KEYS_OPTION = "tier_keys"
#: Where keys are looked for if none are given: in the environment, a PEM file or a folder of them.
KEYS_VARIABLE = "PYLOGSEG_TIER_KEYS"
#: The id of the key in a file that was given alone: it is tried for every id.
ANY_KEY = "*"
_PEM_LIMIT_BYTES = 1 << 20
#: Keys of segments that are kept: each takes milliseconds to unwrap.
_MOST_UNWRAPPED = 1024
#: Of a smaller one, the padding leaves no room for a data key.
_LEAST_BITS = 1536
#: Data keys of one id that are tried, to tell a wrong key from a data key that is damaged.
_MOST_SAMPLES = 8
_DATA_KEY_BYTES = 32
IV_BYTES = 12  #: Before what is encrypted; its tag of 16 bytes is behind it.
_NEEDED = f"encrypted tiers need cryptography and pycryptodome: {install_text('tier')}"

Keys = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None


class NotOpened(Exception):
    """A key does not open these bytes: they have changed since the encryption. The message has no secret."""


class NoKey(NotOpened):
    """The key is absent, or another one: the object stays encrypted, and its content unknown."""


class _PrivateKey:
    """A private RSA key that opens data keys; its `repr` shows no key."""

    def __init__(self, key: RSAPrivateKey) -> None:
        # OpenSSL, and so `cryptography`, has no OAEP with SHA-3.
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA

        numbers = key.private_numbers()
        public = numbers.public_numbers
        parts = public.n, public.e, numbers.d, numbers.p, numbers.q
        self._cipher = PKCS1_OAEP.new(RSA.construct(parts, consistency_check=False), SHA3_512)

    def decrypt_key(self, wrapped: bytes) -> bytes | None:
        """Return the data key in an encrypted form; None if it is no data key, or belongs to another private key."""
        try:
            data = self._cipher.decrypt(wrapped)
        except ValueError:
            return None
        return data if len(data) in (16, 24, 32) else None


class KeyRing:
    """Private keys by their ids: of a PEM file, of a folder of files named ``<key id>.pem``, or of paths by key id."""

    def __init__(self, keys: Keys = None) -> None:
        ring = keys if keys is not None else os.environ.get(KEYS_VARIABLE) or {}
        self._paths = dict(ring) if isinstance(ring, Mapping) else _paths(os.fspath(ring))
        self._keys: dict[str, _PrivateKey] = {}
        self._unwrapped: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._samples: dict[str, list[bytes]] = {}
        self._is_right: dict[str, bool] = {}

    def __repr__(self) -> str:
        """Return a text with the ids, and without the keys."""
        return f"<pylogseg.KeyRing: {', '.join(sorted(self._paths)) or 'empty'}>"

    def note(self, key_id: str, wrapped: bytes) -> None:
        """Note a segment's data key: if a private key opens it, it is right for all data keys with this key id."""
        samples = self._samples.setdefault(key_id, [])
        if len(samples) < _MOST_SAMPLES:
            samples.append(wrapped)
            self._is_right.pop(key_id, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled form: the places of the keys, and no key."""
        paths = {key_id: os.path.abspath(path) for key_id, path in self._paths.items()}
        nothing: dict[str, Any] = {"_keys": {}, "_unwrapped": OrderedDict(), "_is_right": {}}
        return {**self.__dict__, **nothing, "_paths": paths}

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return a segment's key from its wrapped form.

        Raises `NoKey` if the ring lacks the key, `NotOpened` if its key of this id opens only other objects.
        """
        cached = self._unwrapped.get((key_id, wrapped))
        if cached is not None:
            return cached
        key = self._key(key_id)
        data = key.decrypt_key(wrapped)
        if data is None:
            said = f"key {key_id!r} does not open the data key of {len(wrapped)} bytes"
            if not self._opens_others(key_id, key):
                raise NoKey(f"{said}: it is another one than the segment's")
            raise NotOpened(f"{said}, and opens others: the dataKey in the manifest is damaged")
        self._unwrapped[key_id, wrapped] = data
        if len(self._unwrapped) > _MOST_UNWRAPPED:
            self._unwrapped.popitem(last=False)
        return data

    def _opens_others(self, key_id: str, key: _PrivateKey) -> bool:
        if key_id not in self._is_right:
            samples = self._samples.get(key_id, [])
            self._is_right[key_id] = any(key.decrypt_key(sample) is not None for sample in samples)
        return self._is_right[key_id]

    def _key(self, key_id: str) -> _PrivateKey:
        if key_id not in self._keys:
            path = self._paths.get(key_id, self._paths.get(ANY_KEY))
            if path is None:
                names = ", ".join(map(repr, sorted(self._paths))) or "none"
                raise NoKey(
                    f"key {key_id!r} is not in the key ring, which has {names}: give its PEM file (keys=, --keys, or"
                    f" {KEYS_VARIABLE} in the environment)"
                )
            self._keys[key_id] = _load(key_id, os.fspath(path))
        return self._keys[key_id]


def _paths(path: str) -> dict[str, str | os.PathLike[str]]:
    """Return PEM files by key id; a file given alone fits every id."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return {ANY_KEY: path}
        names = sorted(os.listdir(path))
    except OSError as error:
        raise StorageError(path, "read", error.strerror or "no keys here", error.errno) from error
    pem_files: dict[str, str | os.PathLike[str]] = {
        name[: -len(".pem")]: os.path.join(path, name) for name in names if name.endswith(".pem")
    }
    if not pem_files:
        raise RequestError(f"{path}: no file named <key id>.pem here")
    return pem_files


class PublicKey:
    """A public key of RSA that wraps data keys; its id is the name of its file, without ``.pem``."""

    def __init__(self, path: str | os.PathLike[str], key_id: str | None = None) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
            from cryptography.hazmat.primitives.serialization import load_pem_public_key
        except ImportError:
            raise RequestError(_NEEDED) from None
        try:
            key: Any = load_pem_public_key(_pem(os.fspath(path)))
        except OSError as error:
            raise StorageError(path, "read", error.strerror or "no key here", error.errno) from error
        except ValueError:
            key = None
        if not isinstance(key, RSAPublicKey):
            raise RequestError(f"{path}: no public key of RSA in PEM: make it with openssl rsa -in PRIVATE.pem -pubout")
        numbers = key.public_numbers()
        if numbers.n.bit_length() < _LEAST_BITS:
            raise RequestError(f"{path}: a key of {numbers.n.bit_length()} bits: at least {_LEAST_BITS} are needed")
        self.key_id = key_id or os.path.basename(os.fspath(path)).removesuffix(".pem")
        if ":" in self.key_id:
            raise RequestError(f"{path}: the name of the file is the key's id, which has no colon")
        self._numbers = numbers.n, numbers.e
        self._cipher = _wrapper(self._numbers)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that pickle sends to another process: no private key."""
        return {"key_id": self.key_id, "_numbers": self._numbers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cipher = _wrapper(self._numbers)

    def new_data_key(self) -> tuple[bytes, bytes]:
        """Return a new data key, and its wrapped form."""
        data = os.urandom(_DATA_KEY_BYTES)
        return data, self._cipher.encrypt(data)


def _wrapper(numbers: tuple[int, int]) -> Any:
    try:
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA
    except ImportError:
        raise RequestError(_NEEDED) from None
    return PKCS1_OAEP.new(RSA.construct(numbers), SHA3_512)


def _pem(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_PEM_LIMIT_BYTES)


def _load(key_id: str, path: str) -> _PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise RequestError(_NEEDED) from None
    try:
        data = _pem(path)
    except OSError as error:
        raise NoKey(f"key {key_id!r} cannot be read from {path}: {error.strerror}") from None
    try:
        key: Any = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise NoKey(f"key {key_id!r}: {path} has no private key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey):
        raise NoKey(f"key {key_id!r}: {path} has no key of RSA")
    try:
        return _PrivateKey(key)
    except ImportError:
        raise RequestError(_NEEDED) from None


def cipher(key: bytes) -> Callable[[bytes, Any, bytes], bytes]:
    """Return the function that decrypts by AES-GCM, from an IV, the ciphertext with its tag, and additional data."""
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
            raise NotOpened("its tag does not match: the bytes changed after they were encrypted") from None

    return decrypt


def sealer(key: bytes, aad: bytes) -> Callable[[Any], bytes]:
    """Return the function that encrypts by AES-GCM into a new IV, the ciphertext, and its tag."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise RequestError(_NEEDED) from None
    aes = AESGCM(key)

    def seal(data: Any) -> bytes:
        iv = os.urandom(IV_BYTES)
        return iv + bytes(aes.encrypt(iv, data, aad))

    return seal
