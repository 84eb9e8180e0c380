"""`pylogseg.read_arrow`: records as a stream of Arrow record batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import as_disk
from pylogseg.errors import RequestError
from pylogseg.reading.column_names import DEFAULT_COLUMNS
from pylogseg.reading.latest import MEMORY_BYTES
from pylogseg.reading.logs import LogFiles, topics_of
from pylogseg.reading.partition import IsolationLevel, OnCorrupt
from pylogseg.reading.scan import record_stream
from pylogseg.reading.stream import Moment, Path, read
from pylogseg.values.decoding import Decoding, OnUndecoded, SchemaChoice, typed_batches
from pylogseg.values.schemas.store import Schemas


def read_arrow(
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
    views: bool = False,
    control: bool = False,
    check_crc: bool = True,
    from_log_start: bool = True,
    max_decompressed_bytes: int = 64 << 20,
    max_bytes_per_second: float | None = None,
    drop_behind: bool = False,
    latest: bool = False,
    tombstones: bool = False,
    latest_memory_bytes: int = MEMORY_BYTES,
    decoding: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
) -> pa.RecordBatchReader:
    """Read records as a stream of Arrow record batches.

    Parameters
    ----------
    path, topic, partition, offset, timestamp, limit, isolation_level, on_corrupt
        As for `pylogseg.read`.
    columns : sequence of str, optional
        Names from `DEFAULT_COLUMNS` and `BATCH_COLUMNS`; other columns are not decoded.
    filter : pyarrow.compute.Expression, optional
        Only the records for which it is true, such as ``pyarrow.compute.field("offset") >= 5``. Partitions, segments
        and ranges of segments that cannot have such records are not read, as with `pylogseg.dataset`.
    jobs : int or None
        Threads that decode ahead, in the order of records: 1 is the caller's own, None one per processor. Not with
        `views`, `latest`.
    views : bool
        Return keys and values as binary views into the bytes that were read (of compressed batches: that were
        decompressed), so that no payload is copied. These bytes stay in memory as long as one of the batches does.
    control, check_crc, from_log_start, max_decompressed_bytes, max_bytes_per_second, drop_behind
        As for `pylogseg.read`.
    latest, tombstones, latest_memory_bytes
        As for `pylogseg.read`.
    decoding : {"value", "key"}, sequence of them, or Decoding, optional
        Columns to decode to typed values by their schemas (Avro, Protobuf, JSON); not with `views`.
    schema, registry, on_undecoded
        As for `Decoding`: the reader's schema, where schemas are, and what to do with a value that does not decode.

    Returns
    -------
    pyarrow.RecordBatchReader
        It has the Arrow C stream interface, so polars, duckdb and others read it as it is.

    Examples
    --------
    >>> import pylogseg
    >>> table = pylogseg.read_arrow("examples/data", "txn-a-0", columns=["offset", "value"]).read_all()
    >>> table.column_names
    ['offset', 'value']
    """
    reader = read(
        path,
        topic,
        partition,
        offset,
        timestamp,
        limit,
        isolation_level,
        on_corrupt,
        control=control,
        check_crc=check_crc,
        from_log_start=from_log_start,
        jobs=jobs,
        max_decompressed_bytes=max_decompressed_bytes,
        max_bytes_per_second=max_bytes_per_second,
        drop_behind=drop_behind,
        latest=latest,
        tombstones=tombstones,
        latest_memory_bytes=latest_memory_bytes,
    )
    typed = None
    if decoding is not None:
        if views:
            raise RequestError("decoding= cannot be combined with views=")
        how = Decoding.of(decoding, schema=schema, registry=registry, on_undecoded=on_undecoded)
        names, logs = DEFAULT_COLUMNS if columns is None else columns, cast("Sequence[LogFiles]", reader.scope.logs)
        typed = typed_batches(how, as_disk(path), topics_of(logs), names, reader.chunks)
    elif any(each is not None for each in (schema, registry, on_undecoded)):
        raise RequestError("schema=, registry= and on_undecoded= need decoding='value'")
    if (filter is not None or jobs != 1) and (views or latest):
        raise RequestError("filter= and jobs= cannot be combined with views= or latest=: filter the result")
    return record_stream(reader.scope, columns, filter, typed, views=views)
