"""Tests of inspect/verify/files.py. Each small file of a broker's disk in each wrong state, and `pylogseg verify`: a
finding, or the reason for none.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.shell import pylogseg

ZEROS = b"\0" * 64
OTHER_ID = "zzzzzzzzzzzzzzzzzzzzzA"


def restarted(text: str) -> str:
    """The leader epochs of one leader more, which wrote nothing."""
    version, count, *entries = text.split("\n")[:-1]
    return "\n".join([version, str(int(count) + 1), *entries, "7 13", ""])


def without_last(text: str) -> str:
    """A checkpoint without its last entry."""
    version, count, *entries = text.split("\n")[:-1]
    return "\n".join([version, str(int(count) - 1), *entries[:-1], ""])


def moved(by: int) -> Callable[[str], str]:
    """The last number of each entry, moved."""
    return lambda text: re.sub(r"( )(\d+)$", lambda match: f" {max(int(match[2]) + by, 0)}", text, flags=re.M)


def as_text(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda data: change(data.decode()).encode()


ANY: dict[str, Callable[[bytes], bytes | None]] = {
    "absent": lambda data: None,
    "empty": lambda data: b"",
    "zeros": lambda data: ZEROS,
    "cut": lambda data: data[: len(data) * 2 // 3],
    "garbage": lambda data: b"\x7f{garbage\n",
}
OFFSETS = {
    **ANY,
    "older": as_text(moved(-1)),
    "newer": as_text(moved(+5)),
    "one partition less": as_text(without_last),
}
IDS = {**ANY, "of another": as_text(lambda text: re.sub(r"(topic_id: |cluster\.id=)\S+", rf"\g<1>{OTHER_ID}", text))}
FILES: dict[tuple[str, str], dict[str, Callable[[bytes], bytes | None]]] = {
    ("txn", "data0/replication-offset-checkpoint"): OFFSETS,
    ("txn", "data0/recovery-point-offset-checkpoint"): OFFSETS,
    ("retention", "data0/log-start-offset-checkpoint"): OFFSETS,
    ("compact-1-cleaned", "data0/cleaner-offset-checkpoint"): OFFSETS,
    ("txn", "data0/txn-a-1/leader-epoch-checkpoint"): {
        **ANY,
        "newer": as_text(restarted),
        "less": as_text(without_last),
    },
    ("txn", "data0/txn-a-1/partition.metadata"): IDS,
    ("txn", "data0/meta.properties"): IDS,
    ("txn", "data0/__cluster_metadata-0/quorum-state"): ANY,
    ("txn", "data0/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"): ANY,
    ("metadata", "data0/__cluster_metadata-0/00000000000000000183-0000000001.checkpoint"): ANY,
}

#: Of harms that `verify` finds the kind of the damage; of the others why there is none.
NOT_READ = "none: after an orderly stop no broker reads it; after a crash it reads the whole log"
CLEANS_ANEW = "none: the cleaner begins at the start of the log, or at its end"
ANSWERS: dict[str, dict[str, str]] = {
    "replication-offset-checkpoint": {
        **dict.fromkeys(("absent", "empty"), "high-watermark"),
        "one partition less": "notice: high-watermark",
        **dict.fromkeys(("zeros", "cut", "garbage"), "checkpoint"),
        "older": "none: it is as after a crash, and the records above it may not be committed",
        "newer": "missing",
    },
    "recovery-point-offset-checkpoint": {
        **dict.fromkeys(("absent", "empty", "one partition less", "older"), NOT_READ),
        **dict.fromkeys(("zeros", "cut", "garbage"), "checkpoint"),
        "newer": "missing",
    },
    "log-start-offset-checkpoint": {
        **dict.fromkeys(("absent", "empty", "one partition less", "older"), "leader-epoch"),
        **dict.fromkeys(("zeros", "cut", "garbage"), "checkpoint"),
        "newer": "log-start",
    },
    "cleaner-offset-checkpoint": {
        **dict.fromkeys(("absent", "empty", "one partition less", "older", "newer"), CLEANS_ANEW),
        **dict.fromkeys(("zeros", "cut", "garbage"), "checkpoint"),
    },
    "leader-epoch-checkpoint": {
        **dict.fromkeys(("absent", "empty", "less"), "leader-epoch"),
        **dict.fromkeys(("zeros", "cut", "garbage"), "leader-epoch-file"),
        "newer": "none: a leader that wrote nothing leaves such an entry",
    },
    "partition.metadata": {
        **dict.fromkeys(("absent", "of another"), "topic-id"),
        **dict.fromkeys(("empty", "zeros", "cut", "garbage"), "metadata"),
    },
    "meta.properties": dict.fromkeys(IDS, "meta-properties"),
    "quorum-state": {
        **dict.fromkeys(("empty", "zeros", "cut", "garbage"), "metadata"),
        "absent": "none: a node without it has not voted, as after it was made",
    },
    "00000000000000000000-0000000000.checkpoint": {
        **dict.fromkeys(("zeros", "garbage"), "kraft-snapshot"),
        "cut": "torn",
        **dict.fromkeys(("absent", "empty"), "none: the log has all from offset 0 on"),
    },
    "00000000000000000183-0000000001.checkpoint": {
        **dict.fromkeys(("empty", "zeros", "garbage"), "kraft-snapshot"),
        "cut": "torn",
        "absent": "none: the log has all from offset 0 on, and an older snapshot is there",
    },
}
CASES = [(broker, name, harm) for (broker, name), harms in FILES.items() for harm in harms]


@pytest.mark.parametrize(("broker", "name", "harm"), CASES)
def test_each_harm_of_each_small_file(golden: Path, tmp_path: Path, broker: str, name: str, harm: str) -> None:
    shutil.copytree(golden / "broker-4.3" / broker, tmp_path / "disk")
    path = tmp_path / "disk" / name
    data = FILES[broker, name][harm](path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    done = pylogseg("verify", "--json", *sorted((tmp_path / "disk").glob("data?")))
    damage = [row for row in done.rows if row.get("level") == "damage"]
    answer = ANSWERS[path.name][harm]
    if answer.startswith(("none", "notice")):
        assert (done.code, damage) == (0, [])
        notices = {row["kind"] for row in done.rows if row.get("level") == "notice"}
        assert answer.startswith("none") or answer.removeprefix("notice: ") in notices
        return
    assert done.code == 1
    assert answer in {row["kind"] for row in damage}
    kinds = {"checkpoint", "leader-epoch-file", "metadata", "meta-properties", "kraft-snapshot", "high-watermark"}
    if harm != "of another":  # where two files differ, either may be wrong
        assert {row["path"] for row in damage if row["kind"] in kinds} <= {str(path)}
    assert all(row["remedy"] and row["urgency"] != "heals" for row in damage)


def test_a_crash_may_come_before_the_first_high_watermarks(golden: Path, tmp_path: Path) -> None:
    """A broker writes them every few seconds: without the marker of an orderly stop it is no damage, and is named."""
    disk = Path(shutil.copytree(golden / "broker-4.3" / "txn", tmp_path / "disk"))
    for path in [disk / "data0" / "replication-offset-checkpoint", *disk.glob("data?/.kafka_cleanshutdown")]:
        path.unlink()
    done = pylogseg("verify", "--json", disk / "data0", disk / "data1")
    rows = [row for row in done.rows if row.get("kind") == "high-watermark"]
    assert (done.code, [row["level"] for row in rows]) == (0, ["notice"])
    assert "archive" in rows[0]["remedy"]
