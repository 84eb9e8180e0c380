"""Tests of cli/report.py and reporting/tables.py. `pylogseg report` as a command: what it writes, what it refuses, how
it ends.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import fsspec
import pytest
from helpers.checks import wait_for
from helpers.depth import IS_DEEP
from helpers.shell import at_work, command, environment, expect, locked, process, pylogseg, without_rights

import pylogseg as package
from pylogseg.disk.disk import Disk
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_json
from pylogseg.reporting import assembly

SECRET = b"a-value-that-nobody-asked-for"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions of a topic, with keys and values."""
    for number in (0, 1):
        with package.open_log(tmp_path / "kafka" / f"orders-{number}", segment_bytes=2000) as log:
            for i in range(60):
                log.append([(1_700_000_000_000 + i * 60_000, b"key-%d" % (i % 7), SECRET + b"%d" % i)])
    return tmp_path / "kafka"


def test_nothing_to_do(log_dir: Path) -> None:
    expect(pylogseg("report", log_dir), 2, "-o FILE")


def test_page_and_tables(log_dir: Path, tmp_path: Path) -> None:
    page, folder = tmp_path / "report.html", tmp_path / "tables"
    expect(pylogseg("report", log_dir, "-o", page, "--csv", folder), 0, out=[str(page), "No damage"])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") or text.lower().startswith("<!doctype html>")
    (found,) = pylogseg("report", log_dir, "--json").rows
    with open(folder / "partitions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], int(row["records"])) for row in rows] == [
        (each["name"], each["records"]) for each in found["partitions"]
    ]
    with open(folder / "segments.csv", newline="") as file:
        segments = list(csv.DictReader(file))
    assert sum(int(row["size"]) for row in segments) == found["scope"]["size"]
    expect(pylogseg("report", log_dir, "-o", page), 2, "--overwrite")
    assert pylogseg("report", log_dir, "-o", page, "--overwrite").code == 0
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".tmp")]


def test_formulas_are_text_in_tables(tmp_path: Path) -> None:
    """A spreadsheet must not run what somebody wrote into a key."""
    with package.open_log(tmp_path / "kafka" / "t-0") as log:
        log.append([(1_700_000_000_000, b"=1+1", b"v")])
    package.report(tmp_path / "kafka", sample=1).write_csv(tmp_path / "tables")
    with open(tmp_path / "tables" / "keys.csv", newline="") as file:
        assert {row["key"] for row in csv.DictReader(file)} == {"'=1+1"}


def test_payloads_only_if_asked(log_dir: Path, tmp_path: Path) -> None:
    for words in ([], ["--full"]):
        done = pylogseg("report", log_dir, "--json", *words)
        assert b"key-" not in done.out
        assert SECRET not in done.out
    (found,) = pylogseg("report", log_dir, "--json", "--sample", 2).rows
    for part in found["partitions"]:
        payloads = part["sample"]["payloads"]
        assert [each["offset"] for each in payloads] == [58, 59]
        assert payloads[-1]["value"] == (SECRET + b"59").decode()
        assert {each["key"] for each in part["sample"]["keysByRecords"]} == {f"key-{i}" for i in range(7)}


def test_times(log_dir: Path) -> None:
    since, until = 1_700_000_000_000 + 10 * 60_000, 1_700_000_000_000 + 20 * 60_000
    for words in ([], ["--full"]):
        (found,) = pylogseg("report", log_dir, "--json", "--since", since, "--until", until, *words).rows
        assert [each["records"] for each in found["partitions"]] == [10, 10]
        assert [each["missing"] for each in found["partitions"]] == [None, None]
        assert found["scope"]["sinceMs"] == since
        assert any("bounds of time" in each for each in found["scope"]["notChecked"])
        (row,) = pylogseg("stats", log_dir, "--since", since, "--until", until, "--json").rows
        assert sum(sum(each["series"]["bytes"]) for each in found["partitions"]) == row["size"]


def test_names(log_dir: Path) -> None:
    (found,) = pylogseg("report", log_dir, "orders-1", "--json").rows
    assert [each["name"] for each in found["partitions"]] == ["orders-1"]
    assert found["command"] == f"pylogseg report {log_dir} orders-1 -o report.html"
    assert pylogseg("report", log_dir, "nothing", "--json").code == 2
    (alone,) = pylogseg("report", log_dir / "orders-0" / "00000000000000000000.log", "--json").rows
    assert alone["scope"]["segments"] == 1
    assert alone["partitions"][0]["records"] > 0


def test_beside_a_broker(log_dir: Path) -> None:
    """The lock of a broker does not matter, and the report says who has it."""
    with locked(log_dir) as holder:
        (found,) = pylogseg("report", log_dir, "--json").rows
    (disk,) = found["disks"]
    assert str(holder) in disk["lockedBy"]
    assert found["damage"] == 0


