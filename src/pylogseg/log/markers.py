"""Transaction markers, read from the control batches that hold them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pylogseg import _append
from pylogseg._append import Batch
from pylogseg.errors import InvalidRecord, RequestError
from pylogseg.format.batches import scan
from pylogseg.format.buffers import byte_view
from pylogseg.format.records import decode


class Marker(NamedTuple):
    """The end of a transaction.

    Attributes
    ----------
    aborted : bool
    coordinator_epoch : int
    timestamp : int
        ms.
    """

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def marker_of(buffer: Any, batch: Batch, file_position: int = 0) -> Marker | None:
    """Read the marker in a control batch.

    Parameters
    ----------
    buffer : buffer
        Holds the batch.
    batch : Batch
        With its header.
    file_position : int
        Where byte 0 of the buffer lies in what the batch's position counts in.

    Returns
    -------
    Marker or None
        None if the batch has no records: the cleaner leaves those.

    Raises
    ------
    InvalidRecord
        If the records cannot be read, or the key or value has a version that is negative or a key that is too short.
    RequestError
        If it is a control record of another type, or its value is too short.
    """
    if batch.count == 0:
        return None
    view = byte_view(buffer)
    position = batch.position - file_position
    found = _append.end_marker(view, position, batch.size)
    if found is None:
        return _read_carefully(view[position : position + batch.size])
    kind, coordinator_epoch, timestamp = found
    return Marker(kind == 0, coordinator_epoch, timestamp)


def _read_carefully(view: memoryview) -> Marker:
    columns, damage = decode(scan(np.frombuffer(view, np.uint8), crc=False).batches, view)
    if damage or not len(columns):
        raise InvalidRecord(f"a control batch: {damage[0].reason if damage else 'it has no records'}")
    key, value = columns.key(0) or b"", columns.value(0) or b""
    if len(key) < 4:
        raise InvalidRecord(f"the key of a control record has {len(key)} bytes, it needs 4")
    version, kind = _short(key, 0), _short(key, 2)
    if version < 0:
        raise InvalidRecord(f"the key of a control record has version {version}")
    if kind not in (0, 1):
        raise RequestError(f"a control record of type {kind} ends no transaction")
    if len(value) >= 2 and _short(value, 0) < 0:
        raise InvalidRecord(f"a transaction marker of version {_short(value, 0)}")
    if len(value) < 6:
        raise RequestError(f"a transaction marker has {len(value)} bytes, it needs 6")
    return Marker(kind == 0, int.from_bytes(value[2:6], "big", signed=True), int(columns.timestamp[0]))


def _short(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big", signed=True)
