"""Dump offset and time indexes like Kafka's dump tool, with its checks against the log.

The tool treats every slot of a file as an entry, zeros too, and looks entries up with the broker's search. In a file
with a zero tail that search fails, and the tool reports offsets as missing. This module does the same search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.env.filesystem import FileSystem, FileView
from pylogseg.errors import StorageError, is_missing
from pylogseg.format.batches import joined_rows, scan
from pylogseg.format.codec_error import in_shell
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.records import decode
from pylogseg.inspect.dump.kafka_log import dump_windows
from pylogseg.inspect.dump.kafka_options import (
    Complaints,
    KafkaFailure,
    KafkaOptions,
    Write,
    make_absolute,
    number_of,
    too_small,
)

_CORRUPT_INDEX = "org.apache.kafka.storage.internals.log.CorruptIndexException"
_WARM_BYTES = 8192


def dump_offset_index(
    files: FileSystem, path: str, shown: str, write: Write, options: KafkaOptions, complaints: Complaints
) -> None:
    """Write the entries of an offset index, and compare each with its batch."""
    base, log_path, _ = _neighbours(files, path)
    with files.open(log_path, sealed=False) as view:
        index = OffsetIndex(files.read_all(path), base, make_absolute(path))
        if not index.slot_count:
            write(f"{shown} is empty.\n".encode())
            return
        if options.index_sanity_check:
            _check_offset_index(index)
            write(f"{shown} passed sanity check.\n".encode())
            return
        lines: list[bytes] = []
        try:
            for offset, position in _entries(index, "position"):
                last = _last_offset_at(view, position, options.max_message_size)
                if last != offset:
                    complaints.mismatches.setdefault(make_absolute(path), {})[offset] = last
                lines.append(b"offset: %d position: %d\n" % (offset, position))
        finally:
            if not options.verify_index_only:
                write(b"".join(lines))


def _entries(index: OffsetIndex | TimeIndex, name: str) -> list[tuple[int, int]]:
    """Return offset and another field of the entries that the tool reads: it stops at a repeated base offset."""
    offsets = index.slots["relative_offset"].astype(np.int64) + index.base_offset
    ends = np.flatnonzero(offsets[1:] == index.base_offset)
    stop = int(ends[0]) + 1 if len(ends) else len(offsets)
    return list(zip(offsets[:stop].tolist(), index.slots[name][:stop].tolist(), strict=True))


def _neighbours(files: FileSystem, path: str) -> tuple[int, str, str]:
    """Return the base offset, and the paths of the log and the offset index beside an index."""
    name = files.split(path)[1]
    stem = name.split(".")[0]
    beside = path[: len(path) - len(name)]
    return number_of(name), beside + stem + ".log", beside + stem + ".index"


def _check_offset_index(index: OffsetIndex) -> None:
    last = index.base_offset + int(index.slots["relative_offset"][-1])
    if last < index.base_offset:
        raise KafkaFailure(
            _CORRUPT_INDEX,
            f"Corrupt index found, index file {index.path} has non-zero size but the last offset is {last} "
            f"which is less than the base offset {index.base_offset}",
        )
    _check_size(index, "Index file", 8)


def _check_size(index: OffsetIndex | TimeIndex, what: str, entry_size: int) -> None:
    if index.odd_bytes:
        raise KafkaFailure(
            _CORRUPT_INDEX,
            f"{what} {index.path} is corrupt, found {len(index.buffer)} bytes which is neither positive nor "
            f"a multiple of {entry_size}",
        )


def _check_time_index(index: TimeIndex) -> None:
    if index.slot_count:
        first, last = index.slots[0], index.slots[-1]
        lead = f"Corrupt time index found, time index file ({index.path}) has non-zero size but the last"
        if last["timestamp"] < first["timestamp"]:
            reason = f"timestamp is {last['timestamp']} which is less than the first timestamp {first['timestamp']}"
            raise KafkaFailure(_CORRUPT_INDEX, f"{lead} {reason}")
        if last["relative_offset"] < 0:
            offset = index.base_offset + int(last["relative_offset"])
            reason = f"offset is {offset} which is less than the first offset {index.base_offset}"
            raise KafkaFailure(_CORRUPT_INDEX, f"{lead} {reason}")
    _check_size(index, "Time index file", 12)


def _slice(view: FileView, position: int, limit: int) -> int:
    if position < 0:
        reason = f"Invalid position: {position} in read from {view.path}"
        raise KafkaFailure("java.lang.IllegalArgumentException", reason)
    size = view.size
    if position > size:
        reason = f"Slice from position {position} exceeds end position of {view.path}"
        raise KafkaFailure("java.lang.IllegalArgumentException", reason)
    end = position + limit
    return size if end >= 2**31 or end > size else end


def _last_offset_at(view: FileView, position: int, limit: int) -> int:
    end = _slice(view, position, limit)
    head = bytes(view.read(position, min(BATCH_HEADER_BYTES, end - position)))
    if position >= end - 17:
        raise KafkaFailure("java.util.NoSuchElementException")
    size = int.from_bytes(head[8:12], "big", signed=True)
    if size < 14:
        raise too_small(size, view.path)
    if position > end - 12 - size:
        raise KafkaFailure("java.util.NoSuchElementException")
    offset = int.from_bytes(head[:8], "big", signed=True)
    return offset if 0 <= head[16] < 2 else offset + int.from_bytes(head[23:27], "big", signed=True)


def dump_time_index(
    files: FileSystem, path: str, shown: str, write: Write, options: KafkaOptions, complaints: Complaints
) -> None:
    """Write the entries of a time index, and compare each with the batch that has its offset."""
    base, log_path, index_path = _neighbours(files, path)
    with files.open(log_path, sealed=False) as view:
        offset_index = OffsetIndex(_offset_index_bytes(files, index_path), base)
        index = TimeIndex(files.read_all(path), base, make_absolute(path))
        if options.index_sanity_check:
            _check_time_index(index)
            write(f"{shown} passed sanity check.\n".encode())
            return
        log = _IndexedLog(view, offset_index, options.max_decompressed_bytes)
        lines: list[bytes] = []
        try:
            _check_times(index, log, lines, complaints)
        finally:
            if not options.verify_index_only:
                write(b"".join(lines))


def _check_times(index: TimeIndex, log: _IndexedLog, lines: list[bytes], complaints: Complaints) -> None:
    before = -1
    for offset, timestamp in _entries(index, "timestamp"):
        last, largest = log.batch_with(offset)
        if last != offset:
            complaints.not_found.setdefault(index.path, []).append((offset, last))
        else:
            if largest != timestamp:
                complaints.timestamps.setdefault(index.path, []).append((timestamp, largest))
            if before >= timestamp:
                complaints.disorder.setdefault(index.path, []).append((timestamp, before))
        lines.append(b"timestamp: %d offset: %d\n" % (timestamp, offset))
        before = timestamp


def _offset_index_bytes(files: FileSystem, path: str) -> bytes:
    try:
        return files.read_all(path)
    except StorageError as error:
        if is_missing(error):  # the tool would create the file, and fail at its size
            raise KafkaFailure("java.lang.IllegalArgumentException", "Invalid max index size: -1") from error
        raise


class _BatchRows(NamedTuple):
    table: npt.NDArray[Any]
    positions: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    ascending: bool


def _first_true(mask: npt.NDArray[np.bool_]) -> int:
    return int(mask.argmax()) if mask.any() else len(mask)


class _IndexedLog:
    """Finds batches of a log by offset like the tool: by the offset index, then forwards to the end."""

    def __init__(self, view: FileView, index: OffsetIndex, limit_bytes: int) -> None:
        self._view, self._limit_bytes = view, limit_bytes
        self._offsets = index.slots["relative_offset"].astype(np.int64) + index.base_offset
        self._positions = index.slots["position"]
        self._base = index.base_offset
        self._from: dict[int, _BatchRows] = {}

    def batch_with(self, offset: int) -> tuple[int, int]:
        """Return last offset and largest timestamp of the first batch that ends at or after an offset; -1 if none."""
        rows, first = self._rows_from(self._lookup(offset))
        last_offsets = rows.last_offsets[first:]
        at = int(np.searchsorted(last_offsets, offset)) if rows.ascending else _first_true(last_offsets >= offset)
        if at == len(last_offsets):
            return -1, -1
        last = int(last_offsets[at])
        return last, self._largest(rows.table[first + at]) if last == offset else -1

    def _lookup(self, offset: int) -> int:
        """Return a position by the broker's search: first in the last entries, then in the rest; zeros mislead it."""
        count = len(self._offsets)
        if not count:
            return 0
        warm = max(0, count - 1 - _WARM_BYTES // 8)
        if self._offsets[warm] < offset:
            low, high = warm, count - 1
        elif self._offsets[0] > offset:
            return 0
        else:
            low, high = 0, warm
        while low < high:
            middle = (low + high + 1) >> 1
            if self._offsets[middle] > offset:
                high = middle - 1
            elif self._offsets[middle] < offset:
                low = middle
            else:
                return int(self._positions[middle])
        return int(self._positions[low])

    def _rows_from(self, position: int) -> tuple[_BatchRows, int]:
        end = _slice(self._view, position, 2**31 - 1)
        rows = self._rows(0, self._view.size)
        at = int(np.searchsorted(rows.positions, position))
        if position >= end - 17 or (at < len(rows.positions) and rows.positions[at] == position):
            return rows, at
        return self._rows(position, end), 0  # no batch begins at the position in the entry

    def _rows(self, start: int, end: int) -> _BatchRows:
        if start not in self._from:
            parts = [window.batches.rows for window in dump_windows(self._view, start, end, crc=False)]
            table = joined_rows(parts)
            last_offsets = np.ascontiguousarray(table["last_offset"])
            ascending = bool((last_offsets[1:] >= last_offsets[:-1]).all())
            self._from[start] = _BatchRows(table, np.ascontiguousarray(table["position"]), last_offsets, ascending)
        return self._from[start]

    def _largest(self, row: Any) -> int:
        buffer = bytearray(self._view.read(int(row["position"]), int(row["size"])))
        buffer[16] = min(buffer[16], 2)
        columns, damage = decode(scan(buffer, crc=False).batches, buffer, limit_bytes=self._limit_bytes)
        if damage:
            raise KafkaFailure("org.apache.kafka.common.InvalidRecordException", in_shell(damage[0].reason))
        return int(columns.timestamp.max(initial=-1))
