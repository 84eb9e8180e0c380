"""`pylogseg.read`: a question about the records of logs, which can be narrowed, and asked in several forms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pylogseg.disk.choice import PartitionChoice, whole_number
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import as_disk
from pylogseg.env.executor import job_count
from pylogseg.env.filesystem import Path
from pylogseg.errors import RequestError
from pylogseg.format.scratch import Scratch
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS, check_columns
from pylogseg.reading.latest import MEMORY_BYTES
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import LogFiles, LogSource, topics_of
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.partition import Chunk
from pylogseg.reading.record import Record, records_of
from pylogseg.reading.selection import Moment, Selection, selection_of
from pylogseg.reading.state import IsolationLevel, OnCorrupt, Reading, ReadingKeywords
from pylogseg.walker.gaps import Gap

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogseg.reading.ranges import Task
    from pylogseg.reading.scan import LogScan
    from pylogseg.tables.dataset import TableDataset
    from pylogseg.tables.explaining import Explanation
    from pylogseg.tables.polars import DataFrame, LazyFrame
    from pylogseg.values.decoding import Decoding, OnUndecoded, SchemaChoice, TypedBatches
    from pylogseg.values.forms import Form
    from pylogseg.values.schemas.store import Schemas

#: What `read` takes as its source.
Source = Path | Sequence[Path] | Disk | Partition | Sequence[Partition]

#: Columns of a dataset. Engines count rows by the first one: it needs no payload.
DATASET_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", *BATCH_COLUMNS,
)  # fmt: skip
#: Memory of a reader for each value of ``reuse_buffers``.
_SCRATCH: dict[bool | str, Callable[[], Scratch] | None] = {
    False: None,
    True: Scratch,
    "columns": functools.partial(Scratch, with_arena=False),
}
#: Bytes of a task of `Reader.plan`, about.
TASK_BYTES = 64 << 20


class ReadKeywords(ReadingKeywords, total=False):
    """Keywords of `read` that its other forms hand on."""

    columns: Sequence[str] | None
    filter: Any
    jobs: int | None
    from_log_start: bool
    latest: bool
    tombstones: bool
    latest_memory_bytes: int


class Reader:
    """Records of logs: a selection of them, and how they are read. Nothing is read until an exit is used.

    Iterate over it for `Record`s. `chunks`, `batches`, `to_arrow`, `to_pandas`, `to_polars`, `lazy`, `to_duckdb`,
    `dataset` and `count` give the same records in other forms; each reads from the start. `select`, `where`, `limit`
    and `decode` give a new reader, and leave this one as it is. polars, duckdb and pyarrow take it as it is, too: it
    has the Arrow C stream interface.

    Examples
    --------
    >>> import pylogseg
    >>> reader = pylogseg.read("examples/data").where(topic="txn-a", offset=(0, 2)).select("partition", "offset")
    >>> reader.count(), reader.to_arrow().column_names
    (4, ['partition', 'offset'])
    """

    def __init__(
        self,
        scope: ReadScope,
        columns: Sequence[str] | None = None,
        *,
        disk: Disk | None = None,
        filter: Any = None,
        decoding: Decoding | None = None,
        schema_disk: Disk | None = None,
    ) -> None:
        if columns is not None:
            check_columns(columns)
        #: Logs, selection and state of the reading.
        self.scope = scope
        self.columns = None if columns is None else tuple(columns)
        self.disk, self.decoding, self._filter = disk, decoding, filter
        self._schema_disk = schema_disk

    def __repr__(self) -> str:
        """Return a short text without paths."""
        count = len(self.scope.logs)
        return f"<pylogseg.Reader of {count} log{'' if count == 1 else 's'}>"

    @property
    def gaps(self) -> list[Gap]:
        """The gaps of the last reading: damage with ``on_corrupt="skip"`` and ``"stop"``, torn tails always."""
        return self.scope.state.gaps

    @property
    def asked(self) -> dict[str, Any]:
        """The options that a plain `read` does not have, by its keywords; ``decoding`` is the argument of `decode`."""
        selection, reading = self.scope.selection, self.scope.state.reading
        options = {
            "topic": selection.topics or None,
            "partition": selection.partitions or None,
            "offset": None if selection.offsets == OffsetRange() else selection.offsets,
            "timestamp": selection.times if selection.has_times else None,
            "limit": selection.limit,
            "columns": self.columns,
            "filter": self._filter,
            "latest": selection.latest or None,
            "from_log_start": None if selection.from_log_start else False,
            "jobs": None if reading.jobs == 1 else reading.jobs,
            "disk": self._schema_disk,
            "decoding": self.decoding,
            **reading.keywords,
        }
        return {name: value for name, value in options.items() if value is not None}

    # ---- narrower questions ----

    def select(self, *columns: str) -> Reader:
        """Return a reader of some columns, by their Arrow names (``"key"``, ``"value"``, ``"headers"``, ...).

        In a `Record`, payloads that are not among them are None or empty. Other columns are not decoded.
        """
        if not columns:
            raise RequestError("select names no column: a stream without columns has no rows; count() counts them")
        return self._with(columns=columns)

    def where(
        self,
        filter: Any = None,
        *,
        topic: str | Sequence[str] | None = None,
        partition: int | Sequence[int] | None = None,
        offset: int | tuple[int | None, int | None] | None = None,
        timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
    ) -> Reader:
        """Return a reader of the records that also meet these conditions.

        Parameters
        ----------
        filter : pyarrow.compute.Expression, optional
            Such as ``pyarrow.compute.field("offset") >= 5``; of a reader that decodes, also about fields of the value:
            ``pyarrow.compute.field("value", "id") == 7``.
        topic, partition, offset, timestamp
            As for `read`.

        Raises
        ------
        RequestError
            For invalid arguments and unknown names.
        """
        scope, changes = self.scope, dict[str, Any]()
        if topic is not None or partition is not None:
            choice = PartitionChoice.of(topic, partition)
            scope = scope._replace(logs=_chosen(scope.logs, choice))
            changes.update(_narrow_choice(scope.selection, choice, scope.logs))
        if offset is not None:
            changes["offsets"] = scope.selection.offsets.narrow(OffsetRange.of(offset))
        if timestamp is not None:
            changes.update(_narrow_times(scope.selection, selection_of(None, timestamp)))
        if filter is not None:
            filter = filter if self._filter is None else self._filter & filter
        return self._with(scope._replace(selection=replace(scope.selection, **changes)), filter=filter)

    def limit(self, count: int) -> Reader:
        """Return a reader of no more than so many records, over all partitions."""
        count = whole_number(count, "limit")
        earlier = self.scope.selection.limit
        most = count if earlier is None or count < 0 else min(earlier, count)
        return self._with(self.scope._replace(selection=replace(self.scope.selection, limit=most)))

    def decode(
        self,
        columns: str | Sequence[str] | Decoding = "value",
        *,
        schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
        registry: Path | Schemas | None = None,
        on_undecoded: OnUndecoded | None = None,
        disk: Disk | None = None,
    ) -> Reader:
        """Return a reader that decodes values, keys or both by their schemas (Avro, Protobuf, JSON).

        Parameters
        ----------
        columns : {"value", "key"}, sequence of them, or Decoding
            The columns to decode.
        schema, registry, on_undecoded
            As for `Decoding`: the reader's schema, where schemas are, and what to do with a value that does not decode.
        disk : Disk, optional
            The disk whose topic `_schemas` has the schemas; by default the one that is read.
        """
        from pylogseg.values.decoding import Decoding

        if disk is None and self.disk is None:
            raise RequestError("a log that this program writes has no schemas beside it: read its folder to decode")
        decoding = Decoding.of(columns, schema=schema, registry=registry, on_undecoded=on_undecoded)
        return self._with(decoding=decoding, schema_disk=disk)

    def in_form(self, form: Form) -> Reader:
        """Return a reader whose decoded columns have the types of an engine that does not have all of Arrow's."""
        return self if self.decoding is None else self._with(decoding=replace(self.decoding, form=form))

    def _with(
        self,
        scope: ReadScope | None = None,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        decoding: Decoding | None = None,
        schema_disk: Disk | None = None,
    ) -> Reader:
        """Return a reader with other parts and a state of its own."""
        scope = scope or self.scope
        selection, is_as_before = scope.selection, filter is None and decoding is None
        filter, decoding = filter if filter is not None else self._filter, decoding or self.decoding
        if not is_as_before:
            selection = replace(selection, filter=row_filter(filter, decoding))
        scope = ReadScope.of(scope.logs, selection, scope.state.reading)
        scope.state.scratch = self.scope.state.scratch
        columns = self.columns if columns is None else columns
        schema_disk = schema_disk or self._schema_disk
        return Reader(scope, columns, disk=self.disk, filter=filter, decoding=decoding, schema_disk=schema_disk)

    # ---- exits ----

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records as columns, a part of a segment at a time, without empty chunks; nothing is decoded."""
        self.gaps.clear()
        yield from self.scope.chunks()

    def __iter__(self) -> Iterator[Record]:
        if self.decoding is not None:
            yield from self._decoded_records()
            return
        for chunk in self.chunks():
            yield from records_of(chunk, self.columns)

    def _decoded_records(self) -> Iterator[Record]:
        """Yield records with decoded payloads as Python objects; payloads that do not decode are bytes."""
        import pyarrow as pa

        from pylogseg.reading.arrow.columns import record_batches, schema
        from pylogseg.reading.filters import filter_table

        typed = cast("TypedBatches", self._choose_schemas(DATASET_COLUMNS))
        needed = schema(typed.list_needed_columns())
        for chunk in self.chunks():
            rows: dict[int, dict[str, Any]] = {}
            for batch in typed.batches(record_batches(iter([chunk]), needed, self.gaps)):
                table = pa.Table.from_batches([batch])
                table = table if self._filter is None else filter_table(table, self._filter)
                rows.update({row["offset"]: row for row in table.to_pylist()})
            for record in records_of(chunk, self.columns):
                if (row := rows.get(record.offset)) is not None:
                    yield _with_decoded(record, row, typed.decoders)
        self.gaps.extend(typed.gaps)

    def batches(self, *, views: bool = False) -> pa.RecordBatchReader:
        """Return the records as a stream of Arrow record batches.

        Parameters
        ----------
        views : bool
            Return keys and values as binary views into the bytes that were read (of compressed batches: that were
            decompressed), so that no payload is copied. These bytes stay in memory as long as one of the batches does.
            The thread of the caller reads them, and nothing is decoded.
        """
        # Arrow takes long to import, and most readers are iterated.
        from pylogseg.reading.scan import record_stream

        if views and (self.decoding is not None or self._filter is not None or self.scope.state.reading.jobs > 1):
            raise RequestError("views= cannot be combined with filter=, jobs= or a decoding")
        if self.scope.selection.latest and self.decoding is not None and self._filter is not None:
            raise RequestError("a filter on decoded fields cannot be combined with latest=: filter the result")
        self.gaps.clear()
        return record_stream(self.scope, self.columns, self._filter, self._choose_schemas(self._names), views=views)

    def to_arrow(self) -> pa.Table:
        """Return all records as a table; they must fit in memory."""
        return self.batches().read_all()

    def to_pandas(self) -> Any:
        """Return all records as a pandas DataFrame; they must fit in memory."""
        return self.batches().read_pandas()

    def to_polars(self) -> DataFrame:
        """Return all records as a polars DataFrame; they must fit in memory."""
        from pylogseg.tables.polars import frame_of
        from pylogseg.values.forms import for_polars

        return frame_of(self.in_form(for_polars).to_arrow())

    def lazy(self) -> LazyFrame:
        """Return a lazy frame of polars, which reads the columns and the ranges that a query needs."""
        from pylogseg.tables.polars import lazy_frame
        from pylogseg.values.forms import for_polars

        return lazy_frame(self.in_form(for_polars).dataset())

    def to_duckdb(self, name: str, connection: Any = None) -> Any:
        """Return a duckdb connection that has the records as a table, read as queries need them.

        Parameters
        ----------
        name : str
            Of the table.
        connection : duckdb.DuckDBPyConnection, optional
            The connection that gets the table; by default a new one, in memory.

        Examples
        --------
        >>> import pylogseg
        >>> connection = pylogseg.read("examples/data", "txn-a").to_duckdb("records")
        >>> connection.sql("select count(distinct partition) from records").fetchall()
        [(2,)]
        """
        from pylogseg.tables.sql.connection import with_table
        from pylogseg.values.forms import for_duckdb

        return with_table(self.in_form(for_duckdb).dataset(), name, connection)

    def dataset(self) -> TableDataset:
        """Return the records as a `pyarrow.dataset.Dataset`: an engine reads the columns and ranges that it needs.

        Raises
        ------
        RequestError
            With a limit, with `latest`, and for a log that this program writes: they are no snapshots.
        """
        from pylogseg.tables.dataset import TableDataset

        selection = self.scope.selection
        if selection.latest or selection.limit is not None:
            raise RequestError("a dataset has no limit and no latest records: use batches(), or let the engine do it")
        self.gaps.clear()
        if self._is_filtered_by_others:
            return TableDataset(self.scan(self.columns, filters_rows=True))
        return TableDataset(self.scan(self.columns), self._filter)

    def count(self) -> int:
        """Return the number of records: without a filter and a range of times from batch headers alone.

        Damage is met as in a reading, but for checksums of batches that only their headers count.
        """
        selection = self.scope.selection
        if selection.latest or selection.limit is not None or not self._has_files:
            return sum(len(chunk.columns) for chunk in self.chunks())
        whole = self._with(columns=DATASET_COLUMNS)
        try:
            return whole.dataset().count_rows()
        finally:
            self.gaps[:] = whole.gaps

    def plan(self, target_bytes: int = TASK_BYTES) -> list[Task]:
        """Return the ranges of segments that a reading needs, as tasks of about so many bytes; no record is read."""
        self.gaps.clear()
        return list(self.scan().tasks(self._filter, target_bytes))

    def explain(self) -> Explanation:
        """Return the segments and bytes that a reading needs, and why it skips the rest; no record is read.

        Examples
        --------
        >>> import pylogseg
        >>> print(pylogseg.read("examples/data", "codec-none-1", offset=(0, 10)).explain().summary)
        1 of 3 segments, 1,371 of 41,206 bytes
        """
        from pylogseg.tables.explaining import explain

        self.gaps.clear()
        return explain(self.scan(), self._filter)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the stream to Arrow; called by polars, duckdb and pyarrow."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Export the schema of the stream alone, for who asks before it reads."""
        from pylogseg.reading.arrow.columns import schema

        typed = self._choose_schemas(self._names)
        return (schema(self.columns) if typed is None else typed.schema()).__arrow_c_schema__()

    @property
    def _names(self) -> Sequence[str]:
        return DEFAULT_COLUMNS if self.columns is None else self.columns

    @property
    def _has_files(self) -> bool:
        return all(isinstance(log, LogFiles) for log in self.scope.logs)

    @property
    def _is_filtered_by_others(self) -> bool:
        """True if the filter is about columns that are not selected; RequestError if these are decoded."""
        if self._filter is None or self.columns is None:
            return False
        from pylogseg.reading.filters import fields_of

        others = [name for name in fields_of([self._filter], DATASET_COLUMNS) if name not in self.columns]
        if others and self.decoding is not None:
            raise RequestError(f"the filter is about {others[0]}: select it, too")
        return bool(others)

    def scan(self, columns: Sequence[str] | None = None, *, filters_rows: bool = False) -> LogScan:
        """Return the table of the records, by default with all columns, for who scans by tasks; see `LogScan`."""
        from pylogseg.reading.scan import LogScan

        if not self._has_files:
            raise RequestError("a log that this program writes has no plan: use batches(), or read its folder")
        names = DATASET_COLUMNS if columns is None else columns
        return LogScan(self.scope, names, self._choose_schemas(names), filters_rows=filters_rows)

    def _choose_schemas(self, names: Sequence[str]) -> TypedBatches | None:
        """Choose the schemas for some columns."""
        if self.decoding is None:
            return None
        from pylogseg.values.decoding import typed_batches

        logs = cast("Sequence[LogFiles]", self.scope.logs)
        schemas = cast("Disk", self._schema_disk or self.disk)
        return typed_batches(self.decoding, schemas, topics_of(logs), names, self._first_chunks)

    def _first_chunks(self) -> Iterator[Chunk]:
        """Yield the selected records, or without any the records of the whole logs: they name the same schemas."""
        is_empty = True
        for chunk in self.scope._replace(state=replace(self.scope.state, gaps=[])).chunks():
            is_empty = False
            yield chunk
        if is_empty:
            yield from ReadScope.of(self.scope.logs, reading=self.scope.state.reading).chunks()


