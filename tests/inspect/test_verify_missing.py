"""Tests of disk/indexed_ends.py, inspect/verify/missing.py and inspect/verify/partition.py. `pylogseg verify` finds
what is missing, and what keeps a broker from starting; nothing that is as it should be.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import IS_DEEP, some_of
from helpers.shell import expect, pylogseg

import pylogseg as package


@pytest.fixture
def disk(examples: Path, tmp_path: Path) -> Path:
    """A copy of a broker's directory that was closed in order."""
    return Path(shutil.copytree(examples, tmp_path / "kafka"))


def findings(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and damage."""
    done = pylogseg("verify", "--json", *arguments)
    return done.code, [row for row in done.rows if row.get("level") == "damage"]


def records(disk: Path) -> int:
    """How many records there are, markers included."""
    return sum(len(chunk.columns) for chunk in package.read(disk, control=True, columns=["offset"]).chunks())


def damaging(disk: Path, paths: list[Path]) -> Iterator[None]:
    """The disk without some files; then as it was."""
    away = disk.parent / "away"
    away.mkdir()
    for number, path in enumerate(paths):
        shutil.move(path, away / str(number))
    yield
    for number, path in enumerate(paths):
        shutil.move(away / str(number), path)
    away.rmdir()


#: Transactions, retention, deleted records, compaction, the cluster's metadata.
THOROUGH = ("txn-a-0", "ret-bytes-0", "del-records-0", "cmp-short-0", "__cluster_metadata-0")


def deletions(disk: Path) -> Iterator[tuple[str, list[Path]]]:
    """What is deleted, one after the other: each file of some partitions, and each other partition as a whole."""
    for folder in [disk / name for name in THOROUGH]:
        logs = sorted(folder.glob("*.log"))
        for log in logs:
            yield f"{folder.name}/{log.name}", [log]
            yield f"{folder.name}/{log.stem}.*", sorted(folder.glob(f"{log.stem}.*"))
        yield f"{folder.name}/*.log", logs
        yield f"{folder.name}/*", sorted(folder.iterdir())
        for path in sorted(folder.iterdir()):
            if path.suffix != ".log":
                yield f"{folder.name}/{path.name}", [path]
    for path in sorted(disk.iterdir()):
        yield path.name, [path]


#: Of these nothing tells, so none may be added without a word: whole segments in the middle of a compacted log, as a
#: compaction may leave it; and the metadata log, whose snapshot holds what it began with.
UNTOLD = {
    *(f"cmp-short-0/{base:020}.*" for base in (624, 935, 1045, 1165, 1285, 1405, 1525, 1657, 1835)),
    *(f"__cluster_metadata-0/{0:020}.{end}" for end in ("log", "*")),
    "__cluster_metadata-0",
}
#: Without a byte, and with indexes that have entries, as compaction leaves it: without it they look like a loss.
FALSE_ALARMS = {f"cmp-short-0/{845:020}.log"}


def test_whatever_is_deleted_is_found_if_records_went_with_it(disk: Path) -> None:
    """And what nothing was lost with is no damage; exactly but for what is listed, each by the name of what is gone."""
    before = records(disk)
    assert findings(disk)[0] == 0
    untold, alarms, wrong, costly = set(), set(), [], 0
    chosen = some_of(deletions(disk), 25)
    for what, paths in chosen:
        assert paths
        # Without them aborted or deleted records show, a broker does not start, nothing counts as committed, and
        # followers truncate wrongly.
        needed = ("meta.properties", "log-start-offset-checkpoint", "replication-offset-checkpoint")
        is_needed = (
            what in needed
            or what.endswith("/leader-epoch-checkpoint")
            or (what.startswith("txn-") and what.endswith(".txnindex"))
        )
        for _ in damaging(disk, paths):
            done = pylogseg("verify", "--json", disk)
            code, found = done.code, [row for row in done.rows if row.get("level") in ("damage", "unknown")]
            lost = before - records(disk)
        costly += lost > 0
        is_named = any(what.split("/")[0] in row["path"] + row["reason"] for row in found)
        if not code and (lost > 0 or is_needed):
            untold.add(what)
        elif code and not (lost > 0 or is_needed):
            alarms.add(what)
        elif code != min((1 if row["level"] == "damage" else 2 for row in found), default=0) or is_named != bool(code):
            wrong.append((what, code, lost, [row["reason"] for row in found]))
    assert not wrong, "\n".join(map(str, wrong))
    names = {what for what, _ in chosen}
    assert (untold, alarms) == (UNTOLD & names, FALSE_ALARMS & names)
    assert costly == 91 if IS_DEEP else costly > 0  # of all deletions; the others lost what can be made again


# ---- one by one ----


def kinds(*arguments: object) -> set[str]:
    return {row["kind"] for row in findings(*arguments)[1]}


def test_the_offsets_of_what_is_missing_are_named(disk: Path) -> None:
    for path in (disk / "txn-a-0").iterdir():
        path.unlink()
    shutil.rmtree(disk / "txn-a-1")
    (disk / "codec-none-1" / f"{190:020}.log").unlink()
    code, found = findings(disk)
    assert code == 1
    assert {(Path(row["path"]).name, row["offset"], row["lastOffset"]) for row in found} >= {
        ("txn-a-0", 0, 147),
        (f"{190:020}.index", 190, 381),
    }
    assert ("txn-a-1", "missing") in {(Path(row["path"]).name, row["kind"]) for row in found}
    assert all(row["remedy"] for row in found)
    assert kinds(disk, "txn-b") == set()  # nobody asked for the others


def test_a_load_that_drops_everything_is_told_before_it(disk: Path) -> None:
    (disk / "log-start-offset-checkpoint").write_text("0\n1\ntxn-a 0 999\n")
    (found,) = findings(disk, "txn-a-0")[1]
    assert (found["kind"], found["offset"], found["lastOffset"]) == ("log-start", 0, 147)
    assert "log-start-offset-checkpoint" in found["remedy"]
    # With that line gone nothing is dropped.
    (disk / "log-start-offset-checkpoint").write_text("0\n0\n")
    assert pylogseg("recover", disk / "txn-a-0", "--dry-run").code == 0


@pytest.mark.parametrize("text", [None, "", "0\n0\n"])
def test_deleted_records_that_come_back_are_told(disk: Path, text: str | None) -> None:
    """A log start offset moves the first leader epoch; a broker that runs, or crashed, may not have written it yet."""
    path = disk / "log-start-offset-checkpoint"
    path.unlink()
    if text is not None:
        path.write_text(text)
    code, (found,) = findings(disk)
    assert (code, found["kind"], found["path"]) == (1, "log-start-lost", str(path))
    assert found["lastOffset"] == 122
    (disk / ".kafka_cleanshutdown").unlink()
    assert findings(disk) == (0, [])
    assert b"log-start-lost" in pylogseg("verify", disk).out
    assert b"log-start-lost" not in pylogseg("verify", disk, "codec-none").out


def test_what_a_node_begins_with_is_checked(disk: Path) -> None:
    """Kafka reads `bootstrap.checkpoint` at every start, and refuses one without metadata.version."""
    path = disk / "bootstrap.checkpoint"
    good = path.read_bytes()
    for damaged in (b"", good[:-3], good[:60] + b"x" + good[61:]):
        path.write_bytes(damaged)
        code, (found,) = findings(disk)
        assert (code, found["kind"], found["path"]) == (1, "bootstrap", str(path)), damaged
    path.unlink()
    assert findings(disk) == (0, [])


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", f"{43:020}.index", f"{43:020}.snapshot", "partition.metadata"]
)
def test_a_folder_in_the_place_of_a_file_is_told(disk: Path, name: str) -> None:
    """A broker that opens it takes the log directory offline; beside the files of others it does no harm."""
    path = disk / "txn-a-0" / name
    path.unlink()
    path.mkdir()
    code, found = findings(disk, "txn-a")
    assert (code, [(row["kind"], row["path"]) for row in found]) == (1, [("unreadable", str(path))])
    path.rename(path.parent / "notes")
    gone = {"leader-epoch-checkpoint": {"leader-epoch"}}  # which the batches have
    assert kinds(disk, "txn-a") == gone.get(name, set())


def test_an_unreadable_log_is_no_reason_to_delete_the_leader_epochs(disk: Path) -> None:
    log = disk / "txn-a-0" / f"{119:020}.log"
    log.unlink()
    log.mkdir()
    assert "leader-epoch" not in kinds(disk)


@pytest.mark.parametrize("name", ["lost+found", "orders-0.bak", ".snapshot"])
def test_folders_that_a_broker_refuses(disk: Path, name: str) -> None:
    (disk / name).mkdir()
    assert kinds(disk) == {"foreign-folder"}
    for arguments in ([], ["--dry-run"]):
        done = expect(pylogseg("recover", disk, "--no-keep", *arguments), 1, out=name)
        assert "nothing to do" not in done.text


def test_directories_that_contradict_one_another(golden: Path, tmp_path: Path) -> None:
    for name in ("data0", "data1"):
        shutil.copytree(golden / "broker-4.3" / "txn" / name, tmp_path / name)
    path = tmp_path / "data1" / "meta.properties"
    good = path.read_text()
    first = (tmp_path / "data0" / "meta.properties").read_text()
    assert kinds(tmp_path) == set()
    for bad in (good.replace("node.id=1", "node.id=2"), good.replace("BrokerAA", "BrokerBB"), first, "", "version=7\n"):
        path.write_text(bad)
        assert kinds(tmp_path) & {"meta-properties", "metadata"}, bad
    path.write_text(good)
    partition = next(path for path in (tmp_path / "data0").iterdir() if path.name.startswith("txn-"))
    shutil.copytree(partition, tmp_path / "data1" / partition.name)
    assert "twice" in kinds(tmp_path)


def test_a_partition_that_is_there_twice_in_folders_of_nobody(examples: Path, tmp_path: Path) -> None:
    """It may be a replica of another broker: `verify` says that it does not know, and that is no damage."""
    for name in ("one", "other"):
        shutil.copytree(examples / "txn-b-0", tmp_path / name / "txn-b-0")
    expect(pylogseg("verify", tmp_path), 0, out=["twice", "it is not known whether both belong to one broker"])
    shutil.copyfile(examples / "meta.properties", tmp_path / "one" / "meta.properties")
    assert "twice" in pylogseg("verify", tmp_path).text
    for name, node in (("one", 1), ("other", 2)):
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={node}\n")
    assert "twice" not in pylogseg("verify", tmp_path).text


def test_a_topic_id_that_is_not_the_topics(golden: Path, tmp_path: Path) -> None:
    for name in ("data0", "data1"):
        shutil.copytree(golden / "broker-4.3" / "txn" / name, tmp_path / name)
    path = next(tmp_path.glob("data?/txn-*/partition.metadata"))
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABg")
    assert kinds(tmp_path) == {"topic-id"}


def test_a_partition_that_only_the_metadata_knows(golden: Path, tmp_path: Path) -> None:
    for name in ("data0", "data1"):
        shutil.copytree(golden / "broker-4.3" / "txn" / name, tmp_path / name)
    folder = next(path for path in tmp_path.glob("data?/txn-*") if path.is_dir())
    shutil.rmtree(folder)
    for path in tmp_path.glob("data?/*-checkpoint"):
        path.write_text("0\n0\n")
    code, found = findings(tmp_path)
    assert code == 1
    assert str(folder) in {row["path"] for row in found}


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_a_damaged_swap_is_told_before_a_load_puts_it_in_place(examples: Path, tmp_path: Path, damage: str) -> None:
    """With the remedy that keeps the segments: what a recovery leaves has them all once the file is moved away."""
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "logs" / "codec-none-1")
    first = sorted(folder.glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    if damage == "cut":
        del data[-10:]
    else:
        data[100] ^= 1
    swap = folder / f"{first.name}.swap"
    swap.write_bytes(first.read_bytes())
    good = pylogseg("verify", tmp_path / "logs", "--json")
    assert (good.code, "swap" in {row.get("kind") for row in good.rows}) == (0, False)
    swap.write_bytes(data)
    done = pylogseg("verify", tmp_path / "logs", "--json")
    (found,) = (row for row in done.rows if row.get("kind") == "swap")
    assert (done.code, found["level"], found["path"]) == (1, "damage", str(swap))
    dry = expect(pylogseg("recover", tmp_path / "logs", "--dry-run", "--json"), 1)
    assert any(row.get("level") == "damage" for row in dry.rows)
    swap.rename(tmp_path / swap.name)
    assert pylogseg("recover", tmp_path / "logs", "--no-keep").code == 0
    assert len(list(package.read(folder))) == 505


def without_the_first(disk: Path) -> None:
    """Nothing is left of the segment that the log start offset, 123, lies in."""
    for path in (disk / "del-records-0").iterdir():
        if path.suffix == ".deleted" or path.name.startswith(f"{96:020d}."):
            path.unlink()


def test_a_first_segment_that_may_be_remote_is_no_damage_where_nothing_tells(disk: Path) -> None:
    """A tiered log's start lies below its first segment, as that of a log whose records were deleted may."""
    without_the_first(disk)
    (found,) = findings(disk)[1]
    assert (found["kind"], found["offset"], found["lastOffset"]) == ("missing", 123, 143)  # the metadata is here
    shutil.move(disk / "__cluster_metadata-0", disk.parent)
    done = pylogseg("verify", disk, "del-records", "--json")
    (found,) = (row for row in done.rows if "del-records-0" in row.get("path", ""))
    assert done.code == 2
    assert (found["kind"], found["level"], found["offset"], found["lastOffset"]) == (
        "perhaps-remote",
        "unknown",
        123,
        143,
    )
    assert "not known" in found["reason"]
    assert "name all log directories" in found["remedy"]
    (disk / "log-start-offset-checkpoint").write_text("0\n0\n")  # a broker names each tiered log in it
    assert kinds(disk, "del-records") == {"missing"}
    (disk / "remote-log-index-cache").mkdir()
    done = pylogseg("verify", disk, "del-records", "--json")
    assert (done.code, "perhaps-remote" in done.text) == (2, True)


@pytest.mark.parametrize(
    ("keys", "knows", "level"),
    [("all", False, "unknown"), ("some", False, "damage"), ("none", False, "damage"), ("all", True, "damage")],
)
@pytest.mark.parametrize("check", ["headers", "indexes"])
def test_a_gap_where_settings_are_not_known(disk: Path, keys: str, knows: bool, level: str, check: str) -> None:
    """A copy of a log that its leader compacted looks like one that lost a segment, if all records have keys.

    The cluster's metadata tells, and a record without a key does: a compacted topic takes none.
    """
    name = "meta-2-0" if knows else "t-0"
    if not knows:  # as a broker with ZooKeeper
        shutil.rmtree(disk / "__cluster_metadata-0")
        (disk / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with package.open_log(disk / name, segment_bytes=1000) as log:
        for i in range(30):
            key = {"all": b"k", "some": b"k" if i % 9 else None, "none": None}[keys]
            log.append([(1_700_000_000_000, key, b"v" * 100)])
    lost = sorted((disk / name).glob("*.log"))[1]
    first = int(lost.stem)
    for path in (disk / name).glob(f"{lost.stem}.*"):
        path.unlink()
    done = pylogseg("verify", disk, name, "--json", "--level", check)
    (found,) = (row for row in done.rows if row.get("kind") in ("gap", "perhaps-compacted"))
    assert (found["level"], found["offset"], done.code) == (level, first, 1 if level == "damage" else 2), found
    assert ("not known why" in found["reason"]) == (level == "unknown")
    assert done.rows[-1]["unknown"] == (level == "unknown")


def swap_findings(path: Path) -> list[tuple[str, int, int]]:
    done = pylogseg("verify", path, "--json")
    rows = [row for row in done.rows if row.get("kind") == "swap"]
    assert done.code == any(row["level"] == "damage" for row in done.rows if row["type"] == "finding")
    return [(row["level"], row["offset"], row["lastOffset"]) for row in rows]


@pytest.mark.parametrize("name", ["codec-none-1", "cmp-short-0"])
def test_a_swap_that_ends_between_two_batches_ends_too_early(disk: Path, name: str) -> None:
    """Whole batches tell nothing of those that are gone; the segments that it replaces do."""
    log = next(path for path in sorted((disk / name).glob("*.log")) if path.stat().st_size)
    swap = log.with_name(f"{log.name}.swap")
    data = log.read_bytes()
    batches = package.scan(data).batches
    at = len(batches) // 2
    cut = data[: int(batches.position[at])]
    swap.write_bytes(data)
    assert swap_findings(disk) == []
    swap.write_bytes(cut)
    first, last = int(batches.last_offset[at - 1]) + 1, int(batches.last_offset[-1])
    level = "damage" if name == "codec-none-1" else "notice"  # of a compacted log the cleaner may have left so little
    assert swap_findings(disk) == [(level, first, last)]
    assert swap_findings(disk / name) == [(level, first, last)]
    log.unlink()  # what it replaces is gone, so nothing tells
    assert swap_findings(disk) == []


def test_a_swap_that_ends_early_where_settings_are_not_known(disk: Path) -> None:
    """All records have keys, and checkpoints alone do not show that the topic never was compacted."""
    log = next(path for path in sorted((disk / "txn-a-0").glob("*.log")) if path.stat().st_size)
    data = log.read_bytes()
    log.with_name(f"{log.name}.swap").write_bytes(data[: int(package.scan(data).batches.position[3])])
    done = pylogseg("verify", disk, "txn-a-0", "--json")
    (found,) = (row for row in done.rows if row.get("kind") == "perhaps-compacted")
    assert (done.code, found["level"], "move this file" in found["remedy"]) == (2, "unknown", True)
    assert pylogseg("verify", disk / "txn-a-0").code == 2


@pytest.mark.parametrize("base", [0, 190])
def test_a_damaged_file_of_the_cleaner_that_a_load_removes_is_no_damage(disk: Path, base: int) -> None:
    """A `.cleaned` file always; and a `.swap` file that is not below one, as of a replacement that has only begun."""
    folder = disk / "codec-none-1"
    data = (folder / f"{base:020d}.log").read_bytes()
    for bad in (data[:-10], data[:70] + b"x" + data[71:]):
        (folder / f"{base:020d}.log.cleaned").write_bytes(bad)
        assert findings(disk) == (0, [])
        (folder / f"{190:020d}.log.swap").write_bytes(bad)
        assert findings(disk) == (0, [])
        (folder / f"{0:020d}.log.swap").write_bytes(bad)
        assert kinds(disk) == (set() if base == 0 else {"swap"})
        (folder / f"{0:020d}.log.swap").unlink()
        before = records(disk / "codec-none-1")
        assert pylogseg("recover", disk, "codec-none", "--no-keep").code == 0
        assert records(disk / "codec-none-1") == before


def test_what_a_good_swap_takes_the_place_of_is_told_before_it(disk: Path) -> None:
    """A log that was copied while its broker cleaned it has both: a load drops what the cleaner had removed."""
    folder = disk / "__consumer_offsets-0"
    log = folder / f"{0:020d}.log"
    data = log.read_bytes()
    batches = package.scan(data).batches
    assert len(batches) == 19
    (folder / f"{log.name}.swap").write_bytes(data[int(batches.position[-3]) :])
    count = int(batches.count[-3:].sum())
    done = pylogseg("verify", disk, "__consumer_offsets", "--json")
    (found,) = (row for row in done.rows if row.get("kind") == "swap")
    assert (done.code, found["level"], found["offset"], found["lastOffset"]) == (0, "notice", 0, 41)
    assert f"segments with 42 records by .swap files with {count}:" in found["reason"]
    assert "move this file" in found["remedy"]
    assert [row["kind"] for row in done.rows if "__consumer_offsets-0" in row.get("path", "")] == ["swap"]
    assert pylogseg("recover", disk, "--no-keep").code == 0
    assert records(folder) == count


@pytest.mark.parametrize("at", [0, 3, 14])
@pytest.mark.parametrize("lift", [1, 5, 1000])
def test_of_a_lifted_base_offset_the_batch_itself_is_named(disk: Path, at: int, lift: int) -> None:
    """No checksum covers it. The batch after it is right, and no offset is missing."""
    log = disk / "codec-none-1" / f"{190:020d}.log"
    data = bytearray(log.read_bytes())
    batches = package.scan(bytes(data)).batches
    position, base = int(batches.position[at]), int(batches.base_offset[at])
    data[position : position + 8] = (base + lift).to_bytes(8, "big")
    log.write_bytes(data)
    found = [row for row in findings(disk, "codec-none-1")[1] if row["path"] == str(log)]
    assert [(row["kind"], row["position"], row["offset"]) for row in found] == [("order", position, base + lift)]
    assert f"{base} would fit" in found[0]["reason"]
    assert not kinds(disk, "codec-none-1") & {"overlap", "gap", "missing"}


def test_a_log_directory_without_a_word_of_its_own(golden: Path, tmp_path: Path) -> None:
    """A disk that is not mounted is an empty folder, or none: the metadata in another one has its partitions."""
    shutil.copytree(golden / "broker-4.3" / "txn" / "data0", tmp_path / "data0")
    (tmp_path / "data1").mkdir()
    directory = re.search("directory.id=(.*)", (golden / "broker-4.3/txn/data1/meta.properties").read_text())
    assert directory is not None
    done = pylogseg("verify", "--json", tmp_path)
    (found,) = (row for row in done.rows if row.get("type") == "finding")
    assert (done.code, found["kind"]) == (0, "not-here")
    assert all(words in found["reason"] for words in (directory[1], "nobody looked at them"))
