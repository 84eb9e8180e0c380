"""Delta tables as data files: the version that added each, its deleted rows, and commits that were made twice."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from pylogseg.lakehouse.foreign import DataFile, ForeignTable, TableFinding, has_ids, path_by_id
from pylogseg.lakehouse.formats import NoTableError
from pylogseg.lakehouse.opened_delta import Commit, commits_of, newest_ledger
from pylogseg.lakehouse.stores import local_path

_MAPPING = "delta.columnMapping."


def open_it(path: str) -> ForeignTable:
    try:
        table = DeltaTable(path)
        actions = pa.table(table.get_add_actions())
        schema = pa.schema(table.schema().to_arrow())
        vectors = _read_deleted(table)
    except TableNotFoundError as error:
        raise NoTableError(f"{path}: no Delta table: {error}") from None
    store = pa.fs.PyFileSystem(DeltaStorageHandler(table.table_uri))
    commits = list(commits_of(functools.partial(_read, store), table.version(), path))
    history = _History(commits)
    columns = _MappedColumns(table)
    local = path if os.path.isdir(path) else None
    files = []
    for row in sorted(actions.to_pylist(), key=lambda row: (history.added.get(row["path"], -1), row["path"])):
        name = unquote(row["path"])
        version = history.added.get(row["path"])
        is_whole = re.match(r"[A-Za-z][\w+.-]*:/", name) is not None
        whole, _ = local_path(name if is_whole or local is None else os.path.join(local, name))
        files.append(
            DataFile(
                whole,
                None if version is None else f"version {version}",
                {columns.names.get(of, of): value for of, value in (row.get("partition") or {}).items()},
                vectors.get(name),
                None if local or is_whole else functools.partial(store.open_input_file, name),
                columns.in_file if columns.places else None,
                row.get("num_records"),
                dict(_whole_numbers(row.get("min") or {}, row.get("max") or {}, ())),
            )
        )
    ledger = newest_ledger(commits, table, (), path)
    state = f"version {table.version()}"
    return ForeignTable(path, "delta", schema, tuple(files), tuple(history.findings), state, ledger)


def _read(store: Any, path: str) -> bytes:
    with store.open_input_file(path) as file:
        return bytes(file.read())


def _whole_numbers(least: Any, most: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[int, int]]]:
    """Yield a commit's least and greatest values of columns."""
    for name, value in least.items():
        other = most.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from _whole_numbers(value, other, (*above, name))
        elif type(value) is int and type(other) is int:
            yield (*above, name), (value, other)


def _read_deleted(table: Any) -> dict[str, Any]:
    """Return the positions of deleted rows, by file."""
    positions = {}
    for row in pa.table(table.deletion_vectors()).to_pylist():
        # Which rows are kept; those behind its end are, too.
        kept = np.array(row["selection_vector"], np.bool_)
        positions[unquote(os.path.basename(row["filepath"]))] = np.flatnonzero(~kept).astype(np.int64)
    return _ByName(positions)


class _ByName(dict[str, Any]):
    """Delta names deletion vectors by whole URLs, and files by paths: the file names are unique."""

    def get(self, path: str, default: Any = None) -> Any:
        return super().get(os.path.basename(path), default)


class _MappedColumns:
    """Where the columns of a table lie in its files, if its columns are mapped."""

    def __init__(self, table: Any) -> None:
        self._mode = table.metadata().configuration.get(f"{_MAPPING}mode", "none")
        #: By path: the names in files, and the number.
        self.places: dict[tuple[str, ...], tuple[tuple[str, ...], int | None]] = {}
        if self._mode != "none":
            self._add(table.schema().fields, (), ())
        #: Of columns, by those in files.
        self.names = {real[0]: path[0] for path, (real, _) in self.places.items() if len(path) == 1}

    def _add(self, fields: Any, above: tuple[str, ...], real: tuple[str, ...]) -> None:
        for field in fields:
            about = field.metadata or {}
            path, place = (*above, field.name), (*real, str(about.get(f"{_MAPPING}physicalName", field.name)))
            self.places[path] = place, about.get(f"{_MAPPING}id")
            self._add(getattr(field.type, "fields", ()), path, place)

    def in_file(self, path: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...] | None:
        real, number = self.places.get(path, (path, None))
        return path_by_id(schema, int(number)) if number and self._mode == "id" and has_ids(schema) else real


class _History:
    """The log of commits, as far back as it is kept."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.added: dict[str, int] = {}
        self.findings: list[TableFinding] = []
        self._applied: dict[tuple[str, int], int] = {}
        for commit in commits:
            self._read(*commit)
        self.findings.reverse()

    def _read(self, version: int, actions: list[dict[str, Any]]) -> None:
        has_rows = any("add" in action for action in actions)
        for action in actions:
            if "add" in action:
                self.added.setdefault(action["add"]["path"], version)
            elif "txn" in action and has_rows:
                named = (action["txn"]["appId"], action["txn"]["version"])
                again = self._applied.get(named)
                if again is not None:
                    text = f"commits {version} and {again} are both version {named[1]} of the application {named[0]}"
                    self.findings.append(TableFinding("repeated", f"{text}: one of them was a repetition"))
                self._applied[named] = version
