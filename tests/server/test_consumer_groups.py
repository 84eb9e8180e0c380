"""Tests of server/consumer_groups.py and server/regex.py. Groups of the new protocol: members come, go and fall silent
in any order, and no partition has two owners.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import draws
from helpers.kafka_clients import PATIENCE_S, RawClient
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import pylogseg
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.server.consumer_groups import (
    Beat,
    ConsumerGroup,
    KnownTopic,
    Part,
    check_subscription,
    ranges,
    uniform,
)

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
KNOWN = {name: KnownTopic(name.encode() * 16, partitions) for name, partitions in (("a", 1), ("b", 3), ("c", 6))}
SESSION_S, REBALANCE_S = 45.0, 30.0


def joins(member: str = "", topics: tuple[str, ...] = ("a", "b", "c"), **more: Any) -> Beat:
    return Beat(member, 0, rebalance_s=REBALANCE_S, topics=topics, owned=frozenset(), **more)


class Client:
    """A member as clients are: it gives up what it is not told any more, and says so with its next heartbeat."""

    def __init__(self, group: ConsumerGroup, now: float, topics: tuple[str, ...], **more: Any) -> None:
        self.group, self.owned = group, frozenset[Part]()
        answer = group.heartbeat(now, joins("", topics, **more))
        self.id, self.epoch = answer["memberId"], answer["memberEpoch"]
        self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        self.epoch = answer["memberEpoch"]
        if answer["assignment"] is not None:
            rows = answer["assignment"]["topicPartitions"]
            self.owned = frozenset((row["topicId"], number) for row in rows for number in row["partitions"])

    def beat(self, now: float, **more: Any) -> None:
        self._take(self.group.heartbeat(now, Beat(self.id, self.epoch, owned=self.owned, **more)))


def code_of(work: Callable[[], object]) -> int:
    with pytest.raises(KafkaError) as raised:
        work()
    return raised.value.code


def group_of(count: int) -> tuple[ConsumerGroup, list[Client]]:
    group = ConsumerGroup("g", lambda: KNOWN)
    clients = [Client(group, 0, ("a", "b", "c")) for _ in range(count)]
    for _ in range(3):
        for client in clients:
            client.beat(0)
    assert group.state == "Stable"
    return group, clients


# ---- the state machine ----


def test_partitions_are_given_up_before_they_are_given() -> None:
    group, (first,) = group_of(1)
    assert len(first.owned) == 10
    second = Client(group, 1, ("a", "b", "c"))
    assert second.owned == frozenset()
    assert group.state == "Reconciling"
    before, epoch = first.owned, first.epoch
    first.beat(1)
    assert first.owned < before
    assert first.epoch == epoch, "it has the old epoch until it has given up"
    second.beat(1)
    assert second.owned == frozenset(), "the first has not said that it has given anything up"
    first.beat(2)
    assert first.epoch == group.epoch
    second.beat(2)
    assert len(second.owned) == len(first.owned) == 5
    assert group.state == "Stable"


def test_a_heartbeat_that_says_nothing_new_is_answered_so() -> None:
    group, (first, _) = group_of(2)
    answer = group.heartbeat(1, Beat(first.id, first.epoch))
    assert (answer["assignment"], answer["heartbeatIntervalMs"]) == (None, 5000)


def test_epochs() -> None:
    group, (first,) = group_of(1)
    assert code_of(lambda: group.heartbeat(1, Beat(first.id, first.epoch + 1))) == codes.FENCED_MEMBER_EPOCH
    assert code_of(lambda: group.heartbeat(1, Beat("other", 1))) == codes.UNKNOWN_MEMBER_ID
    assert code_of(lambda: group.heartbeat(1, Beat(first.id, -3))) == codes.INVALID_REQUEST
    lost = first.epoch
    Client(group, 1, ("a",)).beat(1)
    first.beat(1)
    first.beat(1)
    assert first.epoch > lost
    assert group.heartbeat(1, Beat(first.id, lost, owned=first.owned))["memberEpoch"] == first.epoch
    assert code_of(lambda: group.heartbeat(1, Beat(first.id, lost))) == codes.FENCED_MEMBER_EPOCH


def test_requests_that_are_wrong() -> None:
    group = ConsumerGroup("g", lambda: KNOWN)
    assert code_of(lambda: group.heartbeat(0, Beat("", 0, owned=frozenset()))) == codes.INVALID_REQUEST
    assert code_of(lambda: group.heartbeat(0, joins(assignor="mine"))) == codes.UNSUPPORTED_ASSIGNOR
    assert not group.members
    assert code_of(lambda: check_subscription(joins(regex="("))) == codes.INVALID_REGULAR_EXPRESSION


def test_regular_expressions() -> None:
    group = ConsumerGroup("g", lambda: KNOWN)
    client = Client(group, 0, (), regex="[ab]")
    assert {topic for topic, _ in client.owned} == {KNOWN["a"].id, KNOWN["b"].id}


def test_an_expression_without_an_end_does_not_stop_the_server() -> None:
    """Python's own engine would try 2 to the 60 ways here."""
    long = {"a" * 60: KNOWN["a"]}
    assert not Client(ConsumerGroup("g", lambda: long), 0, (), regex="(a+)+b").owned


