"""Tables that an export wrote, Parquet or Arrow: their partitions, and their records in order."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pylogseg.env.file_errors import walk_folders
from pylogseg.env.remote import remote_system
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import partition_folder_name
from pylogseg.offline.restoring.rows import COLUMNS
from pylogseg.reading.arrow.columns import ISOLATION_KEY
from pylogseg.reading.arrow.inputs import timestamps_ms
from pylogseg.tables.export.file import EXACT

_FORMS = {".parquet": "parquet", ".arrow": "ipc"}
_TEXTS = (".csv", ".jsonl")
_PLACE = pa.schema([("topic", pa.string()), ("partition", pa.int32())])
_NEEDED = ("topic", "partition", "offset", "value")
#: Few rows at a time, because a batch of large records is large.
_ROWS = 8192


class RecordRange(NamedTuple):
    """The records of one partition in one file."""

    topic: str
    partition: int
    first_offset: int  #: Half-open.
    end_offset: int
    records: int
    #: How many of them were part of a transaction; None if the file does not have the column.
    transactional: int | None
    is_committed: bool = False  #: True if the file notes that no record of an aborted transaction is in it.

    @property
    def name(self) -> str:
        return partition_folder_name(self.topic, self.partition)


class _File(NamedTuple):
    path: str
    fragment: Any
    ranges: list[RecordRange]


def is_table(path: str) -> bool:
    """Check whether a path is a file of an export, or a folder with such files."""
    return any(name.endswith((*_FORMS, *_TEXTS)) for name in _files_below(path))


def _files_below(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in walk_folders(path):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(folder, name) for name in names if not name.startswith((".", "_")))


class Tables:
    """The files of an export.

    Raises RequestError if columns are missing or have other types, or the format does not keep all bytes;
    StorageError if a file cannot be read.
    """

    def __init__(self, path: str) -> None:
        files = sorted(name for name in _files_below(path) if name.endswith((*_FORMS, *_TEXTS)))
        forms = {os.path.splitext(name)[1] for name in files}
        if texts := forms.intersection(_TEXTS):
            raise RequestError(
                f"{path}: {', '.join(sorted(texts))} files do not have the bytes of all records: "
                "export to Parquet or Arrow files"
            )
        if len(forms) != 1:
            raise RequestError(
                f"{path}: there are {' and '.join(sorted(forms)) or 'no'} files: expected files of one kind"
            )
        hive = ds.partitioning(_PLACE, flavor="hive")
        try:
            self._data = ds.dataset(files, format=_FORMS[forms.pop()], partitioning=hive, partition_base_dir=path)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(path, "read", str(error)) from error
        self._path, self.schema = path, self._data.schema
        if EXACT.name not in self.schema.names and any(
            EXACT.name in each.physical_schema.names for each in self._data.get_fragments()
        ):
            self.schema = self.schema.append(EXACT)
        self.size_bytes = sum(os.path.getsize(name) for name in files)
        self._check_columns()
        self._files = [_File(each.path, each, self._ranges(each)) for each in self._data.get_fragments()]
        self._files.sort(key=lambda file: [found_range[:3] for found_range in file.ranges[:1]])
        self._missing = self._check_order()

    def _check_columns(self) -> None:
        names = self.schema.names
        for name in _NEEDED:
            if name not in names or (name in _PLACE.names and pa.types.is_null(self.schema.field(name).type)):
                raise RequestError(f"{self._path}: no column {name}; there are: {', '.join(names)}")
        for name in ("key", "value"):
            kind = str(self.schema.field(name).type) if name in names else "binary"
            if "binary" not in kind:
                raise RequestError(
                    f"{self._path}: column {name} is of type {kind}, which does not keep all bytes: export it as binary"
                )
        if not pa.types.is_integer(self.schema.field("offset").type):
            raise RequestError(f"{self._path}: column offset must hold integers")

    def _batches(self, fragment: Any, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            scanner = fragment.scanner(
                schema=self.schema, columns=columns, batch_size=_ROWS, batch_readahead=1, use_threads=False
            )
            yield from scanner.to_batches()
        except (pa.ArrowException, OSError) as error:
            raise StorageError(fragment.path, "read", str(error)) from error

    def _ranges(self, fragment: Any) -> list[RecordRange]:
        tells = "isTransactional" in self.schema.names
        columns = [*_PLACE.names, "offset", *(["isTransactional"] if tells else [])]
        found: dict[tuple[str, int], RecordRange] = {}
        for batch in self._batches(fragment, columns):
            table = pa.Table.from_batches([batch])
            if any(table[name].null_count for name in (*_PLACE.names, "offset")):
                raise RequestError(
                    f"{fragment.path}: a topic, a partition or an offset is null: put them into columns, or into "
                    "folders named topic=NAME/partition=N"
                )
            if tells:
                table = table.set_column(3, "isTransactional", pc.cast(table["isTransactional"], pa.int64()))
            sums = [("isTransactional", "sum"), ("isTransactional", "count")] if tells else []
            groups = table.group_by(_PLACE.names).aggregate([("offset", "min_max"), ("offset", "count"), *sums])
            for row in groups.to_pylist():
                bounds, key, count = row["offset_min_max"], (row["topic"], row["partition"]), row["offset_count"]
                told = row["isTransactional_sum"] or 0 if row.get("isTransactional_count") == count else None
                new = RecordRange(*key, bounds["min"], bounds["max"] + 1, count, told)
                found[key] = _join_ranges(found[key], new) if key in found else new
        if _is_committed(fragment.physical_schema):
            found = {key: each._replace(is_committed=True) for key, each in found.items()}
        return [found[key] for key in sorted(found)]

    def _check_order(self) -> dict[str, list[tuple[int, int]]]:
        """Return the half-open ranges of offsets between the files of each partition that none of them has."""
        by_name: dict[str, list[tuple[RecordRange, str]]] = {}
        for file in self._files:
            for found_range in file.ranges:
                by_name.setdefault(found_range.name, []).append((found_range, file.path))
        missing: dict[str, list[tuple[int, int]]] = {}
        for name, found in by_name.items():
            for (before, path), (after, other) in pairwise(found):
                if after.first_offset < before.end_offset:
                    raise RequestError(
                        f"{name}: {path} has offsets {before.first_offset} to {before.end_offset - 1}, and {other} "
                        f"{after.first_offset} to {after.end_offset - 1}: files of one partition must not overlap; "
                        "Spark's job restore sorts them (docs/spark-jobs.md)"
                    )
                if after.first_offset > before.end_offset:
                    missing.setdefault(name, []).append((before.end_offset, after.first_offset))
        return missing

    def between(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of offsets between the files of a partition, half-open."""
        return self._missing.get(name, [])

    def partitions(self) -> dict[str, RecordRange]:
        found: dict[str, RecordRange] = {}
        for file in self._files:
            for each in file.ranges:
                old = found.get(each.name)
                found[each.name] = each if old is None else _join_ranges(old, each)
        return dict(sorted(found.items()))

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """Return names of partitions in groups that have no file in common, so that each file is read for one group."""
        group_of = {name: [name] for name in names}
        for file in self._files:
            mine = [group_of[each.name] for each in file.ranges if each.name in group_of]
            for other in mine[1:]:
                if other is not mine[0]:
                    mine[0] += other
                    group_of.update(dict.fromkeys(other, mine[0]))
        return [sorted(group) for name, group in group_of.items() if name == group[0]]

    def only(self, names: Collection[str]) -> Tables:
        """Return the files that have records of some partitions."""
        some = copy.copy(self)
        some._files = [file for file in self._files if any(each.name in names for each in file.ranges)]
        some.size_bytes = sum(os.path.getsize(file.path) for file in some._files)
        del some._data
        return some

    def read(
        self, names: Collection[str], on_bytes: Callable[[int], None], *, without_transactions: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of some partitions, in the order of their offsets.

        RequestError for a timestamp that is null: no export writes one without the column `EXACT`.
        """
        columns = [name for name in (*COLUMNS, EXACT.name) if name in self.schema.names]
        selected = pa.array(sorted(names), pa.string())
        for file in self._files:
            if not any(found_range.name in names for found_range in file.ranges):
                continue
            extra = ["isTransactional"] if without_transactions else []
            for batch in self._batches(file.fragment, [*columns, *extra]):
                if any(found_range.name not in names for found_range in file.ranges):
                    texts = (batch.column("topic"), batch.column("partition").cast(pa.string()), "-")
                    batch = batch.filter(pc.is_in(pc.binary_join_element_wise(*texts), value_set=selected))
                if without_transactions:
                    batch = batch.filter(pc.invert(batch.column("isTransactional"))).drop_columns(extra)
                yield _with_times(batch, file.path)
            on_bytes(os.path.getsize(file.path))


def _with_times(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return rows with all timestamps, in ms where the column of timestamps could not hold some."""
    if "timestamp" not in batch.schema.names:
        return batch
    none = batch.column("timestamp").is_null()
    if EXACT.name in batch.schema.names:
        exact = batch.column(EXACT.name)
        times = pc.coalesce(exact, pa.array(timestamps_ms(pa.Table.from_batches([batch]))))
        batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times)
        batch, none = batch.drop_columns([EXACT.name]), pc.and_(none, exact.is_null())
    if pc.any(none).as_py():
        row = batch.filter(none).slice(0, 1).to_pylist()[0]
        raise RequestError(
            f"{path}: {row['topic']}-{row['partition']}, offset {row['offset']}: its timestamp is null. If it did not "
            f"fit the column, export the log again: the file then has a column {EXACT.name}. For a record without a "
            "timestamp, write -1 ms"
        )
    return batch


def is_committed(path: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Check whether a Parquet file says that it has no records of aborted transactions.

    Raises StorageError if it cannot be read.
    """
    try:
        if "://" not in path:
            return _is_committed(pq.read_schema(path))
        system, place = remote_system(path, storage_options or {})
        with system.open(place, "rb") as file:
            return _is_committed(pq.read_schema(file))
    except (pa.ArrowException, OSError) as error:
        raise StorageError(path, "read", str(error)) from error


def _is_committed(schema: pa.Schema) -> bool:
    return (schema.metadata or {}).get(ISOLATION_KEY) == b"read_committed"


def _join_ranges(a: RecordRange, b: RecordRange) -> RecordRange:
    told = None if a.transactional is None or b.transactional is None else a.transactional + b.transactional
    bounds = min(a.first_offset, b.first_offset), max(a.end_offset, b.end_offset)
    return RecordRange(a.topic, a.partition, *bounds, a.records + b.records, told, a.is_committed and b.is_committed)
