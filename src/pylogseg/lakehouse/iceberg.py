"""Iceberg tables, by pyiceberg."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.exceptions import NoSuchTableError as NoTable
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, GreaterThanOrEqual, Or
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.typedef import Record

from pylogseg.errors import RequestError
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.layouts import FLAT, REDPANDA, STRUCT, leaf
from pylogseg.lakehouse.ledger import LEDGER, TOPIC_ID, Ledger
from pylogseg.lakehouse.library_errors import SINK_METHODS, with_library_errors
from pylogseg.lakehouse.opened_iceberg import (
    CATALOG_OF_FOLDER,
    SEQUENCE,
    catalog_of_folder,
    load_in_folder,
    newest_ledger,
)
from pylogseg.lakehouse.sinks import (
    Changes,
    ConflictError,
    FilePlace,
    LiveFile,
    NewFile,
    OffsetsByPartition,
    Period,
    is_plain,
    is_same,
    offsets_of,
    widen_schema,
)
from pylogseg.lakehouse.stores import LOCAL, FileStore, ObjectFiles, local_path, name_below

#: By layout: the column that the table is partitioned by, how, and the name of that.
_SPECS = {
    FLAT: ("timestamp", DayTransform(), "timestamp_day"),
    REDPANDA: (f"{STRUCT}.timestamp", HourTransform(), f"{STRUCT}.timestamp_hour"),
}
_MOMENT_SECONDS = 0.2
#: The library's own retries put rows into a table that has changed: another commit may have the same ones.
_PROPERTIES = {"commit.retry.num-retries": "0"}
#: Of a table whose files have no statistics of these.
_UNMEASURED = {
    layout: ("value", *(leaf(layout, f"headers.element.{name}") for name in ("key", "value"))) for layout in _SPECS
}


@with_library_errors(**SINK_METHODS, folder="read", store="open")
class IcebergSink:
    """See `Sink`. A commit is a snapshot, which the catalog takes only if the table still has the one before it."""

    def __init__(self, table: TableName, catalog: str | None, properties: Mapping[str, str], layout: str) -> None:
        self._identifier, self._name, self._place = table.identifier, table.text, table.place
        self._layout, self._spec = layout, _SPECS[layout]
        self._catalog = load_catalog(catalog, **properties)
        self._table: Any = None
        self._columns: pa.Schema | None = None  # that the next commit gives it
        self._made: Any = None  # columns, with these

    @classmethod
    def in_folder(cls, table: TableName, layout: str) -> IcebergSink:
        """Return a table of a catalog in SQLite, in a folder of this machine."""
        folder = os.path.abspath(table.place)
        os.makedirs(folder, exist_ok=True)
        table = table._replace(place=folder)
        _, where = catalog_of_folder(folder)
        try:
            return cls(table, CATALOG_OF_FOLDER, where, layout)
        except Exception:  # another run makes the catalog's tables at this moment
            time.sleep(_MOMENT_SECONDS)
            return cls(table, CATALOG_OF_FOLDER, where, layout)

    def close(self) -> None:
        self._catalog.close()

    @property
    def name(self) -> str:
        return self._name

    @property
    def folder(self) -> str:
        return f"{_path(self._table.io, self._table.location())}/data"

    @property
    def store(self) -> FileStore:
        location = self._table.location()
        if local_path(location)[1]:
            return LOCAL
        return ObjectFiles(self.name, functools.partial(_system, self._table.io, location))

    def load(self, partitions: Iterable[int]) -> Ledger | None:
        try:
            if self._place:
                self._table = load_in_folder(self._catalog, self._identifier, self._place, self.name)
            else:
                self._table = self._catalog.load_table(self._identifier)
        except NoTable:
            self._table = None
            return None
        return newest_ledger(self._table, self.name)

    @property
    def is_there(self) -> bool:
        return self._table is not None

    def open(self, schema: pa.Schema, is_new: bool) -> FilePlace:
        table = self._table
        if is_new and TOPIC_ID not in table.properties:
            raise RequestError(f"{self.name}: `pylogseg lake` did not make this table: choose another name")
        source, transform, name = self._spec
        if [(field.name, field.transform) for field in table.spec().fields] != [(name, transform)]:
            raise RequestError(
                f"{self.name}: it is not partitioned by {transform} of {source} alone: write another table"
            )
        have = schema_to_pyarrow(table.schema(), include_field_ids=False)
        columns, files = widen_schema(have, schema, widens=True, table=self.name)
        self._columns = None if is_same(have, columns) else columns
        self._made = self._transaction().table_metadata.schema()  # its ids are those that the commit will give
        with_ids = _with_ids(files, schema_to_pyarrow(self._made, include_field_ids=True))
        period = Period(f"{name}=", is_hour=self._layout == REDPANDA)
        # The library describes a file by its first and last time, as Python has them.
        return FilePlace(self.folder, with_ids, period, self.store, has_calendar=True)

    def _transaction(self) -> Any:
        """Begin a transaction, which adds the columns that rows have and the table has not."""
        transaction = self._table.transaction()
        if self._columns is not None:
            with transaction.update_schema() as update:
                update.union_by_name(self._columns)
        return transaction

    def make(self, schema: pa.Schema, ledger: Ledger) -> None:
        try:
            self._create(schema, ledger)
        except Exception:  # another run makes the same at this moment, which catalogs say in many ways
            time.sleep(_MOMENT_SECONDS)
            if not self._catalog.table_exists(self._identifier):
                self._create(schema, ledger)

    def _create(self, schema: pa.Schema, ledger: Ledger) -> None:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._identifier[0])
        unmeasured = _UNMEASURED[self._layout] if is_plain(schema) else ()
        metrics = {f"write.metadata.metrics.column.{name}": "none" for name in unmeasured}
        properties = {**_PROPERTIES, TOPIC_ID: str(ledger.topic_id), **metrics}
        transaction = self._catalog.create_table_transaction(self._identifier, schema, properties=properties)
        with transaction.update_spec() as update:
            update.add_field(*self._spec)
        transaction.commit_transaction()

    def commit(self, files: Sequence[NewFile], ledger: Ledger, changes: Changes | None = None) -> None:
        table = self._table
        transaction = self._transaction()
        if self._columns is not None and transaction.table_metadata.schema() != self._made:
            raise ConflictError(f"{self.name}: another writer has changed its columns")
        number = str(table.metadata.last_sequence_number + 1)
        transaction.set_properties({**_PROPERTIES, LEDGER: ledger.text, SEQUENCE: number})
        try:
            update = transaction.update_snapshot(snapshot_properties={LEDGER: ledger.text})
            with update.overwrite() if changes is not None and changes.gone else update.fast_append() as snapshot:
                for gone in changes.gone if changes is not None else ():
                    snapshot.delete_data_file(gone.handle)
                for file in files:
                    snapshot.append_data_file(self._describe(file, transaction.table_metadata))
            self._table = transaction.commit_transaction()
            self._columns = None
        except CommitFailedException as error:
            raise ConflictError(f"{self.name}: {error}") from error

    def _describe(self, file: NewFile, meta: Any) -> IcebergFile:
        schema = meta.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.metadata,
            stats_columns=compute_statistics_plan(schema, meta.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._table.location()}/data/{name_below(file.path, self.folder)}",
            file_format=FileFormat.PARQUET,
            partition=Record(Period.value_of(file.period)),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=meta.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def live(self, keys: pa.Table) -> Sequence[LiveFile]:
        files = []
        for task in self._table.scan().plan_files():
            if task.delete_files:
                raise RequestError(
                    f"{self.name}: another engine has deleted rows of {task.file.file_path} in files of deletes, which "
                    "are not read: let it rewrite the data files first"
                )
            files.append(LiveFile(_path(self._table.io, task.file.file_path), task.file))
        return files

    def offsets(self, first: dict[int, int]) -> OffsetsByPartition:
        names = tuple(leaf(self._layout, name) for name in ("partition", "offset"))
        wanted: BooleanExpression = AlwaysFalse()
        for number, offset in first.items():
            wanted = Or(wanted, And(EqualTo(names[0], number), GreaterThanOrEqual(names[1], offset)))
        return offsets_of(self._table.scan(wanted, selected_fields=names).to_arrow())

    def files(self) -> Collection[str]:
        paths = set()
        for snapshot in self._table.snapshots():
            for manifest in snapshot.manifests(self._table.io):
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                    paths.add(_path(self._table.io, entry.data_file.file_path))
        return paths


def open_sink(table: TableName, options: Mapping[str, str], layout: str) -> IcebergSink:
    """Return a table, whether it is there or not."""
    if table.place:
        return IcebergSink.in_folder(table, layout)
    return IcebergSink(table, table.catalog, options, layout)


def _path(io: Any, location: str) -> str:
    """Return the path of a location as its store knows it."""
    path, is_local = local_path(location)
    return path if is_local else str(PyArrowFileIO.parse_location(location, io.properties)[2])


def _system(io: Any, location: str) -> Any:
    """Return the file system that a table's library has for a location."""
    scheme, netloc, _ = PyArrowFileIO.parse_location(location, io.properties)
    if isinstance(io, PyArrowFileIO):
        return io.fs_by_scheme(scheme, netloc)
    return fs.PyFileSystem(fs.FSSpecHandler(io.get_fs(scheme)))


def _with_ids(schema: pa.Schema, numbered: pa.Schema) -> pa.Schema:
    """Return a schema whose fields have the ids of a table."""
    return pa.schema([_with_id(field, numbered.field(field.name)) for field in schema])


def _with_id(field: pa.Field, numbered: pa.Field) -> pa.Field:
    kind, like = field.type, numbered.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(inner, like.field(inner.name)) for inner in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_id(kind.key_field, like.key_field), _with_id(kind.item_field, like.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, like.value_field))
    return pa.field(field.name, kind, field.nullable, numbered.metadata)
