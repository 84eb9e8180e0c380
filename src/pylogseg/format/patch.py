"""Changes of a batch in place: of the header fields that a broker sets when it stores a batch.

Offsets and the leader epoch lie outside of the CRC; a new timestamp makes a new CRC. Each function takes a writable
buffer (``bytearray``, ``memoryview``, ``mmap``, numpy bytes) and the position of a whole batch in it.
"""

from __future__ import annotations

import struct
from typing import Any

from pylogseg import _codec
from pylogseg.errors import RequestError
from pylogseg.format.batch_head import LEAST_BATCH_BYTES
from pylogseg.format.buffers import byte_view
from pylogseg.format.builder import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND, TRANSACTIONAL

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_CRC = struct.Struct(">I")
_KEPT = CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON


def set_last_offset(buffer: Any, last_offset: int, position: int = 0) -> None:
    """Move a batch to other offsets by its last one, as a leader does.

    Raises RequestError for an offset out of range, and if the buffer holds no whole batch there.
    """
    view, magic, _ = _batch(buffer, position)
    _set_offset(view, last_offset - (_INT.unpack_from(view, 23)[0] if magic == 2 else 0))


def set_leader_epoch(buffer: Any, leader_epoch: int, position: int = 0) -> None:
    """Set the partition leader epoch of a batch of magic 2; RequestError for any other."""
    view, magic, _ = _batch(buffer, position)
    if magic < 2:
        raise RequestError(f"a batch of magic {magic} has no leader epoch")
    if not -1 <= leader_epoch <= 0x7FFFFFFF:
        raise RequestError(f"leader epoch {leader_epoch} is out of range")
    _INT.pack_into(view, 12, leader_epoch)


def set_max_timestamp(buffer: Any, timestamp_ms: int, *, append_time: bool, position: int = 0) -> bool:
    """Set the max timestamp (-1 none), the timestamp type and the CRC of a batch; return whether anything changed.

    A batch that says so already keeps its bytes, unused attribute bits among them. Raises RequestError for magic 0,
    which has no timestamps, a timestamp out of range, and if the buffer holds no whole batch there.
    """
    view, magic, size = _batch(buffer, position)
    if magic == 0:
        raise RequestError("a batch of magic 0 has no timestamp")
    if not -1 <= timestamp_ms < 1 << 63:
        raise RequestError(f"timestamp {timestamp_ms} is out of range")
    at, attributes_at = (35, 22) if magic == 2 else (18, 17)
    attributes = view[attributes_at]
    if _LONG.unpack_from(view, at)[0] == timestamp_ms and bool(attributes & LOG_APPEND) == append_time:
        return False
    _LONG.pack_into(view, at, timestamp_ms)
    kept = attributes & (_KEPT if magic == 2 else CODEC_MASK) | (LOG_APPEND if append_time else 0)
    if magic == 2:
        _SHORT.pack_into(view, 21, kept)
        _CRC.pack_into(view, 17, _codec.crc32c(view[21:size]))
    else:
        view[17] = kept
        _CRC.pack_into(view, 12, _codec.crc32(view[16:size]))
    return True


def _set_offset(view: memoryview, offset: int) -> None:
    if not 0 <= offset < 1 << 63:
        raise RequestError(f"offset {offset} is out of range")
    _LONG.pack_into(view, 0, offset)


def _batch(buffer: Any, position: int) -> tuple[memoryview, int, int]:
    """Return the bytes of one whole batch, its magic and its size."""
    whole = byte_view(buffer)
    if whole.readonly:
        raise RequestError("the buffer cannot be written")
    if not 0 <= position <= len(whole) - 17:
        raise RequestError(f"no batch at position {position} of {len(whole)} bytes")
    view = whole[position:]
    size, magic = 12 + _INT.unpack_from(view, 8)[0], view[16]
    if magic > 2 or not LEAST_BATCH_BYTES[magic] <= size <= len(view):
        raise RequestError(f"no whole batch at position {position}: size {size}, magic {magic}, {len(view)} bytes")
    return view[:size], magic, size
