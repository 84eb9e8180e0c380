"""Delta tables, by deltalake."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from pylogseg.errors import RequestError
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.ledger import LEDGER, TOPIC_ID, Ledger
from pylogseg.lakehouse.library_errors import SINK_METHODS, with_library_errors
from pylogseg.lakehouse.opened_delta import about_text, application, commits_of, newest_ledger, parse_actions
from pylogseg.lakehouse.sinks import (
    Changes,
    ConflictError,
    FilePlace,
    LiveFile,
    NewFile,
    OffsetsByPartition,
    Period,
    date_of,
    is_same,
    offsets_of,
    widen_schema,
)
from pylogseg.lakehouse.stores import LOCAL, FileStore, ObjectFiles, below, name_below

#: The column that the table is partitioned by: Delta has no partitions by an expression.
DATE = "date"
#: A filter that no partition passes.
_NOWHERE = [(DATE, "=", "1970-01-01"), (DATE, "=", "1970-01-02")]


@with_library_errors(**SINK_METHODS)
class DeltaSink:
    """See `Sink`. A commit is a version of the table's log, which only one writer can make."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        is_url, self._options = "://" in path, dict(options)
        self._path = path if is_url else os.path.abspath(path)
        self._store: FileStore = (
            ObjectFiles(self.name, functools.partial(_system, path, self._options)) if is_url else LOCAL
        )
        self._folder = "" if is_url else self._path  # paths of the library's file system begin at the table
        self._table: Any = None
        self._columns: pa.Schema | None = None  # that the next commit gives it
        self._had: Any = None  # columns, in place of those

    def close(self) -> None:
        """See `Sink`."""

    @property
    def name(self) -> str:
        return f"delta:{self._path}"

    @property
    def folder(self) -> str:
        return self._folder

    @property
    def store(self) -> FileStore:
        return self._store

    def load(self, partitions: Iterable[int]) -> Ledger | None:
        is_there = DeltaTable.is_deltatable(self._path, self._options)
        self._table = DeltaTable(self._path, storage_options=self._options) if is_there else None
        return None if self._table is None else self._newest(list(partitions))

    def _newest(self, partitions: list[int]) -> Ledger | None:
        commits = commits_of(lambda path: self._read(below(self._folder, path)), self._table.version(), self._path)
        ledger = newest_ledger(commits, self._table, partitions, self.name)
        return ledger if ledger is None or ledger.commit or ledger.partitions else None

    @property
    def is_there(self) -> bool:
        return self._table is not None

    def make(self, schema: pa.Schema, ledger: Ledger) -> None:
        try:
            DeltaTable.create(
                self._path,
                schema=schema.append(pa.field(DATE, pa.date32())),
                mode="ignore",
                partition_by=[DATE],
                configuration={TOPIC_ID: about_text(ledger)},
                storage_options=self._options,
                raise_if_key_not_exists=False,  # the name is not one of Delta's own
            )
        except CommitFailedError as error:
            raise ConflictError(f"{self.name}: {error}") from error

    def open(self, schema: pa.Schema, is_new: bool) -> FilePlace:
        table = self._table
        if is_new and TOPIC_ID not in table.metadata().configuration:
            raise RequestError(f"{self.name}: `pylogseg lake` did not make this table: choose another name")
        if table.metadata().partition_columns != [DATE]:
            raise RequestError(f"{self.name}: it is not partitioned by {DATE}: write another table")
        have = pa.schema(table.schema().to_arrow())
        columns, files = widen_schema(have, schema, widens=False, table=self.name)
        self._columns, self._had = None if is_same(have, columns) else columns, table.schema()
        return FilePlace(self.folder, files, Period(f"{DATE}=", is_date=True), self._store)

    def commit(self, files: Sequence[NewFile], ledger: Ledger, changes: Changes | None = None) -> None:
        table = self._table
        transactions = []
        for number, extent in ledger.partitions.items():
            for what, version in (("", extent.next_offset), ("epoch", extent.epoch)):
                named = application(ledger.topic_id, number, what)
                # Not again: it would be that of a commit that was repeated.
                if version >= 0 and table.transaction_version(named) != version:
                    transactions.append(Transaction(named, version))
        if self._columns is not None and table.schema() != self._had:
            raise ConflictError(f"{self.name}: another writer has changed its columns")
        # Of an append the library leaves the columns as they are. An overwrite of no partition changes nothing else.
        columns = None if self._columns is None else Schema.from_arrow(self._columns)
        try:
            table.create_write_transaction(
                [*(_remove_action(file) for file in (changes.gone if changes else ())), *map(self._action, files)],
                "append" if columns is None else "overwrite",
                columns or table.schema(),
                [DATE],
                None if columns is None else _NOWHERE,
                # No retry: another commit may be that of a run like this one, and rows do not conflict.
                commit_properties=CommitProperties({LEDGER: ledger.text}, 0, transactions),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )
        except CommitFailedError as error:
            raise ConflictError(f"{self.name}: {error}") from error
        # Not the newest: a commit of others that has followed since is one that the next of ours must not pass over.
        table.load_as_version(table.version() + 1)
        self._columns = None

    def _action(self, file: NewFile) -> AddAction:
        day = date_of(file.period)
        return AddAction(
            path=name_below(file.path, self._folder),
            size=file.size,
            partition_values={DATE: None if day is None else day.isoformat()},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps(_stats(file)),
        )

    def live(self, keys: pa.Table) -> Sequence[LiveFile]:
        features = {str(feature) for feature in self._table.protocol().reader_features or ()}
        if "deletionVectors" in features:
            raise RequestError(f"{self.name}: its files have deletion vectors, which are not read: write another table")
        actions = pa.table(self._table.get_add_actions(flatten=True))
        rows = actions.select(["path", "size_bytes", f"partition.{DATE}"]).to_pylist()
        return [LiveFile(below(self._folder, unquote(row["path"])), tuple(row.values())) for row in rows]

    def offsets(self, first: dict[int, int]) -> OffsetsByPartition:
        rows = self._table.to_pyarrow_dataset()
        wanted = pc.scalar(False)
        for number, offset in first.items():
            wanted |= (pc.field("partition") == number) & (pc.field("offset") >= offset)
        return offsets_of(rows.to_table(columns=["partition", "offset"], filter=wanted))

    def files(self) -> Collection[str]:
        """See `Sink`: the files of each commit and checkpoint that is still in the log."""
        used: set[str] = set()
        for path in self._store.walk(below(self._folder, "_delta_log")):
            if path.endswith(".json"):
                for action in parse_actions(self._read(path), path):
                    used.update(action[kind]["path"] for kind in ("add", "remove") if kind in action)
            elif path.endswith(".parquet"):
                with pq.ParquetFile(self._store.open_file(path)) as file:
                    for kind in {"add", "remove"}.intersection(file.schema_arrow.names):
                        paths = pc.struct_field(file.read(columns=[f"{kind}.path"]).column(kind), "path")
                        used.update(path for path in paths.to_pylist() if path)
        return {below(self._folder, unquote(path)) for path in used}

    def _read(self, path: str) -> bytes:
        with pa.input_stream(self._store.open_file(path)) as file:
            return bytes(file.read())


def open_sink(table: TableName, options: Mapping[str, str], layout: str) -> DeltaSink:
    """Return a table, whether it is there or not."""
    return DeltaSink(table.name, options)


def _system(url: str, options: dict[str, str]) -> Any:
    return fs.PyFileSystem(DeltaStorageHandler(url, options))


def _remove_action(file: LiveFile) -> RemoveAction:
    path, size, day = file.handle
    date = None if day is None else day.isoformat()
    return RemoveAction(path, True, int(time.time() * 1000), size, {DATE: date})


def _stats(file: NewFile) -> dict[str, Any]:
    """Statistics by which readers leave out files: offsets and partitions; times that fit no calendar are left out."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    for i in range(file.metadata.num_columns):
        columns = [group.column(i) for group in groups]
        name = columns[0].path_in_schema if columns else ""
        if name not in ("partition", "offset") or not all(column.is_stats_set for column in columns):
            continue
        least[name] = min(column.statistics.min for column in columns)
        most[name] = max(column.statistics.max for column in columns)
    return {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}
