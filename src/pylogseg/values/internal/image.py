"""The state of a cluster from its metadata log: brokers, topics, partitions, settings, quotas, users, ACLs, features.

`Image` follows what a broker does with each record. Everything of a topic is under its id: a topic that was deleted and
made again has two. Records of a transaction count together at its end, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.indexed_ends import indexed_end
from pylogseg.disk.listing import open_dir
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.control import ControlKind
from pylogseg.format.messages.control import decode_control
from pylogseg.format.messages.framing import Part, decode_framed
from pylogseg.format.messages.program import Decoded, Heads, decode_columns, heads, message_rows
from pylogseg.format.messages.schema import Message, by_number
from pylogseg.format.names import METADATA_TOPIC, FileKind, TopicPartition
from pylogseg.format.records import RecordColumns
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.partition import Chunk
from pylogseg.reading.seek import end_offset as end_offset_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading
from pylogseg.values.internal.partition_changes import LISTS, SAME_LEADER, SAME_STATE, PartitionChanges
from pylogseg.walker.gaps import offsets_text

_Fields = dict[str, Any]
#: Records near which all are applied one by one.
_IN_ORDER = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord", "ClearElrRecord")
#: Changes of partitions that wait to be applied together: of more, a long log would fill the memory.
_MOST_CHANGES = 500_000


@dataclass
class Image:
    """The state of the cluster after the records that were applied.

    Attributes
    ----------
    topics : dict of str to str
        Topic id to name.
    topic_ids : dict of str to str
        Name to topic id.
    configs : dict of (int, str) to dict of str to str
        Type and name of a resource to its settings.
    brokers, controllers : dict of int to dict
    features : dict of str to int
    quotas : dict of frozenset of (str, str or None) to dict of str to float
    users : dict of (str, int) to dict
        User and mechanism to a SCRAM credential, with its secrets.
    acls : dict of str to dict
    tokens : dict of str to dict
    next_producer_id : int
    offset : int
        Above the last record that was applied.
    time_ms : int
        The newest timestamp of a record; a controller that has nothing to say writes one twice a second.
    seen_ms : dict of int to int
        Of a broker, the time of the last record of the log about it: it registered, or was fenced or no longer.
    removed_topics : set of str
        Names of topics that records of the log removed.
    unknown : Counter of (int, int)
        Type and version of records that the table of messages does not have; they do not count.
    damage : list of str
        Records that are malformed; neither do they.
    notes : list of str
        Snapshots that cannot be read whole, each with where the state comes from instead.
    """

    topics: dict[str, str] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    brokers: dict[int, _Fields] = field(default_factory=dict)
    controllers: dict[int, _Fields] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[frozenset[tuple[str, str | None]], dict[str, float]] = field(default_factory=dict)
    users: dict[tuple[str, int], _Fields] = field(default_factory=dict)
    acls: dict[str, _Fields] = field(default_factory=dict)
    tokens: dict[str, _Fields] = field(default_factory=dict)
    next_producer_id: int = -1
    offset: int = 0
    time_ms: int = -1
    seen_ms: dict[int, int] = field(default_factory=dict)
    removed_topics: set[str] = field(default_factory=set)
    unknown: Counter[tuple[int, int]] = field(default_factory=Counter)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _is_log: bool = False
    _only: frozenset[str] = frozenset()
    _controls: list[ControlKind] = field(default_factory=list)
    _pending: list[Part] | None = None
    _partitions: dict[TopicPartition, _Fields] = field(default_factory=dict)
    _since: dict[TopicPartition, int] = field(default_factory=dict)
    _changes: PartitionChanges = field(default_factory=PartitionChanges)
    _removed: set[str] = field(default_factory=set)
    clears_elr: bool = False  #: A record has emptied lists of eligible leaders.

    @property
    def is_in_transaction(self) -> bool:
        """True if records at the end wait for the end of their transaction."""
        return self._pending is not None

    @property
    def partitions(self) -> dict[TopicPartition, _Fields]:
        """Topic id and partition to the fields of its record, changes applied."""
        if len(self._changes):
            self._apply_changes()
        if self._removed:  # an id is never given again
            for key in [key for key in self._partitions if key[0] in self._removed]:
                del self._partitions[key]
            self._removed.clear()
        return self._partitions

    def _apply_changes(self) -> None:
        self._changes.apply(self._partitions, self._since, _unknown_partition)
        self._since.clear()

    @classmethod
    def read(
        cls,
        of: str | Partition,
        end_offset: int | None = None,
        until_ms: int | None = None,
        *,
        only: Collection[str] = (),
    ) -> Image:
        """Read the newest snapshot in a folder ``__cluster_metadata-0``, and the log after it.

        A snapshot that is not whole is replaced by an older one and the log, if these have all records; `notes` name
        it.

        Parameters
        ----------
        of : str or Partition
            The folder, in a log directory.
        end_offset : int, optional
            The state before this offset: only snapshots and records below it count.
        until_ms : int, optional
            The state before this time: from the start of the log, or from the newest snapshot with only older records.
        only : collection of str
            The messages to decode; all others are skipped.

        Raises
        ------
        CorruptionError
            If a file is damaged, other than by a torn end, or the log begins behind the snapshot.
        StorageError
            If the folder cannot be read.
        """
        (partition,) = open_dir(of).partitions if isinstance(of, str) else (of,)
        image, base, harmed = cls(_only=frozenset(only)), "", list[tuple[int, CorruptionError | StorageError]]()
        for end, _, snapshot in _snapshots(partition, end_offset):
            try:
                if until_ms is None or _is_older(snapshot, until_ms):
                    image, base = cls._of_snapshot(snapshot, end, image._only), f"{snapshot.path} with "
                    break
            except (CorruptionError, StorageError) as error:
                harmed.append((end, error))
        first = partition.segments[0].base_offset if partition.segments else image.offset
        if first > image.offset or (harmed and end_offset_of(partition.segments) < harmed[0][0]):
            raise _gap(partition, first, image.offset, [error for _, error in harmed])
        image.notes = [f"{error}; {base}the log gives the state of the cluster instead" for _, error in harmed]
        image._read(partition, image.offset, end_offset, until_ms)
        image.notes += _lacking(partition, 2**63 - 1 if end_offset is None else end_offset)
        return image

    def go_on(self, of: Partition, end_offset: int | None) -> None:
        """Apply all records of a log from where this state ends."""
        self._only = frozenset()
        self._read(of, self.offset, end_offset, None)
        self.notes += [note for note in _lacking(of, 2**63 - 1 if end_offset is None else end_offset)
                       if note not in self.notes]  # fmt: skip

    @classmethod
    def _of_snapshot(cls, snapshot: Segment, end: int, only: frozenset[str]) -> Image:
        """Read a snapshot; CorruptionError if its first or its last record is not there."""
        image = cls(_only=only)
        image._read(snapshot, None, None, None)
        _check_whole(snapshot, image._controls)
        image.offset = end
        return image

    def _read(self, of: Segment | Partition, start: int | None, end: int | None, until_ms: int | None) -> None:
        path = of.path
        for columns, _ in _chunks(of, Selection(offsets=OffsetRange(start, end), until=until_ms, from_log_start=False)):
            self._is_log = start is not None
            self._apply_columns(columns, path)
            if self._changes.count > _MOST_CHANGES:
                self._apply_changes()
            self.time_ms = int(columns.timestamp[-1])
            if start is not None:
                self.offset = int(columns.offset[-1]) + 1

    def _apply_columns(self, columns: RecordColumns, path: str) -> None:
        """Apply records; decodes records of one type at once, and one by one if some of them fail."""
        control = columns.batches.is_control[columns.batch]
        head = heads(columns.value_place, columns.value_size, columns.sources, framed=True)
        number = np.where(control, -1, head.number)
        types = by_number("metadata", "metadata")
        in_bulk = self._pending is None and not any(
            types[n].name in _IN_ORDER for n in np.unique(number).tolist() if n in types
        )
        first = self._changes.tick(len(columns))
        left = np.ones(len(columns), np.bool_)
        steps: list[tuple[int, Callable[[Image, _Fields], Any], _Fields]] = []
        for code in np.unique(number).tolist() if in_bulk else ():
            rows = np.flatnonzero(number == code)
            if self._only and code in types and types[code].name not in self._only:
                left[rows] = False
                continue
            decoded = _decode_rows(types[code], columns, head, rows) if code in types else None
            if decoded is None:  # one of them cannot be decoded: then each is looked at for itself
                continue
            left[rows] = False
            name = types[code].name
            if name == "PartitionChangeRecord":
                self._changes.add(decoded, first + rows)
            elif name in _APPLY:
                apply = _APPLY[name]
                steps += [
                    (row, apply, fields) for row, fields in zip(rows.tolist(), message_rows(decoded), strict=True)
                ]
        for row in np.flatnonzero(left).tolist():
            self.time_ms = int(columns.timestamp[row])
            if control[row]:
                self._control(columns.key(row), columns.value(row), path)
                continue
            value, offset = columns.value(row) or b"", int(columns.offset[row])
            try:
                part = decode_framed(METADATA_TOPIC, value, path, offset)
            except CorruptionError as error:
                self.damage.append(f"{path}: offset {offset}: {error.reason}")
                continue
            if part.fields is not None and part.message is not None and in_bulk:
                steps.append((row, _APPLY.get(part.message.name, _nothing), part.fields))
            else:
                self.apply(part)
        for row, step, fields in sorted(steps, key=lambda each: each[0]):
            if step is _partition:
                key = fields["topicId"], fields["partitionId"]
                self._partitions[key], self._since[key] = fields, first + row
            else:
                self.time_ms = int(columns.timestamp[row])
                step(self, fields)

    def see(self, node_id: int) -> None:
        """Note the time of a record about a broker; records of a snapshot have the snapshot's time."""
        if self._is_log:
            self.seen_ms[node_id] = self.time_ms

    def _control(self, key: bytes | None, value: bytes | None, path: str) -> None:
        try:
            record = decode_control(key, value, path)
        except CorruptionError as error:
            self.damage.append(f"{path}: a control record: {error.reason}")
            return
        self._controls.append(record.key.kind)
        if record.key.kind is ControlKind.KRAFT_VERSION:
            self.features["kraft.version"] = record.fields["kRaftVersion"]

    def unread(self, names: Iterable[str] = ()) -> dict[str, int]:
        """Records that were left out, and how often: of some messages, or of all, that a newer Kafka wrote."""
        types, wanted, unread = by_number("metadata", "metadata"), set(names), {}
        for (number, version), count in sorted(self.unknown.items()):
            name = types[number].name if number in types else f"type {number}"
            if not wanted or name in wanted:
                unread[f"records of {name}, version {version}, which a newer Kafka wrote"] = count
        return unread

    def apply(self, record: Part) -> None:
        """Apply a record; records of a transaction wait for its end."""
        if record.message is None or record.fields is None:
            self.unknown[record.number, record.version] += 1
            return
        name = record.message.name
        if name == "BeginTransactionRecord":
            self._pending = []
        elif name == "AbortTransactionRecord":
            self._pending = None
        elif name == "EndTransactionRecord":
            pending, self._pending = self._pending, None
            for part in pending or ():
                self.apply(part)
        elif self._pending is not None:
            self._pending.append(record)
        elif name in _APPLY:
            _APPLY[name](self, record.fields)


