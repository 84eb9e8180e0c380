"""Partitions of tiered storage for `restore`: their segments, indexes, snapshots and epochs, as a broker opens them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.folders import readable_topic_id
from pylogseg.disk.notes import Note, note_lines
from pylogseg.disk.target import METADATA_REASON
from pylogseg.disk.tier.at_point import PointFiles, lacks_of
from pylogseg.disk.tier.files import INSIDE, TierFiles
from pylogseg.disk.tier.read_once import compare_objects
from pylogseg.disk.tier.slices import TierSegment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, MissingKeyError, PylogsegError, RequestError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import METADATA_TOPIC, FileKind, segment_file_name
from pylogseg.inspect.verify.findings import PERHAPS_REMOTE, Finding, Level
from pylogseg.inspect.verify.indexes import OffsetIndexCheck, TimeIndexCheck, TransactionCheck
from pylogseg.inspect.verify.lacking import lacking, refuse
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.log.state import Start
from pylogseg.offline.ending_transactions import transactional_producers
from pylogseg.offline.reindexing import reindex
from pylogseg.offline.restoring.adopting import Arrival, adopt
from pylogseg.offline.restoring.source import RestoreOrder, RestoreSource
from pylogseg.offline.result import PartitionResult
from pylogseg.offline.truncating import truncate
from pylogseg.reading.copies import Damage, Good, LogCopies
from pylogseg.reading.logs import partitions_of
from pylogseg.reading.seek import offset_of_time
from pylogseg.transfer.checkpoints import note_entries
from pylogseg.transfer.contents import Content, ContentSum
from pylogseg.transfer.segment_files import copy_snapshot, write_epochs
from pylogseg.transfer.staging import WrittenPart
from pylogseg.values.internal.cluster import cluster_id_of
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.walker.gaps import offsets_text
from pylogseg.walker.windows import Window

#: Indexes that a broker wants beside each segment, those without an entry too.
_WANTED = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_END = 2**63 - 1
_EARLIER = "an earlier or a later point may have it"


def _of_note(note: Note) -> Finding:
    return Finding(f"{note.place}{INSIDE}{note.name}", "missing", True, note.fact, other_remedy=_EARLIER)


class Until(NamedTuple):
    """Where restored logs end."""

    offset: int | None = None  #: The lowest offset that is not restored.
    time_ms: int | None = None  #: Nothing from the first record of this time or later on.


class FromTier(RestoreSource):
    """Partitions of a tier, or of a disk and its tier as one."""

    notes: tuple[str, ...]

    def __init__(
        self,
        disk: Disk,
        choice: PartitionChoice,
        until: Until,
        *,
        skips_damage: bool,
        keeps_going: bool = False,
    ) -> None:
        self.keeps_going = keeps_going
        self.asked, self._choice = not choice.is_all, choice
        chosen = disk.select(*choice.arguments)
        parts = partitions_of(chosen)
        self._parts = {part.name: part for part in parts if part.topic}
        lacks = set(self._lacks())
        self.notes = tuple(note_lines(note for note in chosen.noted if note not in lacks))  # what is left out
        self._until, self._skips = until, skips_damage
        self._disk: Disk | None = disk
        self._storage = LocalStorage()
        self._results = {name: self._new_result(part) for name, part in sorted(self._parts.items())}
        self.partitions = list(self._results.values())

    def _new_result(self, part: Partition) -> PartitionResult:
        result = PartitionResult(part.name, "")
        if part.error is not None:
            if not self.keeps_going:
                raise part.error
            result.fail(part.error)
            return result
        if not part.segments:
            result.skip("it has no segment")
        if part.topic == METADATA_TOPIC:
            result.skip(METADATA_REASON, not_done=self.asked)
        result.bytes_after, result.segments_after = part.size, len(part.segments)
        result.log_start = part.log_start_offset
        return result

    def look(self, disk: Disk, force: bool) -> list[Finding]:
        """Return records that are missing before the first segment, or between the last one and the end; and whole
        partitions that the disk has lost.

        A copy may have all that lies between: that shows when it is read.
        """
        parts = [part for part in self._parts.values() if part.segments]
        found = lacking(disk, parts, self._choice, with_unknown=True)
        self.notes += tuple(f"{f.path}: {f.reason}" for f in found if f.kind == PERHAPS_REMOTE)
        found = [f for f in found if f.kind in ("missing", "log-start")]
        ends = {part.path: self._end_of(part) for part in parts}
        found = [f for f in found if f.offset is None or f.offset < ends.get(f.path, _END)]
        if not (force or self._skips):
            refuse(found)
        return [*found, *(_of_note(note) for note in self._lacks())]

    def _lacks(self) -> Iterator[Note]:
        """Yield the records that a point of an archive lacks by its own account; the rest is restored."""
        for files in {id(part.files): part.files for part in self._parts.values()}.values():
            if isinstance(files, PointFiles):
                yield from lacks_of(files.point, self._choice.takes, url=files.url)

    def only(self, names: Collection[str]) -> FromTier:
        some = copy.copy(self)
        some._parts = {name: self._parts[name] for name in names}
        some._results = {name: PartitionResult(name, "") for name in names}
        some.partitions, some.lacking, some.notes = list(some._results.values()), (), ()
        some._disk = None
        return some

    def size(self, names: Iterable[str]) -> int:
        return sum(self._parts[name].size for name in names)

    def contents(self, names: Iterable[str], arrivals: Mapping[str, Arrival]) -> dict[str, Content]:
        return {name: _content(self._parts[name], self._end_of(self._parts[name]), arrivals[name]) for name in names}

    def coordinators(self) -> tuple[Disk, CutOff] | None:
        if self._disk is None or self._until.offset is not None:
            return None
        return self._disk, CutOff(self._until.time_ms)

    def topic_id(self, name: str) -> str | None:
        part = self._parts[name]
        return readable_topic_id(part.files, part.path)

    def cluster_id(self, name: str) -> str | None:
        part = self._parts[name]
        if not isinstance(part.files, TierFiles):
            return None
        return cluster_id_of(part.files.split(part.path)[0], part.files)  # a point of an archive says it

    def write(self, order: RestoreOrder) -> list[WrittenPart]:
        """Write partitions; every batch is read, with its CRC."""
        above, said = order.staging.attempt_folder("restore"), dict[str, dict[str, int]]()
        written = [self._write(above, self._parts[name], said, order) for name in order.names]
        note_entries(self._storage, above, said)
        return written

    def _write(self, above: str, part: Partition, said: dict[str, dict[str, int]], order: RestoreOrder) -> WrittenPart:
        """Write a partition, and note its entries for the checkpoints in `said`."""
        on_bytes = order.on_bytes
        storage, folder, result = self._storage, os.path.join(above, part.name), self._results[part.name]
        storage.make_folder(folder)
        end = self._end_of(part)
        segments = _segments_of(part, end)
        if not segments:
            raise RequestError(
                f"{part.name}: nothing of it lies below offset {end}: it begins at {part.log_start_offset}"
            )
        reached = noted = segments[0].base_offset
        remade, copies = False, LogCopies(part)
        is_exact = getattr(part.files, "is_exact", False)
        for segment in segments:
            if noted < segment.base_offset and not is_exact:
                remade |= self._fill(copies, noted, segment.base_offset, folder, result, on_bytes)
            last, noted, is_whole = self._copy(copies, segment, folder, result, on_bytes)
            remade |= not is_whole
            reached, noted = max(reached, last), max(last, noted)
        remade |= not self._write_beside(part, folder, reached)
        if remade:
            self._remake(folder, result)
        if end < reached:
            (cut,) = truncate(folder, end)
            reached = end if cut.log_end is None else cut.log_end
            result.notes.append(f"its batches from offset {reached} on are left out")
        topic_id = order.ids.get(part.topic) or self.topic_id(part.name)
        if topic_id:
            data = encode_partition_metadata(PartitionMetadata(topic_id))
            storage.write_synced(os.path.join(folder, FileKind.PARTITION_METADATA.value), data)
        start = max(part.log_start_offset, segments[0].base_offset)
        arrival = order.arrivals[part.name]
        adopt(storage, folder, arrival, result, on_bytes)
        said[part.name] = {FileKind.RECOVERY_POINTS.value: reached, FileKind.HIGH_WATERMARKS.value: reached}
        if start > segments[0].base_offset:
            said[part.name][FileKind.LOG_STARTS.value] = start
        # Looked up last: a cut, or markers that were added, have changed sizes meanwhile.
        sizes = [entry.size for entry in storage.list_folder(folder) if entry.name.endswith(FileKind.LOG.value)]
        opening, producers = Start(True, start, reached, reached), tuple(transactional_producers(folder, result.doubts))
        return WrittenPart(
            part.topic, part.partition, folder, start, reached, -1, len(sizes), sum(sizes), -1, opening, producers
        )  # fmt: skip

    def _end_of(self, part: Partition) -> int:
        end = _END if self._until.offset is None else self._until.offset
        if self._until.time_ms is not None:
            end = min(end, offset_of_time(part.segments, self._until.time_ms, _END, part.log_start_offset))
        return end

    def _fill(
        self,
        copies: LogCopies,
        first: int,
        end: int,
        folder: str,
        result: PartitionResult,
        on_bytes: Callable[[int], None],
    ) -> bool:
        """Write a segment of its own with offsets that no segment has; return whether copies have some of them."""
        missing = f"{result.name}: {offsets_text(first, end)} are in no upload"
        reason = f"{missing}; to restore what there is, skip damage (--on-corrupt skip)"
        damage = Damage(missing, CorruptionError(result.name, 0, reason, first))
        target = None
        try:
            for good in copies.between(first, end, damage):
                if target is None:
                    path = os.path.join(folder, segment_file_name(int(good.rows.base_offset[0]), FileKind.LOG))
                    target = self._storage.open_log(path)
                target.append(good.data)
                on_bytes(len(good.data))
            if target is not None:
                target.sync()
        finally:
            if target is not None:
                target.close()
        self._note(result, damage)
        return target is not None

    def _copy(
        self,
        copies: LogCopies,
        segment: Segment,
        folder: str,
        result: PartitionResult,
        on_bytes: Callable[[int], None],
    ) -> tuple[int, int, bool]:
        """Write a segment and its indexes.

        Return where it ends, up to where the result says what is missing, and whether the indexes are right.
        """
        storage, is_whole, noted, end = self._storage, True, 0, segment.base_offset
        with compare_objects(_find_tier_segment(segment)) as differing:
            beside = _Beside(segment)
            target = storage.open_log(os.path.join(folder, segment_file_name(segment.base_offset, FileKind.LOG)))
            try:
                for piece in copies.batches(segment):
                    if isinstance(piece, Damage):
                        is_whole = False
                        self._note(result, piece)
                        noted = max([noted, *(lost.end_offset for lost in piece.lost)])
                        continue
                    target.append(piece.data)
                    if is_whole:
                        beside.check(piece)
                    end = max(end, int(piece.rows.last_offset.max()) + 1)
                    on_bytes(len(piece.data))
                target.sync()
            finally:
                target.close()
            is_whole = is_whole and beside.is_whole(end)
            for kind in (*_WANTED, FileKind.TXN_INDEX):
                data = segment.companion(kind) if is_whole else None
                if data or kind in _WANTED:
                    name = segment_file_name(segment.base_offset, kind)
                    storage.write_synced(os.path.join(folder, name), data or b"")
            self._refuse_others(result, differing())
        return end, noted, is_whole

    def _refuse_others(self, result: PartitionResult, differing: Sequence[CorruptionError]) -> None:
        """Raise, or note, that objects differ from the point's, even if their batches are good."""
        for error in differing:
            if not self._skips:
                raise error
            result.notes.append(f"restored nevertheless: {error}")
            result.not_done = True

    def _note(self, result: PartitionResult, damage: Damage) -> None:
        """Note whose batches are taken in place of damaged ones; raise if none has them, unless damage is skipped."""
        lost = ", ".join(offsets_text(each.first_offset, _until(each.end_offset)) for each in damage.lost)
        if damage.names:
            all_but = f", all but {lost}" if lost else ""
            result.notes.append(f"taken from {' and '.join(damage.names)}{all_but}: {damage.text}")
        if not damage.lost and damage.names:
            return
        if not self._skips:
            raise damage.error
        if not damage.names:
            result.notes.append(f"left out: {damage.text}")
        result.not_done, result.is_locked = True, result.is_locked or isinstance(damage.error, MissingKeyError)

    def _write_beside(self, part: Partition, folder: str, end: int) -> bool:
        """Write producer snapshots, and the leader epochs up to the end; return whether these are whole."""
        files, is_whole = part.files, True
        for other in part.others:
            name = other.name
            if name.kind is FileKind.PRODUCER_SNAPSHOT and name.is_live and (name.offset or 0) <= end:
                error: PylogsegError | None
                try:
                    data = files.read_all(other.path)
                except PylogsegError as unread:
                    error = unread
                else:
                    target = os.path.join(folder, files.split(other.path)[1])
                    error = copy_snapshot(data, other.path, self._storage, target)
                if error is not None:
                    self._results[part.name].notes.append(f"{error}; a broker does without it")
        for other in part.others:
            if other.name.kind is FileKind.LEADER_EPOCHS and other.name.is_live:
                try:
                    known = parse_leader_epochs(files.read_all(other.path), other.path)
                except PylogsegError:
                    is_whole = False
                    continue
                write_epochs(self._storage, folder, known, end)
        return is_whole

    def _remake(self, folder: str, result: PartitionResult) -> None:
        reindex(folder)
        result.notes.append("damaged files beside the segments, and files of damaged segments, are made anew")


