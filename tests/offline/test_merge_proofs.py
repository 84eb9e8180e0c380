"""Tests of offline/merging/report.py. What any file of any disk proves, `merge` accounts for: each harm to the end of a
log, beside each kind of proof.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.brokers import META, NAME, NOW, TOPIC_ID, Batch, Cluster, replicas
from helpers.internal_logs import write_log

from pylogseg import offline
from pylogseg.format.columns import to_row
from pylogseg.format.messages.framing import encode_framed
from pylogseg.offline.result import PartitionResult

HIGH_WATERMARKS, RECOVERY_POINTS = "replication-offset-checkpoint", "recovery-point-offset-checkpoint"


class World(NamedTuple):
    """Three disks with one log, and what is in it."""

    folder: Path
    batches: list[Batch]

    def copy(self, into: Path) -> list[Path]:
        """Fresh disks."""
        shutil.copytree(self.folder, into, dirs_exist_ok=True)
        return sorted(into.glob("b?"))

    @property
    def end(self) -> int:
        return self.batches[-1].end


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    return World(folder, replicas(folder, segments=3)[1])


def note(disk: Path, checkpoint: str, offset: int | None) -> None:
    (disk / checkpoint).write_text("0\n0\n" if offset is None else f"0\n1\nt 0 {offset}\n")


def last_log(disk: Path) -> Path:
    return max((disk / NAME).glob("*.log"))


# ---- harms: to the end of a log; each returns the offset that the log ends at now ----


def torn(disk: Path, batches: list[Batch]) -> int:
    path = last_log(disk)
    path.write_bytes(path.read_bytes()[:-7])
    return batches[-1].first


def zeroed(disk: Path, batches: list[Batch]) -> int:
    path, first = last_log(disk), batches[-2].position
    data = path.read_bytes()
    path.write_bytes(data[:first] + bytes(len(data) - first))
    return batches[-2].first


def without_segment(disk: Path, batches: list[Batch]) -> int:
    path = last_log(disk)
    path.unlink()
    return int(path.stem)


def older(disk: Path, batches: list[Batch]) -> int:
    """As it was three batches before."""
    kept = batches[-3]
    for path in (disk / NAME).glob("*.log"):
        if int(path.stem) > kept.segment:
            path.unlink()
    path = last_log(disk)
    path.write_bytes(path.read_bytes()[: kept.position])
    return kept.first


HARMS = (torn, zeroed, without_segment, older)


# ---- proofs: files that say where the log has ended, and nothing else that does ----


def without_proof(disk: Path, end: int) -> None:
    """As if no file knew more than the log."""
    note(disk, HIGH_WATERMARKS, None)
    note(disk, RECOVERY_POINTS, None)
    for path in (disk / NAME).iterdir():
        if (path.suffix == ".snapshot" and int(path.stem) > end) or path.suffix in (".index", ".timeindex"):
            path.unlink()


def by_high_watermark(disk: Path, end: int) -> None:
    note(disk, HIGH_WATERMARKS, end)


def by_recovery_point(disk: Path, end: int) -> None:
    note(disk, RECOVERY_POINTS, end)


def by_snapshot(disk: Path, end: int) -> None:
    (disk / NAME / f"{end:020d}.snapshot").write_bytes(b"")


def by_epoch(disk: Path, end: int) -> None:
    path = disk / NAME / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], str(len(lines) - 1), *lines[2:], f"9 {end}"]) + "\n")


def by_index(disk: Path, end: int) -> None:
    """Of an active segment: its entries, and zeros up to its full size."""
    base = max((int(path.stem) for path in (disk / NAME).glob("*.log")), default=0)
    entries = struct.pack(">iiii", 0, 1, end - 1 - base, 10**6)
    (disk / NAME / f"{base:020d}.index").write_bytes(entries + bytes(80_000))


PROOFS = (by_high_watermark, by_recovery_point, by_snapshot, by_epoch, by_index)


def missing_of(result: PartitionResult) -> list[tuple[int, int]]:
    return [(row["firstOffset"], row["nextOffset"]) for row in result.rows if row["type"] == "missing"]


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("harm", HARMS)
def test_what_is_proved_and_on_no_disk_is_named(world: World, tmp_path: Path, harm, proof) -> None:
    disks = world.copy(tmp_path)
    ends = {harm(disk, world.batches) for disk in disks}
    for disk in disks:
        without_proof(disk, min(ends))
    (result,) = done = offline.merge(disks, tmp_path / "unproved", dry_run=True)
    assert (done.exit_code, missing_of(result)) == (0, []), result.notes
    proof(disks[1], world.end)
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert result.state == "done"
    assert done.exit_code == 1
    assert missing_of(result) == [(min(ends), world.end)]
    assert result.numbers["offsetsMissing"] == world.end - min(ends)
    if proof not in (by_epoch, by_high_watermark):
        assert any(f"{disks[1]} had offset" in text and "is not known" in text for text in result.notes)
    if proof is by_high_watermark:
        assert any("as committed" in text and "no disk has them any more" in text for text in result.notes)


@pytest.mark.parametrize("harm", HARMS)
def test_what_another_disk_has_comes_from_there(world: World, tmp_path: Path, harm) -> None:
    disks = world.copy(tmp_path)
    for disk in disks[:2]:
        harm(disk, world.batches)
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (done.exit_code, result.log_end, missing_of(result)) == (0, world.end, []), result.notes


@pytest.mark.parametrize("cut", [3, 8, 21])
def test_a_cut_or_foreign_index_proves_nothing(world: World, tmp_path: Path, cut: int) -> None:
    disks = world.copy(tmp_path)
    for disk in disks:
        for path in (disk / NAME).glob("*.index"):
            path.write_bytes(path.read_bytes()[:-cut])
        last_log(disk).with_suffix(".index").write_bytes(b"x" * 24)
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (done.exit_code, result.log_end) == (0, world.end), result.notes


@pytest.mark.parametrize("harm", HARMS)
def test_what_an_election_lost_and_its_leader_too_is_named(tmp_path: Path, harm) -> None:
    """The old leader's disk has lost what it knew as committed; the new one has something else at these offsets."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=True)
    one, other, third = cluster.brokers
    for _ in range(4):
        cluster.write()
    for broker in (other, third):
        cluster.follow(broker, 1 << 30)
    start = one.log.log_end_offset
    cluster.elect(one)
    cluster.in_sync = [one]
    one.log.roll()
    for _ in range(3):
        cluster.write()
    lost = [batch for batch in one.batches() if batch.first >= start]
    cluster.elect(other)
    for _ in range(8):
        cluster.write()
    cluster.follow(third, 1 << 30)
    for broker in cluster.brokers:
        broker.stop()
    disks = [broker.folder for broker in cluster.brokers]
    first = max(harm(disks[0], lost), start)
    (result,) = done = offline.merge(disks, tmp_path / "out")
    (row,) = (row for row in result.rows if row["type"] == "lost")
    assert (row["firstOffset"], row["nextOffset"], row["epoch"]) == (first, lost[-1].end, 1), result.rows
    assert done.exit_code == 1
    assert result.numbers["offsetsMissing"] == lost[-1].end - first
    text = f"{disks[0]} knew offset"
    if first == start:  # nothing is left that could be chosen
        assert result.state == "done"
        assert any(text in each and "no disk has them any more" in each for each in result.notes)
    else:
        assert result.state == "skipped"
        assert text in result.reason
        assert "no disk has them any more" in result.reason