def _decode_rows(of: Message, columns: RecordColumns, head: Heads, rows: npt.NDArray[np.intp]) -> Decoded | None:
    """Records of one type; None if one of them cannot be decoded."""
    skip = head.skip[rows]
    place, size = columns.value_place[rows] + skip, columns.value_size[rows] - skip
    decoded = decode_columns(of.name, head.version[rows].astype(np.int16), place, size, columns.sources)
    return None if decoded.status.any() else decoded


def _nothing(image: Image, fields: _Fields) -> None:
    """Records that change nothing, as NoOpRecord."""


def _alone(of: Segment | Partition) -> Disk:
    return Disk((), (of,), is_named=True) if isinstance(of, Partition) else Disk((), (), (of,))


def _snapshots(partition: Partition, end_offset: int | None) -> list[tuple[int, int, Segment]]:
    """Offset, epoch and file of the snapshots up to an offset, the newest first."""
    snapshots = [
        (name.offset or 0, name.epoch or 0, Segment(partition.files, other.path, 0, other.size, -1, True))
        for other in partition.others
        if (name := other.name).kind is FileKind.KRAFT_SNAPSHOT and name.is_live
    ]
    below = [row for row in snapshots if end_offset is None or row[0] <= end_offset]
    return sorted(below, key=lambda row: row[:2], reverse=True)


