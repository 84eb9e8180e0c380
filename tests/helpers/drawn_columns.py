"""Record columns for tests of text: drawn records, and the columns that hold them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st
from reference.text import Record

from pylogseg import _codec
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns

AWKWARD = st.sampled_from(
    [
        b"",
        b'"',
        b"\\",
        b"\n",
        b"a,b",
        b"\x00\x1f\x7f",
        "ключ".encode(),
        "🌍".encode(),
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xff" * 20,
        b"[1, 2]",
        b'{"a":\r\n{"b":[null,true,1.5e-3]}}',
        b'"\\ud83d"',
        b"NaN",
        b"01",
        b"[1,]",
        b" 1 ",
        b"x" * 15 + b'"',
        b"x" * 16 + b"\xc3\xa9",
        b"x" * 31 + b"\n",
    ]
)


JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
).flatmap(
    lambda value: st.sampled_from([json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)]).map(str.encode)
)


PAYLOAD = (
    st.binary(max_size=40)
    | AWKWARD
    | st.lists(AWKWARD, max_size=4).map(b"".join)
    | st.text().map(lambda s: s.encode())
    | JSON_TEXT
)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


RECORDS = st.lists(
    st.tuples(
        INT64,
        INT64,
        st.none() | PAYLOAD,
        st.none() | PAYLOAD,
        st.lists(st.tuples(PAYLOAD, st.none() | PAYLOAD), max_size=3).map(tuple),
    ).map(lambda fields: Record(*fields)),
    max_size=6,
)


def build(records: list[Record], rows: np.ndarray[Any, Any] | None = None, pad: bytes = b"") -> RecordColumns:
    """Columns of records, odd ones in source 0 and even ones in source 1; every span ends where the next one begins."""
    sources = bytearray(), bytearray()
    columns: list[list[int]] = [[] for _ in range(9)]
    for i, record in enumerate(records):
        source = sources[i % 2]
        base = (i % 2) << SOURCE_SHIFT
        spans: list[int] = []
        for data in (record.key, record.value):
            spans += [base | len(source), -1 if data is None else len(data)]
            source += data or b""
        spans += [base | len(source), len(record.headers)]
        for name, value in record.headers:
            source += _codec.encode_varint(len(name)) + name
            source += _codec.encode_varint(-1) if value is None else _codec.encode_varint(len(value)) + value
        for column, number in zip(columns, [record.offset, record.timestamp, *spans, record.batch], strict=True):
            column.append(number)
    if rows is None:
        rows = np.zeros(1, BATCH_DTYPE)
        rows["magic"] = 2
    kinds = (np.int64, np.int64, np.int64, np.int32, np.int64, np.int32, np.int64, np.int32, np.int32)
    arrays = (np.array(column, kind) for column, kind in zip(columns, kinds, strict=True))
    return RecordColumns(*arrays, BatchTable(rows), tuple(bytes(source) + pad for source in sources))
