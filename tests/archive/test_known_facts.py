"""Tests of archive/facts.py and archive/seen.py. How each fact of a log is known: `archive` writes a point of a harmed
disk with a fault, and prunes nothing after it.

Each harm, of a segment, of a small file, or of the cluster's metadata, meets an archive that had all before, and an
empty one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import depth
from helpers.archives import rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

from pylogseg.archive import list_points, open_archive, read_point, write
from pylogseg.disk.disk import Segment
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.reading.arrow.encode import encode

Harm = Callable[[Path], None]

SEALED, MIDDLE, ACTIVE = "codec-zstd-1/" + "0" * 20, "mixed-0/" + f"{80:020d}", f"codec-zstd-1/{394:020d}"
METADATA = "__cluster_metadata-0/" + "0" * 20 + ".log"
CHECKPOINTS = "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint"


def absent(path: Path) -> None:
    for each in path.parent.glob(f"{path.stem}.*") if path.suffix == ".*" else [path]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(43))


def cut_behind_the_version(path: Path) -> None:
    path.write_bytes(b"0\n")


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff{garbage} of forty-three bytes in all\x00\n" * 2)


def folder(path: Path) -> None:
    absent(path)
    path.mkdir()


def cut_at_a_batch(path: Path) -> None:
    """Leave the first third of the batches."""
    data, places = path.read_bytes(), [0]
    while places[-1] < len(data):
        places.append(places[-1] + 12 + int.from_bytes(data[places[-1] + 8 : places[-1] + 12], "big"))
    path.write_bytes(data[: places[len(places) // 3]])


CASES: list[tuple[str, Harm]] = [
    *((name + ".log", harm) for name in (SEALED, MIDDLE) for harm in (empty, cut_at_a_batch, absent, folder)),
    *((name + ".*", absent) for name in ("mixed-0/" + "0" * 20, MIDDLE, ACTIVE)),
    *((ACTIVE + ".log", harm) for harm in (empty, cut_at_a_batch, folder, absent)),
    ("codec-zstd-1", absent),
    *(
        ("codec-zstd-1/leader-epoch-checkpoint", harm)
        for harm in (absent, empty, zeros, cut_behind_the_version, garbage, folder)
    ),
    *(("codec-zstd-1/partition.metadata", harm) for harm in (absent, empty, zeros, garbage, folder)),
    *((name, harm) for name in CHECKPOINTS for harm in (zeros, cut_behind_the_version, garbage, folder)),
    *(("log-start-offset-checkpoint", harm) for harm in (empty, zeros, cut_behind_the_version, garbage, folder)),
    *(("__cluster_metadata-0/quorum-state", harm) for harm in (zeros, garbage, folder)),
    *((METADATA, harm) for harm in (empty, cut_at_a_batch, absent)),
]


@pytest.fixture(scope="module")
def prepared(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk of a broker with two topics and the cluster's metadata, and an archive of it."""
    root, source = tmp_path_factory.mktemp("prepared"), golden / "broker-4.3" / "codecs" / "data0"
    kept = {"__cluster_metadata-0", "codec-zstd-1", "mixed-0"}
    names = [each.name for each in source.iterdir() if each.is_dir() and each.name not in kept]
    shutil.copytree(source, root / "disk", ignore=lambda *_: names)
    for path in (root / "disk").glob("*-checkpoint"):
        lines = [line for line in path.read_text().splitlines()[2:] if "{}-{}".format(*line.split()) in kept]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    assert write(root / "disk", root / "archive").faults == []
    return root


def ids() -> list[str]:
    return [f"{name}-{harm.__name__}".replace("/", ".") for name, harm in CASES]


