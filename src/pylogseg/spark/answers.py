"""Results as rows of a DataFrame, by their declared columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pylogseg.format.columns import TableColumn, get_columns, spark_ddl, to_row
from pylogseg.format.names import parse_partition_folder
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.spark._compat import VERSION, struct_of

DETAIL = TableColumn("detail", "string", "line of --json")
_PLACE = (TableColumn("topic", "string", "by the folder's name"), TableColumn("partition", "int32", "as `topic`"))


def small_frame(spark: Any, rows: Iterable[Mapping[str, Any]], columns: Sequence[TableColumn]) -> Any:
    """Return a DataFrame of a few rows of the driver: some columns of each, null where it has none of the name.

    The rows become an Arrow table in the plan. A list of rows would be sent to the workers, and from there to the JVM,
    each time the DataFrame is evaluated.
    """
    schema, lines = spark_ddl(columns), list(rows)
    if VERSION < (4, 0):
        return spark.createDataFrame([tuple(row.get(column.name) for column in columns) for row in lines], schema)
    return spark.createDataFrame(pa.Table.from_pylist(lines, arrow_schema(columns)), struct_of(schema))


def columns_of_kind(kind: type, names: str = "") -> tuple[TableColumn, ...]:
    """Return the declared columns of a class: some by their names, else all but the one that tells kinds apart."""
    columns = {column.name: column for column in get_columns(kind) if column.name != "type"}
    return tuple(columns[name] for name in names.split() or columns)


def to_line(value: Any) -> dict[str, Any]:
    """Return a result as its line of ``--json``, with the text of that as `detail`."""
    line = to_row(value)
    return {**line, "detail": json.dumps(line)}


def frame_partitions(spark: Any, results: Iterable[Any], columns: Iterable[TableColumn], **more: Any) -> Any:
    """Return a DataFrame of the results of partitions: topic and number, some columns, and the line of ``--json``."""
    rows = list[dict[str, Any]]()
    for result in results:
        folder = parse_partition_folder(result.name)
        assert folder is not None
        rows.append({**to_line(result), "topic": folder.topic, "partition": folder.partition, **more})
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    return small_frame(spark, rows, (*_PLACE, *columns, DETAIL))
