"""Checks of topic ids: which folders a broker sets aside as strays when it starts.

A broker of a KRaft cluster compares each partition folder with the cluster's metadata when it starts. A folder without
a topic id, or with one that the metadata does not assign to this broker for that partition, is renamed to ``-stray``,
and where the partition belongs here, an empty log takes its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from pylogseg.disk.disk import Partition
from pylogseg.disk.small_files import FileState, read_partition_metadata
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.format.words import names_text
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.owners import LogDirOwner
from pylogseg.values.internal.cluster import ClusterMetadata

_Asked = Callable[[str, int], bool]


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
