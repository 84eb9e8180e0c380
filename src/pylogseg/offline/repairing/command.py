"""`repair`: cut damage out of a log, keep as much as possible, and rebuild the files beside the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pylogseg.disk.target import Target
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import AppendFile
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.columns import TableColumn, get_columns, line_type, to_row
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind, parse_file_name, segment_file_name
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.log.identity import check_topic_id
from pylogseg.log.recovery_keep import Keeper
from pylogseg.log.recovery_loss import of_tail
from pylogseg.log.recovery_report import Action, ActionKind
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_removal import Remover
from pylogseg.log.segment_replace import replace_segments
from pylogseg.log.segment_rewrite import Filtered, SegmentWriter
from pylogseg.log.segments import Segments
from pylogseg.offline.noting_cuts import note_cuts
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition, keeper_of
from pylogseg.offline.repairing.replicas import OtherDisk, OtherReplica, holes
from pylogseg.offline.repairing.salvage import Survey, survey
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.offline.running import run_command
from pylogseg.offline.topic_ids import write_missing_topic_id
from pylogseg.transfer.checked import batches_of_runs
from pylogseg.walker.gaps import Gap, GapKind, offsets_text

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

#: Damage that a broker's recovery does not see, or does not mind.
_KEPT_BY_BROKERS = (GapKind.RECORDS_BAD, GapKind.ORDER)
#: Checkpoints that tell how far a log went.
_REACHED = (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS)
#: A load may find more to do when the one before it has cut something, at most so often.
_MOST_RUNS = 4
#: Gaps that are told to a person.
_FEW = 20


@takes_executor
def repair(
    path: str | os.PathLike[str],
    *,
    keep_behind: bool = False,
    keep: str | None = None,
    other: str | os.PathLike[str] | None = None,
    max_decompressed_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Cut out damage, and rebuild indexes, producer snapshots and leader epochs.

    Every segment is read, and every record. Each range of bytes without a good batch is a gap in ``rows`` of the
    result, with the offsets that may be missing for it. A second run finds nothing to do.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    keep_behind : bool
        Keep the good batches after damage, so that a gap is left in the offsets. Without it everything after the
        first damage goes, as at a broker's own recovery. Damage that a broker does not see, records that cannot be
        decoded or batches out of their place, goes by itself in either case.
    keep : str, optional
        A folder that gets copies of what is cut out, removed or replaced. No copies without it.
    other : path, optional
        A log directory of another broker with replicas, or a folder of several. Damaged ranges come from there, batch
        by batch, as far as leader epochs show that the records are the same.
    max_decompressed_bytes : int
        A partition with a batch that decompresses to more is given up: what a few bytes can declare has to fit into
        memory, several times over.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``gaps``, ``gapBytes``, ``offsetsMissing`` (if known, also of good batches that go
        behind damage), and with `other` ``offsetsFromOthers``.
    """
    shared = Options.of(options)
    disk = None if other is None else OtherDisk(os.fspath(other), shared.storage)
    if disk is not None:
        disk.refuse_same([place.parent for place in Target.find_all(shared.storage, os.fspath(path))])
    keeper = keeper_of(os.fspath(path), keep, shared)

    def work(part: OfflinePartition) -> None:
        repairer = _Repairer(part, keeper, keep_behind, max_decompressed_bytes, disk)
        try:
            repairer.repair_epochs()
            for again in range(_MOST_RUNS):
                known = len(part.result.report.actions)
                part.open(clean=False, recovery_point=0, keeper=keeper, mend=repairer.repair)
                if len(part.result.report.actions) == known or again == _MOST_RUNS - 1:
                    break
                part.close()  # and once more: what was cut may change what is built from the rest
        except CorruptionError as error:
            if not error.path.endswith(FileKind.PARTITION_METADATA.value):
                part.result.remedy = "do what the reason says, or take the partition from another replica"
            raise
        finally:  # what was done is told, whatever comes next
            _report_gaps(part.result, repairer)
        write_missing_topic_id(part)

    return run_command(path, shared, work)


#: A gap, as a line of ``--json``.
REPAIRED_GAP = (
    line_type("gap"),
    TableColumn("level", "string", "damage or notice", source=lambda gap: "damage" if gap.is_damage else "notice"),
    *get_columns(Gap),
)


