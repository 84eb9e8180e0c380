"""Tests of format/files/txnindex.py. Transaction indexes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.txnindex import AbortedTxn, TxnIndex, encode_txn_index
from pylogseg.format.names import FileKind, parse_file_name

KAFKAS = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]
numbers = st.integers(-(2**63), 2**63 - 1)
entries = st.lists(
    st.builds(AbortedTxn, numbers, numbers, numbers, numbers), max_size=20, unique_by=lambda t: t.last_offset
).map(lambda txns: sorted(txns, key=lambda txn: txn.last_offset))


def test_vector() -> None:
    raw = bytes.fromhex("000000000000000f01c50000000000000089000000000000012b00000000000000c8")
    txn = AbortedTxn(983493, 137, 299, 200)
    assert list(TxnIndex(raw)) == [txn]
    assert TxnIndex(raw)[0] == txn
    assert encode_txn_index([txn]) == raw


@pytest.mark.parametrize(
    ("asked", "found", "complete"),
    [
        ((0, 100), KAFKAS, False),
        ((0, 32), KAFKAS[:3], True),
        ((0, 35), KAFKAS, True),
        ((10, 35), KAFKAS, True),
        ((11, 35), KAFKAS[1:], True),
        ((20, 41), KAFKAS[2:], False),
    ],
)
def test_collect_as_kafka_tests_it(asked: tuple[int, int], found: list[AbortedTxn], complete: bool) -> None:
    assert TxnIndex(encode_txn_index(KAFKAS)).collect(*asked) == (found, complete)


def test_only_the_first_byte_of_the_version_counts() -> None:
    raw = bytearray(encode_txn_index(KAFKAS))
    raw[35] = 1
    assert list(TxnIndex(raw)) == KAFKAS
    raw[34] = 0x80
    assert list(TxnIndex(raw)) == KAFKAS
    raw[34] = 1
    with pytest.raises(CorruptionError, match="entry 1 has version 257") as caught:
        TxnIndex(raw, "some.txnindex")
    assert (caught.value.path, caught.value.position) == ("some.txnindex", 34)


def test_cut_off_entry_is_passed_by() -> None:
    index = TxnIndex(encode_txn_index(KAFKAS)[:-1])
    assert (len(index), index.odd_bytes) == (3, 33)
    assert list(index) == KAFKAS[:3]


def test_check() -> None:
    index = TxnIndex(encode_txn_index(KAFKAS))
    index.check(10)
    with pytest.raises(CorruptionError, match="below the segment's first, 11"):
        index.check(11)
    swapped = encode_txn_index(KAFKAS[2:]) + encode_txn_index(KAFKAS[:2])
    with pytest.raises(CorruptionError, match="entry 2 has last offset 10, not above 50") as caught:
        TxnIndex(swapped).check(0)
    assert caught.value.position == 68
    TxnIndex(b"").check(5)


def test_indexes_that_cannot_be() -> None:
    with pytest.raises(RequestError, match="does not ascend"):
        encode_txn_index([KAFKAS[1], KAFKAS[0]])
    with pytest.raises(RequestError):
        encode_txn_index([AbortedTxn(0, 0, 2**63, 0)])


@given(entries)
def test_round_trip(txns: list[AbortedTxn]) -> None:
    raw = encode_txn_index(txns)
    assert len(raw) == 34 * len(txns)
    assert list(TxnIndex(raw)) == txns


@given(st.binary(max_size=150), numbers, numbers)
def test_any_bytes(raw: bytes, low: int, high: int) -> None:
    try:
        index = TxnIndex(raw)
    except CorruptionError:
        return
    assert len(list(index)) == len(raw) // 34
    found, complete = index.collect(low, high)
    assert len(found) <= len(index)
    assert isinstance(complete, bool)


def test_corpus(corpus: Path) -> None:
    rows = [row for row in json.loads((corpus / "expected.json").read_text()) if row["kind"] == "txnindex"]
    assert rows
    for row in rows:
        index = TxnIndex((corpus / row["path"]).read_bytes())
        assert (len(index), index.odd_bytes) == (row["entries"], row["bad_len"])
        index.check(0)


def test_golden(golden: Path) -> None:
    seen = 0
    for path in golden.rglob("*.txnindex*"):
        if path.parent.name == "remote-log-index-cache":  # with names of tiered storage
            continue
        name = parse_file_name(path.name)
        assert name.kind is FileKind.TXN_INDEX
        assert name.offset is not None
        index = TxnIndex(path.read_bytes(), str(path))
        index.check(name.offset)
        assert encode_txn_index(index) == path.read_bytes()
        seen += len(index)
    assert seen > 50
