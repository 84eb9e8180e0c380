"""Transaction markers, read from the control batches that hold them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg._native import _append
from pylogseg._native._append import Batch
from pylogseg.errors import CorruptionError, InvalidRecordError, RequestError
from pylogseg.format.batches import scan
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.records import decode

_OVERHEAD_BYTES = 12


class Marker(NamedTuple):
    """The end of a transaction; the timestamp is in ms."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def marker_of(buffer: Any, batch: Batch, file_position: int = 0) -> Marker | None:
    """Read the marker in a control batch; None if it has no records, as compaction leaves them.

    `file_position` is that of the buffer's first byte. Raises InvalidRecordError if a record cannot be read, a version
    is negative, or the key is too short; RequestError for another type of control record, a short value, or a batch
    that cannot be decompressed.
    """
    if batch.count == 0:
        return None
    view = byte_view(buffer)
    position = batch.position - file_position
    fields = _append.end_marker(view, position, batch.size)
    if fields is None:
        return _read_carefully(view[position : position + batch.size], batch)
    kind, coordinator_epoch, timestamp = fields
    return Marker(kind == 0, coordinator_epoch, timestamp)


def _read_carefully(view: memoryview, batch: Batch) -> Marker:
    whole = view if batch.codec else _first_alone(view, batch)
    columns, damage = decode(scan(whole, crc=False).batches, whole)
    if damage and batch.codec and not _decompresses(view, batch.codec):
        raise RequestError(f"a control batch: {damage[0].reason}")
    if damage or not len(columns):
        raise InvalidRecordError(f"a control batch: {damage[0].reason if damage else 'it has no records'}")
    key, value = columns.key(0), columns.value(0)
    if key is None:
        raise RequestError("a control record without a key")
    if len(key) < 4:
        raise InvalidRecordError(f"the key of a control record has {len(key)} bytes, expected at least 4")
    version, kind = _short(key, 0), _short(key, 2)
    if version < 0:
        raise InvalidRecordError(f"the key of a control record has version {version}")
    if kind not in (0, 1):
        raise RequestError(f"a control record of type {kind} does not end a transaction")
    if value is None:
        raise RequestError("a transaction marker without a value")
    if len(value) >= 2 and _short(value, 0) < 0:
        raise InvalidRecordError(f"a transaction marker of version {_short(value, 0)}")
    if len(value) < 6:
        raise RequestError(f"a transaction marker has {len(value)} bytes, expected at least 6")
    return Marker(kind == 0, int.from_bytes(value[2:6], "big", signed=True), int(columns.timestamp[0]))


def _first_alone(view: memoryview, batch: Batch) -> bytes:
    """Return the first record as a separate batch: nothing else of an uncompressed batch is read."""
    if batch.count < 2:
        return bytes(view)
    try:
        length, at = _codec.decode_varint(view, BATCH_HEADER_BYTES)
    except CorruptionError:
        return bytes(view)
    end = min(at + max(length, 0), len(view))
    size = (end - _OVERHEAD_BYTES).to_bytes(4, "big")
    return bytes(view[:8]) + size + bytes(view[12:57]) + (1).to_bytes(4, "big") + bytes(view[BATCH_HEADER_BYTES:end])


def _decompresses(view: memoryview, codec: int) -> bool:
    from pylogseg.format.codec_error import CodecError
    from pylogseg.format.codecs import decompress  # codecs are loaded when they are needed

    try:
        decompress(codec, view[BATCH_HEADER_BYTES:])
    except CodecError:
        return False
    return True


def _short(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big", signed=True)