def _report_gaps(result: PartitionResult, repairer: _Repairer) -> None:
    result.rows = [{"partition": result.name, **to_row(gap, REPAIRED_GAP)} for gap in repairer.gaps]
    left = [gap for gap in repairer.gaps if gap not in repairer.healed]
    removed = [action for action in result.report.actions if action.is_damage and action.first_offset is not None]
    lost = [(gap.first_offset, gap.next_offset) for gap in [*left, *repairer.missing]]
    lost += [(action.first_offset or 0, action.next_offset) for action in removed]
    healed = {(gap.first_offset, end) for gap, end in repairer.healed.items() if gap not in repairer.cleaned}
    result.numbers = {
        "gaps": len(repairer.gaps),
        "gapBytes": sum(gap.end_position - gap.position for gap in repairer.gaps),
        "offsetsMissing": _count_offsets((first, end) for first, end in lost if end is not None),
        **({} if repairer.other is None else {"offsetsFromOthers": sum(end - first for first, end in healed)}),
    }
    result.loses_records |= result.report.is_damage
    result.not_done |= bool(repairer.missing)
    result.notes = [*dict.fromkeys(result.notes), *repairer.notes()]
    if not result.report.actions:
        result.state = "unchanged"


def _count_offsets(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many offsets are in half-open ranges, each once."""
    count, reached = 0, 0
    for first, end in sorted(ranges):
        count += max(end - max(first, reached), 0)
        reached = max(reached, end)
    return count


def _action(gap: Gap) -> Action:
    is_missing = gap.next_offset is None or gap.next_offset > gap.first_offset
    offsets = (gap.first_offset, gap.next_offset) if is_missing else (None, None)
    return Action(ActionKind.CUT, gap.path, gap.reason, gap.is_damage, gap.position, gap.end_position, *offsets)


class _Repairer:
    """Looks through the segments of a log that is not open yet, and rewrites the damaged ones if asked to."""

    def __init__(
        self, part: OfflinePartition, keeper: Keeper, keep_behind: bool, limit_bytes: int, disk: OtherDisk | None = None
    ) -> None:
        self._part, self._keeper, self._keep_behind, self._limit = part, keeper, keep_behind, limit_bytes
        self._disk = disk
        self.other: OtherReplica | None = None  #: From the first damage on.
        self.gaps: list[Gap] = []
        self.missing: list[Gap] = []  #: Offsets that are in no segment, and not in the other replica.
        self.healed: dict[Gap, int] = {}  #: Where the offsets end that came from the other replica.
        self.cleaned = set[Gap]()  #: Of those, the ones where the cleaner had left nothing there.

    def notes(self) -> list[str]:
        """Return notes about the gaps that were not cut out here."""
        notes = [
            f"{offsets_text(gap.first_offset, end)} {self._whence(gap, 'come')}"
            for gap, end in [*self.healed.items()][:_FEW]
        ]
        notes += [f"not in the other replica: {gap}" for gap in dict.fromkeys(self.missing)]
        if self._keep_behind:
            return notes
        notes += [f"gap: {gap}" for gap in self.gaps[:_FEW] if gap not in self.healed]
        if len(self.gaps) > _FEW:
            notes.append(f"{len(self.gaps) - _FEW:,} more gaps: the rows of --json have all of them")
        return notes

    def _whence(self, gap: Gap, come: str) -> str:
        folder = "" if self.other is None else self.other.folder
        return f"{come} from {folder}" if gap not in self.cleaned else f"gone from {folder} too, which was compacted"

    def repair_epochs(self) -> None:
        """Remove a checkpoint of leader epochs that cannot be read: the batches say them too."""
        part = self._part
        check_topic_id(part.storage, part.folder)  # which the load refuses: then nothing is done
        path = part.storage.join(part.folder, FileKind.LEADER_EPOCHS.value)
        if not part.storage.exists(path):
            return
        try:
            parse_leader_epochs(part.storage.read_all(path), path)
        except (CorruptionError, RequestError) as error:
            action = Action(ActionKind.EPOCHS, path, f"{error}; it is rebuilt from the log")
            file = part.storage.open_log(path)
            try:
                self._report(action, file)
            finally:
                file.close()
            part.storage.remove(path)

    def repair(self) -> None:
        """Look through all segments and cut out gaps: all of them, or only gaps that a recovery does not see.

        Unless good batches after damage are to stay, the recovery that comes next cuts at the first other gap.
        """
        part = self._part
        names = [parse_file_name(entry.name) for entry in part.storage.list_folder(part.folder) if not entry.is_dir]
        live = [name.offset for name in names if name.kind is FileKind.LOG and name.is_live]
        bases = sorted(offset for offset in live if offset is not None)
        surveys, open_txns = list[Survey](), set[int]()
        for number, base in enumerate(bases):  # all of them before the first change
            end = bases[number + 1] if number + 1 < len(bases) else None
            with self._open_segment(base) as segment:
                surveys.append(survey(segment.log, base, end, open_txns, part.advance, bases, self._limit))
            self.gaps += surveys[-1].gaps
            foreign = [gap for gap in surveys[-1].gaps if gap.kind is GapKind.FOREIGN and gap.is_damage]
            if foreign:
                raise foreign[0].as_error()
        ends = [*bases[1:], None][: len(bases)]
        self._ask_other([(gap, end) for found, end in zip(surveys, ends, strict=False) for gap in found.gaps])
        surveys = self._end_last(self._fill_holes(bases, surveys))
        for number, (base, found, end) in enumerate(zip(bases, surveys, ends, strict=True)):
            alarms = [gap for gap in found.gaps if gap.is_damage]
            cuts = (
                []
                if self._keep_behind
                else [gap for gap in alarms if gap.kind not in _KEPT_BY_BROKERS and gap not in self.healed]
            )
            if not alarms:
                continue
            with self._open_segment(base) as segment:
                if cuts:
                    behind = [
                        (other, self._end_of(there, following))
                        for other, there, following in list(zip(bases, surveys, ends, strict=True))[number + 1 :]
                    ]
                    found = self._truncate(segment, found, cuts[0], end, behind)
                if any(gap.is_damage for gap in found.gaps):
                    self._rewrite(segment, found, end)
            if cuts:
                return

    def _find_other(self) -> OtherReplica | None:
        if self.other is None and self._disk is not None:
            self.other = self._disk.replica_of(self._part)
            if self.other is None:
                self._part.result.notes.append(f"there is no replica of it in {self._disk.path}")
        return self.other

    def _fill_holes(self, bases: list[int], surveys: list[Survey]) -> list[Survey]:
        """Make gaps of offsets that only the other replica has; note the offsets that it lacks, too."""
        part = self._part
        if self._disk is None:
            return surveys
        paths = [part.storage.join(part.folder, segment_file_name(base, FileKind.LOG)) for base in bases]
        found = holes(surveys, bases, paths, self._noted_end())
        other = self._find_other() if found else None
        made = list(surveys)
        for number, gap in found:
            if other is not None and other.own_is_compacted and gap.next_offset is not None:
                continue  # the cleaner may have left it
            end = None if other is None else other.heals(gap.first_offset, gap.next_offset)
            if end is None:
                self.missing.append(gap)
                continue
            if other is not None and not other.has_any(gap.first_offset, end):
                continue  # or has removed it there
            behind = [each for each in made[number].gaps if each.position < gap.position]  # not a torn end
            made[number] = made[number]._replace(gaps=[*behind, gap])
            self.gaps = [each for each in self.gaps if each not in surveys[number].gaps or each in behind] + [gap]
            self._heal(gap, end, is_last=gap.next_offset is None)
        return made

    def _end_last(self, surveys: list[Survey]) -> list[Survey]:
        """Let damage at the end of the log reach as far as its checkpoints say that the log went."""
        end = self._noted_end()
        if not surveys or not end:
            return surveys
        ended = {
            gap: gap._replace(next_offset=end)
            for gap in surveys[-1].gaps
            if gap.next_offset is None and gap.is_damage and gap not in self.healed and gap.first_offset < end
        }
        self.gaps = [ended.get(gap, gap) for gap in self.gaps]
        return [*surveys[:-1], surveys[-1]._replace(gaps=[ended.get(gap, gap) for gap in surveys[-1].gaps])]

    def _noted_end(self) -> int:
        """How far the log went, by the checkpoints of its directory; 0 if they do not say."""
        part = self._part
        if part.directory is None:
            return 0
        return max((at for kind, at in part.directory.offsets_of(part.name).items() if kind in _REACHED), default=0)

    def _ask_other(self, found: list[tuple[Gap, int | None]]) -> None:
        """Find the records of the other replica for gaps; each gap comes with the end offset of its segment."""
        damage = [(gap, end) for gap, end in found if gap.is_damage]
        if not damage or self._find_other() is None or self.other is None:
            return
        for gap, segment_end in damage:
            if gap.kind is GapKind.RECORDS_BAD:
                continue  # what has a good checksum and cannot be read is the same on all disks
            asked = segment_end if gap.next_offset is None else gap.next_offset
            end = self.other.heals(gap.first_offset, asked)
            if end is not None:
                self._heal(gap, end, is_last=asked is None)
                if not self.other.has_any(gap.first_offset, end):
                    self.cleaned.add(gap)

    def _heal(self, gap: Gap, end: int, *, is_last: bool) -> None:
        """Note the records from the other replica; the log may have ended behind them."""
        self.healed[gap] = end
        if is_last and self.other is not None and end < self.other.own_end:
            reason = f"{offsets_text(end, self.other.own_end)} are not here"
            self.missing.append(gap._replace(first_offset=end, next_offset=self.other.own_end, reason=reason))

    @contextlib.contextmanager
    def _open_segment(self, base: int) -> Iterator[LogSegment]:
        part = self._part
        segment = LogSegment(part, base)
        try:
            yield segment
        finally:
            segment.close_handles()

    def _truncate(
        self, segment: LogSegment, found: Survey, gap: Gap, end: int | None, behind: list[tuple[int, int | None]]
    ) -> Survey:
        """End the log at the beginning of a gap; return the rest of the segment.

        `behind` has the base offsets of the segments behind it, with their known ends.
        """
        for base, end_offset in reversed(behind):
            self._drop(base, end_offset)
        at = gap.position
        loss = of_tail(segment.log, at, gap.first_offset, is_last=not behind)
        reason = loss.reason if loss.is_damage else gap.reason
        last = self._end_of(found, end)
        action = Action(ActionKind.CUT, gap.path, reason, True, at, segment.size, gap.first_offset, last)
        self._report(action, segment.log)
        segment.log.truncate(at)
        segment.log.sync()
        runs = [(start, min(end, at)) for start, end in found.runs if start < at]
        return Survey([each for each in found.gaps if each.position < at], runs)

    def _end_of(self, survey: Survey, end: int | None) -> int | None:
        """Return where a segment ends: where the next one begins, or as far as its batches and checkpoints go."""
        if end is not None:
            return end
        reached = max(self._noted_end(), 0 if survey.offsets is None else survey.offsets[1])
        return reached or None

    def _drop(self, base: int, end_offset: int | None) -> None:
        """Remove a segment behind a cut one; the load removes the files beside it."""
        part = self._part
        path = part.storage.join(part.folder, segment_file_name(base, FileKind.LOG))
        file = part.storage.open_log(path)
        try:
            reason = "it comes after a segment that lost bytes"
            action = Action(ActionKind.DROPPED, path, reason, file.size > 0, 0, file.size, base, end_offset)
            self._report(action, file)
        finally:
            file.close()
        part.storage.remove(path)
        part.storage.sync_folder(part.folder)

    def _rewrite(self, segment: LogSegment, found: Survey, end: int | None) -> None:
        part = self._part
        note_cuts(part, "repair", segment.log, [gap for gap in found.gaps if gap not in self.healed], end)
        for gap in found.gaps:
            action = _action(gap)
            if gap in self.healed:
                action = replace(action, is_damage=False, reason=f"{gap.reason}; {self._whence(gap, 'it comes')}")
            self._report(action, segment.log)
        writer = SegmentWriter(part, segment.base_offset, max(part.config.segment_bytes, segment.size), leaps=True)
        scheduler, segments = CollectingScheduler(), Segments()
        segments.add(segment)
        try:
            for kept in self._batches(segment, found):
                part.advance(0)
                writer.append(kept)
            writer.finish(segment.modified_ms())
            replace_segments(
                part.storage, part.folder, segments, writer.segments, [segment], Remover(part.storage, scheduler, 0)
            )
        finally:
            writer.close_handles()
        scheduler.finish()

    def _batches(self, segment: LogSegment, found: Survey) -> Iterator[Filtered]:
        """The good batches of a segment, with the other replica's in their places."""
        position, given = 0, 0
        for gap in sorted((gap for gap in found.gaps if gap in self.healed), key=lambda gap: gap.position):
            before = [(max(start, position), min(end, gap.position)) for start, end in found.runs]
            yield from batches_of_runs(segment.log, [(start, end) for start, end in before if start < end])
            position, end = gap.position, self.healed[gap]
            if self.other is not None and end > given:
                yield from self.other.batches(max(gap.first_offset, given), end)
                given = end
        behind = [(max(start, position), end) for start, end in found.runs if end > position]
        yield from batches_of_runs(segment.log, behind)

    def _report(self, action: Action, file: AppendFile) -> None:
        """Copy the bytes that will be removed, then note the action."""
        if file.size:
            action = replace(action, kept=self._keeper.keep(action, file))
        self._part.result.report.add(action)
        self._part.result.loses_records |= action.is_damage
