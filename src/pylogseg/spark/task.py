"""The work of a task: read ranges of segments, return Arrow record batches."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.arrow import columns as arrow
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.scratch import Scratch
from pylogseg.reading.partition import OPEN_END, Chunk, PartitionReader, ReadOptions
from pylogseg.reading.seek import end_offset
from pylogseg.spark.logs import naming_option
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import Range
from pylogseg.spark.planned_logs import PlannedLogs, Vanished
from pylogseg.walker.findings import Finding
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, WINDOW_BYTES

_log = logging.getLogger("pylogseg.spark")


def read_task(task: Iterable[Range], options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task.

    Parameters
    ----------
    task : iterable of Range
        By partition and offset.
    options : SourceOptions
        Those that the plan was made with.
    columns : sequence of str
        Names, in order; what is not named is not made.

    Yields
    ------
    pyarrow.RecordBatch
        Of about ``batchRows`` rows, and at most twice as many; they own their memory.

    Raises
    ------
    CorruptionError
        At damage under ``onCorrupt=raise``.
    StorageError
        If a segment is gone and no other one has its records, under ``failOnDataLoss=true``.
    """
    wanted = arrow.schema(columns)
    made = arrow.record_batches(chunks(task, options, columns), wanted)
    with naming_option():
        yield from of_even_size(made, options.batch_rows)


def chunks(task: Iterable[Range], options: SourceOptions, columns: Sequence[str]) -> Iterator[Chunk]:
    """The records of a task as record columns, which are valid until the next chunk."""
    how = ReadOptions(
        options.isolation_level,
        options.on_corrupt,
        check_crc=options.check_crc,
        limit_bytes=options.max_decompressed_bytes,
        scratch=functools.partial(Scratch, besides=arrow.copies_for(columns), allocate=pa.allocate_buffer),
    )
    logs = PlannedLogs(options)
    ended: set[str] = set()
    for part in task:
        if part.folder in ended:
            continue
        how.gaps.clear()
        # A short range is one short window: bytes after it are not read for nothing.
        window = min(WINDOW_BYTES, part.size + SMALL_WINDOW_BYTES)
        sized = replace(how, window_bytes=window, first_window_bytes=window)
        yield from (chunk for chunk in _RangeReader(part, options, sized, logs) if len(chunk.columns))
        if options.on_corrupt == "stop" and any(gap.is_damage for gap in how.gaps):
            ended.add(part.folder)


def _no_batch(rows: BatchTable) -> npt.NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)


class _RangeReader:
    """Reads the records of one range, wherever they are by now; deleted ones are logged or raise."""

    def __init__(self, part: Range, options: SourceOptions, how: ReadOptions, logs: PlannedLogs) -> None:
        self._part, self._options, self._how, self._logs = part, options, how, logs

    def __iter__(self) -> Iterator[Chunk]:
        part, how, logs = self._part, self._how, self._logs
        seen, transactions = part.first_offset, logs.transactions(part)
        try:
            for chunk in PartitionReader(
                logs.segments(part), part.first_offset, part.end_offset, how, transactions=transactions
            ):
                if len(chunk.columns):
                    seen = int(chunk.columns.offset[-1]) + 1
                yield chunk
        except Vanished:
            # Retention or the cleaner was here. Offsets are what was asked for: other segments may have them now.
            yield from self._as_it_is()
        else:
            is_last_of_segment = part.end_offset == part.next_offset or part.first_offset >= part.end_offset
            if is_last_of_segment and how.on_corrupt != "skip":
                self._check_tail()
            if part.next_offset < 0 and seen < part.end_offset and not any(gap.is_damage for gap in how.gaps):
                self._check_end()

    def _as_it_is(self) -> Iterator[Chunk]:
        part = self._part
        log = self._logs.listed(part)
        start = log.segments[0].base_offset if log is not None and log.segments else part.end_offset
        if start > part.first_offset:
            self._lost(part.first_offset, start, "deleted since the plan was made")
        if log is not None and start < part.end_offset:
            transactions = self._logs.transactions(part)
            first = max(start, part.first_offset)
            yield from PartitionReader(log.segments, first, part.end_offset, self._how, transactions=transactions)
            for gap in self._how.gaps:
                if gap.kind is Finding.REMOVED:
                    self._lost(gap.first_offset, gap.next_offset or part.end_offset, gap.reason)

    def _check_tail(self) -> None:
        """Look for damage between the last offset of a segment and the end of its file, as who reads the log does."""
        how = replace(
            self._how, isolation_level="read_uncommitted", on_corrupt="skip", gaps=[], scratch=None, batches=_no_batch
        )
        # From the last offset on: what cannot be where it is counts as lying before the next segment's first one.
        reader = PartitionReader(self._logs.segments(self._part), self._part.end_offset - 1, OPEN_END, how)
        with contextlib.suppress(Vanished):
            for _ in reader:
                pass
        for gap in how.gaps:
            if gap.is_damage and self._how.on_corrupt == "raise":
                raise gap.as_error()
        self._how.gaps += how.gaps

    def _check_end(self) -> None:
        """Check for a truncation by a follower, if a log gave fewer records than planned."""
        log = self._logs.listed(self._part)
        end = 0 if log is None else end_offset(log.segments)
        if end < self._part.end_offset:
            self._lost(max(end, self._part.first_offset), self._part.end_offset, "truncated since the plan was made")

    def _lost(self, first: int, end: int, what: str) -> None:
        part = self._part
        message = (
            f"offsets {first} to {min(end, part.end_offset) - 1} of {part.topic}-{part.partition} are gone: {what}"
        )
        if self._options.fail_on_data_loss:
            raise StorageError(part.path, "read", f"{message} (failOnDataLoss=false goes on without them)")
        _log.warning("%s: %s", part.path, message)


def of_even_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of about so many rows: small ones are put together, since each costs a message; large ones are split."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows >= rows:
            yield from _merged(waiting)
            parts = batch.num_rows // rows
            bounds = [batch.num_rows * i // parts for i in range(parts + 1)]
            yield from (batch.slice(first, end - first) for first, end in itertools.pairwise(bounds))
            waiting, count = [], 0
            continue
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield from _merged(waiting)
            waiting, count = [], 0
    yield from _merged(waiting)


def _merged(waiting: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(waiting) < 2:
        return waiting
    merged: list[pa.RecordBatch] = pa.Table.from_batches(waiting).combine_chunks().to_batches()
    return merged
