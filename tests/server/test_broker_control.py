"""Tests of server/writing/clock.py, server/writing/control.py and server/writing/failures.py. What a test does to a
broker: errors, a pause, a clock that moves, requests; and the fixture of pytest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kafka
import pytest
from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced
from helpers.servers import topics_of

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.kafka_table import errors as errors_of_kafka
from pylogseg.format.messages import codes
from pylogseg.format.messages.schema import MessageField
from pylogseg.format.messages.wire import NO_ID, request_of
from pylogseg.server.writing.control import _depth
from pylogseg.server.writing.handlers import WRITING

confluent_kafka = pytest.importorskip("confluent_kafka")

ROOT = Path(__file__).resolve().parents[2]
TOPICS = {"one": 1}
COUNTS = (("one", 1), ("two", 2))


# ---- failures ----


def test_a_producer_tries_again(broker: pylogseg.Broker) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce("one", b"x")
    assert producer.flush(PATIENCE_S) == 0
    assert [row[5] for row in assigned(broker, "one")] == [b"x"]
    assert [each.api for each in broker.requests].count("Produce") == 3


def test_a_producer_gives_up(broker: pylogseg.Broker) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("one", b"x").get(PATIENCE_S)
    assert producer.send("one", b"y").get(PATIENCE_S).offset == 0
    producer.close()


def test_a_connection_is_closed(broker: pylogseg.Broker) -> None:
    broker.disconnect("Metadata", times=2)
    for _ in range(2):
        with RawClient(broker.bootstrap_servers) as client:
            client.send(3, 9, {"topics": None})
            assert client.is_closed()
    with RawClient(broker.bootstrap_servers) as client:
        assert [each["name"] for each in client.ask(3, 9, {"topics": None})["topics"]] == ["one"]


def test_failures_are_counted_and_forgotten(broker: pylogseg.Broker, client: RawClient) -> None:
    def ask() -> int:
        return int(client.ask(22, 4, {"transactionalId": None})["errorCode"])

    broker.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    broker.fail("initproducerid", 41)
    assert [ask() for _ in range(4)] == [14, 14, 41, 0]
    broker.fail("InitProducerId", 41, times=5)
    assert ask() == 41
    broker.heal()
    assert ask() == 0


def test_names_that_do_not_exist(broker: pylogseg.Broker) -> None:
    with pytest.raises(RequestError, match=r"'Prodce' is not a request.*Produce"):
        broker.fail("Prodce", 1)
    for error in ("NO_SUCH", "NONE", 0, 9999, -2):
        with pytest.raises(RequestError, match="is not an error of Kafka's: "):
            broker.fail("Produce", error)
    with pytest.raises(RequestError, match="did you mean NOT_ENOUGH_REPLICAS"):
        broker.fail("Produce", "NOT_ENOUGH_REPLICA")
    with pytest.raises(RequestError, match="at least 1"):
        broker.fail("Produce", 1, times=0)
    with pytest.raises(RequestError, match="JoinGroup has no errors of single topics"):
        broker.fail("JoinGroup", 1, topic="one")
    with pytest.raises(RequestError, match="Metadata has no errors of single partitions"):
        broker.fail("Metadata", 1, topic="one", partition=0)
    with pytest.raises(RequestError, match="needs a topic"):
        broker.fail("Produce", 1, partition=0)
    with pytest.raises(RequestError, match="Produce names no group"):
        broker.fail("Produce", 1, group="g")
    with pytest.raises(RequestError, match="a number of seconds"):
        broker.delay("Produce", -1)


def test_kafkas_names_of_errors(broker: pylogseg.Broker, client: RawClient) -> None:
    """All of them, and those by which this server answers are of Kafka's numbers."""
    ours = {name: code for name, code in vars(codes).items() if name.isupper() and isinstance(code, int)}
    ours |= {"NOT_LEADER_OR_FOLLOWER": ours.pop("NOT_LEADER"), "INVALID_TOPIC_EXCEPTION": ours.pop("INVALID_TOPIC")}
    assert ours.items() <= errors_of_kafka().items()
    for name in ("INVALID_FETCH_SIZE", "STREAMS_INVALID_TOPOLOGY", "UNKNOWN_SERVER_ERROR"):
        broker.fail("InitProducerId", name)
        assert client.ask(22, 4, {"transactionalId": None})["errorCode"] == errors_of_kafka()[name]


