"""The tables that `lake` writes to, by name."""

from __future__ import annotations

from collections.abc import Mapping

from pylogseg.errors import RequestError, StorageError
from pylogseg.lakehouse.layouts import FLAT
from pylogseg.lakehouse.library_errors import library_errors
from pylogseg.lakehouse.names import TableName, check_path, missing_package
from pylogseg.lakehouse.sinks import Sink


def sink_of(table: TableName, options: Mapping[str, str] | None = None, layout: str = FLAT) -> Sink:
    """Return a table, whether it is there or not; RequestError if its package is not installed.

    Options are those of the library that has the table: of a catalog of Iceberg, or of the store of Delta.
    """
    given = {} if options is None else dict(options)
    of_catalog = table.kind == "iceberg" and not table.place
    if "://" in table.text and table.kind != "delta":
        raise RequestError(
            f"{table.text}: in an object store there may be Delta, as delta:s3://BUCKET/FOLDER, and tables of a "
            "catalog that has its warehouse there, as iceberg:CATALOG:NAMESPACE.TABLE"
        )
    if given and not of_catalog and table.kind != "delta":
        raise RequestError(
            f"{table.text}: options are for the catalog of iceberg:CATALOG:NAMESPACE.TABLE, and for the store of Delta"
        )
    if layout != FLAT and table.kind != "iceberg":
        raise RequestError(f"{table.text}: the layout {layout} is for tables of Iceberg")
    check_path(table)
    try:
        with library_errors(table.text, "open"):
            if table.kind == "delta":
                from pylogseg.lakehouse.delta import DeltaSink

                return DeltaSink(table.name, given)
            if table.kind == "iceberg":
                from pylogseg.lakehouse.iceberg import IcebergSink

                if of_catalog:
                    return IcebergSink(table, table.catalog, given, layout)
                return IcebergSink.in_folder(table, layout)
            from pylogseg.lakehouse.ducklake import DuckLakeSink

            return DuckLakeSink(table.place, table.name)
    except StorageError as error:
        lacks = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if (lacks or "").partition(".")[0] in ("deltalake", "pyiceberg", "sqlalchemy", "duckdb"):
            raise missing_package(str(lacks), table.kind) from None
        raise
