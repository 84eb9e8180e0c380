"""Tests of offline/merging/replica.py. `merge` and `repair --from` where a disk has lost more than bytes of a segment,
or is not what it was named for.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.brokers import NAME, TOPIC_ID, Cluster, replicas
from helpers.trees import contents

from pylogseg import offline
from pylogseg.disk.lineage.authority import Known
from pylogseg.errors import RequestError
from pylogseg.values.internal.cluster import ClusterMetadata


def segments(disk: Path) -> list[Path]:
    return sorted((disk / NAME).glob("*.log"))


def log(disk: Path) -> bytes:
    return b"".join(path.read_bytes() for path in segments(disk))


def with_metadata(monkeypatch: pytest.MonkeyPatch, disk: Path, known: Known) -> None:
    (disk / "__cluster_metadata-0").mkdir()
    metadata = ClusterMetadata({"t": TOPIC_ID}, leaders={(TOPIC_ID, 0): known}, offset=77)
    monkeypatch.setattr(ClusterMetadata, "read", classmethod(lambda cls, folder: metadata))


def test_what_cannot_be_opened_comes_from_the_others(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    whole = log(disks[0])
    path = segments(disks[0])[1]
    path.unlink()
    path.symlink_to(path.name)  # a circle
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", f"{NAME}/partition.metadata"):
        (disks[0] / name).write_bytes(b"\xff what is this")
    done = offline.merge(disks, tmp_path / "out")
    (result,) = done
    assert (result.state, done.exit_code) == ("done", 1), result.reason  # what was committed is not known
    assert log(tmp_path / "out") == whole
    assert any("unreadable" in note for note in result.notes)
    assert any("which topic it is of is not known" in note for note in result.notes)
    assert sum("taken for empty" in doubt for doubt in done.doubts) == 2


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_lost_segment_comes_from_another(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first one: deleting it in order would have moved the first leader epoch."""
    disks, batches = replicas(tmp_path)
    with_metadata(monkeypatch, disks[0], Known(1, 9, (1, 2, 3)))
    whole, path = log(disks[0]), segments(disks[0])[number]
    lost = path.name
    path.unlink()
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert log(tmp_path / "out") == whole, result.notes
    assert done.exit_code == 0
    for disk in disks[1:]:
        (disk / NAME / lost).unlink()
    (result,) = done = offline.merge(disks, tmp_path / "out2")
    inside = [batch for batch in batches if f"{batch.segment:020d}.log" == lost]
    missing = [(row["firstOffset"], row["nextOffset"]) for row in result.rows if row["type"] == "missing"]
    assert missing == [(inside[0].first, inside[-1].end)]
    assert done.exit_code == 1


