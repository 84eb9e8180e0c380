"""The work of a task: read ranges of segments, return Arrow record batches."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from pylogseg.disk.tier.opening import any_file_system
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import StorageError
from pylogseg.format.scratch import Scratch
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.arrow.sizes import of_even_size
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import PlannedLogs, Range, RangeReader
from pylogseg.spark.logs import naming_option
from pylogseg.spark.options import SourceOptions
from pylogseg.values.decoding import TypedBatches
from pylogseg.walker.gaps import Gap, joined_times, offsets_text

_log = logging.getLogger("pylogseg.spark")


def read_task(
    task: Iterable[Range], options: SourceOptions, columns: Sequence[str], typed: TypedBatches | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, whose ranges are ordered, in batches of about ``batchRows``.

    They have less than twice as many, and at most ``batchBytes``, but for a single record that is larger. Other
    columns are not decoded; `typed` decodes some of them, as the driver chose.
    """
    typed = None if typed is None else typed.of(columns)
    names = columns if typed is None else typed.list_needed_columns()
    times: list[Gap] = []
    batches = even_out(arrow.record_batches(chunks(task, options, names), arrow.schema(names), times), options)
    with naming_option():
        # Decoded values may be larger than their bytes.
        decoded = None if typed is None else (batch.select(list(columns)) for batch in typed.batches(batches))
        yield from batches if decoded is None else even_out(decoded, options)
    for gap in joined_times([*times, *(typed.gaps if typed is not None else ())]):
        _log.warning("%s", gap)
    if typed is not None and typed.undecoded:
        _log.warning("%d payloads could not be decoded", typed.undecoded)


def even_out(batches: Iterable[pa.RecordBatch], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of the size that the options say: all rows of tasks leave them by this."""
    return of_even_size(batches, options.batch_rows, options.batch_bytes)


def chunks(task: Iterable[Range], options: SourceOptions, columns: Sequence[str]) -> Iterator[Chunk]:
    """Yield the records of a task as record columns, valid until the next chunk."""
    scratch = functools.partial(Scratch, besides=arrow.copies_for(columns), allocate=pa.allocate_buffer)
    state = options.reading.start(scratch=scratch)
    logs, lost = planned_logs(options), on_loss(options)
    ended: set[str] = set()
    for part in task:
        if part.folder in ended:
            continue
        state.gaps.clear()
        yield from (chunk for chunk in RangeReader(part, state, logs, lost) if len(chunk.columns))
        if state.ends_at_damage and any(gap.is_damage for gap in state.gaps):
            ended.add(part.folder)


def planned_logs(options: SourceOptions) -> PlannedLogs:
    """Return the logs of ranges that name their files by paths and URLs."""

    def place(part: Range) -> tuple[FileSystem, str]:
        if options.tier is None:
            return any_file_system(part.path, options.storage_options, memory_map=options.memory_map)
        from pylogseg.disk.tier.joined import joined_files

        files = joined_files(options.tier, part.path, options.storage_options, memory_map=options.memory_map)
        return files, part.path

    return PlannedLogs(options.reading.isolation_level, place, skips=options.reading.on_corrupt == "skip")


def on_loss(options: SourceOptions) -> Callable[[Range, Gap], None]:
    """Report records that a broker removed since the plan was made: raise, or warn without ``failOnDataLoss``."""

    def report_loss(part: Range, gap: Gap) -> None:
        missing = offsets_text(gap.first_offset, gap.next_offset)
        message = f"{missing} of {part.topic}-{part.partition} are gone: {gap.reason}"
        if options.fail_on_data_loss:
            raise StorageError(part.path, "read", f"{message} (failOnDataLoss=false continues without them)")
        _log.warning("%s: %s", part.path, message)

    return report_loss
