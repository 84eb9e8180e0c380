"""Tests of server/server.py. What one client may make the server keep: groups, members, and the texts they bring."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import wait_for
from helpers.kafka_clients import RawClient
from helpers.servers import reading

import pylogseg
from pylogseg.server.connection import Limits
from pylogseg.server.server import Server

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
COMMIT, JOIN, SYNC, LIST_GROUPS, BEAT = 8, 11, 14, 16, 68
INVALID_REQUEST, GROUP_MAX_SIZE_REACHED, MEMBER_ID_REQUIRED = 42, 81, 79
MOST = 1000


@pytest.fixture
def client() -> Iterator[RawClient]:
    with pylogseg.serve(DATA, topic="codec-*") as server, RawClient(server.bootstrap_servers) as found:
        yield found


def join(client: RawClient, group: str, metadata: bytes = b"", member: str = "") -> dict[str, Any]:
    asked = {"groupId": group, "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 600_000, "memberId": member,
             "protocolType": "consumer", "protocols": [{"name": "range", "metadata": metadata}]}  # fmt: skip
    return client.ask(JOIN, 5, asked)


def commit(client: RawClient, group: str) -> int:
    row = {"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": ""}
    asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": [{"name": "codec-zstd", "partitions": [row]}]}
    return int(client.ask(COMMIT, 8, asked)["topics"][0]["partitions"][0]["errorCode"])


def test_groups_that_only_commit(client: RawClient) -> None:
    for number in range(MOST):
        assert commit(client, f"g{number}") == 0
    assert commit(client, "one more") == GROUP_MAX_SIZE_REACHED
    assert commit(client, "g5") == 0
    assert len(client.ask(LIST_GROUPS, 4, {})["groups"]) == MOST


def test_members_that_wait_for_their_id(client: RawClient) -> None:
    for _ in range(MOST):
        assert join(client, "g")["errorCode"] == MEMBER_ID_REQUIRED
    assert join(client, "g")["errorCode"] == GROUP_MAX_SIZE_REACHED
    assert join(client, "another")["errorCode"] == MEMBER_ID_REQUIRED


def test_groups_with_members(client: RawClient) -> None:
    for number in range(MOST):
        assert join(client, f"g{number}")["errorCode"] == MEMBER_ID_REQUIRED
    assert join(client, "one more")["errorCode"] == GROUP_MAX_SIZE_REACHED


def test_texts_of_members(client: RawClient) -> None:
    assert join(client, "g", bytes(1 << 20))["errorCode"] == MEMBER_ID_REQUIRED
    assert join(client, "g", bytes((1 << 20) + 1))["errorCode"] == INVALID_REQUEST
    assignments = [{"memberId": "m", "assignment": bytes((1 << 20) + 1)}]
    assert client.ask(SYNC, 3, {"groupId": "g", "assignments": assignments})["errorCode"] == INVALID_REQUEST
    beat = {"groupId": "new", "memberId": "m", "memberEpoch": 0, "rebalanceTimeoutMs": 10_000, "topicPartitions": []}
    many = [f"{number:0100d}" for number in range(11_000)]
    assert client.ask(BEAT, 0, {**beat, "subscribedTopicNames": many})["errorCode"] == INVALID_REQUEST
    assert client.ask(BEAT, 0, {**beat, "subscribedTopicNames": many[:100]})["errorCode"] == 0


def test_a_large_request_that_comes_slowly() -> None:
    """It has its time from the first byte to the last, however steadily it comes."""
    limits = Limits(stalled_s=0.3)
    with Server(reading([DATA]), limits=limits) as server, RawClient(server.bootstrap_servers) as client:
        client.socket.sendall((10 << 20).to_bytes(4, "big"))
        try:
            for _ in range(3000):
                client.socket.sendall(bytes(1000))
                time.sleep(0.01)
        except OSError:
            return
        raise AssertionError("it went on for thirty seconds")


def test_an_answer_that_is_taken_slowly() -> None:
    """However steadily: it has the same time as a request of its size."""
    asked = {"topic": "codec-gzip", "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}
    with Server(reading([DATA]), limits=Limits(stalled_s=0.3)) as server, RawClient(server.bootstrap_servers) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(OSError):  # until neither side takes any more
            client.socket.settimeout(0.2)
            while True:
                client.send(1, 11, {"maxWaitMs": 0, "maxBytes": 1 << 20, "topics": [asked]})
        for _ in range(3000):
            try:
                if not client.socket.recv(500):
                    return
            except TimeoutError:
                continue
            except OSError:
                return
            time.sleep(0.01)
        raise AssertionError("it went on for thirty seconds")


def test_who_hangs_up_while_it_waits_for_its_group() -> None:
    """Joins that nobody waits for any more: places of connections and members are free again."""
    with Server(reading([DATA]), limits=Limits(connections=4)) as server:
        with RawClient(server.bootstrap_servers) as first:
            asked = {"groupId": "g", "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 2**31 - 1,
                     "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
            first.ask(JOIN, 2, asked)
            for _ in range(3):
                with RawClient(server.bootstrap_servers) as client:
                    client.send(JOIN, 2, asked)
                    wait_for(lambda: len(members(first)) == 2)
                wait_for(lambda: len(members(first)) == 1)
        wait_for(lambda: not server.connections)


def members(client: RawClient) -> list[Any]:
    """The members of the group."""
    found: list[Any] = client.ask(15, 0, {"groups": ["g"]})["groups"][0]["members"]
    return found
