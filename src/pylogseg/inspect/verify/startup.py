"""Checks for reasons why a broker would not start, or would treat partitions as strays, by Kafka's own rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from pylogseg.disk.disk import LogDir, Partition
from pylogseg.disk.folders import readable_topic_id
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.properties import MetaProperties, parse_meta_properties
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_partition_folder
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.missing import TIERED_FOLDER, names_text
from pylogseg.values.internal.cluster import ClusterMetadata

_RESERVED_IDS = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


class _Owner(NamedTuple):
    """The broker that owns a log directory, as far as `meta.properties` says."""

    log_dir: LogDir
    path: str
    meta: MetaProperties | None
    error: str | None

    @property
    def broker(self) -> tuple[str | None, int | None]:
        """Cluster and node."""
        return (self.meta.cluster_id, self.meta.node_id) if self.meta else (None, None)

    @property
    def has_metadata(self) -> bool:
        """True if the metadata log is in this directory: each broker of a KRaft cluster has one such directory."""
        return any(part.topic == METADATA_TOPIC for part in self.log_dir.partitions)


def check_start(
    log_dirs: Sequence[LogDir],
    clusters: Mapping[str, ClusterMetadata] | None = None,
    asked: Callable[[str, int], bool] = lambda topic, partition: True,
) -> Iterator[Finding]:
    """Check for files and folders that a broker would refuse or disown, and topic ids where `asked`.

    Log directories of several brokers are told apart by cluster and node in `meta.properties`; `clusters` has the
    metadata by their paths.
    """
    everyone = [_owner(log_dir) for log_dir in log_dirs]
    owners = [owner for owner in everyone if _is_brokers(owner.log_dir)]
    for owner in owners:
        yield from _folders(owner.log_dir)
        yield from _properties(owner)
    yield from _metadata_log(owners)
    yield from _contradictions(owners)
    for a, b in combinations(everyone, 2):
        yield from _twice(a, b)
    yield from _topic_ids(owners, clusters or {}, asked)


def _is_brokers(log_dir: LogDir) -> bool:
    """Check whether a broker has used the folder: other folders are not checked."""
    return any(kind is FileKind.META_PROPERTIES or kind.is_offset_checkpoint for kind in log_dir.checkpoints)


def _owner(log_dir: LogDir) -> _Owner:
    path = log_dir.files.join(log_dir.path, FileKind.META_PROPERTIES.value)
    if FileKind.META_PROPERTIES not in log_dir.checkpoints:
        return _Owner(log_dir, path, None, None)
    try:
        return _Owner(log_dir, path, parse_meta_properties(log_dir.files.read_all(path), path), None)
    except (CorruptionError, StorageError) as error:
        return _Owner(log_dir, path, None, str(error))


def _folders(log_dir: LogDir) -> Iterator[Finding]:
    for entry in sorted(log_dir.files.list_folder(log_dir.path)):
        if entry.is_dir and entry.name != TIERED_FOLDER and parse_partition_folder(entry.name) is None:
            reason = f"a broker does not start with a folder that is not named <topic>-<partition>: {entry.name!r}"
            yield Finding(log_dir.files.join(log_dir.path, entry.name), "foreign-folder", True, reason)


def _properties(owner: _Owner) -> Iterator[Finding]:
    if owner.error is not None:
        return  # reported by `check_log_dir`
    meta = owner.meta
    if meta is None:
        reason = (
            "it is missing: a broker whose only log directory this is, or whose metadata log is here, does not start"
        )
        yield Finding(owner.path, "meta-properties", owner.has_metadata, reason)
    elif meta.cluster_id in (None, "") and (meta.version == 1 or meta.node_id is None):
        said = "cluster.id is empty" if meta.cluster_id == "" else "it says neither cluster.id nor node.id"
        # Old brokers wrote no cluster id; a file without both was emptied. An empty id comes from an unset variable.
        yield Finding(owner.path, "meta-properties", meta.node_id is None, said)
    elif meta.directory_id in _RESERVED_IDS:
        yield Finding(owner.path, "meta-properties", True, f"directory.id {meta.directory_id} is a reserved one")


def _metadata_log(owners: Sequence[_Owner]) -> Iterator[Finding]:
    """Check for brokers of a KRaft cluster whose metadata log is in none of the given directories."""
    whole = {owner.broker for owner in owners if owner.has_metadata}
    for owner in owners:
        if owner.meta is not None and owner.meta.version == 1 and owner.broker not in whole:
            whole.add(owner.broker)
            reason = f"{METADATA_TOPIC}-0, which each broker has in one of its log directories, is not here"
            yield Finding(owner.log_dir.path, "not-here", False, reason)


def _contradictions(owners: Sequence[_Owner]) -> Iterator[Finding]:
    """Check for directories of one broker that contradict each other. There may be several complete brokers."""
    known = [owner for owner in owners if owner.meta is not None and owner.meta.node_id is not None]
    whole = {owner.broker for owner in known if owner.has_metadata}
    first = next((owner for owner in known if owner.has_metadata), None)
    for owner in known:
        if first is None or owner.broker in whole:
            continue
        names = ("cluster.id", "node.id")
        differing = [
            f"{name} is {mine}, and {other} in {first.path}"
            for name, mine, other in zip(names, owner.broker, first.broker, strict=True)
            if mine != other
        ]
        yield Finding(owner.path, "meta-properties", True, "; ".join(differing))
    seen: dict[str, _Owner] = {}
    for owner in known:
        directory_id = owner.meta.directory_id if owner.meta else None
        if directory_id is None:
            continue
        other = seen.setdefault(directory_id, owner)
        if other is not owner:
            reason = f"directory.id {directory_id} is also that of {other.log_dir.path}: one is a copy of the other"
            yield Finding(owner.path, "meta-properties", True, reason)


def _twice(a: _Owner, b: _Owner) -> Iterator[Finding]:
    is_known = a.meta is not None and b.meta is not None
    if is_known and a.broker != b.broker:
        return
    names = {part.name for part in a.log_dir.partitions if not part.state}
    both = sorted(part.name for part in b.log_dir.partitions if not part.state and part.name in names)
    if not both:
        return
    what = "this partition is" if len(both) == 1 else f"{names_text(both)} are"
    reason = f"{what} also in {a.log_dir.path}: a broker with both log directories does not start"
    if not is_known:  # they may be replicas of two brokers
        reason += ", and without meta.properties in each it is not known whether both belong to one broker"
    yield Finding(b.log_dir.files.join(b.log_dir.path, both[0]), "twice", is_known, reason)


# ---- topic ids ----


def _topic_ids(
    owners: Sequence[_Owner], clusters: Mapping[str, ClusterMetadata], asked: Callable[[str, int], bool]
) -> Iterator[Finding]:
    """Compare the topic ids of partition folders with each other and with the metadata."""
    ids: dict[tuple[str | None, str], list[tuple[str, Partition]]] = {}
    for owner in owners:
        cluster = clusters.get(owner.log_dir.path)
        strays = []
        for part in owner.log_dir.partitions:
            if part.topic == METADATA_TOPIC or not asked(part.topic, part.partition):
                continue
            topic_id = _topic_id(part)
            if topic_id is None:
                continue
            known = None if cluster is None else cluster.topic_ids.get(part.topic)
            if known is not None and known != topic_id:
                yield _wrong_id(part, f"topic_id is {topic_id}, and {known} in the cluster's metadata")
            elif known is None and cluster is not None:
                strays.append(part)
            elif cluster is None:
                ids.setdefault((owner.broker[0], part.topic), []).append((topic_id, part))
        if strays:
            path, names = owner.log_dir.path, [part.name for part in strays]
            reason = f"{METADATA_TOPIC}-0 does not know the topics of {names_text(names)}"
            yield Finding(path, "stray", False, reason)
    for (_, topic), found in ids.items():
        counts = Counter(topic_id for topic_id, _ in found)
        most_common = counts.most_common(1)[0][0]
        for topic_id, part in found:
            if topic_id != most_common:
                yield _wrong_id(part, f"topic_id is {topic_id}, and {most_common} in other partitions of {topic}")


def _wrong_id(part: Partition, reason: str) -> Finding:
    path = part.files.join(part.path, FileKind.PARTITION_METADATA.value)
    return Finding(path, "topic-id", True, f"{reason}: a broker treats the folder as a stray, or refuses it")


def _topic_id(part: Partition) -> str | None:
    if part.state or not any(other.name.kind is FileKind.PARTITION_METADATA for other in part.others):
        return None
    return readable_topic_id(part.files, part.path)


# ---- cluster metadata ----


def check_replicas(
    log_dirs: Sequence[LogDir],
    clusters: Mapping[str, ClusterMetadata],
    asked: Callable[[str, int], bool],
    found: Container[str],
) -> Iterator[Finding]:
    """Check for partitions that the metadata assigns to a broker and that are in none of its log directories.

    `clusters` has the metadata by the path of the log directory; the folders in `found` are reported already.
    """
    brokers: dict[tuple[str | None, int | None], list[_Owner]] = {}
    for log_dir in log_dirs:
        owner = _owner(log_dir)
        if owner.meta is not None and log_dir.path in clusters:
            brokers.setdefault(owner.broker, []).append(owner)
    for (_, node), owners in brokers.items():
        cluster = clusters[owners[0].log_dir.path]
        here = {(part.topic, part.partition) for owner in owners for part in owner.log_dir.partitions}
        by_id = {owner.meta.directory_id: owner for owner in owners if owner.meta and owner.meta.directory_id}
        topics = {topic_id: topic for topic, topic_id in cluster.topic_ids.items()}
        unknown = []
        for (topic_id, number), replicas in sorted(cluster.replicas.items()):
            topic = topics.get(topic_id)
            if (
                topic is None
                or node is None
                or node not in replicas
                or not asked(topic, number)
                or (topic, number) in here
            ):
                continue
            directories = cluster.directories.get((topic_id, number), ())
            at = directories[replicas.index(node)] if len(directories) == len(replicas) else None
            if at in by_id:
                log_dir = by_id[at].log_dir
                path = log_dir.files.join(log_dir.path, f"{topic}-{number}")
                if path in found:
                    continue
                reason = "the cluster's metadata assigns this partition to this log directory, but it is missing"
                yield Finding(path, "missing", True, reason)
            elif at is None or at in _RESERVED_IDS:
                name = f"{topic}-{number}"
                if not any(owner.log_dir.files.join(owner.log_dir.path, name) in found for owner in owners):
                    unknown.append(name)
        if unknown:
            reason = f"the cluster's metadata assigns {names_text(unknown)} to this broker, without a log directory"
            yield Finding(owners[0].log_dir.path, "not-here", False, reason)
