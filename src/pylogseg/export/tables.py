"""The records of logs as Parquet or Arrow files by topic and date, as tables of a data lake are laid out.

A part of a log is what the table has of one segment. Its files appear at its end, and a note of them beside the table:
which offsets they cover, and of which file. Who comes again sees by the notes what there is to do, and which files are
of segments that are in the log no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pylogseg.catalog.disk import Segment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.export.file import DEFAULT_COLUMNS, FORMS, NO_VALUE, SINKS, Form
from pylogseg.export.unfinished import refuse_links
from pylogseg.reading.log_reader import LogFiles, LogReader
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.reading.partition import OPEN_END, Chunk, PartitionReader, ReadOptions
from pylogseg.reading.stable_offset import last_stable_offset
from pylogseg.reading.transactions import Transactions
from pylogseg.verify.findings import Finding
from pylogseg.walker.gaps import GapKind

#: The topic is in the name of a folder; the partition is not, so it is a column.
COLUMNS = ("partition", *DEFAULT_COLUMNS)
#: Readers of datasets skip names that begin with an underscore.
NOTES = "_pylogseg"
_TABLE = "table.json"
_NOTE = re.compile(r"(?P<topic>.+)-(?P<partition>-?\d+)-(?P<base>\d{20})\.json", re.DOTALL)
_FILE = re.compile(r"topic=[^/]+/date=[^/]+/(?P<partition>-?\d+)-\d{20}-\d{4,}\.[a-z]+", re.DOTALL)
_WRITING = "writing-"
_DAY_MS = 86_400_000
#: Files that are open at the same time: a timestamp may be anything, and each file holds a row group in memory.
_OPEN_FILES = 16


@dataclass(frozen=True)
class Span:
    """A range of a log that is requested, or in the table; half-open, timestamps in ms."""

    first: int
    end: int
    since: int | None
    until: int | None

    def joined(self, other: Span) -> Span:
        """Return the range that covers both; RequestError if there are times between the two that are in neither."""
        for early, late in ((self, other), (other, self)):
            if early.until is not None and late.since is not None and early.until < late.since:
                raise RequestError(
                    f"the table has records up to time {early.until}, or from {late.since} on, and those between were "
                    "not asked for: export them too, or export to another folder"
                )
        since = None if self.since is None or other.since is None else min(self.since, other.since)
        until = None if self.until is None or other.until is None else max(self.until, other.until)
        return Span(min(self.first, other.first), max(self.end, other.end), since, until)


@dataclass(frozen=True)
class Part:
    """The part of the table for one segment."""

    log: LogFiles  #: Of the segment and those after it, as far as they are needed to read it.
    segment: Segment
    span: Span
    lowest: int  #: Offsets (to `highest`, half-open) that it may have, whatever the table has of it already.
    highest: int
    options: ReadOptions
    superseded: tuple[str, ...] = ()  #: Notes of segments that left the log, and whose offsets this one has now.

    @property
    def note(self) -> str:
        return f"{self.segment.topic or NO_VALUE}-{self.segment.partition}-{self.segment.base_offset:020d}.json"


@dataclass(frozen=True)
class ExportedPart:
    """The result of exporting a part."""

    topic: str
    partition: int
    base_offset: int
    state: str  #: "written", "unchanged", "to do" (dry run), "gone" (by retention) or "left" (after damage that stops).
    #: Path below the folder of the table, records, bytes.
    files: list[tuple[str, int, int]] = field(default_factory=list)
    problem: str | None = None  #: The unreadable parts.


class Table:
    """The folder of a table while one export writes to it; it is made if it is missing.

    The form is ``parquet`` or ``arrow``; dates are those of the timestamps, in UTC. With `overwrite`, what earlier
    exports have written there goes first. Raises RequestError if the table was written with other columns, another form
    or isolation, or by somebody else, and StorageError if another export is writing to it.
    """

    def __init__(
        self, out: Path, form: Form, isolation_level: str, *, dry_run: bool = False, overwrite: bool = False
    ) -> None:
        if form.name not in ("parquet", "arrow"):
            raise RequestError(f"files by date are parquet or arrow, not {form.name}")
        self.out, self.form, self.dry_run = out, replace(form, isolation_level=isolation_level), dry_run
        self._shape = {"form": form.name, "columns": list(form.columns), "isolation_level": isolation_level}
        self._overwrite = overwrite
        #: Whether what is there already does not count.
        self.starts_empty = overwrite and dry_run
        self._mark = uuid.uuid4().hex

    @property
    def folder(self) -> Path:
        """The folder of files until their part is complete."""
        return self.out / NOTES / f"{_WRITING}{self._mark}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Take the table for one run, and say at the end that it is whole; an error leaves it to the next run."""
        if self.dry_run:
            if not self._overwrite:
                self._check()
            yield
            return
        notes = self.out / NOTES
        notes.mkdir(parents=True, exist_ok=True)
        lock = LocalStorage().lock(str(notes))
        try:
            # Nobody else writes here: what is there is of runs that died.
            for litter in [*notes.glob(f"{_WRITING}*"), *notes.glob(".*.tmp")]:
                _remove(litter)
            if self._overwrite:
                self._clear()
            self._check()
            self._say("writing")
            self.folder.mkdir()
            yield
            self._say("whole")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            lock.release()

    def notes(self) -> dict[tuple[str, int], list[int]]:
        """Base offsets of what is noted, ascending, by topic and partition."""
        found: dict[tuple[str, int], list[int]] = {}
        if (self.out / NOTES).is_dir() and not self.starts_empty:
            for name in os.listdir(self.out / NOTES):
                match = _NOTE.fullmatch(name)
                if match is not None:
                    found.setdefault((match["topic"], int(match["partition"])), []).append(int(match["base"]))
        return {key: sorted(bases) for key, bases in found.items()}

    def _check(self) -> None:
        said = state_of(self.out)
        if said is None:
            if self.notes():
                raise RequestError(
                    f"{self.out}: an earlier version of this program wrote the table, without noting which offsets it "
                    "has: export to another folder, or write it again (overwrite)"
                )
            return
        for name, value in self._shape.items():
            if said.get(name) != value:
                raise RequestError(
                    f"{self.out}: the table has {name} {_words(said.get(name))}, and {_words(value)} is asked for: "
                    "export to another folder, or write the whole table again (overwrite)"
                )

    def _say(self, state: str) -> None:
        write_note(self.out / NOTES / _TABLE, {**self._shape, "state": state})

    def _clear(self) -> None:
        for note in (self.out / NOTES).glob("*.json"):
            if _NOTE.fullmatch(note.name):
                _unlink(self.out, files_of(_noted(note)))
                note.unlink()
        (self.out / NOTES / _TABLE).unlink(missing_ok=True)


