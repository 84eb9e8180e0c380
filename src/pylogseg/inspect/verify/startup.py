"""Checks for reasons why a broker would not start, or would treat partitions as strays, by Kafka's own rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import combinations, groupby

from pylogseg.disk.disk import LogDir, Partition
from pylogseg.disk.small_files import FileState, read_partition_metadata
from pylogseg.errors import CorruptionError
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_partition_folder
from pylogseg.format.words import names_text
from pylogseg.inspect.verify.findings import Finding, of_error, of_failure
from pylogseg.inspect.verify.missing import TIERED_FOLDER, Around
from pylogseg.inspect.verify.owners import LogDirOwner, owner_of
from pylogseg.inspect.verify.set_aside import check_set_aside
from pylogseg.values.internal.cluster import ClusterMetadata

_RESERVED_IDS = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


def check_start(
    log_dirs: Sequence[LogDir],
    clusters: Mapping[str, ClusterMetadata] | None = None,
    asked: Callable[[str, int], bool] = lambda topic, partition: True,
) -> Iterator[Finding]:
    """Check for files and folders that a broker would refuse or disown, and topic ids where `asked`.

    Cluster and node in `meta.properties` tell the log directories of several brokers apart; `clusters` has the
    metadata by their paths.
    """
    everyone = [owner_of(log_dir) for log_dir in log_dirs]
    owners = [owner for owner in everyone if _is_brokers(owner.log_dir)]
    for owner in owners:
        yield from _folders(owner.log_dir)
        yield from _properties(owner, any(other.is_kraft for other in owners))
    yield from _metadata_log(owners)
    yield from _contradictions(owners)
    for a, b in combinations(everyone, 2):
        yield from _twice(a, b)
    yield from check_topic_ids(owners, clusters or {}, asked)
    yield from check_set_aside(owners, clusters or {}, asked)
    yield from _settings(owners, clusters or {}, asked)


def _is_brokers(log_dir: LogDir) -> bool:
    """Check whether a broker has used the folder: other folders are not checked."""
    return any(kind is FileKind.META_PROPERTIES or kind.is_offset_checkpoint for kind in log_dir.checkpoints)


def _folders(log_dir: LogDir) -> Iterator[Finding]:
    for entry in sorted(log_dir.files.list_folder(log_dir.path)):
        if entry.is_dir and entry.name != TIERED_FOLDER and parse_partition_folder(entry.name) is None:
            reason = f"a broker does not start with a folder that is not named <topic>-<partition>: {entry.name!r}"
            yield Finding(log_dir.files.join(log_dir.path, entry.name), "foreign-folder", True, reason)


def _properties(owner: LogDirOwner, is_kraft: bool) -> Iterator[Finding]:
    """Check `meta.properties` of a log directory, by itself."""
    file, meta = owner.file, owner.meta
    if isinstance(file.error, CorruptionError):
        yield of_error("meta-properties", file.error)
    elif file.error is not None:
        yield of_failure(file.error)
    elif file.state is FileState.EMPTY:
        yield Finding(owner.path, "meta-properties", True, "the file has 0 bytes")
    elif meta is None:
        reason = "it is missing: a broker whose metadata log is here, or that has formatted its others, does not start"
        yield Finding(owner.path, "meta-properties", is_kraft, reason)
    elif meta.cluster_id in (None, "") and (meta.version == 1 or meta.node_id is None):
        said = "cluster.id is empty" if meta.cluster_id == "" else "it says neither cluster.id nor node.id"
        # Old brokers wrote no cluster id; a file without both was emptied. An empty id comes from an unset variable.
        yield Finding(owner.path, "meta-properties", meta.node_id is None, said)
    elif meta.directory_id in _RESERVED_IDS:
        yield Finding(owner.path, "meta-properties", True, f"directory.id {meta.directory_id} is a reserved one")


def _metadata_log(owners: Sequence[LogDirOwner]) -> Iterator[Finding]:
    """Check for brokers of a KRaft cluster whose metadata log is in none of the given directories."""
    whole = {owner.broker for owner in owners if owner.has_metadata}
    for owner in owners:
        if owner.meta is not None and owner.meta.version == 1 and owner.broker not in whole:
            whole.add(owner.broker)
            reason = f"{METADATA_TOPIC}-0, which each broker has in one of its log directories, is not here"
            yield Finding(owner.log_dir.path, "not-here", False, reason)


def _contradictions(owners: Sequence[LogDirOwner]) -> Iterator[Finding]:
    """Check for directories of one broker that contradict each other. There may be several complete brokers."""
    labelled = [owner for owner in owners if owner.meta is not None and owner.meta.node_id is not None]
    whole = {owner.broker for owner in labelled if owner.has_metadata}
    first = next((owner for owner in labelled if owner.has_metadata), None)
    for owner in labelled:
        if first is None or owner.broker in whole:
            continue
        names = ("cluster.id", "node.id")
        differing = [
            f"{name} is {mine}, and {other} in {first.path}"
            for name, mine, other in zip(names, owner.broker, first.broker, strict=True)
            if mine != other
        ]
        yield Finding(owner.path, "meta-properties", True, "; ".join(differing))
    seen: dict[str, LogDirOwner] = {}
    for owner in labelled:
        directory_id = owner.meta.directory_id if owner.meta else None
        if directory_id is None:
            continue
        other = seen.setdefault(directory_id, owner)
        if other is not owner:
            reason = f"{other.log_dir.path} has the same directory.id, {directory_id}: one is a copy of the other"
            yield Finding(owner.path, "meta-properties", True, reason)


def _twice(a: LogDirOwner, b: LogDirOwner) -> Iterator[Finding]:
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


# ---- cluster metadata ----

#: The least segment.bytes that Kafka takes from 4.0 on; older ones took 14 and more.
_LEAST_SEGMENT_BYTES = 1 << 20


def _settings(
    owners: Sequence[LogDirOwner], clusters: Mapping[str, ClusterMetadata], asked: Callable[[str, int], bool]
) -> Iterator[Finding]:
    """Check for settings of topics with which a newer Kafka does not start."""
    for owner in owners:
        cluster = clusters.get(owner.log_dir.path)
        if cluster is None or not owner.has_metadata:
            continue
        sizes = {topic: cluster.of_topic(topic).get("segment.bytes", "") for topic in sorted(cluster.topic_ids)}
        small = [topic for topic, size in sizes.items() if size.isdecimal() and int(size) < _LEAST_SEGMENT_BYTES]
        small = [topic for topic in small if any(asked(topic, number) for number in _numbers(cluster, topic))]
        if small:
            reason = (
                f"segment.bytes of {names_text([f'{topic} ({sizes[topic]})' for topic in small])} is below "
                f"{_LEAST_SEGMENT_BYTES:,}: no broker of Kafka 4.0 and later starts with this metadata"
            )
            yield Finding(owner.log_dir.path, "setting", False, reason)


def _numbers(cluster: ClusterMetadata, topic: str) -> list[int]:
    return [number for topic_id, number in cluster.replicas if topic_id == cluster.topic_ids[topic]]


def check_replicas(
    log_dirs: Sequence[LogDir], around: Around, asked: Callable[[str, int], bool], found: Container[str]
) -> Iterator[Finding]:
    """Check for partitions that the metadata assigns to a broker and that are in none of its log directories.

    The folders in `found` are reported already.
    """
    clusters = around.clusters
    brokers: dict[tuple[str | None, int | None], list[LogDirOwner]] = {}
    for log_dir in log_dirs:
        owner = around.owner(log_dir)
        if owner.meta is not None and log_dir.path in clusters:
            brokers.setdefault(owner.broker, []).append(owner)
    for (_, node), owners in brokers.items():
        cluster = clusters[owners[0].log_dir.path]
        here = {(part.topic, part.partition) for owner in owners for part in owner.log_dir.partitions}
        by_id = {owner.meta.directory_id: owner for owner in owners if owner.meta and owner.meta.directory_id}
        topics = {topic_id: topic for topic, topic_id in cluster.topic_ids.items()}
        unknown, elsewhere, absent = list[str](), list[str](), set[str]()
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
            else:
                elsewhere.append(f"{topic}-{number}")
                absent.add(at)
        if unknown:
            reason = f"the cluster's metadata assigns {names_text(unknown)} to this broker, without a log directory"
            yield Finding(owners[0].log_dir.path, "not-here", False, reason)
        if elsewhere:
            reason = (
                f"the cluster's metadata assigns {names_text(elsewhere)} to log directories of this broker that are "
                f"not here ({', '.join(sorted(absent))}): nobody looked at them"
            )
            yield Finding(owners[0].log_dir.path, "not-here", False, reason)


_Asked = Callable[[str, int], bool]


# ---- topic ids: the folders that a broker sets aside as strays ----
#
# A broker of a KRaft cluster compares each partition folder with the cluster's metadata when it starts. It renames a
# folder to ``-stray`` if that has no topic id, or one that the metadata does not assign to this broker for that
# partition. If the partition belongs here, an empty log takes its place.


def check_topic_ids(
    owners: Sequence[LogDirOwner], clusters: Mapping[str, ClusterMetadata], asked: _Asked
) -> Iterator[Finding]:
    """Compare the topic ids of partition folders with the metadata, or else with each other."""
    ids: dict[tuple[str | None, str], list[tuple[str, Partition]]] = {}
    for owner in owners:
        cluster = clusters.get(owner.log_dir.path)
        strays: list[tuple[str, str]] = []
        for part in owner.log_dir.partitions:
            if part.state or part.topic == METADATA_TOPIC or not asked(part.topic, part.partition):
                continue
            file = read_partition_metadata(part.files, part.path)
            noted = None if cluster is None else cluster.topic_ids.get(part.topic)
            if cluster is not None and (noted is None or file.value == noted):
                why = _why_stray(part, noted, owner, cluster)
                strays += [(why, part.name)] if why else []
            elif file.state is FileState.ABSENT:
                yield from _without_id(part, owner, noted)
            elif noted is not None and file.value is not None:
                yield _wrong_id(part, f"topic_id is {file.value}, and {noted} in the cluster's metadata")
            elif file.value is not None:
                ids.setdefault((owner.broker[0], part.topic), []).append((file.value, part))
        for why, group in groupby(sorted(strays), key=lambda stray: stray[0]):
            reason = why.format(names_text([name for _, name in group]))
            yield Finding(owner.log_dir.path, "stray", False, reason)
    for (_, topic), parts in ids.items():
        most_common = Counter(topic_id for topic_id, _ in parts).most_common(1)[0][0]
        for topic_id, part in parts:
            if topic_id != most_common:
                yield _wrong_id(part, f"topic_id is {topic_id}, and {most_common} in other partitions of {topic}")


def _why_stray(part: Partition, topic_id: str | None, owner: LogDirOwner, cluster: ClusterMetadata) -> str | None:
    """Return why a broker sets a folder aside whose topic has this id in the metadata; None if it does not."""
    if topic_id is None:
        return f"{METADATA_TOPIC}-0 does not know the topics of {{}}"
    replicas, node = cluster.replicas.get((topic_id, part.partition)), owner.broker[1]
    if replicas is None:
        return f"{METADATA_TOPIC}-0 knows the topics of {{}}, and not these partitions"
    if node is not None and node not in replicas:
        return f"{METADATA_TOPIC}-0 assigns {{}} to other brokers"
    return None


def _without_id(part: Partition, owner: LogDirOwner, known: str | None) -> Iterator[Finding]:
    """Look at a folder without the file, which brokers of a KRaft cluster write before the first record."""
    is_due = known is not None or (owner.is_kraft and _has_ids(owner))
    if not is_due or not any(segment.size for segment in part.segments):
        return
    path, named = part.files.join(part.path, FileKind.PARTITION_METADATA.value), f" ({known})" if known else ""
    reason = (
        f"the file is missing, and with it the topic's id{named}: a broker renames the folder to -stray, and begins an "
        "empty log in its place"
    )
    yield Finding(path, "topic-id", True, reason)


def _has_ids(owner: LogDirOwner) -> bool:
    """Check whether a partition there has the file: a directory without any was filled by a program, and no broker."""
    folders = (part for part in owner.log_dir.partitions if part.topic != METADATA_TOPIC)
    return any(read_partition_metadata(part.files, part.path).state is not FileState.ABSENT for part in folders)


def _wrong_id(part: Partition, reason: str) -> Finding:
    path = part.files.join(part.path, FileKind.PARTITION_METADATA.value)
    return Finding(path, "topic-id", True, f"{reason}: a broker treats the folder as a stray, or refuses it")
