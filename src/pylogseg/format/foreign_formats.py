"""Formats of others that are taken for logs by mistake, by their first bytes."""

from __future__ import annotations

#: Bytes to look at.
LOOK_BYTES = 262

_MAGICS = (
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"BZh", "bzip2"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"PK\x03\x04", "zip"),
    (257, b"ustar", "tar"),
)


def packed_as(head: bytes) -> str | None:
    r"""Return the name of the archive or compressed format that a file begins with; None if it may be a log.

    A log begins with an offset, which would be above 2^56 with any of these in its first bytes.

    >>> packed_as(b"\x1f\x8b\x08\0"), packed_as(bytes(61))
    ('gzip', None)
    """
    return next((name for at, magic, name in _MAGICS if head[at : at + len(magic)] == magic), None)
