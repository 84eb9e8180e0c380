"""All ways of Python to read a range of a partition, and their results in one form, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.errors import CorruptionError
from pylogseg.reading import ranges, scan
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading, ReadState
from pylogseg.tables import dataset as classes
from pylogseg.walker.gaps import Gap

Offsets = tuple[int | None, int | None]


class Result(NamedTuple):
    """The rows of a reading, as tuples of some columns; None where it is an error. And whether it lost any."""

    rows: list[tuple[Any, ...]] | None
    has_loss: bool

    def of(self, *columns: int) -> Result:
        """Return the same with some columns."""
        return (
            self if self.rows is None else Result([tuple(row[i] for i in columns) for row in self.rows], self.has_loss)
        )


class Way(NamedTuple):
    """A way to read; `columns` are those of (offset, key, value) that it gives."""

    name: str
    columns: tuple[int, ...]
    read: Callable[[], Result]


def use_small_pieces(monkeypatch: pytest.MonkeyPatch, window_bytes: int) -> None:
    """Let a small log have many tasks and windows."""
    for place in (scan, classes):
        monkeypatch.setattr(place, "TASK_BYTES", 700)
        monkeypatch.setattr(place, "ALONE_BYTES", 2_000)
    monkeypatch.setattr(classes, "FRAGMENT_BYTES", 2_000)
    monkeypatch.setattr(ranges, "OPEN_COST_BYTES", 0)
    monkeypatch.setattr("pylogseg.reading.state._log.disabled", True)
    check = ReadState.__post_init__

    def smaller(state: ReadState) -> None:
        check(state)
        if window_bytes:
            state.window_bytes = state.first_window_bytes = window_bytes

    monkeypatch.setattr(ReadState, "__post_init__", smaller)


def result_of(rows: Callable[[], list[tuple[Any, ...]]], gaps: Callable[[], list[Gap]]) -> Result:
    """Return what a reading gives; an error that is none of damage is the caller's."""
    try:
        found = rows()
    except CorruptionError:
        return Result(None, True)
    except pa.ArrowInvalid as error:  # that of Python is inside
        if "CorruptionError" not in str(error):
            raise
        return Result(None, True)
    return Result(found, any(gap.is_loss for gap in gaps()))


def by_records(folder: Path, offsets: Offsets, on_corrupt: Any) -> Result:
    """Read record by record in one go: the reading that the others are compared with."""
    reader = pylogseg.read(folder, offset=offsets, on_corrupt=on_corrupt)
    return result_of(lambda: [(r.offset, r.key, r.value) for r in reader], lambda: reader.gaps)


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _arrow(source: Any, offsets: Offsets, on_corrupt: Any, columns: list[str], jobs: int) -> Result:
    reader = pylogseg.read(source, offset=offsets, on_corrupt=on_corrupt, columns=columns, jobs=jobs)
    return result_of(lambda: _tuples(pa.RecordBatchReader.from_stream(reader).read_all()), lambda: reader.gaps)


def _condition(offsets: Offsets) -> Any:
    first, end = offsets
    found = None if first is None else pc.field("offset") >= first
    below = None if end is None else pc.field("offset") < end
    return below if found is None else found if below is None else found & below


def _dataset(folder: Path, offsets: Offsets, on_corrupt: Any, columns: list[str], use_threads: bool) -> Result:
    table = pylogseg.dataset(folder, on_corrupt=on_corrupt)
    read = lambda: table.to_table(columns=columns, filter=_condition(offsets), use_threads=use_threads)  # noqa: E731
    return result_of(lambda: _tuples(read()), lambda: table.gaps)


def _parts(folder: Path, offsets: Offsets, on_corrupt: Any, target: int | None) -> Result:
    (log,) = logs_of(open_dir(folder))
    selection = Selection(offsets=OffsetRange(*offsets))
    parts = LogReader.of(log, selection, Reading(on_corrupt=on_corrupt).start()).parts(target)

    def rows() -> list[tuple[Any, ...]]:
        chunks = (chunk.columns for part in parts for chunk in part.chunks())
        return [(int(c.offset[i]), c.key(i), c.value(i)) for c in chunks for i in range(len(c))]

    return result_of(rows, lambda: [gap for part in parts for gap in part.gaps])


def ways(folder: Path, offsets: Offsets, on_corrupt: Any) -> Iterator[Way]:
    """Yield the ways to read a range of offsets of a partition."""
    every, both = ["offset", "key", "value"], (folder, open_dir(folder, memory_map=True))
    for name, source in zip(("copied", "mapped"), both, strict=True):
        for jobs in (1, 2, 5):
            arrow = lambda jobs=jobs, source=source: _arrow(source, offsets, on_corrupt, every, jobs=jobs)  # noqa: E731
            yield Way(f"{name}, {jobs} jobs", (0, 1, 2), arrow)
    for jobs in (1, 2):
        for columns in ((0,), (2,), (0, 1)):
            names = [every[i] for i in columns]
            some = lambda jobs=jobs, names=names: _arrow(folder, offsets, on_corrupt, names, jobs=jobs)  # noqa: E731
            yield Way(f"{jobs} jobs, {' and '.join(names)}", columns, some)
    for jobs in (1, 3):
        for names in (["offset", "headers"], ["offset", "timestamp", "sequence"], ["offset", "position", "isControl"]):
            some = lambda jobs=jobs, names=names: _arrow(folder, offsets, on_corrupt, names, jobs).of(0)  # noqa: E731
            yield Way(f"{jobs} jobs, {' and '.join(names)}", (0,), some)
    for threads in (False, True):
        table = lambda threads=threads: _dataset(folder, offsets, on_corrupt, every, threads)  # noqa: E731
        yield Way(f"a dataset, threads {threads}", (0, 1, 2), table)
    yield Way("a dataset of offsets", (0,), lambda: _dataset(folder, offsets, on_corrupt, ["offset"], False))
    for target in (None, 600, 1500):
        yield Way(
            f"parts of {target} bytes", (0, 1, 2), lambda target=target: _parts(folder, offsets, on_corrupt, target)
        )