def _chunks(of: Segment | Partition, selection: Selection) -> Iterator[Chunk]:
    """Yield the records of a log, or of one file, control records too."""
    return ReadScope.of(selection.logs(_alone(of)), selection, Reading(control=True)).chunks()


def _is_older(snapshot: Segment, until_ms: int) -> bool:
    """Check whether the state of a snapshot is older than a time: its header has the time of the last record in it."""
    for columns, _ in _chunks(snapshot, Selection(from_log_start=False, limit=1)):
        if not columns.batches.is_control[columns.batch[0]]:
            break
        head = decode_control(columns.key(0), columns.value(0), snapshot.path)
        return bool(head.fields.get("lastContainedLogTimestamp", until_ms) < until_ms)
    raise _without_header(snapshot)


def _check_whole(snapshot: Segment, controls: Sequence[ControlKind]) -> None:
    if not controls or controls[0] is not ControlKind.SNAPSHOT_HEADER:
        raise _without_header(snapshot)
    if controls[-1] is not ControlKind.SNAPSHOT_FOOTER:
        raise CorruptionError(snapshot.path, snapshot.size, "the snapshot has no footer: its end is missing")


def _without_header(snapshot: Segment) -> CorruptionError:
    return CorruptionError(snapshot.path, 0, f"the snapshot, of {snapshot.size} bytes, has no header")


