"""Short forms of `pylogseg.read`: a stream of Arrow, a lazy frame of polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pylogseg.env.filesystem import Path
from pylogseg.errors import RequestError
from pylogseg.reading.selection import Moment
from pylogseg.tables.reader import Reader, ReadKeywords, Source, read

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pylogseg.tables.polars import LazyFrame
    from pylogseg.values.decoding import Decoding, OnUndecoded, SchemaChoice
    from pylogseg.values.schemas.store import Schemas


def read_arrow(
    path: Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    offset: int | tuple[int | None, int | None] | None = None,
    timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
    limit: int | None = None,
    *,
    views: bool = False,
    decoding: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
    **how: Unpack[ReadKeywords],
) -> pa.RecordBatchReader:
    """Read records as a stream of Arrow record batches: ``read(...).decode(...).batches()``.

    Parameters
    ----------
    path, topic, partition, offset, timestamp, limit, **how
        As for `pylogseg.read`. ``columns`` are names from `DEFAULT_COLUMNS` and `BATCH_COLUMNS`.
    views : bool
        As for `Reader.batches`.
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
    filter = how.pop("filter", None)
    reader = read(path, topic, partition, offset, timestamp, limit, **how)
    return with_decoding(reader, decoding, schema, registry, on_undecoded, filter).batches(views=views)


def scan_polars(
    path: Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    decoding: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
    **how: Unpack[ReadKeywords],
) -> LazyFrame:
    """Return logs as a lazy frame of polars, which reads only the parts that a query needs: ``read(...).lazy()``.

    Parameters
    ----------
    path, topic, partition, decoding, schema, registry, on_undecoded, **how
        As for `pylogseg.dataset`.

    Returns
    -------
    polars.LazyFrame
        It reads only the columns of the query, and no more rows than ``head`` asks for. Filters on topic, partition,
        offset and timestamp leave out segments and ranges of segments; polars applies all filters to the rest.

    Raises
    ------
    RequestError
        For invalid arguments, unknown names, and without polars.
    StorageError
        If a folder cannot be listed.

    Examples
    --------
    >>> import polars, pylogseg
    >>> logs = pylogseg.scan_polars("examples/data", "txn-a")
    >>> logs.filter(polars.col("offset") < 2).select("partition", "offset").collect().rows()
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    filter = how.pop("filter", None)
    reader = read(path, topic, partition, **how)
    return with_decoding(reader, decoding, schema, registry, on_undecoded, filter).lazy()


def with_decoding(
    reader: Reader,
    decoding: str | Sequence[str] | Decoding | None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None,
    registry: Path | Schemas | None,
    on_undecoded: OnUndecoded | None,
    filter: Any,
) -> Reader:
    """Return a reader that decodes, if the arguments ask for it, and then filters; RequestError if they contradict."""
    if decoding is not None:
        reader = reader.decode(decoding, schema=schema, registry=registry, on_undecoded=on_undecoded)
    elif any(choice is not None for choice in (schema, registry, on_undecoded)):
        raise RequestError("schema=, registry= and on_undecoded= need decoding='value'")
    return reader if filter is None else reader.where(filter)
