"""Groups of a server that is written to: offsets that belong to transactions, groups that are deleted or go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from pylogseg.server import codes
from pylogseg.server.codes import KafkaError
from pylogseg.server.coordinator import MOST_METADATA, Committed, Coordinator, Offsets, Place
from pylogseg.server.groups import ClassicGroup, Join, Member, State
from pylogseg.server.writing.transactions import NOBODY, Producer

_T = TypeVar("_T")

#: For tests a session may be short.
_SESSIONS_S = (0.1, 1800.0)
#: States that last: in the others members wait for each other, and join again after a restart.
_LASTING = (State.STABLE, State.EMPTY)


class Keeper(Protocol):
    """Where offsets and members are noted before they take effect, so that they outlast the process.

    None deletes an offset.
    """

    def place_of(self, name: str) -> Place: ...
    def commit(self, group: str, offsets: Mapping[Place, Committed | None], producer: Producer = NOBODY) -> None: ...
    def delete_group(self, group: str, places: Iterable[Place]) -> None: ...
    def note_group(self, group: str, fields: Mapping[str, Any]) -> None: ...


class WrittenGroups(Coordinator):
    """The groups; see `Coordinator`.

    Parameters
    ----------
    load, now
        As in `Coordinator`.
    kept : Keeper, optional
        By default offsets are in memory alone.
    staged : dict, optional
        Offsets that transactions have not ended yet, by the id of the producer.
    """

    def __init__(
        self,
        load: Callable[[], Offsets] = dict,
        *,
        now: Callable[[], float] = time.monotonic,
        kept: Keeper | None = None,
        staged: dict[int, Offsets] | None = None,
    ) -> None:
        super().__init__(load, sessions=_SESSIONS_S, now=now)
        self._kept = kept
        #: Offsets that take effect when the transaction of a producer commits.
        self._staged: dict[int, Offsets] = staged or {}
        #: What was noted last of each group: generation, state, members.
        self._noted: dict[str, tuple[object, ...]] = {}

    def wake(self) -> None:
        """Let all that wait look at the clock again."""
        with self._changed:
            self._changed.notify_all()

    def commit(self, group_id: str, place: Place, committed: Committed) -> None:
        """Note an offset."""
        with self._changed:
            if self._kept is not None:
                _check_metadata(committed)
                self._kept.commit(group_id, {place: committed})
                self._told.add(group_id)  # it need not hear that its offsets are in memory
            super().commit(group_id, place, committed)

    # ---- members ----

    def resume(self, noted: Mapping[str, Mapping[str, Any]]) -> None:
        """Let classic groups go on where they stood: members have a session's time to send the next heartbeat."""
        with self._changed:
            for group_id, fields in noted.items():
                group = self._groups[group_id] = _group_of(group_id, fields, self._now())
                self._noted[group_id] = _standing(group)

    def in_group(self, group_id: str, work: Callable[[ClassicGroup, float], _T], *, make: bool = False) -> _T:
        """As in `Coordinator`; a group that has become stable or empty is noted before anybody hears of it."""
        with self._changed:
            try:
                return super().in_group(group_id, work, make=make)
            finally:
                group = self._groups.get(group_id)
                if self._kept is not None and group is not None:
                    self._note(self._kept, group)

    def _note(self, kept: Keeper, group: ClassicGroup) -> None:
        standing = _standing(group)
        if group.generation and group.state in _LASTING and self._noted.get(group.id) != standing:
            kept.note_group(group.id, _fields_of(group))
            self._noted[group.id] = standing

    def topics_changed(self) -> None:
        """Let groups of the new protocol share out what topics there are now."""
        with self._changed:
            for group in self._consumers.values():
                group.topics_changed()

    # ---- transactions ----

    def place_of(self, group_id: str) -> Place | None:
        """Return the partition that keeps a group's offsets; None where they are in memory."""
        return None if self._kept is None else self._kept.place_of(group_id)

    def stage(self, producer: Producer, group_id: str, place: Place, committed: Committed) -> None:
        """Note an offset that a transaction commits."""
        _check_metadata(committed)
        with self._changed:
            self._charge(committed)
            if self._kept is not None:
                self._kept.commit(group_id, {place: committed}, producer)
            self._staged.setdefault(producer.id, {}).setdefault(group_id, {})[place] = committed

    def _kept_offsets(self) -> Iterator[Committed]:
        yield from super()._kept_offsets()
        for groups in self._staged.values():
            for offsets in groups.values():
                yield from offsets.values()

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Let the offsets of a transaction take effect, or forget them."""
        with self._changed:
            staged = self._staged.pop(producer_id, {})
            self._offset_bytes = None
            if commits:
                offsets = self._all()
                for group_id, found in staged.items():
                    offsets.setdefault(group_id, {}).update(found)

    def unstable(self, group_id: str) -> set[Place]:
        """Return the partitions of which a group has offsets in open transactions."""
        with self._changed:
            return {place for staged in self._staged.values() for place in staged.get(group_id, ())}

    # ---- deleting ----

    def forget_topic(self, topic: str) -> None:
        """Forget the offsets of a topic that is deleted."""
        with self._changed:
            for group_id, found in self._all().items():
                self._forget(group_id, [place for place in found if place[0] == topic])
            for staged in self._staged.values():
                for found in staged.values():
                    for place in [each for each in found if each[0] == topic]:
                        del found[place]

    def _forget(self, group_id: str, places: Iterable[Place]) -> None:
        known = self._all().get(group_id, {})
        gone = [place for place in places if place in known]
        if gone and self._kept is not None:
            self._kept.commit(group_id, dict.fromkeys(gone))
        for place in gone:
            del known[place]
        self._offset_bytes = None

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
            if classic is None and consumer is None and group_id not in self._all():
                raise KafkaError(codes.GROUP_ID_NOT_FOUND)
            if self._kept is not None:
                self._kept.delete_group(group_id, self._all().get(group_id, ()))
            self._groups.pop(group_id, None)
            self._noted.pop(group_id, None)
            self._consumers.pop(group_id, None)
            self._all().pop(group_id, None)
            self._offset_bytes = None

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> dict[Place, int]:
        """Delete offsets of a group; return the code for each."""
        with self._changed:
            known = group_id in self._groups or group_id in self._consumers or group_id in self._all()
            if not known:
                raise KafkaError(codes.GROUP_ID_NOT_FOUND)
            classic = self._groups.get(group_id)
            if classic is not None and classic.members and classic.protocol_type != "consumer":
                raise KafkaError(codes.NON_EMPTY_GROUP)
            subscribed = self._subscribed(group_id)
            found = {
                place: codes.GROUP_SUBSCRIBED_TO_TOPIC if place[0] in subscribed else codes.NONE for place in places
            }
            self._forget(group_id, [place for place, code in found.items() if not code])
            return found

    def _subscribed(self, group_id: str) -> set[str]:
        """Return the topics that the members of a group read."""
        consumer, classic = self._consumers.get(group_id), self._groups.get(group_id)
        if consumer is not None:
            return {topic for member in consumer.members.values() for topic in member.topics}
        members = [] if classic is None else classic.members.values()
        return {topic for member in members for _, metadata in member.asked.protocols for topic in _topics_of(metadata)}


def _standing(group: ClassicGroup) -> tuple[object, ...]:
    """Return what changes whenever the record of a group does."""
    return group.generation, group.state, *group.members


def _fields_of(group: ClassicGroup) -> dict[str, Any]:
    protocol = group.protocol or ""
    return {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [
            {
                "memberId": each.id,
                "groupInstanceId": each.asked.instance_id,
                "clientId": each.asked.client_id,
                "clientHost": f"/{each.asked.host}",
                "rebalanceTimeout": round(each.asked.rebalance_s * 1000),
                "sessionTimeout": round(each.asked.session_s * 1000),
                "subscription": each.metadata(protocol),
                "assignment": each.assignment,
            }
            for each in group.members.values()
        ],
    }


def _group_of(group_id: str, fields: Mapping[str, Any], now: float) -> ClassicGroup:
    kind, protocol = fields["protocolType"], fields["protocol"]
    group = ClassicGroup(
        group_id,
        state=State.STABLE if fields["members"] else State.EMPTY,
        generation=fields["generation"],
        protocol_type=kind or None,
        protocol=protocol,
        leader=fields["leader"],
    )
    for each in fields["members"]:
        session_s = each["sessionTimeout"] / 1000
        rebalance_s = max(each.get("rebalanceTimeout", -1) / 1000, session_s)
        asked = Join(
            each["memberId"],
            each.get("groupInstanceId"),
            each["clientId"],
            each["clientHost"].removeprefix("/"),
            session_s,
            rebalance_s,
            kind,
            ((protocol or "", each["subscription"]),),
        )
        group.members[asked.member_id] = Member(asked.member_id, asked, now + session_s, each["assignment"])
    return group


def _check_metadata(committed: Committed) -> None:
    if len(committed.metadata) > MOST_METADATA:
        raise KafkaError(codes.OFFSET_METADATA_TOO_LARGE)


def _topics_of(metadata: bytes) -> list[str]:
    """Return the topics in a subscription of a consumer, which is the beginning of ConsumerProtocolSubscription."""
    count, at, found = int.from_bytes(metadata[2:6], "big", signed=True), 6, []
    for _ in range(max(0, count)):
        size = int.from_bytes(metadata[at : at + 2], "big")
        if at + 2 + size > len(metadata):
            break
        found.append(metadata[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return found
