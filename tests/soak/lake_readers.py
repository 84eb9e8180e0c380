"""Readers that are not ours find the rows of the log in tables of `lake`: duckdb, polars, pyiceberg.

    python tests/soak lake-readers

Plain tables, tables of the latest records, and typed ones whose schema has grown, each of Delta and Iceberg. duckdb
needs its extensions `delta`, `iceberg` and `avro`, which it fetches; for 1.5.5 they are packages, too:
`pip install duckdb==1.5.5 duckdb-extensions duckdb-extension-delta==1.5.5` (and `-iceberg`, `-avro`).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from helpers.lake_tables import catalog_of, latest_rows, log_rows, name_of
from helpers.typed_logs import append_later_orders, write_keyed_orders, write_orders

import pylogseg

_PLAIN = ("partition", "offset", "timestamp", "key", "value")
Readers = dict[str, Callable[[], pa.Table]]


def connected() -> Any:
    """A connection of duckdb with its extensions."""
    with contextlib.suppress(ModuleNotFoundError):
        from duckdb_extensions import import_extension

        for name in ("delta", "avro", "iceberg"):
            import_extension(name)
    connection = duckdb.connect()
    for name in ("delta", "avro", "iceberg"):
        connection.execute(f"load {name}")
    return connection


def readers(connection: Any, kind: str, out: Path, topic: str) -> Readers:
    """Functions that read all rows of a table."""
    if kind == "delta":
        place = f"{out}/{topic}"
        return {
            "duckdb delta_scan": lambda: connection.execute(f"from delta_scan('{place}')").to_arrow_table(),
            "polars scan_delta": lambda: pl.scan_delta(place).collect().to_arrow(),
        }
    table = catalog_of(out).load_table(("kafka", topic))
    place = table.metadata_location.removeprefix("file://")
    return {
        "duckdb iceberg_scan": lambda: connection.execute(f"from iceberg_scan('{place}')").to_arrow_table(),
        "polars scan_iceberg": lambda: pl.scan_iceberg(table).collect().to_arrow(),
        "pyiceberg": lambda: table.scan().to_arrow(),
    }


def plain_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of bytes, in the order of offsets."""
    times = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns = [times if name == "timestamp" else rows.column(name).to_pylist() for name in _PLAIN]
    return sorted(zip(*columns, strict=True))


def typed_rows(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What matters of typed rows."""
    return sorted((row["offset"], row["value"]["id"], row["value"].get("note")) for row in rows)


def compared(root: Path) -> Iterator[tuple[str, bool]]:
    """Write the tables, and yield which reader finds what is expected."""
    connection, data = connected(), root / "data"
    for seed in (1, 2):
        write_keyed_orders(data, 200, seed)
    typed, how = write_orders(root / "typed", 300), {"decoding": "value", "registry": root / "typed" / "schemas"}
    for kind in ("delta", "iceberg"):
        out = root / kind
        for latest in (False, True):
            topic = "latest" if latest else "orders"
            pylogseg.lake(data, name_of(kind, out, topic), latest=latest, commit_bytes=4_000, file_bytes=2_000)
            rows = latest_rows(data) if latest else log_rows(data, "orders")
            wanted = sorted(tuple(row[name] for name in _PLAIN) for row in rows)
            for name, read in readers(connection, kind, out, topic).items():
                yield f"{name}, {topic}: {len(wanted)} rows", plain_rows(read()) == wanted
        pylogseg.lake(typed, name_of(kind, out, "typed"), schema=7, **how)
    append_later_orders(typed, 50)
    later = {**how, "schema": 8, "on_undecoded": "skip"}
    wanted = typed_rows(pylogseg.read_arrow(typed, "orders", **later).read_all().to_pylist())
    for kind in ("delta", "iceberg"):
        pylogseg.lake(typed, name_of(kind, root / kind, "typed"), schema=8, **how)
        for name, read in readers(connection, kind, root / kind, "typed").items():
            yield f"{name}, a schema that has grown: {len(wanted)} rows", typed_rows(read().to_pylist()) == wanted


def main() -> int:
    """Print a line for each reader and table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    all_well = True
    with tempfile.TemporaryDirectory() as folder:
        for what, is_same in compared(Path(folder)):
            print(f"{what}: {'as the log' if is_same else 'OTHER ROWS'}", flush=True)
            all_well &= is_same
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
