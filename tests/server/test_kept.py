"""Tests of server/writing/directory.py. What clients make a server keep, by many small requests, is bounded in bytes,
for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.kafka_clients import RawClient
from helpers.servers import topics_of

import pylogseg
from pylogseg.format.messages import codes
from pylogseg.server.writing.journal import TransactionsJournal
from pylogseg.server.writing.transactions import EXPIRATION_MS, ProducerIdAndEpoch, Transaction, TransactionState

DAY_S = 24 * 60 * 60.0


@pytest.fixture
def broker() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(topics={"one": 4}) as found:
        yield found


def joined(client: RawClient, group: str, metadata: bytes = b"", name: str = "range") -> int:
    asked = {"groupId": group, "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 600_000, "protocolType": "consumer",
             "protocols": [{"name": name, "metadata": metadata}]}  # fmt: skip
    return int(client.ask(11, 3, asked)["errorCode"])


def test_metadata_of_members(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.group_coordinator.MOST_MEMBER_BYTES", 100_000)
    assert [joined(client, f"g{number}", bytes(30_000)) for number in range(4)] == [
        0,
        0,
        0,
        codes.GROUP_MAX_SIZE_REACHED,
    ]
    assert joined(client, "small", bytes(1000)) == 0
    assert joined(client, "names", name="n" * 30_000) == codes.GROUP_MAX_SIZE_REACHED
    beat = {"memberId": "m", "memberEpoch": 0, "rebalanceTimeoutMs": 10_000, "topicPartitions": []}
    names = [f"{number:0100d}" for number in range(300)]
    full = client.ask(68, 0, {"groupId": "new", **beat, "subscribedTopicNames": names})
    assert full["errorCode"] == codes.GROUP_MAX_SIZE_REACHED


def test_metadata_of_members_that_are_gone(
    broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylogseg.server.group_coordinator.MOST_MEMBER_BYTES", 100_000)
    assert [joined(client, f"g{number}", bytes(30_000)) for number in range(3)] == [0, 0, 0]
    broker.clock.advance(601.0)
    client.ask(15, 0, {"groups": [f"g{number}" for number in range(3)]})  # whoever looks sees that they are gone
    assert joined(client, "g9", bytes(30_000)) == 0


def test_expressions_of_subscriptions(client: RawClient) -> None:
    asked = {"groupId": "g", "memberId": "m", "memberEpoch": 0, "rebalanceTimeoutMs": 10_000, "topicPartitions": [],
             "subscribedTopicNames": None}  # fmt: skip
    long = client.ask(68, 1, {**asked, "subscribedTopicRegex": r"\pL" * 10_000})
    assert long["errorCode"] == codes.INVALID_REGULAR_EXPRESSION
    assert "has 30000 bytes, 2048 are allowed" in long["errorMessage"]
    assert client.ask(68, 1, {**asked, "subscribedTopicRegex": "(a"})["errorCode"] == codes.INVALID_REGULAR_EXPRESSION
    found = client.ask(68, 1, {**asked, "subscribedTopicRegex": "o.e"})
    assert len(found["assignment"]["topicPartitions"][0]["partitions"]) == 4


def test_offsets_of_groups(broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.committed.MOST_OFFSET_BYTES", 30_000)

    def commit(group: str, number: int = 0, text: str = "m" * 4096) -> int:
        row = {"partitionIndex": number, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": text}
        topic = {"name": "one", "partitions": [row]}
        asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": [topic]}
        return int(client.ask(8, 7, asked)["topics"][0]["partitions"][0]["errorCode"])

    assert [commit(f"g{number}") for number in range(6)] == 6 * [0]
    assert commit("g6") == codes.INVALID_COMMIT_OFFSET_SIZE
    assert commit("g5", text="n" * 4096) == 0, "in the place of another"
    assert client.ask(42, 2, {"groupsNames": ["g5"]})["results"][0]["errorCode"] == 0
    assert commit("g6") == 0


def test_partitions_of_fetch_sessions(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.sessions.MOST_PARTITIONS", 10)

    def fetch(session: int, epoch: int, numbers: range) -> tuple[int, int]:
        rows = [{"partition": number, "partitionMaxBytes": 1} for number in numbers]
        found = client.ask(1, 11, {"sessionId": session, "sessionEpoch": epoch,
                                   "topics": [{"topic": "one", "partitions": rows}]})  # fmt: skip
        return found["errorCode"], found["sessionId"]

    error, first = fetch(0, 0, range(6))
    assert error == 0
    assert first
    assert fetch(0, 0, range(6)) == (0, 0), "it is answered without a session"
    assert fetch(first, 1, range(6, 9)) == (0, first)
    assert fetch(first, 2, range(9, 12)) == (codes.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert fetch(0, 0, range(6))[1]


def init(client: RawClient, name: str) -> int:
    asked = {"transactionalId": name, "transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": -1}
    return int(client.ask(22, 4, asked)["errorCode"])


def test_transactional_ids_expire(tmp_path: Path) -> None:
    """An id that is unused for seven days is forgotten, also by a process that starts then."""
    with pylogseg.Broker(tmp_path / "own", topics={"one": 1}) as broker, RawClient(broker.bootstrap_servers) as client:
        assert init(client, "first") == 0
        broker.clock.advance(4 * DAY_S)
        assert init(client, "second") == 0
        broker.clock.advance(4 * DAY_S)
        journal = TransactionsJournal(topics_of(broker))
        assert set(journal.load()) == {"second"}
        now_ms = broker.clock.now_ms()
        for name, state in (("old", TransactionState.COMPLETE_COMMIT), ("new", TransactionState.EMPTY)):
            updated_ms = 1 if name == "old" else now_ms
            journal.note(Transaction(name, ProducerIdAndEpoch(7, 1), 1000, state, updated_ms=updated_ms))
    with pylogseg.Broker(tmp_path / "own") as broker, RawClient(broker.bootstrap_servers) as client:
        assert set(TransactionsJournal(topics_of(broker)).load()) == {"second", "new"}


def test_transactional_ids_are_bounded(
    broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylogseg.server.writing.transaction_coordinator.MOST_IDS", 3)
    assert [init(client, f"t{number}") for number in range(4)] == [0, 0, 0, codes.POLICY_VIOLATION]
    assert init(client, "t1") == 0
    broker.clock.advance(EXPIRATION_MS / 1000)
    assert init(client, "t3") == 0