def test_a_partition_that_only_checkpoints_know_is_missing(world: World, tmp_path: Path) -> None:
    disks = world.copy(tmp_path)
    with (disks[1] / HIGH_WATERMARKS).open("a") as file:
        file.write("u 3 7\n")
    text = (disks[1] / HIGH_WATERMARKS).read_text().splitlines()
    (disks[1] / HIGH_WATERMARKS).write_text("\n".join([text[0], str(len(text) - 2), *text[2:]]) + "\n")
    done = offline.merge(disks, tmp_path / "out")
    assert (done.missing, done.exit_code) == (["u-3"], 1), done.notes
    assert offline.merge(disks, tmp_path / "t", topic=["t"]).exit_code == 0


# ---- the age of a disk ----


def with_metadata(disk: Path, *steps: tuple[int, str, int, dict[str, object]]) -> None:
    """Write a metadata log: of each record its time in seconds, type, version and fields."""
    for offset, (second, *record) in enumerate(steps):
        folder = disk / "__cluster_metadata-0"
        write_log(folder, [(None, encode_framed(*record))], base_offset=offset, timestamp_ms=NOW + second * 1000)


def cluster_of(isr: list[int]) -> list[tuple[int, str, int, dict[str, object]]]:
    made = {
        "topicId": TOPIC_ID,
        "partitionId": 0,
        "replicas": [1, 2, 3],
        "isr": isr,
        "leader": isr[0],
        "leaderEpoch": 9,
    }
    brokers = [(0, "RegisterBrokerRecord", 0, {"brokerId": node, "fenced": False}) for node in (1, 2, 3)]
    return [*brokers, (0, "TopicRecord", 0, {"name": "t", "topicId": TOPIC_ID}), (1, "PartitionRecord", 0, made)]


