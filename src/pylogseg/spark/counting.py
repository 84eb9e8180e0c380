"""Counts of `stats`: of segments by an executor, and of records by topic and hour or key, which Spark adds up."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.columns import HOURS, KEYS, STATS
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.env.executor import Executor
from pylogseg.format.columns import spark_ddl, to_row
from pylogseg.inspect.stats.counting import Counting, count_units
from pylogseg.inspect.stats.groups import StatsGroup, units_of
from pylogseg.reading.logs import partitions_of
from pylogseg.spark.exported import assign
from pylogseg.spark.frames import read_segments
from pylogseg.spark.moments import moment_of
from pylogseg.tables import counting

_log = logging.getLogger("pylogseg.spark")

_COUNTS = {"hour": (HOURS, counting.by_hour), "key": (KEYS, counting.by_key)}
_TIMES = [column.name for column in STATS if column.type == "timestamp"]


def count_segments(disk: Disk, by: str, executor: Executor) -> Iterator[dict[str, Any]]:
    """Yield the columns `STATS` of each partition or topic, or of all; checkpoints that cannot be read are logged."""
    notes: list[str] = []
    units = [(unit, 0) for unit in units_of(disk, partitions_of(disk), notes)]
    for note in notes:
        _log.warning("not known: %s", note)
    for _, row in count_units(units, by, Counting(), _stats_row, executor):
        yield {**row, **{name: moment_of(row[name], name, row["name"]) for name in _TIMES}}


def _stats_row(group: StatsGroup) -> dict[str, Any]:
    return to_row(group, STATS)


def count_records(spark: Any, path: Any, choice: PartitionChoice, by: str, top: int, opening: Mapping[str, Any]) -> Any:
    """Return a DataFrame with a row for each topic and hour, or key: the `top` ones, all if it is 0.

    `opening` has the arguments ``storage_options`` and ``tier`` of `open_dir`.
    """
    from pyspark.sql import functions as sql

    columns, count = _COUNTS[by]
    names = {"storage_options": "storageOptions", "tier": "tier"}
    how = {names[name]: value for name, value in opening.items() if value is not None}
    if not choice.is_all:
        how["assign"] = assign(open_dir(path, **opening).select(*choice.arguments))
    counts = read_segments(spark, path, counting.READ[by], batch_fn=count, schema=spark_ddl(columns), **how)
    sums = counts.groupBy("topic", by).agg(*(sql.sum(name).alias(name) for name in ("records", "bytes")))
    if by == "hour":
        return sums.orderBy("topic", by)
    ordered = sums.orderBy("records", "topic", by, ascending=[False, True, True])
    return ordered.limit(top) if top else ordered