def state_of(out: Path) -> dict[str, Any] | None:
    """Read the state of a table: ``state`` is ``writing`` until a run has ended; None if there is none."""
    return _noted(out / NOTES / _TABLE)


def lacking_of(out: Path, chosen: Collection[str] | None = None) -> list[Finding]:
    """Return what the notes of a table know to be missing: what could not be exported, and files that are gone.

    `chosen` are names of partitions; all by default.
    """
    found: list[Finding] = []
    for path in sorted((out / NOTES).glob("*.json")) if (out / NOTES).is_dir() else ():
        match = _NOTE.fullmatch(path.name)
        if match is None or (chosen is not None and f"{match['topic']}-{match['partition']}" not in chosen):
            continue
        note = _noted(path) or {}
        if note.get("problem"):
            found.append(_lost(path, f"not all could be exported: {note['problem']}"))
        for name, records, _ in note.get("files", ()):
            if not (out / name).is_file():
                found.append(_lost(out / name, f"this file of the table is not there, with {records:,} records"))
    return found


def _lost(path: Path, reason: str) -> Finding:
    remedy = "run the export again, or take the file from a backup of the table"
    return Finding(str(path), "missing", True, reason, other_remedy=remedy)


def parts_of(
    logs: Iterable[LogFiles],
    table: Table,
    options: ReadOptions,
    times: tuple[int | None, int | None] = (None, None),
    *,
    keep_deleted: bool = True,
) -> list[list[Part]]:
    """Return the parts that an export has to check; each inner list is done in its order by one `export_parts`.

    Under ``on_corrupt="stop"`` a list has a whole log. Times are ms, half-open. With `keep_deleted`, the table keeps
    records below the log start offset, which retention has removed from the log. Raises RequestError if two files are
    the same part of the same partition, and StorageError for a log whose folder cannot be listed.
    """
    notes = table.notes()
    groups: list[list[Part]] = []
    seen: dict[str, str] = {}
    for log in logs:
        if log.error is not None:
            raise StorageError(log.error.path, log.error.operation, log.error.reason, log.error.errno)
        parts = _parts_of_log(log, table, notes, options, times, keep_deleted)
        for part in parts:
            other = seen.setdefault(part.note, part.segment.path)
            if other != part.segment.path:
                raise RequestError(
                    f"{other} and {part.segment.path} are the same part of the same partition: export one of them"
                )
        groups += [parts] if options.on_corrupt == "stop" else [[part] for part in parts]
    return [group for group in groups if group]


