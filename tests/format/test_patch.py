"""Tests of format/patch.py. Batches changed in place, and written again with given bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as reference

from pylogseg.errors import RequestError, Verdict
from pylogseg.format import patch
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.builder import rebuild
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.record_input import columns_from_records
from pylogseg.reading.arrow.encode import encode

RECORDS = [(283843, b"key1", b"value1"), (1234, b"key2", b"value2")]
payloads = st.none() | st.binary(max_size=70)
rows = st.tuples(st.integers(1, 50), st.integers(-1, 2**62), payloads, payloads)


def records_of(rows: list[tuple[int, int, bytes | None, bytes | None]]) -> list[reference.Record]:
    found, offset = [], 0
    for step, timestamp, key, value in rows:
        found.append(reference.Record(offset, timestamp, key, value))
        offset += step
    return found


def as_dicts(records: list[reference.Record]) -> list[dict[str, object]]:
    return [record._asdict() for record in records]


def read_back(data: bytes) -> list[reference.Record]:
    found = list(reference.batches(bytes(data)))
    assert all(batch.valid for batch in found)
    return [record for batch in found for record in reference.records(batch)]


@given(st.lists(rows, min_size=1, max_size=12).map(records_of), st.data())
def test_rebuild_keeps_bounds_and_producer(records: list[reference.Record], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(CODEC_NAMES))
    whole = encode(
        as_dicts(records),
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        leader_epoch=2,
        batch_records=4,
        batch_bytes=1 << 24,
    )
    before = scan(whole).batches
    kept = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    changed = before.rows.copy()
    changed["attributes"] |= CODEC_NAMES.index(codec)
    changed["count"] = [sum(kept[4 * i : 4 * i + 4]) for i in range(len(changed))]
    left = [record for record, keep in zip(records, kept, strict=True) if keep]
    out, table = rebuild(columns_from_records(as_dicts(left)), BatchTable(changed))
    after = scan(out).batches
    assert read_back(out) == left
    for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert getattr(after, name).tolist() == getattr(before, name).tolist()
    assert after.rows.tolist() == table.rows.tolist()
    empty = after.rows[after.count == 0]
    assert empty["size"].tolist() == [61] * len(empty)
    assert empty["max_timestamp"].tolist() == before.max_timestamp[after.count == 0].tolist()


def test_rebuild_refuses_counts_that_do_not_fit() -> None:
    columns = columns_from_records(RECORDS)
    rows = scan(encode(RECORDS)).batches.rows.copy()
    for count in (-1, 1, 3):
        rows["count"] = count
        with pytest.raises(RequestError, match="batch"):
            rebuild(columns, BatchTable(rows))
    rows["count"], rows["last_offset"] = 2, 0
    with pytest.raises(RequestError, match="record 1"):
        rebuild(columns, BatchTable(rows))


def test_patches_of_v2() -> None:
    data = bytearray(b"gap") + encode([(5, b"a", b"b"), (9, None, None)], leader_epoch=1, compression="gzip")
    patch.set_last_offset(data, 41, 3)
    patch.set_leader_epoch(data, 8, 3)
    assert [(r.offset, r.timestamp) for r in read_back(data[3:])] == [(40, 5), (41, 9)]
    patch.set_last_offset(data, 8, 3)
    assert patch.set_max_timestamp(data, 100, append_time=True, position=3)
    assert [(r.offset, r.timestamp) for r in read_back(data[3:])] == [(7, 100), (8, 100)]
    table = scan(data, start=3).batches
    assert (table.leader_epoch[0], table.max_timestamp[0], table.codec[0], table.verdict[0]) == (
        8,
        100,
        1,
        Verdict.GOOD,
    )
    before = bytes(data)
    assert not patch.set_max_timestamp(data, 100, append_time=True, position=3)
    assert data == before


def test_patches_of_legacy_batches() -> None:
    data = encode([(5, b"a", b"b"), (9, None, None)], magic=1, compression="gzip")
    patch.set_last_offset(data, 41)
    assert [(r.offset, r.timestamp) for r in read_back(data)] == [(40, 5), (41, 9)]
    assert patch.set_max_timestamp(data, 100, append_time=True)
    assert [(r.offset, r.timestamp) for r in read_back(data)] == [(40, 100), (41, 100)]
    with pytest.raises(RequestError, match="leader epoch"):
        patch.set_leader_epoch(data, 1)
    with pytest.raises(RequestError, match="no timestamp"):
        patch.set_max_timestamp(encode([(None, None, b"")], magic=0), 1, append_time=True)


def test_patches_refuse_what_is_no_batch() -> None:
    whole = encode([(5, b"a", b"b")])
    for data, position in ((whole[:-1], 0), (whole, 1), (whole, -1), (whole, len(whole)), (bytearray(), 0)):
        with pytest.raises(RequestError):
            patch.set_leader_epoch(data, 1, position)
    with pytest.raises(RequestError, match="written"):
        patch.set_leader_epoch(bytes(whole), 1)
    for offset in (-1, 1 << 63):
        with pytest.raises(RequestError, match="range"):
            patch.set_last_offset(whole, offset)
