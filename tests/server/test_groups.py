"""Tests of server/groups.py. A classic group as a state machine, with a clock of the test's own; any sequence of events
keeps its promises.
"""

from __future__ import annotations

import itertools

import pytest
from helpers.depth import draws
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.server.groups import ClassicGroup, GroupState, Join, Ticket

SESSION_S, REBALANCE_S = 10.0, 60.0


def asked(member_id: str = "", protocols: str = "range", instance: str | None = None, **other: bool) -> Join:
    each = tuple((name, name.encode()) for name in protocols.split())
    return Join(member_id, instance, "client", "host", SESSION_S, REBALANCE_S, "consumer", each, **other)


def code_of(work: object) -> int:
    with pytest.raises(KafkaError) as raised:
        work()  # type: ignore[operator]
    return raised.value.code


def joined(ticket: Ticket) -> dict[str, object]:
    assert ticket.answer is not None
    assert ticket.answer.get("errorCode", 0) == 0, ticket.answer
    return ticket.answer


def stable(group: ClassicGroup, now: float, count: int) -> list[str]:
    """Let members in, and give each an assignment; returns their ids, the leader's first."""
    tickets = [group.join(now, asked())]
    first = joined(tickets[0])["memberId"]
    assert isinstance(first, str)
    for _ in range(count - 1):
        tickets.append(group.join(now, asked()))
    if count > 1:
        tickets[0] = group.join(now, asked(first))
    ids = [str(joined(each)["memberId"]) for each in tickets]
    answers = [group.sync(now, each, None, group.generation, {}) for each in ids[1:]]
    group.sync(now, ids[0], None, group.generation, {each: each.encode() for each in ids})
    assert group.state is GroupState.STABLE
    assert [joined(each)["assignment"] for each in answers] == [each.encode() for each in ids[1:]]
    return ids


def test_one_member() -> None:
    group = ClassicGroup("g")
    found = joined(group.join(0, asked(protocols="range sticky")))
    me = str(found["memberId"])
    assert (found["generationId"], found["protocolName"], found["leader"]) == (1, "range", me)
    assert found["members"] == [{"memberId": me, "groupInstanceId": None, "metadata": b"range"}]
    assert joined(group.sync(0, me, None, 1, {me: b"all"}))["assignment"] == b"all"
    group.heartbeat(1, me, None, 1)
    assert group.describe()["members"][0]["memberAssignment"] == b"all"
    assert group.leave(2, me, None) == me
    assert group.state is GroupState.EMPTY


def test_the_id_comes_first() -> None:
    group = ClassicGroup("g")
    answer = group.join(0, asked(needs_id=True)).answer
    assert answer is not None
    assert answer["errorCode"] == codes.MEMBER_ID_REQUIRED
    assert joined(group.join(1, asked(answer["memberId"])))["generationId"] == 1
    other = group.join(1, asked(needs_id=True)).answer
    assert other is not None
    assert code_of(lambda: group.join(1 + SESSION_S, asked(other["memberId"]))) == codes.UNKNOWN_MEMBER_ID


def test_a_second_member_waits_for_the_first() -> None:
    group = ClassicGroup("g")
    (first,) = stable(group, 0, 1)
    second = group.join(1, asked())
    assert second.answer is None
    assert code_of(lambda: group.heartbeat(2, first, None, 1)) == codes.REBALANCE_IN_PROGRESS
    again = joined(group.join(3, asked(first)))
    assert again["generationId"] == joined(second)["generationId"] == 2
    assert len(again["members"]) == 2  # type: ignore[arg-type]
    assert joined(second)["members"] == []
    assert code_of(lambda: group.heartbeat(4, first, None, 1)) == codes.ILLEGAL_GENERATION


def test_a_silent_member_is_dropped() -> None:
    group = ClassicGroup("g")
    first, second = stable(group, 0, 2)
    group.heartbeat(8, first, None, 2)
    assert group.next_time() == SESSION_S
    assert code_of(lambda: group.heartbeat(11, first, None, 2)) == codes.REBALANCE_IN_PROGRESS
    assert joined(group.join(12, asked(first)))["generationId"] == 3
    assert code_of(lambda: group.heartbeat(13, second, None, 2)) == codes.UNKNOWN_MEMBER_ID


def test_who_does_not_come_back_is_dropped() -> None:
    """A member that sends heartbeats but does not join keeps the others waiting until the rebalance is over."""
    group = ClassicGroup("g")
    first, second = stable(group, 0, 2)
    third = group.join(1, asked())
    waiting = group.join(1, asked(first))
    for now in range(5, 60, 5):
        assert code_of(lambda now=now: group.heartbeat(now, second, None, 2)) == codes.REBALANCE_IN_PROGRESS
    assert waiting.answer is None
    group.tick(1 + REBALANCE_S)
    assert joined(waiting)["generationId"] == joined(third)["generationId"] == 3
    assert set(group.members) == {first, joined(third)["memberId"]}


def test_nobody_waits_for_an_answer() -> None:
    """Who never learned its id goes at once; who knows it has a session's time to ask again."""
    group = ClassicGroup("g")
    ids = stable(group, 0, 2)
    new, known = group.join(1, asked()), group.join(1, asked(ids[1]))
    group.abandon(2, new)
    assert set(group.members) == set(ids)
    group.abandon(3, known)
    assert set(group.members) == set(ids)
    group.abandon(6, group.join(5, asked(ids[1])))
    first = group.join(7, asked(ids[0]))
    group.tick(6 + SESSION_S)
    assert list(group.members) == [ids[0]], "its session is over"
    assert joined(first)["memberId"] == ids[0], "and nobody waits for it"


