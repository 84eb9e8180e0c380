"""Tables of lakehouses beside an export to Parquet, which writes the same rows with the same codec; one thread."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pyarrow as pa
from dataset import written
from measure import in_turn
from rows import Row
from sections import Bench, rate

import pylogseg
from pylogseg.cli import shell
from pylogseg.format.files.checkpoint import encode_offset_checkpoint

_PARTITIONS = 1_000
FORMATS = {"Delta": "delta:{}/orders", "Iceberg": "iceberg:{}/kafka.orders"}


@contextmanager
def emptied() -> Iterator[Path]:
    """A folder in memory, if there is one; it is gone afterwards."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="pylogseg-lake-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def write(log: Path, table: str) -> None:
    """Write the log to a new table."""
    with emptied() as out:
        pylogseg.lake(log, table.format(out), "orders")


def export(log: Path) -> None:
    """Export the log to Parquet files."""
    with emptied() as out, redirect_stdout(io.StringIO()):
        words = ["export", str(log), "orders", "--out", str(out), "--jobs", "1", "--keep-pages"]  # as `lake` does
        shell.main(words, standalone_mode=False)


def many(folder: Path) -> Path:
    """A disk with a topic of very many partitions, all of it committed."""
    folder = folder / f"lake-{_PARTITIONS}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        rows = pa.table({"value": pa.array([b"value"] * 20, pa.binary())})
        for partition in range(_PARTITIONS):
            with pylogseg.open_log(unfinished / f"orders-{partition}") as log:
                log.append(rows)
        marks = {("orders", partition): 20 for partition in range(_PARTITIONS)}
        (unfinished / "replication-offset-checkpoint").write_bytes(encode_offset_checkpoint(marks))
        unfinished.rename(folder)
    return folder


def lake(bench: Bench) -> list[Row]:
    """All of the above."""
    log = written(bench.folder, bench.records)
    records = pylogseg.dataset(log).count_rows()
    works: dict[str, Callable[[], object]] = {
        name: lambda table=table: write(log, table) for name, table in FORMATS.items()
    }
    works["export"] = lambda: export(log)
    best = in_turn({name: bench.timed(work) for name, work in works.items()}, max(3, bench.rounds // 2))
    rows = [
        Row(f"lake to {name}", rate(records, best[name]), "M records/s", "export to Parquet",
            rate(records, best["export"]), 0.8, "pyarrow's writer of Parquet (zstd)")
        for name in FORMATS
    ]  # fmt: skip
    disk = many(bench.folder)
    with emptied() as out:
        again = {}
        for name, form in FORMATS.items():
            table = form.format(out)
            pylogseg.lake(disk, table, "orders")
            again[name] = bench.timed(lambda table=table: pylogseg.lake(disk, table, "orders"))
        best = in_turn(again, bench.rounds)
    return rows + [
        Row(f"lake to {name} with nothing new, {_PARTITIONS:,} partitions", 1e3 * best[name], "ms", "", None, 1000,
            "names of files, and the end of each log")
        for name in FORMATS
    ]  # fmt: skip
