"""Records and their bytes by topic and hour, or by topic and key: `stats --by`, and Spark's job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.columns import HOURS, KEYS
from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.log_reader import LogReader
from pylogseg.walker.gaps import Gap

#: By what is counted: the columns that are read.
READ = {"hour": ("topic", "timestamp", "key", "value"), "key": ("topic", "key", "value")}
_SCHEMAS = {"hour": arrow_schema(HOURS), "key": arrow_schema(KEYS)}
_ORDERS: dict[str, Any] = {
    "hour": [("topic", "ascending"), ("hour", "ascending")],
    "key": [("records", "descending"), ("topic", "ascending"), ("key", "ascending")],
}
_HOUR_US = 3_600_000_000
#: The hour of an earlier time begins before the first that 64 bits can hold.
_FIRST_US = -(2**63) + _HOUR_US
#: So many counts of parts wait to be added up.
_TOGETHER = 16


def by_hour(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Count the records of a batch by topic and hour, so that little travels."""
    times = batch.column("timestamp").cast(pa.int64())
    micros = times.fill_null(0).to_numpy()
    none = times.is_null().to_numpy(zero_copy_only=False) | (micros < _FIRST_US)
    hours = np.where(none, 0, micros) // _HOUR_US * _HOUR_US
    return _count_rows(batch, "hour", pa.array(hours, mask=none).cast(_SCHEMAS["hour"].field("hour").type))


def by_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _count_rows(batch, "key", batch.column("key"))


_COUNT: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {"hour": by_hour, "key": by_key}


class _Counts(NamedTuple):
    """Counts of some parts of logs, to add up, and the gaps there."""

    batches: list[pa.RecordBatch]
    gaps: list[Gap]

    def add(self, more: Iterable[pa.RecordBatch], by: str) -> None:
        """Add counts, and make few of many."""
        self.batches.extend(more)
        if len(self.batches) >= _TOGETHER:
            self.batches[:] = [_sum_counts(self.batches, by)]


def counted_records(
    parts: Sequence[LogReader], by: str, executor: Executor, on_bytes: Callable[[int], None] | None = None
) -> tuple[pa.Table, list[Gap]]:
    """Count the records of parts of logs: the rows in their order, and the gaps."""
    load = Workload("pylogseg stats", [part.size for part in parts], on_bytes)
    work, fold = functools.partial(_of_part, by=by), functools.partial(_fold, by=by)
    topics = [part.log.segments[0].topic if part.log.segments else "" for part in parts]
    sums = [counts for _, counts in executor.merge(work, parts, topics, fold, functools.partial(_add_up, by=by), load)]
    batches = [batch for counts in sums for batch in counts.batches]
    gaps = [gap for counts in sums for gap in counts.gaps]
    return pa.Table.from_batches(batches, _SCHEMAS[by]).sort_by(_ORDERS[by]), gaps


def _of_part(part: LogReader, advance: Advance, by: str) -> _Counts:
    part, wanted = part.apart(advance), arrow.schema(READ[by])
    counts = [_COUNT[by](batch) for batch in arrow.record_batches(part.chunks(), wanted, part.gaps)]
    return _Counts([_sum_counts([_none(by), *counts], by)], part.gaps)


def _fold(found: dict[int, _Counts], number: int, counts: _Counts, by: str) -> None:
    """Keep the gaps of a part, and add its counts to the first one's."""
    for first in found.values():
        first.add(counts.batches, by)
        counts.batches.clear()
        break
    found[number] = counts


def _add_up(topic: str, parts: Iterable[_Counts], by: str) -> _Counts:
    sums = _Counts([], [])
    for counts in parts:
        sums.add(counts.batches, by)
        sums.gaps.extend(counts.gaps)
    return _Counts([_sum_counts([_none(by), *sums.batches], by)], sums.gaps)


def _count_rows(batch: pa.RecordBatch, by: str, values: pa.Array) -> pa.RecordBatch:
    sizes = [pc.fill_null(pc.binary_length(batch.column(name)), 0).cast(pa.int64()) for name in ("key", "value")]
    ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    columns = [batch.column("topic"), values, ones, pc.add(*sizes)]
    return _sum_counts([pa.RecordBatch.from_arrays(columns, schema=_SCHEMAS[by])], by)


def _sum_counts(counts: Iterable[pa.RecordBatch], by: str) -> pa.RecordBatch:
    groups = pa.Table.from_batches(counts, _SCHEMAS[by]).group_by(["topic", by])
    sums = groups.aggregate([("records", "sum"), ("bytes", "sum")])
    parts = sums.select(["topic", by, "records_sum", "bytes_sum"]).combine_chunks().to_batches()
    return pa.RecordBatch.from_arrays(parts[0].columns, schema=_SCHEMAS[by]) if parts else _none(by)


def _none(by: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], _SCHEMAS[by])
