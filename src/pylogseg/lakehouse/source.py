"""A topic's log as a table sees it: up to where it is committed, and whether it still is the log of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.lineage.chains import UNKNOWN_EPOCH
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import FileState
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.garbage import pause_collection
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.inspect.small_file_doubts import SmallFilesOnce
from pylogseg.lakehouse.ledger import Covered, Ledger
from pylogseg.reading.logs import partitions_of
from pylogseg.reading.scan import check_tail, consumer_end
from pylogseg.reading.seek import end_of, leap_over
from pylogseg.reading.state import LENIENT, ReadState
from pylogseg.transfer.log_here import LogHere
from pylogseg.values.internal.cluster import ClusterMetadata, find_metadata, metadata_beside

_UNDO = "to begin again, write another table; to keep this one, give the source that it was written from"


class Unwritten(NamedTuple):
    """Offsets of a partition that are to be written."""

    source: LogHere
    first_offset: int
    end_offset: int
    begins: int  #: Where the table began.
    skipped: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SourceTopic:
    """The logs of a topic on a disk."""

    name: str
    topic_id: str | None
    cluster_id: str | None  #: None where no file says it: of a partition's folder alone, of a tier.
    logs: tuple[LogHere, ...]
    error: PylogsegError | None = None  #: Why it cannot be read; the other topics can.
    bare: tuple[Partition, ...] = ()  #: Folders without a segment.
    log_dirs: Mapping[str, FileSystem] = field(default_factory=dict)  #: Those of the logs; a tier has none.
    once: SmallFilesOnce = field(default_factory=SmallFilesOnce, repr=False, compare=False)

    def check(self, ledger: Ledger | None, isolation_level: str, table: str, *, latest: bool | None) -> None:
        """Refuse a table of another topic, or of another kind of rows; `latest` is None if both kinds are right."""
        if ledger is None:
            return
        if ledger.topic != self.name:
            raise RequestError(
                f"{table}: it has the topic {ledger.topic}, not {self.name}: write {self.name} to another table"
            )
        self.check_identity(ledger, table)
        if ledger.isolation_level != isolation_level:
            raise RequestError(
                f"{table}: it was written with {ledger.isolation_level}, and {isolation_level} is asked for: use the "
                "same, or write another table"
            )
        if latest is not None and ledger.latest != latest:
            has, wants = ("the latest record of each key", "all records")[:: 1 if ledger.latest else -1]
            raise RequestError(f"{table}: it has {has}, and {wants} are asked for: write another table")

    def check_identity(self, ledger: Ledger, table: str) -> None:
        """Refuse a table of another topic of this name, or of another cluster."""
        if None not in (ledger.topic_id, self.topic_id) and ledger.topic_id != self.topic_id:
            raise RequestError(
                f"{table}: it has the topic {self.name} with the id {ledger.topic_id}, and the log has the id "
                f"{self.topic_id}: the topic was deleted and made again, or this is another cluster; {_UNDO}"
            )
        if None not in (ledger.cluster_id, self.cluster_id) and ledger.cluster_id != self.cluster_id:
            raise RequestError(
                f"{table}: it has the topic {self.name} of the cluster {ledger.cluster_id}, and the log is of the "
                f"cluster {self.cluster_id}; {_UNDO}"
            )

    def doubts(self, ledger: Ledger | None) -> list[str]:
        """Return why nobody can say whether the logs continue a table."""
        return [*self.doubts_of_cluster(ledger), *self.doubts_of_lineage(ledger)]

    def doubts_of_cluster(self, ledger: Ledger | None) -> list[str]:
        """Return reasons why the logs' cluster is unknown, or cannot be compared with the table's cluster."""
        above = self.log_dirs
        doubts = [why for folder, files in above.items() if (why := self.once.unknown_cluster(files, folder))]
        if doubts or not above or self.cluster_id is not None or ledger is None or ledger.cluster_id is None:
            return doubts
        absent = next((self.once.meta_properties(files, folder).problem for folder, files in above.items()), "")
        return [f"{absent}: not known whether the log is of the table's cluster, {ledger.cluster_id}"]

    def doubts_of_lineage(self, ledger: Ledger | None) -> list[str]:
        """Return why nobody can say whether the last rows of a table are in the history of the logs."""
        doubts = []
        rows = {} if ledger is None else ledger.partitions
        for source in self.logs:
            had = rows.get(source.partition.partition)
            is_known = had is not None and had.epoch != UNKNOWN_EPOCH
            if is_known and source.epochs_file.state not in (FileState.READ, FileState.ABSENT):
                doubts.append(f"{source.epochs_file.problem}: not known whether the log has the last row of the table")
        return doubts

    def unlike(self, ledger: Ledger, table: str) -> Iterator[str]:
        """Yield why the log cannot be the source of a table, though it has the topic's id."""
        self.check_identity(ledger, table)
        for source in self.logs:
            had = ledger.partitions.get(source.partition.partition)
            if had is None:
                continue
            state = LENIENT.start()
            try:
                _check_end(source, had, state, table)
                _check_lineage(source, had, source.log.log_end_offset, table)
            except RequestError as error:
                yield str(error)

    def nothing(self) -> list[Unwritten]:
        """Return the beginning of each log, and no offset of it: for a table without rows."""
        starts = [(source, source.log.log_start_offset) for source in self.logs]
        return [Unwritten(source, start, start, start, ()) for source, start in starts]

    def spans(self, ledger: Ledger | None, state: ReadState, table: str, *, force: bool) -> list[Unwritten]:
        """Return the offsets between a ledger and the committed end; RequestError for a log that does not continue
        there.

        Damage that ends a log before what is committed is a CorruptionError, or one of the gaps of the state.
        """
        return [span for source in self.logs if (span := _span(source, ledger, state, table, force)) is not None]


