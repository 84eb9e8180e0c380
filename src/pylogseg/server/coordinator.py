"""All groups of this node, and their committed offsets, in memory; here threads wait for what a group decides."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from pylogseg.errors import StorageError
from pylogseg.format.escape import printable
from pylogseg.server import codes
from pylogseg.server.codes import KafkaError
from pylogseg.server.consumer_groups import Beat, ConsumerGroup, Known
from pylogseg.server.groups import Answer, ClassicGroup, State, Ticket

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MOST_GROUPS = 1000
MOST_METADATA = 4096
#: What the members of all groups bring along, and what all offsets take.
MOST_MEMBER_BYTES, MOST_OFFSET_BYTES = 64 << 20, 256 << 20
#: An offset beside its text.
_OFFSET_BYTES = 256
_LEAST_SESSION_S, _MOST_SESSION_S = 6.0, 1800.0
#: Who waits looks so often whether its client is still there.
_LOOK_S = 1.0

#: A topic and a partition.
Place = tuple[str, int]


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    epoch: int = -1
    metadata: str = ""


class Listed(NamedTuple):
    """A group in a list."""

    name: str
    kind: str
    state: str
    protocol_type: str


#: Offsets by group.
Offsets = dict[str, dict[Place, Committed]]


class Store(Protocol):
    """Where commits are kept from one run to the next."""

    def add(self, group: str, commits: Mapping[Place, Committed]) -> None: ...
    def close(self) -> None: ...


class Coordinator:
    """The groups.

    Parameters
    ----------
    load : callable, optional
        Returns the offsets that groups start with; called when the first is asked for.
    store : Store, optional
        Keeps the commits; without one they are gone when the server stops.
    initial_delay_s : float
        For how long an empty group waits for more members than its first.
    sessions : tuple of float
        The shortest and the longest session that a member may ask for, in seconds.
    now : callable
        The clock.
    """

    def __init__(
        self,
        load: Callable[[], Offsets] = dict,
        store: Store | None = None,
        *,
        initial_delay_s: float = 0.0,
        sessions: tuple[float, float] = (_LEAST_SESSION_S, _MOST_SESSION_S),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._unsaved = store, Offsets()
        self._load, self._initial_delay_s, self.sessions, self._now = load, initial_delay_s, sessions, now
        #: Returns the settings that a group has of its own, by Kafka's names.
        self.settings_of: Callable[[str], Mapping[str, str]] = lambda _: {}
        self._changed = threading.Condition()
        self._groups: dict[str, ClassicGroup] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._offsets: Offsets | None = None
        self._told: set[str] = set()
        self._closed = False
        #: Bytes of the groups when they last changed, and of all offsets; None if these have to be counted.
        self._sizes: dict[str, int] = {}
        self._offset_bytes: int | None = None

    # ---- groups ----

    def check_session(self, seconds: float) -> None:
        """Refuse a session that is shorter or longer than this server allows."""
        if not self.sessions[0] <= seconds <= self.sessions[1]:
            raise KafkaError(codes.INVALID_SESSION_TIMEOUT)

    def in_group(self, group_id: str, work: Callable[[ClassicGroup, float], _T], *, make: bool = False) -> _T:
        """Do something with a group, which is made if that is wanted.

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
                group = self._groups[group_id] = ClassicGroup(group_id, self._initial_delay_s)
            try:
                return work(group, self._now())
            finally:
                self._changed.notify_all()

    def _make_room(self) -> None:
        """Forget a group without members if there are many groups; KafkaError if all have some."""
        if len(self._groups) + len(self._consumers) < MOST_GROUPS:
            return
        idle = next((name for name, each in self._groups.items() if not each.members and not each.pending), None)
        if idle is not None:
            del self._groups[idle]
            return
        idle = next((name for name, each in self._consumers.items() if not each.members), None)
        if idle is None:
            raise KafkaError(codes.GROUP_MAX_SIZE_REACHED, f"there are {MOST_GROUPS} groups already")
        del self._consumers[idle]

    def beat(self, group_id: str, beat: Beat, topics: Callable[[], Mapping[str, Known]]) -> Answer:
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

    def waited(
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
            while (found := self._answer(group_id, ticket)) is None:
                look()
            return found
        except BaseException:
            with contextlib.suppress(KafkaError):
                self.in_group(group_id, lambda group, now: group.abandon(now, ticket))
            raise

    def check_room(self, size: int) -> None:
        """Refuse what members bring along if all groups have too much of it; KafkaError then."""
        with self._changed:
            if size + sum(self._sizes.values()) <= MOST_MEMBER_BYTES:
                return
            self._count_sizes()
            if size + sum(self._sizes.values()) > MOST_MEMBER_BYTES:
                text = f"the members of all groups have {MOST_MEMBER_BYTES >> 20} MiB of metadata already"
                raise KafkaError(codes.GROUP_MAX_SIZE_REACHED, text)

    def _note_size(self, group_id: str) -> None:
        with self._changed:
            found = self._groups.get(group_id), self._consumers.get(group_id)
            self._sizes[group_id] = sum(each.size for each in found if each is not None)
            if len(self._sizes) > 2 * MOST_GROUPS:  # of groups that are gone
                self._count_sizes()

    def _count_sizes(self) -> None:
        self._sizes = {name: each.size for name, each in self._groups.items()}
        for name, each in self._consumers.items():
            self._sizes[name] = each.size

    def _answer(self, group_id: str, ticket: Ticket) -> Answer | None:
        """Wait for an answer, and for the time that makes one; None if there is none for so long."""
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

    def groups(self) -> Iterator[Listed]:
        """Yield all groups that have members or offsets."""
        with self._changed:
            now = self._now()
            for name in sorted({*self._groups, *self._consumers, *self._all()}):
                if name in self._consumers:
                    self._consumers[name].tick(now)
                    yield Listed(name, "consumer", self._consumers[name].state, "consumer")
                elif name in self._groups:
                    self._groups[name].tick(now)
                    group = self._groups[name]
                    yield Listed(name, "classic", group.state.value, group.protocol_type or "")
                else:
                    yield Listed(name, "classic", State.EMPTY.value, "")

    def described_consumers(self, group_id: str) -> Answer | None:
        """Return what ConsumerGroupDescribe shows of a group; None for one of another kind."""
        with self._changed:
            group = self._consumers.get(group_id)
            if group is None:
                return None
            group.tick(self._now())
            return group.described()

    def described(self, group_id: str) -> Answer | None:
        """Return what DescribeGroups shows of a group; one that has offsets alone is empty, None is none."""
        with self._changed:
            group = self._groups.get(group_id)
            if group is None:
                known = group_id in self._all() and group_id not in self._consumers
                return ClassicGroup(group_id).described() if known else None
            group.tick(self._now())
            return group.described()

    # ---- offsets ----

    def _all(self) -> Offsets:
        if self._offsets is None:
            self._offsets = self._load()
        return self._offsets

    def check_commit(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise KafkaError if a commit is not allowed."""
        with self._changed:
            if group_id in self._consumers:
                self._consumers[group_id].check_commit(self._now(), member_id, generation)
                return
            if group_id not in self._groups:
                if generation >= 0:  # there is a group, without members, where there are offsets
                    raise KafkaError(codes.UNKNOWN_MEMBER_ID if self._all().get(group_id) else codes.GROUP_ID_NOT_FOUND)
                return
        self.in_group(group_id, lambda group, now: group.check_commit(now, member_id, instance_id, generation))

    def commit(self, group_id: str, place: Place, committed: Committed) -> None:
        """Note an offset."""
        if len(committed.metadata) > MOST_METADATA:
            raise KafkaError(codes.OFFSET_METADATA_TOO_LARGE)
        with self._changed:
            offsets = self._all()
            if group_id not in self._told and len(self._told) >= MOST_GROUPS:
                raise KafkaError(codes.GROUP_MAX_SIZE_REACHED)
            self._charge(committed, offsets.get(group_id, {}).get(place))
            offsets.setdefault(group_id, {})[place] = committed
            if self._store is not None:
                self._unsaved.setdefault(group_id, {})[place] = committed
            if group_id not in self._told and self._store is None:
                _log.info("group %s: its commits are kept in memory, until the server stops", printable(group_id))
            self._told.add(group_id)

    def _charge(self, committed: Committed, known: Committed | None = None) -> None:
        """Count an offset that is kept from now on, in the place of another; KafkaError if there are too many."""
        if self._offset_bytes is None:
            self._offset_bytes = sum(map(_size_of, self._kept_offsets()))
        size = self._offset_bytes + _size_of(committed) - (0 if known is None else _size_of(known))
        if size > MOST_OFFSET_BYTES:
            text = f"the offsets of all groups have {MOST_OFFSET_BYTES >> 20} MiB already"
            raise KafkaError(codes.INVALID_COMMIT_OFFSET_SIZE, text)
        self._offset_bytes = size

    def _kept_offsets(self) -> Iterator[Committed]:
        for offsets in self._all().values():
            yield from offsets.values()

    def save(self, group_id: str) -> None:
        """Put what a group has committed where it is kept; KafkaError if that fails, and it is tried again later."""
        with self._changed:
            commits = self._unsaved.pop(group_id, None)
        if commits is None or self._store is None:
            return
        try:
            self._store.add(group_id, commits)
        except StorageError as error:
            with self._changed:
                self._unsaved[group_id] = {**commits, **self._unsaved.get(group_id, {})}
            _log.warning("%s", printable(str(error)))
            raise KafkaError(codes.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def committed(self, group_id: str, member_id: str | None = None, epoch: int = -1) -> dict[Place, Committed]:
        """Return the offsets of a group; KafkaError if a member of a group of the new protocol is none any more."""
        with self._changed:
            if epoch >= 0 and group_id in self._consumers:
                self._consumers[group_id].check_commit(self._now(), member_id or "", epoch)
            return dict(self._all().get(group_id, {}))

    def close(self) -> None:
        """Answer all that wait, and give up what keeps the commits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._store is not None:
            self._store.close()


def _size_of(committed: Committed) -> int:
    return _OFFSET_BYTES + len(committed.metadata)
