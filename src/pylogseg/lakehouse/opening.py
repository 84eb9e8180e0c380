"""The tables that `lake` writes to, by name."""

from __future__ import annotations

from collections.abc import Mapping

from pylogseg.errors import RequestError
from pylogseg.lakehouse.names import TableName, missing_package
from pylogseg.lakehouse.sinks import Sink


def sink_of(table: TableName, properties: Mapping[str, str] | None = None) -> Sink:
    """Return a table, whether it is there or not; RequestError if its package is not installed."""
    given = {} if properties is None else dict(properties)
    if "://" in table.text:
        raise RequestError(f"{table.text}: tables are written to folders of this machine only, for the time being")
    if given and (table.kind != "iceberg" or table.place):
        raise RequestError(f"{table.text}: properties are for a catalog of pyiceberg: iceberg:CATALOG:NAMESPACE.TABLE")
    try:
        if table.kind == "delta":
            from pylogseg.lakehouse.delta import DeltaSink

            return DeltaSink(table.name)
        if table.kind == "iceberg":
            from pylogseg.lakehouse.iceberg import IcebergSink

            if not table.place:
                return IcebergSink(table, table.catalog, given)
            return IcebergSink.in_folder(table)
        from pylogseg.lakehouse.ducklake import DuckLakeSink

        return DuckLakeSink(table.place, table.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("deltalake", "pyiceberg", "sqlalchemy", "duckdb"):
            raise
        raise missing_package(error.name or table.kind, table.kind) from None
