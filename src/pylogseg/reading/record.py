"""Records as objects, of chunks of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns
from pylogseg.reading.partition import Chunk


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
