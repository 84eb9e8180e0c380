"""Tables of DuckLake, by duckdb and its extension."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from pylogseg.env.interrupts import held_back
from pylogseg.errors import RequestError, StorageError
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.ledger import LEDGERS, Ledger
from pylogseg.lakehouse.library_errors import SINK_METHODS, with_library_errors
from pylogseg.lakehouse.sinks import (
    Changes,
    ConflictError,
    FilePlace,
    NewFile,
    OffsetsByPartition,
    Period,
    offsets_of,
    plain_type,
    widen_schema,
)
from pylogseg.lakehouse.stores import LOCAL, FileStore

_THAT_GO = "where (partition, key) in (select (partition, key) from keys_that_go)"


@with_library_errors(**SINK_METHODS, is_there="read")
class DuckLakeSink:
    """See `Sink`. A commit replaces the row of the ledger, which of several transactions only one can do."""

    def __init__(self, catalog: str, table: str) -> None:
        self._file, self._table = os.path.abspath(catalog), table
        self._data = f"{self._file}.files"
        self._connection: Any = None
        self._before = ""
        self._changes: list[str] = []  # of columns, with the next commit

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def name(self) -> str:
        return f"ducklake:{self._file}/{self._table}"

    @property
    def folder(self) -> str:
        return f"{self._data}/main/{self._table}"

    @property
    def store(self) -> FileStore:
        return LOCAL

    def _run(self, statement: str, *values: Any) -> Any:
        with held_back():
            return self._connection.execute(statement, list(values))

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """All rows, since a result that is not read to its end keeps a lock on a catalog in SQLite."""
        rows: list[Any] = self._run(statement, *values).fetchall()
        return rows

    def _attach(self) -> None:
        os.makedirs(os.path.dirname(self._file), exist_ok=True)
        connection = duckdb.connect()
        _load(connection, "ducklake")
        kind = ""
        if self._file.endswith((".sqlite", ".db")):
            _load(connection, "sqlite_scanner")
            kind = "sqlite:"
        where = f"ducklake:{kind}{self._file}".replace("'", "''")
        data = f"{self._data}/".replace("'", "''")
        try:
            # A row that lies in the catalog itself can be deleted by two transactions at once.
            connection.execute(f"attach '{where}' as lake (data_path '{data}', data_inlining_row_limit 0)")
        except duckdb.Error as error:
            if kind and _is_conflict(error):  # another run makes the catalog, or commits to it
                raise ConflictError(f"{self.name}: {error}") from error
            hint = "" if kind else "; several may use a catalog at once if the name of its file ends in .sqlite"
            raise StorageError(self._file, "open", f"{error}{hint}") from error
        self._connection = connection

    def load(self, partitions: Iterable[int]) -> Ledger | None:
        if self._connection is None:
            self._attach()
        self._rollback()
        try:
            has = self._has(LEDGERS)
            rows = self._rows(f"select ledger from lake.{LEDGERS} where name = ?", self._table) if has else []
        except duckdb.Error as error:
            if not _is_conflict(error):
                raise
            raise ConflictError(f"{self.name}: {error}") from error
        self._before = rows[0][0] if rows else ""
        return Ledger.parse(self._before, self.name) if self._before else None

    def _rollback(self) -> None:
        with contextlib.suppress(duckdb.TransactionException):  # there was none
            self._run("rollback")

    def _has(self, table: str) -> bool:
        return bool(self._rows("select 1 from duckdb_tables() where database_name = 'lake' and table_name = ?", table))

    @property
    def is_there(self) -> bool:
        return self._has(self._table)

    def open(self, schema: pa.Schema, is_new: bool) -> FilePlace:
        if not self._has_ledger():
            raise RequestError(f"{self.name}: `pylogseg lake` did not make this table: choose another name")
        have = self._run(f"from lake.{_quote(self._table)} limit 0").to_arrow_table().schema
        columns, files = widen_schema(have, schema, widens=False, table=self.name)
        self._changes = list(self._list_additions(have, columns, ""))
        return FilePlace(self.folder, files, Period("day="))

    def _list_additions(self, have: Iterable[pa.Field], want: Iterable[pa.Field], above: str) -> Iterator[str]:
        """Statements that add columns, and fields of columns."""
        there = {field.name: field.type for field in have}
        for field in want:
            name, kind = f"{above}{_quote(field.name)}", there.get(field.name)
            if kind is None:
                yield f"alter table lake.{_quote(self._table)} add column {name} {self._type(field)}"
            elif pa.types.is_struct(kind):
                yield from self._list_additions(kind, field.type, f"{name}.")
            elif plain_type(kind) != plain_type(field.type):
                raise RequestError(
                    f"{self.name}: column {name} has new fields inside a list or map: write another table"
                )

    def _type(self, field: pa.Field) -> str:
        self._connection.register("columns_of_rows", pa.schema([field]).empty_table())
        try:
            return str(self._rows("describe columns_of_rows")[0][1])
        finally:
            self._connection.unregister("columns_of_rows")

    def _has_ledger(self) -> bool:
        if not self._has(LEDGERS):
            return False
        return bool(self._rows(f"select 1 from lake.{LEDGERS} where name = ?", self._table))

    def make(self, schema: pa.Schema, ledger: Ledger) -> None:
        try:
            self._run("begin")
            if not self._has(LEDGERS):
                self._run(f"create table lake.{LEDGERS} (name varchar, ledger varchar)")
            self._connection.register("columns_of_rows", schema.empty_table())
            self._run(f"create table lake.{_quote(self._table)} as from columns_of_rows")
            self._run(f"insert into lake.{LEDGERS} values (?, '')", self._table)
            self._run("commit")
        except duckdb.Error as error:
            self._rollback()
            if not _is_conflict(error) and not isinstance(error, duckdb.CatalogException):
                raise
            raise ConflictError(f"{self.name}: {error}") from error
        finally:
            self._connection.unregister("columns_of_rows")

    def commit(self, files: Sequence[NewFile], ledger: Ledger, changes: Changes | None = None) -> None:
        try:
            self._run("begin")
            gone = self._rows(f"delete from lake.{LEDGERS} where name = ? and ledger = ?", self._table, self._before)
            if gone != [(1,)]:
                self._run("rollback")
                raise ConflictError(f"{self.name}: its ledger has changed")
            self._run(f"insert into lake.{LEDGERS} values (?, ?)", self._table, ledger.text)
            for change in self._changes:
                self._run(change)
            if changes is not None:
                self._connection.register("keys_that_go", changes.keys)
                self._rows(f"delete from lake.{_quote(self._table)} {_THAT_GO}")
            for file in files:
                self._run("call ducklake_add_data_files('lake', ?, ?)", self._table, file.path)
            extra = json.dumps({"pylogseg": ledger.commit})
            self._run("call lake.set_commit_message('pylogseg', 'lake', extra_info => ?)", extra)
            self._run("commit")
        except duckdb.Error as error:
            self._rollback()
            if not _is_conflict(error):
                raise
            raise ConflictError(f"{self.name}: {error}") from error
        self._before, self._changes = ledger.text, []

    def live(self, keys: pa.Table) -> int:
        self._connection.register("keys_that_go", keys)
        return int(self._rows(f"select count(*) from lake.{_quote(self._table)} {_THAT_GO}")[0][0])

    def offsets(self, first: dict[int, int]) -> OffsetsByPartition:
        wanted = " or ".join(f'(partition = {number} and "offset" >= {offset})' for number, offset in first.items())
        rows = self._run(f'select partition, "offset" from lake.{_quote(self._table)} where {wanted or "false"}')
        return offsets_of(rows.to_arrow_table())

    def files(self) -> Collection[str]:
        rows = self._rows("select path, path_is_relative from __ducklake_metadata_lake.ducklake_data_file")
        return {f"{self.folder}/{path}" if relative else path for path, relative in rows}


def open_sink(table: TableName, options: Mapping[str, str], layout: str) -> DuckLakeSink:
    """Return a table, whether it is there or not."""
    return DuckLakeSink(table.place, table.name)


def _load(connection: Any, extension: str) -> None:
    try:
        connection.load_extension(extension)
    except duckdb.Error:
        try:
            connection.install_extension(extension)
            connection.load_extension(extension)
        except duckdb.Error as error:
            raise RequestError(
                f"duckdb has no extension {extension}, and it cannot be fetched: {str(error).splitlines()[0]}"
            ) from error


def _is_conflict(error: Exception) -> bool:
    """True if another transaction committed first, or holds the lock of a catalog in SQLite."""
    return isinstance(error, duckdb.TransactionException) or "database is locked" in str(error)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