def tick(second: int) -> tuple[int, str, int, dict[str, object]]:
    return second, "NoOpRecord", 0, {}


def fenced(second: int, node: int, fenced: int = 1) -> tuple[int, str, int, dict[str, object]]:
    return second, "BrokerRegistrationChangeRecord", 0, {"brokerId": node, "fenced": fenced}


def in_sync(second: int, isr: list[int]) -> tuple[int, str, int, dict[str, object]]:
    return second, "PartitionChangeRecord", 0, {"topicId": TOPIC_ID, "partitionId": 0, "isr": isr}


@pytest.mark.parametrize(
    ("isr", "since", "code"),
    [
        ([2, 3], [tick(10), tick(30)], 1),  # both live on when their copies end: they are older
        ([2, 3], [tick(10)], 0),  # brokers that died count as alive for a while
        ([2, 3], [tick(8), fenced(9, 2), fenced(9, 3), tick(30)], 0),  # they died
        ([2], [fenced(9, 2), fenced(20, 2, -1), fenced(40, 2)], 1),  # it came back meanwhile
        ([1, 2, 3], [tick(10), tick(30)], 0),  # the first one has all
        ([1], [in_sync(5, [2]), tick(6)], 1),  # the second one was not in sync when its copy ends
        ([1, 2], [in_sync(5, [2]), tick(6)], 0),
        ([2, 3], [*(fenced(9, node) for node in (2, 3)), tick(20), fenced(40, 1)], 0),
    ],
)
def test_a_disk_that_is_older_does_not_count_as_in_sync(
    world: World, tmp_path: Path, isr: list[int], since: list[tuple[int, str, int, dict[str, object]]], code: int
) -> None:
    disks = world.copy(tmp_path)
    before = cluster_of(isr)
    with_metadata(disks[0], *before, *since)
    for disk in disks[1:]:
        with_metadata(disk, *before)
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (result.state, done.exit_code) == ("done", code), [*result.notes, *done.notes]
    refused = [text for text in result.notes if "does not count as in sync" in text]
    assert to_row(result)["offsetsMissing"] == (None if code else 0)
    assert any("committed records may be missing" in text for text in result.notes) == bool(code)
    if code:
        assert any(f"{disks[1]} does not count as in sync: its metadata log ends at offset 5, " in x for x in refused)


def test_a_second_disk_of_a_broker_is_as_old_as_its_metadata(world: World, tmp_path: Path) -> None:
    disks = world.copy(tmp_path)
    before = cluster_of([2])
    with_metadata(disks[0], *before, tick(40))
    with_metadata(disks[2], *before)
    (disks[2] / "meta.properties").write_text(META.format(2))
    shutil.rmtree(disks[2] / NAME)
    assert offline.merge(disks, tmp_path / "out").exit_code == 1
