"""The rows of a table as sorted runs in temporary files: offset and hash of each, by partition.

A batch of rows of a data file becomes a run for each partition in it. Runs are read again in ranges of offsets, so that
no more of a table lies in memory than the part of the log that it is compared with.
"""

from __future__ import annotations

import heapq
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.env.executor import Advance
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.batches import OffsetArray
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.audit_values import Hashes, Slots, hash_bytes, hash_values, in_type, row_hashes
from pylogseg.lakehouse.foreign import Batch, DataFile, read_rows

#: A run: which rows it has, and where they lie in their temporary file.
RUN = np.dtype(
    [("topic", "i4"), ("partition", "i4"), ("file", "i4"), ("spill", "i4")]
    + [(name, "i8") for name in ("position", "count", "first", "last")]
)

#: The topic of a table without a column for it, and the partition likewise.
NONE = -1

#: From here on a float has no place for each whole number.
_EXACT = 2.0**53

Runs = npt.NDArray[Any]
#: Topic and partition of each row.
_Codes = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


class FilePiece(NamedTuple):
    """Some row groups of a data file, which one thread reads."""

    number: int  #: Of the piece, and of its temporary file.
    file_number: int
    file: DataFile
    groups: tuple[int, ...]
    first_row: int
    size: int  #: Bytes of the columns, about.


class PieceRows(NamedTuple):
    """The rows of a piece of a table: as runs, or as sums by hour."""

    rows: npt.NDArray[Any]
    topics: list[str]  #: What the numbers of topics in these mean.
    unnamed: int = 0  #: Rows without an offset or a time, or without a partition.
    error: str | None = None  #: Why the file could not be read, or not to its end.


@dataclass(frozen=True)
class Spilling:
    """Reads pieces of a table and leaves their rows as runs in a folder."""

    folder: str
    columns: TableColumns
    secret: tuple[int, int]

    def run(self, piece: FilePiece, advance: Advance) -> PieceRows:
        """Read one piece; the result names an error, if any."""
        runs: list[tuple[int, ...]] = []
        topics: dict[str | None, int] = {}
        unnamed, at, error = 0, 0, None
        # A task may run twice: what it writes appears whole, and is the same.
        temporary, path = f"{self.folder}/{secrets.token_hex(8)}.part", spill_path(self.folder, piece.number)
        with open(temporary, "xb") as out:
            try:
                for batch in read_rows(piece.file, self.columns, piece.groups, piece.first_row):
                    codes, offsets, kept, without = self._sort_rows(batch, topics)
                    unnamed += without
                    for first, end in _stretches(codes):
                        of = offsets[first:end]
                        for column in (offsets, *kept):
                            out.write(column[first:end].tobytes())
                        where = (codes[0][first], codes[1][first], piece.file_number, piece.number, at)
                        runs.append((*where, end - first, of[0], of[-1]))
                        at += 8 * (1 + len(kept)) * (end - first)
                    advance(0)
            except StorageError as failed:
                error = str(failed)
            except RequestError as refused:
                raise RequestError(f"{piece.file.path}: {refused}") from refused
        os.replace(temporary, path)
        advance(piece.size)
        return PieceRows(np.array(runs, RUN), [topic or "" for topic in topics], unnamed, error)

    def _sort_rows(self, batch: Batch, topics: dict[str | None, int]) -> tuple[_Codes, OffsetArray, list[Hashes], int]:
        """Return rows sorted by topic, partition and offset, and the number of rows without an offset."""
        count = batch.rows
        offset, has_offset = numbers_of(batch.columns.get("offset"), count, np.int64)
        partition, has_partition = numbers_of(batch.columns.get("partition", NONE), count, np.int32)
        topic = topic_numbers(batch.columns.get("topic", ""), count, topics)
        types = {column.role: column.type for column in self.columns.decoded}

        def hash_role(role: str, out: Hashes) -> None:
            values = batch.columns[role]
            if role not in types:
                hash_bytes(self.secret, values, out)
            elif isinstance(values, pa.Array):  # dead letters have bytes, and are not compared
                hash_values(self.secret, in_type(values, types[role]), out)

        kept = [column for column in row_hashes(self.columns.compared, slots_of(self.columns), count, hash_role)
                if column is not None]  # fmt: skip
        which: Any = has_offset & has_partition
        without = int(count - np.count_nonzero(which))
        if not without and (not count or (_is_one(topic) and _is_one(partition) and (offset[1:] >= offset[:-1]).all())):
            return (topic, partition), offset, kept, 0
        if without:
            which = np.flatnonzero(which)
            which = which[np.lexsort((offset[which], partition[which], topic[which]))]
        else:
            which = np.lexsort((offset, partition, topic))
        return (topic[which], partition[which]), offset[which], [column[which] for column in kept], without


def slots_of(columns: TableColumns) -> Slots | None:
    """Return the slots that distinguish the columns of a row; None if no values are decoded."""
    return Slots([*columns.compared, *(column.role for column in columns.decoded)]) if columns.decoded else None


def spill_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number}.run")


def _is_one(values: npt.NDArray[Any]) -> bool:
    return bool((values == values[0]).all())


def _stretches(codes: _Codes) -> list[tuple[int, int]]:
    """Return the ranges of rows of the same topic and partition."""
    topic, partition = codes
    if not len(topic):
        return []
    ends = np.flatnonzero((topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])) + 1
    return list(pairwise([0, *ends.tolist(), len(topic)]))


