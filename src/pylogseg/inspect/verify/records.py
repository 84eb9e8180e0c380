"""Checks of decoded records against their batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.errors import CorruptionError
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.layout import CONTROL_KEY, END_TXN_MARKER
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns

#: Kind of a finding, row of the batch table, reason, whether it is damage.
RecordFinding = tuple[str, int, str, bool]

_RECORDS = "records"


class RecordsCheck:
    """Checks decoded records: offsets, timestamps, control records, checksums inside legacy wrappers.

    Called with each slice of a file's records in their order (`format.records.Slice`): a large batch has several.
    """

    def __init__(self) -> None:
        self._last_offset = self._greatest = -1

    def __call__(self, columns: RecordColumns, continues: bool = False, ends: bool = True) -> Iterator[RecordFinding]:
        """Yield the findings for a slice; see `format.records.Slice` for the flags."""
        if not len(columns):
            return
        # Columns by batch, not by record: there are many fewer of them.
        starts = np.flatnonzero(np.concatenate(([True], columns.batch[1:] != columns.batch[:-1])))
        yield from _offsets(columns, starts, self._last_offset if continues else None)
        greatest = np.maximum.reduceat(columns.timestamp, starts)
        if continues:
            greatest[0] = max(greatest[0], self._greatest)
        if ends:
            yield from _timestamps(columns, starts, greatest)
        yield from _early_times(columns, starts)
        yield from controls(columns, starts[1:] if continues else starts)
        self._last_offset, self._greatest = int(columns.offset[-1]), int(greatest[-1])
        yield from _inner_crcs(columns)


def _offsets(columns: RecordColumns, starts: npt.NDArray[np.intp], before: int | None) -> Iterator[RecordFinding]:
    offsets, rows, of = columns.offset, columns.batches, columns.batch[starts]
    ends = np.append(starts[1:], len(offsets)) - 1
    # The header of a wrapper has no base offset.
    wrong = (offsets[ends] > rows.last_offset[of]) | ((offsets[starts] < rows.base_offset[of]) & (rows.magic[of] == 2))
    for at in np.flatnonzero(wrong).tolist():
        row = int(of[at])
        span = f"offsets {offsets[starts[at]]} to {offsets[ends[at]]}"
        yield _RECORDS, row, f"{span} in a batch of {rows.base_offset[row]} to {rows.last_offset[row]}", True
    is_low = offsets[1:] <= offsets[:-1]
    is_low[starts[1:] - 1] = False
    disorder = np.flatnonzero(is_low) + 1
    if before is not None and offsets[0] <= before:
        disorder = np.concatenate(([0], disorder))
    # One finding for each batch: a small file may have millions of such records.
    first, times = np.unique(columns.batch[disorder], return_index=True, return_counts=True)[1:]
    for i, more in zip(disorder[first].tolist(), (times - 1).tolist(), strict=True):
        last = offsets[i - 1] if i else before
        reason = f"offset {offsets[i]} follows offset {last} in the same batch"
        reason += f", and {more} more follow one that is not below them" if more else ""
        yield _RECORDS, int(columns.batch[i]), reason, True


def _timestamps(
    columns: RecordColumns, starts: npt.NDArray[np.intp], greatest: npt.NDArray[np.int64]
) -> Iterator[RecordFinding]:
    """Check the greatest timestamp in the header, which segments are rolled, kept and searched by."""
    rows, of = columns.batches, columns.batch[starts]
    wrong = (greatest != rows.max_timestamp[of]) & ~rows.is_log_append_time[of] & (rows.magic[of] > 0)
    for at in np.flatnonzero(wrong).tolist():
        row = int(of[at])
        reason = f"the header's greatest timestamp is {rows.max_timestamp[row]}, the records' {greatest[at]}"
        yield "timestamp", row, reason, False


def _early_times(columns: RecordColumns, starts: npt.NDArray[np.intp]) -> Iterator[RecordFinding]:
    """Check for times that Kafka's cleaner does not write: below -1, which stands for none."""
    least = np.minimum.reduceat(columns.timestamp, starts)
    for at in np.flatnonzero(least < -1).tolist():
        row = int(columns.batch[starts[at]])
        if columns.batches.magic[row] == 2:
            yield "uncleanable", row, f"a record has the timestamp {least[at]}, which is below -1", False


