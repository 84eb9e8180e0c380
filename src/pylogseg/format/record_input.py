"""Records as Python objects, gathered into columns to encode."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pylogseg._native import _encoder
from pylogseg._native._encoder import Columns
from pylogseg.errors import RequestError
from pylogseg.format.moments import ms_of
from pylogseg.format.scratch import SOURCE_SHIFT

_TAKEN = ("offset", "timestamp", "key", "value", "headers")
#: What a record that was read has beside that: where it lay, which is no part of it.
_PASSED_BY = {"topic", "partition", "timestamp_type"}


def columns_from_records(
    records: Iterable[Any], *, base_offset: int | None = None, timestamp_default_ms: int = -1
) -> Columns:
    """Gather records into columns; their payloads are copied into one arena.

    A record is a tuple ``(timestamp, key, value[, headers])``, or a mapping or object with ``timestamp``, ``key``,
    ``value``, ``headers``, ``offset``, where what is missing is None. A timestamp is milliseconds, a datetime with a
    zone, or None; keys and values are bytes-like, text (stored as UTF-8) or None; headers a mapping or pairs. Without
    `base_offset` records keep their offsets, or start at 0 if they have none. A RequestError names the record.
    """
    if not isinstance(records, Iterable):
        raise RequestError(f"records are a list of tuples (timestamp, key, value), not {type(records).__name__}")
    offsets: list[Any] = []
    timestamps: list[int] = []
    chunks: list[bytes] = []
    sizes: list[int] = []
    headers: list[tuple[Any, Any]] = []
    counts: list[int] = []
    for i, record in enumerate(records):
        try:
            offset, timestamp, key, value, pairs = _fields(record)
            timestamps.append(timestamp_default_ms if timestamp is None else _milliseconds(timestamp))
            if timestamps[-1] < -1 and type(record) is tuple:  # what was read from a log has the times that it has
                raise ValueError("its timestamp is negative and not -1")
            offsets.append(offset)
            for payload in (key, value):
                data = payload if type(payload) is bytes else _payload(payload)
                if data is None:
                    sizes.append(-1)
                else:
                    sizes.append(len(data))
                    chunks.append(data)
            before = len(headers)
            if pairs:
                headers.extend(_pairs(pairs))
            counts.append(len(headers) - before)
        except (TypeError, ValueError) as error:
            raise RequestError(f"record {i}: {error}") from None
    places, size = _spans(sizes)
    header_columns, arena = _header_columns(headers, counts)
    return Columns(
        len(timestamps),
        _offsets(offsets) if base_offset is None else None,
        _longs(timestamps, "timestamp"),
        np.ascontiguousarray(places[0::2]),
        np.ascontiguousarray(size[0::2]),
        np.ascontiguousarray(places[1::2]),
        np.ascontiguousarray(size[1::2]),
        *header_columns,
        (b"".join(chunks), arena),
        base_offset or 0,
    )


def _fields(record: Any) -> Sequence[Any]:
    if type(record) is tuple or type(record) is list:
        if len(record) not in (3, 4):
            raise ValueError(
                f"a tuple of {len(record)} items, not (timestamp, key, value) or (timestamp, key, value, headers)"
            )
        return (None, *record) if len(record) == 4 else (None, *record, None)
    if isinstance(record, Mapping):
        unknown = record.keys() - _PASSED_BY - set(_TAKEN)
        if unknown:
            raise ValueError(f"unknown field {sorted(map(str, unknown))[0]!r}; there are {', '.join(_TAKEN)}")
        return [record.get(name) for name in _TAKEN]
    if not hasattr(record, "value"):
        what = f"{type(record).__name__} is not a record: it has no value"
        raise TypeError(f"{what}; records are a list of tuples (timestamp, key, value), also a single one")
    return [getattr(record, name, None) for name in _TAKEN]


def _milliseconds(timestamp: Any) -> int:
    if isinstance(timestamp, datetime.datetime):
        return ms_of(timestamp)
    try:
        return operator.index(timestamp)
    except TypeError:
        raise TypeError(f"a timestamp is milliseconds, a datetime or None, not {type(timestamp).__name__}") from None


def _payload(payload: Any) -> bytes | None:
    if payload is None or type(payload) is bytes:
        return payload
    if isinstance(payload, str):
        return payload.encode()
    try:
        return bytes(memoryview(payload))
    except TypeError:
        raise TypeError(
            f"keys, values and header values are bytes, text or None, not {type(payload).__name__}"
        ) from None


def _pairs(headers: Any) -> list[tuple[bytes, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded = []
    for name, value in pairs:
        if name is None:
            raise ValueError("a header has no name")
        # Readers give names that are not UTF-8 with surrogates; here they turn into their bytes again.
        key = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else _payload(name)
        encoded.append((key or b"", _payload(value)))
    return encoded


def _spans(sizes: list[int]) -> tuple[Any, Any]:
    """Return places in an arena of payloads back to back, and sizes with -1 for nulls."""
    try:
        size = np.array(sizes, np.int32)
    except OverflowError:
        raise RequestError("a key or value is larger than 2^31 - 1 bytes") from None
    ends = np.cumsum(np.maximum(size, 0), dtype=np.int64)
    return ends - np.maximum(size, 0), size


def _longs(values: list[int], what: str) -> Any:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise RequestError(f"a {what} does not fit in 64 bits") from None


def _offsets(offsets: list[Any]) -> Any:
    count = sum(offset is not None for offset in offsets)
    if count == 0:
        return None
    if count != len(offsets):
        lacking = next(i for i, offset in enumerate(offsets) if offset is None)
        raise RequestError(
            f"record {lacking}: it has no offset, while other records have one: give base_offset to number them again"
        )
    return _longs(offsets, "offset")


def _header_columns(headers: list[tuple[Any, Any]], counts: list[int]) -> tuple[tuple[Any, Any], Any]:
    """Return headers in wire form: places into source 1, counts, and the arena that becomes that source."""
    if not headers:
        return (None, None), b""
    chunks = [payload for pair in headers for payload in pair]
    places, size = _spans([-1 if chunk is None else len(chunk) for chunk in chunks])
    name, value = ((np.ascontiguousarray(places[k::2]), np.ascontiguousarray(size[k::2])) for k in (0, 1))
    arena = b"".join(chunk or b"" for chunk in chunks)
    flat = Columns(len(headers), None, None, *name, *value, None, None, (arena,))
    return wire_headers(flat, np.array(counts, np.int32), source=1)


def wire_headers(headers: Columns, count: Any, source: int) -> tuple[tuple[Any, Any], Any]:
    """Turn flat columns of headers into ``((headers_place, header_count), arena)``, places pointing into `source`."""
    arena, place, bad = _encoder.wire_headers(headers, count)
    if bad >= 0:
        raise RequestError(f"record {bad}: a header has no name")
    return (place | (source << SOURCE_SHIFT), count), arena