def test_static_members() -> None:
    group = ConsumerGroup("g", lambda: KNOWN)
    first = Client(group, 0, ("a", "b", "c"), instance_id="i")
    assert code_of(lambda: group.heartbeat(1, joins("x", instance_id="i"))) == codes.UNRELEASED_INSTANCE_ID
    group.heartbeat(1, Beat(first.id, -2, "i"))
    epoch = group.epoch
    assert Client(group, 2, ("a", "b", "c"), instance_id="i").owned == first.owned
    assert group.epoch == epoch, "nothing has to be assigned anew"
    assert code_of(lambda: group.heartbeat(3, Beat(first.id, first.epoch, "i"))) == codes.FENCED_INSTANCE_ID


def test_silent_members_and_those_that_keep_what_they_have() -> None:
    group, (first, second) = group_of(2)
    first.beat(SESSION_S - 1)
    assert code_of(lambda: second.beat(SESSION_S)) == codes.UNKNOWN_MEMBER_ID
    first.beat(SESSION_S)
    kept = first.owned
    third = Client(group, SESSION_S, ("a", "b", "c"))
    group.heartbeat(SESSION_S + 1, Beat(first.id, first.epoch, owned=kept))
    group.heartbeat(SESSION_S + 20, Beat(first.id, first.epoch, owned=kept))
    third.beat(SESSION_S + 40)
    assert first.id not in group.members
    assert len(third.owned) == 10


@given(
    st.dictionaries(
        st.sampled_from("mnopq"), st.sets(st.sampled_from([each.id for each in KNOWN.values()])), min_size=1
    ),
    st.data(),
)
def test_assignors(wanted: dict[str, set[bytes]], data: st.DataObject) -> None:
    """Every partition that somebody wants has one owner, who wants it; what stays, stays where it was."""
    counts = {each.id: each.partitions for each in KNOWN.values()}
    every = {(topic, n) for topic in set().union(*wanted.values()) for n in range(counts[topic])}
    members = data.draw(st.lists(st.sampled_from(sorted(wanted)), max_size=3))
    before = uniform({member: wanted[member] for member in members}, counts, {}) if members else {}
    for found in (uniform(wanted, counts, before), ranges(wanted, counts)):
        owned = [part for parts in found.values() for part in parts]
        assert len(owned) == len(set(owned))
        assert set(owned) == every
        assert all(part[0] in wanted[member] for member, parts in found.items() for part in parts)
    again = uniform(wanted, counts, uniform(wanted, counts, before))
    assert again == uniform(wanted, counts, before)
    if all(topics == set(counts) for topics in wanted.values()):
        sizes = [len(parts) for parts in again.values()]
        assert max(sizes) - min(sizes) <= 1


