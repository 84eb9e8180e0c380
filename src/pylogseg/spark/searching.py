"""Records that match a pattern, found in the workers by the compiled code of ``pylogseg grep``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.inspect.search.patterns import Pattern
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import Task
from pylogseg.spark import _compat
from pylogseg.spark.frames import map_tasks, read_options
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import selected_columns, spark_schema
from pylogseg.spark.task import chunks, even_out


def find_records(
    spark: Any, path: Any, pattern: Pattern, columns: Sequence[str] | None, options: dict[str, Any]
) -> Any:
    """Return a DataFrame of the records that match; see `read_segments` for `columns` and `options`."""
    paths, parsed = read_options(path, options, columns)
    names = selected_columns(parsed)

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        return even_out(_matches(chunks(task, parsed, ()), pattern, arrow.schema(names)), parsed)

    return map_tasks(spark, plan(paths, parsed, cores=_compat.cores_of(spark)), work, spark_schema(names))


def _matches(read: Iterator[Chunk], pattern: Pattern, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    for columns, segment in read:
        rows = np.flatnonzero(pattern.matches(columns))
        if len(rows):
            yield arrow.record_batch(Chunk(columns.take(rows), segment), target)
