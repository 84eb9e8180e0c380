"""Tests of disk/tier/slices.py. Uploads of a branch that an election lost, and those that a crash left half done: what
the log has is read, whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import shell
from helpers.tiered_logs import write_log
from helpers.tiers import COPIED, TOPIC_ID, Uploader, break_off, copy_locally, copy_segment

import pylogseg
from pylogseg import offline
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind


def rows(disk: pylogseg.Disk, isolation: str = "read_uncommitted", **more: str) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for r in pylogseg.read(disk, isolation_level=isolation, **more)]  # type: ignore[arg-type]


def damage(done: shell.Done) -> list[tuple[str, str]]:
    found = [row for row in done.rows if row["type"] == "finding" and row["level"] == "damage"]
    return [(row["kind"], row["path"]) for row in found]


# ---- records of another leader in the middle of an upload ----


@pytest.mark.parametrize("scheme", ["aiven", "localtier"])
def test_another_leader_below_a_common_one(tmp_path: Path, scheme: str) -> None:
    """Replicas that differ where deleted records came back by a crash: the disk's leader epochs say whose are read."""
    disk, other = tmp_path / "disk" / "orders-0", tmp_path / "other" / "orders-0"
    for folder, epoch, rolls in ((disk, 0, (9, 19)), (other, 1, (19,))):
        for n in range(30):
            with pylogseg.open_log(folder, leader_epoch=epoch if n < 6 else 5, segment_ms=1 << 60) as writer:
                writer.append([(n, None, b"epoch %d" % epoch if n < 6 else b"both")])
                if n in rolls:
                    writer.engine.roll()
        if scheme == "aiven":
            Uploader(tmp_path / "tier").partition(folder)
        else:
            copy_locally(tmp_path / "tier", folder)
    expected = rows(pylogseg.open_dir(disk.parent))
    assert expected[:6] == [(n, b"epoch 0") for n in range(6)]
    for base in (0, 10):
        for path in disk.glob(f"{base:020d}.*"):
            path.unlink()
    joined = pylogseg.open_dir(disk.parent, tier=f"{scheme}+file://{tmp_path / 'tier'}")
    assert rows(joined) == expected