def test_segments_that_vanish(log_dir: Path) -> None:
    """Retention deletes a segment after the folder was listed: it is named, and is no damage."""
    disk = package.open_dir(log_dir)
    first = disk.partitions[0].segments[0]
    os.remove(first.path)
    for full in (False, True):
        found = package.report(disk, full=full).facts
        assert found.damage == 0
        gone = [each for part in found.partitions for each in part.segments if each.is_gone]
        assert [each.name for each in gone] == [first.name]
        assert any(first.path in note for note in found.scope.notes)
        assert [each.kind for each in found.findings if each.topic] == ["removed"]


def test_unreadable_partition(log_dir: Path) -> None:
    """A folder that cannot be listed: the others are reported, and the exit code is 2."""
    (log_dir / "orders-1").chmod(0)
    words = [*without_rights(), *command("report", log_dir, "--json")]
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert [(each["name"], each["state"], each["records"]) for each in found["partitions"]] == [
        ("orders-0", "live", 60),
        ("orders-1", "unreadable", None),
    ]
    assert [each["kind"] for each in found["findings"] if each["topic"]] == ["denied"]


def test_object_store(log_dir: Path) -> None:
    """Of files that are not local, the first and the last batches, and the sample; --full reads all."""
    store = fsspec.filesystem("memory")
    store.put(f"{log_dir}/", "/bucket/kafka/", recursive=True)
    try:
        (found,) = pylogseg("report", "memory://bucket/kafka", "--json").rows
        (full,) = pylogseg("report", "memory://bucket/kafka", "--json", "--full").rows
    finally:
        store.rm("/bucket", recursive=True)
    assert {each["read"] for each in found["partitions"]} == {"names"}
    assert [each["records"] for each in found["partitions"]] == [None, None]
    assert [each["logEndOffset"] for each in found["partitions"]] == [60, 60]
    assert any("not local" in each for each in found["scope"]["notChecked"])
    assert [each["records"] for each in full["partitions"]] == [60, 60]
    assert full["partitions"][0]["commands"][0]["text"].startswith("pylogseg ls memory://")


def test_interrupted(log_dir: Path, tmp_path: Path) -> None:
    """Ctrl-C leaves no file."""
    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    with process("report", log_dir, "-o", page, "--full", "--max-bytes-per-second", "1000") as running:
        wait_for(lambda: at_work(running, log_dir))
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    assert list(page.parent.iterdir()) == []


def test_many_partitions(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, those with findings and the largest are shown; topics and disks count all, and it is said."""
    monkeypatch.setattr(assembly, "MOST_PARTITIONS", 1)
    segment = next((log_dir / "orders-1").glob("*.timeindex"))
    segment.write_bytes(b"\x01" * 5)
    found = package.report(log_dir).facts
    assert [each.name for each in found.partitions] == ["orders-1"]
    assert found.partitions_not_listed == 1
    assert found.names_not_listed == ("orders-0",)
    assert "2 partitions" in found.scope.aggregated
    assert found.topics[0].partitions == 2
    assert found.topics[0].records == 120


def test_names_that_were_not_asked_for(log_dir: Path) -> None:
    """They are on the disk, and the report knows it; the command that it gives finds one of them."""
    found = package.report(log_dir, "orders-1").facts
    assert found.names_not_listed == ("orders-0",)
    assert found.partitions_not_listed == 0
    command = found.command_of_others.replace("NAME", "orders-0").split()
    again = json.loads(pylogseg(*command[1:-2], "--json").out)
    assert [each["name"] for each in again["partitions"]] == ["orders-0"]


def test_jobs_and_rate_change_nothing(log_dir: Path) -> None:
    now = 1_800_000_000_000
    texts = set()
    for options in ({}, {"jobs": 4}, {"jobs": 2, "max_bytes_per_second": 10**9}):
        found = to_json(package.report(log_dir, now_ms=now, **options).facts)
        for disk in found["disks"]:
            disk["freeBytes"] = disk["fullInDays"] = None  # others write too
        texts.add(json.dumps({**found, "tookMs": 0}))
    assert len(texts) == 1


def test_report_in_python(log_dir: Path, tmp_path: Path) -> None:
    found = package.report(log_dir, "orders-0")
    assert "No damage" in repr(found)
    shown = found._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count("<") == 2  # all of the page is in the attribute
    found.write(tmp_path / "a.html")
    found.write_json(tmp_path / "a.json")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == found.html()
    assert json.loads((tmp_path / "a.json").read_text()) == found.to_dict()
    assert isinstance(package.open_dir(log_dir), Disk)
    with pytest.raises(RequestError, match="sample"):
        package.report(log_dir, sample=-1)


def test_while_somebody_appends(tmp_path: Path) -> None:
    """Beside a program that writes: no report finds damage, and each finds at least what was there before it."""
    folder = tmp_path / "kafka" / "t-0"
    with package.open_log(folder, segment_bytes=20_000) as log:
        log.append([(1_700_000_000_000, b"k", b"v")])
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                log.append([(1_700_000_000_000, b"k", b"v" * 500) for _ in range(5)])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for number in range(12 if IS_DEEP else 4):
                before = log.log_end_offset
                found = package.report(tmp_path / "kafka", full=number % 2 == 1, jobs=2).facts
                assert found.damage == 0, found.findings
                (part,) = found.partitions
                assert part.records is not None
                assert part.records >= before
        finally:
            stop.set()
            thread.join()
