"""Partitions and objects of the newest point that disks have lost: kept, with a fault, until a deletion is proved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pylogseg.archive.place import lost_segments
from pylogseg.archive.read_notes import damaged_objects
from pylogseg.archive.seen import LogKey, SeenCluster, made_up_id
from pylogseg.disk.disk import Partition
from pylogseg.disk.lineage.chains import Lineage, divergence
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.point import SUFFIXES, ArchivedPartition, ArchivedSegment, Point
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.reading.seek import end_offset
from pylogseg.walker.gaps import offsets_text

_FEW = 3


def archived_log_key(partition: ArchivedPartition) -> LogKey:
    """Return the topic, its id and the number of a partition."""
    return partition.topic, partition.topic_id, partition.partition


def absent_partitions(seen: SeenCluster, before: Point) -> list[ArchivedPartition]:
    """Return the partitions of a point that no disk has, and that nobody deleted as far as the metadata says."""
    return [
        each
        for each in before.partitions
        if archived_log_key(each) not in seen.copies and not _is_deleted(seen, each, before)
    ]


def _is_deleted(seen: SeenCluster, partition: ArchivedPartition, before: Point) -> bool:
    """Check whether the cluster deleted a topic: at the point its metadata had the id, and it has it no more.

    The metadata has to go on from the one that the point has: an older copy, or a new one, proves nothing.
    """
    metadata, topic_id = seen.metadata, partition.topic_id
    if metadata is None or partition.topic == METADATA_TOPIC or topic_id in metadata.topic_ids.values():
        return False
    if topic_id not in before.settings or topic_id == made_up_id(before.cluster_id, partition.topic):
        return False
    old = next((each for each in before.partitions if each.topic == METADATA_TOPIC), None)
    copies = [] if old is None else seen.copies.get(archived_log_key(old), [])
    if old is None or metadata.offset < old.end_offset:
        return False
    past = Lineage.of(old.epochs, old.start_offset, old.end_offset)
    now = [Lineage.of(copy.epochs, copy.partition.log_start_offset, metadata.offset) for copy in copies]
    return any(divergence(past, each).offset >= old.end_offset for each in now)


def forgotten_keys(names: Iterable[str], absent: Sequence[ArchivedPartition], before: Point | None) -> set[LogKey]:
    """Return the absent partitions that somebody named, as topics or as partitions, to be left out of the next point.

    RequestError for a name that is of none of them, or that has two meanings.
    """
    forgotten: set[LogKey] = set()
    for name in names:
        topics = [archived_log_key(each) for each in absent if each.topic == name]
        numbers = [archived_log_key(each) for each in absent if each.name == name]
        if topics and numbers:
            raise RequestError(f"{name}: a topic and a partition have this name: name the partition of the topic")
        if not topics and not numbers:
            raise RequestError(f"{name}: {_why_not(name, absent, before)}")
        forgotten.update(topics + numbers)
    return forgotten


def _why_not(name: str, absent: Collection[ArchivedPartition], before: Point | None) -> str:
    if before is None:
        return "the archive has no point that could forget it"
    if any(name in (each.topic, each.name) for each in before.partitions):
        return "a disk has it, or the cluster deleted it: there is nothing to forget"
    names = ", ".join(each.name for each in list(absent)[:5])
    others = f"; on no disk any more: {names}{' and others' * (len(absent) > 5)}" if absent else ""
    return f"point {before.id} has no topic and no partition of this name{others}"


def absence_fault(partition: ArchivedPartition, before: Point, seen: SeenCluster) -> str:
    """Return the fault of a partition that a point has and no disk; it stays the same until a disk has it again."""
    disk = before.disks[partition.disk]
    if disk.state == "absent" and partition.fault:
        return partition.fault
    fault = f"it is on none of the disks, and point {before.id} has it, of {disk.path}: it stays as it was there"
    if seen.metadata is None:
        fault += "; no disk has metadata that says whether it was deleted"
    return f"{fault}; if it may go, name it with `pylogseg archive --forget`"


def shortening_fault(now: ArchivedPartition, old: ArchivedPartition, before: Point) -> str:
    """Say that a point has more of a log than the given disks; empty if it has not."""
    if now.end_offset >= old.end_offset or now.fault or now.epochs[-1:] > old.epochs[-1:]:
        return ""
    offsets = offsets_text(now.end_offset, old.end_offset)
    return f"{offsets} were committed by point {before.id}, and no disk that was seen is known to have them"


def rotten_objects(
    store: ObjectStore, partitions: Iterable[ArchivedPartition], seen: SeenCluster
) -> tuple[set[str], set[str]]:
    """Return damaged objects, as `verify` noted them, in two groups: still on a disk, and lost."""
    damaged, again, only_here = damaged_objects(store), set[str](), set[str]()
    for partition in partitions if damaged else ():
        copies = [
            copy.partition for copy in seen.copies.get((partition.topic, partition.topic_id, partition.partition), ())
        ]
        again.update(name for name in map(partition.file_key, partition.files) if name in damaged and copies)
        for segment in partition.segments:
            names = {partition.stem(segment) + suffix for suffix in SUFFIXES} & damaged
            if names:
                (again if any(_covers(part, segment) for part in copies) else only_here).update(names)
    return again, only_here


def _covers(part: Partition, segment: ArchivedSegment) -> bool:
    """Check whether a disk has all offsets of an archived segment: in a file of its size, or one after the other."""
    reached = segment.base_offset
    for each in part.segments:
        if each.base_offset == segment.base_offset and each.size == segment.size:
            return True
        if each.base_offset <= reached < segment.end_offset:
            reached = max(reached, end_offset([each]))
    return reached >= segment.end_offset


def object_losses(
    lost: Collection[str],
    before: Point,
    now: Mapping[LogKey, ArchivedPartition],
    absent: Collection[LogKey],
    store: ObjectStore,
) -> tuple[list[str], list[str]]:
    """Return notes about lost objects that the disks replaced, and faults about lost objects that no disk has.

    `now` has the partitions of the next point, and `absent` names those of them that are on no disk.
    """
    notes, faults = list[str](), list[str]()
    for old in before.partitions if lost else ():
        names, new = [name for name in old.objects if name in lost], now.get(archived_log_key(old))
        if not names or new is None:  # it was deleted, or forgotten
            continue
        few = ", ".join(map(store.name, names[:_FEW])) + f" and {len(names) - _FEW} more" * (len(names) > _FEW)
        lacks = "the store lost it, has another size of it, or `verify` found damage in it"
        text = f"{old.name}: point {before.id} needs {few}: {lacks}"
        is_whole = archived_log_key(old) not in absent and all(
            _has(new, each) for each in lost_segments(old, lost).values()
        )
        if is_whole and (new.files or not any(old.file_key(name) in lost for name in old.files)):
            notes.append(f"{text}; the run uploaded again what was in it")
        else:
            faults.append(f"{text}; no disk has what was in it")
    return notes, faults


def _has(partition: ArchivedPartition, segment: ArchivedSegment) -> bool:
    """Check whether the segments of a partition cover another one, from the start of the log on.

    With a fault, the start may be the first offset that could be archived.
    """
    reached = max(segment.base_offset, 0 if partition.fault else partition.start_offset)
    for each in partition.segments:
        if each.base_offset <= reached < each.end_offset:
            reached = each.end_offset
    return reached >= segment.end_offset
