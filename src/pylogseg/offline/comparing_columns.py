"""Compare the records of two logs, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _gather
from pylogseg.format.batches import Mask
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import COPY_SLACK_BYTES

#: What of a record differs, as bits.
KEY, VALUE, TIMESTAMP, HEADERS = 1, 2, 4, 8
FIELD_NAMES = {KEY: "key", VALUE: "value", TIMESTAMP: "timestamp", HEADERS: "headers"}

#: Payload that is laid side by side at a time: it stays in the processor's cache.
_SLICE_BYTES = 1 << 20


class BytePlaces(NamedTuple):
    """Ranges of bytes, which the places find in `sources`."""

    place: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    sources: tuple[Any, ...]

    def gather(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
        """The bytes of some of them, back to back."""
        size = np.ascontiguousarray(self.size[rows])
        total = int(size.sum(dtype=np.int64))
        ends, validity = np.empty(len(rows) + 1, np.int32), np.empty((len(rows) + 7) // 8, np.uint8)
        data = np.empty(total + COPY_SLACK_BYTES, np.uint8)
        _gather.gather_binary(np.ascontiguousarray(self.place[rows]), size, self.sources, ends, data, validity)
        return data[:total]

    def pieces(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the bytes of all of them, back to back."""
        yield from map(self.gather, _slices(np.flatnonzero(self.size > 0), self.size))


def changes(a: RecordColumns, b: RecordColumns) -> npt.NDArray[np.uint8]:
    """Return for each row the sum of `KEY`, `VALUE`, `TIMESTAMP` and `HEADERS` that differ; 0 if none do."""
    found = np.zeros(len(a), np.uint8)
    found[_differ(BytePlaces(a.key_place, a.key_size, a.sources), BytePlaces(b.key_place, b.key_size, b.sources))] |= (
        KEY
    )
    values = BytePlaces(a.value_place, a.value_size, a.sources), BytePlaces(b.value_place, b.value_size, b.sources)
    found[_differ(*values)] |= VALUE
    found[a.timestamp != b.timestamp] |= TIMESTAMP
    found[_headers_differ(a, b)] |= HEADERS
    return found


def _differ(a: BytePlaces, b: BytePlaces) -> Mask:
    differs: Mask = a.size != b.size
    for rows in _slices(np.flatnonzero(~differs & (a.size > 0)), a.size):
        left, right = a.gather(rows), b.gather(rows)
        if not np.array_equal(left, right):
            ends = np.cumsum(a.size[rows], dtype=np.int64)
            differs[rows[np.unique(np.searchsorted(ends, np.flatnonzero(left != right), "right"))]] = True
    return differs


def _slices(rows: npt.NDArray[np.intp], size: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.intp]]:
    """Rows in runs of about `_SLICE_BYTES`, or of one row that has more."""
    ends = np.cumsum(size[rows], dtype=np.int64)
    at = 0
    while at < len(rows):
        done = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, done + _SLICE_BYTES, "right")))
        yield rows[at:end]
        at = end


def _headers_differ(a: RecordColumns, b: RecordColumns) -> Mask:
    differs: Mask = a.header_count != b.header_count
    rows = np.flatnonzero(~differs & (a.header_count > 0))
    if not len(rows):
        return differs
    a, b = a.take(rows), b.take(rows)
    a_name, a_name_size, a_value, a_value_size = a.header_spans()
    b_name, b_name_size, b_value, b_value_size = b.header_spans()
    headers = _differ(BytePlaces(a_name, a_name_size, a.sources), BytePlaces(b_name, b_name_size, b.sources))
    headers |= _differ(BytePlaces(a_value, a_value_size, a.sources), BytePlaces(b_value, b_value_size, b.sources))
    differs[rows[np.repeat(np.arange(len(rows)), a.header_count)[headers]]] = True
    return differs
