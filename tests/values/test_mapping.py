"""Tests of values/internal/mapping.py. Offsets on another cluster's copy of a topic: the group goes on with the record
that it would have read next.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte
from helpers.internal_logs import write_log
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.format.messages.framing import encode_coordinator

_Rows = list[tuple[int, bytes, bytes]]


def commit(offset: int, partition: int = 0, group: str = "g", topic: str = "q") -> Any:
    key = {"group": group, "topic": topic, "partition": partition}
    return encode_coordinator("OffsetCommit", key, 3, {"offset": offset})


def fill(folder: Path, rows: _Rows, *, markers: bool, skip: int = 0) -> None:
    """A log of the rows; with markers in transactions, so that offsets differ from those of the copy."""
    with pylogseg.open_log(folder, segment_bytes=3000) as log:
        for i in range(skip, len(rows), 5):
            if markers:
                producer = log.producer(3)
                producer.begin()
                producer.append(rows[i : i + 5])
                producer.commit()
                producer.begin()
                producer.append([(rows[i][0], b"aborted", b"never copied")])
                producer.abort()
            else:
                log.append(rows[i : i + 5])


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, _Rows]:
    rng = random.Random(2)
    rows = [(1000 + i // 3, b"%d" % rng.randrange(5), b"%d" % rng.randrange(4)) for i in range(200)]
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    fill(here / "q-0", rows, markers=True)
    fill(there / "q-0", rows, markers=False)
    return here, there, rows


def following(folder: Path, offset: int) -> list[bytes | None]:
    """What a consumer reads from an offset on."""
    return [record.value for record in pylogseg.read(folder, offset=offset, isolation_level="read_committed")]


def test_every_offset(clusters: tuple[Path, Path, _Rows], tmp_path: Path) -> None:
    """The consumer reads the same records there, also where many records are equal."""
    here, there, _ = clusters
    end = pylogseg.open_dir(here / "q-0").partitions[0].segments[-1].base_offset + 40
    offsets = list(range(0, end, 3))
    groups = tmp_path / "__consumer_offsets-0"
    write_log(groups, [commit(offset, group=f"g{offset}") for offset in offsets])
    mapped = pylogseg.cluster_state([here, tmp_path]).map_offsets(pylogseg.cluster_state(there)).to_pylist()
    assert len(mapped) == len(offsets)
    for row in mapped:
        assert row["reason"] is None, row
        assert following(there / "q-0", row["mappedOffset"]) == following(here / "q-0", row["offset"]), row
    assert any(row["mappedOffset"] != row["offset"] for row in mapped)


def test_a_copy_that_is_behind(clusters: tuple[Path, Path, _Rows], tmp_path: Path) -> None:
    """Up to its end the group goes on behind what it read last; beyond, nothing can be said."""
    rows = clusters[2]
    unique = [(time, b"%d" % i, value) for i, (time, _, value) in enumerate(rows)]
    fill(tmp_path / "a" / "q-0", unique, markers=False)
    fill(tmp_path / "b" / "q-0", unique[:50], markers=False, skip=10)
    write_log(tmp_path / "a" / "__consumer_offsets-0", [commit(n, group=f"g{n}") for n in (10, 30, 50, 51, 5)])
    state = pylogseg.cluster_state(tmp_path / "a")
    rows_of = {row["offset"]: row for row in state.map_offsets(pylogseg.cluster_state(tmp_path / "b")).to_pylist()}
    assert {offset: row["mappedOffset"] for offset, row in rows_of.items()} == {
        10: 0,
        30: 20,
        50: 40,
        51: None,
        5: None,
    }
    assert rows_of[51]["reason"] == (
        "next record: that of offset 51 is not in the other directory; "
        "record before: that of offset 50 is not in the other directory"
    )


def test_equal_records_of_which_the_copy_has_fewer(tmp_path: Path) -> None:
    rows = [(1, b"k", b"v")] * 5
    fill(tmp_path / "a" / "q-0", rows, markers=False)
    fill(tmp_path / "b" / "q-0", rows[:3], markers=False)
    write_log(tmp_path / "a" / "__consumer_offsets-0", [commit(2)])
    (row,) = pylogseg.cluster_state(tmp_path / "a").map_offsets(pylogseg.cluster_state(tmp_path / "b")).to_pylist()
    assert row["mappedOffset"] is None
    assert "is here 5 times, there 3 times" in row["reason"]


def test_in_the_shell(clusters: tuple[Path, Path, _Rows], tmp_path: Path) -> None:
    here, there, _ = clusters
    write_log(tmp_path / "__consumer_offsets-0", [commit(8), commit(3, topic="other"), commit(1, group="h")])
    done = shell("groups", here, tmp_path, "--map-to", there, "--json")
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert [(row["group"], row["topic"], row["mappedOffset"]) for row in rows] == [
        ("g", "other", None),
        ("g", "q", 5),
        ("h", "q", 1),
    ]
    assert (done.code, rows[0]["reason"]) == (1, "the partition is not in this directory")
    target = tmp_path.with_suffix(".csv")  # not in what is read
    done = shell("groups", here, tmp_path, "g", "--map-to", there, "--export", target)
    assert (done.code, target.read_text()) == (1, "q,0,5\n")
    assert "g, other-0, 3: the partition is not in this directory" in done.err
    done = shell("groups", here, tmp_path, "h", "--map-to", there, "--export", target, "--overwrite")
    assert (done.code, target.read_text()) == (0, "q,0,1\n")
    assert shell("groups", here, "--map-to", there, "--members").code == 2


def test_damage_is_noted(clusters: tuple[Path, Path, _Rows], tmp_path: Path) -> None:
    here, _, rows = clusters
    fill(tmp_path / "q-0", rows, markers=False)
    path = min((tmp_path / "q-0").glob("*.log"))
    change_byte(path, 70)
    write_log(tmp_path / "groups" / "__consumer_offsets-0", [commit(0)])
    state = pylogseg.cluster_state([here, tmp_path / "groups"])
    (row,) = state.map_offsets(pylogseg.cluster_state(tmp_path / "q-0")).to_pylist()
    assert row["mappedOffset"] is None
    assert state.notes.has_damage
    assert path.name in state.notes[0]
