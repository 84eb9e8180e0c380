"""Tests of spark/jobs.py. Partitions written anew by Spark: the bytes of the command, put in place together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import pylogseg
from pylogseg import offline
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.inspect.search.patterns import Pattern
from pylogseg.spark import jobs

NOW = 1_700_000_000_000


def fill(root: Path) -> Path:
    for number in range(3):
        with pylogseg.open_log(root / f"users-{number}", segment_bytes=4000, cleanup_policy="compact") as log:
            for i in range(60):
                log.append([(NOW + i, b"k%d" % (i * (number + 3) % 11), b"v%d" % i * 20)] * 2)
    with pylogseg.open_log(root / "events-0", segment_bytes=4000) as log:
        log.append([(NOW, None, b"no key")])
    return root


def files(folder: Path) -> dict[str, bytes]:
    """All files of partitions and the checkpoints beside them."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob("*-[0-9]*/*")}
    return found | {path.name: path.read_bytes() for path in folder.glob("*-checkpoint")}


@pytest.fixture
def options() -> dict[str, Any]:
    return {"force": False, "now_ms": NOW + 10_000, "config": {"cleanup.policy": "compact"}}


def test_compact_is_that_of_the_command(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    root = fill(tmp_path / "data")
    before = files(root)
    names = ["users"]
    todo = jobs.compact(spark, str(root), str(tmp_path / "out"), names, dry_run=True, **options).collect()
    assert [(row.topic, row.partition, row.state) for row in todo] == [("users", n, "done") for n in range(3)]
    assert not (tmp_path / "out").exists()
    done = jobs.compact(spark, str(root), str(tmp_path / "out"), names, **options).collect()
    assert [row.state for row in done] == ["done"] * 3
    assert all(row.bytesAfter < row.bytesBefore for row in done)
    offline.compact(root, topic=names, into=str(tmp_path / "plain"), **options)
    assert files(tmp_path / "out") == files(tmp_path / "plain")
    assert files(root) == before
    again = jobs.compact(spark, str(root), str(tmp_path / "out"), names, **options).collect()
    assert [row.state for row in again] == ["unchanged"] * 3
    assert jobs.verify(spark, tmp_path / "out").filter("level = 'damage'").count() == 0


def test_what_is_there_and_what_is_left(spark: Any, tmp_path: Path) -> None:
    """A partition that is not compacted is copied; one that is there already is an error, unless it may give way."""
    root = fill(tmp_path / "data")
    (row,) = jobs.compact(spark, str(root), str(tmp_path / "out"), ["events"]).collect()
    assert row.state == "skipped"
    copied = tmp_path / "out" / "events-0" / f"{0:020d}.log"
    assert copied.read_bytes() == (root / "events-0" / f"{0:020d}.log").read_bytes()
    with pylogseg.open_log(root / "events-0") as log:
        log.append([(NOW, None, b"more")])
    with pytest.raises(RequestError, match="it already exists"):
        jobs.compact(spark, str(root), str(tmp_path / "out"), ["events"])
    jobs.compact(spark, str(root), str(tmp_path / "out"), ["events"], overwrite=True)
    assert copied.read_bytes() == (root / "events-0" / f"{0:020d}.log").read_bytes()
    assert not [name for name in os.listdir(tmp_path / "out") if "staging" in name]


def test_one_that_fails_does_not_keep_the_others(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    root = fill(tmp_path / "data")
    victim = sorted((root / "users-1").glob("*.log"))[0]
    data = bytearray(victim.read_bytes())
    data[8] = 0xFF  # the length of the first batch: a cleaner checks no CRC
    victim.write_bytes(data)
    rows = jobs.compact(spark, str(root), str(tmp_path / "out"), ["users"], **options).collect()
    assert [row.state for row in rows] == ["done", "failed", "done"]
    assert rows[1].reason.startswith(f"{victim}: at position 0")
    assert [row.path for row in rows] == [
        str(tmp_path / "out" / "users-0"),
        str(root / "users-1"),
        str(tmp_path / "out" / "users-2"),
    ]
    assert sorted(path.name for path in (tmp_path / "out").glob("users-*")) == ["users-0", "users-2"]
    again = jobs.compact(spark, str(root), str(tmp_path / "out"), ["users"], **options).collect()
    assert [row.state for row in again] == ["unchanged", "failed", "unchanged"]


def test_redact(spark: Any, tmp_path: Path) -> None:
    root = fill(tmp_path / "data")
    rows = jobs.redact(spark, str(root), str(tmp_path / "out"), ["users"], keys=[b"k1"], now_ms=NOW).collect()
    assert [row.state for row in rows] == ["done"] * 3
    offline.redact(root, topic=["users"], into=str(tmp_path / "plain"), keys=[b"k1"], now_ms=NOW)
    assert files(tmp_path / "out") == files(tmp_path / "plain")
    left = pylogseg.read_arrow(str(tmp_path / "out"), columns=["key"]).read_all()["key"].to_pylist()
    assert b"k1" not in left
    assert b"k2" in left


def test_diff_of_directories(spark: Any, tmp_path: Path) -> None:
    root = fill(tmp_path / "data")
    offline.redact(root, topic=["users-1"], into=str(tmp_path / "other"), keys=[b"k1"])
    found = {(row.topic, row.partition): row for row in jobs.diff(spark, str(root), str(tmp_path / "other")).collect()}
    expected = {each.name: to_row(each) for each in offline.diff(root, tmp_path / "other")}
    assert {f"{topic}-{number}": json.loads(row.detail) for (topic, number), row in found.items()} == expected
    assert found["users", 1].missing > 0
    same = jobs.diff(spark, str(root), str(root), ["users"], mode="latest").collect()
    assert [row.same for row in same] == [True] * 3
    with pytest.raises(RequestError, match="on either side"):
        jobs.diff(spark, str(root), str(root), ["nobody"])


def test_diff_with_a_table(spark: Any, tmp_path: Path) -> None:
    root, table = fill(tmp_path / "data"), str(tmp_path / "table")
    jobs.export(spark, root, table)
    assert {row.same for row in jobs.diff(spark, str(root), table).collect()} == {True}
    with pylogseg.open_log(root / "users-2", cleanup_policy="compact") as log:
        log.append([(NOW, b"new", b"record")])
    found = {(row.topic, row.partition): row for row in jobs.diff(spark, str(root), table, ["users"]).collect()}
    assert {key: (row.same, row.missing, row.extra, row.changed) for key, row in found.items()} == {
        ("users", 0): (True, 0, 0, 0),
        ("users", 1): (True, 0, 0, 0),
        ("users", 2): (False, 1, 0, 0),
    }
    with pytest.raises(RequestError, match="mode are for two directories"):
        jobs.diff(spark, str(root), table, mode="latest")


@pytest.mark.parametrize("death", ["plan", "moved"])
def test_a_job_that_died_around_its_commit(
    spark: Any, tmp_path: Path, options: dict[str, Any], death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run finishes what was begun and finds nothing left to do; no litter stays."""
    root, out = fill(tmp_path / "data"), tmp_path / "out"
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')

    class Dies(BaseException):
        pass

    def die(*args: Any, **more: Any) -> None:
        raise Dies

    where = {"plan": "_finish", "moved": "note_entries"}[death]
    with monkeypatch.context() as patch:
        patch.setattr(f"pylogseg.transfer.staging.{where}", die)
        patch.setattr("pylogseg.transfer.staging.Staging.abort", lambda self: None)
        with pytest.raises(Dies):
            jobs.compact(spark, str(root), str(out), ["users"], **options)
    with monkeypatch.context() as patch:
        patch.setattr("pylogseg.offline.by_executor._put_in_place", die)  # no work is done again
        again = jobs.compact(spark, str(root), str(out), ["users"], **options).collect()
    assert [row.state for row in again] == ["unchanged"] * 3
    offline.compact(root, topic=["users"], into=str(tmp_path / "plain"), **options)
    assert files(out) == files(tmp_path / "plain")
    marker = ".kafka_cleanshutdown"
    assert (out / marker).read_bytes() == (tmp_path / "plain" / marker).read_bytes()
    assert not [path for path in out.iterdir() if "staging" in path.name]


def test_targets_are_looked_at_before_the_work(
    spark: Any, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = fill(tmp_path / "data"), tmp_path / "out"
    (out / "users-1").mkdir(parents=True)

    def nothing(self: Any, function: Any, items: Any, *rest: Any) -> list[Any]:
        return pytest.fail("it works already") if items else []

    monkeypatch.setattr("pylogseg.spark.executor.SparkExecutor._run", nothing)
    for dry_run in (True, False):
        with pytest.raises(RequestError, match="users-1: it already exists, and was not made by this"):
            jobs.compact(spark, str(root), str(out), ["users"], dry_run=dry_run, **options)


def test_another_function_is_another_job(spark: Any, tmp_path: Path) -> None:
    root, out = fill(tmp_path / "data"), str(tmp_path / "out")
    for number in (1, 2):
        needle = Pattern(b"v%d" % number)
        done = jobs.redact(spark, str(root), out, ["users-0"], matches=[needle.matches], overwrite=True).collect()
        assert [row.state for row in done] == ["done"]
        same = jobs.redact(spark, str(root), out, ["users-0"], matches=[Pattern(b"v%d" % number).matches]).collect()
        assert [row.state for row in same] == ["unchanged"]
