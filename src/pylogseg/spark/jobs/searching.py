"""`grep`: find records in the workers, by the compiled code of `pylogseg grep`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.inspect.search.patterns import Pattern, regular_expression
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import Task
from pylogseg.spark import _compat
from pylogseg.spark.frames import map_tasks, read_options
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import columns_of, spark_schema
from pylogseg.spark.task import chunks, evened


def grep(
    spark: Any,
    path: Any,
    pattern: str | bytes,
    *,
    places: Sequence[str] = ("key", "value"),
    regex: bool = False,
    ignore_case: bool = False,
    invert: bool = False,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Return the records that match, as `pylogseg grep` finds them; only they reach Spark.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.spark.read_segments`.
    pattern : str or bytes
        The text or expression.
    places : sequence of str
        Where to look: ``key``, ``value``, ``headers``.
    regex : bool
        True if `pattern` is a regular expression, of Python's `re` for bytes.
    ignore_case : bool
        True if letters match in both cases.
    invert : bool
        Return the records that do not match.
    columns : sequence of str, optional
        Columns of the result.
    **options
        Options of a read: ``subscribe``, ``startingTimestamp``, ``onCorrupt`` ...

    Returns
    -------
    pyspark.sql.DataFrame
    """
    needle = Pattern(_needle(pattern, regex, ignore_case), places, ignore_case, invert)
    paths, parsed = read_options(path, options, columns)
    names = columns_of(parsed)

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        target = arrow.schema(names)
        return evened(_found(chunks(task, parsed, ()), needle, target), parsed)

    return map_tasks(spark, plan(paths, parsed, cores=_compat.cores_of(spark)), work, spark_schema(names))


def _needle(pattern: str | bytes, regex: bool, ignore_case: bool) -> bytes | re.Pattern[bytes]:
    text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
    return regular_expression(text, ignore_case) if regex else text.encode("utf-8", "surrogateescape")


def _found(found: Iterator[Chunk], needle: Pattern, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    for columns, segment in found:
        rows = np.flatnonzero(needle.matches(columns))
        if len(rows):
            yield arrow.record_batch(Chunk(columns.take(rows), segment), target)
