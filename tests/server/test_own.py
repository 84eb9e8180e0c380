"""Tests of cli/broker.py, server/catalog.py, server/writing/bootstrap_checkpoint.py, server/writing/directory.py,
server/writing/journal.py and server/writing/writer.py. A directory of one's own: what was acknowledged is there after a
restart, whatever ended the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced
from helpers.servers import directory_of, topics_of
from helpers.tiered_logs import write_log
from helpers.trees import tree

import pylogseg
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.messages import codes
from pylogseg.server.catalog import Topic
from pylogseg.server.writing.journal import OffsetsJournal, TransactionsJournal
from pylogseg.server.writing.transactions import ProducerIdAndEpoch, Transaction, TransactionState

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own"


def transactional(broker: pylogseg.Broker, name: str = "t", **options: Any) -> Any:
    made = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0, **options}
    )
    made.init_transactions(PATIENCE_S)
    return made


def offset(client: RawClient, group: str = "g", topic: str = "a") -> int:
    topics = [{"name": topic, "partitionIndexes": [0]}]
    answer = client.ask(9, 7, {"groupId": group, "topics": topics})
    return int(answer["topics"][0]["partitions"][0]["committedOffset"])


def commit(client: RawClient, position: int, group: str = "g") -> int:
    rows = [{"partitionIndex": 0, "committedOffset": position, "committedMetadata": "m"}]
    asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": [{"name": "a", "partitions": rows}]}
    return int(client.ask(8, 7, asked)["topics"][0]["partitions"][0]["errorCode"])


def values(broker: pylogseg.Server, topic: str = "a", isolation: str = "read_committed") -> list[bytes]:
    return [row[5] for row in assigned(broker, topic, isolation_level=isolation)]


# ---- restarts ----


def test_all_of_it_is_there_after_a_restart(path: Path) -> None:
    with pylogseg.Broker(path, topics={"a": 1, "b": 3}) as broker, RawClient(broker.bootstrap_servers) as client:
        ids = {name: topic.id for name, topic in broker.catalog.topics.items()}
        settings = [{"name": "retention.ms", "configOperation": 0, "value": "77"}]
        asked = {"resources": [{"resourceType": 2, "resourceName": "b", "configs": settings}]}
        assert client.ask(44, 1, asked)["responses"][0]["errorCode"] == 0
        assert [produced(client, "a", batch(value))["baseOffset"] for value in (b"1", b"2")] == [0, 1]
        assert [commit(client, 1, group) for group in ("g", "other", "gone")] == [0, 0, 0]
        assert commit(client, 2) == 0
        assert client.ask(42, 2, {"groupsNames": ["gone"]})["results"][0]["errorCode"] == 0
        producer = transactional(broker)
        for value, end in ((b"3", producer.commit_transaction), (b"4", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("a", value)
            end(PATIENCE_S)
    with pylogseg.Broker(path, topics={"a": 1}) as broker, RawClient(broker.bootstrap_servers) as client:
        assert {name: broker.catalog.topics[name].id for name in ids} == ids
        assert (broker.catalog.topics["b"].count, broker.catalog.topics["b"].settings) == (3, {"retention.ms": "77"})
        assert directory_of(broker).manager.config_of("b").retention_ms == 77
        assert values(broker) == [b"1", b"2", b"3"]
        assert [offset(client, group) for group in ("g", "other", "gone")] == [2, 1, -1]
        groups = {each["groupId"] for each in client.ask(16, 4)["groups"]}
        assert groups == {"g", "other"}
        transactional(broker)
        assert client.ask(20, 5, {"topicNames": ["b"]})["responses"][0]["errorCode"] == 0
    with pylogseg.Broker(path) as broker:
        assert sorted(broker.topics) == ["__consumer_offsets", "__transaction_state", "a"]


def test_a_producer_goes_on_where_it_was(path: Path) -> None:
    """Sequences are in the log: a batch that is repeated after a restart is recognized."""
    data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
            row = produced(client, "a", data)
            assert (row["errorCode"], row["baseOffset"]) == (0, 0)


def join(client: RawClient, member: str = "", instance: str | None = None) -> dict[str, Any]:
    asked = {"groupId": "g", "sessionTimeoutMs": 120_000, "rebalanceTimeoutMs": 300_000, "memberId": member,
             "groupInstanceId": instance, "protocolType": "consumer",
             "protocols": [{"name": "range", "metadata": b"wants"}]}  # fmt: skip
    return client.ask(11, 5, asked)


def of_group(client: RawClient) -> tuple[str, list[tuple[str, str | None, bytes, bytes]]]:
    (group,) = client.ask(15, 5, {"groups": ["g"]})["groups"]
    fields = ("memberId", "groupInstanceId", "memberMetadata", "memberAssignment")
    return group["groupState"], [tuple(each[name] for name in fields) for each in group["members"]]


@pytest.mark.parametrize("instance", [None, "static"])
def test_members_of_a_group_go_on_after_a_restart(path: Path, instance: str | None) -> None:
    """With their ids and generation, and no rebalance; one that does not come again is dropped after its session."""
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        member = join(client, instance=instance)["memberId"]
        joined = join(client, member, instance)
        fields = {"groupId": "g", "generationId": joined["generationId"], "memberId": member}
        mine = [{"memberId": member, "assignment": b"part"}]
        assert client.ask(14, 3, {**fields, "groupInstanceId": instance, "assignments": mine})["errorCode"] == 0
        before = of_group(client)
        assert before == ("Stable", [(member, instance, b"wants", b"part")])
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert of_group(client) == before
        assert client.ask(12, 3, {**fields, "groupInstanceId": instance})["errorCode"] == 0
        again = client.ask(14, 3, {**fields, "groupInstanceId": instance, "assignments": []})
        assert (again["errorCode"], again["assignment"]) == (0, b"part")
        broker.clock.advance(121)
        code = client.ask(12, 3, {**fields, "groupInstanceId": instance})["errorCode"]
        assert code == codes.UNKNOWN_MEMBER_ID
        assert of_group(client) == ("Empty", [])
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert of_group(client) == ("Empty", [])
        member = join(client, instance=instance)["memberId"]
        assert join(client, member, instance)["generationId"] > joined["generationId"]
        assert commit(client, 1, "other") == 0
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert of_group(client) == ("Empty", []), "it had no share yet"
        assert client.ask(42, 2, {"groupsNames": ["g"]})["results"][0]["errorCode"] == 0
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert {each["groupId"] for each in client.ask(16, 4)["groups"]} == {"other"}


WRITER = """
import sys, pylogseg
with pylogseg.Broker(sys.argv[1], topics={"a": 1}) as broker:
    print(broker.bootstrap_servers, flush=True)
    broker.wait()
