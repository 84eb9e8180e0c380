"""`write`: upload what an archive lacks of disks, and note the point that it makes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pylogseg._version import __version__
from pylogseg.archive.planning import PartitionPlan, planned
from pylogseg.archive.seen import COORDINATORS, OFFSETS_TOPIC, Key, SeenCluster, checkpointed, look, stamps
from pylogseg.archive.uploading import UploadJob, last_stable, left_by_killed, producers_at, upload
from pylogseg.disk.disk import Segment
from pylogseg.disk.folders import has_log_dir_files
from pylogseg.disk.stores import FolderStore, ObjectStore, check_objects
from pylogseg.disk.tier.keys import PublicKey
from pylogseg.disk.tier.point import (
    FILES,
    MARK,
    SUFFIXES,
    ArchivedFile,
    ArchivedPartition,
    ArchivedSegment,
    CommitAboveEnd,
    Point,
    PointName,
)
from pylogseg.disk.tier.points import archive_store, list_points, mark_text, new_id, read_mark, read_point, write_point
from pylogseg.disk.tier.sealed_file import seal_file
from pylogseg.disk.tier.writing import UploadForm
from pylogseg.env.beside import flush
from pylogseg.env.executor import INLINE, Advance, Executor, Threads, Workload, job_count
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.moments import iso_text
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.reading.partition import Throttle
from pylogseg.tables.export.notes import NOTES, locked
from pylogseg.values.internal.cluster_state import cluster_state
from pylogseg.walker.gaps import offsets_text

#: A running broker writes its high watermarks every 5 s.
_WAIT_SECONDS = 6.0
_MOST_LOOKS = 3
#: A clock that goes back no further is set by the network.
_SKEW_MS = 60_000
_MOST_SHOWN = 20


@dataclass
class ArchiveResult:
    """The result of a run.

    Attributes
    ----------
    point : Point
        The point that was written.
    segments, size : int
        Segments that were uploaded, and the bytes of these objects.
    adopted : int
        Segments that a killed run had uploaded.
    faults : list of str
        Why partitions are not in it up to what was committed.
    """

    point: Point
    segments: int = 0
    size: int = 0
    adopted: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all that the disks have committed is in it."""
        return not self.faults

    def as_row(self) -> dict[str, Any]:
        """Return it as a row of JSON."""
        point = self.point
        return {
            "type": "archive",
            "point": point.id,
            "partitions": len(point.partitions),
            "segments": self.segments,
            "bytes": self.size,
            "adopted": self.adopted,
            "notSeen": None if point.not_seen is None else len(point.not_seen),
            "aboveEnd": len(point.above_end),
            "notes": list(point.notes),
            "faults": self.faults,
        }


