"""Tables of other formats, written by the packages that write them: Parquet, Delta, Iceberg."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import pylogseg

#: In the order of `parts`: a file or commit for each.
Parts = Sequence[pa.Table]


def records(source: Any, topic: str | None = None, isolation_level: str = "read_committed", **how: Any) -> pa.Table:
    """Return what a sink would write: the records of a log, without headers."""
    found = pylogseg.read_arrow(source, topic, isolation_level=isolation_level, **how).read_all()
    return found.drop_columns(["headers", "timestampType"])


def parquet(folder: Path, parts: Parts, **how: Any) -> Path:
    """Write a folder of Parquet files."""
    folder.mkdir(parents=True)
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"part-{number}.parquet", **how)
    return folder


def delta(folder: Path, parts: Parts, **how: Any) -> Path:
    """Write a Delta table, a commit for each part."""
    from deltalake import write_deltalake

    for part in parts:
        write_deltalake(folder, part, mode="append", **how)
    return folder


def catalog(folder: Path) -> Any:
    """Return a catalog of Iceberg in a folder."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True, exist_ok=True)
    found = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    weakref.finalize(found, found.engine.dispose)
    found.create_namespace_if_not_exists("kafka")
    return found


def iceberg(folder: Path, parts: Parts, **how: Any) -> Path:
    """Write an Iceberg table, a snapshot for each part; its catalog is closed again."""
    made = catalog(folder)
    table = made.create_table("kafka.orders", schema=parts[0].schema, **how)
    for part in parts:
        table.append(part)
    made.close()
    return folder / "warehouse" / "kafka" / "orders"


def broken(folder: Path, source: Any) -> Path:
    """Write a table in which a log's aborted records are, some are there twice, and one is not."""
    rows = records(source, isolation_level="read_uncommitted")
    return parquet(folder, [rows.slice(1, 400), rows.slice(401), rows.slice(50, 20)], row_group_size=150)


WRITERS = {"parquet": parquet, "delta": delta, "iceberg": iceberg}