class AnyEvents(RuleBasedStateMachine):
    """Members that come, go, change their minds and fall silent."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroup("g", lambda: KNOWN)
        self.now = 0.0
        self.clients: list[Client] = []

    @rule(topics=st.sets(st.sampled_from("abc")).map(lambda found: tuple(sorted(found))))
    def join(self, topics: tuple[str, ...]) -> None:
        self.clients.append(Client(self.group, self.now, topics))

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            topics = data.draw(st.none() | st.sets(st.sampled_from("abc")).map(tuple))
            self._try(client, lambda: client.beat(self.now, topics=topics))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            self._try(client, lambda: self.group.heartbeat(self.now, Beat(client.id, -1)))
            self.clients = [each for each in self.clients if each is not client]

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0, 46.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def settle(self) -> None:
        """After all have spoken a few times each has what it should."""
        for _ in range(4):
            for client in list(self.clients):
                self._try(client, lambda client=client: client.beat(self.now))
        assert self.group.state == ("Stable" if self.group.members else "Empty")
        for client in self.clients:
            assert client.owned == self.group.target[client.id]

    def _try(self, client: Client, work: Callable[[], object]) -> None:
        try:
            work()
        except KafkaError:
            self.clients = [each for each in self.clients if each is not client]

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        held = [part for each in self.group.members.values() for part in each.assigned | each.pending]
        assert len(held) == len(set(held))
        alive = [each for each in self.clients if each.id in self.group.members]
        owned = [part for each in alive for part in each.owned]
        assert len(owned) == len(set(owned))


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=draws(60), stateful_step_count=40, deadline=None)


# ---- a client ----


def test_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three members share, one leaves, the others take its partitions; offsets are committed with epochs."""
    monkeypatch.setattr("pylogseg.server.consumer_groups._HEARTBEAT_MS", 200)  # a member learns its share with one
    topics = ["codec-gzip", "txn-a", "levels"]
    with pylogseg.serve(DATA, trace=print) as server:
        clients = [
            confluent_kafka.Consumer(
                {"bootstrap.servers": server.bootstrap_servers, "group.id": "new", "group.protocol": "consumer",
                 "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2}
            )
            for _ in range(3)
        ]  # fmt: skip
        for client in clients:
            client.subscribe(topics)
        rows: set[tuple[str, int, int]] = set()

        def until(is_done: Callable[[], bool]) -> None:
            end = time.monotonic() + PATIENCE_S
            while not is_done():
                assert time.monotonic() < end, f"no progress: {[client.assignment() for client in clients]}"
                for client in clients:
                    for message in client.consume(500, 0.05):
                        assert message.error() is None, message.error()
                        rows.add((message.topic(), message.partition(), message.offset()))

        def shares() -> list[int]:
            return sorted(len(client.assignment()) for client in clients)

        until(lambda: shares() == [1, 1, 2])
        with RawClient(server.bootstrap_servers) as raw:

            def described() -> tuple[str, int]:
                (group,) = raw.ask(69, 1, {"groupIds": ["new"]})["groups"]
                return group["groupState"], len(group["members"])

            until(lambda: described() == ("Stable", 3))  # the last one may not have acknowledged its share yet
            (listed,) = raw.ask(16, 5, {"typesFilter": ["consumer"]})["groups"]
            assert (listed["groupId"], listed["groupType"]) == ("new", "consumer")
            assert raw.ask(15, 6, {"groups": ["new"]})["groups"][0]["errorCode"] == 69
        clients.pop().close()
        until(lambda: shares() == [2, 2])
        wanted = {(r.topic, r.partition, r.offset) for r in pylogseg.read(pylogseg.open_dir(DATA).select(topics))}
        committed = {(r[0], r[1], r[2]) for r in rows}
        until(lambda: len(rows) >= len(wanted) * 9 // 10)
        assert committed <= wanted
        # The rows may be those of the other one, and of the one that left: who commits has to have read.
        until(lambda: all(place.offset >= 0 for place in clients[0].position(clients[0].assignment())))
        clients[0].commit(asynchronous=False)
        for client in clients:
            client.close()


def test_kinds_of_groups_do_not_mix() -> None:
    with pylogseg.serve(DATA, topic="levels") as server, RawClient(server.bootstrap_servers) as client:
        beat = {"groupId": "g", "memberId": "m", "rebalanceTimeoutMs": 1000, "subscribedTopicNames": ["levels"],
                "topicPartitions": []}  # fmt: skip
        answer = client.ask(68, 1, beat)
        assert answer["assignment"]["topicPartitions"][0]["partitions"] == [0]
        join = {"groupId": "g", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "protocolType": "consumer",
                "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
        assert client.ask(11, 2, join)["errorCode"] == codes.INCONSISTENT_GROUP_PROTOCOL
        commit = {"groupId": "g", "memberId": "m", "topics": [
            {"name": "levels", "partitions": [{"partitionIndex": 0, "committedOffset": 1}]}]}  # fmt: skip
        for epoch, code in ((answer["memberEpoch"], 0), (99, codes.STALE_MEMBER_EPOCH)):
            found = client.ask(8, 9, {**commit, "generationIdOrMemberEpoch": epoch})
            assert found["topics"][0]["partitions"][0]["errorCode"] == code
        assert client.ask(68, 1, {**beat, "memberEpoch": -1})["memberEpoch"] == -1
        assert client.ask(11, 2, join)["errorCode"] == 0
        assert client.ask(68, 1, beat)["errorCode"] == codes.GROUP_ID_NOT_FOUND


def test_settings_of_a_group_count_for_its_members() -> None:
    """How often they beat, and how long they live without: those of other groups have what Kafka gives them."""
    beat = {"memberEpoch": 0, "rebalanceTimeoutMs": 1000, "topicPartitions": [], "subscribedTopicNames": ["one"]}
    values = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "7000"}
    configs = [{"name": name, "configOperation": 0, "value": value} for name, value in values.items()]
    with pylogseg.Broker(topics=["one"]) as broker, RawClient(broker.bootstrap_servers) as client:

        def state(group: str) -> str:
            return str(client.ask(69, 0, {"groupIds": [group]})["groups"][0]["groupState"])

        changed = client.ask(44, 1, {"resources": [{"resourceType": 32, "resourceName": "own", "configs": configs}]})
        assert changed["responses"][0]["errorCode"] == 0
        for group, interval in (("own", 7000), ("other", 5000)):
            found = client.ask(68, 1, {"groupId": group, "memberId": f"m-{group}", **beat})
            assert (found["errorCode"], found["heartbeatIntervalMs"]) == (0, interval)
        for seconds, states in ((44, ("Stable", "Stable")), (10, ("Stable", "Empty")), (10, ("Empty", "Empty"))):
            broker.clock.advance(seconds)
            assert (state("own"), state("other")) == states


def test_a_regex_matches_only_topics_that_the_client_may_see() -> None:
    """Another member gets the others; whoever takes a static member's place gets what it may see itself."""
    group = ConsumerGroup("g", lambda: KNOWN)
    sees_a = {"regex": ".*", "instance_id": "i", "may_see": lambda name: name == "a"}
    one, two = Client(group, 0, (), **sees_a), Client(group, 0, (), regex="[bc]")
    for _ in range(3):
        for client in (one, two):
            client.beat(0)
    assert {topic[:1] for topic, _ in one.owned} == {b"a"}
    assert {topic[:1] for topic, _ in two.owned} == {b"b", b"c"}
    assert group.heartbeat(0, Beat(one.id, -2, instance_id="i"))["memberEpoch"] == -2
    other = Client(group, 0, (), **{**sees_a, "may_see": lambda name: name == "b"})
    for _ in range(3):
        for client in (other, two):
            client.beat(0)
    assert {topic[:1] for topic, _ in other.owned} <= {b"b"}
