"""A group of the new protocol (KIP-848) as a state machine: the server assigns, heartbeats carry everything.

A group has an epoch, which a change of members or subscriptions raises, and a target: the partitions for each member.
A member first gives up the partitions that the target takes from it, and confirms it by a heartbeat. Then it has the
group's epoch, and gets partitions that no member holds any more. No I/O, no threads, and a clock that the caller has.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.errors import RequestError
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.server.groups import MEMBER_BYTES, MOST_MEMBERS, MOST_METADATA_BYTES, TEXT_BYTES, Answer

_SESSION_MS, _HEARTBEAT_MS = 45_000, 5000
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
_ASSIGNORS = ("uniform", "range")
#: Of a regular expression: with classes of Unicode, RE2 takes 16 KB for each character of it.
_MOST_REGEX_BYTES = 2 << 10
#: The id of a topic, and a number of a partition.
Part = tuple[bytes, int]
Wanted = Mapping[str, set[bytes]]  #: Ids of topics by member.


# ---- assignors: they share out the partitions ----


def uniform(wanted: Wanted, counts: Mapping[bytes, int], before: Mapping[str, set[Part]]) -> dict[str, set[Part]]:
    """Give every member about as many partitions, and leave as many as possible where they were."""
    parts_of: dict[str, set[Part]] = {member: set() for member in wanted}
    taken: set[Part] = set()
    for member in sorted(wanted):
        kept = {part for part in before.get(member, ()) if part[0] in wanted[member] and part[1] < counts[part[0]]}
        parts_of[member] = kept - taken
        taken |= parts_of[member]
    for topic in sorted(set().union(*wanted.values())):
        able = sorted(member for member in wanted if topic in wanted[member])
        for number in range(counts[topic]):
            if (topic, number) not in taken:
                parts_of[min(able, key=lambda member: len(parts_of[member]))].add((topic, number))
    for _ in range(sum(counts.values())):
        if not _moved_one(wanted, parts_of):
            break
    return parts_of


def _moved_one(wanted: Wanted, found: dict[str, set[Part]]) -> bool:
    """Move a partition from a member with many to one with two less or fewer; whether there was one to move."""
    members = sorted(found, key=lambda member: (len(found[member]), member))
    for low in members:
        for high in reversed(members):
            if len(found[high]) < len(found[low]) + 2:
                break
            part = max((part for part in found[high] if part[0] in wanted[low]), default=None)
            if part is not None:
                found[high].discard(part)
                found[low].add(part)
                return True
    return False


def ranges(wanted: Wanted, counts: Mapping[bytes, int]) -> dict[str, set[Part]]:
    """Give every member neighbours of each topic, the same numbers of all topics as far as they go."""
    parts_of: dict[str, set[Part]] = defaultdict(set, {member: set() for member in wanted})
    for topic in sorted(set().union(*wanted.values())):
        able = sorted(member for member in wanted if topic in wanted[member])
        share, more = divmod(counts[topic], len(able))
        start = 0
        for i, member in enumerate(able):
            end = start + share + (i < more)
            parts_of[member] |= {(topic, number) for number in range(start, end)}
            start = end
    return dict(parts_of)


# ---- groups ----


class KnownTopic(NamedTuple):
    """A topic that may be subscribed to."""

    id: bytes
    partitions: int


def _see_all(_: str) -> bool:
    return True


class Beat(NamedTuple):
    """The content of a heartbeat; None where it says nothing new."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_s: float | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Part] | None = None
    client_id: str = ""
    host: str = ""
    #: Tells whether the client may know of a topic.
    may_see: Callable[[str], bool] = _see_all

    @property
    def is_full(self) -> bool:
        """True if it says everything, so that the answer does, too."""
        subscribes = self.topics is not None or self.regex is not None
        return self.epoch == JOINS or (self.rebalance_s is not None and subscribes and self.owned is not None)


