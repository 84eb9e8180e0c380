"""Known losses of the logs of a table: offsets of a log, and whole partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, LogDir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import read_meta_properties
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import RequestError
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import Look, filter_damage, lacking, refuse
from pylogseg.inspect.verify.missing import Around
from pylogseg.lakehouse.ledger import Ledger
from pylogseg.lakehouse.source import SourceTopic, Unwritten
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.values.internal.cluster import ClusterMetadata, clusters_of

_NOTED = (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS)


class WholeDisk:
    """The disk that topics are selected from by a choice, with the facts around their logs, which are read once."""

    def __init__(self, disk: Disk, choice: PartitionChoice) -> None:
        self.disk, self.choice = disk, choice

    @cached_property
    def around(self) -> Around:
        """The checkpoints and the cluster's metadata."""
        return Around(self.disk, clusters_of(self.disk)[0])


def source_losses(
    whole: WholeDisk,
    topic: SourceTopic,
    spans: Sequence[Unwritten],
    ledger: Ledger | None,
    table: str,
    *,
    force: bool,
) -> list[Finding]:
    """Return the known losses among the offsets of the next run; an error unless a user forces it.

    That is up to the high watermark, also where the log ends before it; and of a partition without a segment, all that
    the table does not have. The error is a RequestError if the table has rows of a partition that is gone.
    """
    ranges = _ranges_of(topic, spans, ledger)
    parts = [source.partition for source in topic.logs if source.partition.path in ranges]
    vanished = vanished_partitions(whole, topic, ledger)
    for number, paths in vanished.items():
        had = None if ledger is None else ledger.partitions.get(number)
        ranges |= dict.fromkeys(paths, (0 if had is None else had.next_offset, OPEN_END))
    parts += [part for part in topic.bare if part.partition in vanished]
    # Partitions without a folder are looked for by the numbers of this topic alone.
    absent = PartitionChoice((topic.name,), tuple(vanished) or (-1,))
    findings = []
    for finding in lacking(whole.disk, parts, absent, how=Look.OUTLINE, around=whole.around) if ranges else ():
        span = ranges.get(finding.path) or ranges.get(os.path.split(finding.path)[0])
        if span is not None and (finding.offset is None or finding.is_about(*span)):
            findings.append(finding)
    if ledger is not None:
        below = list(partitions_below(ledger, table, vanished))
        if below and not force:
            raise RequestError("; ".join(finding.reason for finding in below))
        named = {finding.path for finding in findings}
        findings += [finding for finding in below if finding.path not in named]
    if not force:
        refuse(findings)
    return filter_damage(findings)


def _ranges_of(topic: SourceTopic, spans: Sequence[Unwritten], ledger: Ledger | None) -> dict[str, tuple[int, int]]:
    """Return the offsets, half-open, that a table is to have of each folder next."""
    ranges = {span.source.partition.path: (span.first_offset, span.end_offset) for span in spans}
    for source in topic.logs:
        had = None if ledger is None else ledger.partitions.get(source.partition.partition)
        start = source.log.log_start_offset if had is None else had.next_offset
        first, end = ranges.get(source.partition.path, (start, start))
        segments = source.log.segments
        if source.log.log_start_offset > (segments[-1].base_offset if source.watermark is None else source.watermark):
            ranges[source.partition.path] = segments[0].base_offset, source.log.log_start_offset
        elif (source.watermark or 0) > end:
            ranges[source.partition.path] = first, source.watermark or 0
    return ranges


def partitions_below(ledger: Ledger, table: str, vanished: Mapping[int, Sequence[str]]) -> Iterator[Finding]:
    """Yield which partitions of a ledger have no segment any more: their logs end below the table."""
    for number, paths in sorted(vanished.items()):
        had = ledger.partitions.get(number)
        if had is not None and had.next_offset > 0:
            reason = (
                f"{table}: it ends at offset {had.next_offset} of {ledger.topic}-{number}, and no segment of it is "
                f"here ({paths[0]}): the disk has lost the partition, or this is another disk; bring it back, or name "
                "the other partitions"
            )
            yield Finding(paths[0], "missing", True, reason)


def vanished_partitions(whole: WholeDisk, topic: SourceTopic, ledger: Ledger | None) -> dict[int, list[str]]:
    """Return lost partitions of a topic, by number, with the folders where they would be.

    The ledger or a checkpoint names them, and they have no segment. Partitions that the cluster's metadata places on
    other brokers are not lost. (No broker deletes a single partition of a topic.)
    """
    bare = {part.partition: [part.path] for part in topic.bare}
    present = {source.partition.partition for source in topic.logs}
    log_dirs = [log_dir for log_dir in whole.disk.log_dirs if isinstance(log_dir.files, LocalFiles | RemoteFiles)]
    numbers = set[int]() if ledger is None or not log_dirs else {*ledger.partitions}
    for log_dir in log_dirs:
        noted = topic.once.checkpoints(log_dir.files, log_dir.path)
        keys = {key for kind in _NOTED for key in noted.offsets(kind)}
        numbers |= {number for name, number in keys if name == topic.name}
        # A folder with a state is one that a broker moves or deletes.
        present |= {part.partition for part in log_dir.partitions if part.topic == topic.name and part.state}
    absent = {number for number in numbers - present - {*bare} if whole.choice.takes(topic.name, number)}
    if not absent:
        return bare
    clusters = whole.around.clusters
    topic_id = topic.topic_id or (None if ledger is None else ledger.topic_id)
    for number in sorted(absent):
        name = f"{topic.name}-{number}"
        if any(_is_there(root.files, root.path, name) for root in log_dirs):  # since it was listed
            continue
        if not all(_is_elsewhere(root, clusters.get(root.path), topic.name, topic_id, number) for root in log_dirs):
            bare[number] = [root.files.join(root.path, name) for root in log_dirs]
    return bare


def vanished_topics(whole: WholeDisk, there: Sequence[SourceTopic]) -> list[SourceTopic]:
    """Return the topics without any folder that checkpoints know; none that the metadata of the cluster lacks."""
    names = {topic.name for topic in there}
    lost = set[str]()
    for log_dir in whole.disk.log_dirs:
        if not isinstance(log_dir.files, LocalFiles | RemoteFiles):
            continue
        noted = OffsetCheckpoints(log_dir.files, log_dir.path)
        here = names | {part.topic for part in log_dir.partitions}
        keys = {key for kind in _NOTED for key in noted.offsets(kind)}
        lost |= {name for name, number in keys if whole.choice.takes(name, number)} - here
    clusters = whole.around.clusters.values() if lost else ()
    kept = [name for name in sorted(lost) if all(name in cluster.topic_ids for cluster in clusters)]
    return [SourceTopic(name, None, None, ()) for name in kept]


def _is_there(files: FileSystem, log_dir: str, name: str) -> bool:
    folders = (parse_partition_folder(entry.name) for entry in files.list_folder(log_dir) if entry.is_dir)
    return any(folder is not None and f"{folder.topic}-{folder.partition}" == name for folder in folders)


def _is_elsewhere(
    log_dir: LogDir, cluster: ClusterMetadata | None, topic: str, topic_id: str | None, number: int
) -> bool:
    """Check whether metadata says that other brokers have the replicas of a partition."""
    if cluster is None:
        return False
    replicas = cluster.replicas.get((topic_id or cluster.topic_ids.get(topic, ""), number), ())
    meta = read_meta_properties(log_dir.files, log_dir.path).value
    return bool(replicas) and meta is not None and meta.node_id is not None and meta.node_id not in replicas
