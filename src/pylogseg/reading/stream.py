"""`pylogseg.read`: records of files, partitions or whole disks as a stream in bounded memory."""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np

from pylogseg.disk.choice import whole_number
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import as_disk
from pylogseg.env.executor import job_count
from pylogseg.errors import RequestError
from pylogseg.format.moments import first_ms, warned_of_unit
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.reading.column_names import check_columns
from pylogseg.reading.latest import MEMORY_BYTES, Latest
from pylogseg.reading.log_reader import Filter, ReadScope, check_order, check_times
from pylogseg.reading.logs import LogSource, logs_of
from pylogseg.reading.partition import (
    OPEN_END,
    Chunk,
    IsolationLevel,
    OnCorrupt,
    ReadOptions,
    Throttle,
    small_window,
)
from pylogseg.walker.gaps import Gap

#: Memory of a reader for each value of ``reuse_buffers``.
_SCRATCH: dict[bool | str, Callable[[], Scratch] | None] = {
    False: None,
    True: Scratch,
    "columns": functools.partial(Scratch, with_arena=False),
}

Path = str | os.PathLike[str]
Moment = int | datetime.datetime


class Record(NamedTuple):
    """One record, with copied payloads.

    Attributes
    ----------
    offset : int
    timestamp : int
        Milliseconds since 1970, UTC; -1 none.
    timestamp_type : int
        0 CreateTime, 1 LogAppendTime, -1 none (magic 0).
    key, value : bytes or None
    headers : tuple of (str, bytes or None)
        Pairs in the order of the record; a name that is not UTF-8 keeps its bytes as surrogate escapes.
    topic, partition : str, int
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int


class Reader:
    """A stream of records; iterate over it for `Record`s, or over `chunks()` for columns.

    Each iteration reads from the start. `gaps` has the gaps of the last one: damage with ``on_corrupt="skip"`` and
    ``"stop"``, and torn or zero-filled tails always.
    """

    def __init__(self, scope: ReadScope, columns: Sequence[str] | None = None) -> None:
        self.scope, self.columns = scope, columns

    def __repr__(self) -> str:
        """Return a short text without paths."""
        count = len(self.scope.logs)
        return f"<pylogseg.Reader of {count} log{'' if count == 1 else 's'}>"

    @property
    def gaps(self) -> list[Gap]:
        """The gaps of the last iteration."""
        return self.scope.options.gaps

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records as columns, a part of a segment at a time; empty chunks are left out."""
        self.gaps.clear()
        yield from self.scope.chunks()

    def __iter__(self) -> Iterator[Record]:
        for chunk in self.chunks():
            yield from records_of(chunk, self.columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the stream to Arrow; called by polars, duckdb and pyarrow."""
        # Arrow takes long to import, and most readers are iterated.
        from pylogseg.reading.bounds import ArrowFilter
        from pylogseg.reading.scan import record_stream

        self.gaps.clear()
        given = self.scope.filter
        found = record_stream(self.scope, self.columns, given.expression if isinstance(given, ArrowFilter) else None)
        return found.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Export the schema of the stream alone, for who asks before it reads."""
        from pylogseg.reading.arrow.columns import schema

        return schema(self.columns).__arrow_c_schema__()

    def to_pandas(self) -> Any:
        """Return all records as a pandas DataFrame with the columns of `read_arrow`; they must fit in memory."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self).read_pandas()


def records_of(chunk: Chunk, names: Sequence[str] | None = None) -> Iterator[Record]:
    """Yield the records of a chunk as objects; payloads that are not requested are None."""
    columns, topic, partition = chunk.columns, chunk.topic, chunk.partition
    count = len(columns)
    keys = _payloads(columns, columns.key_place, columns.key_size) if _is_selected("key", names) else [None] * count
    values = (
        _payloads(columns, columns.value_place, columns.value_size) if _is_selected("value", names) else [None] * count
    )
    kinds = columns.batches.timestamp_type[columns.batch].tolist()
    headers = (_headers(columns) if _is_selected("headers", names) else []) or [()] * count
    offsets, timestamps = columns.offset.tolist(), columns.timestamp.tolist()
    yield from map(Record, offsets, timestamps, kinds, keys, values, headers, repeat(topic), repeat(partition))


def _is_selected(name: str, names: Sequence[str] | None) -> bool:
    return names is None or name in names


def _payloads(columns: RecordColumns, places: Any, sizes: Any) -> list[bytes | None]:
    views = [memoryview(source) for source in columns.sources]
    positions, sources = (places & SOURCE_MASK).tolist(), (places >> SOURCE_SHIFT).tolist()
    return [
        None if size < 0 else bytes(views[source][position : position + size])
        for source, position, size in zip(sources, positions, sizes.tolist(), strict=True)
    ]


def _headers(columns: RecordColumns) -> list[tuple[tuple[str, bytes | None], ...]]:
    if not columns.tally().headers:
        return []
    key_place, key_size, value_place, value_size = columns.header_spans()
    names = ((name or b"").decode("utf-8", "surrogateescape") for name in _payloads(columns, key_place, key_size))
    pairs = list(zip(names, _payloads(columns, value_place, value_size), strict=True))
    ends = np.cumsum(columns.header_count).tolist()
    return [tuple(pairs[end - count : end]) for end, count in zip(ends, columns.header_count.tolist(), strict=True)]


def read(
    path: Path | Sequence[Path] | Disk | Partition | Sequence[Partition],
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
    limit = None if limit is None else whole_number(limit, "limit")
    disk = as_disk(path).select(topic, partition)
    options = ReadOptions(
        isolation_level,
        on_corrupt,
        control=control,
        check_crc=check_crc,
        limit_bytes=max_decompressed_bytes,
        first_window_bytes=small_window(limit),
        throttle=None if max_bytes_per_second is None else Throttle(max_bytes_per_second),
        drop_behind=drop_behind,
        scratch=_scratch(reuse_buffers),
        jobs=job_count(jobs),
    )
    if latest and jobs != 1:
        raise RequestError("jobs= and latest= cannot be combined: the last record of each key is found by one thread")
    logs = logs_of(disk, from_log_start=from_log_start, with_ends=True)
    last_only = Latest(tombstones, latest_memory_bytes) if latest else None
    wanted = None if filter is None else _of_arrow(filter)
    return reader_of(logs, offset, timestamp, limit, options, columns, last_only, wanted)


def _of_arrow(filter: Any) -> Filter:
    """A filter, made where Arrow is known."""
    from pylogseg.reading.bounds import ArrowFilter

    return ArrowFilter(filter)


def reader_of(
    logs: Sequence[LogSource],
    offset: int | tuple[int | None, int | None] | None,
    timestamp: Moment | tuple[Moment | None, Moment | None] | None,
    limit: int | None,
    options: ReadOptions,
    columns: Sequence[str] | None,
    latest: Latest | None = None,
    filter: Filter | None = None,
) -> Reader:
    """Return a reader of logs for the arguments of `read`."""
    if latest is not None:
        latest.check(options)
    if columns is not None:
        check_columns(columns)
    limit = None if limit is None else whole_number(limit, "limit")
    if limit is not None and limit < 0:
        raise RequestError(f"limit must not be negative, not {limit}")
    first, end = (None if number is None else whole_number(number, "offset") for number in _pair(offset))
    check_order(first, end)
    since, until = map(milliseconds, _pair(timestamp))
    check_times(since, until)
    offsets = (0 if first is None else first, OPEN_END if end is None else end)
    return Reader(ReadScope(logs, offsets, (since, until), limit, options, latest, filter), columns)


def _scratch(reuse_buffers: Any) -> Callable[[], Scratch] | None:
    try:
        return _SCRATCH[reuse_buffers]
    except (KeyError, TypeError):
        raise RequestError(f'invalid reuse_buffers={reuse_buffers!r}: expected False, True or "columns"') from None


def _pair(value: Any) -> tuple[Any, Any]:
    if value is None:
        return None, None
    if isinstance(value, tuple):
        if len(value) != 2:
            raise RequestError(f"a range is a pair (start, end), not {value!r}")
        return value
    return value, None


def milliseconds(moment: Moment | None) -> int | None:
    """Return a time of an argument in milliseconds since 1970; RequestError for a datetime without a zone."""
    if isinstance(moment, datetime.datetime):
        return first_ms(moment)
    return None if moment is None else warned_of_unit(whole_number(moment, "timestamp"))