def _gap(
    partition: Partition, first: int, reached: int, harmed: Sequence[CorruptionError | StorageError]
) -> CorruptionError:
    """Return the error for a metadata log that does not go on where the newest readable snapshot ends."""
    if harmed:
        reason = f"{harmed[0]}; and the log, which begins at offset {first}, does not have all that it had"
        return CorruptionError(partition.path, 0, f"{reason}: take {partition.name} from another controller", first)
    reason = f"the log begins at offset {first}, and the newest snapshot below it ends at {reached}"
    return CorruptionError(partition.path, 0, f"{reason}: the records between them are missing", first)


def _lacking(partition: Partition, end_offset: int) -> Iterator[str]:
    """Yield the offsets below an end that the log lacks, since its indexes or the files beside it have them."""
    first, segments = max((end for end, *_ in _snapshots(partition, end_offset)), default=0), partition.segments
    for before, after in pairwise(segments):
        end = end_offset_of([before])
        if max(first, end) < min(after.base_offset, end_offset) and end >= 0:
            offsets = offsets_text(max(first, end), after.base_offset)
            yield _lack_text(before.path, offsets, f"the next segment begins at {after.base_offset}")
    if not segments:
        return
    # A broker writes the log first: of one that runs, the indexes are read before the end of the log.
    noted = max(indexed_end(segments[-1]), *_noted_ends(partition))
    end = max(end_offset_of(segments[-1:]), segments[-1].base_offset)
    if end < min(noted, end_offset):
        yield _lack_text(
            segments[-1].path, offsets_text(end, min(noted, end_offset)), f"files beside it have {noted - 1}"
        )


def _lack_text(path: str, offsets: str, why: str) -> str:
    return f"{path}: {offsets} of the cluster's metadata are missing: {why}; their changes of topics are unknown"


def _noted_ends(partition: Partition) -> list[int]:
    """Return the ends of the log by snapshots of producers and of the metadata; the latter replace a whole log."""
    kinds = FileKind.PRODUCER_SNAPSHOT, FileKind.KRAFT_SNAPSHOT
    return [0, *(o.name.offset or 0 for o in partition.others if o.name.kind in kinds and o.name.is_live)]


def _topic(image: Image, fields: _Fields) -> None:
    image.topics[fields["topicId"]] = fields["name"]
    image.topic_ids[fields["name"]] = fields["topicId"]


def _remove_topic(image: Image, fields: _Fields) -> None:
    topic_id = fields["topicId"]
    name = image.topics.pop(topic_id, None)
    image.removed_topics.update(() if name is None else (name,))
    if name is not None and image.topic_ids.get(name) == topic_id:
        del image.topic_ids[name]
        image.configs.pop((2, name), None)
    image._removed.add(topic_id)


def _partition(image: Image, fields: _Fields) -> None:
    image.partitions[fields["topicId"], fields["partitionId"]] = fields


def _change_partition(image: Image, fields: _Fields) -> None:
    key = fields["topicId"], fields["partitionId"]
    state = image.partitions.get(key)
    if state is None:
        state = image.partitions[key] = _unknown_partition(key)
    for name in LISTS:
        if fields[name] is not None:
            state[name] = fields[name]
    if fields["replicas"] is not None and fields["directories"] is None:
        state["directories"] = []
    if fields["leader"] != SAME_LEADER:
        state["leader"] = fields["leader"]
        state["leaderEpoch"] += 1
    if fields["leaderRecoveryState"] != SAME_STATE:
        state["leaderRecoveryState"] = fields["leaderRecoveryState"]
    state["partitionEpoch"] += 1