class _Beside:
    """Checks the indexes of a segment against its batches."""

    def __init__(self, segment: Segment) -> None:
        self._report = SegmentReport(
            segment.path, segment.topic, segment.partition, segment.base_offset, segment.size, Level.INDEXES
        )
        found = self._report.findings
        self._checks = [OffsetIndexCheck.open(segment, found), TimeIndexCheck.open(segment, found)]
        self._transactions = TransactionCheck(segment, found)

    def check(self, good: Good) -> None:
        for check in self._checks:
            if check is not None:
                check.window(good.rows)
        self._transactions.window(good.rows, Window(good.rows, good.data, int(good.rows.position[0])))

    def is_whole(self, end: int) -> bool:
        """Return whether all small files agree with the segment up to its end offset."""
        report = self._report
        for check in self._checks:
            if check is None:
                return False
            report.findings += check.finish(end)
        self._transactions.finish(report)
        # Of an abort without an entry the data may lie in another segment.
        return not report.is_damaged and not report.unindexed_aborts


def _find_tier_segment(segment: Segment) -> TierSegment | None:
    slice_of = getattr(segment.files, "slice_of", None)
    return None if slice_of is None else slice_of(segment.path)


def _until(end: int) -> int | None:
    return None if end == _END else end


def _segments_of(part: Partition, end: int) -> list[Segment]:
    """Return the segments that are restored up to an offset.

    Uploads below the log start are deleted later, and are no part of the log.
    """
    start = part.log_start_offset
    return [s for s in part.segments if s.base_offset < end and (s.next_base is None or s.next_base > start)]


def _content(part: Partition, until: int, arrival: Arrival) -> Content:
    """Return the offsets and the number of records of the partition that `write` makes."""
    total, copies, reached = ContentSum(part.log_start_offset, arrival.ids), LogCopies(part), None
    for segment in _segments_of(part, until):
        pieces: list[Iterable[Good | Damage]] = [copies.batches(segment)]
        if reached is not None and reached < segment.base_offset:
            pieces.insert(0, copies.between(reached, segment.base_offset, Damage("", CorruptionError("", 0, ""))))
        for piece in chain.from_iterable(pieces):
            if isinstance(piece, Damage):
                continue
            total.add(piece.data, piece.rows[piece.rows.last_offset < until], int(piece.rows.position[0]))
            reached = int(piece.rows.last_offset.max()) + 1
    return total.content()