def read(
    path: Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    offset: int | tuple[int | None, int | None] | None = None,
    timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
    limit: int | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
    columns: Sequence[str] | None = None,
    *,
    filter: Any = None,
    jobs: int | None = 1,
    control: bool = False,
    check_crc: bool = True,
    from_log_start: bool = True,
    max_decompressed_bytes: int = 64 << 20,
    max_bytes_per_second: float | None = None,
    drop_behind: bool = False,
    reuse_buffers: bool | Literal["columns"] = False,
    latest: bool = False,
    tombstones: bool = False,
    latest_memory_bytes: int = MEMORY_BYTES,
) -> Reader:
    """Read records from files that a Kafka broker wrote.

    Parameters
    ----------
    path : path, URL, list of them, Disk, Partition or list of partitions
        A log directory, a folder of log directories, a partition's folder or a file of batches.
    topic : str or list of str, optional
        Topics, partitions (``"orders-3"``) or shell patterns; all live partitions by default.
    partition : int or list of int, optional
        Only partitions with these numbers.
    offset : int or (int, int), optional
        First offset, or a half-open range; either end may be None. A negative one counts from the end of each
        partition: -3 are the last three offsets. A first offset above the end gives no records, and is not an error.
    timestamp : int (ms), datetime, or a pair, optional
        Records with timestamps in this half-open range, anywhere in the log: timestamps need not ascend, so the log is
        read to its end. A datetime must have a zone.
    limit : int, optional
        Most records to return, over all partitions.
    isolation_level : {"read_uncommitted", "read_committed"}
        ``read_committed`` leaves out the records of aborted transactions, and ends at the first open one.
    on_corrupt : {"raise", "stop", "skip"}
        At damage: raise `CorruptionError`; end that partition; or continue with the next good batch. `Reader.gaps` has
        the report.
    columns : sequence of str, optional
        The columns to return, by their Arrow names (``"key"``, ``"value"``, ``"headers"``, ...). In a `Record`,
        payloads that are not requested are None or empty.
    filter : pyarrow.compute.Expression, optional
        Only the records for which it is true, such as ``pyarrow.compute.field("offset") >= 5``. Conditions on
        topic, partition, offset and timestamp also limit which parts of each log are read.
    jobs : int or None
        Threads that decode ahead for an engine that takes the reader as an Arrow stream, in order: 1 is the caller's
        own, None one per processor. Iterating over records or chunks uses the caller's. Not with `latest`.
    control : bool
        Include control records (transaction markers and the like).
    check_crc : bool
        Check the CRC of each batch before returning its records.
    from_log_start : bool
        Leave out records below the log start offset, like a consumer, even if they are still in the file.
    max_decompressed_bytes : int
        A batch that decompresses to more counts as damaged.
    max_bytes_per_second : float, optional
        Read no faster.
    drop_behind : bool
        Drop pages from the page cache after reading them, so that reading a whole disk does not evict everything else.
    reuse_buffers : bool or "columns"
        Decode into the same memory: a chunk is then valid only until the next one. Faster, for loops over
        `Reader.chunks` that keep nothing. ``"columns"``: the payloads that the columns point at are not overwritten.
    latest : bool
        Return only the last record of each key among the selected records, in the order of offsets, as compaction
        would leave them. Records without a key, and keys whose last record has no value, are left out. Each partition
        is read twice.
    tombstones : bool
        With `latest`: include the last record of a key even if it has no value.
    latest_memory_bytes : int
        With `latest`: memory of the map of keys, 27 bytes for each. More keys need more passes.

    Returns
    -------
    Reader

    Raises
    ------
    RequestError
        For invalid arguments and unknown names.
    StorageError
        If the disk fails.
    CorruptionError
        While iterating, with ``on_corrupt="raise"``.

    Examples
    --------
    >>> import pylogseg
    >>> [record.value for record in pylogseg.read("examples/data", "txn-a-0", limit=2)]
    [b'committed', b'committed']
    """
    whole = as_disk(path)
    selection = selection_of(
        offset,
        timestamp,
        limit=limit,
        latest=latest,
        tombstones=tombstones,
        latest_memory_bytes=latest_memory_bytes,
        from_log_start=from_log_start,
        filter=row_filter(filter, None),
    )
    choice = PartitionChoice.of(topic, partition)
    selection = replace(selection, topics=choice.names, partitions=choice.numbers)
    reading = Reading(
        isolation_level,
        on_corrupt,
        control,
        check_crc,
        max_decompressed_bytes,
        max_bytes_per_second,
        drop_behind,
        job_count(jobs),
    )
    if latest and jobs != 1:
        raise RequestError("jobs= and latest= cannot be combined: the last record of each key is found by one thread")
    scope = ReadScope.of(selection.logs(whole), selection, reading)
    scope.state.scratch = _scratch(reuse_buffers)
    return Reader(scope, columns, disk=whole, filter=filter)


