"""Groups, their members and their offsets, as the group coordinator would load them from ``__consumer_offsets``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.format.messages.codec import MalformedError, decode_message
from pylogseg.format.messages.framing import HOMES
from pylogseg.format.messages.program import decode_columns, heads
from pylogseg.format.messages.schema import by_number, message
from pylogseg.format.records import RecordColumns
from pylogseg.reading.partition import Chunk
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.keyed_log import KeyedLog, newest_replicas
from pylogseg.values.internal.message_arrays import message_arrays, typed_records
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.state_columns import GROUPS, MEMBERS, state_table

TOPIC = "__consumer_offsets"
_Row = dict[str, Any]
# Types of records, by the names of their schemas.
_LEGACY_OFFSET, _OFFSET, _CLASSIC = 0, 1, 2
_EPOCHS = {3: "Consumer", 11: "Share", 17: "Streams"}
_MEMBERS = {5: "Consumer", 10: "Share", 19: "Streams"}
_ASSIGNMENT_EPOCHS, _TARGETS, _CURRENT = (6, 12, 20), (7, 13, 21), (8, 14, 22)
_EXPRESSIONS, _TOPOLOGY = 16, 23
#: States of a member whose assignment is what the group wants: of consumers, and of streams.
_STABLE = {8: 0, 14: 0, 22: 1}
_STATES = {8: ("Stable", "UnrevokedPartitions", "UnreleasedPartitions"), 14: ("Stable",),
           22: ("Unknown", "Stable", "UnrevokedTasks", "UnreleasedTasks")}  # fmt: skip
#: What the broker chooses where no member asks for an assignor.
_DEFAULT_ASSIGNOR = "uniform"


@dataclass
class GroupRecords:
    """The records of ``__consumer_offsets`` that are the state at a moment, by type, and pending offsets.

    `emptied` has groups, with their partition, whose offsets were deleted after the group was, if it was: the
    coordinator keeps such a group, without offsets, until it looks for groups to remove.
    """

    tables: dict[int, pa.Table]
    pending: list[_Row]
    emptied: dict[str, int]

    @classmethod
    def read(cls, disk: Disk, cut_off: CutOff, notes: Notes) -> GroupRecords:
        parts: dict[int, list[pa.Table]] = defaultdict(list)
        pending: list[_Row] = []
        emptied: dict[str, int] = {}
        for log in newest_replicas(disk, TOPIC, notes):
            keyed = KeyedLog(log, cut_off, notes)
            gone = _Tombstones()
            typed = typed_records(TOPIC, gone.note_tombstones(keyed.last_of_each_key(tombstones=True)))
            emptied |= dict.fromkeys(gone.list_emptied(), int(log.name.rpartition("-")[2]))
            for number, table in typed.tables.items():
                parts[number].append(table)
            waiting = typed_records(TOPIC, keyed.pending())
            if _OFFSET in waiting.tables:
                pending += _still_pending(keyed, waiting.tables[_OFFSET].to_pylist())
            for records_of_log in (typed, waiting):
                notes.add_typed(log.name, records_of_log)
        return cls({number: pa.concat_tables(tables) for number, tables in parts.items()}, pending, emptied)

    def rows(self, numbers: int | Iterable[int]) -> Iterator[tuple[int, _Row]]:
        """Yield the records of some types, with their types."""
        for number in [numbers] if isinstance(numbers, int) else numbers:
            if number in self.tables:
                for row in self.tables[number].to_pylist():
                    yield number, row


class _Tombstones:
    """When offsets of groups, and groups, were last deleted, by the offsets of the records."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    def note_tombstones(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Pass on chunks, and note the tombstones in them."""
        for chunk in chunks:
            columns = chunk.columns
            rows = np.flatnonzero(columns.value_size < 0)
            if len(rows):
                self._note(columns.take(rows))
            yield chunk

    def _note(self, columns: RecordColumns) -> None:
        number = heads(columns.key_place, columns.key_size, columns.sources, framed=False).number
        for kind, of in by_number(HOMES[TOPIC], "coordinator-key").items():
            rows = np.flatnonzero(number == kind)
            if not len(rows) or kind not in (_LEGACY_OFFSET, _OFFSET, _CLASSIC, *_EPOCHS):
                continue
            place, size = columns.key_place[rows] + 2, columns.key_size[rows] - 2
            keys = decode_columns(of.name, np.zeros(len(rows), np.int16), place, size, columns.sources)
            names = message_arrays(keys)["group" if kind <= _CLASSIC else "groupId"].to_pylist()
            into = self._offsets if kind <= _OFFSET else self._groups
            for name, offset in zip(names, columns.offset[rows].tolist(), strict=True):
                if name is not None:
                    into[name] = max(into.get(name, -1), offset)

    def list_emptied(self) -> list[str]:
        """Groups that lost offsets, and were not deleted since."""
        return [name for name, offset in self._offsets.items() if offset > self._groups.get(name, -1)]


