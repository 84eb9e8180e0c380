"""Tests of inspect/small_file_doubts.py. Small files that say less than they should: a command names what it takes
instead, and writes again what it can.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg.archive import write
from pylogseg.disk.tier.points import archive_store, new_id, write_point
from pylogseg.format.files.checkpoint import parse_offset_checkpoint

HIGH = "replication-offset-checkpoint"


@pytest.fixture
def home(golden: Path, tmp_path: Path) -> Path:
    """The log directory of a broker, closed in order, with the cluster's metadata."""
    return shutil.copytree(golden / "broker-4.3" / "txn" / "data0", tmp_path / "data0")


@pytest.mark.parametrize("command", ["recover", "repair", "reindex"])
def test_a_topic_id_that_is_gone(home: Path, command: str) -> None:
    """The command writes the file by the metadata; a broker would set the folder aside and begin an empty log."""
    path = home / "txn-b-0" / "partition.metadata"
    before = path.read_bytes()
    path.unlink()
    assert (pylogseg(command, home, "--dry-run").code, path.exists()) == (0, False)
    expect(pylogseg(command, home), 0, out=f"{path} is missing, and is written with the id")
    assert path.read_bytes() == before
    again = pylogseg(command, home)
    assert (again.code, "is missing" in again.text) == (0, False)


@pytest.mark.parametrize("command", ["recover", "reindex", "recode --compression zstd", "truncate --to 1"])
def test_a_topic_id_that_is_a_folder(home: Path, command: str) -> None:
    """No engine reads it, and a broker cannot: the command says so."""
    path = home / "txn-b-0" / "partition.metadata"
    path.unlink()
    path.mkdir()
    name, *options = command.split()
    done = pylogseg(name, home, *(["txn-b-0"] if options else ["-t", "txn-b"]), *options)
    assert (done.code, f"{path}: cannot read" in done.text) == (1, True), done.text


def test_a_copy_without_a_topic_id(home: Path, tmp_path: Path) -> None:
    """A copy has what its source has, and says what a broker does with it."""
    (home / "txn-b-0" / "partition.metadata").unlink()
    for options in (["--dry-run"], []):
        done = pylogseg("copy", home, tmp_path / "copy", *options)
        assert done.code == 1
        assert "txn-b-0/partition.metadata: the file is not there: a broker of KRaft sets the folder aside" in done.text


@pytest.mark.parametrize("data", [None, b"", b"0\n0\n"], ids=["absent", "empty", "without entries"])
def test_the_only_replica_is_committed_to_its_end(home: Path, data: bytes | None) -> None:
    """No high watermark is known, and the metadata has no other replica: recover notes the log's end."""
    before = parse_offset_checkpoint((home / HIGH).read_bytes(), HIGH)
    (home / HIGH).unlink()
    if data is not None:
        (home / HIGH).write_bytes(data)
    expect(pylogseg("recover", home), 1, out="the metadata has no other replica, so all up to its end counts")
    assert dict(parse_offset_checkpoint((home / HIGH).read_bytes(), HIGH)) == dict(before)
    assert pylogseg("recover", home).code == 0


def test_directories_of_our_own(tmp_path: Path) -> None:
    """Nobody but this package wrote them: no checkpoint of these is taken for one that lost its entries."""
    own = tmp_path / "own"
    own.mkdir()
    for number in range(2):
        with package.open_log(own / f"t-{number}") as log:
            log.append([(None, b"k", b"v")] * 9)
    for name in ("into", "restored", "copy"):
        place = tmp_path / name
        if name == "into":
            assert pylogseg("recover", own, "--into", place).code == 0
        elif name == "copy":
            assert pylogseg("copy", own, place).code == 0
        else:
            place.mkdir()
            assert pylogseg("restore", own, place).code == 0
        done = pylogseg("recover", place, "--full")
        assert (done.code, "not known" in done.text) == (0, False), name
    for command in ("recover", "reindex", "repair"):
        assert pylogseg(command, own).code == 0


EPOCHS = {
    "absent": None,
    "empty": b"",
    "zeros": bytes(12),
    "cut": b"0\n",
    "garbage": b"\xfe garbage",
    "no entry": b"0\n0\n",
    "newer": b"0\n1\n7 0\n",
}


@pytest.mark.parametrize("harm", EPOCHS)
@pytest.mark.parametrize("command", ["copy", "move"])
def test_leader_epochs_that_batches_contradict(home: Path, tmp_path: Path, command: str, harm: str) -> None:
    """The file goes where its partition goes, and a broker takes it as it is."""
    path, data, into = home / "txn-b-0" / "leader-epoch-checkpoint", EPOCHS[harm], tmp_path / "into"
    if command == "move":
        into.mkdir(parents=True)
        shutil.copy(home / "meta.properties", into)
    for is_harmed in (False, True):
        if data is None and is_harmed:
            path.unlink()
        elif data is not None and is_harmed:
            path.write_bytes(data)
        done = pylogseg(command, home, into, "txn-b-0", "--dry-run")
        assert (done.code, "--only epochs" in done.text) == (is_harmed, is_harmed), done.text
    done = pylogseg(command, home, into, "txn-b-0")
    assert (done.code, "--only epochs" in done.text) == (1, True)