def _parts_of_log(
    log: LogFiles,
    table: Table,
    notes: dict[tuple[str, int], list[int]],
    options: ReadOptions,
    times: tuple[int | None, int | None],
    keep_deleted: bool,
) -> list[Part]:
    if not log.segments:
        return []
    reader, end = LogReader.of(log, (0, OPEN_END), times, options), OPEN_END
    if options.isolation_level == "read_committed":
        # Below it all transactions are decided forever, so each segment can be read by itself, now and later.
        skips = options.on_corrupt == "skip"
        stable = last_stable_offset(list(log.segments), log.snapshots, {} if skips else None)
        end = OPEN_END if stable is None else stable
        log = _Decided(*log)
    head = log.segments[0]
    key = (head.topic or NO_VALUE, head.partition)
    known = notes.get(key, [])
    before = [base for base in known if base < head.base_offset]
    lowest = 0 if keep_deleted else log.log_start_offset
    if before and keep_deleted:
        newest = _noted(table.out / NOTES / _note_name(key, before[-1]))
        lowest = max(lowest, 0 if newest is None else int(newest.get("covered", 0)))
    parts: list[Part] = []
    bases = [segment.base_offset for segment in log.segments]
    for i, segment in enumerate(log.segments):
        following = bases[i + 1] if i + 1 < len(bases) else OPEN_END
        first = max(lowest, reader.first_offset, segment.base_offset)
        highest = min(following, end)
        last = min(highest, reader.end_offset)
        if first >= last:
            continue
        files = log if isinstance(log, _Decided) else log._replace(segments=[segment])
        span = Span(first, last, *times)
        stale = [base for base in known if segment.base_offset < base < following]
        names = tuple(_note_name(key, base) for base in stale)
        parts.append(Part(files, segment, span, max(lowest, segment.base_offset), highest, options, names))
    if not parts:
        return []
    # What was noted beyond the end is of a log that was truncated, or of a topic that was deleted and made again.
    beyond = [] if times[1] is not None else [base for base in known if base > parts[-1].segment.base_offset]
    own = {part.segment.base_offset for part in parts}
    start = max(head.base_offset, log.log_start_offset)
    deleted = [] if keep_deleted else [base for base in known if base < start and base not in own]
    names = tuple(_note_name(key, base) for base in deleted)
    parts[0] = replace(parts[0], superseded=(*names, *parts[0].superseded))
    more = {*parts[-1].superseded, *(_note_name(key, base) for base in beyond)}
    parts[-1] = replace(parts[-1], superseded=tuple(sorted(more)))
    return parts


class _Decided(LogFiles):
    """A log that is read up to its last stable offset at most, a segment at a time."""

    __slots__ = ()

    def chunks(self, first_offset: int, end_offset: int, options: ReadOptions) -> Iterator[Chunk]:
        """See `LogFiles`."""
        segments = list(self.segments)
        skips = options.on_corrupt == "skip"
        outcomes = Transactions(segments, self.snapshots, first_offset, ends_stable=True, skips=skips)
        number = max(0, bisect_right([segment.base_offset for segment in segments], first_offset) - 1)
        yield from PartitionReader(
            segments[number : number + 1], first_offset, end_offset, options, transactions=outcomes
        )


