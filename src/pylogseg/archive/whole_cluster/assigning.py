"""Brokers and the partitions of a point that each one gets, and the records of the metadata that say so.

Each replica gets the log up to the end that the point has. The first leader begins a leader epoch above each one in the
log. A coordinator that ends a transaction while one of its partitions has no leader leaves that partition out, for
ever. So one broker is the last to start. Only it is in sync of each partition that it has, and it has all of
`__transaction_state`: when it comes, these partitions get their leader in one step. Others join as they fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.archive.one_broker import TIERED_SETTINGS
from pylogseg.disk.tier.point import ArchivedPartition, Point
from pylogseg.errors import RequestError
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.names import METADATA_TOPIC, partition_folder_name
from pylogseg.offline.rescuing.plan import new_directory_id
from pylogseg.values.internal.cluster import TOPIC_RESOURCE
from pylogseg.values.internal.image import Image
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS

#: Levels of metadata.version from which a record of a partition names directories, and eligible leaders.
_WITH_DIRECTORIES, _WITH_ELIGIBLE = 17, 23
#: Producer ids that are left out: controllers may have handed some out after the metadata was archived.
_SPARE_IDS = 1_000_000
_NO_LEADER = -1
_LEAST_REPLICAS = "min.insync.replicas"


class NewBroker(NamedTuple):
    """A broker of the new cluster, and its log directories."""

    id: int
    epoch: int  #: Of its registration: it stands in the marker of a clean shutdown, which the controller compares.
    folders: tuple[str, ...]
    directory_ids: tuple[str, ...]


@dataclass
class Assignment:
    """A partition, and the brokers that hold it."""

    topic: str
    topic_id: str
    partition: int
    replicas: list[int]
    before: list[int]  #: The brokers that it was to be on.
    archived: ArchivedPartition | None  #: None if the point does not have it: it begins empty.
    record: dict[str, Any] = field(repr=False, default_factory=dict)  #: As it was.
    directories: dict[int, int] = field(default_factory=dict)  #: Of each broker, which of its folders.

    @property
    def name(self) -> str:
        """The name of its folder."""
        return partition_folder_name(self.topic, self.partition)


@dataclass
class ClusterAssignment:
    """All partitions with their brokers, and the differences from the point."""

    brokers: list[NewBroker]
    partitions: list[Assignment]
    gone: list[int]  #: Brokers that are unregistered.
    orphans: list[ArchivedPartition]  #: Partitions of the point that its metadata does not have.
    lowered: dict[str, tuple[int, int]] = field(default_factory=dict)  #: Topics whose min.insync.replicas changes.
    local: dict[str, list[str]] = field(default_factory=dict)  #: Topics that had a tier: settings that they lose.
    last: int = -1  #: The broker that starts last.
    moved: list[Assignment] = field(default_factory=list)  #: Those that were on none of the brokers.

    @property
    def fewer(self) -> list[Assignment]:
        """Partitions with fewer replicas than before."""
        return [part for part in self.partitions if len(part.replicas) < len(part.before)]

    @property
    def lacking(self) -> list[Assignment]:
        """Partitions that the point does not have: they begin empty."""
        return [part for part in self.partitions if part.archived is None]


def assign_partitions(
    image: Image, point: Point, wanted: Mapping[int, Sequence[str]], sizes: Mapping[str, int], first: int | None = None
) -> ClusterAssignment:
    """Assign each partition of the metadata to existing brokers; RequestError names the obstacle.

    `wanted` has the folders of each broker, `sizes` the bytes of partitions by name. `first` is the only controller, if
    it is a broker too: it cannot start last.
    """
    level = image.features.get("metadata.version", 0)
    _check_brokers(image, wanted)
    if level < _WITH_DIRECTORIES and any(len(folders) > 1 for folders in wanted.values()):
        raise RequestError(f"metadata.version {level} knows no log directories: give each broker one folder")
    brokers = [_broker(image, point, number, folders) for number, folders in sorted(wanted.items())]
    archived = {(part.topic_id, part.partition): part for part in point.by_name.values()}
    partitions = [_assignment(image, key, archived.get(key), sorted(wanted)) for key in sorted(image.partitions)]
    partitions.sort(key=lambda part: (part.topic, part.partition))
    keys = {(part.topic_id, part.partition) for part in partitions}
    orphans = [
        part for key, part in archived.items() if key not in keys and part.topic != METADATA_TOPIC
    ]  # fmt: skip
    gone = sorted(image.brokers.keys() - wanted.keys())
    assignment = ClusterAssignment(brokers, partitions, gone, sorted(orphans, key=lambda part: part.name))
    assignment.moved = [part for part in partitions if not set(part.before) & set(wanted)]
    _fill_up(partitions, sorted(wanted))
    candidates = [broker for broker in sorted(wanted) if broker != first] or sorted(wanted)
    assignment.last = max(candidates, key=lambda broker: (sum(broker in p.replicas for p in partitions), broker))
    for part in partitions:
        if part.topic == TRANSACTIONS and assignment.last not in part.replicas:
            part.replicas[-1] = assignment.last
    _choose_directories(assignment, sizes)
    assignment.lowered = _find_lowered(image, partitions)
    assignment.local = _list_tier_settings(image)
    return assignment


def _check_brokers(image: Image, wanted: Mapping[int, Sequence[str]]) -> None:
    there = ", ".join(map(str, sorted(image.brokers))) or "none"
    for number in wanted:
        if number not in image.brokers:
            raise RequestError(f"--broker {number}: the metadata of the point has no such broker: it has {there}")


def _broker(image: Image, point: Point, number: int, folders: Sequence[str]) -> NewBroker:
    ids = tuple(new_directory_id(f"{point.cluster_id} {point.id} {number} {i}") for i in range(len(folders)))
    return NewBroker(number, image.brokers[number].get("brokerEpoch", -1), tuple(folders), ids)


def _assignment(
    image: Image, key: tuple[str, int], archived: ArchivedPartition | None, brokers: Sequence[int]
) -> Assignment:
    """Return a partition with its replicas on existing brokers; an unfinished reassignment counts as done."""
    record, topic = image.partitions[key], image.topics.get(key[0], "")
    if not topic:
        raise RequestError(f"the metadata of the point has partition {key[1]} of a topic {key[0]} without a name")
    leaving = record.get("removingReplicas") or ()
    before = [broker for broker in record["replicas"] if broker not in leaving]
    kept = [broker for broker in before if broker in brokers]
    return Assignment(topic, key[0], key[1], kept, before, archived, record)


def _fill_up(partitions: Sequence[Assignment], brokers: Sequence[int]) -> None:
    """Give partitions more replicas, as many as they had or as there are brokers: the next broker in turn each time."""
    for at, part in enumerate(partitions):
        turn = [brokers[(at + i) % len(brokers)] for i in range(len(brokers))]
        free = [broker for broker in turn if broker not in part.replicas]
        part.replicas += free[: max(0, len(part.before) - len(part.replicas))]


def _choose_directories(assignment: ClusterAssignment, sizes: Mapping[str, int]) -> None:
    """Put each replica into the folder of its broker that has the fewest bytes so far, large ones first."""
    loads = {broker.id: [(0, i) for i in range(len(broker.folders))] for broker in assignment.brokers}
    for part in sorted(assignment.partitions, key=lambda part: (-sizes.get(part.name, 0), part.name)):
        for broker in part.replicas:
            least = min(loads[broker])
            part.directories[broker] = least[1]
            loads[broker][loads[broker].index(least)] = (least[0] + sizes.get(part.name, 0) + 1, least[1])


def _find_lowered(image: Image, partitions: Sequence[Assignment]) -> dict[str, tuple[int, int]]:
    """Return topics whose own ``min.insync.replicas`` is above the replicas that they have now."""
    fewest: dict[str, int] = {}
    for part in partitions:
        fewest[part.topic] = min(len(part.replicas), fewest.get(part.topic, len(part.replicas)))
    lowered = {}
    for topic, count in sorted(fewest.items()):
        text = image.configs.get((TOPIC_RESOURCE, topic), {}).get(_LEAST_REPLICAS, "")
        if text.isdecimal() and int(text) > count:
            lowered[topic] = int(text), count
    return lowered


def _list_tier_settings(image: Image) -> dict[str, list[str]]:
    """Return settings of tiered topics, which a broker without remote storage refuses."""
    left_out = {}
    for (kind, topic), settings in sorted(image.configs.items()):
        names = [name for name in TIERED_SETTINGS if name in settings]
        if kind == TOPIC_RESOURCE and names:
            left_out[topic] = names
    return left_out


# ---- records ----


def metadata_values(assignment: ClusterAssignment, image: Image) -> list[bytes]:
    """Return the values of the records that make the metadata fit the new brokers."""
    return [encode_framed(*message) for message in _messages(assignment, image)]


def _messages(assignment: ClusterAssignment, image: Image) -> Iterator[tuple[str, int, dict[str, Any]]]:
    if image.is_in_transaction:
        yield "AbortTransactionRecord", 0, {"reason": "it had no end in the archive"}
    fields: dict[str, Any]
    for broker in assignment.brokers:
        if not image.brokers[broker.id].get("fenced"):  # none has a session: each may register at once
            fields = {"brokerId": broker.id, "brokerEpoch": broker.epoch, "fenced": 1}
            yield "BrokerRegistrationChangeRecord", 0, fields
    for number in assignment.gone:
        epoch = image.brokers[number].get("brokerEpoch", -1)
        yield "UnregisterBrokerRecord", 0, {"brokerId": number, "brokerEpoch": epoch}
    level = image.features.get("metadata.version", 0)
    version = (level >= _WITH_DIRECTORIES) + (level >= _WITH_ELIGIBLE)
    ids = {broker.id: broker.directory_ids for broker in assignment.brokers}
    for part in assignment.partitions:
        yield "PartitionRecord", version, _partition(part, ids, version, assignment.last)
    for topic, (_, count) in assignment.lowered.items():
        fields = {"resourceType": TOPIC_RESOURCE, "resourceName": topic, "name": _LEAST_REPLICAS, "value": str(count)}
        yield "ConfigRecord", 0, fields
    for topic, names in assignment.local.items():
        for name in names:
            fields = {"resourceType": TOPIC_RESOURCE, "resourceName": topic, "name": name, "value": None}
            yield "ConfigRecord", 0, fields
    if image.next_producer_id >= 0:
        first = image.next_producer_id + _SPARE_IDS
        broker = assignment.brokers[0]
        yield "ProducerIdsRecord", 0, {"brokerId": broker.id, "brokerEpoch": broker.epoch, "nextProducerId": first}


def _partition(part: Assignment, ids: Mapping[int, Sequence[str]], version: int, last: int) -> dict[str, Any]:
    archived = part.archived
    epochs = [epoch for epoch, _ in archived.epochs] if archived is not None else []
    fields: dict[str, Any] = {
        "partitionId": part.partition,
        "topicId": part.topic_id,
        "replicas": part.replicas,
        "isr": [last if last in part.replicas else part.replicas[0]],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": _NO_LEADER,
        "leaderRecoveryState": 0,
        "leaderEpoch": max(part.record["leaderEpoch"], 0, *epochs) + 1,
        "partitionEpoch": max(part.record["partitionEpoch"], 0) + 1,
    }
    if version:
        fields["directories"] = [ids[broker][part.directories[broker]] for broker in part.replicas]
    return fields
