"""Tables of other formats, written by the packages that write them: Parquet, Delta, Iceberg."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
    found = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse")
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


def add_twice(folder: Path, rows: pa.Table) -> list[str]:
    """Let pyiceberg add a file of rows to the table in `iceberg`'s folder, and once more; the snapshots."""
    made = catalog(folder)
    table = made.load_table("kafka.orders")
    pq.write_table(rows, folder / "added.parquet")
    for _ in range(2):
        table.add_files([f"{folder}/added.parquet"], check_duplicate_files=False)
    made.close()
    return [f"snapshot {entry.snapshot_id}" for entry in table.history()][-2:]


def ducklake(folder: Path, parts: Parts) -> Path:
    """Write a DuckLake table, a snapshot for each part, with the tables that the catalog of DuckDB 1.5.5 has."""
    import duckdb

    kept = Path(__file__).parents[1] / "lakehouse" / "ducklake" / "catalog.sql"
    fixed = ("CREATE TABLE", *(f'insert into "ducklake_{name}" ' for name in ("metadata", "schema", "table")))
    (folder / "main" / "orders").mkdir(parents=True)
    fields = [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(parts[0].schema, 1)]
    with duckdb.connect(folder / "catalog.ducklake") as made:
        for line in kept.read_text(encoding="utf-8").splitlines():
            if line.startswith(fixed):
                made.execute(line)
        for number, field in enumerate(fields, 1):
            made.execute("insert into ducklake_column (column_id, begin_snapshot, table_id, column_name, column_type) "
                         "values (?, 1, 1, ?, ?)", [number, field.name, str(field.type)])  # fmt: skip
        for number, part in enumerate(parts):
            name = f"part-{number}.parquet"
            pq.write_table(part.cast(pa.schema(fields)), folder / "main" / "orders" / name)
            made.execute("insert into ducklake_snapshot (snapshot_id) values (?)", [number + 1])
            made.execute("insert into ducklake_data_file (data_file_id, table_id, begin_snapshot, path, "
                         "path_is_relative, record_count) values (?, 1, ?, ?, true, ?)",
                         [number, number + 1, name, part.num_rows])  # fmt: skip
            for column, field in enumerate(fields, 1):
                if pa.types.is_integer(field.type) and part.num_rows:
                    bounds = [str(each) for each in pc.min_max(part[field.name]).as_py().values()]
                    made.execute("insert into ducklake_file_column_stats (data_file_id, table_id, column_id, "
                                 "min_value, max_value) values (?, 1, ?, ?, ?)", [number, column, *bounds])  # fmt: skip
    return folder / "catalog.ducklake"


def with_damaged_end(examples: Path, folder: Path, harm: str, *, snapshots: bool = False) -> Path:
    """Return a copy of codec-none-1 whose last batch is damaged; no snapshot says where the log ended."""
    log = shutil.copytree(examples / "codec-none-1", folder / "codec-none-1")
    for path in [] if snapshots else log.glob("*.snapshot"):
        path.unlink()
    segment = max(log.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-5] ^= 0xFF
    segment.write_bytes(data[:-3] if harm == "torn" else data)
    return log


def broken(folder: Path, source: Any) -> Path:
    """Write a table in which a log's aborted records are, some are there twice, and one is not."""
    rows = records(source, isolation_level="read_uncommitted")
    return parquet(folder, [rows.slice(1, 400), rows.slice(401), rows.slice(50, 20)], row_group_size=150)


WRITERS = {"parquet": parquet, "delta": delta, "iceberg": iceberg, "ducklake": ducklake}
