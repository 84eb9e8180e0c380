"""Tests of server/fetching.py, server/offsets.py and server/sessions.py. Rules of fetch, by single requests: sizes,
epochs, isolation, sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import RawClient

import pylogseg
from pylogseg.format.batches import scan
from pylogseg.server.sessions import MOST_SESSIONS, FetchSessions

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
LATEST = 18


@pytest.fixture
def client(server: pylogseg.Server) -> Iterator[RawClient]:
    with RawClient(server.bootstrap_servers) as found:
        yield found


def wanted(server: pylogseg.Server, topic: str, number: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    row = {"partition": number, "fetchOffset": offset, "partitionMaxBytes": 1 << 20, **more}
    return {"topic": topic, "topicId": server.catalog.topics[topic].id, "partitions": [row]}


def fetched(client: RawClient, topics: list[dict[str, Any]], version: int = LATEST, **more: Any) -> dict[str, Any]:
    asked = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics, **more}
    return client.ask(1, version, asked)


def rows_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for topic in answer["responses"] for row in topic["partitions"]]


def only(answer: dict[str, Any]) -> dict[str, Any]:
    (row,) = rows_of(answer)
    return row


# ---- sizes ----


@pytest.mark.parametrize("version", range(4, LATEST + 1))
def test_bytes_are_those_of_the_file(server: pylogseg.Server, client: RawClient, version: int) -> None:
    path = next(iter(sorted((DATA / "codec-gzip-0").glob("*.log"))))
    row = only(fetched(client, [wanted(server, "codec-gzip")], version))
    assert bytes(row["records"]) == path.read_bytes()
    assert (row["highWatermark"], row["lastStableOffset"], row["errorCode"]) == (505, 505, 0)


def test_every_offset_gives_the_batch_that_holds_it(server: pylogseg.Server, client: RawClient) -> None:
    """Those in the gaps of a compacted log, too: there the next batch comes."""
    whole = [scan(path.read_bytes()).batches for path in sorted((DATA / "cmp-short-0").glob("*.log"))]
    batches = [
        (base, last)
        for table in whole
        for base, last in zip(table.base_offset.tolist(), table.last_offset.tolist(), strict=True)
    ]
    for offset in range(0, 1965, 7):
        row = only(fetched(client, [wanted(server, "cmp-short", offset=offset, partitionMaxBytes=1)]))
        following = next((each for each in batches if each[1] >= offset), None)
        found = scan(bytes(row["records"])).batches
        assert row["errorCode"] == 0
        assert [(int(each["base_offset"]), int(each["last_offset"])) for each in found.rows] == (
            [] if following is None else [following]
        )


def test_the_first_batch_fits_always_and_others_have_to(server: pylogseg.Server, client: RawClient) -> None:
    topics = [wanted(server, name, partitionMaxBytes=10) for name in ("codec-gzip", "codec-zstd", "levels")]
    first, *others = rows_of(fetched(client, topics))
    assert len(scan(bytes(first["records"])).batches) == 1
    assert [bytes(row["records"]) for row in others] == [b"", b""]
    topics[0]["partitions"][0]["fetchOffset"] = 505  # nothing is there, so the second is the first that has anything
    first, second, third = rows_of(fetched(client, topics))
    assert [len(row["records"]) > 0 for row in (first, second, third)] == [False, True, False]


def test_the_limit_is_that_of_the_answer(server: pylogseg.Server, client: RawClient) -> None:
    topics = [wanted(server, name) for name in ("codec-gzip", "codec-zstd", "codec-none")]
    alone = len(only(fetched(client, topics[:1]))["records"])
    rows = rows_of(fetched(client, topics, maxBytes=alone))
    assert [len(row["records"]) > 0 for row in rows] == [True, False, False]


@pytest.mark.parametrize(("offset", "code"), [(122, 1), (123, 0), (480, 0), (481, 1)])
def test_range(server: pylogseg.Server, client: RawClient, offset: int, code: int) -> None:
    row = only(fetched(client, [wanted(server, "del-records", offset=offset)]))
    assert row["errorCode"] == code
    ends = [row[name] for name in ("logStartOffset", "highWatermark", "lastStableOffset")]
    assert ends == ([-1, -1, -1] if code else [123, 480, 480])


# ---- names, epochs, isolation ----


def test_errors_of_partitions(server: pylogseg.Server, client: RawClient) -> None:
    unknown = {"topic": "nothing", "topicId": b"x" * 16, "partitions": [{"partition": 0}]}
    assert only(fetched(client, [unknown], 12))["errorCode"] == 3
    assert only(fetched(client, [unknown], 13))["errorCode"] == 100
    assert only(fetched(client, [wanted(server, "codec-gzip", 9)]))["errorCode"] == 3
    assert only(fetched(client, [wanted(server, "codec-lz4", 0)]))["errorCode"] == 6
    for row in rows_of(fetched(client, [unknown, wanted(server, "codec-gzip", 9)])):
        assert row["records"] is not None, "librdkafka takes null for a broken answer"
        assert (row["highWatermark"], row["abortedTransactions"]) == (-1, None)


def test_epochs(server: pylogseg.Server, client: RawClient) -> None:
    answer = fetched(client, [wanted(server, "cmp-short", currentLeaderEpoch=5)])
    row = only(answer)
    assert (row["errorCode"], row["currentLeader"]) == (74, {"leaderId": 1, "leaderEpoch": 6})
    assert [each["nodeId"] for each in answer["nodeEndpoints"]] == [1]
    assert only(fetched(client, [wanted(server, "cmp-short", currentLeaderEpoch=7)]))["errorCode"] == 75
    assert only(fetched(client, [wanted(server, "cmp-short", currentLeaderEpoch=6)]))["errorCode"] == 0
    behind = only(fetched(client, [wanted(server, "cmp-short", offset=1900, lastFetchedEpoch=0)]))
    assert behind["divergingEpoch"]["epoch"] == 0
    assert behind["divergingEpoch"]["endOffset"] < 1900
    assert bytes(behind["records"]) == b""


def test_the_epoch_of_a_log_without_records(tmp_path: Path) -> None:
    """It is the leader's, for each of its ends; a broker says the same."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{7:020}.log").touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n6 7\n")
    with pylogseg.serve(tmp_path) as server, RawClient(server.bootstrap_servers) as client:
        for timestamp in (-1, -2, -4):
            asked = {"name": "orders", "partitions": [{"partitionIndex": 0, "timestamp": timestamp}]}
            (row,) = client.ask(2, 8, {"replicaId": -1, "topics": [asked]})["topics"][0]["partitions"]
            assert (row["errorCode"], row["offset"], row["leaderEpoch"]) == (0, 7, 6), timestamp


