"""Tests of server/offsets.py. A client reads what `pylogseg.read` reads, and what a broker says of the same files;
nothing on the disk changes.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
from pathlib import Path
from typing import Any

import kafka
import pytest
from helpers.depth import some_of
from helpers.golden_brokers import BROKERS
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, consumer, partitions, row_of
from helpers.trees import tree
from kafka.errors import PolicyViolationError

import pylogseg
from pylogseg.errors import RequestError, StorageError

admin = pytest.importorskip("confluent_kafka.admin")

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data"


def broker_dirs(golden: Path, name: str) -> list[Path]:
    return sorted((golden / name).glob("data?"))


def topics_of(path: Path) -> list[str]:
    return sorted(topic for topic in pylogseg.open_dir(path).topics if topic != "__cluster_metadata")


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", topics_of(DATA))
def test_records_are_those_of_read(server: pylogseg.Server, topic: str, isolation: Any) -> None:
    ours = pylogseg.read(pylogseg.open_dir(DATA)[topic], isolation_level=isolation)
    assert assigned(server, topic, isolation_level=isolation) == [row_of(record) for record in ours]


@pytest.mark.parametrize("name", BROKERS)
def test_the_offsets_are_those_of_a_broker(golden: Path, name: str) -> None:
    """Ends, the last stable offset, times and producers, as a broker has answered them for the same files."""
    expected = json.loads((golden / name / "expected.json").read_text())["topics"]
    with pylogseg.serve(*broker_dirs(golden, name)) as server, RawClient(server.bootstrap_servers) as client:
        assert set(expected) >= set(server.topics)
        for topic in server.topics:
            said = expected[topic]
            known = client.ask(3, 12, {"topics": [{"name": topic}]})["topics"][0]
            assert known["topicId"] == server.catalog.topics[topic].id
            assert len(known["partitions"]) == len(said["partitions"])
            for number, of_one in said["partitions"].items():
                folder = Path(server.catalog.topics[topic].partitions[int(number)].folder)
                check_partition(client, folder, topic, int(number), of_one)


def first_since(folder: Path, timestamp: int) -> tuple[int, int]:
    """Offset and time of the first record that is not older, by reading them all."""
    late = ((r.offset, r.timestamp) for r in pylogseg.read(folder) if r.timestamp >= timestamp)
    return next(late, (-1, -1))


def check_partition(client: RawClient, folder: Path, topic: str, number: int, said: dict[str, Any]) -> None:
    def look(timestamp: int, isolation: int = 0) -> tuple[int, int]:
        asked = {"name": topic, "partitions": [{"partitionIndex": number, "timestamp": timestamp}]}
        found = client.ask(2, 8, {"replicaId": -1, "isolationLevel": isolation, "topics": [asked]})
        row = found["topics"][0]["partitions"][0]
        assert row["errorCode"] == 0, (topic, number, timestamp)
        return row["offset"], row["timestamp"]

    where = f"{topic}-{number}"
    for name, timestamp in (("earliest", -2), ("latest", -1), ("maxTimestamp", -3), ("earliestLocal", -4)):
        assert look(timestamp) == (said[name]["offset"], said[name]["timestamp"]), (where, name)
    assert look(-1, 1)[0] == said["latestCommitted"]["offset"], where
    for timestamp, found in said["offsetsForTimes"].items():
        ours = look(int(timestamp))
        if ours != (found["offset"], found["timestamp"]):
            # A cleaner's broker looks into one segment, although the cleaning left no such record in it; after a start
            # its index says so, and the search goes on.
            assert found["offset"] == -1, (where, timestamp)
            assert ours == first_since(folder, int(timestamp)), (where, timestamp)


def test_a_broker_with_open_transactions_shows_them(golden: Path) -> None:
    expected = json.loads((golden / "broker-4.3" / "txn" / "expected.json").read_text())["topics"]
    with (
        pylogseg.serve(*broker_dirs(golden, "broker-4.3/txn")) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        shown = 0
        for topic, said in expected.items():
            for number, of_one in said["partitions"].items():
                asked = {"topics": [{"name": topic, "partitionIndexes": [int(number)]}]}
                found = client.ask(61, 0, asked)["topics"][0]["partitions"][0]["activeProducers"]
                open_at = {each["producerId"]: each["currentTxnStartOffset"] for each in found}
                for each in of_one["producers"]:
                    assert open_at[each["producerId"]] == (each["currentTransactionStartOffset"] or -1)
                    shown += open_at[each["producerId"]] >= 0
        assert shown


@pytest.mark.parametrize(
    "name", ["broker-4.3/compact-5-cleaned", "broker-4.3/txn-old", "broker-4.3/retention", "broker-4.4/all"]
)
def test_the_records_are_those_of_a_broker(golden: Path, name: str) -> None:
    """Offsets and whether read_committed sees them, of every record of a broker."""
    with gzip.open(golden / name / "expected.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    with pylogseg.serve(*broker_dirs(golden, name)) as server:
        for topic in some_of(server.topics, 8):
            for isolation in ("read_uncommitted", "read_committed"):
                wanted = sorted(
                    (row["partition"], row["offset"], row["timestamp"])
                    for row in rows
                    if row["topic"] == topic and (row["committed"] or isolation == "read_uncommitted")
                )
                found = assigned(server, topic, isolation_level=isolation)
                assert [row[1:4] for row in found] == wanted, (topic, isolation)


def test_nothing_is_written(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    before = tree(tmp_path)
    with pylogseg.serve(tmp_path / "data") as server:
        for topic in server.topics:
            assigned(server, topic)
        with RawClient(server.bootstrap_servers) as raw:
            row = {"partitionIndex": 0, "committedOffset": 7}
            asked = {"groupId": "g", "generationIdOrMemberEpoch": -1,
                     "topics": [{"name": "levels", "partitions": [row]}]}  # fmt: skip
            assert raw.ask(8, 7, asked)["topics"][0]["partitions"][0]["errorCode"] == 0
    assert tree(tmp_path) == before


def test_by_time(server: pylogseg.Server) -> None:
    records = [row_of(record) for record in pylogseg.read(pylogseg.open_dir(DATA)["codec-zstd"])]
    with consumer(server) as client:
        (mine,) = partitions(server, "codec-zstd")
        middle = records[200][3]
        assert middle is not None
        found = client.offsets_for_times({mine: middle})[mine]
        first = next(row for row in records if row[3] is not None and row[3] >= middle)
        assert (found.offset, found.timestamp) == (first[2], first[3])
        assert client.offsets_for_times({mine: 2**60})[mine] is None


@pytest.mark.parametrize(("reset", "place"), [("earliest", 0), ("latest", 505)])
def test_out_of_range(server: pylogseg.Server, reset: str, place: int) -> None:
    with consumer(server, auto_offset_reset=reset) as client:
        (mine,) = partitions(server, "codec-zstd")
        client.assign([mine])
        client.seek(mine, 100_000)
        until = time.monotonic() + PATIENCE_S
        while not place <= (client.position(mine, timeout_ms=500) or -1) <= 505:
            client.poll(200)
            assert time.monotonic() < until, "it was not reset"


def test_produce_is_refused_with_words(server: pylogseg.Server) -> None:
    for idempotent in (False, True):
        producer = kafka.KafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=idempotent)
        with pytest.raises(PolicyViolationError, match="read-only"):
            producer.send("codec-gzip", b"x", partition=0).get(PATIENCE_S)
        producer.close()


def test_names_and_sizes(server: pylogseg.Server) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    assert set(admin.list_topics()) == set(server.topics)
    admin.close()
    with RawClient(server.bootstrap_servers) as client:
        dirs = client.ask(35, 4, {"topics": None})["results"]
    sizes = {each["name"]: each["partitions"][0]["partitionSize"] for each in dirs[0]["topics"]}
    assert sizes["codec-gzip"] == sum(path.stat().st_size for path in (DATA / "codec-gzip-0").glob("*.log"))


def test_settings(golden: Path) -> None:
    """What the broker has said of each topic's own settings, from the cluster's metadata; defaults for the rest."""
    said = json.loads((golden / "broker-4.3" / "codecs" / "expected.json").read_text())["topics"]
    asked = [{"resourceType": 2, "resourceName": name, "configurationKeys": None} for name in [*said, "nothing"]]
    with (
        pylogseg.serve(*broker_dirs(golden, "broker-4.3/codecs")) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        *found, missing = client.ask(32, 4, {"resources": asked})["results"]
    assert missing["errorCode"] == 3
    for row in found:
        own = {each["name"]: each["value"] for each in row["configs"] if each["configSource"] == 1}
        assert own == said[row["resourceName"]]["config"]
        assert {each["value"] for each in row["configs"] if each["name"] == "max.message.bytes"} == {"1048588"}


# ---- what is served ----


def test_chosen_topics() -> None:
    with pylogseg.serve(DATA, topic=["codec-*", "legacy"]) as server:
        assert server.topics == [*(f"codec-{codec}" for codec in ("gzip", "lz4", "none", "snappy", "zstd")), "legacy"]
        with consumer(server) as client:
            assert client.topics() == set(server.topics)
            assert not client.partitions_for_topic("txn-a")
    with pytest.raises(RequestError, match="no topic or partition 'orders'"):
        pylogseg.serve(DATA, topic="orders")


def test_a_partition_that_was_on_another_broker(server: pylogseg.Server) -> None:
    """Clients count partitions, so one that is not here is named, without a leader."""
    with RawClient(server.bootstrap_servers) as client:
        found = client.ask(3, 9, {"topics": [{"name": "codec-lz4"}]})["topics"][0]["partitions"]
    assert [(each["partitionIndex"], each["leaderId"], each["errorCode"]) for each in found] == [(0, -1, 5), (1, 1, 0)]


@pytest.mark.parametrize("version", range(14))
def test_a_topic_that_is_named_twice(server: pylogseg.Server, version: int) -> None:
    """Java does so now and then, and a broker answers once."""
    asked = [{"name": name} for name in ("levels", "nothing", "levels", "nothing")]
    with RawClient(server.bootstrap_servers) as client:
        found = client.ask(3, version, {"topics": asked})["topics"]
    assert [(each["name"], each["errorCode"]) for each in found] == [("levels", 0), ("nothing", 3)]


def test_two_replicas(tmp_path: Path) -> None:
    """Of two brokers the copy that goes further is served; one broker cannot have a partition twice."""
    for name, node in (("a", "1"), ("b", "2")):
        shutil.copytree(DATA / "codec-gzip-0", tmp_path / name / "codec-gzip-0")
        (tmp_path / name / "meta.properties").write_text(
            f"version=1\nnode.id={node}\ncluster.id=pylogsegOracleBrokerAA\n"
        )
    segments = sorted((tmp_path / "a" / "codec-gzip-0").glob("*.log"))
    for path in segments[1:]:
        path.unlink()
    with pylogseg.serve(tmp_path / "a", tmp_path / "b") as server:
        assert str(tmp_path / "b") in server.catalog.notes[0]
        assert len(assigned(server, "codec-gzip")) == 505
    (tmp_path / "b" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(RequestError, match="one broker cannot have"):
        pylogseg.serve(tmp_path / "a", tmp_path / "b")


def test_a_directory_in_use(tmp_path: Path) -> None:
    log = pylogseg.open_log(tmp_path / "orders-0")
    try:
        with pytest.raises(StorageError, match="has the lock"):
            pylogseg.serve(tmp_path)
    finally:
        log.close()


def test_a_segment_that_is_gone(tmp_path: Path) -> None:
    """A log whose file went away is offline for the client; the others go on."""
    shutil.copytree(DATA, tmp_path / "data")
    with pylogseg.serve(tmp_path / "data") as server, RawClient(server.bootstrap_servers) as client:
        served = server.catalog.topics["codec-gzip"].partitions[0]
        served.log()
        for path in Path(served.folder).glob("*"):
            path.unlink()
        asked = {"topic": "codec-gzip", "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}
        fetch = {"maxWaitMs": 1, "minBytes": 1, "topics": [asked]}
        assert client.ask(1, 11, fetch)["responses"][0]["partitions"][0]["errorCode"] == 56
        asked["topic"] = "codec-zstd"
        assert client.ask(1, 11, fetch)["responses"][0]["partitions"][0]["records"]


def test_settings_of_topics_are_those_of_4_3(golden: Path) -> None:
    """Also those of a disk that 4.4 wrote: what 4.3 does not know is there only where it was set."""
    with pylogseg.serve(*(golden / "broker-4.4" / "all").glob("data?"), topic="codec-zstd") as server:
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap_servers})
        (found,) = client.describe_configs([admin.ConfigResource("topic", "codec-zstd")]).values()
        names = set(found.result(PATIENCE_S))
    assert {"retention.ms", "remote.log.copy.disable", "segment.bytes"} < names
    assert not names & {"max.decompressed.message.bytes", "remote.copy.lag.ms", "remote.copy.lag.bytes"}