"""


@pytest.mark.long
def test_a_kill_loses_nothing_that_was_acknowledged(path: Path) -> None:
    """Records, commits and ended transactions; a transaction that was open is there, and ends."""
    written, position = [], 0
    for turn in range(3):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            with RawClient(process.stdout.readline().strip()) as client:
                assert turn == 0 or offset(client) == position
                for i in range(200):
                    assert produced(client, "a", batch(b"%d-%d" % (turn, i)))["errorCode"] == 0
                    written.append(b"%d-%d" % (turn, i))
                    position = 200 * turn + i
                    assert commit(client, position) == 0
                found = client.ask(22, 4, {"transactionalId": "t", "transactionTimeoutMs": 60_000})
                producer = {"producer_id": found["producerId"], "producer_epoch": found["producerEpoch"]}
                data = batch(b"open", **producer, base_sequence=0, transactional=True)
                assert produced(client, "a", data, version=12, transactionalId="t")["errorCode"] == 0
                process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert offset(client) == position
        broker.clock.advance(61)
        assert values(broker) == written


def test_a_transaction_goes_on_after_a_restart(path: Path) -> None:
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        found = client.ask(22, 4, {"transactionalId": "t", "transactionTimeoutMs": 60_000})
        fields = {name: found[name] for name in ("producerId", "producerEpoch")} | {"transactionalId": "t"}
        stamp = {"producer_id": found["producerId"], "producer_epoch": found["producerEpoch"], "transactional": True}
        assert produced(client, "a", batch(b"x", base_sequence=0, **stamp), version=12, transactionalId="t")[
            "errorCode"
        ] == 0  # fmt: skip
        assert client.ask(25, 3, {**fields, "groupId": "g"})["errorCode"] == 0

        def stage(client: RawClient, position: int) -> int:
            rows = [{"partitionIndex": 0, "committedOffset": position, "committedMetadata": ""}]
            asked = {**fields, "groupId": "g", "topics": [{"name": "a", "partitions": rows}]}
            return int(client.ask(28, 3, asked)["topics"][0]["partitions"][0]["errorCode"])

        assert stage(client, 5) == 0
        assert offset(client) == -1
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        topics = [{"name": "a", "partitionIndexes": [0]}]
        row = client.ask(9, 7, {"groupId": "g", "topics": topics, "requireStable": True})["topics"][0]["partitions"][0]
        assert row["errorCode"] == codes.UNSTABLE_OFFSET_COMMIT
        assert stage(client, 6) == 0
        assert values(broker) == []
        assert client.ask(26, 3, {**fields, "committed": True})["errorCode"] == 0
        assert offset(client) == 6
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert (values(broker), offset(client)) == ([b"x"], 6)


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_that_was_noted_is_carried_out(path: Path, commits: bool) -> None:
    """The process ended between the decision and the markers: the next one writes them."""
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        found = client.ask(22, 4, {"transactionalId": "t", "transactionTimeoutMs": 60_000})
        stamp = {"producer_id": found["producerId"], "producer_epoch": found["producerEpoch"], "transactional": True}
        data = batch(b"x", base_sequence=0, **stamp)
        assert produced(client, "a", data, version=12, transactionalId="t")["errorCode"] == 0
        state = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
        noted = Transaction(
            "t", ProducerIdAndEpoch(found["producerId"], found["producerEpoch"]), 60_000, state, {("a", 0)}
        )
        TransactionsJournal(topics_of(broker)).note(noted)
    with pylogseg.Broker(path) as broker:
        assert values(broker) == ([b"x"] if commits else [])
        assert broker.catalog.topics["a"].partitions[0].log().last_stable_offset == 2
        assert TransactionsJournal(topics_of(broker)).load()["t"].state is (
            TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        )
        assert OffsetsJournal(topics_of(broker)).load() == ({}, {}, {})


# ---- the directory ----


def test_only_one_may_have_it(path: Path) -> None:
    with pylogseg.Broker(path):
        with pytest.raises(StorageError, match=r"\.lock"):
            pylogseg.Broker(path)
        with pytest.raises(StorageError, match="lock"):
            pylogseg.serve(path)


def test_pylogseg_reads_it_meanwhile_and_afterwards(path: Path) -> None:
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        assert produced(client, "a", batch(b"x"))["errorCode"] == 0
        assert commit(client, 1) == 0
        assert [record.value for record in pylogseg.read(path / "a-0")] == [b"x"]
    offsets = pylogseg.cluster_state(path).rows("group_offsets")
    assert [(row["group"], row["topic"], row["offset"]) for row in offsets] == [("g", "a", 1)]
    with pylogseg.serve(path, group_offsets=True) as server, RawClient(server.bootstrap_servers) as client:
        assert (values(server), offset(client)) == ([b"x"], 1)


def test_logs_that_nobody_named_are_taken_over_once(path: Path) -> None:
    """A directory of `open_log` becomes a broker's; later a folder that no topic has is set aside."""
    with pylogseg.open_log(path / "mine-1") as log:
        log.append([(None, b"k", b"v")])
    with pylogseg.Broker(path) as broker:
        assert broker.catalog.topics["mine"].count == 2
        assert values(broker, "mine") == [b"v"]
    with pylogseg.open_log(path / "late-0") as log:
        log.append([(None, b"k", b"v")])
    with pylogseg.Broker(path) as broker:
        assert "late" not in broker.topics
        assert values(broker, "mine") == [b"v"]
    assert next(name for name in os.listdir(path) if name.startswith("late")).endswith("-stray")