@dataclass
class Consumer:
    """A member."""

    id: str
    beat: Beat
    alive_until: float
    rebalance_s: float = 0.0
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    may_see: Callable[[str], bool] = _see_all
    epoch: int = 0
    previous: int = 0
    #: What it has been told to have, and what it was told to give up and has not yet.
    assigned: set[Part] = field(default_factory=set)
    pending: set[Part] = field(default_factory=set)
    revoke_until: float = float("inf")

    @property
    def size(self) -> int:
        """Its bytes, with the fields of its request."""
        beat = self.beat
        texts = (self.id, self.regex or "", beat.instance_id or "", beat.rack or "", beat.client_id, *self.topics)
        return MEMBER_BYTES + sum(TEXT_BYTES + len(text) for text in texts)


@dataclass
class ConsumerGroup:
    """One group; see the module."""

    id: str
    topics: Callable[[], Mapping[str, KnownTopic]]
    #: Returns its own settings, by Kafka's names.
    settings: Callable[[], Mapping[str, str]] = dict
    epoch: int = 0
    members: dict[str, Consumer] = field(default_factory=dict)
    target: dict[str, set[Part]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.id) + sum(member.size for member in self.members.values())

    @property
    def session_s(self) -> float:
        """How long a member lives without a heartbeat."""
        return int(self.settings().get("consumer.session.timeout.ms", _SESSION_MS)) / 1000

    @property
    def heartbeat_ms(self) -> int:
        """The interval of heartbeats that members get."""
        return int(self.settings().get("consumer.heartbeat.interval.ms", _HEARTBEAT_MS))

    # ---- heartbeats ----

    def heartbeat(self, now: float, beat: Beat) -> Answer:
        """Answer a heartbeat, by which a member joins, lives, gives up partitions, or leaves."""
        self.tick(now)
        if beat.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            return self._leave(now, beat)
        if beat.epoch < LEAVES_FOR_A_WHILE:
            raise KafkaError(codes.INVALID_REQUEST, "MemberEpoch is below -2.")
        if beat.assignor is not None and beat.assignor not in _ASSIGNORS:
            text = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(_ASSIGNORS)}."
            raise KafkaError(codes.UNSUPPORTED_ASSIGNOR, text)
        member = self._join(now, beat) if beat.epoch == JOINS else self._find_member(beat)
        member.alive_until = now + self.session_s
        self._subscribe(member, beat)
        before = set(member.assigned)
        self._reconcile(now, member, beat.owned)
        is_told = beat.is_full or member.assigned != before
        return {
            "memberId": member.id,
            "memberEpoch": member.epoch,
            "heartbeatIntervalMs": self.heartbeat_ms,
            "assignment": {"topicPartitions": rows_by_topic(member.assigned)} if is_told else None,
        }

    def _join(self, now: float, beat: Beat) -> Consumer:
        if beat.rebalance_s is None or (beat.topics is None and beat.regex is None) or beat.owned:
            raise KafkaError(
                codes.INVALID_REQUEST,
                "who joins names its topics and its rebalance timeout, and owns no partitions",
            )
        owner = self._instance(beat.instance_id)
        if owner is not None and owner.id != beat.member_id:
            if owner.epoch != LEAVES_FOR_A_WHILE:
                text = f"Static member {owner.id} with instance id {beat.instance_id} is still there."
                raise KafkaError(codes.UNRELEASED_INSTANCE_ID, text)
            return self._replace(owner, beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if len(self.members) >= MOST_MEMBERS:
                raise KafkaError(codes.GROUP_MAX_SIZE_REACHED)
            member_id = beat.member_id or str(uuid.uuid4())
            member = self.members[member_id] = Consumer(member_id, beat, now + self.session_s)
            self.epoch += 1
        member.pending.clear()
        member.epoch = member.previous = JOINS
        return member

    def _replace(self, owner: Consumer, beat: Beat) -> Consumer:
        """Give the place of a static member that is away to its new process."""
        del self.members[owner.id]
        member_id = beat.member_id or str(uuid.uuid4())
        self.target[member_id] = self.target.pop(owner.id, set())
        owner.id, owner.beat, owner.pending = member_id, beat, set()
        owner.epoch = owner.previous = JOINS
        self.members[member_id] = owner
        return owner

    def _instance(self, instance_id: str | None) -> Consumer | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.beat.instance_id == instance_id), None)

    def _find_member(self, beat: Beat) -> Consumer:
        owner = self._instance(beat.instance_id)
        if owner is not None and owner.id != beat.member_id:
            raise KafkaError(codes.FENCED_INSTANCE_ID)
        member = self.members.get(beat.member_id)
        if member is None:
            raise KafkaError(codes.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of group {self.id}.")
        if beat.epoch != member.epoch:
            # The answer that raised the epoch may have been lost: then it owns no more than it was told.
            lost = beat.epoch == member.previous and beat.owned is not None and beat.owned <= member.assigned
            if beat.epoch > member.epoch or not lost:
                text = f"The member's epoch {beat.epoch} is not {member.epoch}: it has to join again."
                raise KafkaError(codes.FENCED_MEMBER_EPOCH, text)
        return member

    def _subscribe(self, member: Consumer, beat: Beat) -> None:
        before = member.topics, member.regex, member.assignor
        if beat.rebalance_s is not None:
            member.rebalance_s = beat.rebalance_s
        if beat.topics is not None:
            member.topics = tuple(sorted(set(beat.topics)))
        if beat.regex is not None:
            member.regex = beat.regex or None
        if beat.assignor is not None:
            member.assignor = beat.assignor
        is_new = member.id not in self.target  # then its joining has raised the epoch
        member.may_see = beat.may_see
        if before != (member.topics, member.regex, member.assignor) or is_new:
            self.epoch += not is_new
            self._assign()
        elif beat.epoch == JOINS and member.regex is not None:
            self.topics_changed()  # the process that takes a static member's place may see other topics

    def topics_changed(self) -> None:
        """Make a new target where topics or partitions have come or gone."""
        before = self.target
        self._assign()
        self.epoch += self.target != before

    def _assign(self) -> None:
        topics = self.topics()
        wanted = {}
        matched = {text: _matching(topics, text) for text in {member.regex for member in self.members.values()} if text}
        for member in self.members.values():
            names = {name for name in member.topics if name in topics}
            names |= {name for name in matched.get(member.regex or "", set()) if member.may_see(name)}
            wanted[member.id] = {topics[name].id for name in names}
        counts = {topic.id: topic.partitions for topic in topics.values()}
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        if votes and votes.most_common(1)[0][0] == "range":
            self.target = ranges(wanted, counts)
        else:
            self.target = uniform(wanted, counts, self.target) if wanted else {}

    def _reconcile(self, now: float, member: Consumer, owned: frozenset[Part] | None) -> None:
        """Bring a member nearer to the target: revoke partitions first, then assign free ones."""
        target = self.target.get(member.id, set())
        if member.pending and owned is not None and owned.isdisjoint(member.pending):
            member.pending, member.revoke_until = set(), float("inf")
        if member.pending:
            return
        revoked = member.assigned - target
        if revoked and member.epoch != JOINS:
            member.pending, member.assigned = revoked, member.assigned - revoked
            member.revoke_until = now + member.rebalance_s
            return
        others: set[Part] = set()
        for other in self.members.values():
            if other is not member:
                others |= other.assigned | other.pending
        member.assigned = target - others
        if member.epoch != self.epoch:
            member.previous, member.epoch = member.epoch, self.epoch

    def _leave(self, now: float, beat: Beat) -> Answer:
        owner = self._instance(beat.instance_id)
        if owner is not None and owner.id != beat.member_id:
            raise KafkaError(codes.FENCED_INSTANCE_ID)
        member = self.members.get(beat.member_id)
        if member is None:
            raise KafkaError(codes.UNKNOWN_MEMBER_ID)
        if beat.epoch == LEAVES_FOR_A_WHILE and beat.instance_id is not None:
            member.epoch, member.alive_until, member.pending = LEAVES_FOR_A_WHILE, now + self.session_s, set()
        else:
            self._remove(member)
        return {"memberId": beat.member_id, "memberEpoch": beat.epoch, "heartbeatIntervalMs": 0}

    def _remove(self, member: Consumer) -> None:
        del self.members[member.id]
        self.target.pop(member.id, None)
        self.epoch += 1
        self._assign()

    # ---- time, commits ----

    def tick(self, now: float) -> None:
        """Drop members that were silent, or that do not release their revoked partitions."""
        for member in list(self.members.values()):
            if member.alive_until <= now or member.revoke_until <= now:
                self._remove(member)

    def check_commit(self, now: float, member_id: str, epoch: int) -> None:
        """Raise KafkaError if a commit, or a look at the offsets, is not allowed."""
        self.tick(now)
        if epoch < 0 and not self.members:
            return
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(codes.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch:
            raise KafkaError(codes.STALE_MEMBER_EPOCH)

    # ---- descriptions ----

    @property
    def state(self) -> str:
        """State as Kafka names it."""
        if not self.members:
            return "Empty"
        done = all(
            peer.epoch == self.epoch and peer.assigned == self.target.get(peer.id) for peer in self.members.values()
        )
        return "Stable" if done else "Reconciling"

    def describe(self) -> Answer:
        """Return the group as ConsumerGroupDescribe shows it."""
        names = {topic.id: name for name, topic in self.topics().items()}
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return {
            "groupId": self.id,
            "groupState": self.state,
            "groupEpoch": self.epoch,
            "assignmentEpoch": self.epoch,
            "assignorName": votes.most_common(1)[0][0] if votes else "uniform",
            "members": [
                {
                    "memberId": member.id,
                    "instanceId": member.beat.instance_id,
                    "rackId": member.beat.rack,
                    "memberEpoch": member.epoch,
                    "clientId": member.beat.client_id,
                    "clientHost": f"/{member.beat.host}",
                    "subscribedTopicNames": member.topics,
                    "subscribedTopicRegex": member.regex,
                    "assignment": {"topicPartitions": rows_by_topic(member.assigned, names)},
                    "targetAssignment": {"topicPartitions": rows_by_topic(self.target.get(member.id, set()), names)},
                    "memberType": 1,
                }
                for member in self.members.values()
            ],
        }


def rows_by_topic(parts: set[Part], names: Mapping[bytes, str] | None = None) -> list[dict[str, Any]]:
    """Return partitions by their topics."""
    by_topic: dict[bytes, list[int]] = {}
    for topic, number in sorted(parts):
        by_topic.setdefault(topic, []).append(number)
    return [
        {"topicId": topic, "topicName": (names or {}).get(topic, ""), "partitions": numbers}
        for topic, numbers in by_topic.items()
    ]


def _matching(known: Mapping[str, KnownTopic], regex: str) -> set[str]:
    from pylogseg.server.regex import whole_matches

    return whole_matches(known, regex)


def _check_regex(regex: str | None) -> None:
    if not regex:
        return
    size = len(regex.encode())
    if size > _MOST_REGEX_BYTES:
        text = f"SubscribedTopicRegex has {size} bytes, {_MOST_REGEX_BYTES} are allowed."
        raise KafkaError(codes.INVALID_REGULAR_EXPRESSION, text)
    from pylogseg.server.regex import check_pattern  # few clients need Arrow, which takes long to import

    try:
        check_pattern(regex)
    except RequestError as error:
        raise KafkaError(codes.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {error}.") from None


def check_subscription(beat: Beat) -> None:
    """Refuse a member with texts larger than any client sends, since they are kept, or with an invalid expression."""
    texts = (beat.member_id, beat.instance_id, beat.rack, beat.regex, *(beat.topics or ()))
    if sum(len(text) for text in texts if text) > MOST_METADATA_BYTES:
        raise KafkaError(
            codes.INVALID_REQUEST, f"A member may not have more than {MOST_METADATA_BYTES} bytes of names."
        )
    _check_regex(beat.regex)
