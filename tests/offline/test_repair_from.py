"""Tests of offline/repairing/replicas.py. `repair --from`: what is damaged on one disk comes from another one, where
both have the same history.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from helpers.brokers import NAME, Batch, Broker, Cluster
from helpers.damaged_logs import change_byte
from helpers.shell import expect
from helpers.shell import pylogseg as shell

from pylogseg import offline
from pylogseg.errors import RequestError


def written(tmp_path: Path, seed: int = 1, steps: int = 40) -> Cluster:
    """Three brokers with the same log of some segments, stopped."""
    cluster = Cluster(tmp_path, random.Random(seed), unclean=False)
    for _ in range(steps):
        cluster.write()
    for broker in cluster.brokers:
        if broker is not cluster.leader:
            cluster.follow(broker, 1 << 30)
    return cluster


def stopped(cluster: Cluster) -> list[list[Batch]]:
    batches = [broker.batches() for broker in cluster.brokers]
    for broker in cluster.brokers:
        broker.stop()
    return batches


def logs(broker: Broker) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((broker.folder / NAME).glob("*.log")))


def flip(broker: Broker, batch: Batch, at: int = 30) -> None:
    path = broker.folder / NAME / f"{batch.segment:020d}.log"
    change_byte(path, batch.position + at, 0x55)


def ends_of_segments(batches: list[Batch]) -> tuple[Batch, Batch]:
    """The last batch of the first segment, and the last of all."""
    first = [batch for batch in batches if batch.segment == batches[0].segment]
    return first[-1], batches[-1]


@pytest.mark.parametrize(
    "place", ["middle", "several", "end of segment", "end", "offset", "length", "all of a segment"]
)
@pytest.mark.parametrize("options", [[], ["--keep-behind"]])
def test_what_is_damaged_comes_from_the_other(tmp_path: Path, place: str, options: list[str]) -> None:
    cluster = written(tmp_path)
    before = stopped(cluster)[0]
    mine, other, _ = cluster.brokers
    whole = logs(mine)
    inner, last = ends_of_segments(before)
    hit = {
        "middle": before[7:8],
        "several": [*before[3:6], before[20], before[-4]],
        "end of segment": [inner],
        "end": [last],
        "all of a segment": [batch for batch in before if batch.segment == last.segment],
    }
    for batch in hit.get(place, before[9:10]):
        flip(mine, batch, {"offset": 5, "length": 8}.get(place, 30))
    done = expect(shell("repair", mine.folder, "--from", other.folder, "--no-keep", *options), 0)
    assert logs(mine) == whole
    assert f"come from {other.folder}" in done.text
    assert shell("repair", mine.folder, "--no-keep", "--from", other.folder).text.count("gap:") == 0
    assert shell("verify", mine.folder).code == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    cluster = written(tmp_path)
    before = stopped(cluster)[0]
    flip(cluster.brokers[0], before[7])
    damaged = logs(cluster.brokers[0])
    (result,) = offline.repair(cluster.brokers[0].folder, other=cluster.brokers[1].folder, dry_run=True)
    assert result.numbers == {
        "gaps": 1,
        "gapBytes": len(before[7].data),
        "offsetsMissing": 0,
        "offsetsFromOthers": before[7].end - before[7].first,
    }
    assert logs(cluster.brokers[0]) == damaged


def test_what_both_have_lost_goes_as_without_the_other(tmp_path: Path) -> None:
    cluster = written(tmp_path)
    before = stopped(cluster)[0]
    mine, other, _ = cluster.brokers
    for batch in (before[5], before[12]):
        flip(mine, batch)
    flip(other, before[12])
    assert shell("repair", mine.folder, "--from", other.folder, "--no-keep", "--keep-behind").code == 1
    kept = b"".join(batch.data for batch in before if batch is not before[12])
    assert logs(mine) == kept


def test_of_a_lost_end_comes_what_the_other_still_has(tmp_path: Path) -> None:
    """And the rest is told."""
    cluster = written(tmp_path, steps=42)
    before = stopped(cluster)[0]
    mine, other, _ = cluster.brokers
    (last,) = {batch.segment for batch in before[-1:]}
    inside = [batch for batch in before if batch.segment == last]
    for broker, kept in ((mine, 1), (other, 3)):
        path = broker.folder / NAME / f"{last:020d}.log"
        path.write_bytes(path.read_bytes()[: inside[kept].position])
    there = b"".join(batch.data for batch in before[: -len(inside)] + inside[:3])
    missing = f"offsets {inside[3].first} to {before[-1].end - 1} are not here"
    done = shell("repair", mine.folder, "--from", other.folder, "--no-keep")
    assert (done.code, logs(mine) == there) == (1, True), done.text
    assert missing in done.text


def test_a_last_segment_of_zeros_comes_from_the_other(tmp_path: Path) -> None:
    """It looks like one that was only just made, but the checkpoints say how far the log went."""
    cluster = written(tmp_path)
    before = stopped(cluster)[0]
    mine, other, _ = cluster.brokers
    whole = logs(mine)
    path = mine.folder / NAME / f"{before[-1].segment:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))
    (result,) = done = offline.repair(mine.folder, other=other.folder)
    assert (logs(mine) == whole, done.exit_code) == (True, 0), result.notes
    assert result.numbers["offsetsFromOthers"] == before[-1].end - before[-1].segment


def test_what_the_cleaner_removed_from_the_other_does_not_come(tmp_path: Path) -> None:
    cluster = written(tmp_path)
    before = stopped(cluster)[0]
    mine, other, _ = cluster.brokers
    inner, _ = ends_of_segments(before)
    path = other.folder / NAME / f"{inner.segment:020d}.log"
    path.write_bytes(path.read_bytes()[: inner.position])
    (other.folder / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {inner.end}\n")
    flip(mine, inner)
    (result,) = done = offline.repair(mine.folder, other=other.folder)
    assert (result.numbers["offsetsFromOthers"], done.exit_code) == (0, 0)
    assert any("which was compacted" in note for note in result.notes)
    assert logs(mine) == b"".join(batch.data for batch in before if batch is not inner)
    (result,) = offline.repair(mine.folder, other=other.folder)
    assert (result.state, result.numbers["gaps"]) == ("unchanged", 0)


def test_records_of_a_lost_branch_do_not_come(tmp_path: Path) -> None:
    """The other one has other records there, which its leader wrote without the first one."""
    cluster = written(tmp_path, steps=10)
    mine, other, _ = cluster.brokers
    cluster.write()  # on the leader alone
    cluster.elect(other)
    cluster.write()
    cluster.write()
    before = stopped(cluster)[0]
    flip(mine, before[-1])
    flip(mine, before[4])
    assert shell("repair", mine.folder, "--from", other.folder, "--no-keep").code == 1
    assert logs(mine) == b"".join(batch.data for batch in before[:-1])


def test_refusals(tmp_path: Path) -> None:
    cluster = written(tmp_path, steps=5)
    before = stopped(cluster)[0]
    mine, other, third = cluster.brokers
    flip(mine, before[2])
    metadata = other.folder / NAME / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (result,) = offline.repair(mine.folder, other=other.folder, dry_run=True)
    assert result.state == "failed"
    assert "another topic" in result.reason
    shutil.move(third.folder / NAME, third.folder / "t-1")
    (result,) = offline.repair(mine.folder, other=third.folder, dry_run=True)
    assert f"there is no replica of it in {third.folder}" in result.notes
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="neither a log directory"):
        offline.repair(mine.folder, other=tmp_path / "empty")
