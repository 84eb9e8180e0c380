"""Tests of archive/pruning.py, cli/archive.py and cli/repeated.py. One command that archives and prunes, and the line
of `archive status`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    with pylogseg.Broker(tmp_path / "disk") as broker:
        for topic in "tu":
            broker.create_topic(topic, 1)
            broker.produce(topic, b"0")
    return tmp_path / "disk"


def test_a_run_and_its_prune(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for _ in range(3):
        done = expect(shell("archive", disk, archive, "--keep-last", 2), 0)
    assert len(list_points(archive)) == 2
    assert "1 point and 1 object" in done.text
    assert "2 points kept" in done.text
    run, pruned = map(json.loads, shell("archive", disk, archive, "--keep-last", 1, "--json").text.splitlines())
    assert (run["type"], pruned["type"], pruned["kept"]) == ("archive", "prune", [run["point"]])
    assert shell("verify", archive, "--read-all").code == 0


def test_a_run_with_a_fault_prunes_nothing(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert shell("archive", disk, archive).code == 0
    shutil.rmtree(disk / "t-0")
    for points in (2, 3):
        done = shell("archive", disk, archive, "--keep-last", 1)
        assert (done.code, len(list_points(archive))) == (1, points)
        assert "nothing was pruned: the run has faults" in done.err


def test_a_run_that_fails_prunes_nothing(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for _ in range(2):
        assert shell("archive", disk, archive).code == 0
    assert shell("archive", tmp_path / "none", archive, "--keep-last", 1).code == 2
    assert len(list_points(archive)) == 2


def test_a_prune_that_fails(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for _ in range(2):
        assert shell("archive", disk, archive).code == 0
    point = archive / list_points(archive)[0].key
    point.write_bytes(point.read_bytes()[:-1])
    done = shell("archive", disk, archive, "--keep-last", 3)
    assert (done.code, len(list_points(archive))) == (1, 3)
    assert str(point) in done.err


def test_every(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    command = [sys.executable, "-m", "pylogseg", "archive", disk, archive, "--every", "1s", "--keep-last", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
    assert sum("1 point kept" in line for line in lines) >= 2
    assert len(list_points(archive)) <= 2  # the last run may have been interrupted before it pruned


@pytest.mark.parametrize(("harm", "code"), [("empty", 2), ("gone", 2), ("a partition is gone", 1), ("none", 130)])
def test_every_goes_on(disk: Path, tmp_path: Path, harm: str, code: int) -> None:
    """A disk may come back: the runs that miss it are reported, and the exit code is the worst one."""
    archive, away = tmp_path / "archive", tmp_path / "away"
    command = [sys.executable, "-m", "pylogseg", "archive", disk, archive, "--every", "1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        part = disk / "t-0" if harm == "a partition is gone" else disk
        if harm != "none":
            part.rename(away)
            if harm == "empty":
                disk.mkdir()
            line = process.stderr.readline()
            while "note: " in line:
                line = process.stderr.readline()
            assert str(disk) in line
            if harm == "empty":
                disk.rmdir()
            away.rename(part)
            count = len(list_points(archive))
            while len(list_points(archive)) < count + 2:
                time.sleep(0.05)
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == code
    if code == 2:
        assert "the next run is in 1 s" in line


def test_every_with_an_error_of_usage(disk: Path, tmp_path: Path) -> None:
    """The first run ends it: nothing would be other the next time."""
    for words in ((tmp_path / "none", tmp_path / "archive"), (disk, disk / "archive")):
        done = shell("archive", *words, "--every", "1s")
        assert (done.code, "the next run" in done.err) == (2, False)


def test_status(disk: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert shell("archive", "status", archive).code == 2
    for _ in range(2):
        assert shell("archive", disk, archive).code == 0
    done = expect(shell("archive", "status", archive, "--max-age", "1h"), 0)
    assert done.text.startswith("2 points, the newest ")
    row = json.loads(shell("archive", "status", archive, "--json").text)
    assert (row["points"], row["faults"], row["point"]) == (2, 0, list_points(archive)[-1].id)
    time.sleep(0.01)
    late = shell("archive", "status", archive, "--max-age", "1ms")
    assert (late.code, "the newest point is" in late.err) == (1, True)
    shutil.rmtree(disk / "t-0")
    assert shell("archive", disk, archive).code == 1
    faulty = shell("archive", "status", archive)
    assert (faulty.code, "1 fault" in faulty.text) == (1, True)
    point = archive / list_points(archive)[-1].key
    point.write_bytes(b"{}")
    damaged = shell("archive", "status", archive)
    assert (damaged.code, str(point) in damaged.err) == (1, True)
