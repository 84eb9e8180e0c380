"""Tests of cli/losses.py, disk/indexed_ends.py and reading/known_losses.py. Logs that have lost records as their disk
itself shows, in each door: what is lost is named, and the rest is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.harmed_batches import RECORDS, WIDTH, places, write_log
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.walker.gaps import Gap, GapKind

pytest.importorskip("duckdb")
NOTED = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
END = 130 + 2 * WIDTH  #: Of the log that was cut.


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A log of three segments."""
    home = tmp_path / "data #%ü"
    write_log(home / "t-0")
    for name in NOTED:
        (home / name).write_text(f"0\n1\nt 0 {RECORDS}\n")
    return home


def cut(folder: Path) -> tuple[int, int]:
    """The active segment ends where a batch begins."""
    log = max(folder.glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data[: places(data)[2][0]])
    return END, RECORDS


def empty(folder: Path) -> tuple[int, int]:
    for file in folder.iterdir():
        file.unlink()
    return 0, RECORDS


def clear(folder: Path) -> tuple[int, int]:
    """The first segment has no byte, and its index has entries."""
    first, second, _ = sorted(folder.glob("*.log"))
    first.write_bytes(b"")
    return 0, int(second.stem)


HARMS: dict[str, Callable[[Path], tuple[int, int]]] = {"cut": cut, "empty": empty, "clear": clear}
COMMANDS = {
    "cat": ("cat", "DISK"),
    "cat by two threads": ("cat", "DISK", "--jobs", 2),
    "cat merged": ("cat", "DISK", "--merge", "time"),
    "latest": ("latest", "DISK"),
    "grep": ("grep", "", "DISK", "--empty"),
    "grep --count": ("grep", "", "DISK", "--empty", "--count"),
    "sql": ("sql", "DISK", 'select count(*), max("offset") from t'),
    "sql of rows": ("sql", "DISK", "select * from t where key is not null"),
    "stats": ("stats", "DISK"),
    "stats --by hour": ("stats", "DISK", "--by", "hour"),
    "export": ("export", "DISK", "--out", "OUT"),
}


def run(name: str, disk: Path, *more: object) -> Any:
    places = {"DISK": disk, "OUT": disk.parent / "out"}
    return shell(*(places.get(str(word), word) for word in COMMANDS[name]), *more)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_it(disk: Path, name: str, harm: str) -> None:
    assert run(name, disk).code == 0
    first, end = HARMS[harm](disk / "t-0")
    done = run(name, disk, *(["--overwrite"] if name == "export" else []))
    expect(done, 2 if name.startswith("grep") else 1, f"offsets {first} to {end - 1} are ", str(disk / "t-0"))
    assert done.err.count(f"offsets {first} to {end - 1} are ") == 1


def by_read(disk: Path, offset: Any = None) -> list[Gap]:
    reader = pylogseg.read(disk, offset=offset)
    list(reader)
    return reader.gaps


def by_dataset(disk: Path, offset: Any = None) -> list[Gap]:
    import pyarrow.compute as pc

    table = pylogseg.dataset(disk)
    for _ in range(2):
        table.to_table(filter=None if offset is None else pc.field("offset") < offset[1])
    return table.gaps


def by_arrow(disk: Path, offset: Any = None) -> list[Gap]:
    import pyarrow as pa

    reader = pylogseg.read(disk, offset=offset, jobs=2)
    pa.RecordBatchReader.from_stream(reader).read_all()
    return reader.gaps


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("read", [by_read, by_dataset, by_arrow])
def test_a_reader_has_a_gap(disk: Path, read: Callable[..., list[Gap]], harm: str) -> None:
    """One, a loss, and no error: what is there is right."""
    assert read(disk) == []
    first, end = HARMS[harm](disk / "t-0")
    (gap,) = read(disk)
    assert (gap.kind, gap.first_offset, gap.next_offset) == (GapKind.LOST, first, end)
    assert (gap.is_loss, gap.is_damage) == (True, False)
    if harm == "cut":
        assert read(disk, (0, END)) == []
        (gap,) = read(disk, (0, END + 2))
        assert (gap.first_offset, gap.next_offset) == (END, END + 2)


@pytest.mark.parametrize("harm", HARMS)
def test_polars_logs_it(disk: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("polars")
    HARMS[harm](disk / "t-0")
    with caplog.at_level(logging.WARNING):
        pylogseg.scan_polars(disk).select("offset").collect()
    assert "are lost" in caplog.text


@pytest.mark.parametrize("harm", HARMS)
def test_spark_plans_no_read_of_it(disk: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """Unless what there is will do."""
    HARMS[harm](disk / "t-0")
    with pytest.raises(RequestError, match=r"has lost records.*failOnDataLoss=false"):
        plan(str(disk))
    with caplog.at_level(logging.WARNING):
        plan(str(disk), parse({"path": str(disk), "failOnDataLoss": "false"}))
    assert "has lost records" in caplog.text


def test_a_limit_and_a_range_that_do_not_reach_it(disk: Path) -> None:
    cut(disk / "t-0")
    for options in (["--limit", END], ["--offset", f"5:{END}"], ["--until", 1_000_020]):
        assert run("cat", disk, *options).code == 0
    assert run("cat", disk, "--limit", END + 1).code == 1
    assert run("sql", disk).code == 1
    assert shell("sql", disk, f'select max("offset") from t where "offset" < {END}').code == 0


def test_a_disk_without_checkpoints_has_nothing_to_compare_with(disk: Path) -> None:
    cut(disk / "t-0")
    for name in NOTED:
        (disk / name).unlink()
    for name in COMMANDS:
        if name != "export":
            assert run(name, disk).code == 0


def test_a_log_that_somebody_writes_is_not_judged(disk: Path) -> None:
    """Its checkpoints may be newer than what was read of it."""
    for name in NOTED:
        (disk / name).write_text(f"0\n1\nt 0 {RECORDS + 100}\n")
    assert run("cat", disk).code == 1
    with pylogseg.open_log(disk / "other-0"):
        assert run("cat", disk, "--topic", "t").code == 0
