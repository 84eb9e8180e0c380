"""Tests of inspect/verify/set_aside.py. `pylogseg verify` names the records of folders that a broker took out of use,
and `restore` brings them back.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg

from pylogseg.disk.listing import open_dir
from pylogseg.reading.offset_range import subtract_ranges
from pylogseg.tables.reader import read

HEX = "0123456789abcdef0123456789abcdef"
STRAY = f"txn-b-0.{HEX}-stray"
OTHER_ID = "zzzzzzzzzzzzzzzzzzzzzA"
KINDS = ("set-aside", "awaits-deletion")


@pytest.fixture
def disk(golden: Path, tmp_path: Path) -> Path:
    """The two log directories of a broker; the first has the cluster's metadata."""
    return Path(shutil.copytree(golden / "broker-4.3" / "txn", tmp_path / "disk"))


def check(disk: Path) -> tuple[int, list[dict[str, Any]]]:
    done = pylogseg("verify", "--json", disk / "data0", disk / "data1")
    return done.code, [row for row in done.rows if row.get("kind") in KINDS]


def set_aside(disk: Path) -> Path:
    """What a broker leaves of a folder without a topic id."""
    live, stray = disk / "data0" / "txn-b-0", disk / "data0" / STRAY
    live.rename(stray)
    live.mkdir()
    (stray / "partition.metadata").rename(live / "partition.metadata")
    (live / f"{0:020}.log").touch()
    (live / "leader-epoch-checkpoint").touch()
    for path in (disk / "data0").glob("*-offset-checkpoint"):
        path.write_text(path.read_text().replace("txn-b 0 11", "txn-b 0 0"))
    return stray


def records(folder: Path) -> list[tuple[Any, ...]]:
    (part,) = open_dir(folder).partitions
    return [(record.offset, record.key, record.value) for record in read(part)]


def test_a_folder_that_was_set_aside_is_named_beside_the_empty_one(disk: Path) -> None:
    before = records(disk / "data0" / "txn-b-0")
    stray = set_aside(disk)
    code, (row,) = check(disk)
    assert (code, row["kind"], row["urgency"], row["path"]) == (1, "set-aside", "lost", str(stray))
    assert (row["offset"], row["lastOffset"]) == (0, 10)
    assert "txn-b-0, topic id unknown: no partition on these disks has its offsets 0 to 10" in row["reason"]
    run(row["remedy"])
    assert check(disk) == (0, [])
    assert records(disk / "data0" / "txn-b-0") == before
    assert stray.exists()


def run(remedy: str) -> None:
    """The command of a remedy, word by word; it ends with what is not known of a folder that was set aside."""
    command = shlex.split(remedy[remedy.index("pylogseg restore") :])
    done = pylogseg(*command[1:])
    assert (done.code, "or which of its records were committed" in done.text) == (1, True), done.text + done.err


def test_a_log_that_began_anew_and_has_other_records(disk: Path) -> None:
    """The same offsets, and other batches: the records are nowhere else."""
    before = records(disk / "data0" / "txn-b-0")
    set_aside(disk)
    log = bytearray((disk / "data1" / "txn-b-1" / f"{0:020}.log").read_bytes())
    (disk / "data0" / "txn-b-0" / f"{0:020}.log").write_bytes(log)
    code, (row,) = check(disk)
    assert (code, row["offset"], row["lastOffset"], row["level"]) == (1, 0, 10, "damage")
    assert row["remedy"].endswith("--overwrite")
    run(row["remedy"])
    assert records(disk / "data0" / "txn-b-0") == before


