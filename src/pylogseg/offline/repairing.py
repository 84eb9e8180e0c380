"""`repair`: damage cut out of a log, with as much kept as can be, and all that is built from the log built anew."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from pylogseg.env.files import Readable
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import AppendFile, LocalStorage
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.jobs.place import Place
from pylogseg.log.keep import FolderKeeper, Keeper, PlannedKeeper, check_place
from pylogseg.log.removal import Remover
from pylogseg.log.replace import replace_segments
from pylogseg.log.report import Action, ActionKind
from pylogseg.log.rewrite import SegmentWriter
from pylogseg.log.segment import LogSegment
from pylogseg.log.segments import Segments
from pylogseg.offline.options import Options
from pylogseg.offline.outcome import Result
from pylogseg.offline.part import Part
from pylogseg.offline.running import run
from pylogseg.offline.salvage import Survey, kept_batches, survey
from pylogseg.reading.findings import Finding, Gap

#: Damage that a broker's recovery does not see, or does not mind.
_KEPT_BY_BROKERS = (Finding.RECORDS_BAD, Finding.ORDER)
#: Gaps that are told to a person.
_FEW = 20


def repair(
    path: str | os.PathLike[str], *, keep_behind: bool = False, keep: str | None = None, **options: Any
) -> Result:
    """Cut out what is damaged, and build indexes, producer snapshots and leader epochs anew.

    Every segment is read, and every record. Each stretch of bytes that holds no good batch is a gap in ``rows`` of the
    outcome, with the offsets that may be missing for it.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    keep_behind : bool
        Keep the good batches behind damage, so that a gap is left in the offsets. Without it everything behind the
        first damage goes, as at a broker's own recovery.
    keep : str, optional
        A folder that gets copies of what is cut out, removed or replaced. No copies without it.
    **options
        Fields of `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of an outcome: ``gaps``, ``gapBytes``, ``offsetsMissing`` as far as it is known.
    """
    shared = Options.of(options)
    keeper: Keeper = _NoCopies()
    if keep is not None:
        place = Place.find(shared.storage, os.fspath(path))
        check_place(keep, place.parent, None if place.log_dir is not None else place.names[0])
        if shared.into is not None:
            check_place(keep, shared.into)
        keeper = (PlannedKeeper if shared.dry_run else FolderKeeper)(LocalStorage(), keep)

    def work(part: Part) -> None:
        mender = _Mender(part, keeper, keep_behind)
        mender.mend_epochs()
        part.open(clean=False, recovery_point=0, keeper=keeper, mend=mender.mend)
        outcome = part.outcome
        outcome.rows = [_row(part.name, gap) for gap in mender.gaps]
        missing = {(gap.first_offset, gap.next_offset) for gap in mender.gaps if gap.next_offset is not None}
        outcome.numbers = {
            "gaps": len(mender.gaps),
            "gapBytes": sum(gap.end_position - gap.position for gap in mender.gaps),
            "offsetsMissing": sum(max(following - first, 0) for first, following in missing),
        }
        outcome.loses_records |= outcome.report.is_alarm
        outcome.notes += mender.notes()
        if not outcome.report.actions:
            outcome.state = "unchanged"

    return run(path, shared, work)


def _row(name: str, gap: Gap) -> dict[str, Any]:
    return {
        "type": "gap",
        "partition": name,
        "level": "damage" if gap.is_alarm else "notice",
        "kind": gap.kind.value,
        "path": gap.path,
        "position": gap.position,
        "endPosition": gap.end_position,
        "firstOffset": gap.first_offset,
        "nextOffset": gap.next_offset,
        "reason": gap.reason,
    }


def _action(gap: Gap) -> Action:
    """What is done about a gap: its bytes go."""
    is_missing = gap.next_offset is None or gap.next_offset > gap.first_offset
    offsets = (gap.first_offset, gap.next_offset) if is_missing else (None, None)
    return Action(ActionKind.CUT, gap.path, gap.reason, gap.is_alarm, gap.position, gap.end_position, *offsets)


class _NoCopies:
    def keep(self, action: Action, file: Readable) -> str | None:
        return None


class _Mender:
    """Looks through the segments of a partition whose log is not open yet, and rewrites the damaged ones if asked to.

    Attributes
    ----------
    gaps : list of Gap
        All that were found.
    left : int
        How many of them neither this nor a recovery cuts out.
    """

    def __init__(self, part: Part, keeper: Keeper, keep_behind: bool) -> None:
        self._part, self._keeper, self._keep_behind = part, keeper, keep_behind
        self.gaps: list[Gap] = []
        self.left = 0

    def notes(self) -> list[str]:
        """What a person should know of the gaps that were not cut out here."""
        if self._keep_behind:
            return []
        notes = [f"gap: {gap}" for gap in self.gaps[:_FEW]]
        if len(self.gaps) > _FEW:
            notes.append(f"{len(self.gaps) - _FEW:,} more gaps: the rows of --json have all of them")
        if self.left:
            notes.append(f"a broker leaves damage such as {self.left} of these gaps: --keep-behind cuts it out")
        return notes

    def mend_epochs(self) -> None:
        """Remove a checkpoint of leader epochs that cannot be read: the batches say them too."""
        part = self._part
        path = part.storage.join(part.folder, FileKind.LEADER_EPOCHS.value)
        if not part.storage.exists(path):
            return
        try:
            parse_leader_epochs(part.storage.read_all(path), path)
        except (CorruptionError, RequestError) as error:
            action = Action(ActionKind.EPOCHS, path, f"{error}; it is built anew from the log")
            file = part.storage.open_log(path)
            try:
                self._report(action, file)
            finally:
                file.close()
            part.storage.remove(path)

    def mend(self) -> None:
        """Look through all segments, and cut out their gaps if good batches behind damage are to stay."""
        part = self._part
        names = [parse_file_name(entry.name) for entry in part.storage.list_folder(part.folder) if not entry.is_dir]
        live = [name.offset for name in names if name.kind is FileKind.LOG and name.is_live]
        bases = sorted(offset for offset in live if offset is not None)
        is_cut, open_txns = False, set[int]()
        for base, end in zip(bases, [*bases[1:], None], strict=True):
            segment = LogSegment(part.storage, part.folder, base, part.config, part.clock)
            try:
                found = survey(segment.log, base, end, open_txns, part.advance)
                self.gaps += found.gaps
                alarms = [gap for gap in found.gaps if gap.is_alarm]
                if any(gap.kind is Finding.FOREIGN for gap in alarms):
                    raise alarms[0].as_error()
                if alarms and self._keep_behind:
                    self._rewrite(segment, found)
                elif not is_cut:
                    is_cut = any(gap.kind not in _KEPT_BY_BROKERS for gap in alarms)
                    self.left += sum(gap.kind in _KEPT_BY_BROKERS for gap in alarms)
            finally:
                segment.close_handles()

    def _rewrite(self, segment: LogSegment, found: Survey) -> None:
        part = self._part
        for gap in found.gaps:
            self._report(_action(gap), segment.log)
        writer = SegmentWriter(part, segment.base_offset, max(part.config.segment_bytes, segment.size))
        scheduler, segments = CollectingScheduler(), Segments()
        segments.add(segment)
        try:
            for kept in kept_batches(segment.log, found.runs):
                part.advance(0)
                writer.append(kept)
            writer.finish(segment.modified_ms())
            replace_segments(
                part.storage, part.folder, segments, writer.segments, [segment], Remover(part.storage, scheduler, 0)
            )
        finally:
            writer.close_handles()
        scheduler.finish()

    def _report(self, action: Action, file: AppendFile) -> None:
        """Note what is about to be done, after a copy was made of the bytes that go."""
        if file.size:
            action = replace(action, kept=self._keeper.keep(action, file))
        self._part.outcome.report.add(action)
        self._part.outcome.loses_records |= action.is_alarm
