"""The upload of a partition: the offsets that the archive lacks, and the entry of the partition in the point."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pylogseg.archive.planning import PartitionPlan
from pylogseg.archive.seen import LogKey, SeenCopy
from pylogseg.archive.uploading import UploadJob, left_by_killed, upload
from pylogseg.disk.disk import Segment
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.stores import FolderStore, ObjectStore
from pylogseg.disk.tier.point import FILES, SUFFIXES, ArchivedFile, ArchivedPartition, ArchivedSegment
from pylogseg.disk.tier.sealed_file import seal_file
from pylogseg.env.beside import flush
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_file_name
from pylogseg.transfer.segment_files import last_stable
from pylogseg.walker.gaps import offsets_text

#: A broker has written its high watermarks so long after it looked at them, at most.
_NOTING_NS = 1_000_000_000
#: Errors of a store that are about one name, or one folder, of it.
_OF_ONE_NAME = {
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.EINVAL,
}


class PartitionItem(NamedTuple):
    """A partition to upload."""

    plan: PartitionPlan
    past: ArchivedPartition | None  #: As it is in the newest point.
    there: Mapping[str, int]  #: What is in its folder of the archive, with sizes.
    files: Mapping[str, int]  #: And of its other files, by their whole names.
    lost: frozenset[str] = frozenset()  #: The objects that it had, and that the store has not any more.


@dataclass
class WrittenPartition:
    """The result of one partition."""

    partition: ArchivedPartition
    new: list[ArchivedSegment] = field(default_factory=list)
    adopted: int = 0
    notes: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    has_holes: bool = False  #: Whether offsets are in no batch of what was read, and no cleaner explains it.
    is_overtaken: bool = False  #: Whether, while it was read, a broker has removed what the point should have.

    def continue_with(self, later: WrittenPartition) -> WrittenPartition:
        """Return the partition as a second look sees it; that look began with the written offsets."""
        later.new, later.adopted = self.new + later.new, self.adopted + later.adopted
        later.notes, later.damage = self.notes + later.notes, self.damage + later.damage
        later.has_holes = later.has_holes or self.has_holes
        return later

    @property
    def key(self) -> LogKey:
        return self.partition.topic, self.partition.topic_id, self.partition.partition


def _cleaned_beyond(plan: PartitionPlan, end: int, sources: Sequence[SeenCopy]) -> str:
    """Return why the last records of keys may be missing: later ones, behind the end, had a cleaner remove them."""
    topic, _, number = plan.key
    for copy in sources or plan.copies[:1] if plan.is_compacted else ():
        log_dir = os.path.dirname(copy.partition.path)
        now = OffsetCheckpoints(LocalFiles(), log_dir)  # another look: the copy has what the first one saw
        cleaned = now.entry(FileKind.CLEANER_OFFSETS, topic, number).value or 0
        when = f"while it was read, and the log ends at {end}"
        if cleaned > end:
            return f"a cleaner went up to offset {cleaned} {when}: the next run is whole"
        if sources and _was_cleaned(copy, end):
            return f"a cleaner was at work {when}, and may have gone beyond it: the next run is whole"
    return ""


def _was_cleaned(copy: SeenCopy, end: int) -> bool:
    """Check whether a cleaner that may know records behind an end has put a segment in place.

    It takes these from sealed segments, and notes how far it went only when it is done with all. A segment that it puts
    in place keeps the time of the last append, and has another time of change, after the high watermark was noted.
    """
    since, is_beyond, is_fresh = copy.mark_file.written_ns - _NOTING_NS, False, False
    try:
        for entry in os.scandir(copy.partition.path):
            name = parse_file_name(entry.name)
            if name.kind is not FileKind.LOG or not name.is_live or name.offset is None:
                continue
            is_beyond |= name.offset > end
            status = entry.stat()
            is_fresh |= name.offset < end and status.st_ctime_ns > max(since, status.st_mtime_ns)
    except FileNotFoundError:  # the cleaner goes on, or the partition is somewhere else now
        return True
    return is_beyond and is_fresh


def write_partition(job: UploadJob, item: PartitionItem, advance: Advance) -> WrittenPartition:
    """Upload the missing ranges of a partition; each range that its disks cannot give is a fault.

    A worker of another process has a scratch folder of its own, and sees to it that its objects are on the disk.
    """
    if job.scratch is not None or not item.plan.lacking:
        return _upload_partition(job, item, advance)
    with job.store.scratch() as scratch:
        found = _upload_partition(replace(job, scratch=scratch), item, advance)
    if found.new:
        flush_store(job.store)
    return found


def new_objects(written: Iterable[WrittenPartition]) -> dict[str, int]:
    """Return the sizes of the objects that a run has uploaded, by their names."""
    return {
        each.partition.stem(segment) + suffix: stored.size
        for each in written
        for segment in each.new
        for suffix, stored in zip(SUFFIXES, segment.objects, strict=True)
    }


def flush_store(store: ObjectStore) -> None:
    if isinstance(store, FolderStore):
        flush(store.root)


def _is_of_one(error: StorageError, store: ObjectStore) -> bool:
    """Check whether an error is of one partition: of its disk, or of its folder in the store."""
    return not error.path.startswith(store.url) or error.errno in _OF_ONE_NAME


def _fault_of(error: StorageError) -> str:
    if error.errno != errno.ENAMETOOLONG:
        return str(error)
    return f"{error}: archive this topic into a store such as S3, which takes names of this length"


def _upload_partition(job: UploadJob, item: PartitionItem, advance: Advance) -> WrittenPartition:
    plan, last = item.plan, item.past
    made = _Making(job, item, advance)
    fault, stood_in, is_read, left = plan.fault, list[ArchivedSegment](), True, list(plan.lacking)
    try:
        while left:
            first, end = left[0]
            if (why := made.fill(first, end)) is None:
                left.pop(0)
                continue
            fault = fault or why
            if not (old := _stand_in(made, plan, first, end)):
                break
            stood_in += old
            left[:1] = [] if old[-1].end_offset == end else [(old[-1].end_offset, end)]
    except (CorruptionError, RequestError) as error:
        fault, is_read = str(error), False
    except StorageError as error:
        if not _is_of_one(error, job.store):
            raise
        fault, is_read = _fault_of(error), False
    stood_in += _stand_in(made, plan, *left[0]) if left else []
    reached = made.new[-1].end_offset if made.new else 0
    stood_in += [  # what was archived above it stays
        each
        for first, end in left
        for each in plan.agreed
        if max(first, reached) <= each.base_offset and each.end_offset <= end
    ]
    segments = tuple(sorted({*plan.kept, *made.new, *stood_in}))
    end = segments[-1].end_offset if segments else plan.start
    known = {} if last is None else {n: file for n, file in last.files.items() if last.file_key(n) not in item.lost}
    is_same = last is not None and last.end_offset == end and len(known) == len(last.files)
    try:
        files = dict(known) if is_same else made.files(end, known, is_empty=not segments)
    except StorageError as error:
        if not _is_of_one(error, job.store):
            raise
        files, fault = {}, fault or _fault_of(error)
    if last is not None and segments and last.segments[-1:] == (segments[-1],):
        stable = last.last_stable_offset
    else:
        is_last = made.stable is not None and bool(made.new) and made.new[-1:] == list(segments[-1:])
        stable = made.stable if is_last and made.stable is not None else made.stable_at(end)
    epochs = tuple((e.epoch, e.start_offset) for e in plan.lineage.epochs if e.start_offset < end)
    topic, topic_id, number = plan.key
    if fault == plan.fault:
        fault = _cleaned_beyond(plan, end, made.sources) or fault
    is_overtaken = is_read and bool(fault) and not (plan.fault or made.damage)
    first = segments[0].base_offset if segments else plan.start  # a broker may have removed what lay before it
    start, disk = min(max(plan.start, first), end), plan.copies[0].disk
    ends = start, end, max(min(stable, end), 0), plan.ended_by
    partition = ArchivedPartition(topic, topic_id, number, *ends, disk, epochs, segments, files, fault)
    adopted, notes = sum(each not in made.uploaded for each in made.new), plan.notes + plan.doubts + made.notes
    damage = plan.doubts + made.damage
    return WrittenPartition(partition, made.uploaded, adopted, notes, damage, made.has_holes, is_overtaken)


def _stand_in(made: _Making, plan: PartitionPlan, first: int, end: int) -> list[ArchivedSegment]:
    """Return the archived part of a range if it ends behind the new part; the new part is then taken back."""
    old, new = _chain(plan.agreed, first, end), [each for each in made.new if first <= each.base_offset < end]
    if not old or old[-1].end_offset <= max([first, *(each.end_offset for each in new)]):
        return []
    made.new = [each for each in made.new if each not in new]
    return old


def _chain(segments: Iterable[ArchivedSegment], first: int, end: int) -> list[ArchivedSegment]:
    """Return the segments that have a range of offsets from its first one on, one after the other."""
    chain = list[ArchivedSegment]()
    for each in segments:
        if each.base_offset == first and each.end_offset <= end:
            chain.append(each)
            first = each.end_offset
    return chain


class _Making:
    """The segments that are made of a partition's lacking ranges."""

    def __init__(self, job: UploadJob, item: PartitionItem, advance: Advance) -> None:
        self._job, self._item, self._plan, self._advance = job, item, item.plan, advance
        self.new: list[ArchivedSegment] = []
        self.uploaded: list[ArchivedSegment] = []
        self.notes: list[str] = []
        self.sources: list[SeenCopy] = []  #: Of what was uploaded.
        self.damage: list[str] = []  #: Of copies, whether another one stands in or not.
        self.has_holes = False
        self.stable: int | None = None  #: At the end of the last one, as far as it is known.

    def fill(self, first: int, end: int) -> str | None:
        """Upload a range of offsets, from each copy the part that it has; return why a part is missing."""
        while first < end:
            why = f"the log ends at offset {first}, and {end} was committed"
            copies = zip(self._plan.copies, self._plan.limits, strict=True)
            for copy, limit in sorted(copies, key=lambda pair: pair[0].lacks_offset(first)):
                segment = _segment_at(copy.partition.segments, first)
                if segment is None or first >= limit or segment.base_offset > max(first, self._plan.start):
                    continue
                stop = min(end, limit, 2**63 - 1 if segment.next_base is None else segment.next_base)
                if len(self._plan.copies) > 1:  # another copy may have what this one lacks
                    stop = min([stop, *(lack.first for lack in copy.lacks if lack.is_known and first < lack.first)])
                there = self._item.there
                done = left_by_killed(self._job, self._plan, there, segment, first, stop)
                done = done or upload(self._job, self._plan, there, copy, segment, first, stop, self._advance)
                if done.fault:
                    self.damage.append(f"{self._plan.name}: {done.fault}")
                    why = done.fault
                if done.segment is not None:
                    self.new.append(done.segment)
                    self.stable = done.stable
                    self.uploaded += [done.segment] if done.is_new else []
                    self.sources += [] if copy in self.sources else [copy]
                if done.hole is not None:
                    what, self.has_holes = offsets_text(*done.hole), True
                    self.notes.append(f"{self._plan.name}: {what} are in no batch of {segment.path}")
                if done.is_all:
                    return None
                if done.end > first:
                    first = done.end
                    break
            else:
                return why
        return None

    def stable_at(self, end: int) -> int:
        """Return the last stable offset of the log up to an offset."""
        try:
            return last_stable(self._plan.copies[0].snapshot_at(end), end)
        except PylogsegError as error:
            self.notes.append(f"{self._plan.name}: its open transactions are not known: {error}")
            return end

    def files(self, end: int, before: Mapping[str, ArchivedFile], *, is_empty: bool) -> dict[str, ArchivedFile]:
        """Upload the newest checkpoint of the metadata, or of an empty log the snapshot of its producers.

        Its name says the offset and the epoch, so one that the point before has is not uploaded again.
        """
        kind = FileKind.KRAFT_SNAPSHOT if self._plan.key[0] == METADATA_TOPIC else FileKind.PRODUCER_SNAPSHOT
        there = self._plan.copies[0].files_by_offset(kind)
        known = [at for at in there if (at <= end if kind is FileKind.KRAFT_SNAPSHOT else at == end)]
        if not known or (kind is FileKind.PRODUCER_SNAPSHOT and not is_empty):
            return {}
        path = there[max(known)]
        name = os.path.basename(path)
        if name in before:
            return {name: before[name]}
        data, key = bytes(LocalFiles().read_all(path)), self._job.form.key
        data = data if key is None else seal_file(data, key)
        digest = hashlib.sha256(data).hexdigest()
        place = f"{FILES}/{self._plan.folder}/{digest[:16]}/{name}"
        if self._item.files.get(place) != len(data):
            self._job.store.put(place, data)
        return {name: ArchivedFile(len(data), digest)}


def _segment_at(segments: Sequence[Segment], offset: int) -> Segment | None:
    """Return the segment that an offset belongs to by their names; the first one below it."""
    return next((each for each in segments if each.next_base is None or offset < each.next_base), None)