def test_a_leader_that_does_not_assign() -> None:
    group = ClassicGroup("g")
    first = joined(group.join(0, asked()))["memberId"]
    second = group.join(0, asked())
    group.join(0, asked(str(first)))
    waiting = group.sync(1, str(joined(second)["memberId"]), None, 2, {})
    assert waiting.answer is None
    group.tick(SESSION_S + 1)
    assert waiting.answer == {"errorCode": codes.REBALANCE_IN_PROGRESS}
    assert joined(group.join(12, asked(str(joined(second)["memberId"]))))["leader"] == joined(second)["memberId"]


def test_a_static_member_comes_back() -> None:
    """It takes its old place without a rebalance, and the old one is fenced."""
    group = ClassicGroup("g")
    first = str(joined(group.join(0, asked(instance="i")))["memberId"])
    group.sync(0, first, "i", 1, {first: b"mine"})
    found = joined(group.join(1, asked(instance="i", can_skip=True)))
    second = str(found["memberId"])
    assert (found["generationId"], found["skipAssignment"], group.state) == (1, True, GroupState.STABLE)
    assert joined(group.sync(1, second, "i", 1, {}))["assignment"] == b"mine"
    assert code_of(lambda: group.heartbeat(2, first, "i", 1)) == codes.FENCED_INSTANCE_ID
    older = joined(group.join(2, asked(instance="i")))
    assert older["leader"] != older["memberId"]
    assert group.leave(3, "", "i") == older["memberId"]


def test_no_common_protocol() -> None:
    group = ClassicGroup("g")
    stable(group, 0, 2)
    assert code_of(lambda: group.join(1, asked(protocols="sticky"))) == codes.INCONSISTENT_GROUP_PROTOCOL
    assert code_of(lambda: ClassicGroup("h").join(1, asked(protocols=""))) == codes.INCONSISTENT_GROUP_PROTOCOL


def test_the_most_votes_win() -> None:
    group = ClassicGroup("g")
    first = str(joined(group.join(0, asked(protocols="range sticky")))["memberId"])
    for _ in range(2):
        group.join(0, asked(protocols="sticky range"))
    assert joined(group.join(0, asked(first, "range sticky")))["protocolName"] == "sticky"


def test_commits() -> None:
    group = ClassicGroup("g")
    group.check_commit(0, "", None, -1)
    first, second = stable(group, 0, 2)
    group.check_commit(1, first, None, 2)
    assert code_of(lambda: group.check_commit(1, first, None, 1)) == codes.ILLEGAL_GENERATION
    assert code_of(lambda: group.check_commit(1, "", None, -1)) == codes.UNKNOWN_MEMBER_ID
    group.join(2, asked())
    group.check_commit(2, second, None, 2)  # before it joins again it may say how far it came


class AnyEvents(RuleBasedStateMachine):
    """Members that join, sync, fall silent and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g")
        self.now = 0.0
        self.tickets: list[tuple[float, Ticket]] = []
        self.ids: list[str] = [""]
        self.numbers = itertools.count()

    def _try(self, ticket_of: object) -> None:
        try:
            ticket = ticket_of()  # type: ignore[operator]
        except KafkaError:
            return
        self.tickets.append((self.now, ticket))
        if ticket.answer is not None and ticket.answer.get("memberId"):
            self.ids.append(ticket.answer["memberId"])

    @rule(data=st.data(), needs_id=st.booleans(), instance=st.sampled_from([None, None, "a", "b"]))
    def join(self, data: st.DataObject, needs_id: bool, instance: str | None) -> None:
        member = data.draw(st.sampled_from(self.ids))
        protocols = data.draw(st.sampled_from(["range", "range sticky", "sticky range"]))
        self._try(lambda: self.group.join(self.now, asked(member, protocols, instance, needs_id=needs_id)))

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.ids))
        every = {each: each.encode() for each in self.group.members}
        generation = self.group.generation
        self._try(lambda: self.group.sync(self.now, member, None, generation, every))

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.ids))
        try:
            self.group.heartbeat(self.now, member, None, self.group.generation)
        except KafkaError:
            return
        assert member in self.group.members

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.ids))
        try:
            self.group.leave(self.now, member, None)
        except KafkaError:
            return
        assert member not in self.group.members

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.group.next_time() <= until:
            before = self.group.next_time()
            self.now = max(self.now, before)
            self.group.tick(self.now)
            assert self.group.next_time() > self.now, "the clock would run on the spot"
        self.now = until

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        for since, ticket in self.tickets:
            if ticket.answer is None:
                assert self.now - since <= 3 * (SESSION_S + REBALANCE_S)
        self.tickets = [(since, ticket) for since, ticket in self.tickets if ticket.answer is None]

    @invariant()
    def states_are_sound(self) -> None:
        group = self.group
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        if group.members:
            assert group.state is not GroupState.EMPTY
            assert group.leader in group.members
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert not any(each.joining for each in group.members.values())
        if group.state is GroupState.STABLE:
            assert not any(each.syncing for each in group.members.values())
        assert group.unsynced <= set(group.members)


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=draws(60), stateful_step_count=40, deadline=None)
