"""All groups of this node, and their committed offsets; here threads wait for a group's decisions."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from pylogseg.format.escape import printable
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import TopicPartition
from pylogseg.server.committed import Committed, CommittedOffsets
from pylogseg.server.consumer_groups import Beat, ConsumerGroup, KnownTopic
from pylogseg.server.groups import Answer, ClassicGroup, GroupState, Join, Member, Ticket

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MOST_GROUPS = 1000
#: What the members of all groups bring along.
MOST_MEMBER_BYTES = 64 << 20
_LEAST_SESSION_S, _MOST_SESSION_S = 6.0, 1800.0
#: Who waits looks so often whether its client is still there.
_LOOK_S = 1.0
#: States that last: in the others members wait for each other, and join again after a restart.
_LASTING = (GroupState.STABLE, GroupState.EMPTY)


class ListedGroup(NamedTuple):
    """A group in a list."""

    name: str
    kind: str
    state: str
    protocol_type: str


class GroupJournal(Protocol):
    """Where offsets and members are noted before they take effect, so that they outlast the process.

    None deletes an offset; `producer` is id and epoch of one with whose transaction offsets take effect.
    """

    def place_of(self, name: str) -> TopicPartition: ...
    def commit(
        self, group: str, offsets: Mapping[TopicPartition, Committed | None], producer: tuple[int, int] = ...
    ) -> None: ...
    def delete_group(self, group: str, places: Iterable[TopicPartition]) -> None: ...
    def note_group(self, group: str, fields: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class GroupCoordinator:
    """The groups; without a journal nothing of them outlasts the process. `now` returns seconds."""

    def __init__(
        self,
        offsets: CommittedOffsets | None = None,
        journal: GroupJournal | None = None,
        *,
        sessions: tuple[float, float] = (_LEAST_SESSION_S, _MOST_SESSION_S),  # that a member may ask for
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offsets = CommittedOffsets() if offsets is None else offsets
        self._journal, self.sessions, self._now = journal, sessions, now
        #: Returns the settings that a group has of its own, by Kafka's names.
        self.settings_of: Callable[[str], Mapping[str, str]] = lambda _: {}
        self._changed = threading.Condition()
        self._groups: dict[str, ClassicGroup] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        #: What was noted last of each classic group: generation, state, members.
        self._noted: dict[str, tuple[object, ...]] = {}
        #: Groups that have committed.
        self._told: set[str] = set()
        self._closed = False
        #: Bytes of the groups when they last changed.
        self._sizes: dict[str, int] = {}

    def resume(self, noted: Mapping[str, Mapping[str, Any]]) -> None:
        """Let classic groups go on where they stood, by their records."""
        with self._changed:
            for group_id, fields in noted.items():
                group = self._groups[group_id] = group_of(group_id, fields, self._now())
                self._noted[group_id] = standing_of(group)

    def wake(self) -> None:
        """Let all that wait look at the clock again."""
        with self._changed:
            self._changed.notify_all()

    # ---- groups ----

    def check_session(self, seconds: float) -> None:
        """Refuse a session that is shorter or longer than this server allows."""
        if not self.sessions[0] <= seconds <= self.sessions[1]:
            raise KafkaError(codes.INVALID_SESSION_TIMEOUT)

    def in_group(self, group_id: str, work: Callable[[ClassicGroup, float], _T], *, make: bool = False) -> _T:
        """Do something with a group, and make it if `make`; lasting changes are noted before any answer.

        Raises KafkaError if there is no such group, or no room for one.
        """
        if not group_id:
            raise KafkaError(codes.INVALID_GROUP_ID)
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                if not make:
                    raise KafkaError(codes.UNKNOWN_MEMBER_ID)
                other = self._consumers.get(group_id)
                if other is not None and other.members:
                    raise KafkaError(codes.INCONSISTENT_GROUP_PROTOCOL)
                self._consumers.pop(group_id, None)
                self._make_room()
                group = self._groups[group_id] = ClassicGroup(group_id)
            try:
                return work(group, self._now())
            finally:
                self._changed.notify_all()
                if self._journal is not None:
                    self._note(self._journal, group)

    def _note(self, journal: GroupJournal, group: ClassicGroup) -> None:
        standing = standing_of(group)
        if group.generation and group.state in _LASTING and self._noted.get(group.id) != standing:
            journal.note_group(group.id, group_fields(group))
            self._noted[group.id] = standing

    def topics_changed(self) -> None:
        """Let groups of the new protocol assign the present topics anew."""
        with self._changed:
            for group in self._consumers.values():
                group.topics_changed()

    def _make_room(self) -> None:
        """Forget a group without members if there are many groups; KafkaError if all have some."""
        if len(self._groups) + len(self._consumers) < MOST_GROUPS:
            return
        idle = next((name for name, group in self._groups.items() if not group.members and not group.pending), None)
        if idle is not None:
            del self._groups[idle]
            return
        idle = next((name for name, group in self._consumers.items() if not group.members), None)
        if idle is None:
            raise KafkaError(codes.GROUP_MAX_SIZE_REACHED, f"there are {MOST_GROUPS} groups already")
        del self._consumers[idle]

    def beat(self, group_id: str, beat: Beat, topics: Callable[[], Mapping[str, KnownTopic]]) -> Answer:
        """Answer a heartbeat of the new protocol; a group comes into being with its first member."""
        if not group_id:
            raise KafkaError(codes.INVALID_REQUEST, "GroupId can't be empty.")
        with self._changed:
            classic = self._groups.get(group_id)
            if classic is not None and (classic.members or classic.pending):
                raise KafkaError(codes.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            group = self._consumers.get(group_id)
            if group is None:
                if beat.epoch != 0:
                    raise KafkaError(codes.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
                self._groups.pop(group_id, None)
                self._make_room()
                group = self._consumers[group_id] = ConsumerGroup(group_id, topics, lambda: self.settings_of(group_id))
            answer = group.heartbeat(self._now(), beat)
            if beat.is_full:
                self._note_size(group_id)
            return answer

    def wait_for(
        self,
        group_id: str,
        work: Callable[[ClassicGroup, float], Ticket],
        look: Callable[[], object] = bool,
        *,
        make: bool = False,
    ) -> Answer:
        """Do something with a group, and wait until it has an answer.

        `look` is called now and then, and raises if nobody waits for the answer any more: the place of who never
        learned its id is then free again.
        """
        ticket = self.in_group(group_id, work, make=make)
        self._note_size(group_id)
        try:
            while (answer := self._answer(group_id, ticket)) is None:
                look()
            return answer
        except BaseException:
            with contextlib.suppress(KafkaError):
                self.in_group(group_id, lambda group, now: group.abandon(now, ticket))
            raise

    def check_room(self, size: int) -> None:
        """Raise KafkaError for the fields of a member if all groups together use too much memory."""
        with self._changed:
            if size + sum(self._sizes.values()) <= MOST_MEMBER_BYTES:
                return
            self._count_sizes()
            if size + sum(self._sizes.values()) > MOST_MEMBER_BYTES:
                text = f"the members of all groups have {MOST_MEMBER_BYTES >> 20} MiB of metadata already"
                raise KafkaError(codes.GROUP_MAX_SIZE_REACHED, text)

    def _note_size(self, group_id: str) -> None:
        with self._changed:
            kinds = self._groups.get(group_id), self._consumers.get(group_id)
            self._sizes[group_id] = sum(group.size for group in kinds if group is not None)
            if len(self._sizes) > 2 * MOST_GROUPS:  # of groups that are gone
                self._count_sizes()

    def _count_sizes(self) -> None:
        self._sizes = {name: group.size for name, group in self._groups.items()}
        for name, group in self._consumers.items():
            self._sizes[name] = group.size

    def _answer(self, group_id: str, ticket: Ticket) -> Answer | None:
        """Wait for an answer, or for the time at which the group makes one; None after a timeout."""
        with self._changed:
            until = time.monotonic() + _LOOK_S
            group = self._groups.get(group_id)
            while ticket.answer is None:
                if self._closed or group is None:
                    return {"errorCode": codes.COORDINATOR_NOT_AVAILABLE}
                now = self._now()
                if group.next_time() <= now:
                    group.tick(now)
                    self._changed.notify_all()
                elif (left := until - time.monotonic()) > 0:
                    self._changed.wait(min(group.next_time() - now, left))
                else:
                    return None
            return ticket.answer

    def groups(self) -> Iterator[ListedGroup]:
        """Yield all groups that have members or offsets."""
        with self._changed:
            now = self._now()
            for name in sorted({*self._groups, *self._consumers, *self._offsets.by_group}):
                if name in self._consumers:
                    self._consumers[name].tick(now)
                    yield ListedGroup(name, "consumer", self._consumers[name].state, "consumer")
                elif name in self._groups:
                    self._groups[name].tick(now)
                    group = self._groups[name]
                    yield ListedGroup(name, "classic", group.state.value, group.protocol_type or "")
                else:
                    yield ListedGroup(name, "classic", GroupState.EMPTY.value, "")

    def described_consumers(self, group_id: str) -> Answer | None:
        """Return the answer of ConsumerGroupDescribe for a group; None for a group of another kind."""
        with self._changed:
            group = self._consumers.get(group_id)
            if group is None:
                return None
            group.tick(self._now())
            return group.describe()

    def describe(self, group_id: str) -> Answer | None:
        """Return the answer of DescribeGroups for a group; a group with only offsets is empty; None without a group."""
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                has_offsets = group_id in self._offsets.by_group and group_id not in self._consumers
                return ClassicGroup(group_id).describe() if has_offsets else None
            group.tick(self._now())
            return group.describe()

    # ---- offsets ----

    def check_commit(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise KafkaError if a commit is not allowed."""
        with self._changed:
            if group_id in self._consumers:
                self._consumers[group_id].check_commit(self._now(), member_id, generation)
                return
            if group_id not in self._groups:
                if generation >= 0:  # there is a group, without members, where there are offsets
                    raise KafkaError(
                        codes.UNKNOWN_MEMBER_ID if self._offsets.by_group.get(group_id) else codes.GROUP_ID_NOT_FOUND
                    )
                return
        self.in_group(group_id, lambda group, now: group.check_commit(now, member_id, instance_id, generation))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, KafkaError]:
        """Keep offsets of a group; return why some are not. All that are kept are noted together, or none."""
        with self._changed:
            if self._journal is None and group_id not in self._told and len(self._told) >= MOST_GROUPS:
                return dict.fromkeys(offsets, KafkaError(codes.GROUP_MAX_SIZE_REACHED))
            refused = self._offsets.check(group_id, offsets)
            good = {place: committed for place, committed in offsets.items() if place not in refused}
            if not good:
                return refused
            if self._journal is not None:
                try:
                    self._journal.commit(group_id, good)
                except KafkaError as error:
                    self._offsets.recount()
                    return {**refused, **dict.fromkeys(good, error)}
            elif group_id not in self._told:
                _log.info("group %s: its commits are kept in memory, until the server stops", printable(group_id))
            self._told.add(group_id)
            self._offsets.put(group_id, good)
            return refused

    def fetch_offsets(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> dict[TopicPartition, Committed]:
        """Return the offsets of a group; KafkaError for a former member of a group of the new protocol."""
        with self._changed:
            if epoch >= 0 and group_id in self._consumers:
                self._consumers[group_id].check_commit(self._now(), member_id or "", epoch)
            return self._offsets.of(group_id)

    # ---- transactions ----

    def place_of(self, group_id: str) -> TopicPartition | None:
        """Return the partition that keeps a group's offsets; None where they are in memory."""
        return None if self._journal is None else self._journal.place_of(group_id)

    def stage(self, producer: tuple[int, int], group_id: str, place: TopicPartition, committed: Committed) -> None:
        with self._changed:
            self._offsets.charge(committed)
            if self._journal is not None:
                self._journal.commit(group_id, {place: committed}, producer)
            self._offsets.stage(producer[0], group_id, place, committed)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Let the offsets of a transaction take effect, or forget them."""
        with self._changed:
            self._offsets.end_transaction(producer_id, commits=commits)

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions of which a group has offsets in open transactions."""
        with self._changed:
            return self._offsets.unstable(group_id)

    # ---- deleting ----

    def forget_topic(self, topic: str) -> None:
        with self._changed:
            for group_id, committed in self._offsets.by_group.items():
                self._forget(group_id, [place for place in committed if place[0] == topic])
            self._offsets.unstage_topic(topic)

    def _forget(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        committed = self._offsets.by_group.get(group_id, {})
        gone = [place for place in places if place in committed]
        if gone and self._journal is not None:
            self._journal.commit(group_id, dict.fromkeys(gone))
        self._offsets.drop(group_id, gone)

    def delete(self, group_id: str) -> None:
        """Delete a group; KafkaError if there is none, or it has members."""
        with self._changed:
            classic, consumer = self._groups.get(group_id), self._consumers.get(group_id)
            if classic is not None:
                classic.tick(self._now())
            if consumer is not None:
                consumer.tick(self._now())
            if (classic is not None and classic.members) or (consumer is not None and consumer.members):
                raise KafkaError(codes.NON_EMPTY_GROUP)
            if classic is None and consumer is None and group_id not in self._offsets.by_group:
                raise KafkaError(codes.GROUP_ID_NOT_FOUND)
            if self._journal is not None:
                self._journal.delete_group(group_id, self._offsets.of(group_id))
            self._groups.pop(group_id, None)
            self._noted.pop(group_id, None)
            self._consumers.pop(group_id, None)
            self._offsets.drop_group(group_id)

    def delete_offsets(self, group_id: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Delete offsets of a group; return the code for each."""
        with self._changed:
            exists = group_id in self._groups or group_id in self._consumers or group_id in self._offsets.by_group
            if not exists:
                raise KafkaError(codes.GROUP_ID_NOT_FOUND)
            classic = self._groups.get(group_id)
            if classic is not None and classic.members and classic.protocol_type != "consumer":
                raise KafkaError(codes.NON_EMPTY_GROUP)
            subscribed = self._list_subscribed(group_id)
            codes_of = {
                place: codes.GROUP_SUBSCRIBED_TO_TOPIC if place[0] in subscribed else codes.NONE for place in places
            }
            self._forget(group_id, [place for place, code in codes_of.items() if not code])
            return codes_of

    def _list_subscribed(self, group_id: str) -> set[str]:
        consumer, classic = self._consumers.get(group_id), self._groups.get(group_id)
        if consumer is not None:
            return {topic for member in consumer.members.values() for topic in member.topics}
        members = [] if classic is None else classic.members.values()
        return {
            topic
            for member in members
            for _, metadata in member.asked.protocols
            for topic in subscribed_topics(metadata)
        }

    def close(self) -> None:
        """Answer all waiting requests, and release the store of commits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._journal is not None:
            self._journal.close()


# ---- a classic group as fields of Kafka's record of it, and what its members say in Kafka's formats ----


def standing_of(group: ClassicGroup) -> tuple[object, ...]:
    """Return a value that changes whenever the record of a group does."""
    return group.generation, group.state, *group.members


def group_fields(group: ClassicGroup) -> dict[str, Any]:
    protocol = group.protocol or ""
    return {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [
            {
                "memberId": member.id,
                "groupInstanceId": member.asked.instance_id,
                "clientId": member.asked.client_id,
                "clientHost": f"/{member.asked.host}",
                "rebalanceTimeout": round(member.asked.rebalance_s * 1000),
                "sessionTimeout": round(member.asked.session_s * 1000),
                "subscription": member.metadata(protocol),
                "assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


def group_of(group_id: str, fields: Mapping[str, Any], now: float) -> ClassicGroup:
    """Return a group by its record; members have a session's time to send the next heartbeat."""
    kind, protocol = fields["protocolType"], fields["protocol"]
    group = ClassicGroup(
        group_id,
        state=GroupState.STABLE if fields["members"] else GroupState.EMPTY,
        generation=fields["generation"],
        protocol_type=kind or None,
        protocol=protocol,
        leader=fields["leader"],
    )
    for member in fields["members"]:
        session_s = member["sessionTimeout"] / 1000
        rebalance_s = max(member.get("rebalanceTimeout", -1) / 1000, session_s)
        asked = Join(
            member["memberId"],
            member.get("groupInstanceId"),
            member["clientId"],
            member["clientHost"].removeprefix("/"),
            session_s,
            rebalance_s,
            kind,
            ((protocol or "", member["subscription"]),),
        )
        group.members[asked.member_id] = Member(asked.member_id, asked, now + session_s, member["assignment"])
    return group


def subscribed_topics(metadata: bytes) -> list[str]:
    """Return the topics in a subscription of a consumer, which is the beginning of ConsumerProtocolSubscription."""
    count, at, topics = int.from_bytes(metadata[2:6], "big", signed=True), 6, []
    for _ in range(max(0, count)):
        size = int.from_bytes(metadata[at : at + 2], "big")
        if at + 2 + size > len(metadata):
            break
        topics.append(metadata[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return topics
