"""Iceberg tables as data files: the snapshot that added each, its deleted rows, and wrong partition values."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import StaticTable

from pylogseg.errors import RequestError
from pylogseg.lakehouse.foreign import DataFile, ForeignTable, TableFinding, extremes, has_ids, path_by_id
from pylogseg.lakehouse.formats import NoTableError, TableName, check_path
from pylogseg.lakehouse.opened_iceberg import (
    CATALOG_OF_FOLDER,
    catalog_of_folder,
    check_below,
    load_in_folder,
    newest_ledger,
)
from pylogseg.lakehouse.stores import local_path

_REMEDY = "queries that filter by it do not see them all; write them again by append, and remove the file"


def open_it(given: str) -> ForeignTable:
    """Open an Iceberg table: its name as `TableName` has it without the kind, its folder, or a metadata file."""
    try:
        table = _load(given)
        snapshot = table.current_snapshot()
        entries = [] if snapshot is None else list(_entries(table, snapshot))
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise NoTableError(f"iceberg:{given}: {error}") from None
    deletes = _Deletes(table, [entry for entry in entries if entry.data_file.content != 0])
    entries.sort(key=lambda entry: entry.sequence_number or 0)
    files = [_file(table, entry, deletes) for entry in entries if entry.data_file.content == 0]
    version = None if snapshot is None else f"snapshot {snapshot.snapshot_id}"
    name = given if os.path.exists(given) else ".".join(table.name())
    ledger = newest_ledger(table, name)
    schema = table.schema().as_arrow()
    return ForeignTable(name, "iceberg", schema, tuple(files), tuple(deletes.findings), version, ledger)


def _load(given: str) -> Any:
    if given.endswith(".metadata.json"):
        return StaticTable.from_metadata(given)
    if os.path.isdir(given):
        table = StaticTable.from_metadata(_newest(given))
        check_below(table.location(), given, given)
        return table
    name = TableName.parse(f"iceberg:{given}")
    if name.place:
        check_path(name)
        file, where = catalog_of_folder(name.place)
        if not os.path.isfile(file):
            raise NoTableError(f"{file}: no such catalog: an Iceberg table's folder may be named instead")
        with contextlib.closing(load_catalog(CATALOG_OF_FOLDER, **where, init_catalog_tables="false")) as catalog:
            return load_in_folder(catalog, name.identifier, name.place, f"iceberg:{given}")
    try:
        with contextlib.closing(load_catalog(name.catalog)) as catalog:
            try:
                return catalog.load_table(name.identifier)
            except NoSuchTableError:  # of a namespace of several levels, which `lake` does not write to
                return catalog.load_table(name.name)
    except ValueError as error:
        raise RequestError(f"iceberg:{given}: {error} (catalogs are described in .pyiceberg.yaml)") from None


def _newest(folder: str) -> str:
    """Return the newest metadata file of a table's folder, for one without its catalog."""
    paths = glob.glob(os.path.join(glob.escape(folder), "metadata", "*.metadata.json"))

    def number(path: str) -> tuple[int, float]:
        match = re.match(r"v?(\d+)", os.path.basename(path))
        return int(match[1]) if match else -1, os.path.getmtime(path)

    paths.sort(key=number)
    newest = [path for path in paths if number(path)[0] == number(paths[-1])[0]]
    if len(newest) > 1:
        raise RequestError(
            f"{folder}: {' and '.join(map(os.path.basename, newest))} are both the newest metadata, since two writers "
            "committed at once; only the catalog knows the winner: name the table by its catalog, or one of these files"
        )
    return newest[0]


def _entries(table: Any, snapshot: Any) -> Iterator[Any]:
    for manifest in snapshot.manifests(table.io):
        yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _file(table: Any, entry: Any, deletes: _Deletes) -> DataFile:
    data = entry.data_file
    path, is_local = local_path(data.file_path)
    if data.file_format != "PARQUET":
        text = f"a file of the format {data.file_format}: only Parquet is read"
        deletes.findings.append(TableFinding("unread", text, path, data.record_count))
    return DataFile(
        path,
        f"snapshot {entry.snapshot_id}",
        deleted=deletes.of(data.file_path, entry.sequence_number or 0),
        open=None if is_local else functools.partial(_open, table.io, data.file_path),
        names=functools.partial(_find_names, table.schema()),
        rows=data.record_count,
        bounds=_whole_numbers(table, data),
        check=functools.partial(_check_bounds, table, data),
    )


