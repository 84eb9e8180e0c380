"""`write`: upload the offsets that an archive lacks, and write a point."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pylogseg._version import __version__
from pylogseg.archive.facts import file_faults, id_faults, settle_facts
from pylogseg.archive.from_cluster import ClusterSource
from pylogseg.archive.losses import (
    absence_fault,
    absent_partitions,
    archived_log_key,
    forgotten_keys,
    object_losses,
    rotten_objects,
    shortening_fault,
)
from pylogseg.archive.newest import known_points, note_points
from pylogseg.archive.partitions import PartitionItem, WrittenPartition, flush_store, new_objects, write_partition
from pylogseg.archive.place import check_place, list_objects, lost_objects, lost_segments
from pylogseg.archive.planning import PartitionPlan, Past, plan_partition
from pylogseg.archive.read_notes import forget_damage
from pylogseg.archive.seen import MARKED_FIRST, OFFSETS_TOPIC, Lack, LogKey, SeenCluster, SeenCopy, look, stamps
from pylogseg.archive.uploading import UploadJob
from pylogseg.disk.listing import open_dir
from pylogseg.disk.notes import joined_lines
from pylogseg.disk.stores import ObjectStore, check_objects
from pylogseg.disk.tier.keys import PublicKey
from pylogseg.disk.tier.point import FILES, MARK, ArchivedPartition, CommitAboveEnd, Point, PointName
from pylogseg.disk.tier.point_json import parse_point
from pylogseg.disk.tier.points import archive_store, mark_text, new_id, read_mark, read_point, write_point
from pylogseg.disk.tier.writing import UploadForm
from pylogseg.env.beside import temporary_folder
from pylogseg.env.executor import INLINE, Executor, Threads, Workload, choose_executor
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.moments import iso_text
from pylogseg.format.outcome import Outcome
from pylogseg.format.words import FEW, count_text, names_text, size_text
from pylogseg.inspect.verify.findings import PERHAPS_COMPACTED, Finding
from pylogseg.inspect.verify.lacking import Look, lacking_of
from pylogseg.inspect.verify.missing import Around, absolute, check_partitions
from pylogseg.reading.state import Throttle
from pylogseg.tables.export.notes import lock_place
from pylogseg.tables.question import check_asked, disk_of
from pylogseg.tables.reader import Reader
from pylogseg.values.internal.cluster_state import cluster_state

#: A running broker writes its high watermarks every 5 s.
_WAIT_SECONDS = 6.0
_MOST_LOOKS = 3
SPOOL_OPTION = "spool"  #: Of `storage_options`.
#: A clock that goes back no further is set by the network.
_SKEW_MS = 60_000
#: The last moment of which a point can have an id.
_LAST_MS = 253402300799999


@declare_columns(
    line_type("archive"),
    TableColumn("point", "string", "its id", source="point.id"),
    TableColumn("partitions", "int64", "in the point", source=lambda run: len(run.point.partitions)),
    TableColumn("segments", "int64", "that were uploaded"),
    TableColumn("bytes", "int64", "of their objects", "bytes", source="size"),
    TableColumn("adopted", "int64", "segments that a killed run had uploaded"),
    TableColumn(
        "notSeen", "int64", "partitions that are on no disk; null without the cluster's metadata",
        source=lambda run: None if run.point.not_seen is None else len(run.point.not_seen),
    ),
    TableColumn("aboveEnd", "int64", "groups' offsets above a log's end", source=lambda run: len(run.point.above_end)),
    TableColumn("notes", "list<string>", "of the point", source=lambda run: list(run.point.notes)),
    TableColumn("faults", "list<string>", "partitions that are not in it up to the last committed record"),
)  # fmt: skip
@dataclass
class ArchiveResult(Outcome):
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
        """True if all that the disks have committed is in it."""
        return not self.faults

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if the point has a fault."""
        return int(not self.is_whole)

    def warnings(self) -> Iterator[str]:
        """Yield notes, then faults."""
        point, topics = self.point, {partition.topic for partition in self.point.partitions}
        for note in joined_lines((note for note in point.notes if note not in self.faults), topics):
            yield f"note: {note}"
        if point.not_seen is None:
            yield "note: no disk has the metadata of the cluster: missing partitions are unknown"
        if point.not_seen:
            names = [f"{part.topic}-{part.partition}" for part in point.not_seen]
            yield f"note: on none of the disks: {names_text(names)}"
        for commit in point.above_end[:FEW]:
            where = f"{commit.topic}-{commit.partition}"
            yield f"note: group {commit.group} is at {commit.offset} of {where}, which ends at {commit.end_offset}"
        yield from joined_lines(self.faults, topics)

    def lines(self) -> Iterator[str]:
        """Yield the line for people."""
        adopted = f", {count_text(self.adopted, 'segment')} of a killed run" if self.adopted else ""
        uploads = f"{count_text(self.segments, 'segment')}, {size_text(self.size)}, uploaded{adopted}"
        yield f"{self.point.id}: {count_text(len(self.point.partitions), 'partition')}, {uploads}"


