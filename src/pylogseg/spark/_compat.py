"""Differences between versions of Spark; each has a test."""

from __future__ import annotations

import re
from typing import Any

import pyspark

from pylogseg import errors
from pylogseg.errors import RequestError

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

if VERSION >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:  # read limits are not passed, and Trigger.AvailableNow is one batch

    class ReadAllAvailable:  # type: ignore[no-redef]
        """No limit."""

    class _RowLimit(int):
        pass

    ReadMaxRows = ReadMinRows = _RowLimit

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Unused in this version."""


__all__ = [
    "VERSION",
    "ReadAllAvailable",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "cause_of",
    "check_data_sources",
    "cores_of",
    "is_connect",
    "struct_of",
]

#: More rows than there are cores.
_MANY = 100_000


def check_data_sources() -> None:
    """Raise RequestError before Spark 4.0, which has no Python data sources."""
    if VERSION < (4, 0):
        raise RequestError(
            f"Spark {pyspark.__version__} has no Python data sources: use Spark 4.0 or later, "
            "or pylogseg.spark.read_segments"
        )


def cores_of(spark: Any) -> int:
    """Return the number of cores of a session; 0 if Spark does not tell."""
    if is_connect(spark):  # it has no context, but a range has as many partitions
        from pyspark.sql.functions import spark_partition_id

        numbers = spark.range(_MANY).select(spark_partition_id().alias("number"))
        return int(numbers.agg({"number": "max"}).first()[0]) + 1
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return 0


def is_connect(spark: Any) -> bool:
    """Check whether a session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cause_of(error: BaseException) -> tuple[str, str] | None:
    """Return class name and message of the package's error that ended a task; Spark passes on only the text."""
    causes = re.findall(r"^\s*(?:\w+\.)*(\w+Error): (.*)$", str(error), re.MULTILINE)
    ours = [(kind, message) for kind, message in causes if hasattr(errors, kind)]
    return ours[-1] if ours else None


def struct_of(schema: Any) -> Any:
    """Return a schema as a StructType, from a StructType or its text."""
    from pyspark.sql import types

    if not isinstance(schema, str):
        return schema
    return types.StructType.fromDDL(schema) if VERSION >= (4, 0) else types._parse_datatype_string(schema)