def export_parts(
    parts: Sequence[Part], table: Table, advance: Callable[[int], None] | None = None
) -> list[ExportedPart]:
    """Write what has changed to ``OUT/topic=NAME/date=YYYY-MM-DD/<partition>-<base offset>-<n>.parquet``.

    The parts are one of the lists of `parts_of`; the table may have travelled to another process. `advance` as of
    `export_part`.
    """
    done: list[ExportedPart] = []
    for number, part in enumerate(parts):
        done.append(_export_part(part, table, advance))
        if part.options.on_corrupt == "stop" and done[-1].problem is not None and done[-1].state != "gone":
            left = parts[number + 1 :]
            problem = f"after the damage: {done[-1].problem}"
            done += [_result(each, "left", problem=problem) for each in left]
            if not table.dry_run:
                for each in left:
                    _withdraw(table.out, [each.note, *each.superseded])
            break
    return done


def _export_part(part: Part, table: Table, advance: Callable[[int], None] | None) -> ExportedPart:
    out, notes = table.out, table.out / NOTES
    before = None if table.starts_empty else _noted(notes / part.note)
    others = [found for name in part.superseded if (found := _noted(notes / name)) is not None]
    span = part.span
    for found in (before, *others):
        span = span if found is None or "span" not in found else span.joined(Span(*found["span"]))
    span = replace(span, first=max(span.first, part.lowest), end=min(span.end, part.highest))
    if before is not None and not part.superseded and _is_same(before, span, part, out):
        return _result(part, "unchanged", [(f[0], f[1], f[2]) for f in before["files"]], before["problem"])
    if table.dry_run:
        return _result(part, "to do")
    source = mark_of(part.segment)
    options = replace(part.options, gaps=[], on_bytes=advance)
    # To the end of the file: there may be damage after the last offset.
    end = OPEN_END if span.end == part.segment.next_base else span.end
    reader = LogReader(part.log, span.first, end, span.since, span.until, None, options)
    files = _Files(table, f"{part.segment.partition}-{part.segment.base_offset:020d}")
    written = _write(reader, files, out)
    if any(gap.kind is GapKind.REMOVED for gap in options.gaps):
        # What the table has of it is all that there will be.
        files.discard()
        kept = [] if before is None else [(f[0], f[1], f[2]) for f in before["files"]]
        return _result(part, "gone", kept, "; ".join(map(str, options.gaps)))
    problem = "; ".join(str(gap) for gap in options.gaps if gap.is_damage) or None
    note = {
        "span": [span.first, span.end, span.since, span.until],
        "covered": files.covered if span.end == OPEN_END else span.end,
        "source": source,
        "on_corrupt": part.options.on_corrupt,
        "problem": problem,
        "files": [list(each) for each in written],
    }
    stale = {path for found in (before, *others) for path in files_of(found)} - {each[0] for each in written}
    # Said before it is done: who comes after a crash in the middle knows all names that may be there.
    pending = sorted(stale | {each[0] for each in written})
    write_note(notes / part.note, {"pending": pending, "span": note["span"]})
    files.name_all()
    _unlink(out, stale)
    for name in part.superseded:
        (notes / name).unlink(missing_ok=True)
    write_note(notes / part.note, note)
    return _result(part, "written", written, problem)


def _result(
    part: Part, state: str, files: Iterable[tuple[str, int, int]] = (), problem: str | None = None
) -> ExportedPart:
    segment = part.segment
    return ExportedPart(segment.topic, segment.partition, segment.base_offset, state, list(files), problem)


def _is_same(before: dict[str, Any], span: Span, part: Part, out: Path) -> bool:
    if "pending" in before or Span(*before["span"]) != span:
        return False
    # Where something could not be read it depends on what was asked for then.
    if before["problem"] is not None and before["on_corrupt"] != part.options.on_corrupt:
        return False
    if not all((out / path).is_file() and (out / path).stat().st_size == size for path, _, size in before["files"]):
        return False
    return is_marked(part.segment, before["source"])


def _note_name(key: tuple[str, int], base: int) -> str:
    return f"{key[0]}-{key[1]}-{base:020d}.json"