@pytest.mark.parametrize(
    ("name", "harm"), depth.some_of([pytest.param(*c, id=i) for c, i in zip(CASES, ids(), strict=True)], 24)
)
def test_a_fact_that_is_lost(prepared: Path, name: str, harm: Harm, tmp_path: Path) -> None:
    """Three runs end with 1, remove no point, and the newest one has each record that the archive had."""
    disk, archive = tmp_path / "disk", tmp_path / "archive"
    shutil.copytree(prepared / "disk", disk)
    shutil.copytree(prepared / "archive", archive)
    before = rows_of(open_archive(archive))
    harm(disk / name)
    for count in (2, 3):
        done = shell("archive", disk, archive, "--keep-last", 1)
        assert (done.code, "killed run" in done.text) == (1, False), done.text
        assert len(list_points(archive)) == count
        assert rows_of(open_archive(archive)) == before, done.text
        status = shell("archive", "status", archive)
        assert (status.code, ", 0 faults" in status.text) == (1, False), status.text
    expect(shell("archive", disk, tmp_path / "first", "--keep-last", 1), 1)
    assert shell("archive", "status", tmp_path / "first").code == 1


def test_what_takes_the_place_of_leader_epochs(prepared: Path, tmp_path: Path) -> None:
    """A point has those of the batches; the disk itself is not changed."""
    disk = Path(shutil.copytree(prepared / "disk", tmp_path / "disk"))
    whole = {
        p.name: p.epochs for p in read_point(prepared / "archive", list_points(prepared / "archive")[-1].id).partitions
    }
    for path in disk.glob("*-[01]/leader-epoch-checkpoint"):
        path.unlink()
    done = write(disk, tmp_path / "archive")
    assert {p.name: p.epochs for p in done.point.partitions if p.segments} == {n: e for n, e in whole.items() if e}
    assert sum("leader epochs of the batches" in fault for fault in done.faults) == 3
    assert not list(disk.glob("*/leader-epoch-checkpoint"))


def bare_log(disk: Path) -> Path:
    """Make a log directory that knows its cluster, with a folder for the segments of a partition."""
    log = disk / "t-0"
    log.mkdir(parents=True)
    (disk / "meta.properties").write_text(f"version=1\ncluster.id={'c' * 22}\nnode.id=1\n")
    return log


def write_segment(log: Path, base: int, epoch: int) -> None:
    data = encode([(1, b"k", b"v")] * 3, base_offset=base, leader_epoch=epoch)
    (log / f"{base:020d}.log").write_bytes(data)
    time.sleep(0.05)  # a change has the time of the clock's last tick


