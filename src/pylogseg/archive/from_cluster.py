"""A running cluster as the source of an archive: batches come through a spool, one segment of a partition at a time.

A segment is a log of the spool while it comes, with the files that a broker has beside it. It is planned and uploaded
as that of a disk, then deleted. A partition goes on where the newest point ends, with the producers of the snapshot
there; archived offsets are not fetched again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pylogseg.archive.at_point import archive_url
from pylogseg.archive.losses import archived_log_key
from pylogseg.archive.partitions import WrittenPartition
from pylogseg.archive.planning import MOST_PIECES, PartitionPlan, Past, plan_partition
from pylogseg.archive.seen import METADATA_TOPIC_ID, LogKey, Marks, SeenCluster, SeenCopy, made_up_id
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.lineage.chains import Lineage, add_epochs
from pylogseg.disk.listing import open_dir, open_folder
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import FileState
from pylogseg.disk.tier.at_point import files_among
from pylogseg.disk.tier.keys import KEYS_OPTION, KeyRing
from pylogseg.disk.tier.point import ArchivedPartition, ArchivedSegment, Point, SeenDisk
from pylogseg.disk.tier.read_once import ReadOnce
from pylogseg.disk.tier.uploads import Shared, Stored
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import METADATA_TOPIC, FileKind, segment_file_name
from pylogseg.live.cluster import EpochEnd
from pylogseg.live.describing import topic_settings
from pylogseg.live.fetching import FetchedView
from pylogseg.live.files import LiveFiles
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.copying.fetched_log import FetchedLog
from pylogseg.offline.copying.from_cluster import ClusterCopy, FetchJob, ends_of, listed_topic_id
from pylogseg.offline.copying.ledger import CopiedLog
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.transfer.checked import checked_windows, refuse_gap
from pylogseg.values.internal.cluster import FOLDER, TOPIC_RESOURCE, ClusterMetadata
from pylogseg.walker.windows import Window

#: Uploads what a plan lacks; the partition as the run has it until now.
Upload = Callable[[PartitionPlan, ArchivedPartition | None], WrittenPartition]
#: An answer with so many bytes shows whether the leader begins a segment behind a batch.
_LOOK_BYTES = 64 << 10
#: A segment has at most so many bytes.
_MOST_SEGMENT_BYTES = 2**31 - 1


class _SpooledLog(FetchedLog):
    """A partition in the spool while it grows.

    It begins at an offset with the producers of a snapshot, or at its first batch without any. `archive` is called with
    the end of what lies there: for each segment that is sealed, and at the end for the rest.
    """

    def __init__(
        self,
        directory: LogDirectory,
        name: str,
        copied: CopiedLog,
        base: int | None,
        producers: bytes,
        archive: Callable[[int], None],
    ) -> None:
        super().__init__(directory, name, copied)
        self._base, self._given, self._archive = base, producers, archive
        self._is_whole = False
        self._end: int | None = None  #: Of what was archived.
        self.border: int | None = None  #: The first offset at which the leader begins a segment, at or behind the base.

    def open(self, base: int, on_bytes: Callable[[int], None] | None = None) -> Log:
        """See `FetchedLog`."""
        if self._log is not None:
            return self._log
        log = super().open(base if self._base is None else self._base, on_bytes)
        if self._given:
            at = log.log_end_offset
            path = os.path.join(self.folder, segment_file_name(at, FileKind.PRODUCER_SNAPSHOT))
            log.producers.load(parse_snapshot(self._given, path), at)
            log.state.offsets.note_first_unstable()
            self._directory.storage.write_synced(path, self._given)
        return log

    def append(self, window: Window, end: int, borders: Sequence[int]) -> None:
        """See `FetchedLog`."""
        if self.border is None and borders:
            self.border = borders[0]
        super().append(window, end, borders)
        if self._log is not None and len(self._log.segments) > 1:  # the log has begun one by itself
            self._flush(self._log)

    def reach(self, end: int) -> None:
        """See `FetchedLog`."""
        super().reach(end)
        self._is_whole = True

    def seal(self, end: int) -> None:
        """End the segment at an offset, and let it go."""
        log = self.open(end)
        log.roll(end)
        self._flush(log)

    def _flush(self, log: Log) -> None:
        super()._flush(log)
        self._end = log.active.base_offset
        self._archive(self._end)
        log.increment_log_start(log.active.base_offset)
        log.delete_below_start()
        self._scheduler.finish()

    def close(self) -> int | None:
        """See `FetchedLog`; a log that came whole goes up to its end. Return the end of the archived part."""
        end = super().close()
        if end is not None and self._is_whole:
            self._archive(end)
            self._end = end
        self._directory.storage.remove_folder(self.folder)
        return self._end


@dataclass
class _PartitionState:
    """The state of a partition during a run."""

    key: LogKey
    start: int  #: Of its log in the cluster.
    now: ArchivedPartition | None = None  #: As the archive has it until now.
    old: ArchivedPartition | None = None  #: As the newest point has it.
    written: WrittenPartition | None = None
    epochs: list[EpochEntry] = field(default_factory=list)
    is_compacted: bool = False
    log: _SpooledLog | None = None  #: In the spool.


class ClusterSource(ClusterCopy):
    """A cluster whose partitions go into an archive, by a spool in a folder."""

    def __init__(
        self,
        url: str,
        folder: str,
        archive: str,
        options: Mapping[str, Any] | None,
        threads: int,
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        result = Copied(url, url, made="archive")
        super().__init__(url, PartitionChoice.of(None, None), result, os.path.join(folder, "spool"), threads, on_bytes)
        others = dict(options or {})
        self._keys, self._options = KeyRing(others.pop(KEYS_OPTION, None)), others
        self._archive_url, self._archive = archive_url(archive), archive
        self._states: dict[str, _PartitionState] = {}
        self._past: Mapping[LogKey, Past] = {}
        self._before: Point | None = None
        self.faults: list[str] = []
        self.list_cluster(None)
        self.seen = self._look()

    @property
    def is_whole(self) -> bool:
        """True if all topics of the cluster were asked for."""
        return not self._source.removeprefix(CLUSTER_SCHEME).partition("/")[2].strip("/")

    def _look(self) -> SeenCluster:
        cluster_id = self._ledger.cluster_id
        seen = SeenCluster(Disk((), tuple(self._listing)), [SeenDisk(self._source, -1, cluster_id, "", "running")])
        for part in self._listing:
            seen.copies[part.topic, self._listed_id(part, seen), part.partition] = []
        return seen

    def _listed_id(self, part: Partition, seen: SeenCluster) -> str:
        return listed_topic_id(part) or seen.past_ids.get(part.topic) or made_up_id(seen.cluster_id, part.topic)

    def find_made_again(self, before: Point) -> set[LogKey]:
        """Return the partitions of a point whose topics were made again; a fault says so."""
        ids, gone = {key[0]: key[1] for key in self.seen.copies}, set[LogKey]()
        for part in before.partitions:
            if (now := ids.get(part.topic, part.topic_id)) != part.topic_id:
                gone.add(archived_log_key(part))
                fault = f"{part.topic}: the topic was deleted and made again: it was {part.topic_id}, and is {now}; "
                fault += f"the former is in point {before.id}, and in no later one"
                self.faults += [] if fault in self.faults else [fault]
        return gone

    def fetch(
        self, before: Point | None, past: Mapping[LogKey, Past], upload: Upload
    ) -> dict[LogKey, WrittenPartition]:
        """Fetch and upload the missing offsets; return the partitions of the next point, but the metadata's.

        `seen` gets the metadata, and each fault.
        """
        self._before, self._past, self._upload, seen = before, past, upload, self.seen
        files = self._listing[0].files if self._listing else None
        topics = sorted({part.topic for part in self._listing})
        settings = topic_settings(files.cluster, topics) if isinstance(files, LiveFiles) else {}
        configs = {(TOPIC_RESOURCE, name): own for name, own in settings.items() if isinstance(own, dict)}
        seen.metadata = ClusterMetadata(configs=configs)
        directory = LogDirectory(self._storage, self._place)
        try:
            self._add_all(directory)
        finally:
            directory.close()
        if self.errors and not any(row.looks for row in self.result):
            raise self.errors[0]
        written = {state.key: result for state in self._states.values() if (result := _written_of(state)) is not None}
        self._take_metadata(before)
        seen.faults += [*self.faults, *self.result.warnings(), *self.result.doubts]
        return written

    # ---- what there is to do ----

    def _has_folder(self, name: str) -> bool:
        return name in self._ledger.logs

    def _is_of_target(self, error: StorageError) -> bool:
        return super()._is_of_target(error) or error.path.startswith(self._archive)

    def _row(self, part: Partition) -> PartitionCopy:
        if part.name not in self._states:
            self._begin(part)
        return super()._row(part)

    def _begin(self, part: Partition) -> None:
        key = part.topic, self._listed_id(part, self.seen), part.partition
        past = self._past.get(key, Past())
        start = ends_of(part).start if part.error is None else 0
        state = self._states[part.name] = _PartitionState(key, start, past.partition, past.partition)
        if past.partition is not None:
            lost = next((n for n, s in enumerate(past.partition.segments) if s.segment_id in past.lost), None)
            to = past.partition.end_offset if lost is None else past.partition.segments[lost].base_offset
            self._continue_at(part, state, to, is_back=lost is not None)

    def _continue_at(self, part: Partition, state: _PartitionState, end: int, *, is_back: bool) -> None:
        """Take a partition of the newest point up to an offset."""
        old = state.old
        assert old is not None
        if is_back:  # at a segment that is there whole
            end = max([state.start, *(segment.end_offset for segment in old.segments if segment.end_offset <= end)])
        segments = tuple(segment for segment in old.segments if state.start < segment.end_offset <= end)
        epochs = tuple(entry for entry in old.epochs if entry[1] < end)
        start = min(max(old.start_offset, state.start), end)
        state.now = replace(old, segments=segments, epochs=epochs, start_offset=start, end_offset=end)
        state.epochs = [EpochEntry(*entry) for entry in epochs]
        state.now = replace(state.now, last_stable_offset=min(old.last_stable_offset, end))
        epoch = epochs[-1][0] if epochs else -1
        self._ledger.logs[part.name] = CopiedLog(listed_topic_id(part), min(old.start_offset, end), end, epoch)

    def _compare(self, part: Partition, row: PartitionCopy, end: EpochEnd) -> FetchJob | None:
        name, state = part.name, self._states[part.name]
        listed, copied = ends_of(part), self._ledger.logs.get(name)
        if copied is not None and copied.epoch >= 0 and end.offset is not None and end.offset < copied.end:
            cut = self._find_agreed_end(part, state, end.offset)
            self.faults.append(
                f"{name}: the log was cut at offset {cut} by an unclean election: the archive goes on with the log "
                f"that the cluster has now, and point {self._before.id if self._before else ''} has the records from "
                f"there to {copied.end} that it lost"
            )
            self._continue_at(part, state, cut, is_back=True)
            copied, end = self._ledger.logs[name], end._replace(offset=None)
            copied.epoch = -1  # the cut is told already
        job = super()._compare(part, row, end)
        if job is not None and copied is not None:
            job = job._replace(known_epoch=max(copied.epoch, 0))
        if job is None and copied is not None and row.state == "unchanged":
            assert state.now is not None
            if not state.now.segments and (state.old is None or state.old.segments):  # its producers are a file now
                job = FetchJob(part, listed, row, end.leader_epoch, copied.epoch)
        if copied is not None and listed.start > copied.end and job is not None:
            copied.start = copied.end = listed.start
        return job

    def _find_agreed_end(self, part: Partition, state: _PartitionState, at: int) -> int:
        """Return the offset up to which a leader and the newest point agree: the end of an epoch that both have."""
        old, files = state.old, part.files
        assert old is not None
        assert isinstance(files, LiveFiles)
        lineage, key = Lineage.of(old.epochs, old.start_offset, old.end_offset), (part.topic, part.partition)
        while at > state.start:
            answer = files.cluster.epoch_ends({key: lineage.epoch_at(at - 1)})[key]
            if isinstance(answer, StorageError):
                raise answer
            if answer.offset is None or answer.offset >= at:
                break
            at = answer.offset
        return at

    def _say_that_it_stays(self, name: str, copied: CopiedLog) -> str:
        return f"the archive, up to offset {copied.end}, stays as it is"

    # ---- a partition ----

    def _make_log(self, directory: LogDirectory, job: FetchJob) -> _SpooledLog:
        name, state = job.part.name, self._states[job.part.name]
        copied, now = self._ledger.logs[name], state.now
        base, producers = None, b""
        if now is not None:
            base, producers = copied.end, self._producers_at(state, now.end_offset)
        state.log = _SpooledLog(directory, name, copied, base, producers, lambda end: self._archive_up_to(state, end))
        return state.log

    def _fetch(self, directory: LogDirectory, job: FetchJob, advance: Advance) -> None:
        state, before = self._states[job.part.name], self._states[job.part.name].now
        try:
            super()._fetch(directory, job, advance)
            if before is not None and state.now is not None:
                self._join_pieces(directory, job, state, before)
        except PylogsegError as error:
            if isinstance(error, StorageError) and self._is_of_target(error):
                raise
            self._fail(job.row, error)
        finally:
            self._storage.remove_folder(self._path(job.part.name))

    def _archive_up_to(self, state: _PartitionState, end: int) -> None:
        """Upload the batches of a partition that lie in the spool, up to an offset."""
        written, state.is_compacted = self._archive_spooled(state, state.now, end)
        state.written = written if state.written is None else state.written.continue_with(written)
        state.now = written.partition

    def _archive_spooled(
        self, state: _PartitionState, past: ArchivedPartition | None, end: int, known: Sequence[ArchivedSegment] = ()
    ) -> tuple[WrittenPartition, bool]:
        name = f"{state.key[0]}-{state.key[2]}"
        folder, files = self._path(name), LocalFiles()
        part = replace(open_dir(folder).partitions[0], log_start_offset=state.start)
        checkpoints = OffsetCheckpoints(files, self._place)
        marks = Marks(self._source, FileState.READ)
        copy = SeenCopy(
            partition=part, checkpoints=checkpoints, watermark=end, disk=0, node_id=None, mark_file=marks,
            is_settled=True,
        )  # fmt: skip
        add_epochs(state.epochs, copy.epochs_file.value or ())
        copy.epochs = list(state.epochs)
        plan = plan_partition(state.key, [copy], self.seen, Past(past))
        if known:  # pieces of it are there, and it is to be whole
            plan.known_ids |= {segment.segment_id for segment in known}
            plan.joined.add(part.segments[0].base_offset)
        written = self._upload(plan, past)
        for texts in (written.notes, written.damage):
            texts[:] = [text.replace(self._place, self._source) for text in texts]
        if written.partition.fault:
            raise StorageError(f"{self._source}/{name}", "archive", written.partition.fault)
        return written, plan.is_compacted

    # ---- the archived part ----

    def _open_archived(self, partition: ArchivedPartition, segments: Sequence[ArchivedSegment]) -> Partition:
        """Return a partition of the archive with some of its segments."""
        assert self._before is not None
        start = segments[0].base_offset if segments else partition.end_offset
        some = replace(partition, segments=tuple(segments), start_offset=start, disk=0)
        point = replace(self._before, partitions=(some,), disks=tuple(self.seen.disks))
        objects = ReadOnce(self._archive_url.removeprefix("aiven+"), self._options)
        there = {name: Stored(f"{objects.root}/{name}", file.size, -1) for name, file in some.objects.items()}
        shared = Shared(objects, self._keys)
        files = files_among(self._archive_url, point, shared, there, set(there), objects.manifests)
        return open_folder(files, files.join(files.url, partition.name)).partitions[0]

    def _producers_at(self, state: _PartitionState, end: int) -> bytes:
        """Return the snapshot of the producers where an archived segment ends; empty where the log begins."""
        name, old = segment_file_name(end, FileKind.PRODUCER_SNAPSHOT), state.old
        last = [] if old is None else [segment for segment in old.segments if segment.end_offset == end]
        if old is None or not (last or name in old.files):
            return b""
        part = self._open_archived(old, last)
        return bytes(part.files.read_all(part.files.join(part.path, name)))

    def _join_pieces(
        self, directory: LogDirectory, job: FetchJob, state: _PartitionState, before: ArchivedPartition
    ) -> None:
        """Upload a segment of the leader as a whole that was archived in many pieces, and is sealed now."""
        now, name = state.now, job.part.name
        border = None if state.log is None else state.log.border
        assert now is not None
        if border is None or not before.segments:
            return
        least = MOST_PIECES + int(border == before.end_offset)  # else this run has added one
        pieces = self._find_pieces(job.part, state, before) if len(before.segments) >= least else []
        if len(pieces) < least:
            return
        base = pieces[0].base_offset
        pieces = [segment for segment in now.segments if base <= segment.base_offset and segment.end_offset <= border]
        below = [segment for segment in now.segments if segment.end_offset <= base]
        epochs = tuple(entry for entry in now.epochs if entry[1] < base)
        past = replace(now, segments=tuple(below), end_offset=base, epochs=epochs)
        joined: list[WrittenPartition] = []

        def archive(end: int) -> None:
            joined.append(self._archive_spooled(state, past, end, now.segments)[0])

        copied = CopiedLog(listed_topic_id(job.part), base, base)
        log = _SpooledLog(directory, name, copied, base, self._producers_at(state, base), archive)
        try:
            for segment in self._open_archived(now, pieces).segments:
                with segment.open() as view:
                    for window in checked_windows(view, segment.base_offset, refuse_gap, is_last=False):
                        log.append(window, border, ())
            log.seal(border)
        finally:
            log.close()
        (whole,) = joined
        above = [segment for segment in now.segments if segment.base_offset >= border]
        whole.partition = replace(now, segments=tuple(sorted({*whole.partition.segments, *above})))
        assert state.written is not None
        state.written, state.now = state.written.continue_with(whole), whole.partition

    def _find_pieces(self, part: Partition, state: _PartitionState, before: ArchivedPartition) -> list[ArchivedSegment]:
        """Return the last archived segments from where the leader begins a segment on; none if nobody can tell.

        A cleaner joins segments of a compacted log at any time: there, the small ones at the end are meant.
        """
        pieces, size = list[ArchivedSegment](), 0
        for segment in reversed(before.segments):
            if pieces and segment.end_offset != pieces[0].base_offset:
                return []
            if pieces and state.is_compacted and segment.size > MOST_PIECES * size:
                break
            pieces.insert(0, segment)
            if (size := size + segment.size) > _MOST_SEGMENT_BYTES:
                return []
            if segment.base_offset <= before.start_offset or state.is_compacted:
                continue
            if self._begins_segment(part, segment.base_offset):
                break
        return pieces

    def _begins_segment(self, part: Partition, offset: int) -> bool:
        """Ask the leader whether it begins a segment at an offset: an answer has batches of one."""
        with part.segments[0].open() as view:
            assert isinstance(view, FetchedView)
            view.piece_bytes, position = _LOOK_BYTES, 0
            view.begin(offset - 1, offset + 1, is_committed=False)
            while data := view.read(position, _LOOK_BYTES):
                position += len(data)
            return offset in view.borders or bool(view.removed)

    # ---- the metadata ----

    def _take_metadata(self, before: Point | None) -> None:
        """Continue the metadata of topics in the spool, and add it to the partitions of the run."""
        folder, seen = os.path.join(self._place, FOLDER), self.seen
        old = None if before is None else next((p for p in before.partitions if p.topic == METADATA_TOPIC), None)
        try:
            if old is not None:
                part = self._open_archived(old, old.segments)
                self._storage.make_folder(folder)
                for entry in part.files.list_folder(part.path):
                    data = part.files.read_all(part.files.join(part.path, entry.name))
                    self._storage.write_synced(os.path.join(folder, entry.name), data)
            self._keep_settings()
            seen.metadata = ClusterMetadata.read(folder)
        except PylogsegError as error:
            if isinstance(error, StorageError) and self._is_of_target(error) and error.errno is not None:
                raise
            seen.metadata = None
            self.faults.append(f"the settings of topics are not in the point: {error}")
            return
        checkpoints = OffsetCheckpoints(LocalFiles(), self._place)
        part = open_dir(folder).partitions[0]
        marks = Marks(self._source, FileState.ABSENT, problem="no broker notes it")
        seen.copies[METADATA_TOPIC, METADATA_TOPIC_ID, 0] = [
            SeenCopy(partition=part, checkpoints=checkpoints, watermark=None, disk=0, node_id=None, mark_file=marks)
        ]


def _written_of(state: _PartitionState) -> WrittenPartition | None:
    """Return a partition of the next point; one of which nothing came is as it was."""
    if state.written is None and state.now is not None:
        return WrittenPartition(replace(state.now, disk=0, fault=""))
    return state.written