def write(
    disks: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    archive: str | os.PathLike[str],
    *,
    encrypt_to: str | os.PathLike[str] | None = None,
    compress: bool = False,
    jobs: int | None = 1,
    max_bytes_per_second: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_size: Callable[[int], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ArchiveResult:
    """Upload what an archive lacks of the disks of a cluster's brokers, running or stopped, and write a point.

    Segments are uploaded once; of the active one what is below the high watermark. Replicas are one copy. Of a run that
    was killed anywhere, the newest point stays, and the next run goes on with what was uploaded.

    Parameters
    ----------
    disks : path or sequence of path
        Log directories of one cluster on this machine, or folders of several.
    archive : path or URL
        An empty place, or an archive of this cluster.
    encrypt_to : path, optional
        The PEM file of a public RSA key; its name is the key's id.
    compress : bool
        Compress objects by zstd.
    jobs : int or None
        Threads, each with a partition; None is one per processor.
    max_bytes_per_second : int, optional
        Read no faster.
    storage_options : mapping, optional
        Options of fsspec.
    on_size, on_bytes : callable, optional
        Get how many bytes will be read, and how many were read since the last call.

    Returns
    -------
    ArchiveResult

    Raises
    ------
    RequestError
        If the disks are of several clusters, or the place is no archive of theirs.
    StorageError
        If the store fails.
    CorruptionError
        If what says of which cluster the archive is, is damaged. A damaged point is a fault.
    """
    form = upload_form(encrypt_to, compress=compress)
    return written(
        disks,
        archive,
        form,
        Threads(job_count(jobs)),
        None if max_bytes_per_second is None else Throttle(max_bytes_per_second),
        storage_options,
        on_size,
        on_bytes,
    )


def upload_form(encrypt_to: str | os.PathLike[str] | None = None, *, compress: bool = False) -> UploadForm:
    """Return how segments are uploaded, by the options of `write`."""
    return UploadForm(compress, None if encrypt_to is None else PublicKey(encrypt_to))


def written(
    disks: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    archive: str | os.PathLike[str],
    form: UploadForm,
    executor: Executor,
    throttle: Throttle | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_size: Callable[[int], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ArchiveResult:
    """Do what `write` does, where an executor works: partitions are its items, and the point is written here."""
    paths = [disks] if isinstance(disks, (str, os.PathLike)) else list(disks)
    store = archive_store(archive, storage_options)
    _check_place(store)  # before there is a lock in it
    with locked(store):
        try:
            return _Archiving(store, form, executor, throttle).run(paths, on_size, on_bytes)
        except StorageError as error:
            if not error.path.startswith(store.url):
                raise
            reason = f"{error.reason}; what was uploaded stays: the next run goes on with it"
            raise StorageError(error.path, error.operation, reason, error.errno) from error


def _check_place(store: ObjectStore) -> None:
    """Refuse what is neither an archive nor empty, or lies in a log directory, where no broker starts beside it."""
    if isinstance(store, FolderStore):
        root = Path(os.path.abspath(store.root))
        for folder in (root, *root.parents):
            with contextlib.suppress(StorageError):
                if has_log_dir_files(LocalFiles().list_folder(str(folder))):
                    raise RequestError(
                        f"{store.url}: {folder} is a log directory, and a broker does not start with an archive in it: "
                        "name a place outside of it"
                    )
    if read_mark(store) is None and any(not name.startswith((".", f"{NOTES}/")) for name in store.list()):
        raise RequestError(f"{store.url}: this is not an archive, and not empty: name an empty place")


class _PartitionItem(NamedTuple):
    """A partition to upload."""

    plan: PartitionPlan
    past: ArchivedPartition | None  #: As it is in the newest point.
    there: Mapping[str, int]  #: What is in its folder of the archive, with sizes.
    files: Mapping[str, int]  #: And of its other files, by their whole names.


@dataclass
class _Written:
    """What became of a partition."""

    partition: ArchivedPartition
    new: list[ArchivedSegment] = field(default_factory=list)
    adopted: int = 0
    notes: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    is_overtaken: bool = False  #: Whether, while it was read, a broker has removed what the point should have.

    def continued(self, later: _Written) -> _Written:
        """Return it as it is after another look, which began with what was written."""
        later.new, later.adopted = self.new + later.new, self.adopted + later.adopted
        later.notes, later.damage = self.notes + later.notes, self.damage + later.damage
        return later

    @property
    def key(self) -> Key:
        return self.partition.topic, self.partition.topic_id, self.partition.partition


class _Archiving:
    def __init__(self, store: ObjectStore, form: UploadForm, executor: Executor, throttle: Throttle | None) -> None:
        self._store, self._form, self._executor, self._throttle = store, form, executor, throttle
        self._newest: PointName | None = None
        self._faults: list[str] = []  #: Of the archive.

    def run(
        self,
        paths: Sequence[str | os.PathLike[str]],
        on_size: Callable[[int], None] | None,
        on_bytes: Callable[[int], None] | None,
    ) -> ArchiveResult:
        store, now_ms = self._store, time.time_ns() // 1_000_000
        seen = look(paths)
        times = stamps(seen.disks)
        before = self._before(seen)
        past = {} if before is None else {(p.topic, p.topic_id, p.partition): p for p in before.partitions}
        used = {} if before is None else {key: before.disks[each.disk].path for key, each in past.items()}

        def plan(key: Key) -> PartitionPlan:
            return planned(key, seen.copies[key], seen, past.get(key), used.get(key, ""))

        plans = [plan(key) for key in sorted(seen.copies)]
        if on_size is not None:
            on_size(sum(each.size for each in plans))
        # What is there is asked only if something has to go up.
        listed, files = _listed(store) if any(each.lacking for each in plans) else ({}, {})

        def upload_all(plans: Sequence[PartitionPlan]) -> dict[Key, _Written]:
            nothing: dict[str, int] = {}
            items = [
                _PartitionItem(
                    each, past.get(each.key), listed.get(each.folder, nothing), files.get(each.folder, nothing)
                )
                for each in plans
            ]
            return self._uploaded(items, now_ms, on_bytes)

        written = upload_all(plans)
        above = self._above_end(seen, written, past, before)
        for _ in range(_MOST_LOOKS):
            # Records were committed before offsets beyond them, or before a cleaner removed others for them: their
            # broker notes it later.
            late = {(each.topic, each.partition) for each in above}
            again = [key for key, each in written.items() if each.is_overtaken or (key[0], key[2]) in late]
            if not again or not seen.is_running or not _have_changed(seen, times):
                break
            times = stamps(seen.disks)
            overtaken = {key[0] for key in again if written[key].is_overtaken}
            seen.look_at_marks(also_first=not overtaken.isdisjoint(COORDINATORS))
            again = sorted(key for key in again if key in seen.copies)
            past.update((key, written[key].partition) for key in again)
            used.update((key, seen.disks[past[key].disk].path) for key in again)
            for key, each in upload_all([plan(key) for key in again]).items():
                written[key] = written[key].continued(each)
            above = self._above_end(seen, written, past, None)
        if before is not None:
            self._add_losses(seen, written, before)
        several = Counter(key[::2] for key in written)
        self._faults += [
            f"{topic}-{number}: disks have {count} topics of this name: which one the cluster has, no metadata says"
            for (topic, number), count in several.items()
            if count > 1
        ]
        point = self._point(seen, written, now_ms, above)
        new = [segment for each in written.values() for segment in each.new]
        if new:
            check_objects(store, _new_objects(written.values()), "no point is written")
            _sync(store)  # the objects are on the disk before the point that needs them
        write_point(store, point, () if before is None else before.lists)
        size = sum(stored.size for segment in new for stored in segment.objects)
        faults = [f"{p.name}: {p.fault}" for p in point.partitions if p.fault] + self._faults
        faults += [str(each) for each in seen.unreadable]
        faults += [each for one in written.values() for each in one.damage if each not in faults]
        return ArchiveResult(point, len(new), size, sum(each.adopted for each in written.values()), faults)

    def _uploaded(
        self, items: Sequence[_PartitionItem], now_ms: int, on_bytes: Callable[[int], None] | None
    ) -> dict[Key, _Written]:
        """Upload what partitions lack; the few small files of one that lacks nothing are no work for a worker."""
        is_here = isinstance(self._executor, Threads)
        with self._store.scratch() if is_here else contextlib.nullcontext() as scratch:
            job = UploadJob(self._store, self._form, scratch, self._throttle, now_ms)
            work = functools.partial(_write_partition, job)
            lacking = [each for each in items if each.plan.lacking]
            sizes = [each.plan.size for each in lacking]
            load = Workload("pylogseg archive", sizes, on_bytes, self._store.folders)
            done = list(self._executor.map(work, lacking, load))
            done += INLINE.map(work, [each for each in items if not each.plan.lacking])
        return {each.key: each for each in done}

    def _before(self, seen: SeenCluster) -> Point | None:
        """Return the newest point; refuse a place that is no archive, or that of another cluster."""
        store, of = self._store, read_mark(self._store)
        if of is None:
            _check_place(store)
            store.create(MARK, mark_text(seen.cluster_id).encode())
            return None
        if of and seen.cluster_id and of != seen.cluster_id:
            raise RequestError(
                f"{store.url}: this is the archive of cluster {of}, and the disks are of cluster {seen.cluster_id}: "
                "name another place"
            )
        names = list_points(store)
        self._newest = names[-1] if names else None
        for name in reversed(names):
            try:
                return read_point(store, name)
            except CorruptionError as error:  # the one before it says less of what is there already
                self._faults.append(str(error))
        return None

    def _above_end(
        self, seen: SeenCluster, written: Mapping[Key, _Written], past: Mapping[Key, ArchivedPartition], before: Any
    ) -> tuple[CommitAboveEnd, ...]:
        """Return the committed offsets of groups that lie above the ends of their partitions."""
        ends = {(key[0], key[2]): each.partition.end_offset for key, each in written.items()}
        own = {key: each.partition for key, each in written.items() if key[0] == OFFSETS_TOPIC}
        if not own:
            return ()
        is_same = before is not None and all(
            key in past and past[key].end_offset == each.end_offset for key, each in own.items()
        )
        # Where a log is shorter, or another one, what was below the end may be above it.
        if is_same and all(
            key in written and written[key].partition.end_offset >= each.end_offset for key, each in past.items()
        ):
            commits = [(c.group, c.topic, c.partition, c.offset) for c in before.above_end]
        else:
            cuts = {each.name: each.end_offset for each in own.values()}
            try:
                rows = cluster_state(seen.disk, cuts).rows("group_offsets")
            except PylogsegError as error:
                seen.notes.append(f"whether a group is ahead of its partition is not known: {error}")
                return ()
            commits = [(r["group"], r["topic"], r["partition"], r["offset"]) for r in rows if r["offset"] is not None]
        found = [CommitAboveEnd(*each, ends[each[1:3]]) for each in commits if each[3] > ends.get(each[1:3], 2**63)]
        return tuple(sorted(found))

    def _add_losses(self, seen: SeenCluster, written: dict[Key, _Written], before: Point) -> None:
        """Say what the newest point has, and the disks have not any more, without a deletion that explains it.

        A partition that the cluster has, and no disk, stays in the point as it was, with its objects.
        """
        paths = {disk.path for disk in seen.disks}
        for each in before.partitions:
            key, disk = (each.topic, each.topic_id, each.partition), before.disks[each.disk]
            found = written.get(key)
            if found is not None:
                now, last = found.partition, each.epochs[-1:]
                if now.end_offset < each.end_offset and not now.fault and now.epochs[-1:] <= last:
                    what = offsets_text(now.end_offset, each.end_offset)
                    fault = (
                        f"{what} were committed by point {before.id}, and no disk that was seen is known to have them"
                    )
                    found.partition = replace(now, fault=fault)
                continue
            was = f"it is on none of the disks, and point {before.id} has it, of {disk.path}"
            if seen.metadata is None:
                if disk.path not in paths and each.segments:
                    self._faults.append(f"{each.name}: {was}; if it was deleted, nobody can tell without metadata")
            elif key[1:] in seen.metadata.replicas:
                absent = disk._replace(state="absent")
                if absent not in seen.disks:
                    seen.disks.append(absent)
                fault = each.fault if disk.state == "absent" else f"{was}: it is as it was there"
                written[key] = _Written(replace(each, fault=fault, disk=seen.disks.index(absent)))

    def _time_ms(self, now_ms: int) -> tuple[int, list[str]]:
        """Return the time of a new point, which is after that of the others, and what to say where a clock went back.

        The newest point is the one that was written last, whatever the clock says.
        """
        newest = self._newest
        if newest is None or newest.time_ms < now_ms:
            return now_ms, []
        text = f"the clock says {iso_text(now_ms)}, which is not after point {newest.id}: the next one has its time"
        if newest.time_ms - now_ms > _SKEW_MS:
            self._faults.append(f"{text}; correct the clock, or remove points of a time that has not come yet")
        return newest.time_ms + 1, [text]

    def _point(
        self, seen: SeenCluster, written: Mapping[Key, _Written], now_ms: int, above: tuple[CommitAboveEnd, ...]
    ) -> Point:
        settings = {}
        if seen.metadata is not None:
            ids = {key[1]: key[0] for key in written}
            settings = {tid: dict(own) for tid, topic in ids.items() if (own := seen.metadata.of_topic(topic))}
        notes = [*seen.notes, *map(str, seen.unreadable), *(note for each in written.values() for note in each.notes)]
        time_ms, late = self._time_ms(now_ms)
        return Point(
            new_id(time_ms),
            time_ms,
            f"pylogseg {__version__}",
            seen.cluster_id,
            tuple(seen.disks),
            tuple(written[key].partition for key in sorted(written)),
            settings,
            seen.not_seen(),
            above,
            tuple(dict.fromkeys([*late, *notes])),
        )


def _listed(store: ObjectStore) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Return the objects of segments and the other files of an archive with their sizes, by folders of partitions.

    What a killed run was writing is removed.
    """
    segments: dict[str, dict[str, int]] = {}
    files: dict[str, dict[str, int]] = {}
    for name, stored in store.list().items():
        folder, _, last = name.rpartition("/")
        if name.startswith(".") or (last.startswith(".") and last.endswith(".tmp")):
            store.delete(name)
        elif name.startswith(f"{FILES}/"):
            files.setdefault("/".join(name.split("/")[1:3]), {})[name] = stored.size
        else:
            segments.setdefault(folder, {})[last] = stored.size
    return segments, files


def _have_changed(seen: SeenCluster, times: Sequence[int]) -> bool:
    """Wait until the brokers that run have noted their high watermarks again; False if some do not."""
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        pairs = zip(seen.disks, times, stamps(seen.disks), strict=True)
        if all(now != then for disk, then, now in pairs if disk.state == "running"):
            return True
        time.sleep(0.05)
    return False


def _cleaned_beyond(plan: PartitionPlan, end: int) -> str:
    """Return why the last records of keys may be missing: later ones, behind the end, had a cleaner remove them."""
    topic, _, number = plan.key
    log_dir = os.path.dirname(plan.copies[0].part.path)
    cleaned = checkpointed(log_dir, FileKind.CLEANER_OFFSETS).get((topic, number), 0)
    if not plan.is_compacted or cleaned <= end:
        return ""
    return f"a cleaner went up to offset {cleaned} while it was read, and the log ends at {end}: the next run is whole"


def _write_partition(job: UploadJob, item: _PartitionItem, advance: Advance) -> _Written:
    """Upload what is lacking of a partition; what its disks cannot give is a fault of its own.

    A worker of another process has a scratch folder of its own, and sees to it that its objects are on the disk.
    """
    if job.scratch is not None or not item.plan.lacking:
        return _written_partition(job, item, advance)
    with job.store.scratch() as scratch:
        found = _written_partition(replace(job, scratch=scratch), item, advance)
    if found.new:
        _sync(job.store)
    return found


def _new_objects(written: Iterable[_Written]) -> dict[str, int]:
    """Return the sizes of the objects that a run has uploaded, by their names."""
    return {
        each.partition.stem(segment) + suffix: stored.size
        for each in written
        for segment in each.new
        for suffix, stored in zip(SUFFIXES, segment.objects, strict=True)
    }


def _sync(store: ObjectStore) -> None:
    if isinstance(store, FolderStore):
        flush(store.root)


def _written_partition(job: UploadJob, item: _PartitionItem, advance: Advance) -> _Written:
    plan, last = item.plan, item.past
    made = _Making(job, item, advance)
    fault, stood_in, is_read = plan.fault, list[ArchivedSegment](), True
    try:
        for first, end in plan.lacking:
            before = len(made.new)
            if (why := made.fill(first, end)) is None:
                continue
            fault = fault or why
            old = [each for each in plan.agreed if first <= each.base_offset and each.end_offset <= end]
            if not _covers(old, first, end):
                break
            made.new[before:], stood_in = [], stood_in + old  # what was archived before stands for it
    except CorruptionError as error:
        fault, is_read = str(error), False
    except StorageError as error:
        if error.path.startswith(job.store.url):
            raise
        fault, is_read = str(error), False
    segments = tuple(sorted({*plan.kept, *made.new, *stood_in}))
    end = segments[-1].end_offset if segments else plan.start
    known = {} if last is None else last.files
    is_same = last is not None and last.end_offset == end
    files = dict(known) if is_same else made.files(end, known, is_empty=not segments)
    if last is not None and segments and last.segments[-1:] == (segments[-1],):
        stable = last.last_stable_offset
    else:
        is_last = made.stable is not None and bool(made.new) and made.new[-1:] == list(segments[-1:])
        stable = made.stable if is_last and made.stable is not None else made.stable_at(end)
    epochs = tuple((e.epoch, e.start_offset) for e in plan.lineage.epochs if e.start_offset < end)
    topic, topic_id, number = plan.key
    fault = fault or _cleaned_beyond(plan, end)
    is_overtaken = is_read and bool(fault) and not (plan.fault or made.damage)
    first = segments[0].base_offset if segments else plan.start  # a broker may have removed what lay before it
    start, disk = min(max(plan.start, first), end), plan.copies[0].disk
    ends = start, end, max(min(stable, end), 0), plan.ended_by
    partition = ArchivedPartition(topic, topic_id, number, *ends, disk, epochs, segments, files, fault)
    adopted, notes = len(made.new) - len(made.uploaded), plan.notes + made.notes
    return _Written(partition, made.uploaded, adopted, notes, made.damage, is_overtaken)


def _covers(segments: Sequence[ArchivedSegment], first: int, end: int) -> bool:
    """Check whether segments have a range of offsets, one after the other."""
    for each in segments:
        if each.base_offset != first:
            return False
        first = each.end_offset
    return first == end


class _Making:
    """The segments that are made of a partition's lacking ranges."""

    def __init__(self, job: UploadJob, item: _PartitionItem, advance: Advance) -> None:
        self._job, self._item, self._plan, self._advance = job, item, item.plan, advance
        self.new: list[ArchivedSegment] = []
        self.uploaded: list[ArchivedSegment] = []
        self.notes: list[str] = []
        self.damage: list[str] = []  #: Of copies, whether another one stands in or not.
        self.stable: int | None = None  #: At the end of the last one, as far as it is known.

    def fill(self, first: int, end: int) -> str | None:
        """Upload a range of offsets, of each copy what it has; return why that is not all."""
        while first < end:
            why = f"the log ends at offset {first}, and {end} was committed"
            for copy, limit in zip(self._plan.copies, self._plan.limits, strict=True):
                segment = _segment_at(copy.part.segments, first)
                if segment is None or first >= limit or segment.base_offset > max(first, self._plan.start):
                    continue
                stop = min(end, limit, 2**63 - 1 if segment.next_base is None else segment.next_base)
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
                if done.hole is not None:
                    what = offsets_text(*done.hole)
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
            return last_stable(producers_at(self._plan.copies[0], end), end)
        except PylogsegError as error:
            self.notes.append(f"{self._plan.name}: its open transactions are not known: {error}")
            return end

    def files(self, end: int, before: Mapping[str, ArchivedFile], *, is_empty: bool) -> dict[str, ArchivedFile]:
        """Upload the newest checkpoint of the metadata, or of an empty log the snapshot of its producers.

        Its name says the offset and the epoch, so one that the point before has is not uploaded again.
        """
        part = self._plan.copies[0].part
        kind = FileKind.KRAFT_SNAPSHOT if self._plan.key[0] == METADATA_TOPIC else FileKind.PRODUCER_SNAPSHOT
        there = {o.name.offset: o.path for o in part.others if o.name.kind is kind and o.name.is_live}
        there |= {s.base_offset: s.companions[kind] for s in part.segments if kind in s.companions}
        known = [at for at in there if at is not None and (at <= end if kind is FileKind.KRAFT_SNAPSHOT else at == end)]
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