def row_filter(filter: Any, decoding: Decoding | None) -> Any:
    """Return the filter on rows that are not decoded; a filter on decoded fields is for the scan."""
    if filter is None or decoding is not None:
        return None
    from pylogseg.reading.bounds import ArrowFilter

    return ArrowFilter(filter)


def _narrow_times(earlier: Selection, later: Selection) -> dict[str, int | None]:
    """Return the range of timestamps that is in two, as fields of a selection; an empty one has no record."""
    starts = [since for since in (earlier.since, later.since) if since is not None]
    ends = [until for until in (earlier.until, later.until) if until is not None]
    since, until = max(starts, default=None), min(ends, default=None)
    return {"since": since, "until": until if since is None or until is None else max(since, until)}


def _narrow_choice(earlier: Selection, later: PartitionChoice, logs: Sequence[LogSource]) -> dict[str, Any]:
    """Return the intersection of both choices, as fields of a selection; `logs` are the logs that both take."""
    if earlier.topics and later.names:
        return {"topics": tuple(log.name for log in logs if isinstance(log, LogFiles)), "partitions": ()}
    several = set(earlier.partitions) & set(later.numbers) if earlier.partitions and later.numbers else None
    numbers = earlier.partitions or later.numbers if several is None else tuple(sorted(several))
    return {"topics": earlier.topics or later.names, "partitions": numbers}


def _chosen(logs: Sequence[LogSource], choice: PartitionChoice) -> list[LogSource]:
    """Return the logs of some topics and partitions; RequestError if there is none."""
    kept = []
    for log in logs:
        head = log.segments[0] if isinstance(log, LogFiles) and log.segments else None
        if head is not None and choice.takes(head.topic, head.partition):
            kept.append(log)
    if not kept:
        raise RequestError(f"none of these logs is {', '.join(choice.names) or choice.numbers}")
    return kept


def _with_decoded(record: Record, row: dict[str, Any], columns: Iterable[str]) -> Record:
    """Return a record with the decoded payloads of its row; a payload that does not decode stays bytes."""
    decoded = {which: row[which] for which in columns if row.get(f"{which}Raw") is None}
    return record._replace(**decoded)


def _scratch(reuse_buffers: Any) -> Callable[[], Scratch] | None:
    try:
        return _SCRATCH[reuse_buffers]
    except (KeyError, TypeError):
        raise RequestError(f'invalid reuse_buffers={reuse_buffers!r}: expected False, True or "columns"') from None