@pytest.mark.parametrize("is_formatted", [False, True])
def test_nothing_is_deleted_of_logs_that_are_taken_over(path: Path, is_formatted: bool) -> None:
    """Who wrote them had settings that nobody knows here: no default of a week may apply to them."""
    if is_formatted:  # as by Kafka before 3.7, which writes the file into directories without metadata too
        with pylogseg.Broker(path):
            pass
    write_log(path / "mine-0")  # of 1970
    before = {name: data for name, data in tree(path / "mine-0").items() if name.endswith(".log")}
    for _ in range(2):
        with pylogseg.Broker(path) as broker:
            assert directory_of(broker).manager.retain() == 0
            assert broker.catalog.topics["mine"].settings == {"retention.ms": "-1"}
    assert {name: data for name, data in tree(path / "mine-0").items() if name.endswith(".log")} == before


def test_a_damaged_list_of_topics_is_an_error(path: Path) -> None:
    with pylogseg.Broker(path, topics=["a"]):
        pass
    kept = path / "bootstrap.checkpoint"
    whole = kept.read_bytes()
    before = tree(path / "a-0")
    for damaged in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b""):
        kept.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=r"bootstrap\.checkpoint"):
            pylogseg.Broker(path)
    kept.write_bytes(whole)
    assert tree(path / "a-0") == before
    with pylogseg.Broker(path) as broker:
        assert broker.topics == ["a"]