def example(field: MessageField, version: int) -> Any:
    """Return a value of a field that no server takes for nothing."""
    if field.type == "struct":
        inner = {each.name: example(each, version) for each in field.fields if each.is_in(version)}
        return [inner] if field.is_list else inner
    value: Any = {"string": "one", "bytes": b"", "records": batch(b"x"), "uuid": NO_ID, "bool": False}.get(
        field.type, 1
    )
    return [value] if field.is_list else value


def errors(value: Any) -> set[int]:
    if isinstance(value, dict):
        own = {each for name, each in value.items() if name in ("errorCode", "partitionErrorCode")}
        return own.union(*map(errors, value.values()))
    return set().union(*map(errors, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("key", sorted(WRITING.apis))
def test_every_request_can_fail(broker: pylogseg.Broker, client: RawClient, key: int) -> None:
    """In every version the answer holds the error, and for each part that was asked for."""
    of = request_of(key)
    assert of is not None
    first, last = WRITING.offered[key]
    for version in range(max(first, of.versions.first), last + 1):
        broker.fail(of.name.removesuffix("Request"), 89)
        values = {field.name: example(field, version) for field in of.fields if field.is_in(version)}
        found = errors(client.ask(key, version, values))
        if (key, version) not in {(9, 1), *((1, each) for each in range(4, 7))}:
            assert 89 in found, f"version {version}"
        assert found <= {0, 89}


NUMBERS = {"index", "partition", "partitionIndex", "partitionId"}


def of_topics(broker: pylogseg.Broker, key: int, row: Any) -> list[Any]:
    """Return rows of a request, or names, for topic one with a partition, and for topic two with two."""
    if isinstance(row, str):
        return [topic for topic, _ in COUNTS]
    found = []
    for topic, count in COUNTS:
        named = {name: topic for name in ("name", "topic") if name in row}
        named |= {} if "topicId" not in row else {"topicId": NO_ID if named else broker.catalog.topics[topic].id}
        for inner in {rows.request for rows in WRITING.apis[key].rows[1:]}:
            one = row[inner][0]
            named[inner] = [
                i if isinstance(one, int) else {**one, **dict.fromkeys(NUMBERS & one.keys(), i)} for i in range(count)
            ]
        found.append({**row, **named})
    return found


def errors_of_topics(broker: pylogseg.Broker, key: int, answer: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return the errors in an answer by topic and partition, which is 0 where topics alone have errors."""
    found, rows = {}, WRITING.apis[key].rows
    for row in answer[rows[0].answer]:
        topic = row.get("name") or row.get("topic") or broker.catalog.by_id[row["topicId"]].name
        for each in row[rows[1].answer] if rows[1:] else [row]:
            numbers = [each[name] for name in NUMBERS if name in each]
            assert (topic, *numbers) not in found
            found[topic, sum(numbers)] = each[rows[-1].error]
    return found


@pytest.mark.parametrize("key", [key for key, api in sorted(WRITING.apis.items()) if _depth(api) and key != 1])
def test_a_topic_fails_alone(broker: pylogseg.Broker, client: RawClient, key: int) -> None:
    """Of every request with topics one fails, or a partition of one, in every version; the rest is answered as ever."""
    of = request_of(key)
    assert of is not None
    broker.create_topic("two", 2)
    offset = [{"name": "one", "partitions": [{"partitionIndex": 0, "committedOffset": 0}]}]
    for version in range(of.versions.first, WRITING.offered[key].last + 1):
        for partition in (None, 1)[: _depth(WRITING.apis[key])]:
            values = {field.name: example(field, version) for field in of.fields if field.is_in(version)}
            asked = WRITING.apis[key].rows_of(version)[0].request
            values[asked] = of_topics(broker, key, values[asked][0])
            group = values.get("groupId", "g")  # there is such a group
            client.ask(8, 9, {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": offset})
            broker.fail(of.name.removesuffix("Request"), 89, topic="two", partition=partition)
            found = errors_of_topics(broker, key, client.ask(key, version, values))
            meant = {place for place in found if place[0] == "two" and partition in (None, place[1])}
            assert {place for place, code in found.items() if code == 89} == meant != set()
            assert len(found) == (3 if _depth(WRITING.apis[key]) == 2 else 2)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_a_partition_of_a_fetch_fails(broker: pylogseg.Broker, client: RawClient, version: int) -> None:
    """By its name or its id, at once, and in a session that has named it before."""
    broker.create_topic("two", 2)
    broker.produce("one", b"x")
    ids = {name: each.id for name, each in broker.catalog.topics.items()}

    def fetch(session: int, epoch: int, **more: Any) -> dict[tuple[str, int], tuple[int, bool]]:
        rows = [{"partition": i, "fetchOffset": 0, "partitionMaxBytes": 1000} for i in range(2)]
        topics = [{"topic": name, "topicId": ids[name], "partitions": rows[:count]} for name, count in COUNTS]
        wait = {"maxWaitMs": 0 if not epoch else 600_000, "minBytes": 1, "maxBytes": 1000}
        answer = client.ask(1, version, {"sessionId": session, "sessionEpoch": epoch, **wait, "topics": topics, **more})
        nonlocal number
        number = answer.get("sessionId", 0)
        names = {each: name for name, each in ids.items()}
        return {
            (row.get("topic") or names[row["topicId"]], each["partitionIndex"]): (
                each["errorCode"],
                bool(each["records"]),
            )
            for row in answer["responses"]
            for each in row["partitions"]
        }

    number = 0
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="two", partition=1)
    assert fetch(0, 0) == {("one", 0): (0, True), ("two", 0): (0, False), ("two", 1): (6, False)}
    if version >= 7:
        broker.fail("Fetch", "KAFKA_STORAGE_ERROR", topic="two")
        assert fetch(number, 1, topics=[])["two", 0] == (56, False)
    assert [each.values["topics"][0]["topic"] for each in broker.requests if each.values["topics"]] == ["one"]


def test_a_group_fails_alone(broker: pylogseg.Broker, client: RawClient) -> None:
    def found(group: str) -> list[int]:
        beat = client.ask(12, 2, {"groupId": group, "generationId": 1, "memberId": "m"})
        offsets = client.ask(9, 8, {"groups": [{"groupId": group, "topics": None}]})["groups"][0]
        described = client.ask(15, 4, {"groups": [group]})["groups"][0]
        return [each["errorCode"] for each in (beat, offsets, described)]

    usual = found("a")
    assert 14 not in usual
    for api in ("Heartbeat", "OffsetFetch", "DescribeGroups"):
        broker.fail(api, "COORDINATOR_LOAD_IN_PROGRESS", group="b")
    assert (found("a"), found("b"), found("b")) == (usual, [14] * 3, usual)


def test_a_delay(broker: pylogseg.Broker, client: RawClient) -> None:
    """The request is looked at when the time is over; others are not held up."""
    broker.delay("Produce", 600)
    with RawClient(broker.bootstrap_servers) as other:
        other.send(0, 9, {"acks": -1, "timeoutMs": 1000, "topicData": []})
        wait_for(lambda: broker.requests)
        assert produced(client, "one", batch(b"x"))["errorCode"] == 0
    broker.delay("InitProducerId", 0.01)
    assert client.ask(22, 4, {"transactionalId": None})["errorCode"] == 0
    broker.delay("InitProducerId", 600)
    broker.heal()
    assert client.ask(22, 4, {"transactionalId": None})["errorCode"] == 0


def fetched(topic: str, number: int) -> tuple[int, int, dict[str, Any]]:
    rows = [{"partition": number, "fetchOffset": 0, "partitionMaxBytes": 1000}]
    return 1, 11, {"maxWaitMs": 0, "maxBytes": 1000, "topics": [{"topic": topic, "partitions": rows}]}


def sent(topic: str, number: int) -> tuple[int, int, dict[str, Any]]:
    rows = [{"name": topic, "partitionData": [{"index": number, "records": batch(b"x")}]}]
    return 0, 9, {"acks": -1, "timeoutMs": 1000, "topicData": rows}


def beat(group: str) -> tuple[int, int, dict[str, Any]]:
    return 12, 3, {"groupId": group, "memberId": "m"}


NAMED = [
    ("Produce", {"topic": "two"}, sent("two", 1), sent("one", 0)),
    ("Produce", {"topic": "two", "partition": 1}, sent("two", 1), sent("two", 0)),
    ("Fetch", {"topic": "two"}, fetched("two", 1), fetched("one", 0)),
    ("Fetch", {"topic": "two", "partition": 1}, fetched("two", 1), fetched("two", 0)),
    ("Heartbeat", {"group": "a"}, beat("a"), beat("b")),
]


@pytest.mark.parametrize(("api", "named", "meant", "other"), NAMED)
def test_a_delay_and_a_lost_connection_are_for_what_they_name(
    broker: pylogseg.Broker, client: RawClient, api: str, named: dict[str, Any], meant: Any, other: Any
) -> None:
    """As errors are: one rule for the three."""
    broker.create_topic("two", 2)
    broker.disconnect(api, **named)
    client.ask(*other)
    with RawClient(broker.bootstrap_servers) as lost:
        lost.send(*meant)
        assert lost.is_closed()
    client.ask(*meant)
    broker.delay(api, 0.3, **named)
    started = time.monotonic()
    client.ask(*meant)
    assert time.monotonic() - started >= 0.3
    broker.delay(api, 600, **named)
    client.ask(*other)
    broker.heal()
    client.ask(*meant)


@pytest.mark.parametrize(
    "ask", [lambda b, **n: b.delay("Produce", 1, **n), lambda b, **n: b.disconnect("Produce", **n)]
)
def test_what_no_request_names(broker: pylogseg.Broker, ask: Any) -> None:
    for named in ({"group": "g"}, {"partition": 0}):
        with pytest.raises(RequestError):
            ask(broker, **named)


def test_a_send_without_acks_fails(broker: pylogseg.Broker, client: RawClient) -> None:
    """The records are not there, and the connection ends, which is all that such a client can be told."""
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    asked = {"name": "one", "partitionData": [{"index": 0, "records": batch(b"x")}]}
    client.send(0, 9, {"acks": 0, "timeoutMs": 1000, "topicData": [asked]})
    assert client.is_closed()
    assert broker.records("one") == []


# ---- a pause, requests ----


def test_a_pause(broker: pylogseg.Broker, client: RawClient) -> None:
    broker.pause()
    client.send(3, 9, {"topics": None})
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.frame()
    client.socket.settimeout(PATIENCE_S)
    broker.resume()
    assert b"one" in client.frame()


def test_a_stop_in_a_pause() -> None:
    broker = pylogseg.Broker()
    with RawClient(broker.bootstrap_servers) as client:
        broker.pause()
        client.send(3, 9, {"topics": None})
        wait_for(lambda: broker.requests)
        broker.close()
        assert client.is_closed()


@pytest.mark.parametrize("kept", [False, True])
def test_a_start_ends_a_pause(kept: bool, tmp_path: Path) -> None:
    with pylogseg.Broker(tmp_path / "kafka" if kept else None) as broker:
        broker.create_topic("one")
        broker.pause()
        broker.stop()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            client.socket.settimeout(PATIENCE_S)
            client.send(3, 9, {"topics": None})
            assert b"one" in client.frame()


def test_the_list_of_requests(broker: pylogseg.Broker, client: RawClient) -> None:
    assert produced(client, "one", batch(b"x"), version=8)["errorCode"] == 0
    client.ask(18, 3, {"clientSoftwareName": "raw", "clientSoftwareVersion": "1"})
    first, second = broker.requests
    assert (first.api, first.version, first.client_id) == ("Produce", 8, "raw")
    (topic,) = first.values["topicData"]
    assert (topic["name"], topic["partitionData"]) == ("one", [{"index": 0, "records": len(batch(b"x"))}])
    assert second.api == "ApiVersions"
    broker.clear_requests()
    assert broker.requests == []


# ---- the clock ----


def joined(client: RawClient, member: str = "", session_ms: int = 10_000) -> dict[str, Any]:
    asked = {"groupId": "g", "sessionTimeoutMs": session_ms, "rebalanceTimeoutMs": 60_000, "memberId": member,
             "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    return client.ask(11, 3, asked)


def test_a_member_is_lost_when_the_clock_moves(broker: pylogseg.Broker, client: RawClient) -> None:
    first = joined(client, session_ms=120_000)
    asked = {"groupId": "g", "generationId": first["generationId"], "memberId": first["memberId"]}
    assigned_all = [{"memberId": first["memberId"], "assignment": b"x"}]
    assert client.ask(14, 2, {**asked, "assignments": assigned_all})["errorCode"] == 0
    broker.clock.advance(60)
    assert client.ask(12, 2, asked)["errorCode"] == 0
    broker.clock.advance(121)
    assert client.ask(12, 2, asked)["errorCode"] == codes.UNKNOWN_MEMBER_ID


def test_who_waits_sees_that_the_clock_moved(broker: pylogseg.Broker, client: RawClient) -> None:
    """A second member waits for the first to join again, until that one's time is over."""
    joined(client)
    with RawClient(broker.bootstrap_servers) as other:
        answers: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: answers.append(joined(other)), daemon=True)
        thread.start()
        thread.join(0.3)
        assert answers == []
        broker.clock.advance(61)
        thread.join(PATIENCE_S)
        assert answers[0]["errorCode"] == 0
        assert len(answers[0]["members"]) == 1


def test_the_clock_stamps_records(broker: pylogseg.Broker, client: RawClient) -> None:
    topics_of(broker).configure(broker.catalog.topics["one"], {"message.timestamp.type": "LogAppendTime"})
    first = produced(client, "one", batch(b"x"))["logAppendTimeMs"]
    broker.clock.advance(3600)
    second = produced(client, "one", batch(b"y"))["logAppendTimeMs"]
    assert 3_600_000 <= second - first < 3_600_000 + PATIENCE_S * 1000
    with pytest.raises(RequestError, match="only go forward"):
        broker.clock.advance(-1)


# ---- pytest ----

TESTS = """
import sys
import pytest

def test_nothing_is_loaded():
    assert not [name for name in sys.modules if name.split(".")[0] in ("pylogseg", "numpy", "pyarrow")]

@pytest.mark.kafka_broker(topics={"orders": 3})
def test_options(kafka_broker):
    assert kafka_broker.topics == ["orders"]

def test_another_one(kafka_broker):
    assert kafka_broker.topics == []
    assert kafka_broker.bootstrap_servers.startswith("127.0.0.1:")

@pytest.fixture(scope="session")
def kafka_broker_options():
    return {"topics": ["always"], "node_id": 9}

@pytest.fixture(scope="session")
def shop(kafka_broker_session):
    return kafka_broker_session.bootstrap_servers

@pytest.mark.parametrize("turn", range(2))
@pytest.mark.kafka_broker(topics={"orders": 2})
def test_shared(kafka_broker_shared, shop, turn):
    assert kafka_broker_shared.bootstrap_servers == shop
    assert kafka_broker_shared.catalog.node_id == 9
    assert kafka_broker_shared.topics == ["always", "orders"]
    kafka_broker_shared.produce("orders", b"x", partition=1)
    assert len(kafka_broker_shared.records("orders")) == 1

def test_shared_without_topics(kafka_broker_shared):
    assert kafka_broker_shared.topics == ["always"]

@pytest.mark.kafka_broker({"orders": 3})
def test_not_by_its_name(kafka_broker):
    pass

@pytest.mark.kafka_broker(auto_create=False)
def test_not_of_one_that_is_shared(kafka_broker_shared):
    pass
"""


def test_the_fixtures(tmp_path: Path) -> None:
    """They cost nothing where they are not used: the plugin alone imports nothing of this package."""
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ["-p", "pytest_pylogseg", "-p", "no:cacheprovider", "--strict-markers", "-q", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "", "PYTHONPATH": str(Path(pylogseg.__file__).parents[1])}
    found = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path, env=env)
    assert "6 passed, 2 errors" in found.stdout, found.stdout + found.stderr
    assert "takes options by their names, not {'orders': 3}" in found.stdout
    assert "auto_create: options of the broker that tests share" in found.stdout
