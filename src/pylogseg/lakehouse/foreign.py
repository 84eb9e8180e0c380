"""Tables of any writer as a list of data files, which an audit reads."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogseg.env.file_errors import walk_folders
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.columns import declare_columns, line_type
from pylogseg.format.words import count_text
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.formats import FORMATS, TABLE_TEXT, NoTableError, format_errors
from pylogseg.lakehouse.ledger import Ledger
from pylogseg.lakehouse.library_errors import library_errors

#: Rows that are read at a time: fewer where they are large. What more need is fresh memory again and again.
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 32 << 20

#: Rows of a table in memory that are one piece of work.
_PART_ROWS = 1 << 20

Positions = npt.NDArray[np.int64]


@declare_columns(line_type("finding"), with_fields=True)
class TableFinding(NamedTuple):
    """A note on a table as a whole, or on a file of it.

    Attributes
    ----------
    kind : {"hidden", "unread", "bounds", "ledger", "twice", "repeated", "note"}
        Rows that queries with a filter do not see; a file, or rows of it, that were not looked at; bounds in the
        metadata that a file's own contradict; a ledger that is of another log; a file listed twice; a commit that was
        made twice; nothing wrong.
    text : str
        What, with the remedy.
    file : str or None
    rows : int or None
        The number of rows it is about; None if unknown.
    """

    kind: str
    text: str
    file: str | None = None
    rows: int | None = None

    @property
    def is_wrong(self) -> bool:
        """True if it makes the table wrong by itself; doubles are counted with the rows."""
        return self.kind in ("hidden", "bounds", "ledger")

    def lines(self) -> Iterator[str]:
        """Yield the line for people."""
        rows = "" if self.rows is None else f" ({count_text(self.rows, 'row')})"
        yield f"{self.kind}: {'' if self.file is None else f'{self.file}: '}{self.text}{rows}"


@dataclass(frozen=True)
class DataFile:
    """A data file of a table; one that is listed twice is there twice.

    `origin` is the snapshot or version that added it, for people. `constants` are columns that the file itself does not
    have. `deleted` are positions of rows that the table has deleted. `open` returns what pyarrow opens, if the path is
    not one of this machine. `names` are those of the columns in the file where they differ from the table's.
    """

    path: str
    origin: str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    deleted: Positions | None = None
    open: Callable[[], Any] | None = None
    names: Callable[[tuple[str, ...], pa.Schema], tuple[str, ...] | None] | None = None
    rows: int | None = None  #: How many the table says it has.
    #: What the table says of whole numbers, by column: the least and the greatest. Filters leave the file out by it.
    bounds: Mapping[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    #: Compares what else the table says of the file with its footer.
    check: Callable[[pq.FileMetaData, pa.Schema], Iterator[TableFinding]] | None = None
    is_dead: bool = False  #: Of the table of dead letters.
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]] | None = None

    def run_check(self, footer: pq.FileMetaData, schema: pa.Schema) -> Iterator[TableFinding]:
        if self.rows is not None and self.rows != footer.num_rows:
            text = f"the table says {self.rows} rows, the file has {footer.num_rows}: engines count wrong"
            yield TableFinding("bounds", text, self.path, footer.num_rows)
        for path, (first, last) in self.bounds.items() if self.deleted is None else ():
            place = path if self.names is None else self.names(path, schema)
            bounds = None if place is None else extremes(footer, place)
            if bounds is not None and isinstance(bounds[0], int) and (bounds[0] < first or bounds[1] > last):
                what = f"{'.'.join(path)} is {first} to {last}, the file has {bounds[0]} to {bounds[1]}"
                text = f"the table says {what}: queries that filter by it do not see all rows; write the file again"
                yield TableFinding("bounds", text, self.path, footer.num_rows)
        if self.check is not None:
            yield from self.check(footer, schema)

    def parquet(self, **how: Any) -> pq.ParquetFile:
        """Open the file, with arguments of pyarrow; StorageError if it is missing or no Parquet."""
        with library_errors(self.path, "read as Parquet"):
            try:
                return pq.ParquetFile(self.path if self.open is None else self.open(), **how)
            except FileNotFoundError as error:
                raise StorageError(self.path, "open", "the table lists this file, and it is not there") from error

    def footer(self) -> tuple[pq.FileMetaData, pa.Schema, list[TableFinding]]:
        """Return the file's footer, its columns, and contradictions of the table; StorageError if it is damaged."""
        with library_errors(self.path, "read as Parquet"), self.parquet() as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
            return metadata, schema, list(self.run_check(metadata, schema))


@dataclass(frozen=True)
class ForeignTable:
    """A table as its format describes it at one moment."""

    name: str
    format: str
    schema: pa.Schema
    files: tuple[DataFile, ...]
    findings: tuple[TableFinding, ...] = ()
    version: str | None = None  #: Which state of it this is.
    ledger: Ledger | None = None  #: Of a table that `lake` writes.


class Batch(NamedTuple):
    """Rows of a file, by role."""

    rows: int
    columns: dict[str, Any]  #: Arrow arrays; a constant is a plain value.


def read_rows(file: DataFile, columns: TableColumns, groups: tuple[int, ...], first_row: int) -> Iterator[Batch]:
    """Yield the undeleted rows of some row groups of a file; `first_row` is the number of the first row."""
    if file.batches is not None:
        paths = {column.role: column.path for column in columns.columns}
        for batch in file.batches(sorted({path[0] for path in paths.values()})):
            yield Batch(batch.num_rows, {role: _leaf(batch, path) for role, path in paths.items()})
        return
    with library_errors(file.path, "read as Parquet"), contextlib.ExitStack() as stack:
        opened = stack.enter_context(file.parquet())
        names, constants = columns_in_file(file, columns, opened.schema_arrow)
        wanted = [".".join(path) for path in names.values()]
        repeated = _find_coded(opened.metadata, groups, [names[role][0] for role in ("key", "value") if role in names])
        if repeated:
            opened = stack.enter_context(file.parquet(read_dictionary=repeated))
        size = batch_rows(opened.metadata, groups, wanted)
        at = first_row
        for batch in opened.iter_batches(size, row_groups=list(groups), columns=wanted, use_threads=False):
            kept = None if file.deleted is None else _mask_deleted(file.deleted, at, batch.num_rows)
            at += batch.num_rows
            arrays = {role: _leaf(batch, path) for role, path in names.items()}
            if kept is not None:
                arrays = {role: array.filter(kept) for role, array in arrays.items()}
            rows = batch.num_rows if kept is None else int(pc.sum(kept).as_py() or 0)
            yield Batch(rows, {**arrays, **constants})


def columns_in_file(
    file: DataFile, columns: TableColumns, schema: pa.Schema
) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
    """Return the places of columns in a file, by role, and constants or nulls for absent columns."""
    names, constants = {}, {}
    for column in columns.columns:
        path = column.path if file.names is None else file.names(column.path, schema)
        if column.name in file.constants:
            constants[column.role] = file.constants[column.name]
        elif path is not None and has(schema, path):
            names[column.role] = path
        else:
            constants[column.role] = None  # a column that was added to the table later
    return names, constants


def has(schema: pa.Schema, path: tuple[str, ...]) -> bool:
    """Check whether a schema has a column, or a field of structs."""
    fields: Any = schema
    for i, part in enumerate(path):
        if i and not pa.types.is_struct(fields):
            return False
        if part not in (fields.names if i == 0 else [field.name for field in fields]):
            return False
        fields = fields.field(part).type
    return True


def extremes(footer: pq.FileMetaData, path: tuple[str, ...]) -> tuple[Any, Any] | None:
    """Return the least and greatest value of a column by a file's statistics; None if they do not tell."""
    values, name = [], ".".join(path)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics if column.path_in_schema == name else None
            if statistics is not None and statistics.has_min_max:
                values += [statistics.min, statistics.max]
    return (min(values), max(values)) if values else None


def has_ids(schema: pa.Schema) -> bool:
    """Check whether the columns of a file have the numbers that the table knows them by."""
    return any(_number(field) is not None for field in schema)


def path_by_id(fields: Any, number: int) -> tuple[str, ...] | None:
    """Find a column, or a field of structs, by its number in the table."""
    for column in fields:
        if _number(column) == number:
            return (column.name,)
        inner = path_by_id(column.type, number) if pa.types.is_struct(column.type) else None
        if inner is not None:
            return (column.name, *inner)
    return None


def _number(field: pa.Field) -> int | None:
    raw = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if raw is None else int(raw)


def _leaf(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    array = batch.column(path[0])
    # The field of a null struct is null.
    return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array


def _mask_deleted(deleted: Positions, at: int, rows: int) -> pa.Array:
    mask = np.ones(rows, np.bool_)
    first, end = np.searchsorted(deleted, [at, at + rows])
    mask[deleted[first:end] - at] = False
    return pa.array(mask)


def _find_coded(metadata: pq.FileMetaData, groups: tuple[int, ...], names: Iterable[str]) -> list[str]:
    """Return the columns of bytes whose values lie in a dictionary: as rows they may be a thousand times larger."""
    chunks = [metadata.row_group(number).column(i) for number in groups for i in range(metadata.num_columns)]
    of_bytes = (chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page)
    return sorted({chunk.path_in_schema for chunk in of_bytes}.intersection(names))


def batch_rows(metadata: pq.FileMetaData, groups: tuple[int, ...], names: list[str]) -> int:
    """Return how many rows to read at a time, so that their columns take about `_BATCH_BYTES`."""
    rows = total = 0
    for number in groups:
        group = metadata.row_group(number)
        rows += group.num_rows
        for i in range(group.num_columns):
            column = group.column(i)
            if any(column.path_in_schema == name or column.path_in_schema.startswith(f"{name}.") for name in names):
                total += column.total_uncompressed_size
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(total, 1)))


# ---- which format a path is ----