def write(
    disks: Reader | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    archive: str | os.PathLike[str],
    *,
    encrypt_to: str | os.PathLike[str] | None = None,
    compress: bool = False,
    to_end: bool = False,
    forget: Sequence[str] = (),
    jobs: int | None = 1,
    executor: Executor | None = None,
    max_bytes_per_second: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_size: Callable[[int], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ArchiveResult:
    """Upload the offsets that an archive lacks from the disks of brokers, running or stopped, and write a point.

    Segments are uploaded once; of the active one what is below the high watermark. Replicas are one copy. A run that
    was killed anywhere leaves the newest point as it was, and the next run goes on with its uploads.

    Parameters
    ----------
    disks : path, sequence of path, or Reader
        Log directories of one cluster on this machine, or folders of several. A reader stands for the log directories
        that it reads. An archive has all of them: options of a reader are refused, but for `max_bytes_per_second`.
        Or the ``kafka://`` URL of a running cluster, or of one of its topics: its partitions are fetched.
    archive : path or URL
        An empty place, or an archive of this cluster.
    encrypt_to : path, optional
        The PEM file of a public RSA key; its name is the key's id.
    compress : bool
        Compress objects by zstd.
    to_end : bool
        Archive a log of which no file says a high watermark that counts up to its end, committed or not. By default
        this is a fault, unless the metadata says that all replicas in sync are here, or its broker stopped cleanly.
    forget : sequence of str
        Topics, or partitions as ``orders-0``, that the newest point has, and no disk any more: leave them out from now
        on. Otherwise they stay in each point, with a fault, until the cluster's metadata says that they were deleted.
    jobs : int or None
        Threads, each with a partition; None is one per processor.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`, whose workers upload. This process decides what to
        upload, and writes the point.
    max_bytes_per_second : int, optional
        Read no faster.
    storage_options : mapping, optional
        Options of fsspec. For a running cluster, ``spool`` is the folder for a segment of each partition at work; by
        default that of temporary files.
    on_size, on_bytes : callable, optional
        Get how many bytes will be read, and how many were read since the last call.

    Returns
    -------
    ArchiveResult

    Raises
    ------
    RequestError
        If the disks are of several clusters, the place is no archive of theirs, or `forget` names what is not lost.
    StorageError
        If the store fails.
    CorruptionError
        If `archive.json`, which names the archive's cluster, is damaged. A damaged point is a fault.
    """
    form = UploadForm(compress, None if encrypt_to is None else PublicKey(encrypt_to))
    paths: Sequence[str | os.PathLike[str]]
    if isinstance(disks, Reader):
        check_asked(disks, "archive", ["max_bytes_per_second"])
        paths = _log_dirs_of(disks)
        max_bytes_per_second = max_bytes_per_second or disks.scope.state.reading.max_bytes_per_second
    else:
        paths = [disks] if isinstance(disks, (str, os.PathLike)) else list(disks)
    throttle = Throttle.of(max_bytes_per_second)
    options = dict(storage_options or {})
    spool = options.pop(SPOOL_OPTION, None)
    store, work = archive_store(archive, options), choose_executor(executor, jobs)
    url = next((text for path in paths if (text := os.fspath(path)).startswith(CLUSTER_SCHEME)), None)
    if url is not None and (len(paths) > 1 or not isinstance(work, Threads)):
        raise RequestError(f"{url}: a running cluster is archived alone, by threads of this machine")
    if url is None and spool is not None:
        raise RequestError("a spool is for a running cluster: of disks, nothing is fetched")
    check_place(store)  # before there is a lock in it
    with lock_place(store, "archive"), contextlib.ExitStack() as stack:
        source: SeenCluster | ClusterSource
        if url is None:
            source = look(paths)
        else:
            assert isinstance(work, Threads)
            folder = stack.enter_context(temporary_folder("pylogseg-spool-", spool))
            source = ClusterSource(url, str(folder), store.url, options, work.jobs, on_bytes)
        try:
            return _Archiving(store, form, work, throttle, to_end, on_bytes, source).run(forget, on_size)
        except StorageError as error:
            if not error.path.startswith(store.url):
                raise
            reason = f"{error.reason}; the uploaded objects stay, and the next run uses them"
            raise StorageError(error.path, error.operation, reason, error.errno) from error


def _log_dirs_of(reader: Reader) -> list[str]:
    """Return the log directories of a reader; RequestError if it reads other folders or files."""
    disk = disk_of(reader, "archive")
    if disk.loose or not disk.log_dirs or any(not isinstance(each.files, LocalFiles) for each in disk.log_dirs):
        raise RequestError("an archive is made of log directories on this machine: read these, not partitions or URLs")
    return [log_dir.path for log_dir in disk.log_dirs]


class _Archiving:
    """One run: it looks at disks and archive, plans, uploads, looks again, and writes the point."""

    def __init__(
        self,
        store: ObjectStore,
        form: UploadForm,
        executor: Executor,
        throttle: Throttle | None,
        to_end: bool,
        on_bytes: Callable[[int], None] | None,
        source: SeenCluster | ClusterSource,
    ) -> None:
        self._store, self._form, self._executor, self._throttle = store, form, executor, throttle
        self._to_end, self._on_bytes, self._now_ms = to_end, on_bytes, time.time_ns() // 1_000_000
        self._names: list[PointName] = []  #: The points that there are.
        self._faults: list[str] = []  #: Of the archive.
        self._cluster = source if isinstance(source, ClusterSource) else None
        self._seen = source.seen if isinstance(source, ClusterSource) else source
        self._times = stamps(self._seen.disks)
        self._around = Around(self._seen.disk, self._seen.clusters)
        self._before = self._newest_point()
        self._forgotten: set[LogKey] = set()  #: Partitions of the newest point that somebody lets go.
        self._past: dict[LogKey, Past] = {}
        self._lost: set[str] = set()  #: Objects of the newest point that the store lost, or that are rotten.
        self._rotten: set[str] = set()  #: Those of them that a disk still has: this run uploads them again.
        self._only_here: set[str] = set()  #: Rotten objects that no disk has any more.
        self._written: dict[LogKey, WrittenPartition] = {}
        self._unmarked: set[LogKey] = set()  #: Partitions of which nobody knows a high watermark.
        self._above: tuple[CommitAboveEnd, ...] = ()

    def run(self, forget: Sequence[str], on_size: Callable[[int], None] | None) -> ArchiveResult:
        self._look_at_archive(forget)
        if self._cluster is not None:
            self._fetch(self._cluster, on_size)
        plans = [self._plan(key) for key in sorted(self._seen.copies) if self._seen.copies[key]]
        if on_size is not None and self._cluster is None:
            on_size(sum(each.size for each in plans))
        self._written |= self._upload(plans)
        self._look_again()
        self._look_at_holes()
        self._add_faults()
        return self._write_point()

    def _look_at_archive(self, forget: Sequence[str]) -> None:
        """Take the ids of topics from the newest point, and find out which of its objects are lost or rotten."""
        store, before = self._store, self._before
        partitions = () if before is None else before.partitions
        absent = []
        if before is not None:
            self._seen.take_ids(before)
            absent = absent_partitions(self._seen, before)
        self._forgotten = forgotten_keys(forget, absent, before)
        if self._cluster is not None and before is not None:
            self._forgotten |= self._cluster.find_made_again(before)
        self._listing = list_objects(store)
        lost = lost_objects(store, self._listing, partitions)
        rotten, self._only_here = rotten_objects(store, partitions, self._seen)
        if self._cluster is not None:  # what is still in the cluster is fetched again, and no more is needed
            rotten, self._only_here = rotten | self._only_here, set()
        self._rotten = rotten - lost
        for name in self._rotten:
            self._listing.remove(name)
        self._lost = lost | self._rotten
        if before is not None:
            self._past = {
                archived_log_key(each): Past(
                    each, before.disks[each.disk].path, lost_segments(each, self._lost), before.time_ms
                )
                for each in partitions
            }

    def _fetch(self, cluster: ClusterSource, on_size: Callable[[int], None] | None) -> None:
        """Take the partitions of a running cluster, as they come."""
        if on_size is not None:
            on_size(cluster.size)
        with self._uploading() as job:

            def upload(plan: PartitionPlan, past: ArchivedPartition | None) -> WrittenPartition:
                return write_partition(job, self._make_item(plan, past), lambda size: None)

            self._written = cluster.fetch(self._before, self._past, upload)

    def _plan(self, key: LogKey) -> PartitionPlan:
        copies, past = self._seen.copies[key], self._past.get(key, Past())
        for copy in copies:
            settle_facts(copy, past, self._seen)
        plan = plan_partition(key, copies, self._seen, past, to_end=self._to_end)
        if (how := plan.needs_look(past.partition)) is None:
            return plan
        for copy in copies:
            look_for_lacks(copy, self._seen, self._around, how)
        if any(copy.lacks for copy in copies):
            return plan_partition(key, copies, self._seen, past, to_end=self._to_end)
        return plan

    def _upload(self, plans: Sequence[PartitionPlan]) -> dict[LogKey, WrittenPartition]:
        items = [self._make_item(plan, self._past.get(plan.key, Past()).partition) for plan in plans]
        self._unmarked = {plan.key for plan in plans if plan.is_unmarked}
        return self._upload_items(items)

    def _make_item(self, plan: PartitionPlan, past: ArchivedPartition | None) -> PartitionItem:
        segments, files = self._listing.segments.get(plan.folder, {}), self._listing.files.get(plan.folder, {})
        lost = frozenset(name for name in self._lost if name.startswith(f"{FILES}/{plan.folder}/"))
        return PartitionItem(plan, past, segments, files, lost)

    def _look_again(self) -> None:
        """Look again at partitions for which the first look was too early: running brokers write checkpoints late.

        Records were committed before offsets beyond them, or before a cleaner removed others for them: their broker
        notes it later.
        """
        seen, written = self._seen, self._written
        self._above = self._commits_above_end(self._before)
        if self._cluster is not None:  # a high watermark is that of the moment
            return
        for _ in range(_MOST_LOOKS):
            late = {(each.topic, each.partition) for each in self._above}
            again = [
                key
                for key, each in written.items()
                if each.is_overtaken or key in self._unmarked or (key[0], key[2]) in late
            ]
            if not again or not seen.is_running or not _have_changed(seen, self._times):
                break
            self._times = stamps(seen.disks)
            overtaken = {key[0] for key in again if written[key].is_overtaken}
            topics = overtaken | {key[0] for key in self._unmarked}
            seen.look_at_marks(also_first=not topics.isdisjoint(MARKED_FIRST))
            self._around = Around(seen.disk, seen.clusters)
            again = sorted(key for key in again if key in seen.copies)
            for key in again:
                partition = written[key].partition
                self._past[key] = Past(partition, seen.disks[partition.disk].path)
            for key, later in self._upload([self._plan(key) for key in again]).items():
                written[key] = written[key].continue_with(later)
            self._above = self._commits_above_end(None)

    def _add_faults(self) -> None:
        """Add a fault for each thing that the point lacks."""
        seen, written, before = self._seen, self._written, self._before
        several = Counter(key[::2] for key in written)
        self._faults += [
            f"{topic}-{number}: disks have {count} topics of this name: which one the cluster has, no metadata says"
            for (topic, number), count in several.items()
            if count > 1
        ]
        if before is not None:
            self._add_losses(before)
        self._faults += [
            f"{each.partition.name}: {self._store.name(name)}: `verify` found damage in it, and no disk has what was"
            " in it"
            for each in written.values()
            for name in sorted(self._only_here.intersection(each.partition.objects))
        ]
        for log_dir, checkpoints in zip(seen.disk.log_dirs, seen.checkpoints, strict=True):
            seen.faults += file_faults(log_dir, checkpoints)
        seen.faults += id_faults(seen)
        for name, fault in find_lost_folders(seen, written):
            note = f"{name}: left out, as `--forget` said"
            is_forgotten = name in {f"{key[0]}-{key[2]}" for key in self._forgotten}
            is_forgotten = is_forgotten or (before is not None and note in before.notes)
            (seen.notes if is_forgotten else seen.faults).append(note if is_forgotten else fault)
        self._faults += seen.faults

    def _write_point(self) -> ArchiveResult:
        store, written = self._store, self._written
        point = self._readable(self._point())
        new = [segment for each in written.values() for segment in each.new]
        if new:
            check_objects(store, new_objects(written.values()), "no point is written")
            flush_store(store)  # the objects are on the disk before the point that needs them
        note_points(store, [*self._names, point.name], is_written=False)
        write_point(store, point, () if self._before is None else self._before.lists)
        note_points(store, [*self._names, point.name])
        for name in self._rotten & point.objects.keys():  # each of these was uploaded again
            forget_damage(store, name)
        size = sum(stored.size for segment in new for stored in segment.objects)
        faults = list(dict.fromkeys([*(f"{p.name}: {p.fault}" for p in point.partitions if p.fault), *point.faults]))
        return ArchiveResult(point, len(new), size, sum(each.adopted for each in written.values()), faults)

    @contextlib.contextmanager
    def _uploading(self) -> Iterator[UploadJob]:
        is_here = isinstance(self._executor, Threads)
        with self._store.scratch() if is_here else contextlib.nullcontext() as scratch:
            times_ms = tuple(name.time_ms for name in self._names)
            yield UploadJob(self._store, self._form, scratch, self._throttle, self._now_ms, times_ms)

    def _upload_items(self, items: Sequence[PartitionItem]) -> dict[LogKey, WrittenPartition]:
        """Upload missing offsets by workers; the driver itself uploads the small files of a complete partition."""
        with self._uploading() as job:
            work = functools.partial(write_partition, job)
            lacking = [each for each in items if each.plan.lacking]
            sizes = [each.plan.size for each in lacking]
            load = Workload("pylogseg archive", sizes, self._on_bytes, self._store.folders)
            done = list(self._executor.map(work, lacking, load))
            done += INLINE.map(work, [each for each in items if not each.plan.lacking])
        return {each.key: each for each in done}

    def _look_at_holes(self) -> None:
        """Name the offsets that no batch has, where a look at all headers proves that they are missing."""
        seen, around = self._seen, Around(self._seen.disk, self._seen.clusters)
        for key, result in self._written.items():
            if result.has_holes and not result.partition.fault:
                for copy in seen.copies.get(key, ()):
                    look_for_lacks(copy, seen, around, Look.HEADERS)
                lacks = [lack.text for copy in seen.copies.get(key, ()) for lack in copy.lacks if lack.is_known]
                result.partition = replace(result.partition, fault=lacks[0] if lacks else "")

    def _newest_point(self) -> Point | None:
        """Return the newest point; refuse a folder that is no archive, and the archive of another cluster."""
        store, seen, of = self._store, self._seen, read_mark(self._store)
        if of is None:
            check_place(store)
            store.create(MARK, mark_text(seen.cluster_id).encode())
            return None
        if of and seen.cluster_id and of != seen.cluster_id:
            raise RequestError(
                f"{store.url}: this is the archive of cluster {of}, and the disks are of cluster {seen.cluster_id}: "
                "name another place"
            )
        known = known_points(store)
        self._names = known.names
        if known.fault is not None:
            self._faults.append(str(known.fault))
        if known.lost is not None:
            self._faults.append(f"{store.name(known.lost.key)}: the newest point is gone from the store")
        if known.names and known.names[-1].time_ms >= _LAST_MS:
            raise RequestError(
                f"{store.name(known.names[-1].key)}: no point can be written after this time: remove that point"
            )
        for name in reversed(known.names):
            try:
                return read_point(store, name)
            except CorruptionError as error:  # the one before it says less of what is there already
                self._faults.append(str(error))
        return None

    def _commits_above_end(self, before: Point | None) -> tuple[CommitAboveEnd, ...]:
        """Return the committed offsets of groups that lie above the ends of their partitions."""
        seen, written, past = self._seen, self._written, self._past
        ends = {(key[0], key[2]): each.partition.end_offset for key, each in written.items()}
        own = {key: each.partition for key, each in written.items() if key[0] == OFFSETS_TOPIC}
        if not own:
            return ()
        ended = {key: each.partition.end_offset for key, each in past.items() if each.partition is not None}
        is_same = before is not None and all(ended.get(key) == each.end_offset for key, each in own.items())
        # Where a log is shorter, or another one, what was below the end may be above it.
        if is_same and all(key in written and written[key].partition.end_offset >= end for key, end in ended.items()):
            commits = [(c.group, c.topic, c.partition, c.offset) for c in (before.above_end if before else ())]
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

    def _add_losses(self, before: Point) -> None:
        """Add a fault for each partition that the newest point has, and the disks or the store have lost.

        A partition that no disk has stays in the point as it was, with its objects.
        """
        seen, written = self._seen, self._written
        for each in before.partitions:
            if (now := written.get(archived_log_key(each))) is not None:
                fault = now.partition.fault or shortening_fault(now.partition, each, before)
                now.partition = replace(now.partition, fault=fault)
        kept = set[LogKey]()
        for each in absent_partitions(seen, before):
            if (key := archived_log_key(each)) in self._forgotten or key in written:
                continue
            kept.add(key)
            absent = before.disks[each.disk]._replace(state="absent")
            if absent not in seen.disks:
                seen.disks.append(absent)
            is_asked = self._cluster is None or self._cluster.is_whole
            fault = absence_fault(each, before, seen) if is_asked else each.fault
            written[key] = WrittenPartition(replace(each, fault=fault, disk=seen.disks.index(absent)))
        now_there = {key: each.partition for key, each in written.items()}
        notes, faults = object_losses(self._lost, before, now_there, kept, self._store)
        seen.notes += notes
        self._faults += faults

    def _readable(self, point: Point) -> Point:
        """Return a point as a reader takes it: without a partition that no reader takes, which is a fault."""
        at = self._store.name(point.name.key)
        try:
            parse_point(point.text.encode(), at)
            return point
        except CorruptionError:
            partitions, faults = [], []
            for each in point.partitions:
                try:
                    parse_point(replace(point, partitions=(each,)).text.encode(), at)
                    partitions.append(each)
                except CorruptionError as error:
                    faults.append(f"{each.name}: it is not in the point, which nobody could read: {error.reason}")
        point = replace(
            point,
            partitions=tuple(partitions),
            notes=(*point.notes, *faults),
            faults=(*point.faults, *faults),
        )
        parse_point(point.text.encode(), at)
        return point

    def _time_ms(self) -> tuple[int, list[str]]:
        """Return the time of a new point, later than all points, and a note if the clock went back.

        The newest point is the one that was written last, whatever the clock says.
        """
        newest, now_ms = self._names[-1] if self._names else None, self._now_ms
        if newest is None or newest.time_ms < now_ms:
            return now_ms, []
        text = f"the clock says {iso_text(now_ms)}, which is not after point {newest.id}: the next one has its time"
        if newest.time_ms - now_ms > _SKEW_MS:
            self._faults.append(f"{text}; correct the clock, or remove points of a time that has not come yet")
        return newest.time_ms + 1, [text]

    def _point(self) -> Point:
        seen, written, before = self._seen, self._written, self._before
        # Settings of each topic that the metadata has, also of one without any: so the next run knows a deletion.
        ids = {key[1]: key[0] for key in written}
        # An older copy of the metadata that does not have a topic yet never becomes the proof that it was deleted.
        if seen.metadata is None:
            settings = {} if before is None else {tid: own for tid, own in before.settings.items() if tid in ids}
        else:
            there = set(seen.metadata.topic_ids.values())
            settings = {tid: dict(seen.metadata.of_topic(topic)) for tid, topic in ids.items() if tid in there}
        time_ms, late = self._time_ms()
        damage = [text for each in written.values() for text in each.damage]
        faults = dict.fromkeys([*self._faults, *map(str, seen.unreadable), *damage])
        others = [*seen.notes, *faults, *(note for each in written.values() for note in each.notes)]
        notes = tuple(dict.fromkeys([*late, *others]))
        return Point(
            new_id(time_ms),
            time_ms,
            f"pylogseg {__version__}",
            seen.cluster_id,
            tuple(seen.disks),
            tuple(written[key].partition for key in sorted(written)),
            settings,
            seen.not_seen(),
            self._above,
            notes,
            tuple(note for note in notes if note in faults),
        )


def _have_changed(seen: SeenCluster, times: Sequence[int]) -> bool:
    """Wait until the brokers that run have noted their high watermarks again; False if some do not."""
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        pairs = zip(seen.disks, times, stamps(seen.disks), strict=True)
        if all(now != then for disk, then, now in pairs if disk.state == "running"):
            return True
        time.sleep(0.05)
    return False


# ---- offsets that a disk lacks, or may lack ----
#
# A run looks before it decides what the next point needs, with the checks of `verify`. It looks at a partition if
# something about it is new: it is in no point yet, its start moved, a sealed segment has other bytes than before, or
# the newest point has a fault of it.

#: Kinds of findings about offsets that are not there.
_LACKS = ("missing", "gap", "orphan-lost", PERHAPS_COMPACTED)


def look_for_lacks(copy: SeenCopy, seen: SeenCluster, around: Around, how: Look) -> None:
    """Note in a copy the offsets that its disk lacks. While a broker runs, a second look has to confirm the first one.

    `around` has the checkpoints, which many partitions share.
    """
    findings = lacking_of(copy.partition, around, how)
    if findings and seen.is_running:
        try:
            (now,) = open_dir(copy.partition.path).partitions
        except (RequestError, StorageError):  # a broker removed it
            return
        now = replace(now, log_start_offset=max(now.log_start_offset, copy.partition.log_start_offset))
        again = {(finding.kind, *finding.offsets) for finding in lacking_of(now, Around(seen.disk, seen.clusters), how)}
        findings = [finding for finding in findings if (finding.kind, *finding.offsets) in again]
    copy.lacks = [_lack(row) for row in findings if row.kind in _LACKS and row.last_offset is not None]


def _lack(finding: Finding) -> Lack:
    return Lack(*finding.offsets, finding.is_damage, f"{finding.path}: {finding.reason}")


def find_lost_folders(seen: SeenCluster, there: Collection[LogKey]) -> Iterator[tuple[str, str]]:
    """Yield the partitions that checkpoints of a disk have, and no disk, with a fault: not if deleted, or moved."""
    around, metadata, names = Around(seen.disk, seen.clusters), seen.metadata, {(key[0], key[2]) for key in there}

    def may_be_lost(node: int, topic: str, partition: int) -> bool:
        if (topic, partition) in names:
            return False
        topic_id = None if metadata is None else metadata.topic_ids.get(topic)
        if metadata is None or topic_id is None:
            return metadata is None or topic not in metadata.removed_topics
        replicas = metadata.replicas.get((topic_id, partition))
        return replicas is not None and (node < 0 or node in replicas)

    places = {(p.topic, p.partition): d.path for d in seen.disk.log_dirs for p in d.partitions if not p.state}
    for number, log_dir in enumerate(seen.disk.log_dirs):
        node = seen.disks[number].node_id
        checkpoints = around.checkpoints(log_dir.files, absolute(log_dir.files, log_dir.path))
        for finding in check_partitions(log_dir, checkpoints, places, functools.partial(may_be_lost, node)):
            if finding.is_damage:
                remedy = f"{finding.remedy}; if it was deleted, a broker that starts here takes its offsets out"
                yield os.path.basename(finding.path), f"{finding.path}: {finding.reason}; {remedy}"
