"""Tests of disk/tier/slices.py and reading/copies.py. Where uploads overlap and one is damaged, the other is taken: by
`restore` each batch, by readers whole segments.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from helpers import shell
from helpers.damaged_logs import change_byte
from helpers.damaged_tiers import damage_of
from helpers.shell import expect
from helpers.tiered_logs import follow, write_log
from helpers.tiers import TOPIC_ID, Key, Uploader, copy_locally

import pylogseg

Row = tuple[int, int, bytes | None, bytes | None]


def rows(disk: object, **options: str) -> list[Row]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(disk, **options)]  # type: ignore[arg-type]


class World:
    """Two brokers that uploaded one log, with other bounds of segments; what readers take is of the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tier = folder, folder / "tier"
        self.leader = write_log(folder / "leader" / "orders-0")
        self.follower = follow(self.leader, folder / "follower" / "orders-0", segment_bytes=9000)
        self.url = f"aiven+file://{self.tier}"
        self.target = folder / "target"

    def upload(self) -> None:
        self.own = Uploader(self.tier, 3000).partition(self.leader, active=True)
        self.other = Uploader(self.tier, 3000).partition(self.follower, active=True)
        self.expected = rows(self.leader)

    def taken(self) -> list[Path]:
        """The objects that readers take."""
        (log,) = pylogseg.open_tier(self.url).partitions[0].files.tier.logs  # type: ignore[attr-defined]
        return [Path(each.upload.name) for each in log.segments]

    def restore(self, *options: object) -> shell.Done:
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir()
        return shell.pylogseg("restore", self.url, self.target, "--json", *options)


def notes_of(done: shell.Done) -> str:
    return " ".join(note for row in done.rows for note in row.get("notes") or ())


# ---- restore ----


@pytest.mark.parametrize("seed", range(4))
def test_restored_by_batches(world: World, seed: int) -> None:
    """Both copies are damaged, at places that no batch of both has: all is restored, and a broker would open it."""
    world.upload()
    draw = random.Random(seed)
    taken = world.taken()
    others = [path.with_suffix(".log") for path in [*world.own, *world.other] if path.with_suffix(".log") not in taken]
    assert others
    assert taken
    spoilt: set[int] = set()
    for path in (*taken, *others):
        batches = pylogseg.scan(path.read_bytes()).batches
        for row in draw.sample(range(len(batches)), min(2, len(batches))):
            if int(batches.base_offset[row]) not in spoilt:
                spoilt.add(int(batches.base_offset[row]))
                start = int(batches.position[row])
                change_byte(path, start + draw.choice([0, 9, 16, 17, 40, draw.randrange(int(batches.size[row]))]), 0x55)
    done = world.restore()
    assert (done.code, done.err) == (0, "")
    assert rows(world.target) == world.expected
    assert "taken from" in notes_of(done)
    assert shell.pylogseg("verify", world.target, "--quiet").text == ""
    assert "unchanged" in shell.pylogseg("restore", world.url, world.target).text


def test_damaged_in_all_copies(world: World) -> None:
    """What no copy has is an error; all else is restored where damage is skipped, and the note says what is not."""
    world.upload()
    for path in [*world.own, *world.other]:
        batches = pylogseg.scan(path.with_suffix(".log").read_bytes()).batches
        for row, base in enumerate(batches.base_offset.tolist()):
            if base == 200:
                change_byte(path.with_suffix(".log"), int(batches.position[row]) + 70, 0x55)
    done = expect(world.restore(), 1)
    assert "(offset 200)" in done.err or "offset 200" in done.err
    done = expect(world.restore("--on-corrupt", "skip"), 1)
    assert rows(world.target) == [row for row in world.expected if not 200 <= row[0] < 210]
    assert "offsets 200 to 209" in notes_of(done)


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_lost_objects(world: World, suffix: str) -> None:
    """Of each upload that is taken an object is gone: the others are read, and restored."""
    world.upload()
    lost = {path.with_suffix(f".{suffix}") for path in world.taken()[::2]}
    for path in lost:
        path.unlink()
    assert rows(pylogseg.open_tier(world.url)) == world.expected
    assert world.restore().code == 0
    assert rows(world.target) == world.expected
    named = {row["path"] for row in damage_of(shell.pylogseg("verify", world.url, "--json"))}
    assert named == (set(map(str, lost)) if suffix == "log" else {str(p.with_suffix(".log")) for p in lost}) or (
        suffix == "rsm-manifest" and named == set()  # then it is an orphan
    )


