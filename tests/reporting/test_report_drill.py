"""Tests of cli/drill.py. From the report to a fix: damage is seen, the command beside it is run by a shell, and the
next report is clean.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import forked
from helpers.damaged_logs import change_byte
from helpers.shell import environment, expect, pylogseg

_TOPIC, _PARTITION = "append-time", 0


def last_batch(folder: Path) -> None:
    """A bit in the records of the last batch, which its checksum covers."""
    log = _logs(folder)[-1]
    change_byte(log, log.stat().st_size - 4, 0x5A)


def middle(folder: Path) -> None:
    """The same in the middle of the log."""
    change_byte(_logs(folder)[1], 200, 0x5A)


def offset_index(folder: Path) -> None:
    change_byte(_logs(folder)[1].with_suffix(".index"), 7, 0x5A)


def time_index(folder: Path) -> None:
    change_byte(_logs(folder)[1].with_suffix(".timeindex"), 7, 0x5A)


def no_index(folder: Path) -> None:
    _logs(folder)[1].with_suffix(".timeindex").unlink()


def snapshot(folder: Path) -> None:
    change_byte(sorted(folder.glob("*.snapshot"))[-1], 3, 0x5A)


def epochs(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").write_text("what is this")


def torn(folder: Path) -> None:
    """What a crash leaves of an append."""
    log = _logs(folder)[-1]
    data = log.read_bytes()
    head = (300).to_bytes(8, "big") + data[8:]
    log.write_bytes(data + head[:100])
    (folder.parent / ".kafka_cleanshutdown").unlink()


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line that was copied from the report, in a shell that finds `pylogseg`."""
    program = f'pylogseg() {{ {shlex.join(forked.command())} "$@"; }}\n{line}'
    return subprocess.run(["bash", "-c", program], env=environment(), capture_output=True, text=True, check=False)


def facts(path: Path, *words: object) -> dict[str, Any]:
    done = pylogseg("report", path, "--json", *words)
    (row,) = done.rows
    # The broker's other log directories are not copied.
    row["findings"] = [finding for finding in row["findings"] if finding["kind"] != "not-here"]
    assert done.code == (1 if row["damage"] else 0)
    return row


@pytest.fixture
def log_dir(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory in order, under a name that a shell would split."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copied = shutil.copytree(golden / "broker-4.3" / "codecs" / "data0", tmp_path / "a log dir's")
    assert facts(copied, "--full")["findings"] == []
    return copied


@pytest.mark.parametrize(
    "harm",
    [last_batch, middle, offset_index, time_index, no_index, snapshot, epochs, torn],
    ids=lambda harm: harm.__name__,
)
def test_from_the_report_to_a_fix(log_dir: Path, harm: Callable[[Path], None]) -> None:
    folder = log_dir / f"{_TOPIC}-{_PARTITION}"
    harm(folder)
    before = facts(log_dir, "--full")
    finding = before["findings"][0]
    part = next(each for each in before["partitions"] if each["name"] == folder.name)
    assert (finding["topic"], finding["partition"]) == (_TOPIC, _PARTITION)
    assert part["damage"] + part["notices"] == len(before["findings"])
    lines = {each["what"]: each["text"] for each in finding["commands"]}
    assert shell(lines["show"]).returncode == (1 if before["damage"] else 0)
    files = {path: path.read_bytes() for path in folder.iterdir()}
    tried = shell(lines["try"])
    assert tried.returncode in (0, 1), tried.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == files
    done = shell(lines["mend"])
    # 1: records were lost, which the command says.
    assert done.returncode == (1 if harm in (last_batch, middle) else 0), done.stderr
    after = facts(log_dir, "--full")
    # Records that damage took stay missing; the report says where, until they come from another replica.
    expected = ["cut"] if harm is middle else []
    assert [each["kind"] for each in after["findings"]] == expected, after["findings"]


def test_headers_show_what_they_can(log_dir: Path) -> None:
    """A destroyed length shows by headers alone; the verdict claims no more than was looked at."""
    log = _logs(log_dir / f"{_TOPIC}-{_PARTITION}")[1]
    clean = facts(log_dir)
    assert clean["damage"] == 0
    scope = clean["scope"]
    assert scope["bytesDecoded"] == scope["size"]
    read = f"{scope['headers']:,} batch headers and all {scope['recordsDecoded']:,} records were read"
    assert read in clean["verdict"]
    assert any("--full" in each for each in clean["scope"]["notChecked"])
    change_byte(log, 8, 0x5A)
    found = facts(log_dir)
    assert found["damage"] > 0
    segments = {f"{part['path']}/{each['name']}": each for part in found["partitions"] for each in part["segments"]}
    assert segments[str(log)]["read"] == "all"
    assert segments[str(log)]["damage"] > 0


def test_nothing_is_written_beside(golden: Path, tmp_path: Path) -> None:
    """A report changes no file, takes no lock, and is told no to a place inside of what it reads."""
    log_dir = shutil.copytree(golden / "broker-4.3" / "txn" / "data1", tmp_path / "kafka")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")}
    done = pylogseg("report", log_dir, "-o", tmp_path / "report.html", "--csv", tmp_path / "tables", "--full")
    assert done.code == 0, done.err
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")} == before
    assert os.path.getsize(tmp_path / "report.html") > 10_000
    expect(pylogseg("report", log_dir, "-o", log_dir / "report.html"), 2, "is a log directory")
