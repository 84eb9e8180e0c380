"""Tests of spark/worker.py. Jobs that write to a folder which the workers do not share: each refuses before it works,
and nothing is lost.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.lake_tables import has_format

import pylogseg.spark
from pylogseg.archive import write
from pylogseg.errors import PylogsegError
from pylogseg.spark import jobs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.path.exists("/proc/self/cwd"), reason="needs Linux: /proc/self/cwd is of each process"),
]

#: Each process has a folder of its own of this name: its working directory. So do machines without the mount.
HERE = "/proc/self/cwd"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of them, as working directories, and a Python that runs on the second one."""
    root = tmp_path_factory.mktemp("machines")
    driver, worker, python = (shlex.quote(str(each)) for each in (root / "driver", root / "worker", sys.executable))
    # What plans and commits for a data source is beside the driver.
    begin = f'case "$*" in *sql.worker*) cd {driver} ;; *) cd {worker} ;; esac'
    (root / "python").write_text(f'#!/bin/sh\n{begin}\nexec {python} "$@"\n')
    (root / "python").chmod(0o755)
    return root


@pytest.fixture
def elsewhere(spark: Any, machines: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workers' own folder; the driver has another one."""
    for name in ("driver", "worker"):
        (machines / name).mkdir(exist_ok=True)  # processes of Spark stay in them
        for path in (machines / name).iterdir():
            shutil.rmtree(path)
    monkeypatch.chdir(machines / "driver")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(machines / "python"))
    return machines / "worker"


Job = Callable[[Any, Any, str, str], Any]


def _lake_batches(spark: Any, command: Any, disk: str, out: str) -> Any:
    return jobs.lake_batches(disk, f"delta:{out}/t", "codec-zstd")(spark.range(1), 0)


def _restore(spark: Any, command: Any, disk: str, out: str) -> Any:
    rows = spark.createDataFrame([("t", 0, 0, b"v")], "topic string, `partition` int, offset bigint, value binary")
    return jobs.restore(spark, rows, f"{out}/disk")


def _write(spark: Any, command: Any, disk: str, out: str) -> Any:
    session = spark.newSession()
    pylogseg.spark.register(session)  # with the Python of the other machine
    rows = session.createDataFrame([("t", 0, 0, b"v")], "topic string, `partition` int, offset bigint, value binary")
    return rows.write.format("pylogseg").mode("append").save(f"{out}/disk")


def _restore_tier(spark: Any, command: Any, disk: str, out: str) -> Any:
    Path(out, "disk").mkdir()
    (row,) = jobs.restore_tier(spark, f"aiven+file://{disk}-archive", f"{out}/disk", ["codec-zstd"]).collect()
    assert row.state == "failed"
    raise PylogsegError(row.reason)


def _audit(spark: Any, command: Any, disk: str, out: str) -> Any:
    return jobs.audit(spark, disk, f"delta:{disk}-table", "codec-zstd").collect()


JOBS: dict[str, Job] = {
    "archive": lambda spark, command, disk, out: jobs.archive(spark, disk, f"{out}/archive").collect(),
    "lake delta": lambda spark, command, disk, out: jobs.lake(spark, disk, f"delta:{out}/t", "codec-zstd").collect(),
    "lake iceberg": lambda spark, command, disk, out: jobs.lake(spark, disk, f"iceberg:{out}/i/n.t", "codec-zstd"),
    "lake ducklake": lambda spark, command, disk, out: jobs.lake(spark, disk, f"ducklake:{out}/d/t", "codec-zstd"),
    "lake_batches": _lake_batches,
    "export": lambda spark, command, disk, out: jobs.export(spark, disk, f"{out}/table").collect(),
    "restore": _restore,
    "df.write": _write,
    "restore_tier": _restore_tier,
    "compact": lambda spark, command, disk, out: jobs.compact(spark, disk, f"{out}/new", "codec-zstd").collect(),
    "redact": lambda spark, command, disk, out: jobs.redact(spark, disk, f"{out}/new", "codec-zstd", keys=[b"k"]),
    "audit": _audit,
}
COMMANDS = [
    "archive DISK OUT/archive",
    "lake DISK codec-zstd delta:OUT/t",
    "export DISK codec-zstd --out OUT/table --to parquet",
    "export DISK codec-zstd --out OUT/table --to jsonl",
    "export DISK codec-zstd --out OUT/table --by-date",
    "restore DISK OUT/disk codec-zstd",
    "restore aiven+file://DISK-archive OUT/disk codec-zstd",
    "recover DISK codec-zstd --full --into OUT/new",
    "compact DISK codec-zstd --into OUT/new",
    "redact DISK codec-zstd --match value --into OUT/new",
    "recode DISK codec-zstd --compression lz4 --into OUT/new",
    "audit DISK/codec-zstd-0 delta:DISK-table",
]


@pytest.fixture(scope="module")
def disk(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log directory, with its archive and a table of it beside it."""
    root = tmp_path_factory.mktemp("unshared")
    for name in ("codec-zstd-0", "codec-gzip-0"):
        shutil.copytree(examples / name, root / "disk" / name)
    for name in ("meta.properties", "replication-offset-checkpoint"):
        shutil.copy(examples / name, root / "disk")
    write(root / "disk", root / "disk-archive")
    pylogseg.lake(root / "disk", f"delta:{root}/disk-table", "codec-zstd")
    return str(root / "disk")


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_writes_to_an_unshared_folder(
    spark: Any, command: Any, elsewhere: Path, disk: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "audit":
        monkeypatch.setattr("tempfile.tempdir", HERE)
    if name == "lake ducklake" and not has_format("ducklake"):
        pytest.skip("duckdb's extension ducklake is not here")
    with pytest.raises(Exception, match="does not share the folder") as caught:
        JOBS[name](spark, command, disk, HERE)
    assert name in ("df.write", "restore") or isinstance(caught.value, PylogsegError)
    _check_nothing_was_done(elsewhere)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_that_writes_to_an_unshared_folder(
    command: Any, elsewhere: Path, disk: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text.startswith("audit"):
        monkeypatch.setattr("tempfile.tempdir", HERE)
    if text.startswith("restore"):
        Path(HERE, "disk").mkdir()
    done = command(*text.replace("DISK", disk).replace("OUT", HERE).split())
    assert done.exit_code == 2, done.output
    assert "does not share the folder" in done.stderr
    assert HERE in done.stderr
    _check_nothing_was_done(elsewhere)


def _check_nothing_was_done(elsewhere: Path) -> None:
    """Neither here, where only what says that a run began may lie, nor on the machine of the workers."""
    assert [path for path in elsewhere.rglob("*") if path.is_file()] == []
    there = [path for path in Path(HERE).rglob("*") if path.is_file()]
    assert [path for path in there if path.suffix in (".parquet", ".log", ".jsonl", ".tmp")] == []
    assert [path for path in there if path.parent.name == "points"] == []
    for table in Path(HERE).rglob("_delta_log"):
        assert [path.name for path in table.glob("*.json")] == ["0" * 20 + ".json"]