def test_a_name_that_is_none(path: Path) -> None:
    with pytest.raises(RequestError, match="'a b'"):
        pylogseg.Broker(path, topics=["a b"])
    with pylogseg.Broker(path):
        pass


@pytest.mark.parametrize("name", ["broker-4.3/txn", "broker-4.3/codecs"])
def test_a_directory_of_a_broker(golden: Path, tmp_path: Path, name: str) -> None:
    """Records and offsets are added; topics belong to the cluster's metadata, so that they are not changed here."""
    folder = shutil.copytree(golden / name / "data0", tmp_path / "data0")
    metadata = tree(folder / "__cluster_metadata-0")
    with pylogseg.Broker(folder) as broker, RawClient(broker.bootstrap_servers) as client:
        topic = next(name for name in broker.topics if not name.startswith("__"))
        number = next(iter(broker.catalog.topics[topic].partitions))
        assert produced(client, topic, batch(b"new"), number=number)["errorCode"] == 0
        made = client.ask(19, 7, {"topics": [{"name": "new", "numPartitions": 1, "replicationFactor": 1}]})["topics"][0]
        assert made["errorCode"] == codes.POLICY_VIOLATION
        assert "belongs to a Kafka cluster" in made["errorMessage"]
        assert client.ask(20, 5, {"topicNames": [topic]})["responses"][0]["errorCode"] == codes.POLICY_VIOLATION
    assert tree(folder / "__cluster_metadata-0") == metadata
    assert not (folder / "new-0").exists()


def test_the_name_of_the_metadata_is_no_topic(path: Path) -> None:
    """Whoever names it: the directory is this server's as before."""
    asked = {"name": "__cluster_metadata", "numPartitions": 1, "replicationFactor": 1}
    for _ in range(2):
        with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
            shown = client.ask(3, 9, {"topics": [{"name": "__cluster_metadata"}], "allowAutoTopicCreation": True})
            assert [each["errorCode"] for each in shown["topics"]] == [codes.UNKNOWN_TOPIC_OR_PARTITION]
            made = client.ask(19, 7, {"topics": [asked]})["topics"][0]
            assert (made["errorCode"], made["errorMessage"]) == (
                codes.TOPIC_AUTHORIZATION_FAILED,
                "Authorization failed.",
            )
            broker.catalog.topics.get("orders") or topics_of(broker).make("orders", 1, {"retention.ms": "60000"})
    assert not (path / "__cluster_metadata-0").exists()


def test_a_directory_with_a_topic_of_that_name_works_again(path: Path) -> None:
    """An earlier version let clients make it, and then took the directory for a cluster's."""
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        topics = topics_of(broker)
        topics.make("orders", 1, {"retention.ms": "60000"})
        topics._begin([Topic("__cluster_metadata", bytes(range(16)), {}, 1, {})])
        assert produced(client, "__cluster_metadata", batch(b"x"))["errorCode"] == 0
    with pylogseg.Broker(path) as broker:
        assert broker.topics == ["orders"]
        assert broker.catalog.topics["orders"].settings == {"retention.ms": "60000"}
        assert "no topic may be" in broker.catalog.notes[0]
        topics_of(broker).make("more", 1)
    assert [name.endswith("-stray") for name in os.listdir(path) if name.startswith("__cluster_metadata")] == [True]
    with pylogseg.Broker(path) as broker:
        assert (sorted(broker.topics), broker.catalog.notes) == (["more", "orders"], [])