@pytest.mark.parametrize("scheme", ["aiven", "localtier"])
def test_a_log_that_begins_inside_a_batch(tmp_path: Path, scheme: str) -> None:
    """Records were deleted up to there: the batch is there, and so are its other records."""
    folder = tmp_path / "disk" / "orders-0"
    with pylogseg.open_log(folder, segment_ms=1 << 60, index_interval_bytes=200) as log:
        for n in range(12):
            log.append([(n, None, b"%d" % n)] * 10)
            if n in (5, 8, 11):
                log.engine.roll()
    tier = tmp_path / "tier"
    for base, end, first in ((0, 60, 0), (60, 90, 0), (60, 90, 0), (90, 120, 37)):
        if scheme == "aiven":
            Uploader(tier).segment(folder, base, end, epochs=[(0, first)])
        else:
            copy_segment(tier, folder, base, end, epochs=[(0, first)])
    url = f"{scheme}+file://{tier}"
    found = rows(pylogseg.open_tier(url))
    assert found == [(n, b"%d" % (n // 10)) for n in range(30, 120)]
    assert damage(shell.pylogseg("verify", url, "--json")) == []
    (tmp_path / "new").mkdir()
    offline.restore(url, tmp_path / "new")
    assert rows(pylogseg.open_dir(tmp_path / "new")) == found


def test_the_newest_leader_epochs_are_damaged(tmp_path: Path) -> None:
    """Those of the upload before it say where the log begins: below, another leader's records were deleted."""
    folder, tier = tmp_path / "disk" / "orders-0", tmp_path / "tier"
    with pylogseg.open_log(folder, leader_epoch=1, segment_ms=1 << 60) as log:
        for n in range(4):
            log.append([(n, None, b"x")] * 10)
            log.engine.roll()
    copies = [copy_segment(tier, folder, base, base + 10, epochs=[(1, first)]) for base, first in
              ((0, 0), (10, 10), (10, 10), (20, 10), (30, 10))]  # fmt: skip
    url = f"localtier+file://{tier}"
    assert [offset for offset, _ in rows(pylogseg.open_tier(url))] == list(range(10, 40))
    copies[-1].with_suffix(".leader_epoch_checkpoint").write_text("0\n2\n1 10\n")
    assert [offset for offset, _ in rows(pylogseg.open_tier(url))] == list(range(10, 40))
    assert any("leader_epoch_checkpoint" in path for _, path in damage(shell.pylogseg("verify", url, "--json")))


def branches(folder: Path) -> tuple[Path, Path]:
    """Two logs that part at offset 100: the lost one aborts a transaction there, the other one commits it."""
    lost, log = folder / "lost" / "orders-0", folder / "disk" / "orders-0"
    settings = {"index_interval_bytes": 200, "segment_ms": 1 << 60}
    with pylogseg.open_log(lost, leader_epoch=0, **settings) as writer:
        for n in range(10):
            writer.append([(n, None, b"both %d" % n)] * 10)
    shutil.copytree(lost, log)
    with pylogseg.open_log(lost, leader_epoch=0, **settings) as writer:
        producer = writer.producer(7)
        producer.begin()
        for n in range(4):
            producer.append([(n, None, b"lost %d" % n)] * 10)
        producer.abort()
        writer.engine.roll()
    with pylogseg.open_log(log, leader_epoch=1, **settings) as writer:
        producer = writer.producer(7)
        writer.engine.roll()
        with producer.transaction():
            for n in range(6):
                producer.append([(n, None, b"kept %d" % n)] * 10)
        writer.engine.roll()
    return lost, log


@pytest.mark.parametrize("scheme", ["aiven", "localtier"])
def test_an_abort_of_another_branch(tmp_path: Path, scheme: str) -> None:
    """It hides records that this branch committed: it is neither shown nor restored."""
    lost, log = branches(tmp_path)
    if scheme == "aiven":
        Uploader(tmp_path / "tier").partition(lost)
        Uploader(tmp_path / "tier").segment(log, 100, 161)
    else:
        copy_locally(tmp_path / "tier", lost)
        copied = copy_locally(tmp_path / "tier", log)
        for path in copied[0].parent.glob(f"{copied[0].stem}.*"):
            path.unlink()  # the other branch has uploaded it
    url = f"{scheme}+file://{tmp_path / 'tier'}"
    expected = rows(pylogseg.open_dir(log), "read_committed")
    assert len(expected) == 160
    disk = pylogseg.open_tier(url)
    assert [segment.base_offset for segment in disk.partitions[0].segments] == [0, 100]
    assert FileKind.TXN_INDEX not in disk.partitions[0].segments[0].companions
    assert rows(disk, "read_committed") == expected
    assert damage(shell.pylogseg("verify", url, "--json")) == []
    (tmp_path / "new").mkdir()
    offline.restore(url, tmp_path / "new")
    assert rows(pylogseg.open_dir(tmp_path / "new"), "read_committed") == expected
    indexes = [TxnIndex(path.read_bytes()) for path in (tmp_path / "new").glob("*/*.txnindex")]
    assert [txn for index in indexes for txn in index] == []


@pytest.mark.parametrize("place", [0, 4, 7, 12])
def test_an_index_that_lies_beside_another_branch(tmp_path: Path, place: int) -> None:
    """Where the branches part is looked for in the batches: a damaged index neither hides nor adds any."""
    lost, log = branches(tmp_path)
    copied = copy_locally(tmp_path / "tier", lost)
    for path in copy_locally(tmp_path / "tier", log)[:1]:
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
    index = copied[0].with_suffix(".index")
    data = index.read_bytes()
    assert len(data) > 16
    for flipped in (0x01, 0x40, 0xFF):
        index.write_bytes(data[:place] + bytes([data[place] ^ flipped]) + data[place + 1 :])
        disk = pylogseg.open_tier(f"localtier+file://{tmp_path / 'tier'}")
        assert rows(disk) == rows(pylogseg.open_dir(log))
    index.write_bytes(data[:-1] + bytes([data[-1] ^ 0x20]))  # of the last entry, from which on the end is looked for
    assert rows(pylogseg.open_tier(f"localtier+file://{tmp_path / 'tier'}")) == rows(pylogseg.open_dir(log))


@pytest.mark.parametrize("kind", ["log", "indexes"])
def test_a_lost_object_of_a_part(tmp_path: Path, kind: str) -> None:
    """Of a segment that is used in part, an object is gone: that is named, and the others are read."""
    lost, log = branches(tmp_path)
    up = Uploader(tmp_path / "tier")
    (manifest,) = up.partition(lost)
    up.segment(log, 100, 161)
    manifest.with_suffix(f".{kind}").unlink()
    url = f"aiven+file://{tmp_path / 'tier'}"
    found = rows(pylogseg.open_tier(url), on_corrupt="skip")
    assert found == [row for row in rows(pylogseg.open_dir(log)) if kind == "indexes" or row[0] >= 100]
    named = {
        path for found_kind, path in damage(shell.pylogseg("verify", url, "--json")) if found_kind == "tier-object"
    }
    assert {Path(path).stem for path in named} == {manifest.stem}


# ---- logs that begin inside an upload ----


def test_epochs_of_deleted_records(folder: Path, tmp_path: Path) -> None:
    """Records were deleted up to the middle of a segment: the leader no longer knows who wrote what lies below."""
    bases = [segment.base_offset for segment in pylogseg.open_dir(folder).partitions[0].segments]
    assert bases[1] < 300 < bases[2]  # where epoch 1 begins
    up = Uploader(tmp_path / "tier")
    up.segment(folder, bases[1], bases[2], epochs=[(1, 300)])
    assert damage(shell.pylogseg("verify", f"aiven+file://{tmp_path / 'tier'}", "--json")) == []
    up.segment(folder, bases[1], bases[2], epochs=[(2, 300)])  # and this is no such manifest
    assert {kind for kind, _ in damage(shell.pylogseg("verify", f"aiven+file://{tmp_path / 'tier'}", "--json"))}


def test_what_was_deleted_is_not_mixed_with_another_branch(tmp_path: Path) -> None:
    """What a lost leader uploaded below the first known epoch may be of any branch: the log begins at that epoch."""
    lost, log = branches(tmp_path)
    copy_locally(tmp_path / "tier", lost)
    entries = [(1, 110)]  # of its leader, after records were deleted up to 110
    copy_segment(tmp_path / "tier", log, 100, 161, epochs=entries)
    copy_segment(tmp_path / "tier", log, 100, 161, epochs=entries)
    disk = pylogseg.open_tier(f"localtier+file://{tmp_path / 'tier'}")
    assert rows(disk) == [row for row in rows(pylogseg.open_dir(log)) if row[0] >= 110]


def test_a_hole_below_the_log_is_not_restored(folder: Path, tmp_path: Path) -> None:
    """What was uploaded below the start of the log, and is not deleted yet, is no part of it."""
    copied = copy_locally(tmp_path / "tier", folder)
    for path in copied[1].parent.glob(f"{copied[1].stem}.*"):
        path.unlink()
    disk = shutil.copytree(folder, tmp_path / "disk" / "orders-0")
    (disk / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    bases = [segment.base_offset for segment in pylogseg.open_dir(disk).partitions[0].segments]
    for base in bases[:2]:
        for path in disk.glob(f"{base:020d}.*"):
            path.unlink()
    (tmp_path / "disk" / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {bases[2] + 10}\n")
    (tmp_path / "new").mkdir()
    done = offline.restore(tmp_path / "disk", tmp_path / "new", tier=f"localtier+file://{tmp_path / 'tier'}")
    assert done.exit_code == 0
    assert rows(pylogseg.open_dir(tmp_path / "new")) == [
        r for r in rows(pylogseg.open_dir(folder)) if r[0] >= bases[2] + 10
    ]


# ---- copies that broke off ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("disk") / "orders-0", per_epoch=300)


@pytest.mark.parametrize("done", range(len(COPIED)))
@pytest.mark.parametrize("again", [False, True])
def test_a_copy_broke_off(folder: Path, tmp_path: Path, done: int, again: bool) -> None:
    """So many files were copied, and a half of the next: that is no damage, whether it was copied again or not."""
    copied = copy_locally(tmp_path / "tier", folder)
    half = copied[-1]
    if again:
        other = half.with_name(half.name[:21] + "half-half-half-half-ha.log")
        for suffix in COPIED:
            if half.with_suffix(f".{suffix}").exists():
                shutil.copy(half.with_suffix(f".{suffix}"), other.with_suffix(f".{suffix}"))
        half = other
    break_off(half, done)
    url = f"localtier+file://{tmp_path / 'tier'}"
    done_ = shell.pylogseg("verify", url, "--json")
    assert damage(done_) == []
    assert {row["kind"] for row in done_.rows if row["type"] == "finding"} >= {"tier-orphan"} or done == len(COPIED) - 1
    is_lost = not again and done < len(COPIED) - 1
    last = pylogseg.open_dir(folder).partitions[0].segments[-2 if is_lost else -1].base_offset
    assert rows(pylogseg.open_tier(url)) == [row for row in rows(pylogseg.open_dir(folder)) if row[0] < last]


@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot"])
def test_a_small_file_is_lost(folder: Path, tmp_path: Path, suffix: str) -> None:
    """In the middle of the log nothing broke off."""
    copied = copy_locally(tmp_path / "tier", folder)
    assert len(copied) > 2
    lost = copied[1].with_suffix(f".{suffix}")
    lost.unlink()
    url = f"localtier+file://{tmp_path / 'tier'}"
    assert damage(shell.pylogseg("verify", url, "--json")) == [("tier-object", str(lost))]
    last = pylogseg.open_dir(folder).partitions[0].segments[-1].base_offset
    assert rows(pylogseg.open_tier(url)) == [row for row in rows(pylogseg.open_dir(folder)) if row[0] < last]
