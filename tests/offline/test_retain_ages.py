"""Tests of cli/retain.py, offline/ages.py and offline/retaining.py. `pylogseg retain` deletes no young record because
of a wrong time index, and names the segment that a time keeps.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.shell import pylogseg, rows
from helpers.trees import tree

from pylogseg import open_dir, open_log

DAY_MS = 86_400_000
NOW_MS = 1_795_243_200_000
NOW = "2026-11-21T06:40:00Z"

HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    "zeros appended": lambda data: data + bytes(24),
    "all zeros": lambda data: bytes(len(data)),
    "last entry in 1970": lambda data: data[:-12] + struct.pack(">q", 5) + data[-4:],
    "last entry of another batch": lambda data: data[:-12] + struct.pack(">qi", NOW_MS - 9 * DAY_MS, 1),
    "last entry behind the segment": lambda data: data[:-12] + struct.pack(">qi", NOW_MS - 9 * DAY_MS, 10_000),
    "last entries lost": lambda data: data[:12],
    "cut within an entry": lambda data: data[:17],
    "empty, beside an old file": lambda data: b"",
    "absent, beside an old file": lambda data: None,
}
RULES = {
    "by age": ["--ms", str(DAY_MS)],
    "by time": ["--before-time", "2026-11-20T06:40:00Z"],
    "by settings": ["-c", "cleanup.policy=delete", "-c", f"retention.ms={DAY_MS}"],
    "by age, only shown": ["--ms", str(DAY_MS), "--dry-run"],
}


def made(path: Path, ages_ms: list[int]) -> Path:
    """A partition with segments of some twenty records."""
    settings = {"segment_bytes": 4000, "segment_ms": 2**60, "index_interval_bytes": 300}
    with open_log(path, message_timestamp_after_max_ms=2**60, **settings) as log:
        for i, age_ms in enumerate(ages_ms):
            log.append([(NOW_MS - age_ms, b"k%d" % i, b"v" * 100)])
    assert len(open_dir(str(path)).partitions[0].segments) == 3
    return path


@pytest.fixture
def young(tmp_path: Path) -> Path:
    """A log directory whose records are of the last hour, but for the first six."""
    made(tmp_path / "disk" / "orders-0", [*[9 * DAY_MS] * 6, *range(3_600_000, 0, -60_000)])
    return tmp_path / "disk"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("harm", HARMS)
def test_a_wrong_time_index_deletes_nothing_young(young: Path, harm: str, rule: str) -> None:
    path = min((young / "orders-0").glob("*.timeindex"))
    data = HARMS[harm](path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    os.utime(path.with_suffix(".log"), (0, 0))
    before = tree(young / "orders-0")
    command = ["retain", young, "orders", "--now", NOW, *RULES[rule]]
    done = pylogseg(*command, "--json")
    (row,) = rows(done, "partition")
    assert (done.code, row["state"]) == (1, "failed")
    assert str(path) in row["reason"]
    assert "is of 2026-11-21T0" in row["reason"]
    assert "reindex" in row["remedy"]
    assert {name for name in before if name.endswith(".log")} == {
        name for name in tree(young / "orders-0") if name.endswith(".log")
    }
    if "--dry-run" in RULES[rule]:
        assert tree(young / "orders-0") == before
        return
    assert pylogseg("reindex", young, "orders", "--only", "time").code == 0
    done = pylogseg(*command, "--json")
    assert (done.code, [row["state"] for row in rows(done, "partition")]) == (0, ["unchanged"])


@pytest.mark.parametrize("harm", HARMS)
def test_records_that_are_old_by_their_batches_go_all_the_same(tmp_path: Path, harm: str) -> None:
    """The index is wrong, and its segment as old as it says: nothing is lost that the rule would keep."""
    part = made(tmp_path / "disk" / "orders-0", [5 * DAY_MS - i for i in range(60)])
    path = min(part.glob("*.timeindex"))
    data = HARMS[harm](path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    os.utime(path.with_suffix(".log"), (0, 0))
    done = pylogseg("retain", tmp_path / "disk", "orders", "--now", NOW, "--ms", DAY_MS, "--json")
    (row,) = rows(done, "partition")
    assert (done.code, row["state"], row["segmentsDeleted"], row["notes"]) == (0, "done", 3, [])


@pytest.mark.parametrize("rule", ["by age", "by time", "by settings"])
def test_a_time_in_the_future_is_named(tmp_path: Path, rule: str) -> None:
    """It keeps its segment, and all behind it; an offset deletes them."""
    ages = [5 * DAY_MS - i for i in range(60)]
    ages[30] = -400 * DAY_MS
    part = made(tmp_path / "disk" / "orders-0", ages)
    second = sorted(part.glob("*.log"))[1].name
    command = ["retain", tmp_path / "disk", "orders", "--now", NOW]
    for deleted in (1, 0):
        done = pylogseg(*command, *RULES[rule], "--json")
        (row,) = rows(done, "partition")
        assert (done.code, row["segmentsDeleted"]) == (0, deleted)
        (note,) = row["notes"]
        assert second in note
        assert "2027-12-26T06:40:00.000Z" in note
        assert "--before-offset" in note
    done = pylogseg(*command, *RULES[rule])
    assert second in done.text + done.err  # also where nothing is done
    done = pylogseg(*command, *RULES[rule], "--before-offset", "60", "--json")
    (row,) = rows(done, "partition")
    assert (done.code, row["segmentsDeleted"], row["notes"]) == (0, 2, [])


def test_other_rules_do_not_look_at_times(young: Path) -> None:
    path = min((young / "orders-0").glob("*.timeindex"))
    path.write_bytes(bytes(path.stat().st_size))
    for rule in (["--bytes", "1"], ["--before-offset", "60"]):
        shutil.copytree(young, copy := young.parent / rule[0].strip("-"))
        done = pylogseg("retain", copy, "orders", "--now", NOW, *rule, "--json")
        (row,) = rows(done, "partition")
        assert (done.code, row["state"], row["notes"]) == (0, "done", [])