def test_topics_of_a_request_are_noted_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pylogseg.Broker(path) as broker, RawClient(broker.bootstrap_servers) as client:
        store, written = directory_of(broker), []
        note = store.note
        monkeypatch.setattr(store, "note", lambda topics, shown: (written.append(len(shown)), note(topics, shown)))
        names = ["a", "b", "c.d", "c_d", "a"]
        found = client.ask(3, 9, {"topics": [{"name": name} for name in names], "allowAutoTopicCreation": True})
        assert [(each["name"], each["errorCode"]) for each in found["topics"]] == [
            ("a", 0), ("b", 0), ("c.d", 0), ("c_d", codes.UNKNOWN_TOPIC_OR_PARTITION)
        ]  # fmt: skip
        asked = [{"name": name, "numPartitions": 2, "replicationFactor": 1} for name in ("x", "a", "y")]
        made = client.ask(19, 7, {"topics": asked})["topics"]
        assert [each["errorCode"] for each in made] == [0, codes.TOPIC_ALREADY_EXISTS, 0]
        assert written == [3, 5]
        assert (path / "y-1").is_dir()
    with pylogseg.Broker(path) as broker:
        assert sorted(broker.topics) == ["a", "b", "c.d", "x", "y"]


def test_the_command(path: Path) -> None:
    command = [sys.executable, "-m", "pylogseg", "broker", str(path), "--listen", "127.0.0.1:0"]
    for turn in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "what is written is kept there" in said
            with RawClient(said.split(" at ")[1].split(",")[0]) as client:
                client.ask(3, 9, {"topics": [{"name": "a"}], "allowAutoTopicCreation": True})
                assert produced(client, "a", batch(b"x"))["baseOffset"] == turn
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
    wrong = subprocess.run([*command, "--above", str(path)], capture_output=True, encoding="utf-8", check=False)
    assert wrong.returncode == 2
    assert "name one of them" in wrong.stderr


def test_retention_applies(path: Path) -> None:
    """As in a broker: what is older than the topic's setting goes."""
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        old = time.time_ns() // 1_000_000 - 3_600_000
        assert produced(client, "a", batch(b"old", timestamp=old))["errorCode"] == 0
        topics_of(broker).configure(broker.catalog.topics["a"], {"retention.ms": "60000"})
        directory_of(broker).manager.retain()
        assert produced(client, "a", batch(b"new"))["baseOffset"] == 1
        assert values(broker) == [b"new"]


def test_topics_and_first_commits_at_the_same_time(path: Path) -> None:
    """Both need the list of topics and the groups; none waits for the other for ever."""
    with pylogseg.Broker(path, topics=["a"]) as broker:

        def topics() -> None:
            with RawClient(broker.bootstrap_servers) as client:
                for i in range(30):
                    asked = {"name": f"t{i}", "numPartitions": 1, "replicationFactor": 1}
                    assert client.ask(19, 5, {"topics": [asked]})["topics"][0]["errorCode"] == 0
                    assert client.ask(20, 5, {"topicNames": [f"t{i}"]})["responses"][0]["errorCode"] == 0

        def commits() -> None:
            with RawClient(broker.bootstrap_servers) as client:
                for i in range(200):
                    assert commit(client, i, f"g{i % 7}") == 0

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work) for work in (topics, commits, commits)]:
                done.result(PATIENCE_S)
        assert sorted(broker.topics) == ["__consumer_offsets", "a"]


def test_the_size_of_the_disk_is_told(path: Path) -> None:
    with pylogseg.Broker(path, topics=["a"]) as broker, RawClient(broker.bootstrap_servers) as client:
        data = batch(b"x" * 1000)
        assert produced(client, "a", data)["errorCode"] == 0
        (log_dir,) = client.ask(35, 4, {"topics": None})["results"]
        assert (log_dir["errorCode"], log_dir["logDir"]) == (0, os.path.realpath(path))
        assert log_dir["totalBytes"] == shutil.disk_usage(path).total
        assert log_dir["topics"][0]["partitions"][0]["partitionSize"] == len(data)
