"""`merge`: one log directory made of several brokers' disks, each partition by the epochs of its leaders."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pylogseg.config import LogConfig
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.lineage.authority import Known
from pylogseg.disk.outside import check_outside
from pylogseg.disk.target import NOT_A_TOPIC, Target, refuse_if_locked
from pylogseg.env.beside import NewFolder
from pylogseg.env.executor import Advance, Threads, Workload, job_count
from pylogseg.env.filesystem import is_same_folder, is_within, refuse_inside
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.files.properties import parse_properties
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import METADATA_TOPIC, FileKind, is_topic, parse_partition_folder, partition_folder_name
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.offline.merging.partition import MergedWriter, Plan, plan_merge
from pylogseg.offline.merging.replica import ReplicaScan, noted_offsets, scan_replica
from pylogseg.offline.merging.report import describe
from pylogseg.offline.result import PartitionResult, Result, is_of_disk
from pylogseg.transfer.checkpoints import Entries
from pylogseg.values.internal.cluster import FOLDER, ClusterMetadata, find_metadata
from pylogseg.walker.gaps import offsets_text

#: A broker that died counts as alive so long: broker.session.timeout.ms, 9 s, and some more.
_FENCED_AFTER_MS = 12_000
#: A metadata log has a record twice a second; one that ends so much earlier than another is that of an earlier time.
_AT_ONCE_MS = 2_000


class Metadata(NamedTuple):
    """A metadata log that was read."""

    cluster: ClusterMetadata
    folder: str


class Age(NamedTuple):
    """The age of a disk, and its own facts."""

    own: Metadata  #: The metadata log of the disk's broker, and the newest one of all.
    newest: Metadata
    node_id: int
    went_on: bool  #: True if the broker lived when its disk had nothing any more: this is an older copy of it.

    @classmethod
    def of(cls, node_id: int, own: Metadata, newest: Metadata) -> Age:
        """Compare the two; the newest log shows when a broker that died was fenced, and whether it came back."""
        seen_ms = newest.cluster.seen_ms.get(node_id, -1)
        return cls(own, newest, node_id, seen_ms > own.cluster.time_ms + _FENCED_AFTER_MS)

    def __str__(self) -> str:
        later = (self.newest.cluster.time_ms - self.own.cluster.time_ms) / 1000
        return (
            f"its metadata log ends at offset {self.own.cluster.offset}, {later:.0f} s before that of "
            f"{self.newest.folder}, which ends at {self.newest.cluster.offset}"
        )

    def explain_refusal(self, key: tuple[str, int]) -> str | None:
        """Say why the disk cannot be taken for in sync, as the newest metadata has it; None if it can."""
        if self.went_on:
            return f"{self}, and broker {self.node_id} went on meanwhile: it is an older copy"
        if self.newest.cluster.time_ms - self.own.cluster.time_ms <= _AT_ONCE_MS:
            return None
        own, newest = self.own.cluster.leaders.get(key), self.newest.cluster.leaders.get(key)
        for of_newest, of_own in zip(_in_sync(newest), _in_sync(own), strict=True):
            if self.node_id in of_newest:
                return None if self.node_id in of_own else f"{self}, and does not say yet that it was in sync"
        return None


def _in_sync(known: Known | None) -> Sequence[Sequence[int]]:
    """Return the in-sync brokers, and the last known leaders."""
    return [(), ()] if known is None else [(*known.isr, *known.elr), known.last_known_elr]


_META = FileKind.META_PROPERTIES.value
#: Names that a note lists.
_FEW = 5


def merge(
    sources: Sequence[str | os.PathLike[str]],
    into: str | os.PathLike[str],
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    take: Mapping[str, str] | None = None,
    cluster_metadata: str | None = None,
    dry_run: bool = False,
    jobs: int | None = 1,
    on_result: Callable[[PartitionResult], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    storage: Storage | None = None,
) -> Result:
    """Make one log directory of the disks of several stopped brokers of one cluster.

    Each partition has one authoritative replica: in sync by the cluster's metadata, or else the one with the highest
    leader epoch, and the longest of several. Its log is written. Its damaged or missing batches come from the other
    replicas, as far as their history is the same. If another one has committed records that this history has not, the
    partition is not written, unless `take` names the side.

    Parameters
    ----------
    sources : sequence of path
        Log directories, or folders of several. Nothing is written to them.
    into : path
        The new log directory: an empty folder, or a path that does not exist. It appears when all of it is on the disk.
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    take : mapping of str to str, optional
        Names of partitions (``orders-3``) to the source whose log counts. Topics and shell patterns stand for those of
        their partitions that have two sides and are in that source.
    cluster_metadata : str, optional
        The folder ``__cluster_metadata-0``; ``"none"`` for none. By default the newest one in the sources.
    dry_run : bool
        Only say what would come from where; everything is read.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    on_result : callable, optional
        Gets the result of each partition, in the order of names.
    on_bytes : callable, optional
        Gets the bytes that were read since its last call.
    storage : Storage, optional
        Where sources and target are; by default the disks of this machine.

    Returns
    -------
    Result
        ``rows`` of a partition say what comes from where; ``numbers`` are ``committed`` (the highest high watermark
        that is proved), ``offsetsFromOthers``, ``offsetsMissing``, ``damagedRanges``. ``missing`` has the partitions
        that the cluster's metadata knows and no source has.

    Raises
    ------
    RequestError
        If a name is not there, the sources are of several clusters, or the target is no empty folder.
    StorageError
        If a broker has the lock of a source, or the disk of the target fails.
    """
    count = job_count(jobs)
    job = _Merge([os.fspath(path) for path in sources], dict(take or {}), cluster_metadata, storage, on_result)
    job.choose(PartitionChoice.of(topic, partition))
    return job.run(os.fspath(into), dry_run, count, on_bytes)


@dataclass
class _Disk:
    """A log directory that is read."""

    path: str
    source: str  #: As it was given.
    names: tuple[str, ...]
    noted: Entries  #: What its checkpoints say.
    properties: dict[str, str] = field(default_factory=dict)
    metadata: Metadata | None = None  #: What its broker knew of the cluster.
    age: Age | None = None

    @property
    def node_id(self) -> int | None:
        node = self.properties.get("node.id", self.properties.get("broker.id", ""))
        return int(node) if node.isdecimal() else None


class _Merge:
    def __init__(
        self,
        sources: Sequence[str],
        take: dict[str, str],
        cluster_metadata: str | None,
        storage: Storage | None,
        on_result: Callable[[PartitionResult], None] | None,
    ) -> None:
        self._storage: Storage = LocalStorage() if storage is None else storage
        self._on_result = on_result or (lambda result: None)
        self._result = Result()
        self._disks = [disk for source in sources for disk in self._open_disks(source)]
        if not self._disks:
            raise RequestError("there is nothing to merge: name the log directories")
        for number, disk in enumerate(self._disks):
            for other in self._disks[:number]:
                if is_same_folder(other.path, disk.path):
                    raise RequestError(f"{disk.path} was named twice, also as {other.path}: name each disk once")
        self._check_cluster()
        self._metadata = self._read_metadata(cluster_metadata)
        self._sides = take
        self._take: dict[str, _Disk] = {}
        self._if_disputed: dict[str, _Disk] = {}
        self._names: list[str] = []
        self._cleaned: dict[tuple[str, int], int] = {}

    def _open_disks(self, source: str) -> list[_Disk]:
        places = Target.find_all(self._storage, source)
        if isinstance(self._storage, LocalStorage):
            refuse_if_locked(places)
        found = []
        for place in places:
            if place.error is not None:
                raise place.error
            if place.log_dir is None or not place.is_whole:
                raise RequestError(f"{source}: the folder of one partition: name its log directory, and the partition")
            path = self._storage.join(place.log_dir, _META)
            properties = parse_properties(self._storage.read_all(path), path) if self._storage.exists(path) else {}
            noted = noted_offsets(self._storage, place.log_dir, self._result.doubts)
            found.append(_Disk(place.log_dir, source, place.names, noted, dict(properties)))
        return found

    def _check_cluster(self) -> None:
        of = {disk.properties["cluster.id"]: disk for disk in self._disks if "cluster.id" in disk.properties}
        if len(of) > 1:
            (one, first), (other, second) = list(of.items())[:2]
            raise RequestError(f"{first.path} is of cluster {one}, and {second.path} of cluster {other}")

    def _read_metadata(self, named: str | None) -> ClusterMetadata | None:
        """The newest metadata log that can be read."""
        if named == "none":
            return None
        for disk in self._disks:
            folder = self._storage.join(disk.path, FOLDER)
            if FOLDER not in disk.names:
                continue
            try:
                disk.metadata = Metadata(ClusterMetadata.read(folder), folder)
            except (CorruptionError, StorageError, RequestError) as error:
                self._result.notes.append(f"the metadata of the cluster in {folder} does not count: {error}")
        if named is not None and (folder := find_metadata([], named) or ""):
            best = Metadata(ClusterMetadata.read(folder), folder)
        else:
            every = [disk.metadata for disk in self._disks if disk.metadata is not None]
            if not every:
                text = (
                    "who was in sync is not known: no disk has the metadata of the cluster, so the leader epochs decide"
                )
                self._result.notes.append(text)
                return None
            best = max(every, key=lambda each: each.cluster.offset)
            self._result.notes.append(f"who was in sync: {best.folder}, up to offset {best.cluster.offset}")
        self._result.doubts += best.cluster.notes
        self._find_ages(best)
        return best.cluster

    def _find_ages(self, newest: Metadata) -> None:
        """Compare the metadata log of each broker with the newest one; a broker has it on one of its disks."""
        of = {disk.node_id: disk.metadata for disk in self._disks if disk.metadata is not None}
        for disk in self._disks:
            own = disk.metadata or of.get(disk.node_id)
            if own is not None and disk.node_id is not None:
                disk.age = Age.of(disk.node_id, own, newest)
                if disk.age.went_on:
                    self._result.notes.append(f"{disk.path}: {disk.age}: it is an older copy")

    def _choose_sides(self, every: Collection[str]) -> None:
        """Resolve the names of `take`: of partitions, or of topics and patterns."""
        for asked, where in self._sides.items():
            real = os.path.realpath(where)
            disks = [
                disk for disk in self._disks if real in (os.path.realpath(disk.path), os.path.realpath(disk.source))
            ]
            is_partition = asked in every
            names = (
                [asked] if is_partition else Target(where, tuple(every), None, True).chosen(PartitionChoice((asked,)))
            )
            found = {name: disk for disk in disks for name in names if name in disk.names}
            if not found:
                raise RequestError(f"{asked} is not to be taken from {where}: no source of that name has it")
            if is_partition and asked not in self._names:
                raise RequestError(f"{asked} is to be taken from one side, and was not chosen")
            (self._take if is_partition else self._if_disputed).update(found)

    # ---- which ----

    def choose(self, choice: PartitionChoice) -> None:
        every: dict[str, None] = {}
        for disk in self._disks:
            for name in sorted(disk.names):
                folder = parse_partition_folder(name)
                if folder is None or folder.state:
                    self._result.notes.append(
                        f"{self._storage.join(disk.path, name)} is not merged: "
                        + ("no partition has such a name" if folder is None else f"its name ends in -{folder.state}")
                    )
                elif not is_topic(folder.topic):
                    self._result.notes.append(f"{self._storage.join(disk.path, name)!r} is not merged: {NOT_A_TOPIC}")
                elif folder.topic != METADATA_TOPIC:
                    every[name] = None
        if any(FOLDER in disk.names for disk in self._disks):
            self._result.notes.append(f"{FOLDER} is not merged: a new cluster has its own")
        shown = ", ".join(disk.path for disk in self._disks)
        self._names = Target(shown, tuple(every), None, True).chosen(choice)
        self._note_missing(every, choice)
        self._choose_sides(every)

    def _note_missing(self, here: Collection[str], choice: PartitionChoice) -> None:
        """Find the partitions that were asked for, and that no source has: by the metadata, or else by checkpoints."""
        known: Iterable[tuple[str, int]]
        if self._metadata is not None:
            who = "the cluster has"
            names = {topic_id: topic for topic, topic_id in self._metadata.topic_ids.items()}
            known = ((names[topic_id], number) for topic_id, number in self._metadata.leaders if topic_id in names)
        else:
            who = "checkpoints of the sources know"
            every = (entries for disk in self._disks for entries in disk.noted.values())
            known = (key for entries in every for key, offset in entries.items() if offset and key[0] != METADATA_TOPIC)
        missing = {partition_folder_name(*each) for each in known if choice.takes(*each)} - set(here)
        self._result.missing = sorted(missing)
        if missing:
            text = ", ".join(self._result.missing[:_FEW]) + (", ..." if len(missing) > _FEW else "")
            self._result.notes.append(
                f"{who} partitions of which no source has a replica: {len(missing):,} ({text}): name the"
                " disks of more brokers"
            )

    # ---- work ----

    def run(self, into: str, dry_run: bool, jobs: int, on_bytes: Callable[[int], None] | None) -> Result:
        target = NewFolder(self._storage, into)
        result = self._result
        result.dry_run, result.log_dir = dry_run, target.path
        result.sources = [disk.path for disk in self._disks]
        for disk in self._disks:
            refuse_inside(target.path, disk.path, "merged")
        if isinstance(self._storage, LocalStorage):
            check_outside(target.path)
        if dry_run:
            self._take_all(lambda name, advance: self._one(name, advance, None, target), jobs, on_bytes)
            return result
        made = self._storage.join(target.beside, "log")
        try:
            with target.lock():
                self._make(made, target, jobs, on_bytes)
            if any(each.state == "done" for each in result):
                target.finish(made)
        finally:
            target.discard()
        return result

    def _make(self, made: str, target: NewFolder, jobs: int, on_bytes: Callable[[int], None] | None) -> None:
        storage, directory = self._storage, LogDirectory(self._storage, made)
        try:
            self._take_all(lambda name, advance: self._one(name, advance, directory, target), jobs, on_bytes)
            self._write_properties(made)
            if self._cleaned:
                path = storage.join(made, FileKind.CLEANER_OFFSETS.value)
                storage.write_synced(path, encode_offset_checkpoint(dict(sorted(self._cleaned.items()))))
        finally:
            directory.close()
        self._result.is_closed_clean = storage.exists(storage.join(made, FileKind.CLEAN_SHUTDOWN.value))
        storage.sync_folder(made)

    def _write_properties(self, made: str) -> None:
        for disk in self._disks:
            path = self._storage.join(disk.path, _META)
            if self._storage.exists(path):
                self._storage.write_synced(self._storage.join(made, _META), self._storage.read_all(path))
                self._result.notes.append(
                    f"{_META} comes from {disk.path}: for another broker, replace it with that broker's own"
                )
                return

    def _take_all(
        self, work: Callable[[str, Advance], PartitionResult], jobs: int, on_bytes: Callable[[int], None] | None
    ) -> None:
        for result in Threads(jobs).map(work, self._names, Workload(on_bytes=on_bytes)):
            self._result.partitions.append(result)
            self._on_result(result)

    def _one(self, name: str, advance: Advance, directory: LogDirectory | None, target: NewFolder) -> PartitionResult:
        result = PartitionResult(name, self._storage.join(target.path, name))
        try:
            plan = self._plan(name, result, advance)
            describe(plan, name, result)
            if result.state == "done" and directory is not None:
                self._write(plan, name, result, directory, advance)
            elif result.state == "done":
                result.segments_after, result.bytes_after = plan.estimate_output()
        except PylogsegError as error:
            if directory is not None and is_of_disk(error) and _is_in(error, directory.path):
                raise  # the target's disk: nothing can be finished
            result.state, result.reason, result.error = "failed", str(error), error
            result.remedy = "it is not in the result; the others are"
            if directory is not None:
                self._storage.remove_folder(self._storage.join(directory.path, name))
        return result

    def _plan(self, name: str, result: PartitionResult, advance: Advance) -> Plan:
        disks = [disk for disk in self._disks if name in disk.names]
        topic, partition = partition_of(name)
        scans: list[ReplicaScan] = []
        unread: list[StorageError] = []
        known_id = None if self._metadata is None else self._metadata.topic_ids.get(topic)
        for disk in disks:
            try:
                scan = scan_replica(self._storage, disk.path, name, disk.noted, advance)
            except StorageError as error:
                unread.append(error)
                result.notes.append(f"{error}: it does not count")
                continue
            if None not in (known_id, scan.topic_id) and scan.topic_id != known_id:
                result.notes.append(
                    f"{disk.path} has another topic of this name, with id {scan.topic_id}: it does not count"
                )
                continue
            scan.node_id = disk.node_id
            scans.append(scan)
        if not scans and unread:
            raise unread[0]
        if not scans:
            raise RequestError(f"{name}: the cluster's topic has the id {known_id}, and no disk has a replica of it")
        ids = {scan.topic_id: scan for scan in scans if scan.topic_id is not None}
        if len(ids) > 1:
            (one, first), (other, second) = list(ids.items())[:2]
            raise RequestError(
                f"{name} has topic id {one} in {first.log_dir}, and {other} in {second.log_dir}: the topic was "
                "made again; name the metadata of the cluster (--cluster-metadata), or leave one of the sources out"
            )
        self._begin(scans, topic, result)
        known: Known | None = None
        if self._metadata is not None and known_id is not None:
            known = self._metadata.leaders.get((known_id, partition))
            for scan in scans:
                age = next(disk.age for disk in disks if disk.path == scan.log_dir)
                scan.is_older = None if age is None else age.explain_refusal((known_id, partition))
        side = self._take.get(name)
        named = None if side is None else next((i for i, s in enumerate(scans) if s.log_dir == side.path), None)
        if side is not None and named is None:
            reason = (
                "; ".join(map(str, unread)) or f"it is of another topic than the cluster's, which has id {known_id}"
            )
            raise RequestError(
                f"{name} is to be taken from {side.path}, and its replica there does not count: {reason}"
            )
        result.bytes_before = max(scan.size for scan in scans)
        result.segments_before = max(len(scan.bases) for scan in scans)
        plan = plan_merge([replace(scan) for scan in scans], known, named)
        if plan.is_disputed and name in self._if_disputed:
            path = self._if_disputed[name].path
            named = next((i for i, scan in enumerate(scans) if scan.log_dir == path), None)
            return plan if named is None else plan_merge(scans, known, named)
        return plan

    def _begin(self, scans: Sequence[ReplicaScan], topic: str, result: PartitionResult) -> None:
        """Let logs that have lost their first segments begin where they did; a tiered one has them elsewhere."""
        lowest = min(base for scan in scans for base in scan.bases[:1] or [scan.log_start])
        if self._metadata is not None and topic in self._metadata.topic_ids:
            if self._metadata.of_topic(topic).get("remote.storage.enable") == "true":
                return
            lowest = 0
        for scan in scans:
            if scan.noted_start is not None:
                if scan.noted_start < lowest:
                    text = offsets_text(scan.noted_start, lowest)
                    result.notes.append(
                        f"{text} are in no segment, and {scan.folder} had them: they are missing, unless the topic is "
                        "tiered"
                    )
                    result.unknown.add("offsetsMissing")
                    result.not_done = True
                scan.log_start = min(scan.log_start, max(scan.noted_start, lowest))

    def _write(self, plan: Plan, name: str, result: PartitionResult, directory: LogDirectory, advance: Advance) -> None:
        storage, topic = self._storage, partition_of(name)[0]
        config = LogConfig.of()
        own = None if self._metadata is None else self._metadata.fields_of_topic(topic)
        if own:
            config = config.with_changes(**own)
        folder = storage.join(directory.path, name)
        directory.claim(name)
        topic_id = next((scan.topic_id for scan in plan.replicas if scan.topic_id is not None), None)
        if topic_id is None and self._metadata is not None and topic in self._metadata.topic_ids:
            topic_id = self._metadata.topic_ids[topic]
            path = storage.join(plan.chosen.folder, FileKind.PARTITION_METADATA.value)
            result.doubts.append(f"{path}: the file is not there: written, with the id of the cluster's metadata")
        writer = MergedWriter(storage, folder, plan, config, advance)
        log = writer.write()
        if topic_id is not None:
            data = encode_partition_metadata(PartitionMetadata(topic_id))
            storage.write_synced(storage.join(folder, FileKind.PARTITION_METADATA.value), data)
        storage.sync_folder(folder)
        directory.attach(name, log)
        directory.release(name, clean=True, write=False)
        cleaned = plan.chosen.entries.get(FileKind.CLEANER_OFFSETS.value)
        if cleaned is not None:
            self._cleaned[partition_of(name)] = min(cleaned, log.log_end_offset)
        result.log_start, result.log_end = log.log_start_offset, log.log_end_offset
        result.segments_after = len(log.segments)
        result.bytes_after = sum(segment.size for segment in log.segments)
        for first, end in writer.unread:
            result.notes.append(f"a batch of offsets {first} to {end - 1} overlaps its neighbours, and was left out")
            result.not_done = True


def _is_in(error: PylogsegError, folder: str) -> bool:
    return isinstance(error, StorageError) and is_within(error.path, folder)