def test_the_disk_is_damaged(world: World) -> None:
    """Of a disk with its tier, the tier has batches in place of damaged ones, and a segment that is gone."""
    Uploader(world.tier, 3000).partition(world.leader)
    (world.follower / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    logs = sorted(world.follower.glob("*.log"))
    expected = rows(world.leader)
    for path in (logs[0], logs[3]):
        path.unlink()
    change_byte(logs[2], 300, 0x55)
    world.target.mkdir()
    done = shell.pylogseg("restore", world.follower.parent, world.target, "--tier", world.url, "--json")
    assert (done.code, done.err) == (0, "")
    assert rows(world.target) == expected
    assert shell.pylogseg("verify", world.target, "--quiet").text == ""


def test_a_copy_of_another_leader_gives_nothing(world: World) -> None:
    """Records of a lost leader have the same offsets, and are not those of the log."""
    world.upload()
    for path in world.other:
        path.with_suffix(".rsm-manifest").unlink()
    lost = world.folder / "lost" / "orders-0"
    with pylogseg.open_log(lost, leader_epoch=0, segment_bytes=16384, index_interval_bytes=512) as log:
        for start in range(0, 800, 10):
            log.append(
                [{"key": b"lost", "value": b"lost %d" % n * 9, "timestamp": n} for n in range(start, start + 10)]
            )
    Uploader(world.tier, 3000).partition(lost)
    (path,) = [path for path in world.own if "00000000000000000000-" not in path.name][:1]
    batches = pylogseg.scan(path.with_suffix(".log").read_bytes()).batches
    late = next(row for row, epoch in enumerate(batches.leader_epoch.tolist()) if epoch == 1)
    change_byte(path.with_suffix(".log"), int(batches.position[late]) + 70, 0x55)
    expect(world.restore(), 1, str(path.with_suffix(".log")))


# ---- reading ----


def test_cut_objects_and_keys(world: World) -> None:
    """A copy that is cut, or that no key opens, is not the one that is read where another has its offsets."""
    keys = world.folder / "keys"
    mine, lost = Key.make("mine", keys), Key.make("lost", world.folder / "gone")
    first = Uploader(world.tier, 3000, True, lost).partition(world.leader, active=True)
    Uploader(world.tier, 3000, True, mine).partition(world.follower, active=True)
    expected = rows(world.leader)
    assert rows(pylogseg.open_tier(world.url, keys)) == expected
    for path in first:
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
    third = Uploader(world.tier, 3000, True, mine).partition(world.leader, active=True)
    for path in third:
        data = path.with_suffix(".log").read_bytes()
        path.with_suffix(".log").write_bytes(data[: len(data) // 3])
    assert rows(pylogseg.open_tier(world.url, keys)) == expected


@pytest.mark.parametrize("scheme", ["aiven", "localtier"])
def test_damage_where_one_copy_ends(world: World, scheme: str) -> None:
    """Where the log goes on in another upload, damage behind that place is not met, and before it is."""
    if scheme == "aiven":
        uploads = [path.with_suffix(".log") for path in Uploader(world.tier).partition(world.leader)]
    else:
        uploads = copy_locally(world.tier, world.leader)
    (world.follower / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    bases = sorted(int(path.stem) for path in world.follower.glob("*.log"))
    owner, batches, row = next(
        (path, batches, batches.base_offset.tolist().index(base))
        for path in uploads
        for batches in [pylogseg.scan(path.read_bytes()).batches]
        for base in bases
        if base in batches.base_offset.tolist()[1:-2]
    )
    begin = int(batches.base_offset[row])
    for base in bases:
        if base < begin:
            for each in world.follower.glob(f"{base:020d}.*"):
                each.unlink()
    whole, expected = owner.read_bytes(), rows(world.leader)
    for moved, is_met in ((row, False), (row - 1, True)):
        owner.write_bytes(whole)
        change_byte(owner, int(batches.position[moved]) + 16, 0x55)  # its magic: nobody can tell what this batch was
        disk = pylogseg.open_dir(world.follower.parent, tier=world.url.replace("aiven", scheme))
        if is_met:
            assert rows(disk, on_corrupt="skip") == [r for r in expected if not begin - 10 <= r[0] < begin]
            with pytest.raises(pylogseg.CorruptionError):
                rows(disk)
        else:
            assert rows(disk) == expected


def test_damage_where_a_copy_begins(world: World) -> None:
    """The first batch that is taken from the middle of an upload is damaged: that is no silence."""
    manifests = Uploader(world.tier, 3000).partition(world.leader, active=True)
    fields = [json.loads(path.read_text())["remoteLogSegmentMetadata"] for path in manifests]
    up = Uploader(world.tier, 3000)
    end = int(fields[1]["startOffset"]) + 20  # a later leader uploaded up to inside the second segment
    part = follow(world.leader, world.folder / "piece" / "orders-0", segment_bytes=1 << 20, end=end)
    shutil.copy(world.leader / "leader-epoch-checkpoint", part)
    up.segment(part, 0, end)
    path = manifests[1].with_suffix(".log")
    (log_,) = pylogseg.open_tier(world.url).partitions[0].files.tier.logs  # type: ignore[attr-defined]
    assert [each.first_offset for each in log_.segments][:2] == [0, end]
    batches = pylogseg.scan(path.read_bytes()).batches
    change_byte(path, int(batches.position[2]) + 16, 0x55)
    with pytest.raises(pylogseg.CorruptionError):
        rows(pylogseg.open_tier(world.url))


def test_an_error_says_what_can_be_done(world: World) -> None:
    """Readers stop at damage of the upload that they take, and say that others have these offsets."""
    world.upload()
    change_byte(world.taken()[0], 100, 0x55)
    with pytest.raises(pylogseg.CorruptionError, match="`pylogseg restore` takes their intact batches"):
        rows(pylogseg.open_tier(world.url))
    left = rows(pylogseg.open_tier(world.url), on_corrupt="skip")
    assert set(left) < set(world.expected)


# ---- verify ----


def test_verify_says_who_has_it(world: World) -> None:
    world.upload()
    taken = world.taken()
    change_byte(taken[0], 100, 0x55)
    taken[1].unlink()  # not taken any more
    damage = damage_of(shell.pylogseg("verify", world.url, "--json"))
    assert {row["path"] for row in damage} == {str(taken[0]), str(taken[1])}
    for row in damage:
        assert "whole" in row["reason"]
        assert row["remedy"].startswith("`pylogseg restore` takes these offsets from there")
    for path in {path.with_suffix(".log") for path in [*world.own, *world.other]} - {*taken[:2]}:
        path.unlink()
    (row,) = [row for row in damage_of(shell.pylogseg("verify", world.url, "--json")) if row["path"] == str(taken[0])]
    assert "whole" not in row["reason"]
    assert "from there" not in row["remedy"]


def test_verify_says_that_the_disk_has_it(world: World) -> None:
    manifests = Uploader(world.tier).partition(world.leader)
    (world.follower / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    lost = manifests[2].with_suffix(".log")
    lost.unlink()
    done = shell.pylogseg("verify", world.follower.parent, "--tier", world.url, "--json")
    (row,) = [row for row in damage_of(done) if row["kind"] == "tier-object"]
    assert row["path"] == str(lost)
    assert str(world.follower) in row["reason"]


# ---- indexes ----


@pytest.mark.parametrize("name", ["index", "timeindex", "leader_epoch_checkpoint"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_files_beside_a_segment(world: World, name: str, is_lost: bool) -> None:
    """They are made anew by `restore`, which is what verify says; nothing in a tier is rewritten."""
    copied = copy_locally(world.tier, world.leader)
    path = copied[1].with_suffix(f".{name}")
    if is_lost and name == "leader_epoch_checkpoint":
        return  # then it is no upload
    if is_lost:
        path.unlink()
    else:
        path.write_bytes(b"\xff" * 7 + path.read_bytes()[7:])
    world.url = world.url.replace("aiven", "localtier")
    found = [row for row in shell.pylogseg("verify", world.url, "--json").rows if row["type"] == "finding"]
    assert found
    assert all("`pylogseg reindex`" not in row["remedy"] and "broker is stopped" not in row["remedy"] for row in found)
    if name != "leader_epoch_checkpoint":
        assert any("`pylogseg restore` makes it anew" in row["remedy"] for row in found)
        assert world.restore().code == 0
        last = pylogseg.open_dir(world.leader).partitions[0].segments[-1].base_offset
        assert rows(world.target) == [row for row in rows(world.leader) if row[0] < last]
        assert shell.pylogseg("verify", world.target, "--quiet").text == ""


def test_damaged_leader_epochs(world: World) -> None:
    manifests = Uploader(world.tier, 3000).partition(world.leader)
    place = json.loads(manifests[-1].read_text())["segmentIndexes"]["leaderEpoch"]["position"]
    change_byte(manifests[-1].with_suffix(".indexes"), place + 2, 0x55)
    assert world.restore().code == 0
    assert (world.target / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 400\n2 800\n"
