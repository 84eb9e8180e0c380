"""Tests of format/files/snapshot.py. Producer snapshots."""

import json
import struct
from pathlib import Path

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.snapshot import ProducerEntry, encode_snapshot, parse_snapshot
from pylogseg.format.names import FileKind, parse_file_name

crc32c = crcmod.predefined.mkCrcFun("crc-32c")
VECTOR = (
    "00013d49ed2a000000010000000000000001000f00000004000000000000002a0000000400000000000003e8ffffffffffffffffffffffff"
)
i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
entry_lists = st.lists(
    st.builds(ProducerEntry, i64, i16, i32, i64, i32, i64, i32, i64), max_size=50, unique_by=lambda e: e.producer_id
)


def producer(producer_id: int) -> ProducerEntry:
    return ProducerEntry(producer_id, 0, -1, -1, 0, 0, -1, -1)


def test_vectors() -> None:
    entry = ProducerEntry(1, 15, 4, 42, 4, 1000, -1, -1)
    assert parse_snapshot(bytes.fromhex(VECTOR)) == [entry]
    assert encode_snapshot([entry]).hex() == VECTOR
    assert parse_snapshot(bytes.fromhex("000148674bc700000000")) == []
    assert encode_snapshot([]).hex() == "000148674bc700000000"


def test_what_an_entry_tells() -> None:
    entry = ProducerEntry(1, 15, 4, 42, 4, 1000, -1, -1)
    assert (entry.has_batch, entry.first_sequence, entry.has_open_txn) == (True, 0, False)
    assert not producer(1).has_batch
    assert entry._replace(first_txn_offset=0).has_open_txn
    assert entry._replace(last_sequence=1, offset_delta=4).first_sequence == 2**31 - 3


def test_order_is_that_of_javas_map() -> None:
    raw = encode_snapshot([producer(number) for number in (100, 1, 17, 4294967297, 33, 5, -7)])
    assert [entry.producer_id for entry in parse_snapshot(raw)] == [4294967297, 1, 17, 33, 100, 5, -7]


@given(entry_lists)
def test_round_trip(entries: list[ProducerEntry]) -> None:
    raw = encode_snapshot(entries)
    assert len(raw) == 10 + 46 * len(entries)
    assert sorted(parse_snapshot(memoryview(raw))) == sorted(entries)


@given(entry_lists.filter(bool), st.data())
def test_truncations_and_flips(entries: list[ProducerEntry], data: st.DataObject) -> None:
    raw = encode_snapshot(entries)
    for end in range(len(raw)):
        with pytest.raises(CorruptionError):
            parse_snapshot(raw[:end])
    at = data.draw(st.integers(0, len(raw) - 1))
    flipped = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    with pytest.raises(CorruptionError):
        parse_snapshot(flipped)


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1, -1, -(2**31)])
def test_a_count_that_lies_under_a_good_crc(count: int) -> None:
    checked = struct.pack(">i", count) + bytes.fromhex(VECTOR)[10:]
    with pytest.raises(CorruptionError, match=f"{count} entries of 46 bytes declared, 46 bytes there") as caught:
        parse_snapshot(struct.pack(">hI", 1, crc32c(checked)) + checked, "s.snapshot")
    assert (caught.value.path, caught.value.position) == ("s.snapshot", 6)


def test_errors_tell_what_was_found() -> None:
    raw = bytearray.fromhex(VECTOR)
    raw[1] = 2
    with pytest.raises(CorruptionError, match="version 2"):
        parse_snapshot(raw)
    raw[1], raw[20] = 1, 99
    with pytest.raises(CorruptionError, match="stored CRC 1028255018, computed "):
        parse_snapshot(raw)
    with pytest.raises(CorruptionError, match="of 9 bytes"):
        parse_snapshot(raw[:9])


def test_snapshots_that_cannot_be() -> None:
    with pytest.raises(RequestError, match="twice"):
        encode_snapshot([producer(1), producer(1)])
    with pytest.raises(RequestError):
        encode_snapshot([producer(2**63)])


@given(st.binary(max_size=120))
def test_any_bytes(raw: bytes) -> None:
    with_crc = b"\0\1" + struct.pack(">I", crc32c(raw)) + raw
    for data in (raw, with_crc):
        try:
            entries = parse_snapshot(data)
        except CorruptionError:
            continue
        assert len(entries) * 46 <= len(data) - 10


def test_corpus(corpus: Path) -> None:
    rows = [row for row in json.loads((corpus / "expected.json").read_text()) if row["kind"] == "snapshot"]
    assert rows
    for row in rows:
        entries = parse_snapshot((corpus / row["path"]).read_bytes(), row["path"])
        found = {
            "entries": len(entries),
            "crc_ok": True,
            "open_txns": sum(entry.has_open_txn for entry in entries),
            "max_producer_epoch": max((entry.producer_epoch for entry in entries), default=None),
        }
        assert found == {name: row[name] for name in found}, row["path"]


def test_golden(golden: Path) -> None:
    seen = same_order = several = 0
    for path in golden.rglob("*.snapshot*"):
        if "damage" in path.parts:
            continue
        if "tier" not in path.parts:  # uploads have names of their own
            assert parse_file_name(path.name).kind is FileKind.PRODUCER_SNAPSHOT
        raw = path.read_bytes()
        entries = parse_snapshot(raw, str(path))
        seen += 1
        several += len(entries) > 1
        same_order += len(entries) > 1 and encode_snapshot(entries) == raw
        if len(entries) < 2:
            assert encode_snapshot(entries) == raw
    assert seen > 500
    # The rest came from maps that had been larger.
    assert same_order > 0.9 * several > 50