def test_segments_alone_have_the_leader_epochs_of_their_batches(tmp_path: Path) -> None:
    """A folder without any file beside its segments needs no checkpoint; the log that is restored of it has one."""
    log, out = bare_log(tmp_path / "disk"), tmp_path / "out"
    out.mkdir()
    leaders = enumerate([3, 3, 5])
    batches = (encode([(1, b"k", b"v")], base_offset=offset, leader_epoch=epoch) for offset, epoch in leaders)
    (log / f"{0:020d}.log").write_bytes(b"".join(batches))
    done = write(tmp_path / "disk", tmp_path / "archive", to_end=True)
    assert (done.faults, done.point.partitions[0].epochs) == ([], ((3, 0), (5, 2)))
    assert shell("restore", tmp_path / "archive", out).code == 0
    assert (out / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 2\n"
    assert shell("verify", out).code == 0


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_segments_that_did_not_change(has_checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run opens them again; one that was written in place, with as many bytes, is read again.

    In a broker's log directory the file of leader epochs is missing if batches have any: there, none of them has.
    """
    old, new = (-1, -1) if has_checkpoint else (3, 5)
    disk, archive, log = tmp_path / "disk", tmp_path / "archive", bare_log(tmp_path / "disk")

    write_segment(log, 0, old)
    write_segment(log, 3, new)
    if has_checkpoint:
        (disk / CHECKPOINTS[0]).write_bytes(encode_offset_checkpoint({("t", 0): 6}))
    first = write(disk, archive, to_end=True).point
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "open", lambda self: pytest.fail(f"{self.path} was opened"))
        assert write(disk, archive, to_end=True).point.partitions == first.partitions
    write_segment(log, 3, 6)
    changed = write(disk, archive, to_end=True).point.partitions[0]
    before = () if has_checkpoint else ((3, 0), (5, 3))
    assert (first.partitions[0].epochs, changed.epochs) == (before, (*before[:1], (6, 3)))


def test_a_disk_that_the_newest_point_did_not_see(tmp_path: Path) -> None:
    """Its partitions are of an older point: what was written on it between both is read."""
    disk, other, archive = tmp_path / "disk", tmp_path / "other", tmp_path / "archive"
    log = bare_log(disk)
    write_segment(log, 0, 3)
    write_segment(bare_log(other).rename(other / "u-0"), 0, 1)
    write(disk, archive, to_end=True)
    write_segment(log, 0, 4)
    assert "t-0" in str(write(other, archive, to_end=True).faults)
    partitions = write([disk, other], archive, to_end=True).point.partitions
    assert {part.name: part.epochs for part in partitions} == {"t-0": ((4, 0),), "u-0": ((1, 0),)}


@pytest.mark.parametrize("harm", [empty, zeros, cut_behind_the_version, garbage, folder, absent])
def test_deleted_records_stay_deleted(harm: Harm, tmp_path: Path) -> None:
    """The start of a log is the first leader epoch's where the checkpoint of log starts does not say it any more."""
    data = Path(__file__).parents[2] / "examples" / "data"
    disk = Path(shutil.copytree(data, tmp_path / "disk", ignore=lambda _, names: [
        name for name in names if name.rpartition("-")[2].isdigit() and name != "del-records-0"
    ]))  # fmt: skip
    for path in [*disk.glob("re*-checkpoint"), disk / "cleaner-offset-checkpoint"]:
        lines = [line for line in path.read_text().splitlines() if line.startswith("del-records ")]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    assert write(disk, tmp_path / "archive").faults == []
    harm(disk / "log-start-offset-checkpoint")
    for archive in ("archive", "first"):
        done = write(disk, tmp_path / archive)
        assert [each.start_offset for each in done.point.partitions if each.topic == "del-records"] == [123]
        assert any("log-start-offset-checkpoint" in fault for fault in done.faults)
    if harm is cut_behind_the_version:
        assert shell("cat", disk, "del-records").code == 1


def test_a_partition_that_was_deleted_or_moved(prepared: Path, tmp_path: Path) -> None:
    """Checkpoints keep entries for a while: the metadata says that a broker has the partition no more."""
    from pylogseg.archive.seen import look
    from pylogseg.archive.writing import find_lost_folders

    disk = Path(shutil.copytree(prepared / "disk", tmp_path / "disk"))
    shutil.rmtree(disk / "mixed-0")
    seen = look([disk])
    assert seen.metadata is not None
    topic_id = seen.metadata.topic_ids["mixed"]
    assert [name for name, _ in find_lost_folders(seen, seen.copies)] == ["mixed-0"]
    replicas = seen.metadata.replicas[topic_id, 0]
    seen.metadata.replicas[topic_id, 0] = (77,)
    assert list(find_lost_folders(seen, seen.copies)) == []
    seen.metadata.replicas[topic_id, 0] = replicas
    del seen.metadata.topic_ids["mixed"]
    assert len(list(find_lost_folders(seen, seen.copies))) == 1
    seen.metadata.removed_topics.add("mixed")
    assert list(find_lost_folders(seen, seen.copies)) == []


@pytest.mark.parametrize("harm", [empty, cut_at_a_batch])
def test_metadata_that_lacks_offsets(prepared: Path, harm: Harm, tmp_path: Path) -> None:
    """It is not an empty cluster to any command that reads it."""
    disk = Path(shutil.copytree(prepared / "disk", tmp_path / "disk"))
    harm(disk / METADATA)
    for command in (
        ("cluster", disk, "topics"),
        ("cluster", disk, "configs"),
        ("merge", disk, "--into", tmp_path / "x"),
    ):
        done = shell(*command)
        texts = done.text + done.err
        assert (done.code, "of the cluster's metadata are missing" in texts) == (1, True), texts
