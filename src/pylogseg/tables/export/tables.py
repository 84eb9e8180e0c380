"""The records of logs as Parquet or Arrow files by topic and date, as tables of a data lake are laid out.

A part of a log is what the table has of one segment. Its files appear at its end, with a note beside the table: the
offsets of each file, and the segment behind it. The next run sees by the notes the work that is left, and the files of
segments that are in the log no more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.columns import EXPORTED
from pylogseg.disk.disk import Disk, Segment
from pylogseg.disk.outside import check_outside
from pylogseg.disk.stores import Fingerprint, FolderStore, ObjectStore, store_of
from pylogseg.env.beside import scratch_folder, sweep
from pylogseg.env.executor import INLINE, Advance, Executor, Workload
from pylogseg.env.file_errors import storage_error
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.columns import declare_columns
from pylogseg.format.names import parse_partition_folder
from pylogseg.inspect.verify.lacking import finding_texts, lacking_for
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk, PartitionReader
from pylogseg.reading.selection import Selection
from pylogseg.reading.stable_offset import last_stable_offset
from pylogseg.reading.state import ReadState
from pylogseg.reading.transactions import Transactions
from pylogseg.tables.export.file import DEFAULT_COLUMNS, FORMS, NO_VALUE, SINKS, Form, UnfitTimeError
from pylogseg.tables.export.notes import (
    NOTES,
    lock_place,
    note_key,
    note_name,
    note_names,
    paths_in_note,
    read_note,
    said_of,
    unsay,
    write_note,
    writing,
)
from pylogseg.walker.gaps import GapKind, joined_times

#: The topic is in the name of a folder; the partition is not, so it is a column.
COLUMNS = ("partition", *DEFAULT_COLUMNS)
_FILE = re.compile(r"topic=[^/]+/date=[^/]+/(?P<partition>-?\d+)-\d{20}-\d{4,}\.[a-z]+", re.DOTALL)
_WRITING = "writing-"
_DAY_MS = 86_400_000
#: Files that are open at the same time: a timestamp may be anything, and each file holds a row group in memory.
_OPEN_FILES = 16


@dataclass(frozen=True)
class PartSpan:
    """A range of a log that is requested, or in the table; half-open, timestamps in ms."""

    first: int
    end: int
    since: int | None
    until: int | None

    def join_span(self, other: PartSpan) -> PartSpan:
        """Return the range that covers both; RequestError if there are times between the two that are in neither."""
        for early, late in ((self, other), (other, self)):
            if early.until is not None and late.since is not None and early.until < late.since:
                raise RequestError(
                    f"the table has records up to time {early.until}, or from {late.since} on: this run would leave "
                    "a gap between; export these records, too, or export to another folder"
                )
        since = None if self.since is None or other.since is None else min(self.since, other.since)
        until = None if self.until is None or other.until is None else max(self.until, other.until)
        return PartSpan(min(self.first, other.first), max(self.end, other.end), since, until)


@dataclass(frozen=True)
class ExportPart:
    """The part of the table for one segment."""

    log: LogFiles  #: Of the segment and those after it, as far as they are needed to read it.
    segment: Segment
    span: PartSpan
    lowest: int  #: Offsets (to `highest`, half-open) that it may have, whatever the table has of it already.
    highest: int
    state: ReadState
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
    state: str  #: "written", "unchanged", "to do" (dry run), "gone" (retention) or "skipped" (after damage that stops).
    #: Path below the folder of the table, records, bytes.
    files: list[tuple[str, int, int]] = field(default_factory=list)
    problem: str | None = None  #: The unreadable parts.


class TableExport:
    """The folder, or the place in a store, of a table while one export writes to it; it is made if it is missing.

    The form is ``parquet`` or ``arrow``; dates are those of the timestamps, in UTC. With `overwrite`, what earlier
    exports have written there goes first. `storage_options` are fsspec's, for a URL. Raises RequestError if the table
    was written with other columns, another form or isolation, or by somebody else, and StorageError if another export
    is writing to it.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        form: Form,
        isolation_level: str,
        *,
        dry_run: bool = False,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if form.name not in ("parquet", "arrow"):
            raise RequestError(f"files by date are parquet or arrow, not {form.name}")
        self.store = store_of(out, storage_options)
        if isinstance(self.store, FolderStore):
            check_outside(self.store.root)
        self.form, self.dry_run = replace(form, isolation_level=isolation_level), dry_run
        self._shape = {"form": form.name, "columns": list(form.columns), "isolation_level": isolation_level}
        self._overwrite = overwrite
        #: True if what is there already does not count.
        self.starts_empty = overwrite and dry_run
        self._mark = uuid.uuid4().hex

    @contextlib.contextmanager
    def open_run(self, names: Iterable[str] = ("all",)) -> Iterator[None]:
        """Take the table for one run, of partitions of these names, and say at the end that it is whole."""
        if self.dry_run:
            if not self._overwrite:
                self._check()
            yield
            return
        with lock_place(self.store), self._make_scratch():
            if self._overwrite:
                self._clear()
            self._check()
            with writing(self.store, self._shape, names):
                yield

    @contextlib.contextmanager
    def _make_scratch(self) -> Iterator[None]:
        """Make the folder of unfinished files, where all workers share a disk; remove the folders of dead runs."""
        if not isinstance(self.store, FolderStore):
            yield
            return
        notes = self.store.root / NOTES
        sweep(notes, [f"{_WRITING}*", ".*.tmp"], is_locked=True)
        with scratch_folder(notes / f"{_WRITING}{self._mark}"):
            yield

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield the folder of the files of a part until it is complete."""
        if isinstance(self.store, FolderStore):
            yield self.store.root / NOTES / f"{_WRITING}{self._mark}"
        else:
            with self.store.scratch() as folder:
                yield folder

    def notes(self) -> dict[tuple[str, int], list[int]]:
        """Base offsets of the notes, ascending, by topic and partition."""
        bases_of: dict[tuple[str, int], list[int]] = {}
        for match in () if self.starts_empty else note_names(self.store):
            bases_of.setdefault((match["topic"], int(match["partition"])), []).append(int(match["base"]))
        return {key: sorted(bases) for key, bases in bases_of.items()}

    def _check(self) -> None:
        said, out = said_of(self.store), self.store.url
        if said is None:
            if self.notes():
                raise RequestError(
                    f"{out}: an earlier version of this program wrote the table, without noting which offsets it "
                    "has: export to another folder, or write it again (overwrite)"
                )
            return
        for name, value in self._shape.items():
            if said.get(name) != value:
                raise RequestError(
                    f"{out}: the table has {name} {_words(said.get(name))}, and {_words(value)} is asked for: "
                    "export to another folder, or write the whole table again (overwrite)"
                )

    def _clear(self) -> None:
        _withdraw(self.store, [match.string for match in note_names(self.store)])
        unsay(self.store)


def plan_parts(
    logs: Iterable[LogFiles],
    table: TableExport,
    selection: Selection,
    state: ReadState,
    *,
    keep_deleted: bool = True,
) -> list[list[ExportPart]]:
    """Return the parts that an export has to check; each inner list is done in its order by one `export_parts`.

    Under ``on_corrupt="stop"`` a list has a whole log. The selection's range of times counts. With `keep_deleted`, the
    table keeps records below the log start offset, which retention has removed from the log. Raises RequestError if two
    files are the same part of the same partition, and StorageError for a log whose folder cannot be listed.
    """
    notes = table.notes()
    groups: list[list[ExportPart]] = []
    seen: dict[str, str] = {}
    for log in logs:
        if log.error is not None:
            raise StorageError(log.error.path, log.error.operation, log.error.reason, log.error.errno)
        parts = _parts_of_log(log, table, notes, selection, state, keep_deleted)
        for part in parts:
            other = seen.setdefault(part.note, part.segment.path)
            if other != part.segment.path:
                raise RequestError(
                    f"{other} and {part.segment.path} are the same part of the same partition: export one of them"
                )
        groups += [parts] if state.ends_at_damage else [[part] for part in parts]
    return [group for group in groups if group]


def _parts_of_log(
    log: LogFiles,
    table: TableExport,
    notes: dict[tuple[str, int], list[int]],
    selection: Selection,
    state: ReadState,
    keep_deleted: bool,
) -> list[ExportPart]:
    if not log.segments:
        return []
    reader, end = LogReader.of(log, selection, state), OPEN_END
    if state.reading.isolation_level == "read_committed":
        # Below it all transactions are decided forever, so each segment can be read by itself, now and later.
        skips = state.reading.on_corrupt == "skip"
        stable = last_stable_offset(list(log.segments), log.snapshots, {} if skips else None)
        end = OPEN_END if stable is None else stable
        log = _Decided(*log)
    head = log.segments[0]
    key = (head.topic or NO_VALUE, head.partition)
    noted_at = notes.get(key, [])
    before = [base for base in noted_at if base < head.base_offset]
    lowest = 0 if keep_deleted else log.log_start_offset
    if before and keep_deleted:
        newest = read_note(table.store, note_name(key, before[-1]))
        lowest = max(lowest, 0 if newest is None else int(newest.get("covered", 0)))
    parts: list[ExportPart] = []
    bases = [segment.base_offset for segment in log.segments]
    for i, segment in enumerate(log.segments):
        following = bases[i + 1] if i + 1 < len(bases) else OPEN_END
        first = max(lowest, reader.first_offset, segment.base_offset)
        highest = min(following, end)
        last = min(highest, reader.end_offset)
        if first >= last:
            continue
        files = log if isinstance(log, _Decided) else log._replace(segments=[segment])
        span = PartSpan(first, last, *selection.times)
        stale = [base for base in noted_at if segment.base_offset < base < following]
        names = tuple(note_name(key, base) for base in stale)
        parts.append(ExportPart(files, segment, span, max(lowest, segment.base_offset), highest, state, names))
    if not parts:
        return []
    # What was noted beyond the end is of a log that was truncated, or of a topic that was deleted and made again.
    beyond = [] if selection.until is not None else [base for base in noted_at if base > parts[-1].segment.base_offset]
    own = {part.segment.base_offset for part in parts}
    start = max(head.base_offset, log.log_start_offset)
    deleted = [] if keep_deleted else [base for base in noted_at if base < start and base not in own]
    names = tuple(note_name(key, base) for base in deleted)
    parts[0] = replace(parts[0], superseded=(*names, *parts[0].superseded))
    more = {*parts[-1].superseded, *(note_name(key, base) for base in beyond)}
    parts[-1] = replace(parts[-1], superseded=tuple(sorted(more)))
    return parts


class _Decided(LogFiles):
    """A log that is read up to its last stable offset at most, a segment at a time."""

    __slots__ = ()

    def chunks(self, first_offset: int, end_offset: int, state: ReadState) -> Iterator[Chunk]:
        segments = list(self.segments)
        skips = state.reading.on_corrupt == "skip"
        outcomes = Transactions(segments, self.snapshots, first_offset, ends_stable=True, skips=skips)
        number = max(0, bisect_right([segment.base_offset for segment in segments], first_offset) - 1)
        yield from PartitionReader(
            segments[number : number + 1], first_offset, end_offset, state, transactions=outcomes
        )


def export_parts(
    parts: Sequence[ExportPart], table: TableExport, advance: Callable[[int], None] | None = None
) -> list[ExportedPart]:
    """Write changed parts to ``OUT/topic=NAME/date=YYYY-MM-DD/<partition>-<base offset>-<n>.parquet``.

    The parts are one of the lists of `plan_parts`; the table may have travelled to another process. `advance` as of
    `export_part`.
    """
    done: list[ExportedPart] = []
    for number, part in enumerate(parts):
        done.append(_export_part(part, table, advance))
        if part.state.ends_at_damage and done[-1].problem is not None and done[-1].state != "gone":
            left = parts[number + 1 :]
            problem = f"after the damage: {done[-1].problem}"
            done += [_result(later, "skipped", problem=problem) for later in left]
            if not table.dry_run:
                for later in left:
                    _withdraw(table.store, [later.note, *later.superseded])
            break
    return done


def export_logs(
    logs: Sequence[LogFiles],
    table: TableExport,
    selection: Selection,
    state: ReadState,
    *,
    keep_deleted: bool = True,
    executor: Executor = INLINE,
    on_bytes: Callable[[int], None] | None = None,
) -> list[ExportedPart]:
    """Bring a table up to date with logs: an executor exports the lists of `plan_parts`, with its arguments."""
    with table.open_run([log.name for log in logs]):
        groups = plan_parts(logs, table, selection, state, keep_deleted=keep_deleted)
        sizes = [sum(part.segment.size for part in parts) for parts in groups]
        load = Workload("pylogseg export", sizes, on_bytes, () if table.dry_run else table.store.folders)
        work = functools.partial(_export, table=table)
        return [part for parts in executor.map(work, groups, load) for part in parts]


def _export(parts: Sequence[ExportPart], advance: Advance, table: TableExport) -> list[ExportedPart]:
    return export_parts(parts, table, advance)


@declare_columns(*EXPORTED)
class DatedFile(NamedTuple):
    """A file of a table by date, or a segment without one, or records that are missing."""

    topic: str | None
    partition: int | None
    base_offset: int | None
    state: str
    path: str | None = None
    records: int | None = 0
    size_bytes: int | None = None
    problem: str | None = None


def files_of_part(part: ExportedPart, store: ObjectStore) -> list[DatedFile]:
    """Return the files of a part; one without a path if it has none."""
    where = part.topic, part.partition, part.base_offset, part.state
    if not part.files:
        return [DatedFile(*where, records=None if part.state == "to do" else 0, problem=part.problem)]
    return [DatedFile(*where, store.name(path), count, size, part.problem) for path, count, size in part.files]


def missing_files(
    disk: Disk,
    logs: Iterable[LogFiles],
    selection: Selection,
    state: ReadState,
    choice: PartitionChoice,
) -> Iterator[DatedFile]:
    """Yield the lost records of logs, chosen from a disk, as other files show them."""
    readers = [LogReader.of(log, selection, state) for log in logs]
    for finding in lacking_for(disk, readers, choice):
        above, name = os.path.split(finding.path)
        folder = parse_partition_folder(name) or parse_partition_folder(os.path.basename(above))
        topic, number = (folder.topic, folder.partition) if folder else (None, None)
        (problem,) = finding_texts([finding])
        yield DatedFile(topic, number, finding.offset, "missing", problem=problem)


def _export_part(part: ExportPart, table: TableExport, advance: Callable[[int], None] | None) -> ExportedPart:
    store = table.store
    before = None if table.starts_empty else read_note(store, part.note)
    others = [old for name in part.superseded if (old := read_note(store, name)) is not None]
    span = part.span
    for old in (before, *others):
        span = span if old is None or "span" not in old else span.join_span(PartSpan(*old["span"]))
    span = replace(span, first=max(span.first, part.lowest), end=min(span.end, part.highest))
    if before is not None and not part.superseded and _is_same(before, span, part, store):
        return _result(part, "unchanged", _noted_files(before), before["problem"] or before.get("times"))
    if table.dry_run:
        return _result(part, "to do")
    source = mark_of(part.segment)
    state = replace(part.state, gaps=[], on_bytes=advance)
    # To the end of the file: there may be damage after the last offset.
    end = OPEN_END if span.end == part.segment.next_base else span.end
    reader = LogReader(part.log, span.first, end, Selection(since=span.since, until=span.until), state)
    with table.scratch() as folder:
        name = f"{part.segment.partition}-{part.segment.base_offset:020d}"
        files = _Files(folder, table.form, name)
        try:
            written = _write(reader, files, store)
        except UnfitTimeError:
            state.gaps.clear()
            files = _Files(folder, replace(table.form, has_exact_times=True), name)
            written = _write(reader, files, store)
        if any(gap.kind is GapKind.REMOVED for gap in state.gaps):
            # What the table has of it is all that there will be.
            files.discard()
            kept = [] if before is None else _noted_files(before)
            return _result(part, "gone", kept, "; ".join(map(str, state.gaps)))
        problem = "; ".join(str(gap) for gap in state.gaps if gap.is_damage) or None
        times = "; ".join(str(gap) for gap in joined_times(state.gaps) if gap.kind is GapKind.TIME) or None
        note = {
            "span": [span.first, span.end, span.since, span.until],
            "covered": files.covered if span.end == OPEN_END else span.end,
            "source": source,
            "on_corrupt": part.state.reading.on_corrupt,
            "problem": problem,
            "times": times,  # All records are there: no reader of the notes has to hear of it.
        }
        stale = {path for old in (before, *others) for path in paths_in_note(old)} - {file[0] for file in written}
        # Said before it is done: who comes after a crash in the middle knows all names that may be there.
        pending = sorted(stale | {file[0] for file in written})
        write_note(store, part.note, {"pending": pending, "span": note["span"]})
        tags = [store.put(name, files.apart(name)).tag for name, _, _ in written]
    _delete(store, stale)
    for name in part.superseded:
        store.delete(note_key(name))
    note["files"] = [[*file, tag] for file, tag in zip(written, tags, strict=True)]
    write_note(store, part.note, note)
    return _result(part, "written", written, problem or times)


def _result(
    part: ExportPart, state: str, files: Iterable[tuple[str, int, int]] = (), problem: str | None = None
) -> ExportedPart:
    segment = part.segment
    return ExportedPart(segment.topic, segment.partition, segment.base_offset, state, list(files), problem)


def _noted_files(note: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(name, records, size) for name, records, size, *_ in note["files"]]


def _is_same(before: dict[str, Any], span: PartSpan, part: ExportPart, store: ObjectStore) -> bool:
    if "pending" in before or PartSpan(*before["span"]) != span:
        return False
    # Where something could not be read it depends on what was asked for then.
    if before["problem"] is not None and before["on_corrupt"] != part.state.reading.on_corrupt:
        return False
    noted_files = [(name, Fingerprint(size, *tag)) for name, _, size, *tag in before["files"]]
    if not all(_FILE.fullmatch(name) and store.has(name, stored) for name, stored in noted_files):
        return False
    return is_marked(part.segment, before["source"])


def _withdraw(store: ObjectStore, names: Iterable[str]) -> None:
    """Remove the files that notes name, and the notes."""
    for name in names:
        _delete(store, paths_in_note(read_note(store, name)))
        store.delete(note_key(name))


def _delete(store: ObjectStore, paths: Iterable[str]) -> None:
    """Remove data files; leave names alone that no export gives, even if a note lists them."""
    for path in paths:
        if _FILE.fullmatch(path):
            store.delete(path)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _write(part: LogReader, files: _Files, store: ObjectStore) -> list[tuple[str, int, int]]:
    try:
        for chunk in part.chunks():
            files.form.check_times(chunk, part.gaps)
            for date, records in _by_date(chunk):
                files.write(date, records)
        return files.finish()
    except BaseException as error:
        files.discard()
        # What a write says names no file: a disk that is full, a limit of size.
        if isinstance(error, OSError) and not isinstance(error, StorageError) and error.filename is None:
            raise storage_error(store.url, "write", error) from error
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
    """The files of one part: a few open ones, and finished ones; all lie in a folder for unfinished files."""

    def __init__(self, folder: Path, form: Form, name: str) -> None:
        self._folder, self.form, self._name = folder, form, name
        self._open: dict[str, tuple[str, contextlib.ExitStack, Any]] = {}
        self._records: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._mark = uuid.uuid4().hex  # another attempt at the same part may be running
        #: Offset after the last record.
        self.covered = 0

    def write(self, date: str, chunk: Chunk) -> None:
        if date not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._close(next(iter(self._open)))
            self._begin(date, chunk)
        name, _, sink = self._open[date]
        self._records[name] += sink.write(chunk)
        self.covered = max(self.covered, chunk.columns.tally().highest_offset + 1)

    def _begin(self, date: str, chunk: Chunk) -> None:
        number = self._numbers[date] = self._numbers.get(date, -1) + 1
        folder = f"topic={chunk.topic or NO_VALUE}/date={date}"
        name = f"{folder}/{self._name}-{number:04d}{FORMS[self.form.name]}"
        stack = contextlib.ExitStack()
        file = stack.enter_context(self.apart(name).open("wb"))
        sink = stack.enter_context(SINKS[self.form.name](file, self.form))
        self._open[date], self._records[name] = (name, stack, sink), 0

    def apart(self, name: str) -> Path:
        """Return the path of a file until it has its name."""
        return self._folder / f"{'-'.join(name.split('/')[-2:])}.{self._mark}"

    def _close(self, date: str) -> None:
        self._open.pop(date)[1].close()

    def finish(self) -> list[tuple[str, int, int]]:
        """Close all files: name, records, bytes."""
        for date in list(self._open):
            self._close(date)
        return [(name, records, self.apart(name).stat().st_size) for name, records in self._records.items()]

    def discard(self) -> None:
        for _, stack, _ in self._open.values():
            with contextlib.suppress(Exception):
                stack.close()
        for name in self._records:
            self.apart(name).unlink(missing_ok=True)