@pause_collection()
def topics_on(disk: Disk, *, to_end: bool = False) -> list[SourceTopic]:
    """Return the topics of a disk by name, with the error of one that cannot be read.

    With `to_end`, high watermarks do not count.
    """
    if disk.loose:
        raise RequestError(f"{disk.loose[0].path}: a file alone does not say which log it is of: name the folder")
    parts = partitions_of(disk)
    if parts and parts[0].error is not None:  # of none that can be read
        raise parts[0].error
    once = SmallFilesOnce()
    marks = _Watermarks()
    topics: dict[str, list[LogHere]] = {}
    bare: dict[str, list[Partition]] = {}
    errors: dict[str, PylogsegError] = {}
    for part in parts:
        if part.error is not None:
            errors.setdefault(part.topic, part.error)
            topics.setdefault(part.topic, [])
            continue
        if not part.topic:
            raise RequestError(f"{part.path}: the name of the folder is not TOPIC-NUMBER, as a partition's is")
        if part.segments:
            noted = once.checkpoints(part.files, part.files.split(part.path)[0])
            mark, doubt = (None, "") if to_end else marks.of(part, noted)
            log = LogHere(partition=part, checkpoints=noted, watermark=mark, doubt=doubt)
            topics.setdefault(part.topic, []).append(log)
        else:
            topics.setdefault(part.topic, [])
            bare.setdefault(part.topic, []).append(part)
    return [_topic_of(name, logs, bare.get(name, ()), errors.get(name), once) for name, logs in sorted(topics.items())]


def _topic_of(
    name: str, logs: Sequence[LogHere], bare: Sequence[Partition], error: PylogsegError | None, once: SmallFilesOnce
) -> SourceTopic:
    log_dirs, topic_id, cluster_id = _log_dirs(logs), None, None
    try:
        topic_id, cluster_id = _topic_id(name, logs, once), _cluster_id(name, log_dirs, once)
    except RequestError as other:
        error = error or other
    return SourceTopic(name, topic_id, cluster_id, tuple(logs), error, tuple(bare), log_dirs, once)


def _topic_id(topic: str, logs: Iterable[LogHere], once: SmallFilesOnce) -> str | None:
    ids = {once.metadata(source.partition.files, source.partition.path).value for source in logs} - {None}
    if len(ids) > 1:
        raise RequestError(f"{topic}: its partitions have different topic ids, {' and '.join(sorted(map(str, ids)))}")
    return ids.pop() if ids else None


def _cluster_id(topic: str, log_dirs: Mapping[str, FileSystem], once: SmallFilesOnce) -> str | None:
    labels = [once.meta_properties(files, folder).value for folder, files in log_dirs.items()]
    ids = {label.cluster_id for label in labels if label is not None} - {None}
    if len(ids) > 1:
        raise RequestError(
            f"{topic}: its partitions are of different clusters, "
            f"{' and '.join(sorted(map(str, ids)))}: name the disks of one"
        )
    return ids.pop() if ids else None


def _log_dirs(logs: Iterable[LogHere]) -> dict[str, FileSystem]:
    """Return the log directories of logs; a tier has none."""
    parts = [source.partition for source in logs]
    of_disks = [part for part in parts if isinstance(part.files, LocalFiles | RemoteFiles)]
    return {part.files.split(part.path)[0]: part.files for part in of_disks}


