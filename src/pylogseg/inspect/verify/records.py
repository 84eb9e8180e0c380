"""Checks of decoded records against their batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns
from pylogseg.inspect.verify.controls import controls

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
        """Yield the findings for a slice; the flags are those of `format.records.Slice`."""
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
        found = f"offsets {offsets[starts[at]]} to {offsets[ends[at]]}"
        yield _RECORDS, row, f"{found} in a batch of {rows.base_offset[row]} to {rows.last_offset[row]}", True
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
        reason = f"the header's greatest timestamp is {rows.max_timestamp[row]}, that of the records {greatest[at]}"
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
        found = [_crc_of(data, key, which) for which in (magic, 1 - magic)]
        if True not in found:
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
