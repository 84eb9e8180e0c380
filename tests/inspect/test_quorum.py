"""Tests of cli/quorum.py, inspect/differing_offset.py, inspect/quorum/copies.py, inspect/quorum/look.py and
inspect/quorum/pairs.py. `pylogseg quorum`: copies of a metadata log, compared.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte
from helpers.metadata_logs import CLUSTER, DIRECTORIES, LOG, MetadataLog
from helpers.shell import expect, locked, pylogseg

from pylogseg.errors import RequestError
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import QuorumState
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.inspect.quorum.look import NOTHING, RESCUE, START, QuorumLook, look_at_quorum
from pylogseg.inspect.quorum.pairs import changes_between
from pylogseg.values.internal.image import Image


def look(*paths: Path) -> QuorumLook:
    return look_at_quorum([str(path) for path in paths])


def names(look: QuorumLook, shorter: Path) -> dict[tuple[str, str], list[str]]:
    """What a copy lacks, by kind and how."""
    pair = next(pair for pair in look.pairs if pair.shorter == str(shorter))
    found: dict[tuple[str, str], list[str]] = {}
    for change in pair.lacks:
        found.setdefault((change.kind, change.how), []).append(change.name)
    return found


def test_the_shorter_copy_lacks_by_name(tmp_path: Path) -> None:
    log = MetadataLog()
    orders = log.topic("orders", 2)
    gone = log.topic("gone")
    at = log.end
    log.leader(2)
    late = log.topic("late", 2)
    log.add(
        ("ConfigRecord", 0, {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "1"}),
        ("PartitionChangeRecord", 0, {"partitionId": 1, "topicId": orders, "leader": 12}),
        ("RemoveTopicRecord", 0, {"topicId": gone}),
        ("AccessControlEntryRecord", 0, {"id": DIRECTORIES[9], "resourceType": 2, "resourceName": "or",
         "patternType": 4, "principal": "User:ann", "host": "*", "operation": 3, "permissionType": 3}),
        ("UserScramCredentialRecord", 0, {"name": "bob", "mechanism": 1, "salt": b"s", "storedKey": b"k",
         "serverKey": b"v", "iterations": 4096}),
    )  # fmt: skip
    c1 = log.disk(tmp_path / "c1", 1, end=at)
    b11, b12 = log.disk(tmp_path / "b11", 11, roll=[at]), log.disk(tmp_path / "b12", 12)
    seen = look(c1, b11, b12)
    assert seen.best is not None
    assert (seen.best.node_id, seen.best.epoch, seen.best.end) == (11, 3, log.end)
    assert [pair.is_prefix for pair in seen.pairs] == [True] * 3
    assert names(seen, c1) == names(look(c1, b12), c1) == {
        ("topic", "missing"): [f"late ({late})"],
        ("topic", "removal"): [f"gone ({gone})"],
        ("partition", "missing"): ["late-0", "late-1"],
        ("partition", "changed"): ["orders-1"],
        ("setting", "missing"): ["retention.ms of topic orders"],
        ("acl", "missing"): [f"User:ann on topic or* from * ({DIRECTORIES[9]})"],
        ("user", "missing"): ["bob (SCRAM-SHA-256)"],
    }  # fmt: skip
    done = pylogseg("quorum", c1, b11, b12)
    assert f"{c1} is a prefix of {b11}: it lacks offsets {at} to {log.end - 1}" in done.text
    assert f"the same up to offset {log.end}: {b11}, {b12}" in done.text
    assert "lacks topic: late" in done.text
    assert "a rescue makes controllers of these disks" in done.text.splitlines()[-3]
    assert done.code == 0


def test_all_that_a_row_has(tmp_path: Path) -> None:
    log = MetadataLog()
    log.topic("orders")
    at = log.end
    log.leader(3)
    c1 = log.disk(tmp_path / "c1", 1, state=QuorumState(1, -1, 9, 2, DIRECTORIES[2]))
    log.snapshot(c1, at)
    (segment,) = (c1 / LOG).glob("*.log")
    with open(segment, "ab") as file:
        file.write(log.batches[-1].data[:40])
    row, *_, last = pylogseg("quorum", c1, "--json").rows
    voters = [f"{number}:{DIRECTORIES[number]}@c{number}:9093" for number in (1, 2, 3)]
    assert row == {
        "type": "copy", "path": str(c1), "nodeId": 1, "directoryId": DIRECTORIES[1], "clusterId": CLUSTER,
        "whole": True, "running": False,
        "snapshotOffset": at, "startOffset": 0, "endOffset": log.end, "epoch": 3, "tornBytes": 40,
        "kraftVersion": 1, "voters": voters, "leaderId": 3, "leaderEpoch": 3, "quorumEpoch": 9, "votedId": 2,
        "notes": [],
    }  # fmt: skip
    assert last["verdict"] == RESCUE
    assert (last["votersNotGiven"], last["brokersNotGiven"]) == ([2, 3], [11, 12])
    assert pylogseg("quorum", c1).code == 1  # no broker's disk was given, and it says so
    assert "no broker's disk was given (11, 12)" in pylogseg("quorum", c1).err


def test_a_majority_starts_as_it_is(tmp_path: Path) -> None:
    log = MetadataLog()
    disks = [log.disk(tmp_path / f"n{number}", number) for number in (1, 2, 11, 12)]
    seen = look(*disks)
    assert (seen.verdict, seen.exit_code) == (START, 0)
    assert look(disks[0], *disks[2:]).verdict == RESCUE
    log.topic("more")
    ahead = look(*disks[:3], log.disk(tmp_path / "ahead", 12))
    assert ahead.verdict == START
    assert any("has more than each of them" in reason for reason in ahead.reasons)


def test_a_directory_that_was_formatted_again_has_no_vote(tmp_path: Path) -> None:
    log = MetadataLog()
    seen = look(log.disk(tmp_path / "1", 1), log.disk(tmp_path / "2", 2, directory=DIRECTORIES[9]))
    assert seen.verdict == RESCUE
    assert any("its directory id" in reason for reason in seen.reasons)


def test_static_voters_are_those_of_quorum_state(tmp_path: Path) -> None:
    log = MetadataLog(static=True)
    one, two = log.disk(tmp_path / "1", 1), log.disk(tmp_path / "2", 2)
    assert (look(one, two).verdict, look(one, two).voter_ids) == (START, [1, 2, 3])
    assert look(one).verdict == RESCUE
    for path in (one, two):
        (path / LOG / "quorum-state").unlink()
    seen = look(one, two)
    assert seen.verdict == RESCUE
    assert "the voters are unknown" in seen.reasons[0]


def test_copies_that_differ(tmp_path: Path) -> None:
    """A minority's leader wrote on, and the majority's leader took another way from the same offset on."""
    log = MetadataLog()
    log.topic("orders")
    other, at = log.fork(), log.end
    other.topic("alone")
    other.topic("alone2")
    log.leader(2)
    log.topic("common")
    one, two = other.disk(tmp_path / "1", 1), log.disk(tmp_path / "2", 2)
    (pair,) = look(one, two).pairs
    assert (pair.longer, pair.is_prefix, pair.differs_at) == (str(two), False, at)
    assert [change.name.split()[0] for change in pair.lacks if change.kind == "topic"] == ["common"]
    assert [change.name.split()[0] for change in pair.differs if change.kind == "topic"] == ["alone", "alone2"]
    text = pylogseg("quorum", one, two).text
    assert f"{one} differs from {two} from offset {at} on" in text
    assert "alone has topic: alone" in text


def test_a_longer_copy_of_a_lower_epoch(tmp_path: Path) -> None:
    """All of the shorter one is in the longer one, and the leader of the higher epoch counts, who has less."""
    log = MetadataLog()
    short = log.fork()
    short.leader(2)
    for number in range(5):
        log.topic(f"t{number}")
    one, two = log.disk(tmp_path / "1", 1), short.disk(tmp_path / "2", 2)
    seen = look(one, two)
    assert seen.best is not None
    assert seen.best.node_id == 2
    assert seen.pairs[0].differs_at == short.batches[-1].offset


@pytest.mark.parametrize("harm", ["flip", "hole", "no snapshot", "no log", "torn snapshot", "epoch", "lost segment"])
def test_a_copy_that_is_not_whole_is_unknown(tmp_path: Path, harm: str) -> None:
    log = MetadataLog()
    log.topic("orders")
    at = log.end
    log.topic("late")
    late = log.end
    log.topic("later")
    c1 = log.disk(tmp_path / "c1", 1, roll=[at, late], start=at if harm == "no snapshot" else 0)
    b11 = log.disk(tmp_path / "b11", 11, end=at)
    segments = sorted((c1 / LOG).glob("*.log"))
    if harm == "flip":
        change_byte(segments[0], 200)
    elif harm == "hole":
        data = segments[0].read_bytes()
        size = len(log.batches[2].data)
        start = sum(len(batch.data) for batch in log.batches[:2])
        segments[0].write_bytes(data[:start] + data[start + size :])
    elif harm == "no log":
        shutil.rmtree(c1 / LOG)
    elif harm == "torn snapshot":
        path = log.snapshot(c1, at)
        path.write_bytes(path.read_bytes()[:-30])
    elif harm == "epoch":
        data = bytearray(segments[0].read_bytes())
        data[12:16] = (7).to_bytes(4, "big")
        segments[0].write_bytes(data)
    elif harm == "lost segment":
        segments[1].unlink()
    (copy,) = read_copies(str(c1))
    assert not copy.is_whole
    seen = look(c1, b11)
    assert seen.exit_code == 2
    assert seen.pairs == []
    assert seen.best is not None
    assert seen.best.node_id == 11
    expect(pylogseg("quorum", c1, b11), 2, f"{c1}: its copy is unknown, neither longer nor shorter than another")
    alone = look(c1)
    assert (alone.verdict, alone.exit_code) == (NOTHING, 2)


def test_a_snapshot_above_the_log_counts_alone(tmp_path: Path) -> None:
    log = MetadataLog()
    log.topic("orders")
    at = log.end
    log.topic("late")
    c1, b11 = log.disk(tmp_path / "c1", 1, end=at), log.disk(tmp_path / "b11", 11)
    log.snapshot(c1, log.end)
    seen = look(c1, b11)
    (copy,) = [copy for copy in seen.copies if copy.node_id == 1]
    assert (copy.start, copy.end, copy.segments) == (log.end, log.end, ())
    (pair,) = seen.pairs
    assert pair.unknown.startswith("they have no offset in common")


def test_trimmed_logs_are_compared_where_both_have_batches(tmp_path: Path) -> None:
    log = MetadataLog()
    log.topic("orders")
    at = log.end
    log.topic("late")
    trimmed, whole = log.disk(tmp_path / "1", 1, start=at), log.disk(tmp_path / "2", 2)
    log.snapshot(trimmed, at)
    (pair,) = look(trimmed, whole).pairs
    assert pair.is_same
    copy = next(copy for copy in look(trimmed).copies)
    assert copy.voters is not None
    assert [voter.id for voter in copy.voters] == [1, 2, 3]  # only in the snapshot


@pytest.mark.parametrize("seed", range(60))
def test_the_names_are_those_of_both_whole_states(tmp_path: Path, seed: int) -> None:
    """A long log is read once, without changes of partitions that both copies have: the same names come out."""
    chance = random.Random(seed)
    log = MetadataLog()
    topics: dict[str, str] = {}
    _changes(log, chance, 30, topics)
    below, above = log.fork(), log
    if chance.random() < 0.6:  # each goes its own way
        _changes(below, chance, chance.randrange(1, 6), dict(topics))
    above.leader(2, epoch=below.epoch + 1)
    _changes(above, chance, chance.randrange(0, 8), topics)
    disks = [above.disk(tmp_path / "above", 1), below.disk(tmp_path / "below", 2)]
    if chance.random() < 0.4:
        log.snapshot(disks[0], log.batches[chance.randrange(5, len(log.batches))].next_offset)
    (pair,) = look_at_quorum([*map(str, disks)]).pairs
    images = [Image.read(str(disk / LOG), end) for disk, end in zip(disks, (above.end, below.end), strict=True)]
    lacks = [*changes_between(images[1], images[0])]
    if not pair.is_prefix:
        lacks = [change for change in lacks if change.how != "removal"]
        assert pair.differs == [change for change in changes_between(*images) if change.how == "missing"]
    assert pair.lacks == lacks


def _with_elr() -> tuple[MetadataLog, dict[str, Any]]:
    """A log with a partition that has fields of its eligible leaders, and the fields of its changes."""
    log, topic_id = MetadataLog(), "elrTopicAAAAAAAAAAAAAA"
    key = {"partitionId": 0, "topicId": topic_id}
    fields = {"replicas": [11, 12], "isr": [11, 12], "leader": 11, "leaderEpoch": 0, "partitionEpoch": 0,
              "removingReplicas": [], "addingReplicas": [], "directories": [], "eligibleLeaderReplicas": [],
              "lastKnownElr": []}  # fmt: skip
    log.add(("TopicRecord", 0, {"name": "elr", "topicId": topic_id}), ("PartitionRecord", 2, {**key, **fields}))
    return log, key


def test_eligible_leaders_that_were_emptied(tmp_path: Path) -> None:
    """A change below the end of the shorter copy tells what the last record of the longer one does."""
    log, key = _with_elr()
    log.add(("PartitionChangeRecord", 2, {**key, "eligibleLeaderReplicas": [12]}))
    below = log.disk(tmp_path / "below", 2)
    log.add(("ClearElrRecord", 0, {"topicName": ""}))
    (pair,) = look_at_quorum([str(below), str(log.disk(tmp_path / "above", 1))]).pairs
    assert [tuple(change) for change in pair.lacks] == [("partition", "elr-0", "changed")]


def test_two_ends_that_come_to_the_same(tmp_path: Path) -> None:
    """One says the ISR again that a change below has set, the other one leaves it: nothing differs."""
    log, key = _with_elr()
    log.add(("PartitionChangeRecord", 2, {**key, "isr": [11]}))
    below = log.fork()
    below.add(("PartitionChangeRecord", 2, key))
    log.leader(2, epoch=below.epoch + 1)
    log.add(("PartitionChangeRecord", 2, {**key, "isr": [11]}))
    disks = [str(log.disk(tmp_path / "above", 1)), str(below.disk(tmp_path / "below", 2))]
    (pair,) = look_at_quorum(disks).pairs
    assert (pair.is_prefix, pair.lacks, pair.differs) == (False, [], [])


def _changes(log: MetadataLog, chance: random.Random, count: int, topics: dict[str, str]) -> None:
    for i in range(count):
        kind = chance.choice(("topic", "change", "change", "change", "remove", "setting", "user", "clear", "leader"))
        number = log.end
        if kind == "topic" or not topics:
            topics[f"t{number}"] = log.topic(f"t{number}", 3)
        elif kind == "change":
            fields: dict[str, Any] = {"topicId": chance.choice([*topics.values()]), "partitionId": chance.randrange(3)}
            fields |= chance.choice(
                ({"isr": [11]}, {"leader": chance.choice((11, 12))}, {"eligibleLeaderReplicas": [12]})
            )
            log.add(("PartitionChangeRecord", 2, fields))
        elif kind == "remove":
            name = chance.choice([*topics])
            log.add(("RemoveTopicRecord", 0, {"topicId": topics.pop(name)}))
        elif kind == "setting":
            name = chance.choice([*topics])
            log.add(
                ("ConfigRecord", 0, {"resourceType": 2, "resourceName": name, "name": "retention.ms", "value": f"{i}"})
            )
        elif kind == "user":
            log.add(("ProducerIdsRecord", 0, {"brokerId": 11, "brokerEpoch": 1, "nextProducerId": number}))
        elif kind == "clear":
            log.add(("ClearElrRecord", 0, {"topicName": chance.choice(["", *topics])}))
        else:
            log.leader(chance.choice((1, 2, 3)))


def test_several_log_directories_of_a_node(tmp_path: Path) -> None:
    log = MetadataLog()
    data = log.disk(tmp_path / "n" / "d0", 1)
    other = tmp_path / "n" / "d1"
    (other / "orders-0").mkdir(parents=True)
    (other / "orders-0" / f"{0:020d}.log").touch()
    meta = MetaProperties(1, CLUSTER, 1, DIRECTORIES[9])
    (other / "meta.properties").write_bytes(encode_meta_properties(meta, "test"))
    for paths in ([data, other], [tmp_path / "n"]):
        assert [copy.path for copy in look(*paths).copies] == [str(data)]
    assert look(other).verdict == NOTHING


def test_requests_that_cannot_be_meant(tmp_path: Path) -> None:
    log = MetadataLog()
    one = log.disk(tmp_path / "1", 1)
    with pytest.raises(RequestError, match="given twice"):
        look(one, one / LOG)
    other = log.disk(tmp_path / "2", 2)
    meta = MetaProperties(1, "anotherClusterAAAAAAAA", 2, DIRECTORIES[2])
    (other / "meta.properties").write_bytes(encode_meta_properties(meta, "test"))
    with pytest.raises(RequestError, match="several clusters"):
        look(one, other)
    expect(pylogseg("quorum", tmp_path / "nowhere"), 2, out="nothing can be done with these disks")


def test_a_running_node_is_shown(tmp_path: Path) -> None:
    one = MetadataLog().disk(tmp_path / "1", 1)
    with locked(one):
        assert look(one).copies[0].is_running
    assert not look(one).copies[0].is_running


def test_what_a_broker_wrote(golden: Path) -> None:
    """Copies of a real Kafka, with snapshots and trimmed."""
    metadata = golden / "broker-4.3" / "metadata" / "data0"
    seen = look(metadata)
    assert seen.best is not None
    assert (seen.best.end, seen.best.epoch, seen.verdict) == (400, 3, START)
    static = look(golden / "broker-4.3" / "txn-old" / "data0")
    assert static.best is not None
    assert (static.best.voters, static.voter_ids, static.verdict) == (None, [1], START)