def _still_pending(keyed: KeyedLog, rows: list[_Row]) -> list[_Row]:
    """The last offset of each producer and partition that no tombstone took away."""
    gone: dict[tuple[str, str, int], int] = {}
    removed = typed_tombstones(keyed)
    for row in removed:
        gone[row["group"], row["topic"], row["partition"]] = row["recordOffset"]
    last = {(row["recordProducerId"], row["group"], row["topic"], row["partition"]): row for row in rows}
    return [row for key, row in last.items() if row["recordOffset"] > gone.get(key[1:], -1)]


def typed_tombstones(keyed: KeyedLog) -> list[_Row]:
    """Offsets that were removed: keys of commits whose last record is a tombstone."""
    key = message("OffsetCommitKey")
    tombstones = []
    for columns, _ in keyed.last_of_each_key(tombstones=True):
        for i, size in enumerate(columns.value_size.tolist()):
            raw = columns.key(i)
            if size < 0 and raw is not None and raw[:2] in (b"\0\0", b"\0\1"):
                try:
                    fields, _ = decode_message(key, 0, raw, 2)
                except MalformedError:
                    continue  # counted where values are read
                tombstones.append(fields | {"recordOffset": int(columns.offset[i])})
    return tombstones


@dataclass
class Group:
    """One group, with its members by id."""

    name: str
    type: str = "Classic"
    partition: int = -1
    is_known: bool = False
    protocol_type: str = ""
    assignor: str | None = None
    epoch: int | None = None
    assignment_epoch: int | None = None
    topology: tuple[int, int] | None = None
    members: dict[str, _Row] = field(default_factory=dict)
    unstable: bool = False
    assignors: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> str:
        """As the coordinator says it of the records; the state of a rebalance under way is nowhere on the disk."""
        if not self.members:
            return "Empty"
        if self.type in ("Classic", "Share"):
            return "Stable"
        if self.type == "Streams" and self.topology is not None and self.topology[0] != self.topology[1]:
            return "NotReady"
        if (self.epoch or 0) > (self.assignment_epoch or 0):
            return "Assigning"
        behind = any(row["memberEpoch"] != self.assignment_epoch for row in self.members.values())
        return "Reconciling" if behind or self.unstable else "Stable"


def groups_of(records: GroupRecords, topics: Mapping[str, str]) -> dict[str, Group]:
    """Put records together to groups by name; `topics` are names by topic id, and an unknown id stands for itself."""
    groups: dict[str, Group] = {}
    for number in (_LEGACY_OFFSET, _OFFSET):
        if number in records.tables:
            counted = records.tables[number].group_by("group").aggregate([("internalPartition", "min")])
            for name, partition in zip(*(column.to_pylist() for column in counted.columns), strict=True):
                groups.setdefault(name, Group(name, partition=partition))
    for name, partition in records.emptied.items():
        groups.setdefault(name, Group(name, partition=partition))
    for row in records.pending:
        _group(groups, row, row["group"])
    for _, row in records.rows(_CLASSIC):
        _classic(_group(groups, row, row["group"]), row)
    _epochs(groups, records)
    for number, row in records.rows(_MEMBERS):
        _member(_group(groups, row, row["groupId"], _MEMBERS[number]), number, row)
    for number, row in records.rows((*_TARGETS, *_CURRENT)):
        _set_assignment(groups, number, row, topics)
    return groups


def _group(groups: dict[str, Group], row: _Row, name: str, kind: str = "") -> Group:
    group = groups.setdefault(name, Group(name, partition=row["internalPartition"]))
    if kind:
        group.type, group.is_known, group.protocol_type = kind, True, kind.lower()
    return group


def _epochs(groups: dict[str, Group], records: GroupRecords) -> None:
    for number, row in records.rows(_EPOCHS):
        group = _group(groups, row, row["groupId"], _EPOCHS[number])
        group.epoch = row["epoch"]
        if number == 17:
            group.topology = (row["validatedTopologyEpoch"], -1)
    for _, row in records.rows(_ASSIGNMENT_EPOCHS):
        _group(groups, row, row["groupId"]).assignment_epoch = row["assignmentEpoch"]
    for _, row in records.rows(_TOPOLOGY):
        group = _group(groups, row, row["groupId"])
        group.topology = (group.topology[0] if group.topology else -1, row["epoch"])


def _classic(group: Group, row: _Row) -> None:
    group.is_known, group.protocol_type, group.assignor = True, row["protocolType"], row["protocol"]
    for member in row["members"]:
        group.members[member["memberId"]] = {
            "group": group.name,
            "memberId": member["memberId"],
            "instanceId": member["groupInstanceId"],
            "clientId": member["clientId"],
            "host": member["clientHost"],
            "isClassic": True,
            "state": "Stable",
            "subscribedTopics": consumer_topics(row["protocolType"], member["subscription"]),
            "assignment": consumer_partitions(row["protocolType"], member["assignment"]),
        }