def test_a_stray_of_a_topic_that_was_made_anew_is_a_notice(disk: Path) -> None:
    """The live partition has another id: the records are of the old topic, which was deleted, or not."""
    stray = set_aside(disk)
    (stray / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    code, (row,) = check(disk)
    assert (code, row["level"], row["urgency"]) == (0, "notice", "heals")
    assert f"topic id {OTHER_ID}" in row["reason"]
    assert "does not know this topic id" in row["reason"]
    assert "txn-b has the id" in row["reason"]


@pytest.mark.parametrize("state", ["stray", "delete"])
def test_a_folder_with_nothing_that_a_partition_lacks(disk: Path, state: str) -> None:
    """As after a move to another log directory."""
    shutil.copytree(disk / "data0" / "txn-b-0", disk / "data1" / f"txn-b-0.{HEX}-{state}")
    assert check(disk) == (0, [])


def test_the_records_that_another_disk_lacks(disk: Path) -> None:
    """A replica that was taken from this broker; the other one's is shorter."""
    shutil.copytree(disk / "data0" / "txn-b-0", disk / "data1" / f"txn-b-0.{HEX}-delete")
    path = disk / "data0" / "txn-b-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:241])  # the first batch of two
    _, (row,) = check(disk)
    assert (row["kind"], row["level"], row["offset"], row["lastOffset"]) == ("awaits-deletion", "notice", 10, 10)
    assert "assigns the partition to brokers 1" in row["reason"]


def test_the_folders_that_a_broker_left(golden: Path, tmp_path: Path) -> None:
    """Topics that were deleted, and a stray, by a real broker; each comes back with all that it had."""
    disk = Path(shutil.copytree(golden / "broker-4.3" / "retention", tmp_path / "disk"))
    code, rows = check(disk)
    assert code == 0
    assert sorted(row["kind"] for row in rows) == ["awaits-deletion", "awaits-deletion", "set-aside"]
    for row in rows:
        source = Path(row["path"])
        name = source.name.partition(".")[0]
        assert (row["offset"], row["lastOffset"]) == (0, 479)
        assert re.match(
            rf"{name}, topic id \S{{22}}: no partition on these disks has its offsets 0 to 479;", row["reason"]
        )
        target = tmp_path / row["kind"] / source.name
        target.mkdir(parents=True)
        run(row["remedy"].replace("NEW_FOLDER", str(target)))
        back = target / name if row["kind"] == "awaits-deletion" else source.parent / name
        assert len(records(back)) == len(records(source)) == 480
        assert pylogseg("verify", back).code == 0


def test_a_topic_whose_name_is_cut_off(disk: Path, tmp_path: Path) -> None:
    """The folder's name has 255 characters: the metadata has the topic by its id."""
    log_dir = tmp_path / "new"
    log_dir.mkdir()
    topic_id = re.search(r"topic_id: (\S+)", (disk / "data0" / "txn-b-0" / "partition.metadata").read_text())
    cut = log_dir / f"{'x' * (255 - len(f'-0.{HEX}-stray'))}-0.{HEX}-stray"
    shutil.copytree(disk / "data0" / "txn-b-0", cut)
    assert topic_id
    done = pylogseg("restore", log_dir, log_dir, cut.name)
    assert (done.code, topic_id[1] in done.err, "--cluster-metadata" in done.err) == (2, True, True)
    done = pylogseg("restore", log_dir, log_dir, cut.name, "--cluster-metadata", disk / "data0")
    assert done.code == 1, done.text + done.err
    assert records(log_dir / "txn-b-0") == records(cut)


def test_folders_out_of_use_come_back_by_their_names_alone(disk: Path, tmp_path: Path) -> None:
    set_aside(disk)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert pylogseg("restore", disk / "data0", one).code == 0
    assert records(one / "txn-b-0") == []
    done = pylogseg("restore", disk / "data0", other, "txn-b-0", STRAY)
    assert (done.code, "name one of them" in done.err) == (2, True)
    assert not any(other.iterdir())
    done = pylogseg("restore", disk / "data0" / STRAY, other)  # its folder as the path
    assert (done.code, "a broker of KRaft sets the folder aside" in done.text) == (1, True)  # it has no topic id
    assert len(records(other / "txn-b-0")) > 0


def test_a_partition_that_lives_on_beside_its_stray(disk: Path) -> None:
    """No broker starts with two copies of a partition."""
    set_aside(disk)
    done = pylogseg("restore", disk / "data0", disk / "data1", STRAY)
    assert (done.code, "does not start with two copies" in done.err) == (2, True)
    assert not (disk / "data1" / "txn-b-0").exists()


def test_a_stray_with_damage_is_refused(disk: Path) -> None:
    stray = set_aside(disk)
    change_byte(stray / f"{0:020}.log", 100)
    assert pylogseg("restore", disk / "data0", disk / "data0", STRAY).code != 0
    assert records(disk / "data0" / "txn-b-0") == []


def test_ranges() -> None:
    assert subtract_ranges(0, 10, sorted([])) == [(0, 10)]
    assert subtract_ranges(0, 10, sorted([(5, 10), (0, 2)])) == [(2, 5)]
    assert subtract_ranges(3, 10, sorted([(3, 3), (4, 20)])) == [(3, 4)]
    assert subtract_ranges(3, 10, sorted([(3, 10)])) == []