def test_ends_of_epochs(server: pylogseg.Server, client: RawClient) -> None:
    """As the file says: an epoch ends where the next begins."""
    lines = (DATA / "cmp-short-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:]
    entries = [tuple(map(int, line.split())) for line in lines if line]
    for (epoch, _), (_, end) in zip(entries, [*entries[1:], (0, 1965)], strict=True):
        for version in (2, 3, 4):
            asked = {"topic": "cmp-short", "partitions": [{"partition": 0, "leaderEpoch": epoch}]}
            row = client.ask(23, version, {"topics": [asked]})["topics"][0]["partitions"][0]
            assert (row["errorCode"], row["leaderEpoch"], row["endOffset"]) == (0, epoch, end)
    asked = {"topic": "cmp-short", "partitions": [{"partition": 0, "leaderEpoch": 99}]}
    row = client.ask(23, 4, {"topics": [asked]})["topics"][0]["partitions"][0]
    assert (row["errorCode"], row["leaderEpoch"], row["endOffset"]) == (0, -1, -1)


def test_isolation(server: pylogseg.Server, client: RawClient) -> None:
    """Without isolation there is no list of aborted transactions, with it there is one, empty or not."""
    assert only(fetched(client, [wanted(server, "txn-a")]))["abortedTransactions"] is None
    row = only(fetched(client, [wanted(server, "txn-a")], isolationLevel=1))
    assert row["abortedTransactions"]
    assert (row["highWatermark"], row["lastStableOffset"]) == (148, 141)
    assert int(scan(bytes(row["records"])).batches.last_offset[-1]) < 141
    assert only(fetched(client, [wanted(server, "levels")], isolationLevel=1))["abortedTransactions"] == []


def test_what_is_not_for_replicas(server: pylogseg.Server, client: RawClient) -> None:
    assert fetched(client, [wanted(server, "levels")], 11, replicaId=2)["errorCode"] == 42
    state = {"replicaId": 2, "replicaEpoch": 1}
    assert fetched(client, [wanted(server, "levels")], 15, replicaState=state)["errorCode"] == 42


# ---- sessions ----


def test_a_session_tells_what_is_new(server: pylogseg.Server, client: RawClient) -> None:
    names = ("levels", "codec-gzip", "timestamps")
    topics = [wanted(server, name, offset=350 if name != "codec-gzip" else 505) for name in names]
    first = fetched(client, topics, sessionEpoch=0)
    number = first["sessionId"]
    assert number > 0
    assert len(rows_of(first)) == 3
    assert rows_of(fetched(client, [], sessionId=number, sessionEpoch=1)) == []
    moved = [wanted(server, "levels", offset=0)]
    second = fetched(client, moved, sessionId=number, sessionEpoch=2)
    assert [topic["topicId"] for topic in second["responses"]] == [moved[0]["topicId"]]
    third = fetched(client, [wanted(server, "levels", offset=99_999)], sessionId=number, sessionEpoch=3)
    assert only(third)["errorCode"] == 1
    fourth = fetched(client, [wanted(server, "levels", offset=350)], sessionId=number, sessionEpoch=4)
    assert only(fourth)["errorCode"] == 0, "that an error is over is told"
    gone = [{"topicId": server.catalog.topics[name].id, "topic": name, "partitions": [0]} for name in names]
    last = fetched(client, [], sessionId=number, sessionEpoch=5, forgottenTopicsData=gone)
    assert (last["sessionId"], last["responses"]) == (0, [])
    assert fetched(client, [], sessionId=number, sessionEpoch=6)["errorCode"] == 70


def test_sessions_that_are_wrong(server: pylogseg.Server, client: RawClient) -> None:
    topics = [wanted(server, "levels")]
    number = fetched(client, topics, sessionEpoch=0)["sessionId"]
    assert fetched(client, [], sessionId=number, sessionEpoch=7)["errorCode"] == 71
    assert fetched(client, [], 12, sessionId=number, sessionEpoch=1)["errorCode"] == 106
    assert fetched(client, [], sessionId=number + 1, sessionEpoch=1)["errorCode"] == 70
    closed = fetched(client, topics, sessionId=number, sessionEpoch=-1)
    assert (closed["sessionId"], closed["errorCode"], len(rows_of(closed))) == (0, 0, 1)
    assert fetched(client, [], sessionId=number, sessionEpoch=1)["errorCode"] == 70
    assert fetched(client, topics, sessionEpoch=-1)["sessionId"] == 0


def values(count: int, session: int = 0, epoch: int = 0) -> dict[str, Any]:
    row = {"fetchOffset": 0, "partitionMaxBytes": 1, "currentLeaderEpoch": -1, "lastFetchedEpoch": -1}
    topic = {
        "topic": "t",
        "topicId": b"t" * 16,
        "partitions": [{**row, "partition": each} for each in range(count)],
    }
    return {"sessionId": session, "sessionEpoch": epoch, "topics": [topic], "forgottenTopicsData": []}


def test_room_for_sessions() -> None:
    """A full cache gives none to a smaller client, unless somebody was idle for two minutes."""
    now = [0.0]
    sessions = FetchSessions(3, lambda: now[0])
    first = [sessions.begin(values(2), 13).number for _ in range(3)]
    assert all(first)
    assert sessions.begin(values(2), 13).number == 0
    assert sessions.begin(values(5), 13).number > 0
    now[0] = 121.0
    assert sessions.begin(values(1), 13).number > 0
    assert len(sessions) == 3
    assert MOST_SESSIONS == 1000


def test_the_number_of_a_round_begins_again() -> None:
    sessions = FetchSessions()
    turn = sessions.begin(values(1), 13)
    assert turn.session is not None
    turn.session.epoch = 2**31 - 1
    assert sessions.begin(values(1, turn.number, 2**31 - 1), 13).error == 0
    assert sessions.begin(values(1, turn.number, 1), 13).error == 0
