"""Tests of cli/merge.py, disk/lineage/authority.py, offline/merging/partition.py and offline/merging/replica.py.
`merge` where histories do not decide: the shell, metadata, compaction, refusals, what a crash leaves.
"""

from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.brokers import NAME, TOPIC_ID, Batch, Broker, Cluster
from helpers.damaged_logs import change_byte
from helpers.shell import expect, locked, rows
from helpers.shell import pylogseg as shell

from pylogseg import offline
from pylogseg.disk.lineage.authority import Known
from pylogseg.errors import RequestError, StorageError
from pylogseg.values.internal.cluster import ClusterMetadata


def written(tmp_path: Path, *, lag: bool = False) -> Cluster:
    cluster = Cluster(tmp_path, random.Random(7), unclean=False)
    for _ in range(25):
        cluster.write()
    for broker in cluster.brokers[1:]:
        cluster.follow(broker, 1 << 30)
    if lag:
        cluster.write()
    return cluster


def stop(cluster: Cluster) -> list[Path]:
    for broker in cluster.brokers:
        broker.stop()
    return [broker.folder for broker in cluster.brokers]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_an_undamaged_leader_comes_file_by_file(tmp_path: Path) -> None:
    cluster = written(tmp_path, lag=True)
    sources = stop(cluster)
    done = expect(shell("merge", *sources, "--into", tmp_path / "out"), 0)
    ours, theirs = files(tmp_path / "out" / NAME), files(sources[0] / NAME)
    assert ours.keys() == theirs.keys()
    # The brokers' indexes are denser here than by Kafka's defaults.
    assert [name for name in ours if ours[name] != theirs[name] and not name.endswith((".index", ".timeindex"))] == []
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "out" / "meta.properties").read_bytes() == (sources[0] / "meta.properties").read_bytes()
    assert f"the log comes from {sources[0]}: it is the longest one with the highest leader epoch" in done.text
    assert shell("verify", tmp_path / "out").code == 0


def test_a_dry_run_says_what_comes_from_where(tmp_path: Path) -> None:
    cluster = written(tmp_path)
    batches = cluster.brokers[0].batches()
    sources = stop(cluster)
    for source, batch in zip(sources, (batches[6], batches[11], batches[6]), strict=True):
        path = source / NAME / f"{batch.segment:020d}.log"
        change_byte(path, batch.position + 40)
    before = {source: files(source / NAME) for source in sources}
    done = expect(shell("merge", *sources, "--into", tmp_path / "out", "-n", "--json"), 0)
    hit = batches[6]
    ends = [0, hit.first, hit.end, cluster.brokers[0].log.log_end_offset]
    pieces = rows(done, "piece")
    assert [(row["firstOffset"], row["nextOffset"]) for row in pieces] == list(pairwise(ends))
    assert [row["logDirectory"] for row in pieces] == [str(sources[i]) for i in (0, 1, 0)]
    assert [row["authoritative"] for row in rows(done, "replica")] == [True, False, False]
    assert len(rows(done, "gap")) == 3
    assert {source: files(source / NAME) for source in sources} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b1", "b2", "b3"]


def test_both_sides_of_an_unclean_election_are_named(tmp_path: Path) -> None:
    cluster = written(tmp_path)
    one, other, _ = cluster.brokers
    cluster.in_sync = [one]
    cluster.write()  # committed with one replica in sync
    cluster.elect(other)
    cluster.write()
    sources = stop(cluster)
    done = shell("merge", *sources, "--into", tmp_path / "out")
    assert done.code == 1
    assert f"--take {NAME}={sources[0]}" in done.text
    assert f"--take {NAME}={sources[1]}" in done.text
    assert f"{sources[0]} knew offsets" in done.text
    assert not (tmp_path / "out").exists()
    for number in (0, 1):
        side = shell("merge", *sources, "--into", tmp_path / f"out{number}", "--take", f"{NAME}={sources[number]}")
        assert side.code == 0, side.text
        merged, source = (files(folder / NAME) for folder in (tmp_path / f"out{number}", sources[number]))
        assert [merged[name] == source[name] for name in merged if name.endswith(".log")]
        assert all(merged[name] == source[name] for name in merged if name.endswith(".log"))


