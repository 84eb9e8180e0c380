"""Tests of reading/arrow/batches.py. Raw record batches in Arrow columns: against the reader, damage, slices, and the
way back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylogseg
from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.reading.arrow import batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def raw(first: int, count: int, **options: object) -> bytes:
    records = [(1000 + i, b"k%d" % i, b"v%d" % i, [("h", b"%d" % i)] if i % 2 else None) for i in range(count)]
    return bytes(pylogseg.encode(records, base_offset=first, **options))


def values(column: pa.Array) -> list[list[bytes] | None]:
    return [None if row is None else [record["value"] for record in row] for row in column.to_pylist()]


def test_records_of_a_column() -> None:
    column = pa.array([raw(5, 3), None, b"", raw(0, 2, compression="zstd") + raw(2, 1)])
    rows = batches.to_records(column).to_pylist()
    assert [None if row is None else [r["offset"] for r in row] for row in rows] == [[5, 6, 7], None, [], [0, 1, 2]]
    assert rows[0][1]["headers"] == [{"key": "h", "value": b"1"}]
    assert rows[0][0]["headers"] is None
    assert rows[0][0]["timestampType"] == 0
    assert rows[3][1]["timestamp"].timestamp() == 1.001
    assert batches.to_records(column[2:]).to_pylist() == rows[2:]


@given(st.lists(st.tuples(st.sampled_from(CODECS), st.integers(0, 5)), max_size=8), st.integers(0, 3))
def test_any_cut_of_a_column(specs: list[tuple[str, int]], skip: int) -> None:
    cells = [raw(0, count, compression=codec) for codec, count in specs]
    column = pa.array(cells, pa.binary())
    whole = batches.to_records(column).to_pylist()
    assert [len(row) for row in whole] == [count for _, count in specs]
    assert batches.to_records(column[skip:]).to_pylist() == whole[skip:]
    table = pa.RecordBatch.from_pydict({"value": column, "n": pa.array(range(len(cells)), pa.int32())})
    rows = [row for t in batches.decoder(keep=["n"])(iter([table])) for row in t.to_pylist()]
    assert [(row["n"], row["offset"]) for row in rows] == [(n, i) for n, (_, k) in enumerate(specs) for i in range(k)]


def damaged() -> list[bytes]:
    good = raw(0, 3)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    packed = bytearray(raw(0, 3, compression="gzip"))
    packed[-6] ^= 0xFF  # gzip's own check sum
    packed[17:21] = _codec.crc32c(bytes(packed[21:])).to_bytes(4, "big")
    return [bytes(flipped), good[:-1], good + b"\0" * 40, b"nothing of the kind, but long enough", bytes(packed)]


@pytest.mark.parametrize("number", range(5))
def test_damage(number: int) -> None:
    good, bad = raw(0, 3), damaged()[number]
    column = pa.array([good, bad, None, good])
    assert [None if row is None else len(row) for row in batches.to_records(column, "null").to_pylist()] == [
        3,
        None,
        None,
        3,
    ]
    with pytest.raises(CorruptionError, match="value 1 of the column"):
        batches.to_records(column)
    table = pa.RecordBatch.from_pydict({"value": column})
    assert sum(t.num_rows for t in batches.decoder(on_undecoded="skip")(iter([table]))) == 6
    with pytest.raises(CorruptionError, match="value 1"):
        list(batches.decoder()(iter([table])))


def test_a_batch_over_the_border_of_two_values() -> None:
    """Two halves of a batch in neighbouring values are no batch, though the bytes follow each other."""
    good = raw(0, 3)
    column = pa.array([good[:30], good[30:]])
    assert batches.to_records(column, "null").to_pylist() == [None, None]


def test_control_records_and_golden(golden: Path) -> None:
    """Segments that a real Kafka wrote, as values, give what the reader gives of the files."""
    compared = 0
    for path in sorted((golden / "broker-4.3").rglob("*.log")):
        data = path.read_bytes()
        whole = data[: pylogseg.scan(data).position]  # an active segment may end in zeros
        if not whole or "damage" in path.parts:
            continue
        expected = pylogseg.read_arrow(str(path), columns=batches.RECORD_COLUMNS).read_all()
        got = batches.decoder()(iter([pa.RecordBatch.from_pydict({"value": [whole]})]))
        assert pa.Table.from_batches(got, expected.schema).equals(expected), path
        compared += 1
    assert compared > 20


def test_there_and_back() -> None:
    kind = pa.list_(batches.RECORD)
    decoded = batches.to_records(pa.array([raw(7, 4), None, raw(0, 2)]))
    again = batches.from_records(decoded.cast(kind), compression="lz4")
    assert batches.to_records(again).equals(decoded)
    assert batches.from_records(pa.array([[]], kind)).to_pylist() == [b""]
    with pytest.raises(RequestError, match="list of structs"):
        batches.from_records(pa.array([b"x"]))
    with pytest.raises(RequestError, match="value 0 of the column"):
        batches.from_records(pa.array([[{"key": b"k"}]]))


def test_encoder() -> None:
    table = pa.RecordBatch.from_pydict({"key": [b"a", None, b"c"], "value": [b"1", b"2", None], "offset": [3, 5, 9]})
    rows = [row for t in batches.encoder(batch_records=2, compression="zstd")(iter([table])) for row in t.to_pylist()]
    assert [(row["baseOffset"], row["lastOffset"], row["records"]) for row in rows] == [(3, 5, 2), (9, 9, 1)]
    back = batches.to_records(pa.array([row["batch"] for row in rows])).to_pylist()
    assert [record["key"] for row in back for record in row] == [b"a", None, b"c"]


def test_names() -> None:
    with pytest.raises(RequestError, match="rename the one to keep"):
        batches.decoder(keep=["key"])
    with pytest.raises(RequestError, match="unknown column 'raw'"):
        list(batches.decoder("raw")(iter([pa.RecordBatch.from_pydict({"value": [b""]})])))


def test_large_columns_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_PIECE_BYTES", 500)
    cells = [raw(0, n) for n in (1, 40, 2, 2, 2, 0, 90)]
    table = pa.RecordBatch.from_pydict({"value": cells})
    tables = list(batches.decoder()(iter([table])))
    assert len(tables) > 2
    assert sum(t.num_rows for t in tables) == 137
    assert np.concatenate([t.column("offset").to_numpy() for t in tables]).tolist() == [
        i for n in (1, 40, 2, 2, 2, 0, 90) for i in range(n)
    ]