def _consumer_protocol(name: str, protocol_type: str, raw: bytes) -> _Row | None:
    """A struct of the consumer protocol, of a version that may be newer: it is read as the last known one."""
    if protocol_type != "consumer" or len(raw) < 2:
        return None
    of = message(name)
    version = min(int.from_bytes(raw[:2], "big", signed=True), of.versions.last)
    try:
        return decode_message(of, version, raw, 2)[0] if version >= 0 else None
    except MalformedError:
        return None


def consumer_topics(protocol_type: str, raw: bytes) -> list[str] | None:
    """The topics that a classic member subscribes to; None unless the protocol is ``consumer``."""
    subscription = _consumer_protocol("ConsumerProtocolSubscription", protocol_type, raw)
    return None if subscription is None else subscription["topics"]


def consumer_partitions(protocol_type: str, raw: bytes) -> list[_Row] | None:
    """The partitions of a classic member; None unless the protocol is ``consumer``."""
    parts = _consumer_protocol("ConsumerProtocolAssignment", protocol_type, raw)
    return (
        None if parts is None else _by_topic((row["topic"], row["partitions"]) for row in parts["assignedPartitions"])
    )


def _by_topic(pairs: Iterable[tuple[str, list[int]]]) -> list[_Row]:
    partitions_of: dict[str, list[int]] = defaultdict(list)
    for topic, partitions in pairs:
        partitions_of[topic] += partitions
    return [{"topic": topic, "partitions": sorted(partitions_of[topic])} for topic in sorted(partitions_of)]


def _member(group: Group, number: int, row: _Row) -> None:
    group.members[row["memberId"]] = {
        "group": group.name,
        "memberId": row["memberId"],
        "instanceId": row.get("instanceId"),
        "clientId": row["clientId"],
        "host": row["clientHost"],
        "rackId": row["rackId"],
        "memberEpoch": -1,
        "isClassic": number == 5 and row["classicMemberMetadata"] is not None,
        "subscribedTopics": row.get("subscribedTopicNames"),
        "subscribedRegex": row.get("subscribedTopicRegex") or None,
        "assignment": [],
        "targetAssignment": [],
    }
    if number == 5 and row["serverAssignor"]:
        group.assignors[row["serverAssignor"]] += 1


def _set_assignment(groups: dict[str, Group], number: int, row: _Row, topics: Mapping[str, str]) -> None:
    group = groups.get(row["groupId"])
    member = None if group is None else group.members.get(row["memberId"])
    if group is None or member is None:
        return
    column = "assignment" if number in _CURRENT else "targetAssignment"
    if number in _CURRENT:
        member["memberEpoch"] = row["memberEpoch"]
        names = _STATES[number]
        member["state"] = names[row["state"]] if 0 <= row["state"] < len(names) else f"Unknown({row['state']})"
        group.unstable |= row["state"] != _STABLE[number]
    if number in (21, 22):
        member[column] = _by_topic((task["subtopologyId"], task["partitions"]) for task in row["activeTasks"])
        for kind in ("standbyTasks", "warmupTasks") if number == 22 else ():
            member[kind] = _by_topic((task["subtopologyId"], task["partitions"]) for task in row[kind])
        return
    parts = row["assignedPartitions"] if number in _CURRENT else row["topicPartitions"]
    member[column] = _by_topic((topics.get(part["topicId"], part["topicId"]), part["partitions"]) for part in parts)


def groups_table(groups: Mapping[str, Group], offsets: Mapping[str, int]) -> pa.Table:
    """Return a row for each group, with the number of its committed offsets."""
    rows = []
    for name in sorted(groups):
        group = groups[name]
        assignor = group.assignor
        if group.type == "Consumer":
            assignor = group.assignors.most_common(1)[0][0] if group.assignors else _DEFAULT_ASSIGNOR
        rows.append(
            {
                "group": name,
                "type": group.type,
                "state": group.state,
                "protocolType": group.protocol_type,
                "assignor": assignor or None,
                "groupEpoch": group.epoch,
                "assignmentEpoch": group.assignment_epoch,
                "members": len(group.members),
                "offsets": offsets.get(name, 0),
                "isSimple": group.type == "Classic" and not group.members and not group.protocol_type,
                "offsetsPartition": group.partition,
            }
        )
    return state_table(rows, GROUPS)


def members_table(groups: Mapping[str, Group]) -> pa.Table:
    rows = [groups[name].members[member] for name in sorted(groups) for member in sorted(groups[name].members)]
    return state_table(rows, MEMBERS)