def test_folders_of_segments_alone_have_no_leader_epochs(home: Path, tmp_path: Path) -> None:
    """Somebody copied segments without what lies beside them: no broker lost anything, and nothing is wrong."""
    for path in home.glob("*/*"):
        if path.suffix != ".log":
            path.unlink()
    shutil.rmtree(home / "__cluster_metadata-0")
    for path in home.glob("*checkpoint"):
        path.unlink()
    done = pylogseg("copy", home, tmp_path / "copy", "txn-b-0")
    assert (done.code, "leader" in done.text) == (0, False), done.text


def test_a_folder_without_indexes_was_copied_in_part(home: Path, tmp_path: Path) -> None:
    """A snapshot beside segments shows that a broker wrote the folder; that epochs and indexes lack is a note."""
    for kind in ("*.index", "*.timeindex", "*.txnindex", "leader-epoch-checkpoint", "partition.metadata"):
        for path in (home / "txn-b-0").glob(kind):
            path.unlink()
    (home / "txn-b-0" / "00000000000000000000.snapshot").write_bytes(b"")
    alone = tmp_path / "alone"
    alone.mkdir()
    (home / "txn-b-0").rename(alone / "txn-b-0")
    done = pylogseg("copy", alone / "txn-b-0", tmp_path / "copy")
    assert "no segment has an index either: the folder was copied in part" in done.text
    assert done.code == 0


def test_restore_of_a_point_without_leader_epochs(home: Path, tmp_path: Path) -> None:
    """A point of an older version, or of a disk that had lost the file, has none of a log whose batches have some."""
    archive = tmp_path / "archive"
    point = write(home, archive).point
    late = replace(point, id=new_id(point.time_ms + 1), time_ms=point.time_ms + 1)
    without = replace(late, partitions=tuple(replace(part, epochs=()) for part in point.partitions))
    for code in (0, 1):
        into = tmp_path / f"host-{code}" / "data"
        into.mkdir(parents=True)
        shutil.copy(home / "meta.properties", into)
        done = pylogseg("restore", archive, into, "txn-b-0")
        text = f"{into}/txn-b-0/leader-epoch-checkpoint: it has no entry, and the batches from offset 0 on"
        assert (done.code, text in done.text) == (code, bool(code)), done.text + done.err
        if not code:
            write_point(archive_store(archive), without)


def table_of(offsets: list[int], path: Path, number: pa.DataType) -> None:
    count = len(offsets)
    columns: dict[str, Any] = {"topic": ["t"] * count, "partition": pa.array([0] * count, number), "offset": offsets}
    columns |= {"key": [b"k"] * count, "value": [b"v"] * count}
    columns["timestamp"] = pa.array([0] * count, pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize("gone", [(), (3,)])
def test_restore_of_a_table_that_lacks_offsets(tmp_path: Path, gone: tuple[int, ...]) -> None:
    """Beside a high watermark the gap would count as a loss: none is noted, and that is said."""
    table_of([offset for offset in range(9) if offset not in gone], tmp_path / "t.parquet", pa.int32())
    (tmp_path / "into").mkdir()
    done = pylogseg("restore", tmp_path / "t.parquet", tmp_path / "into", "--committed")
    assert (done.code, "no high watermark is noted, as the table lacks offsets" in done.text) == (0, bool(gone))
    assert (tmp_path / "into" / HIGH).exists() is not bool(gone)


def test_restore_of_a_table_with_other_numbers(tmp_path: Path) -> None:
    """What pyarrow cannot join with the type of an export is one line that names the file."""
    table_of([0], tmp_path / "t.parquet", pa.int64())
    (tmp_path / "into").mkdir()
    done = pylogseg("restore", tmp_path / "t.parquet", tmp_path / "into", "--committed")
    assert (done.code, str(tmp_path / "t.parquet") in done.err, done.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("name", [HIGH, "recovery-point-offset-checkpoint"])
@pytest.mark.parametrize("command", ["copy HOME OUT", "restore HOME OUT txn-b", "lake HOME txn-b delta:OUT"])
def test_an_entry_below_0(home: Path, tmp_path: Path, name: str, command: str) -> None:
    """No log has such an offset: the entry is not known, the others are, and nothing stops."""
    out = tmp_path / "out"
    out.mkdir()
    text = (home / name).read_text().splitlines()
    lines = [re.sub(r"(txn-b 0) .*", r"\1 -5", line) for line in text]
    assert lines != text
    (home / name).write_text("\n".join([*lines, ""]))
    places = {"HOME": home, "OUT": out, "delta:OUT": f"delta:{out}/t"}
    done = pylogseg(*(places.get(word, word) for word in command.split()))
    assert (done.code, f"{home / name}: the entry of txn-b-0 is -5, below 0" in done.text + done.err) == (1, True)
    assert list(out.iterdir())