def numbers_of(column: Any, count: int, kind: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return a column of numbers, and a mask of the valid ones, without numbers out of range.

    Floats, decimals and text count if they are whole numbers exactly; RequestError for one that is not.
    """
    if not isinstance(column, pa.Array):
        return numbers_of(pa.repeat(pa.scalar(column), count) if column is not None else pa.nulls(count), count, kind)
    column = _whole(column)
    values = pc.cast(column, pa.int64(), safe=False)
    there = np.ones(count, np.bool_) if not column.null_count else np.asarray(pc.is_valid(column))
    numbers = np.asarray(values.fill_null(0) if column.null_count else values)
    if kind is not np.int64:
        there = there & (numbers == numbers.astype(kind))
    return numbers.astype(kind, copy=False), there


def _whole(column: pa.Array) -> pa.Array:
    """Return floats, decimals and text as whole numbers; a float that is no number is a null, as pandas has it."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return column
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        inexact = pc.filter(column, pc.greater_equal(pc.abs(column), _EXACT))
        if len(inexact):
            raise RequestError(f"the column has {inexact[0]}, and a float of this size may be another whole number")
    try:
        return pc.cast(column, pa.int64())
    except pa.ArrowInvalid as error:
        raise RequestError(f"the column has a value that is not a whole number: {error}") from error


def topic_numbers(given: Any, count: int, topics: dict[str | None, int]) -> npt.NDArray[np.int32]:
    """Return the number of each row's topic; new topics are added."""
    if not isinstance(given, pa.Array):
        return np.full(count, topics.setdefault(given, len(topics)), np.int32)
    encoded = given if pa.types.is_dictionary(given.type) else given.dictionary_encode(null_encoding="encode")
    names = [_text(name) for name in encoded.dictionary.to_pylist()]
    numbers = np.array([topics.setdefault(name, len(topics)) for name in names] or [0], np.int32)
    codes: npt.NDArray[np.int32] = numbers[np.asarray(encoded.indices.fill_null(0))]
    return codes


def _text(name: Any) -> str | None:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


class TableRows(NamedTuple):
    """Some rows of one partition, by offset; of rows with the same offset, in the order of the files."""

    offset: OffsetArray
    hash: Hashes
    file: npt.NDArray[np.int32]
    names: Hashes | None = None  #: Which columns they are by, see `Slots`.


class RunReader:
    """Gives the rows of one partition from an offset on, in order, up to an offset at a time.

    `has_names` says that runs have what tells columns apart.
    """

    def __init__(self, folder: str, runs: Runs, first_offset: int, has_names: bool = False) -> None:
        self._folder, self._first, self._words = folder, first_offset, 2 + has_names
        runs = runs[runs["last"] >= first_offset]
        self._waiting = runs[np.lexsort((runs["file"], runs["first"]))]
        self._next = 0
        #: By next offset: what is open of each run.
        self._open: list[tuple[int, int, _OpenRun]] = []

    def take(self, limit: int) -> TableRows:
        """Return the rows below an offset that were not taken before."""
        waiting = self._waiting
        while self._next < len(waiting) and waiting["first"][self._next] < limit:
            opened = _OpenRun(self._folder, waiting[self._next], self._first, self._words)
            heapq.heappush(self._open, (opened.next_offset, self._next, opened))
            self._next += 1
        taken = []
        while self._open and self._open[0][0] < limit:
            _, number, run = heapq.heappop(self._open)
            taken.append((run.file, number, run.take(limit)))
            if run.next_offset is not None:
                heapq.heappush(self._open, (run.next_offset, number, run))
        return _merge_runs([(rows, file) for file, _, rows in sorted(taken, key=lambda run: run[:2])], self._words)


class _OpenRun:
    """A run that is read; its file is mapped, so that only the pages of the offsets that are asked for are read."""

    def __init__(self, folder: str, run: Any, first_offset: int, words: int) -> None:
        count, position = int(run["count"]), int(run["position"])
        path = spill_path(folder, int(run["spill"]))
        self.file = int(run["file"])
        columns = np.memmap(path, np.int64, "r", position, (words, count))
        self._offsets, self._hashes = columns[0], columns[1:].view(np.uint64)
        self._at = int(np.searchsorted(self._offsets, first_offset))

    @property
    def next_offset(self) -> Any:
        return int(self._offsets[self._at]) if self._at < len(self._offsets) else None

    def take(self, limit: int) -> tuple[OffsetArray, Hashes]:
        """Return offsets, and a row of hashes for each column of them."""
        first = self._at
        self._at = first + int(np.searchsorted(self._offsets[first:], limit))
        return np.array(self._offsets[first : self._at]), np.array(self._hashes[:, first : self._at])


def _merge_runs(found: Sequence[tuple[tuple[OffsetArray, Hashes], int]], words: int) -> TableRows:
    if not found:
        none = np.empty(0, np.uint64)
        return TableRows(np.empty(0, np.int64), none, np.empty(0, np.int32), none if words > 2 else None)
    offset = np.concatenate([rows[0] for rows, _ in found])
    hashes = np.concatenate([rows[1] for rows, _ in found], axis=1)
    file = np.concatenate([np.full(len(rows[0]), number, np.int32) for rows, number in found])
    if len(found) > 1 and (offset[1:] < offset[:-1]).any():
        order = np.argsort(offset, kind="stable")
        offset, hashes, file = offset[order], hashes[:, order], file[order]
    return TableRows(offset, hashes[0], file, hashes[1] if words > 2 else None)