def _unknown_partition(key: TopicPartition) -> _Fields:
    """The facts of a partition without a record of its own, from its changes."""
    numbers = dict.fromkeys(("leader", "leaderEpoch", "partitionEpoch"), -1)
    lists: _Fields = {name: [] for name in LISTS}
    return {"topicId": key[0], "partitionId": key[1], "leaderRecoveryState": 0} | numbers | lists


def _clear_elr(image: Image, fields: _Fields) -> None:
    image.clears_elr = True
    topic_id = image.topic_ids.get(fields["topicName"])
    for (of, _), state in image.partitions.items():
        if not fields["topicName"] or of == topic_id:
            state["eligibleLeaderReplicas"], state["lastKnownElr"] = [], []


def _config(image: Image, fields: _Fields) -> None:
    settings = image.configs.setdefault((fields["resourceType"], fields["resourceName"]), {})
    settings.pop(fields["name"], None)
    if fields["value"] is not None:
        settings[fields["name"]] = fields["value"]


def _register_broker(image: Image, fields: _Fields) -> None:
    image.brokers[fields["brokerId"]] = fields
    image.see(fields["brokerId"])


def _unregister_broker(image: Image, fields: _Fields) -> None:
    image.brokers.pop(fields["brokerId"], None)
    image.see(fields["brokerId"])


def _change_broker(image: Image, fields: _Fields) -> None:
    image.see(fields["brokerId"])
    broker = image.brokers.get(fields["brokerId"])
    if broker is None:
        return
    if fields["fenced"]:
        broker["fenced"] = fields["fenced"] > 0
    if fields["inControlledShutdown"]:
        broker["inControlledShutdown"] = True
    if fields["logDirs"]:
        broker["logDirs"] = fields["logDirs"]
    if fields["cordonedLogDirs"] is not None:
        broker["cordonedLogDirs"] = fields["cordonedLogDirs"]


def _fence(fenced: bool) -> Callable[[Image, _Fields], None]:
    def apply(image: Image, fields: _Fields) -> None:
        image.see(fields["id"])
        if fields["id"] in image.brokers:
            image.brokers[fields["id"]]["fenced"] = fenced

    return apply


def _feature(image: Image, fields: _Fields) -> None:
    if fields["name"] == "kraft.version":  # a control record says it; Kafka ignores this one too
        return
    if fields["featureLevel"]:
        image.features[fields["name"]] = fields["featureLevel"]
    else:
        image.features.pop(fields["name"], None)


def _quota(image: Image, fields: _Fields) -> None:
    entity = frozenset((part["entityType"], part["entityName"]) for part in fields["entity"])
    values = image.quotas.setdefault(entity, {})
    if fields["remove"]:
        values.pop(fields["key"], None)
    else:
        values[fields["key"]] = fields["value"]
    if not values:
        del image.quotas[entity]


def _producer_ids(image: Image, fields: _Fields) -> None:
    image.next_producer_id = fields["nextProducerId"]


_APPLY: dict[str, Callable[[Image, _Fields], Any]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _change_partition,
    "ClearElrRecord": _clear_elr,
    "ConfigRecord": _config,
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "BrokerRegistrationChangeRecord": _change_broker,
    "FenceBrokerRecord": _fence(True),
    "UnfenceBrokerRecord": _fence(False),
    "RegisterControllerRecord": lambda image, fields: image.controllers.__setitem__(fields["controllerId"], fields),
    "UnregisterControllerRecord": lambda image, fields: image.controllers.pop(fields["controllerId"], None),
    "FeatureLevelRecord": _feature,
    "ClientQuotaRecord": _quota,
    "ProducerIdsRecord": _producer_ids,
    "UserScramCredentialRecord": lambda image, fields: image.users.__setitem__(
        (fields["name"], fields["mechanism"]), fields
    ),
    "RemoveUserScramCredentialRecord": lambda image, fields: image.users.pop(
        (fields["name"], fields["mechanism"]), None
    ),
    "AccessControlEntryRecord": lambda image, fields: image.acls.__setitem__(fields["id"], fields),
    "RemoveAccessControlEntryRecord": lambda image, fields: image.acls.pop(fields["id"], None),
    "DelegationTokenRecord": lambda image, fields: image.tokens.__setitem__(fields["tokenId"], fields),
    "RemoveDelegationTokenRecord": lambda image, fields: image.tokens.pop(fields["tokenId"], None),
}
#: All messages but those of which a long log has the most: they say what becomes of a partition that is there.
ALL_BUT_CHANGES = tuple(name for name in _APPLY if name != "PartitionChangeRecord")