class _Watermarks:
    """High watermarks; the metadata of each log directory's cluster is read once."""

    def __init__(self) -> None:
        self._metadata: dict[str, ClusterMetadata | None] = {}

    def of(self, part: Partition, noted: OffsetCheckpoints) -> tuple[int | None, str]:
        """Return where a log is committed, and a doubt: nothing counts of a log whose high watermark got lost.

        A broker that lost it notes the log's start, as if nothing were committed of what it flushed before. Unless
        the cluster's metadata says that this is the only replica: then all up to its end is committed.
        """
        place = f"{part.topic}-{part.partition}"
        mark = noted.offsets(FileKind.HIGH_WATERMARKS).get((part.topic, part.partition))
        why = noted.why_no_high_watermark(part.topic, part.partition) if mark is None else ""
        flushed = noted.offsets(FileKind.RECOVERY_POINTS).get((part.topic, part.partition), 0)
        if mark is not None and mark <= part.log_start_offset < flushed:
            path = noted.file(FileKind.HIGH_WATERMARKS).path
            why = f"{path} has {mark}, at which the log starts, and {FileKind.RECOVERY_POINTS.value} has {flushed}"
        if not why:
            return mark, ""
        if self._is_alone(noted.log_dir, part):
            return None, f"{place}: its high watermark is not known ({why}); it has no other replica, so its end counts"
        remedy = "bring the file back, start the broker, or go on to the log's end (--to-end)"
        doubt = f"{place}: its high watermark is not known, so nothing more is written: {why}; {remedy}"
        return part.log_start_offset, doubt

    def _is_alone(self, log_dir: str, part: Partition) -> bool:
        if not isinstance(part.files, LocalFiles):
            return False
        if log_dir not in self._metadata:
            folder = find_metadata([log_dir]) or metadata_beside(log_dir)
            try:
                self._metadata[log_dir] = None if folder is None else ClusterMetadata.read(folder)
            except (CorruptionError, StorageError):
                self._metadata[log_dir] = None
        metadata = self._metadata[log_dir]
        return metadata is not None and metadata.is_only_replica(part.topic, part.partition)


def _span(source: LogHere, ledger: Ledger | None, state: ReadState, table: str, force: bool) -> Unwritten | None:
    log, mark = source.log, source.watermark
    start = log.log_start_offset
    had = None if ledger is None else ledger.partitions.get(source.partition.partition)
    if mark is not None and had is not None and had.next_offset >= mark:  # no record of the log is read
        if had.next_offset > mark:
            _check_end(source, had, state, table)
        _check_lineage(source, had, max(mark, log.segments[-1].base_offset), table)
        return None
    readable = consumer_end(log, state.reading.isolation_level)
    if mark is None or readable.offset < mark:
        check_tail(log, readable, state)
    end = readable.offset if mark is None else min(readable.offset, mark)
    leap = None if mark is None else leap_over(log.segments, mark)
    if leap is not None:
        state.report(leap)
        end = min(end, leap.first_offset)
    if had is None:
        return Unwritten(source, start, end, start, ()) if start < end else None
    if end < had.next_offset:
        _check_end(source, had, state, table)
    _check_lineage(source, had, end, table)
    first, skipped = had.next_offset, had.skipped
    if first < start:
        if not force:
            raise RequestError(
                f"{table}: it ends at offset {first} of {source.name}, and the log begins at {start} now: offsets "
                f"{first} to {start - 1} were deleted before they were written; give a source that has them first (a "
                "backup, a tier), or go on without them (force)"
            )
        first, skipped = start, (*skipped, (first, start))
    return Unwritten(source, first, end, had.first_offset, skipped) if first < end else None


def _check_end(source: LogHere, had: Covered, state: ReadState, table: str) -> None:
    """Refuse a log that ends below the table: its next records would have offsets of other rows."""
    end = end_of(source.log.segments)
    if end.offset >= had.next_offset:
        return
    check_tail(source.log, end, state)
    raise RequestError(
        f"{table}: it ends at offset {had.next_offset} of {source.name}, and the log ends at {end.offset}: this is an "
        f"older copy of the log, or another one of its name, or the disk has lost records; {_UNDO}"
    )


def _check_lineage(source: LogHere, had: Covered, end: int, table: str) -> None:
    """Refuse a log in which the last offset of the table belongs to another leader epoch than in the table."""
    lineage = source.lineage_to(end)
    ends = lineage.ends()
    if had.epoch == UNKNOWN_EPOCH or not lineage.epochs or had.next_offset <= lineage.epochs[0].start_offset:
        return
    if had.epoch >= lineage.last_epoch or ends.get(had.epoch, -1) >= had.next_offset:
        return  # of the last epoch the log may be an older copy, which has less
    until = ends.get(had.epoch)
    what = f"has no epoch {had.epoch}" if until is None else f"leaves epoch {had.epoch} at offset {until}"
    raise RequestError(
        f"{table}: its last row of {source.name} is of leader epoch {had.epoch}, before offset {had.next_offset}, and "
        f"the log {what}: a leader was elected that did not have these records, so the table has rows that the log has "
        f"not; {_UNDO}"
    )
