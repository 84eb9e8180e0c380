"""Results of commands on partitions as rows: `compact`, `redact`, `restore_tier`."""

from __future__ import annotations

import json
from typing import Any

from pylogseg.format.columns import to_row
from pylogseg.format.names import parse_partition_folder
from pylogseg.offline.result import Result

MANIFEST = (
    "topic string, `partition` int, state string, reason string, path string, logStart bigint, logEnd bigint, "
    "bytesBefore bigint, bytesAfter bigint, segmentsBefore int, segmentsAfter int, detail string"
)


def frame_of(spark: Any, result: Result) -> Any:
    """Return a DataFrame with a row for each partition."""
    return spark.createDataFrame(sorted(row_of(to_row(each)) for each in result), MANIFEST)


def row_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the row of `MANIFEST` for a `PartitionResult`."""
    folder = parse_partition_folder(row["partition"])
    assert folder is not None
    values = (row["reason"], row["path"], row["logStart"], row["logEnd"], row["bytesBefore"], row["bytesAfter"])
    counts = (row["segmentsBefore"], row["segmentsAfter"], json.dumps(row, default=str))
    return (folder.topic, folder.partition, row["state"], *values, *counts)
