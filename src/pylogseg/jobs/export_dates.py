"""The records of a part of a log as Parquet or Arrow files by topic and date, as tables of a data lake are laid out.

All files of a part appear at its end, and a note of them beside the table: who comes again sees what there is to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pylogseg.errors import RequestError, StorageError
from pylogseg.jobs.export import DEFAULT_COLUMNS, FORMS, NO_VALUE, SINKS, Form
from pylogseg.reading.findings import Gap
from pylogseg.reading.partition import Chunk
from pylogseg.reading.wanted import Wanted

#: The topic is in the name of a folder; the partition is not, so it is a column.
COLUMNS = ("partition", *DEFAULT_COLUMNS)
#: Readers of datasets pass by names that begin with an underscore.
NOTES = "_pylogseg"
_DAY_MS = 86_400_000
#: Files that are open at the same time: a timestamp may be anything, and each file holds a row group in memory.
_OPEN_FILES = 16


@dataclass(frozen=True)
class ExportedPart:
    """What became of one part of a log.

    Attributes
    ----------
    topic, partition, base_offset : str, int, int
        Of its first segment.
    source_bytes, modified_ms : int
        Of that segment: what tells whether it has changed since.
    form : str
        Columns and compression of the files.
    files : list of (str, int, int)
        Path below the folder of the table, records, bytes.
    state : str
        ``"written"``, ``"unchanged"``, or ``"to do"`` in a dry run.
    gaps : list of Gap
        What could not be read.
    """

    topic: str
    partition: int
    base_offset: int
    source_bytes: int
    modified_ms: int
    form: str
    files: list[tuple[str, int, int]]
    state: str
    gaps: list[Gap]


def export_part_by_date(
    wanted: Wanted,
    out: Path,
    form: Form,
    advance: Callable[[int], None] | None = None,
    *,
    dry_run: bool = False,
) -> ExportedPart:
    """Write the records of a part to ``OUT/topic=NAME/date=YYYY-MM-DD/<partition>-<base offset>-<n>.parquet``.

    Parameters
    ----------
    wanted : Wanted
        For example one segment, from `Wanted.by_segment`.
    out : Path
        The folder of the table; made where it is not there.
    form : Form
        ``parquet`` or ``arrow``, columns and compression. Dates are those of the timestamps, in UTC.
    advance : callable, optional
        Gets the bytes read since its last call; may raise, to end the work.
    dry_run : bool
        Only say whether there is something to do.

    Returns
    -------
    ExportedPart
        ``unchanged`` if the same was done before and the segment has not changed since.
    """
    if form.name not in ("parquet", "arrow"):
        raise RequestError(f"files by date are parquet or arrow, not {form.name}")
    segment = wanted.log.segments[0]
    shape = f"{form.name} {form.compression} {','.join(form.columns)} {wanted.options.isolation}"
    shape += f" {wanted.first_offset}:{wanted.end_offset} {wanted.since}:{wanted.until}"
    now = ExportedPart(
        segment.topic, segment.partition, segment.base_offset, segment.size, segment.modified_ms, shape, [], "to do", []
    )
    note = out / NOTES / f"{segment.topic or NO_VALUE}-{segment.partition}-{segment.base_offset:020d}.json"
    before = _noted(note)
    if before is not None and _is_same(now, before, out):
        return replace(now, files=[(f[0], f[1], f[2]) for f in before["files"]], state="unchanged")
    if dry_run:
        return now
    part = wanted.apart(advance)
    files = _write(part, out, form, f"{segment.partition}-{segment.base_offset:020d}")
    for stale in {each[0] for each in (before or {"files": []})["files"]} - {each[0] for each in files}:
        (out / stale).unlink(missing_ok=True)
    done = replace(now, files=files, state="written", gaps=part.gaps)
    note.parent.mkdir(parents=True, exist_ok=True)
    beside = note.with_name(f".{note.name}.{uuid.uuid4().hex}.tmp")
    beside.write_text(json.dumps({name: value for name, value in asdict(done).items() if name != "gaps"}))
    os.replace(beside, note)
    return done


def clear_up(out: Path, parts: Iterable[ExportedPart]) -> None:
    """Remove what attempts that died have begun beside the files of parts; for when no attempt is running any more."""
    starts: dict[Path, set[str]] = {}
    for part in parts:
        for path, _, _ in part.files if part.state == "written" else ():
            starts.setdefault((out / path).parent, set()).add(f".{part.partition}-{part.base_offset:020d}-")
    for folder, names in starts.items():
        for entry in os.scandir(folder):
            if entry.name.endswith(".tmp") and any(entry.name.startswith(name) for name in names):
                Path(entry.path).unlink(missing_ok=True)


def _noted(note: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(note.read_text())
    except (FileNotFoundError, ValueError):  # written by something that died: it is done again
        return None
    return found


def _is_same(now: ExportedPart, before: dict[str, Any], out: Path) -> bool:
    names = ("source_bytes", "modified_ms", "form")
    if any(before.get(name) != getattr(now, name) for name in names):
        return False
    return all((out / path).is_file() and (out / path).stat().st_size == size for path, _, size in before["files"])


def _write(part: Wanted, out: Path, form: Form, name: str) -> list[tuple[str, int, int]]:
    files = _Files(out, form, name)
    try:
        for chunk in part.chunks():
            for date, records in _by_date(chunk):
                files.write(date, records)
        return files.finish()
    except BaseException as error:
        files.discard()
        # What a write says names no file: a disk that is full, a limit of size.
        if isinstance(error, OSError) and not isinstance(error, StorageError) and error.filename is None:
            raise StorageError(str(out), "write", error.strerror or str(error)) from error
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

    def __init__(self, out: Path, form: Form, name: str) -> None:
        self._out, self._form, self._name = out, form, name
        self._open: dict[str, tuple[Path, contextlib.ExitStack, Any]] = {}
        self._records: dict[Path, int] = {}
        self._numbers: dict[str, int] = {}
        self._mark = uuid.uuid4().hex  # another attempt at the same part may be running

    def write(self, date: str, chunk: Chunk) -> None:
        """Add records of one date."""
        if date not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._close(next(iter(self._open)))
            self._begin(date, chunk)
        target, _, sink = self._open[date]
        sink.write(chunk)
        self._records[target] += len(chunk.columns)

    def _begin(self, date: str, chunk: Chunk) -> None:
        number = self._numbers[date] = self._numbers.get(date, -1) + 1
        folder = self._out / f"topic={chunk.topic or NO_VALUE}" / f"date={date}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self._name}-{number:04d}{FORMS[self._form.name]}"
        stack = contextlib.ExitStack()
        file = stack.enter_context(self._beside(target).open("wb"))
        sink = stack.enter_context(SINKS[self._form.name](file, self._form))
        self._open[date], self._records[target] = (target, stack, sink), 0

    def _beside(self, target: Path) -> Path:
        return target.with_name(f".{target.name}.{self._mark}.tmp")

    def _close(self, date: str) -> None:
        self._open.pop(date)[1].close()

    def finish(self) -> list[tuple[str, int, int]]:
        """Give all files their names: path below the folder, records, bytes."""
        for date in list(self._open):
            self._close(date)
        for target in self._records:
            os.replace(self._beside(target), target)
        return [
            (target.relative_to(self._out).as_posix(), records, target.stat().st_size)
            for target, records in self._records.items()
        ]

    def discard(self) -> None:
        """Remove what was written."""
        for _, stack, _ in self._open.values():
            with contextlib.suppress(Exception):
                stack.close()
        for target in self._records:
            self._beside(target).unlink(missing_ok=True)
