"""DuckLake tables as data files, by the tables of their catalog: no extension of duckdb is needed to read these."""

from __future__ import annotations

import functools
import os
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pylogseg.lakehouse.foreign import DataFile, ForeignTable, TableFinding, has_ids, path_by_id, schema_of
from pylogseg.lakehouse.formats import NoTableError
from pylogseg.lakehouse.ledger import LEDGERS, Ledger

#: By their names in a catalog.
_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "varchar": pa.string(), "blob": pa.binary()}


def open_it(given: str) -> ForeignTable:
    """Open a DuckLake table: ``FILE/TABLE``, or the file of a catalog that has one table."""
    path, name = (given, "") if os.path.exists(given) else given.rpartition("/")[::2]
    if not os.path.exists(path):
        raise NoTableError(f"ducklake:{given}: no such catalog: expected ducklake:FILE/TABLE")
    with duckdb.connect() as connection:
        with open(path, "rb") as file:
            kind = "sqlite" if file.read(6) == b"SQLite" else "duckdb"
        quoted = path.replace("'", "''")
        connection.execute(f"attach '{quoted}' as c (type {kind}, read_only); use c")
        return _Catalog(connection, path).table(name)


class _Catalog:
    def __init__(self, connection: Any, path: str) -> None:
        self._connection, self._path = connection, path
        self.findings: list[TableFinding] = []

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(query, list(values)).fetchall()
        return rows

    def table(self, name: str) -> ForeignTable:
        (newest,) = self._rows("select max(snapshot_id) from ducklake_snapshot")[0]
        there = self._rows(
            "select s.schema_name || '.' || t.table_name, t.table_id, s.path, s.path_is_relative, t.path, "
            "t.path_is_relative from ducklake_table t join ducklake_schema s using (schema_id) "
            "where t.end_snapshot is null and s.end_snapshot is null order by 1"
        )
        chosen = [row for row in there if name in ("", row[0], row[0].partition(".")[2])]
        if len(chosen) != 1:
            names = ", ".join(row[0] for row in there) or "none"
            raise NoTableError(f"{self._path}: name one table, as ducklake:{self._path}/TABLE; it has {names}")
        full, number, *places = chosen[0]
        files = self._data_files(number, places)
        schema = self._rename_fields(number, schema_of(reversed(files))) if files else self._declare_schema(number)
        version = f"snapshot {newest}"
        ledgers = [self._data_files(key, where) for whole, key, *where in there if whole.partition(".")[2] == LEDGERS]
        own = [_ledger_of(row, full.partition(".")[2]) for of_one in ledgers for row in of_one]
        ledger = next((parsed for parsed in own if parsed is not None), None)
        name = f"{self._path}:{full}"
        return ForeignTable(name, "ducklake", schema, tuple(files), tuple(self.findings), version, ledger)

    def _data_files(self, number: int, places: list[Any]) -> list[DataFile]:
        """Return the files of a table. Its path, and its schema's path, are whole or relative ones."""
        folder = self._data_path()
        for path, is_relative in (places[:2], places[2:]):
            folder = os.path.join(folder, path) if is_relative else path
        return [*self._files(number, folder), *self._read_inlined(number)]

    def _data_path(self) -> str:
        (path,) = self._rows("select value from ducklake_metadata where key = 'data_path' and scope is null")[0]
        return path if "://" in path else os.path.abspath(os.path.join(os.path.dirname(self._path), path))

    def _columns(self, number: int) -> dict[str, int]:
        rows = self._rows(
            "select column_id, column_name, parent_column from ducklake_column "
            "where table_id = ? and end_snapshot is null order by column_id",
            number,
        )
        names: dict[int, str] = {}
        for column, name, parent in rows:
            names[column] = name if parent is None else f"{names.get(parent, '')}.{name}"
        return {name: column for column, name in names.items()}

    def _declare_schema(self, number: int) -> pa.Schema:
        """Return the columns of a table without files; a column of a type that we lack has none."""
        rows = self._rows(
            "select column_name, column_type from ducklake_column where table_id = ? and end_snapshot is null "
            "and parent_column is null order by column_order",
            number,
        )
        return pa.schema([pa.field(name, _TYPES.get(kind, pa.null())) for name, kind in rows])

    def _rename_fields(self, number: int, schema: pa.Schema) -> pa.Schema:
        """The schema with the names that the columns have in the table now."""
        for name, column in self._columns(number).items():
            path = path_by_id(schema, column) if "." not in name else None
            if path is not None and len(path) == 1:
                place = schema.get_field_index(path[0])
                schema = schema.set(place, schema.field(place).with_name(name))
        return schema

    def _files(self, number: int, folder: str) -> list[DataFile]:
        columns = self._columns(number)
        deletes, bounds = self._deletes(number, folder), self._bounds(number, columns)
        files = []
        for key, path, is_relative, begin, count in self._rows(
            "select data_file_id, path, path_is_relative, begin_snapshot, record_count from ducklake_data_file "
            "where table_id = ? and end_snapshot is null order by begin_snapshot, data_file_id",
            number,
        ):
            path = os.path.join(folder, path) if is_relative else path
            deleted = deletes.get(key)
            names = functools.partial(_find_names, columns)
            positions = None if deleted is None else np.unique(np.concatenate(deleted))
            said = {"rows": count, "bounds": bounds.get(key, {})}
            files.append(DataFile(path, f"snapshot {begin}", deleted=positions, names=names, **said))
        return files

    def _bounds(self, number: int, columns: dict[str, int]) -> dict[int, Any]:
        """Return the catalog's least and greatest whole numbers, by data file."""
        names = {column: tuple(name.split(".")) for name, column in columns.items()}
        bounds: dict[int, Any] = {}
        for key, column, least, most in self._rows(
            "select s.data_file_id, s.column_id, s.min_value, s.max_value from ducklake_file_column_stats s "
            "join ducklake_column c using (table_id, column_id) where table_id = ? and c.end_snapshot is null "
            "and c.column_type in ('int32', 'int64') and s.min_value is not null and s.max_value is not null",
            number,
        ):
            bounds.setdefault(key, {})[names[column]] = int(least), int(most)
        return bounds

    def _deletes(self, number: int, folder: str) -> dict[int, list[Any]]:
        """Return the positions of deleted rows, by data file."""
        deletes: dict[int, list[Any]] = {}
        for key, path, is_relative in self._rows(
            "select data_file_id, path, path_is_relative from ducklake_delete_file "
            "where table_id = ? and end_snapshot is null",
            number,
        ):
            path = os.path.join(folder, path) if is_relative else path
            try:
                deletes.setdefault(key, []).append(pq.read_table(path, columns=["pos"]).column("pos").to_numpy())
            except (OSError, pa.ArrowException) as error:
                self.findings.append(TableFinding("unread", f"deleted positions cannot be read: {error}", path))
        if self._has(f"ducklake_inlined_delete_{number}"):
            for key, row in self._rows(f"select file_id, row_id from ducklake_inlined_delete_{number}"):
                deletes.setdefault(key, []).append(np.array([row], np.int64))
        return deletes

    def _has(self, name: str) -> bool:
        return bool(self._rows("select 1 from duckdb_tables() where database_name = 'c' and table_name = ?", name))

    def _read_inlined(self, number: int) -> list[DataFile]:
        """Return the rows that lie in the catalog itself, as files in memory: small ones, by their nature."""
        files = []
        for (name,) in self._rows("select table_name from ducklake_inlined_data_tables where table_id = ?", number):
            live = f'from "{name}" where end_snapshot is null'
            for (begin,) in self._rows(f"select distinct begin_snapshot {live} order by 1"):
                query = f"select * exclude (row_id, begin_snapshot, end_snapshot) {live} and begin_snapshot = {begin}"
                sink = pa.BufferOutputStream()
                pq.write_table(self._connection.sql(query).to_arrow_table(), sink)
                opened = functools.partial(pa.BufferReader, sink.getvalue())
                files.append(DataFile(f"{self._path}:{name}:{begin}", f"snapshot {begin}", open=opened))
        return files


def _ledger_of(ledgers: DataFile, table: str) -> Ledger | None:
    """Look up a table's ledger in a file of ledgers, among the rows that are not deleted."""
    with ledgers.parquet() as opened:
        rows = opened.read(["name", "ledger"]).to_pylist()
    gone = set() if ledgers.deleted is None else set(ledgers.deleted.tolist())
    texts = [row["ledger"] for at, row in enumerate(rows) if at not in gone and row["name"] == table]
    return next((Ledger.parse(text, table) for text in texts if text), None)


def _find_names(columns: dict[str, int], path: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...] | None:
    """Find a column of the table in a file by its number."""
    number = columns.get(".".join(path))
    return path if number is None or not has_ids(schema) else path_by_id(schema, number)