def open_table(given: Any, what: str = "TABLE") -> ForeignTable:
    """Open a table: a path, a dataset of pyarrow, or ``FORMAT:...``, for Iceberg and DuckLake with a catalog.

    `what` is for messages.
    """
    if isinstance(given, ForeignTable):
        return given
    if not isinstance(given, str | os.PathLike):
        return _of_arrow(given)
    path = os.fspath(given)
    kind, colon, name = path.partition(":")
    if colon and kind in FORMATS and not name.startswith("//"):
        return _open(kind, name)
    if re.match(r"\w+://", path) is None and not os.path.exists(path):
        raise NoTableError(f"{path}: no such {what}: expected {TABLE_TEXT}")
    return _open(_format_of(path), path)


def _format_of(path: str) -> str:
    name = next((entry.name for entry in FORMATS.values() if entry.recognises(path)), "parquet")
    if name == "parquet" and "://" in path:
        places = " or ".join(entry.in_store for entry in FORMATS.values() if entry.in_store)
        raise RequestError(f"{path}: say which format it has: {places}")
    return name


def _open(kind: str, name: str) -> ForeignTable:
    """Open a table of a format; each has its own package, which is loaded now."""
    with format_errors(FORMATS[kind], name, f"read as a table of {kind}"):
        if kind == "parquet":
            return open_parquet(name)
        table: ForeignTable = import_module(f"pylogseg.lakehouse.foreign_{kind}").open_it(name)
        return table


# ---- Parquet, and what pyarrow has open ----


def open_parquet(path: str) -> ForeignTable:
    """Open a Parquet file, or a folder of them; folders named ``COLUMN=VALUE`` are columns."""
    if os.path.isdir(path):
        paths = sorted(_parquet_files(path))
        if not paths:
            raise RequestError(f"{path}: no table: the folder has neither _delta_log nor metadata, nor .parquet files")
    else:
        paths = [path]
    files = tuple(DataFile(name, constants=_from_folders(os.path.relpath(name, path))) for name in paths)
    schema = schema_of(files)
    for name, value in files[0].constants.items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.int64() if isinstance(value, int) else pa.string()))
    return ForeignTable(path, "parquet", schema, files)


def schema_of(files: Iterable[DataFile]) -> pa.Schema:
    """Return the schema of the first file that can be read; the error of the first if none can."""
    reasons = []
    for file in files:
        try:
            with file.parquet() as opened:
                return opened.schema_arrow
        except StorageError as error:
            reasons.append(error)
    raise reasons[0]


def _parquet_files(folder: str) -> Iterator[str]:
    for where, folders, names in walk_folders(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.endswith((".parquet", ".pq")) and not name.startswith((".", "_")):
                yield os.path.join(where, name)


def _from_folders(path: str) -> dict[str, Any]:
    constants: dict[str, Any] = {}
    for folder in path.split(os.sep)[:-1]:
        name, equals, value = folder.partition("=")
        if equals:
            constants[name] = int(value) if re.fullmatch(r"\d{1,18}", value) else value
    return constants


def _of_arrow(given: Any) -> ForeignTable:
    import pyarrow.dataset as ds

    if not isinstance(given, ds.Dataset):
        if not hasattr(given, "__arrow_c_stream__"):
            raise RequestError(
                f"expected a path, a name, or a table or dataset of Arrow as the table, not {type(given).__name__}"
            )
        return _in_memory(pa.table(given))
    if isinstance(given, ds.InMemoryDataset):
        return _in_memory(given.to_table())
    files = tuple(map(functools.partial(_of_fragment, given.schema), given.get_fragments()))
    return ForeignTable("the dataset", "dataset", given.schema, files)


def _of_fragment(schema: pa.Schema, fragment: Any) -> DataFile:
    import pyarrow.dataset as ds

    if isinstance(fragment, ds.ParquetFileFragment):
        constants = ds.get_partition_keys(fragment.partition_expression)
        opened = functools.partial(fragment.filesystem.open_input_file, fragment.path)
        return DataFile(fragment.path, constants=constants, open=opened)
    path = getattr(fragment, "path", "rows in memory")
    return DataFile(path, batches=functools.partial(_scan_fragment, fragment, schema))


def _scan_fragment(fragment: Any, schema: pa.Schema, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with library_errors(getattr(fragment, "path", "rows in memory"), "read"):
        yield from fragment.to_batches(schema=schema, columns=columns, batch_size=_BATCH_ROWS, use_threads=False)


def _in_memory(table: pa.Table) -> ForeignTable:
    """Return a table in memory in parts, which are read side by side."""
    files = []
    for first in range(0, max(1, table.num_rows), _PART_ROWS):
        part = table.slice(first, _PART_ROWS)
        name = f"rows {first} to {first + part.num_rows - 1}"
        files.append(DataFile(name, batches=functools.partial(_of_table, part)))
    return ForeignTable("the table", "memory", table.schema, tuple(files))


def _of_table(table: pa.Table, columns: list[str]) -> Iterator[pa.RecordBatch]:
    yield from table.select(columns).to_batches(max_chunksize=_BATCH_ROWS)