def _whole_numbers(table: Any, data: Any) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return a manifest's least and greatest values of columns."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import IntegerType, LongType

    bounds, lower, upper = {}, data.lower_bounds or {}, data.upper_bounds or {}
    for number in lower.keys() & upper.keys():
        name = table.schema().find_column_name(number)
        kind = None if name is None else table.schema().find_type(number)
        if name is not None and isinstance(kind, IntegerType | LongType):
            # Those of before a column became wider have the bytes of its first type.
            of = (IntegerType() if len(bound) == 4 else LongType() for bound in (lower[number], upper[number]))
            least, most = (from_bytes(a, b) for a, b in zip(of, (lower[number], upper[number]), strict=True))
            bounds[tuple(name.split("."))] = least, most
    return bounds


def _open(io: Any, location: str) -> Any:
    return io.new_input(location).open()


def _find_names(of_table: Any, path: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...] | None:
    """Find a column of the table in a file by its number, so that names may have changed since."""
    if not has_ids(schema):
        return path  # of another writer, added by its names
    try:
        number = of_table.find_field(".".join(path)).field_id
    except ValueError:  # dead letters have values as bytes, and no columns of decoded ones
        return None
    return path_by_id(schema, number)


class _Deletes:
    """Rows that the table has deleted, by file; a delete that cannot be applied becomes a finding."""

    def __init__(self, table: Any, entries: list[Any]) -> None:
        self.findings: list[TableFinding] = []
        self._positions: dict[str, list[tuple[int, Any]]] = {}
        for entry in entries:
            data = entry.data_file
            path, _ = local_path(data.file_path)
            if data.content == 2:
                text = "deletes by the values of columns: which rows they mean is not known, all of them are counted"
                self.findings.append(TableFinding("unread", text, path, data.record_count))
                continue
            try:
                deletes = _positions(table, data)
            except (OSError, ValueError, pa.ArrowException) as error:
                self.findings.append(TableFinding("unread", f"deleted positions cannot be read: {error}", path))
                continue
            for name, positions in deletes.items():
                self._positions.setdefault(name, []).append((entry.sequence_number or 0, positions))

    def of(self, location: str, sequence: int) -> Any:
        arrays = [positions for number, positions in self._positions.get(location, ()) if number >= sequence]
        return np.unique(np.concatenate(arrays)) if arrays else None


def _positions(table: Any, data: Any) -> dict[str, Any]:
    with table.io.new_input(data.file_path).open() as file:
        if data.file_format == "PUFFIN":
            from pyiceberg.table.puffin import PuffinFile

            vectors = PuffinFile(file.read()).to_vector()
            return {name: np.asarray(of, np.int64) for name, of in vectors.items()}
        rows = pq.read_table(file, columns=["file_path", "pos"])
    names = rows.column("file_path").combine_chunks().dictionary_encode()
    positions = rows.column("pos").to_numpy()
    codes = names.indices.to_numpy()
    return {name: positions[codes == code] for code, name in enumerate(names.dictionary.to_pylist())}


def _check_bounds(table: Any, data: Any, footer: pq.FileMetaData, schema: pa.Schema) -> Iterator[TableFinding]:
    """Compare the values of a file's partition with its footer."""
    path, _ = local_path(data.file_path)
    spec = table.specs().get(data.spec_id, table.spec())
    for place, field in enumerate(spec.fields):
        value = data.partition[place]
        bounds = None if str(field.transform) == "void" else _bounds(table, field, footer, schema)
        if bounds is None:
            continue
        least, largest = bounds
        if not field.transform.preserves_order:
            if value is None:
                text = f"its partition value {field.name} is null, its rows have values: {_REMEDY}"
                yield TableFinding("hidden", text, path, footer.num_rows)
        elif value is None or not (least == largest == value):
            kind = field.transform.result_type(table.schema().find_type(field.source_id))
            said, first, last = (field.transform.to_human_string(kind, bound) for bound in (value, least, largest))
            text = (
                f"its partition value {field.name} is {said}, its rows have {first}"
                f"{'' if least == largest else f' to {last}'}: {_REMEDY}"
            )
            yield TableFinding("hidden", text, path, footer.num_rows)


def _bounds(table: Any, field: Any, footer: pq.FileMetaData, schema: pa.Schema) -> tuple[Any, Any] | None:
    """Return the least and largest partition value of a file's rows, by its footer; None if that does not tell.

    A transform that keeps no order has values of its column here.
    """
    name = table.schema().find_column_name(field.source_id)
    path = None if name is None else _find_names(table.schema(), tuple(name.split(".")), schema)
    if path is None:
        return None
    transform = field.transform.transform(table.schema().find_type(field.source_id))
    kind = _leaf_type(schema, path)
    pair = extremes(footer, path)
    if pair is None or not field.transform.preserves_order:
        return pair
    return transform(_plain(pair[0], kind)), transform(_plain(pair[1], kind))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of a footer's statistics as Iceberg's transforms take it: times as numbers."""
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, kind).cast(pa.timestamp("us", kind.tz), safe=False).value
    return pa.scalar(value, kind).value if pa.types.is_date32(kind) else value


def _leaf_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind
