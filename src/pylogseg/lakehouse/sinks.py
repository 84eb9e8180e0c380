"""What a table has to offer to be written to, each range of a log once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.errors import PylogsegError
from pylogseg.lakehouse.ledger import Ledger

#: Columns of bytes, of which neither a dictionary nor the least and greatest are of use, and both copy each of them.
UNMEASURED = ("value", "headers")
#: Offsets by partition, ascending.
Offsets = dict[int, npt.NDArray[np.int64]]


class ConflictError(PylogsegError):
    """Another commit came first; go on from the table's new state. If it is `certain`, this one was not made."""

    kind = "conflict"

    def __init__(self, reason: str, *, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


@dataclass(frozen=True)
class FilePlace:
    """Where the files of a table go, and what is in them; it may travel to another process."""

    folder: Path
    schema: pa.Schema  #: Of the files.
    by_day: Callable[[int], str]  #: Name of the folder of a day below `folder`; days are counted from 1970 on.


class NewFile(NamedTuple):
    """A file that was written, and is in the table once it is committed."""

    path: Path
    rows: int
    size: int
    day: int  #: Of all its timestamps, in UTC.
    metadata: Any  #: Of Parquet.


class Sink(Protocol):
    """A table of one format.

    ``name``
        For messages.
    ``folder``
        Where its files go, once `load` has found it.
    ``load(partitions)``
        Look at the table as it is now; return its newest ledger along its history, None if it has none. Partitions
        are those of the log.
    ``is_there``
        Whether `load` found a table.
    ``make(schema, ledger)``
        Make the table; nothing if another run has made it just now. What it has then, `load` says.
    ``open(schema, is_new)``
        Check that it can take rows with these columns, and if it has no ledger yet that it is ours; return where files
        go.
    ``commit(files, ledger)``
        Commit rows and ledger at once, if the table still is as it was loaded or last committed to; else
        `ConflictError`. After any other error it is not known whether it was made.
    ``offsets(first)``
        Read which offsets of these partitions, from the given ones on, the table has.
    ``files()``
        Return the paths of all files that the table or an earlier state of it that can still be read has.
    """

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    def load(self, partitions: Iterable[int]) -> Ledger | None: ...
    @property
    def is_there(self) -> bool: ...
    def make(self, schema: pa.Schema, ledger: Ledger) -> None: ...
    def open(self, schema: pa.Schema, is_new: bool) -> FilePlace: ...
    def commit(self, files: Sequence[NewFile], ledger: Ledger) -> None: ...
    def offsets(self, first: dict[int, int]) -> Offsets: ...
    def files(self) -> Collection[Path]: ...


def is_plain(schema: pa.Schema) -> bool:
    """Whether keys and values are bytes; parts of typed ones are small, and have statistics."""
    return not any(pa.types.is_nested(field.type) for field in schema if field.name in ("key", "value"))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without what readers of a table are free to choose: sizes of offsets, names in lists, metadata."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def differences(have: pa.Schema, want: pa.Schema) -> list[str]:
    """Return why a table cannot take rows with the columns that are wanted, by column."""
    found = []
    for field in want:
        there = have.field(field.name).type if field.name in have.names else None
        if there is None:
            found.append(f"it has no column {field.name}")
        elif plain_type(there) != plain_type(field.type):
            found.append(f"column {field.name} is {plain_type(there)}, and rows have {plain_type(field.type)}")
    return found


def offsets_of(rows: pa.Table) -> Offsets:
    """Return the offsets of rows with the columns ``partition`` and ``offset``."""
    partition, offset = (rows.column(name).to_numpy() for name in ("partition", "offset"))
    return {int(number): np.sort(offset[partition == number]) for number in np.unique(partition)}
