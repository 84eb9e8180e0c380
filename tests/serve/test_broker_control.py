"""What a test does to a broker: errors, a pause, a clock that moves, requests; and the fixture of pytest."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.messages.schema import Field
from pylogseg.server import codes
from pylogseg.server.wire import NO_ID, request_of
from pylogseg.server.writing.handlers import WRITING

ROOT = Path(__file__).resolve().parents[2]
TOPICS = {"one": 1}


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
    with pytest.raises(RequestError, match=r"'Prodce' is no request.*Produce"):
        broker.fail("Prodce", 1)
    with pytest.raises(RequestError, match=r"'NO_SUCH' is no error.*NOT_ENOUGH_REPLICAS"):
        broker.fail("Produce", "NO_SUCH")
    with pytest.raises(RequestError, match="at least 1"):
        broker.fail("Produce", 1, times=0)


def example(field: Field, version: int) -> Any:
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


@pytest.mark.parametrize("key", sorted(WRITING.handlers))
def test_every_request_can_fail(broker: pylogseg.Broker, client: RawClient, key: int) -> None:
    """In every version the answer holds the error, and for each part that was asked for."""
    of = request_of(key)
    assert of is not None
    _, first, last = WRITING.offered[key]
    for version in range(max(first, of.versions.first), last + 1):
        broker.fail(of.name.removesuffix("Request"), 89)
        values = {field.name: example(field, version) for field in of.fields if field.is_in(version)}
        found = errors(client.ask(key, version, values))
        if (key, version) not in {(9, 1), *((1, each) for each in range(4, 7))}:
            assert 89 in found, f"version {version}"
        assert found <= {0, 89}


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
    broker.catalog.configure(broker.catalog.topics["one"], {"message.timestamp.type": "LogAppendTime"})
    first = produced(client, "one", batch(b"x"))["logAppendTimeMs"]
    broker.clock.advance(3600)
    second = produced(client, "one", batch(b"y"))["logAppendTimeMs"]
    assert 3_600_000 <= second - first < 3_600_000 + PATIENCE_S * 1000
    with pytest.raises(RequestError, match="ahead only"):
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
"""


def test_the_fixture(tmp_path: Path) -> None:
    """It costs nothing where it is not used: the plugin alone imports nothing of this package."""
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ["-p", "pytest_pylogseg", "-p", "no:cacheprovider", "--strict-markers", "-q", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    found = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path, env=env)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "3 passed" in found.stdout
