"""Tests of server/writing/memory.py. Writing above files that stay as they are: clients produce, make and delete
topics, and the disk never changes.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from helpers.golden_brokers import BROKERS
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced, row_of
from helpers.trees import tree

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.messages import codes

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """Return a copy of a disk, which is the same afterwards."""
    folder = shutil.copytree(DATA, tmp_path / "copy")
    before = tree(folder)
    yield folder
    assert tree(folder) == before


def test_records_are_appended_to_those_of_the_files(copy: Path) -> None:
    before = [row_of(record) for record in pylogseg.read(pylogseg.open_dir(copy)["codec-zstd"])]
    with pylogseg.Broker(above=copy, trace=print) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
        for i in range(50):
            producer.produce("codec-zstd", b"%d" % i, partition=0)
            producer.produce("made", b"%d" % i)
        assert producer.flush(PATIENCE_S) == 0
        rows = assigned(server, "codec-zstd")
        assert rows[: len(before)] == before
        assert [(row[2], row[5]) for row in rows[len(before) :]] == [
            (before[-1][2] + 1 + i, b"%d" % i) for i in range(50)
        ]
        assert [row[5] for row in assigned(server, "made")] == [b"%d" % i for i in range(50)]
    with pylogseg.Broker(above=copy) as server:
        assert assigned(server, "codec-zstd") == before
        assert "made" not in server.topics


def test_transactions_and_groups_of_a_copy(copy: Path) -> None:
    with pylogseg.Broker(above=copy, trace=print) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": "new"})
        producer.init_transactions(PATIENCE_S)
        for value, end in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("codec-gzip", value, partition=0)
            end(PATIENCE_S)
        rows = assigned(server, "codec-gzip", isolation_level="read_committed")
        assert [row[5] for row in rows if row[5] in (b"kept", b"gone")] == [b"kept"]
        assert rows[-1][5] == b"kept"
        reader = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap_servers, group_id="g")
        partition = kafka.TopicPartition("codec-gzip", 0)
        reader.assign([partition])
        reader.commit({partition: kafka.OffsetAndMetadata(3, "", -1)})
        assert reader.committed(partition) == 3
        reader.close()


def test_topics_of_a_copy_are_changed_and_deleted(copy: Path) -> None:
    with pylogseg.Broker(above=copy, trace=print) as server:
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap_servers})
        old = server.catalog.topics["levels"].id
        for change in (
            lambda: client.create_partitions([admin.NewPartitions("codec-gzip", 3)]),
            lambda: client.delete_records([confluent_kafka.TopicPartition("codec-zstd", 0, 100)]),
            lambda: client.delete_topics(["levels"]),
            lambda: client.create_topics([admin.NewTopic("levels", 2, 1)]),
        ):
            for each in change().values():
                each.result(PATIENCE_S)
        assert server.catalog.topics["levels"].id != old
        assert assigned(server, "levels") == []
        assert assigned(server, "codec-zstd")[0][2] == 100
        with RawClient(server.bootstrap_servers) as raw:
            assert produced(raw, "codec-gzip", batch(b"new"), number=2)["baseOffset"] == 0
            assert produced(raw, "levels", batch(b"new"), number=1)["baseOffset"] == 0
            assert produced(raw, "codec-zstd", batch(b"new"))["baseOffset"] == 505


@pytest.mark.parametrize("name", BROKERS)
def test_a_copy_of_a_broker(golden: Path, name: str) -> None:
    """Every topic takes a batch; internal ones none."""
    folders = sorted((golden / name).glob("data?"))
    before = [tree(folder) for folder in folders]
    with pylogseg.Broker(above=folders) as server, RawClient(server.bootstrap_servers) as client:
        for topic in server.topics:
            ends = [served.log().log_end_offset for served in server.catalog.topics[topic].partitions.values()]
            row = produced(client, topic, batch(b"new"))
            if topic.startswith("__"):
                assert row["errorCode"] == codes.INVALID_TOPIC
            else:
                assert (row["errorCode"], row["baseOffset"]) == (0, ends[0])
    assert [tree(folder) for folder in folders] == before


def test_the_command(copy: Path) -> None:
    command = [sys.executable, "-m", "pylogseg", "broker", "--above", str(copy), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "what is written is kept in memory" in said
        address = said.split(" at ")[1].split(",")[0]
        with RawClient(address) as client:
            assert produced(client, "codec-zstd", batch(b"x"))["baseOffset"] == 505
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_server_without_it_refuses(copy: Path) -> None:
    with pylogseg.serve(copy) as server, RawClient(server.bootstrap_servers) as client:
        assert produced(client, "codec-zstd", batch(b"x"))["errorCode"] == codes.POLICY_VIOLATION
        offered: Any = client.ask(18, 3, {"clientSoftwareName": "raw", "clientSoftwareVersion": "1"})["apiKeys"]
        assert not {19, 20, 26} & {each["apiKey"] for each in offered}


def test_it_needs_directories_of_this_machine(tmp_path: Path) -> None:
    for url in ("s3://bucket/prefix", "aiven+file:///tier"):
        for options in ({"above": url}, {"path": url}, {"above": [tmp_path, url]}):
            with pytest.raises(RequestError, match="directories of this machine"):
                pylogseg.Broker(**options)
    with pytest.raises(RequestError, match="name one of them"):
        pylogseg.Broker(tmp_path / "own", above=DATA)
    assert not (tmp_path / "own").exists()


def test_groups_stand_where_they_stood(copy: Path) -> None:
    """In the copy, until they commit; so it is again after a `reset`."""
    with pylogseg.serve(copy, group_offsets=True) as server, RawClient(server.bootstrap_servers) as client:
        group = client.ask(16, 4, {})["groups"][0]["groupId"]
        (row,) = client.ask(9, 8, {"groups": [{"groupId": group, "topics": None}]})["groups"]
    wanted = {(each["name"], one["partitionIndex"]): one["committedOffset"]
              for each in row["topics"] for one in each["partitions"]}  # fmt: skip
    with pylogseg.Broker(above=copy) as broker:
        assert wanted == broker.committed(group) != {}
        broker.produce("made", b"x")
        with RawClient(broker.bootstrap_servers) as client:
            rows = [{"partitionIndex": 0, "committedOffset": 7, "committedMetadata": ""}]
            asked = {
                "groupId": group,
                "generationIdOrMemberEpoch": -1,
                "topics": [{"name": "made", "partitions": rows}],
            }
            assert client.ask(8, 7, asked)["topics"][0]["partitions"][0]["errorCode"] == 0
        assert broker.committed(group) == {**wanted, ("made", 0): 7}
        broker.reset()
        assert broker.committed(group) == wanted
        assert "made" not in broker.topics


def test_it_asks_for_a_login(copy: Path) -> None:
    """What says who may connect holds for a server that is written to."""
    security = pylogseg.Security(users={"alice": "secret"})
    with pylogseg.Broker(above=copy, security=security) as server:
        _needs_login(server)
    with pylogseg.Broker(security=security) as broker:
        _needs_login(broker)


def _needs_login(server: pylogseg.Server) -> None:
    with RawClient(server.bootstrap_servers) as stranger:
        stranger.send(3, 9, {"topics": None})
        assert stranger.is_closed()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice"}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap_servers, "sasl.password": "secret", **login}
    )
    producer.produce("made", b"one")
    assert producer.flush(PATIENCE_S) == 0
    assert server.catalog.topics["made"].partitions[0].log().log_end_offset == 1