def test_a_lost_beginning_is_said_without_metadata(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    for disk in disks:
        segments(disk)[0].unlink()
    (result,) = offline.merge(disks, tmp_path / "out")
    assert any("unless the topic is tiered" in note for note in result.notes)


def test_a_side_whose_end_is_damaged_is_continued(tmp_path: Path) -> None:
    """Where another one has what it had, and a third one something else."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=False)
    one, other, third = cluster.brokers
    for _ in range(5):
        cluster.write()
    for broker in (other, third):
        cluster.follow(broker, 1 << 30)
    cluster.in_sync = [one]
    cluster.write()  # committed on one alone
    cluster.elect(other)
    cluster.write()
    cluster.follow(third, 1 << 30)
    cluster.follow(third, 1 << 30)
    for broker in cluster.brokers:
        broker.stop()
    disks = [broker.folder for broker in cluster.brokers]
    whole = log(disks[1])
    path = segments(disks[1])[-1]
    path.write_bytes(path.read_bytes()[:-5])
    (result,) = offline.merge(disks, tmp_path / "out")
    assert result.state == "skipped"
    (result,) = offline.merge(disks, tmp_path / "out", take={NAME: str(disks[1])})
    assert log(tmp_path / "out") == whole, result.notes


def test_what_one_knew_as_committed_and_another_still_has_is_an_alarm(tmp_path: Path) -> None:
    """The leader of that time has lost its end, a follower that knew nothing of it has all, and another one leads."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=True)
    one, other, third = cluster.brokers
    for _ in range(5):
        cluster.write()
    cluster.follow(other, 1 << 30)
    start = other.log.log_end_offset
    cluster.in_sync = [one, third]
    cluster.write()
    cluster.follow(third, 1 << 30)
    batches = [batch for batch in one.batches() if batch.first >= start]
    end = batches[-1].end
    one.directory.checkpoint()
    assert (one.folder / "replication-offset-checkpoint").read_text().split()[-1] == str(end)
    cluster.elect(other)
    for broker in (one, third):
        broker.kill()
    other.stop()
    path = one.folder / NAME / f"{batches[0].segment:020d}.log"
    path.write_bytes(path.read_bytes()[: batches[0].position])
    for lost in segments(one.folder):
        if int(lost.stem) > batches[0].segment:
            lost.unlink()
    disks = [broker.folder for broker in cluster.brokers]
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (result.state, done.exit_code) == ("skipped", 1), result.notes
    assert f"{disks[2]} has offsets {start} to {end - 1}, which {disks[0]} knew as committed" in result.reason
    assert f"--take {NAME}={disks[2]}" in result.remedy
    (result,) = done = offline.merge(disks, tmp_path / "out", take={NAME: str(disks[2])})
    assert (result.log_end, done.exit_code) == (end, 0), result.notes
    assert result.numbers["committed"] == end


def test_damage_in_what_was_deleted_is_not_missing(tmp_path: Path) -> None:
    """The longest log has lost where it starts; another disk knows."""
    disks, batches = replicas(tmp_path)
    start = batches[1].first
    for disk in disks:
        path = segments(disk)[0]
        path.write_bytes(bytes(len(batches[0].data)) + path.read_bytes()[len(batches[0].data) :])
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (result.numbers["offsetsMissing"], done.exit_code) == (start, 1)
    (disks[2] / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    (result,) = done = offline.merge(disks, tmp_path / "out2")
    assert (result.log_start, result.numbers["offsetsMissing"], done.exit_code) == (start, 0, 0), result.notes


def test_a_start_inside_a_batch_of_another_is_kept(tmp_path: Path) -> None:
    """The first disk has lost its segments; records were deleted up to the middle of a batch."""
    disks, batches = replicas(tmp_path)
    batch = next(batch for batch in batches[2:] if batch.end - batch.first > 1)
    for disk in disks:
        (disk / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {batch.first + 1}\n")
    whole = log(disks[0])
    for path in segments(disks[0]):
        path.unlink()
    (result,) = done = offline.merge(disks, tmp_path / "out", take={NAME: str(disks[0])})
    assert (result.log_start, done.exit_code) == (batch.first + 1, 0), result.notes
    assert log(tmp_path / "out") == whole


def test_a_side_that_does_not_count_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, _ = replicas(tmp_path)
    with_metadata(monkeypatch, disks[0], Known(1, 9, (1, 2, 3)))
    (disks[1] / NAME / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (result,) = offline.merge(disks, tmp_path / "out", take={NAME: str(disks[1])})
    assert result.state == "failed"
    assert "its replica there does not count" in result.reason


def test_who_was_in_sync_and_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, _ = replicas(tmp_path)
    with_metadata(monkeypatch, disks[0], Known(4, 9, (4,)))
    (result,) = done = offline.merge(disks, tmp_path / "out")
    assert (result.state, done.exit_code) == ("done", 1)
    assert any("no disk of broker 4 is here" in note for note in result.notes)


def test_one_that_was_out_of_sync_does_not_continue_one_that_was_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows as committed what the leader has not: both sides are named."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=False)
    for _ in range(5):
        cluster.write()
    for broker in cluster.brokers[1:]:
        cluster.follow(broker, 1 << 30)
    cluster.in_sync = [cluster.leader]
    cluster.write()
    disks = [broker.folder for broker in cluster.brokers]
    for broker in cluster.brokers:
        broker.stop()
    with_metadata(monkeypatch, disks[1], Known(2, 5, (2, 3)))
    (result,) = offline.merge(disks, tmp_path / "out")
    assert result.state == "skipped"
    assert f"{disks[0]} knew offset" in result.reason


def strange(tmp_path: Path) -> Path:
    """A disk of another cluster with a topic of the same name, and nothing that says so."""
    disks, _ = replicas(tmp_path / "strange", seed=8)
    (disks[0] / NAME / "partition.metadata").unlink()
    (disks[0] / "meta.properties").unlink()
    return disks[0]


def test_records_of_something_else_do_not_come(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    other = strange(tmp_path)
    (result,) = done = offline.merge([disks[0], other], tmp_path / "out")
    assert (result.state, done.exit_code) == ("skipped", 1)
    assert "different batches at offset" in result.reason
    (result,) = offline.merge([disks[0], other], tmp_path / "out", take={NAME: str(disks[0])})
    assert log(tmp_path / "out") == log(disks[0])
    segments(disks[0])[1].unlink()
    (result,) = done = offline.repair(disks[0], other=other, keep_behind=True)
    assert result.numbers["offsetsFromOthers"] == 0
    assert any("it has another batch at offset" in note for note in result.notes)
    assert done.exit_code == 1


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    path = disks[1] / "meta.properties"
    path.write_text(path.read_text().replace("3Db5QLSqSZieL3rJBUUegA", "xxxxQLSqSZieL3rJBUUegA"))
    segments(disks[0])[1].unlink()
    (result,) = offline.repair(disks[0], other=disks[1])
    assert result.state == "failed"
    assert "is of cluster xxxx" in result.reason


@pytest.mark.parametrize("number", [1, -1])
def test_repair_fills_what_is_in_no_segment(tmp_path: Path, number: int) -> None:
    disks, _ = replicas(tmp_path)
    whole = log(disks[0])
    segments(disks[0])[number].unlink()
    (dry,) = offline.repair(disks[0], other=disks[1], dry_run=True)
    (result,) = done = offline.repair(disks[0], other=disks[1])
    assert log(disks[0]) == whole, result.notes
    assert done.exit_code == 0
    assert dry.numbers == result.numbers
    assert result.numbers["offsetsFromOthers"] > 0
    lost = segments(disks[0])[1].name
    for disk in disks[:2]:
        (disk / NAME / lost).unlink()
    (result,) = done = offline.repair(disks[0], other=disks[1])
    assert any("not in the other replica" in note for note in result.notes)
    assert done.exit_code == 1


def test_the_names_of_sources_are_checked(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="neither a log directory"):
        offline.merge([*disks, tmp_path / "empty"], tmp_path / "out")


# ---- places ----


def test_one_disk_by_two_names_is_refused(tmp_path: Path) -> None:
    """Also by a link, which a mount is like."""
    disks, _ = replicas(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(disks[0])
    with pytest.raises(RequestError, match="was named twice, also as"):
        offline.merge([*disks, link], tmp_path / "out")
    for other in (disks[0], link):
        with pytest.raises(RequestError, match="is to be repaired: name the disk of another broker"):
            offline.repair(disks[0], other=other)


def test_a_target_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    (tmp_path / "out").symlink_to("nowhere")
    with pytest.raises(RequestError, match="a symbolic link: name a folder in it"):
        offline.merge(disks, tmp_path / "out")


def test_a_restore_into_what_it_reads_is_refused(tmp_path: Path) -> None:
    disks, _ = replicas(tmp_path)
    before = contents(disks[0])
    for inside in (disks[0] / "restored", disks[0] / NAME / "restored"):
        inside.mkdir()
        for source in (disks[0], disks[0] / NAME) if inside.parent.name == NAME else disks[:1]:
            with pytest.raises(RequestError, match="which is read: name a log directory outside of it"):
                offline.restore(source, inside)
        assert list(inside.iterdir()) == []
        inside.rmdir()
    assert contents(disks[0]) == before