def test_sides_of_many_partitions_are_chosen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern counts where there are two sides; elsewhere the log is the one that it is without it."""
    cluster = written(tmp_path)
    one, other, _ = cluster.brokers
    shutil.copytree(one.folder / NAME, tmp_path / "u-0")  # a partition without two sides
    cluster.in_sync = [one]
    cluster.write()
    cluster.elect(other)
    cluster.write()
    sources = stop(cluster)
    for number, source in enumerate(sources):
        for name in ("t-7", "u-0"):
            shutil.copytree(tmp_path / "u-0" if name == "u-0" else source / NAME, source / name)
        last = max((source / "u-0").glob("*.log"))
        if number == 1:  # this one is behind, and has no say
            last.write_bytes(last.read_bytes()[:-9])
        for checkpoint in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            end = (source / checkpoint).read_text().split()[-1]
            (source / checkpoint).write_text(f"0\n2\nt 0 {end}\nt 7 {end}\n")
    whole = b"".join(path.read_bytes() for path in sorted((sources[0] / "u-0").glob("*.log")))
    for number, names in enumerate(("*", "t", "t,u", "t-0,t-7")):
        out = tmp_path / f"out{number}"
        done = expect(shell("merge", *sources, "t", "u-0", "--into", out, "--take", f"{names}={sources[1]}"), 0)
        for name in ("t-0", "t-7"):
            ours, theirs = files(out / name), files(sources[1] / name)
            assert all(ours[each] == theirs[each] for each in ours if each.endswith(".log"))
        assert b"".join(path.read_bytes() for path in sorted((out / "u-0").glob("*.log"))) == whole
    assert f"2 partitions, t-0, t-7: the log comes from {sources[1]}: it was named" in done.text
    assert shell("merge", *sources, "--into", tmp_path / "x", "--take", f"v*={sources[1]}").code == 2
    assert shell("merge", *sources, "--into", tmp_path / "x", "--take", f"t-0,={sources[1]}").code == 2
    # A word that is a folder here too is a name if the folders before it have one.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t-7").mkdir()
    done = expect(shell("merge", "b1", "b2", "b3", "t-7", "--into", "some", "--take", "t=b1"), 0)
    assert done.err == "pylogseg: t-7 is read as a name; for the path write ./t-7\n"
    assert sorted(path.name for path in (tmp_path / "some").iterdir() if path.is_dir()) == ["t-7"]


@pytest.mark.parametrize(
    ("known", "number", "why"),
    [
        (Known(-1, 9, (3,)), 2, "it was in sync"),
        (Known(-1, 9, (), (2,)), 1, "it was an eligible leader replica"),
        (Known(-1, 9, (), (), (2, 3)), 1, "it was last known as an eligible leader replica"),
        (Known(2, 9, (1, 2, 3)), 1, "it was in sync"),  # all are alike: the leader
        (Known(-1, -1, (3,)), 0, "older than the disks"),
    ],
)
def test_the_metadata_says_who_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: Known, number: int, why: str
) -> None:
    sources = stop(written(tmp_path))
    (sources[0] / "__cluster_metadata-0").mkdir()
    metadata = ClusterMetadata({"t": TOPIC_ID}, leaders={(TOPIC_ID, 0): known}, offset=77)
    monkeypatch.setattr(ClusterMetadata, "read", classmethod(lambda cls, folder: metadata))
    (result,) = done = offline.merge(sources, tmp_path / "out")
    (chosen,) = [row for row in result.rows if row.get("authoritative")]
    assert chosen["logDirectory"] == str(sources[number])
    assert any(why in note for note in result.notes)
    assert f"who was in sync: {sources[0]}/__cluster_metadata-0, up to offset 77" in done.notes


def compacted(broker: Broker, batches: list[Batch], cleaned: int) -> None:
    """Let the cleaner have removed every second batch below an offset, as far as files tell."""
    folder = broker.folder / NAME
    for path in sorted(folder.glob("*.log")):
        inside = [batch for batch in batches if f"{batch.segment:020d}.log" == path.name]
        kept = [b for i, b in enumerate(inside) if b.end > cleaned or i % 2 or i in (0, len(inside) - 1)]
        path.write_bytes(b"".join(batch.data for batch in kept))
        for kind in ("index", "timeindex"):
            path.with_suffix(f".{kind}").write_bytes(b"")
    (broker.folder / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")


def test_what_the_cleaner_removed_stays_removed(tmp_path: Path) -> None:
    cluster = written(tmp_path, lag=True)
    leader = cluster.brokers[0]
    inside = leader.batches()
    for broker in cluster.brokers:
        broker.log.close()
    compacted(leader, inside, inside[-1].first)
    kept = [path.read_bytes() for path in sorted((leader.folder / NAME).glob("*.log"))]
    for broker in cluster.brokers:
        broker.directory.release(NAME, clean=True)
        broker.directory.close()
    sources = [broker.folder for broker in cluster.brokers]
    (result,) = offline.merge(sources, tmp_path / "out")
    assert result.state == "done"
    assert result.numbers["offsetsFromOthers"] == result.numbers["offsetsMissing"] == 0
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "out" / NAME).glob("*.log"))) == b"".join(kept)
    assert "t 0 " in (tmp_path / "out" / "cleaner-offset-checkpoint").read_text()


def test_refusals(tmp_path: Path) -> None:
    sources = stop(written(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(RequestError, match="named twice"):
        offline.merge([sources[0], sources[0]], out)
    with pytest.raises(RequestError, match="the folder of one partition"):
        offline.merge([sources[0], sources[1] / NAME], out)
    with pytest.raises(RequestError, match="is not to be taken from"):
        offline.merge(sources, out, take={NAME: str(tmp_path)})
    with pytest.raises(RequestError, match="lies in"):
        offline.merge(sources, sources[0] / "out")
    with pytest.raises(RequestError, match="expected an empty folder"):
        offline.merge(sources, sources[1])
    assert shell("merge", *sources, "--into", out, "--take", "t-0").code == 2
    with locked(sources[1]), pytest.raises(StorageError, match="has the lock"):
        offline.merge(sources, out)
    properties = sources[2] / "meta.properties"
    properties.write_text(properties.read_text().replace("3Db5QLSqSZieL3rJBUUegA", "xxxxQLSqSZieL3rJBUUegA"))
    with pytest.raises(RequestError, match="of cluster"):
        offline.merge(sources, out)
    assert not out.exists()


def test_another_topic_of_the_name_is_named(tmp_path: Path) -> None:
    sources = stop(written(tmp_path))
    (sources[1] / NAME / "partition.metadata").write_text("version: 0\ntopic_id: xxxzvhy5SKqdtrTNWzbGow")
    expect(shell("merge", *sources, "--into", tmp_path / "out"), 1, out="the topic was made again")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_cleaning_changes_no_record(tmp_path: Path) -> None:
    """The states of a swap are in test_swaps.py; here it is a copy of the segment that is there."""
    sources = stop(written(tmp_path))
    (without,) = offline.merge(sources, tmp_path / "without")
    shutil.copy(sources[1] / NAME / f"{0:020d}.log", sources[1] / NAME / f"{0:020d}.log.swap")
    (result,) = offline.merge(sources, tmp_path / "out")
    assert result.state == without.state == "done"
    for path in (tmp_path / "without" / NAME).glob("*.log"):
        assert (tmp_path / "out" / NAME / path.name).read_bytes() == path.read_bytes()
