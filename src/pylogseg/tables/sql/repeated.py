"""Columns of names that records have in common, as duckdb takes them fastest: with a dictionary.

A dictionary of one name is read at once; of a column of strings, duckdb makes a string of its own for each row, also
where a query only counts them, for it asks for a column even then. Its answer is text in either case.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

#: Columns of names that the records of a segment have in common.
_NAMES = frozenset(["topic", "segment"])
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
#: duckdb has no filters on dictionaries applied by an older pyarrow, which takes some nulls of these for values.
_HAS_FILTERS = int(pa.__version__.partition(".")[0]) >= 26


def with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose names that records have in common are in dictionaries, where filters on these work."""
    if not _HAS_FILTERS:
        return schema
    return pa.schema([_encode_field(field) for field in schema], schema.metadata)


def _encode_field(field: pa.Field) -> pa.Field:
    return field.with_type(_DICTIONARY) if field.name in _NAMES and pa.types.is_string(field.type) else field


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of strings with the types of `with_dictionaries`."""
    columns = [
        _dictionary(column) if kind == _DICTIONARY and pa.types.is_string(column.type) else column
        for column, kind in zip(batch.columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    """Return strings with a dictionary; those that are all the same are not looked at one by one."""
    return _same(column[0].as_py(), len(column)) if _is_same(column) else column.dictionary_encode()


def _is_same(column: pa.Array) -> bool:
    """Check whether an array has one string, and nothing else."""
    count = len(column)
    if not count or column.null_count:
        return False
    _, ends, data = column.buffers()
    places = np.frombuffer(ends, np.int32)[column.offset : column.offset + count + 1]
    size = int(places[1] - places[0])
    if not size or data is None or int(places[-1] - places[0]) != size * count or (np.diff(places) != size).any():
        return False
    text = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    # Each byte is that of the string before: what is the same as its neighbour is the same as all.
    return bool((text[size:] == text[:-size]).all())


@functools.lru_cache(maxsize=16)  # most batches of a scan are of one length
def _same(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([name]))
