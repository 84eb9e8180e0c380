"""A small file of an archive that is encrypted as a whole: a line, a JSON object with its wrapped key, the bytes."""

from __future__ import annotations

import json

from pylogseg.disk.tier.chunk_view import OVERHEAD_BYTES, closer, opener
from pylogseg.disk.tier.keys import KeyRing, NoKey, NotOpened, PublicKey
from pylogseg.disk.tier.manifest import encryption_fields, parse_encryption
from pylogseg.errors import CorruptionError, MissingKeyError

_MAGIC = b"pylogseg sealed file 1\n"
_HEADER_BYTES = 16 << 10


def seal_file(data: bytes, key: PublicKey) -> bytes:
    """Encrypt a file by a key of its own."""
    encryption, seal = closer(key)
    header = json.dumps(encryption_fields(encryption)).encode()
    return _MAGIC + header + b"\n" + seal(data)


def open_file(stored: bytes, keys: KeyRing, at: str) -> bytes:
    """Return a file as it was, encrypted or not; MissingKeyError without its key, CorruptionError for a damaged one."""
    if not stored.startswith(_MAGIC):
        return stored
    end = stored.find(b"\n", len(_MAGIC), len(_MAGIC) + _HEADER_BYTES)
    try:
        header = json.loads(stored[len(_MAGIC) : end]) if end >= 0 else None
    except (ValueError, RecursionError):
        header = None
    encryption = parse_encryption(header, at)
    if encryption is None:
        raise CorruptionError(at, len(_MAGIC), "a sealed file has no line in JSON that says how")
    sealed = stored[end + 1 :]
    try:
        plain = opener(encryption, False, keys)(sealed, max(len(sealed) - OVERHEAD_BYTES, 0))
    except NoKey as error:
        raise MissingKeyError(at, "read", str(error)) from None
    except NotOpened as error:
        raise CorruptionError(at, end + 1, str(error)) from None
    if isinstance(plain, str):
        raise CorruptionError(at, end + 1, plain)
    return plain
