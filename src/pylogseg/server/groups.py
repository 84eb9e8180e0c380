"""A classic consumer group as a state machine: no I/O, no threads, and a clock that the caller has.

Members join, the one that leads gives out the partitions, all fetch their part, and from then on they send heartbeats.
An answer that has to wait for other members is a `Ticket`, which a later call or `tick` fills in. Times are seconds of
any clock.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError

MOST_MEMBERS = 1000
MOST_METADATA_BYTES = 1 << 20
_MOST_NAME_BYTES = 1 << 18
#: A member beside its texts, and a text beside its bytes.
MEMBER_BYTES, TEXT_BYTES = 1 << 10, 1 << 6
#: An answer to a request of a group.
Answer = dict[str, Any]


class GroupState(Enum):
    """State of a group; the value is its name in Kafka's answers."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Ticket:
    """An answer that may still have to wait for others."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer


class Join(NamedTuple):
    """A request to join; times are seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_s: float
    rebalance_s: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    #: True if the client knows that it must come back with the id that it gets (version 4 on).
    needs_id: bool = False
    #: True if a leader can be told that there is nothing to assign (version 9 on).
    can_skip: bool = False


@dataclass
class Member:
    """A member of a group."""

    id: str
    asked: Join
    alive_until: float
    assignment: bytes = b""
    joining: Ticket | None = None
    syncing: Ticket | None = None

    @property
    def is_waiting(self) -> bool:
        """True if it waits for an answer: then its silence is no fault."""
        return self.joining is not None or self.syncing is not None

    @property
    def size(self) -> int:
        """Its bytes, with the fields of its request."""
        asked = self.asked
        texts = len(self.id) + len(asked.instance_id or "") + len(asked.client_id) + len(asked.protocol_type)
        return MEMBER_BYTES + texts + len(self.assignment) + size_of(asked.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol."""
        return dict(self.asked.protocols).get(protocol, b"")


@dataclass
class ClassicGroup:
    """One group; see the module."""

    id: str
    initial_delay_s: float = 0.0
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    #: Ids that were given out and have not come back, and until when they may.
    pending: dict[str, float] = field(default_factory=dict)
    #: Members that have to fetch their assignment.
    unsynced: set[str] = field(default_factory=set)
    #: When those that did not come are dropped.
    deadline: float = float("inf")
    #: A rebalance of a group that was empty does not end before this.
    not_before: float = 0.0

    @property
    def size(self) -> int:
        pending = sum(TEXT_BYTES + len(member_id) for member_id in self.pending)
        return len(self.id) + pending + sum(member.size for member in self.members.values())

    # ---- joining ----

    def join(self, now: float, asked: Join) -> Ticket:
        """Let a member in, or back in; the ticket is filled when all others have come, too."""
        self.tick(now)
        self._check_protocols(asked)
        if asked.member_id == "":
            return self._join_new(now, asked)
        if asked.member_id in self.pending and asked.instance_id is None:
            del self.pending[asked.member_id]
            return self._add(now, asked.member_id, asked)
        member = self._member(asked.member_id, asked.instance_id)
        same = asked.protocols == member.asked.protocols
        if (
            self.state is GroupState.PREPARING
            or not same
            or (self.state is GroupState.STABLE and self.leader == member.id)
        ):
            return self._rejoin(now, member, asked)
        member.alive_until = now + member.asked.session_s
        return Ticket(self._answer_join(member))

    def _check_protocols(self, asked: Join) -> None:
        if not asked.protocols or not asked.protocol_type:
            raise KafkaError(codes.INCONSISTENT_GROUP_PROTOCOL)
        others = [member for member in self.members.values() if member.id != asked.member_id]
        if not others:
            return
        common = set.intersection(*({name for name, _ in member.asked.protocols} for member in others))
        if asked.protocol_type != self.protocol_type or common.isdisjoint(name for name, _ in asked.protocols):
            raise KafkaError(codes.INCONSISTENT_GROUP_PROTOCOL)

    def _join_new(self, now: float, asked: Join) -> Ticket:
        if len(self.members) + len(self.pending) >= MOST_MEMBERS:
            raise KafkaError(codes.GROUP_MAX_SIZE_REACHED)
        new_id = f"{asked.instance_id or asked.client_id}-{uuid.uuid4()}"
        if asked.instance_id is not None:
            old = self._by_instance(asked.instance_id)
            return self._add(now, new_id, asked) if old is None else self._replace(now, old, new_id, asked)
        if asked.needs_id:
            self.pending[new_id] = now + asked.session_s
            return Ticket({"errorCode": codes.MEMBER_ID_REQUIRED, "memberId": new_id})
        return self._add(now, new_id, asked)

    def _by_instance(self, instance_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.asked.instance_id == instance_id), None)

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member; KafkaError if it is unknown, or another member has its instance id."""
        if instance_id is not None:
            owner = self._by_instance(instance_id)
            if owner is not None and owner.id != member_id:
                raise KafkaError(codes.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(codes.UNKNOWN_MEMBER_ID)
        return member

    def _add(self, now: float, member_id: str, asked: Join) -> Ticket:
        member = self.members[member_id] = Member(member_id, asked, now + asked.session_s)
        if len(self.members) == 1:
            self.protocol_type = asked.protocol_type
            self.not_before = now + self.initial_delay_s
        if self.leader is None:
            self.leader = member_id
        return self._rejoin(now, member, asked)

    def _rejoin(self, now: float, member: Member, asked: Join) -> Ticket:
        member.asked = asked
        if member.joining is not None:  # asked twice: the first waits on another connection, or nowhere
            member.joining.answer = {"errorCode": codes.UNKNOWN_MEMBER_ID}
        ticket = member.joining = Ticket()
        if self.state is not GroupState.PREPARING:
            self._prepare(now)
        self._complete(now)
        return ticket

    def _replace(self, now: float, old: Member, new_id: str, asked: Join) -> Ticket:
        """Let a static member take its old place: without a rebalance if it wants the same as before."""
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                waiting.answer = {"errorCode": codes.FENCED_INSTANCE_ID}
        same = asked.protocols == old.asked.protocols
        member = Member(new_id, asked, now + asked.session_s, old.assignment)
        # In the place of the old one: the order of members is that of their joining.
        self.members = {(new_id if key == old.id else key): member for key, member in self.members.items()}
        self.members[new_id] = member
        if old.id in self.unsynced:
            self.unsynced.discard(old.id)
            self.unsynced.add(new_id)
        was_leader = self.leader == old.id
        if was_leader:
            self.leader = new_id
        if self.state is not GroupState.STABLE or not same:
            return self._rejoin(now, member, asked)
        if was_leader and not asked.can_skip:  # so it does not take itself for the leader, and assigns nothing
            return Ticket({**self._answer_join(member), "leader": old.id, "members": ()})
        return Ticket({**self._answer_join(member), "skipAssignment": was_leader})

    # ---- rebalances ----

    def _prepare(self, now: float) -> None:
        """Begin a rebalance: all members have to join again."""
        for member in self.members.values():
            self._end_sync(now, member, {"errorCode": codes.REBALANCE_IN_PROGRESS})
        self.unsynced.clear()
        self.state = GroupState.PREPARING
        self.deadline = now + max((member.asked.rebalance_s for member in self.members.values()), default=0.0)

    def _complete(self, now: float, *, late: bool = False) -> None:
        """End the rebalance if all members have joined."""
        if self.state is not GroupState.PREPARING or now < self.not_before:
            return
        joined = [member for member in self.members.values() if member.joining is not None]
        if not late and (len(joined) < len(self.members) or self.pending):
            return
        self.generation = self.generation % (2**31 - 1) + 1
        self.deadline = float("inf")
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id
        self.protocol = self._vote()
        self.state = GroupState.COMPLETING
        self.unsynced = set(self.members)
        self.deadline = now + max(member.asked.rebalance_s for member in self.members.values())
        for member in joined:
            ticket, member.joining = member.joining, None
            member.alive_until = now + member.asked.session_s
            assert ticket is not None
            ticket.answer = self._answer_join(member)

    def _vote(self) -> str:
        """Return the protocol with the most first votes, among the protocols of all members."""
        names = [[name for name, _ in member.asked.protocols] for member in self.members.values()]
        common = set(names[0]).intersection(*names[1:])
        votes = Counter(next(name for name in choices if name in common) for choices in names)
        return max(votes, key=lambda name: (votes[name], -names[0].index(name)))

    def _answer_join(self, member: Member) -> Answer:
        """Return the answer to a join; only the leader gets the list of members."""
        protocol = self.protocol or ""
        leads = self.leader == member.id
        return {
            "generationId": self.generation,
            "protocolType": self.protocol_type,
            "protocolName": protocol,
            "leader": self.leader or "",
            "memberId": member.id,
            "members": [
                {
                    "memberId": other.id,
                    "groupInstanceId": other.asked.instance_id,
                    "metadata": other.metadata(protocol),
                }
                for other in (self.members.values() if leads else ())
            ],
        }

    # ---- assignments, heartbeats, leaving ----

    def sync(
        self,
        now: float,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Ticket:
        """Take the assignments of the leader, and give a member its own when they are there."""
        self.tick(now)
        member = self._check_member(member_id, instance_id, generation)
        for theirs, ours in zip(protocol, (self.protocol_type, self.protocol), strict=True):
            if theirs is not None and ours is not None and theirs != ours:
                raise KafkaError(codes.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise KafkaError(codes.REBALANCE_IN_PROGRESS)
        member.alive_until = now + member.asked.session_s
        self.unsynced.discard(member_id)
        if self.state is GroupState.STABLE:
            return Ticket(self._answer_sync(member))
        ticket = member.syncing = Ticket()
        if member_id == self.leader:
            self.state = GroupState.STABLE
            for other in self.members.values():
                other.assignment = assignments.get(other.id, b"")
                self._end_sync(now, other, self._answer_sync(other))
            if not self.unsynced:
                self.deadline = float("inf")
        return ticket

    def _answer_sync(self, member: Member) -> Answer:
        if not self.unsynced:
            self.deadline = float("inf")
        return {"protocolType": self.protocol_type, "protocolName": self.protocol, "assignment": member.assignment}

    def _end_sync(self, now: float, member: Member, answer: Answer) -> None:
        ticket, member.syncing = member.syncing, None
        if ticket is not None:
            ticket.answer = answer
            member.alive_until = now + member.asked.session_s

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(codes.ILLEGAL_GENERATION)
        return member

    def heartbeat(self, now: float, member_id: str, instance_id: str | None, generation: int) -> None:
        """Note that a member lives; KafkaError tells it to join again."""
        self.tick(now)
        member = self._check_member(member_id, instance_id, generation)
        member.alive_until = now + member.asked.session_s
        if self.state is GroupState.PREPARING:
            raise KafkaError(codes.REBALANCE_IN_PROGRESS)

    def check_commit(self, now: float, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise KafkaError if a commit of offsets is not allowed."""
        self.tick(now)
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation < 0 and not member_id:
            raise KafkaError(codes.UNKNOWN_MEMBER_ID)
        member = self._check_member(member_id, instance_id, generation)
        member.alive_until = now + member.asked.session_s
        if self.state is GroupState.COMPLETING:
            raise KafkaError(codes.REBALANCE_IN_PROGRESS)

    def leave(self, now: float, member_id: str, instance_id: str | None) -> str:
        """Let a member go, by its id or the id of its instance; returns its id."""
        self.tick(now)
        if not member_id and instance_id is not None:
            owner = self._by_instance(instance_id)
            member_id = "" if owner is None else owner.id
        elif self.pending.pop(member_id, None) is not None:
            self._complete(now)
            return member_id
        self._remove(now, self._member(member_id, instance_id))
        return member_id

    def abandon(self, now: float, ticket: Ticket) -> None:
        """Note that nobody waits for an answer: a member without an id goes, any other has a session's time."""
        for member in list(self.members.values()):
            if ticket is member.joining and not member.asked.member_id and member.asked.instance_id is None:
                self._remove(now, member)
            elif ticket in (member.joining, member.syncing):
                member.joining = member.syncing = None
                member.alive_until = now + member.asked.session_s
        self.tick(now)

    def _remove(self, now: float, member: Member) -> None:
        for ticket in (member.joining, member.syncing):
            if ticket is not None:
                ticket.answer = {"errorCode": codes.UNKNOWN_MEMBER_ID}
        del self.members[member.id]
        self.unsynced.discard(member.id)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        self._complete(now)

    # ---- time ----

    def tick(self, now: float) -> None:
        """Drop silent members, and end waits that are over."""
        if now >= self.not_before:
            self.not_before = 0.0
        for member_id in [member_id for member_id, until in self.pending.items() if until <= now]:
            del self.pending[member_id]
        for member in [peer for peer in self.members.values() if not peer.is_waiting and peer.alive_until <= now]:
            if member.id in self.members:
                self._remove(now, member)
        if self.state is GroupState.PREPARING:
            if self.deadline <= now:
                self._end_late(now)
            else:
                self._complete(now)
        elif self.unsynced and self.deadline <= now:
            for member_id in [member_id for member_id in self.unsynced if not self.members[member_id].is_waiting]:
                self._remove(now, self.members[member_id])
            self.deadline = float("inf") if self.state is GroupState.STABLE else self.deadline

    def _end_late(self, now: float) -> None:
        """End a rebalance without the members that did not rejoin; static members keep their places."""
        self.pending.clear()
        for member in list(self.members.values()):
            if member.joining is None and member.asked.instance_id is None:
                del self.members[member.id]
        if self.members and not any(member.joining for member in self.members.values()):
            self.deadline = now + max(member.asked.rebalance_s for member in self.members.values())
            return
        self._complete(now, late=True)

    def next_time(self) -> float:
        """Return when `tick` has something to do next."""
        times = [self.deadline, *self.pending.values()]
        times += [member.alive_until for member in self.members.values() if not member.is_waiting]
        if self.state is GroupState.PREPARING and self.not_before > 0:
            times.append(self.not_before)
        return min(times)

    # ---- descriptions ----

    def describe(self) -> Answer:
        """Return the group as DescribeGroups shows it."""
        stable = self.state is GroupState.STABLE
        protocol = self.protocol or ""
        return {
            "groupId": self.id,
            "groupState": self.state.value,
            "protocolType": self.protocol_type or "",
            "protocolData": protocol if stable else "",
            "members": [
                {
                    "memberId": member.id,
                    "groupInstanceId": member.asked.instance_id,
                    "clientId": member.asked.client_id,
                    "clientHost": f"/{member.asked.host}",
                    "memberMetadata": member.metadata(protocol) if stable else b"",
                    "memberAssignment": member.assignment if stable else b"",
                }
                for member in self.members.values()
            ],
        }


def size_of(texts: Sequence[tuple[str, bytes]]) -> int:
    return sum(TEXT_BYTES + len(name) + len(data) for name, data in texts)


def check_sizes(protocols: Sequence[tuple[str, bytes]]) -> None:
    """Refuse names and metadata of a member that are larger than any client sends."""
    names, data = (sum(map(len, column)) for column in zip(*protocols, strict=True)) if protocols else (0, 0)
    if names > _MOST_NAME_BYTES or data > MOST_METADATA_BYTES:
        raise KafkaError(codes.INVALID_REQUEST)
