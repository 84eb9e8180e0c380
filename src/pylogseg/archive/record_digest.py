"""The digest of the records of a log. It does not depend on batches, codecs and the windows of the reading."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from pylogseg.format.records import RecordColumns
from pylogseg.offline.comparing_columns import BytePlaces

#: Offsets, timestamps, numbers of headers; sizes and bytes of keys, values, names and values of headers.
_COLUMNS = 11


class RecordDigest:
    """A SHA-256 over the SHA-256 of each column: equal for logs with the same records at the same offsets.

    `first_offset` and `last_offset` are -1 without records.
    """

    def __init__(self) -> None:
        self._columns = [hashlib.sha256() for _ in range(_COLUMNS)]
        self.records, self.first_offset, self.last_offset = 0, -1, -1

    def add(self, columns: RecordColumns) -> None:
        if not len(columns):
            return
        self.first_offset = int(columns.offset[0]) if not self.records else self.first_offset
        self.last_offset, self.records = int(columns.offset[-1]), self.records + len(columns)
        names, name_sizes, values, value_sizes = columns.header_spans()
        spans = [
            BytePlaces(columns.key_place, columns.key_size, columns.sources),
            BytePlaces(columns.value_place, columns.value_size, columns.sources),
            BytePlaces(names, name_sizes, columns.sources),
            BytePlaces(values, value_sizes, columns.sources),
        ]
        numbers = [columns.offset, columns.timestamp, columns.header_count, *(each.size for each in spans)]
        for digest, column in zip(self._columns, numbers, strict=False):
            data: Any = np.ascontiguousarray(column, "<i8")
            digest.update(data)
        for digest, each in zip(self._columns[len(numbers) :], spans, strict=True):
            piece: Any
            for piece in each.pieces():
                digest.update(piece)

    def text(self) -> str:
        return hashlib.sha256(b"".join(column.digest() for column in self._columns)).hexdigest()