def _inner_crcs(columns: RecordColumns) -> Iterator[RecordFinding]:
    """Check the checksums of messages inside compressed legacy wrappers."""
    if not (columns.batches.magic < 2).any():
        return
    inner = np.flatnonzero((columns.batches.magic[columns.batch] < 2) & (columns.key_place >> SOURCE_SHIFT != 0))
    data = memoryview(columns.sources[1]).cast("B")
    for i in inner.tolist():
        row = int(columns.batch[i])
        key = int(columns.key_place[i]) & SOURCE_MASK
        magic = int(columns.batches.magic[row])
        # Old brokers left wrappers around messages of the other magic (KAFKA-4298).
        results = [_crc_of(data, key, which) for which in (magic, 1 - magic)]
        if True not in results:
            yield "inner-crc", row, f"the checksum of the message at offset {columns.offset[i]} does not hold", True


def _crc_of(data: memoryview, key: int, magic: int) -> bool | None:
    """Check the CRC of the message whose key begins at a position; None if it is not a message of this magic."""
    crc = key - (18 if magic else 10)
    if crc < 4 or data[crc + 4] != magic:
        return None
    size = int.from_bytes(data[crc - 4 : crc], "big", signed=True)
    if size < 14 or crc + size > len(data):
        return None
    return bool(int.from_bytes(data[crc : crc + 4], "big") == _codec.crc32(data[crc + 4 : crc + size]))


# ---- control batches: brokers and consumers take the first record for what ends a transaction ----

_KIND = "control"


def controls(columns: RecordColumns, starts: npt.NDArray[np.intp]) -> Iterator[tuple[str, int, str, bool]]:
    """Yield a finding for each control batch whose first record (at one of `starts`) is no control record.

    With a producer it has to be a marker: a broker that recovers the log ends at another one. Without a producer it is
    one of the records of a Raft log.
    """
    rows, of = columns.batches, columns.batch[starts]
    firsts = starts[rows.is_control[of] & (rows.magic[of] == 2)]
    for at in firsts[~_are_markers(columns, firsts)].tolist():
        row = int(columns.batch[at])
        reason = _fault(columns, at, int(rows.producer_id[row]))
        if reason:
            yield _KIND, row, f"a control batch without a control record: {reason}", True


def _are_markers(columns: RecordColumns, at: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Return a mask of plain markers: nearly all control records of a topic."""
    sizes = (columns.key_size[at] == CONTROL_KEY.size) & (columns.value_size[at] == END_TXN_MARKER.size)
    are_markers = np.zeros(len(at), np.bool_)
    places = columns.key_place[at]
    for number, source in enumerate(columns.sources):
        here = np.flatnonzero(sizes & (places >> SOURCE_SHIFT == number))
        if len(here):
            data = np.frombuffer(source, np.uint8)
            keys = data[(places[here] & SOURCE_MASK)[:, None] + np.arange(CONTROL_KEY.size)]
            values = data[(columns.value_place[at[here]] & SOURCE_MASK)[:, None] + np.arange(2)]
            are_markers[here] = (keys[:, :3] == 0).all(axis=1) & (keys[:, 3] < 2) & (values == 0).all(axis=1)
    return are_markers


def _fault(columns: RecordColumns, at: int, producer_id: int) -> str:
    """Return why a record is no control record; empty if it is one."""
    key, value = columns.key(at), columns.value(at)
    if key is None:
        return "it has no key"
    try:
        decoded = decode_control_key(key)
    except CorruptionError as error:
        return error.reason
    if producer_id < 0:
        is_of_kafka = decoded.kind is not ControlKind.UNKNOWN or (decoded.version == 0 and len(key) == CONTROL_KEY.size)
        return "" if is_of_kafka else f"its key of {len(key)} bytes has the type {decoded.type}"
    if not decoded.kind.ends_transaction:
        return f"type {decoded.type} of producer {producer_id} ends no transaction"
    if value is None or len(value) < END_TXN_MARKER.size:
        return f"a marker with a value of {0 if value is None else len(value)} bytes, it needs {END_TXN_MARKER.size}"
    version = int.from_bytes(value[:2], "big", signed=True)
    return f"a marker of version {version}" if version < 0 else ""