def _noted(note: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(note.read_text())
    except (FileNotFoundError, ValueError):  # written by something that died: it is done again
        return None
    return found


def write_note(path: Path, content: dict[str, Any]) -> None:
    """Put a small file in place as a whole."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    beside.write_text(json.dumps(content))
    os.replace(beside, path)


def files_of(note: dict[str, Any] | None) -> list[str]:
    """Paths of the data files that a note names, below the folder of the table."""
    if note is None:
        return []
    return [*(each[0] for each in note.get("files", ())), *note.get("pending", ())]


def _withdraw(out: Path, names: Iterable[str]) -> None:
    """Remove what notes name, and them."""
    for name in names:
        _unlink(out, files_of(_noted(out / NOTES / name)))
        (out / NOTES / name).unlink(missing_ok=True)


def _unlink(out: Path, paths: Iterable[str]) -> None:
    """Remove data files; a name that no export gives is left alone, whatever a note says."""
    for path in paths:
        if _FILE.fullmatch(path):
            (out / path).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _write(part: LogReader, files: _Files, out: Path) -> list[tuple[str, int, int]]:
    try:
        for chunk in part.chunks():
            for date, records in _by_date(chunk):
                files.write(date, records)
        return files.finish()
    except BaseException as error:
        files.discard()
        # What a write says names no file: a disk that is full, a limit of size.
        if isinstance(error, OSError) and not isinstance(error, StorageError) and error.filename is None:
            raise StorageError(str(out), "write", error.strerror or str(error), error.errno) from error
        raise


def _by_date(chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
    days = chunk.columns.timestamp // _DAY_MS
    for day in np.unique(days).tolist():
        mask = days == day
        yield _date(day), chunk if mask.all() else Chunk(chunk.columns.take(mask), chunk.segment)


def _date(day: int) -> str:
    """A day as in names of folders; none for records without a timestamp, and where no calendar reaches."""
    return NO_VALUE if not 0 <= day < 2932896 else str(np.datetime64(day, "D"))


class _Files:
    """The files of one part: a few open ones, and those that are finished; none has its name before the end."""

    def __init__(self, table: Table, name: str) -> None:
        self._out, self._form, self._name = table.out, table.form, name
        self._folder = table.folder
        self._open: dict[str, tuple[Path, contextlib.ExitStack, Any]] = {}
        self._records: dict[Path, int] = {}
        self._numbers: dict[str, int] = {}
        self._mark = uuid.uuid4().hex  # another attempt at the same part may be running
        #: Offset after the last record.
        self.covered = 0

    def write(self, date: str, chunk: Chunk) -> None:
        """Add records of one date."""
        if date not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._close(next(iter(self._open)))
            self._begin(date, chunk)
        target, _, sink = self._open[date]
        self._records[target] += sink.write(chunk)
        self.covered = max(self.covered, chunk.columns.tally().highest_offset + 1)

    def _begin(self, date: str, chunk: Chunk) -> None:
        number = self._numbers[date] = self._numbers.get(date, -1) + 1
        folder = self._out / f"topic={chunk.topic or NO_VALUE}" / f"date={date}"
        refuse_links(self._out, folder)
        target = folder / f"{self._name}-{number:04d}{FORMS[self._form.name]}"
        stack = contextlib.ExitStack()
        file = stack.enter_context(self._apart(target).open("wb"))
        sink = stack.enter_context(SINKS[self._form.name](file, self._form))
        self._open[date], self._records[target] = (target, stack, sink), 0

    def _apart(self, target: Path) -> Path:
        return self._folder / f"{target.parent.name}-{target.name}.{self._mark}"

    def _close(self, date: str) -> None:
        self._open.pop(date)[1].close()

    def finish(self) -> list[tuple[str, int, int]]:
        """Close all files: path below the folder, records, bytes."""
        for date in list(self._open):
            self._close(date)
        return [
            (target.relative_to(self._out).as_posix(), records, self._apart(target).stat().st_size)
            for target, records in self._records.items()
        ]

    def name_all(self) -> None:
        for target in self._records:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._apart(target), target)

    def discard(self) -> None:
        """Remove what was written."""
        for _, stack, _ in self._open.values():
            with contextlib.suppress(Exception):
                stack.close()
        for target in self._records:
            self._apart(target).unlink(missing_ok=True)
