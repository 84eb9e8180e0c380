"""Tests of _native/_append.pyx, log/append_analysis.py, log/append_record_checks.py and log/append_validation.py.
Appends validated by a leader and a follower: the kernel and the careful way agree, hostile bytes, ownership.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from helpers import validating
from hypothesis import given
from hypothesis import strategies as st
from reference.batch import Record, crc32c
from reference.build import batch_v2, legacy

from pylogseg._native import _append
from pylogseg._native._run import Run
from pylogseg.errors import (
    CorruptionError,
    InvalidRecordError,
    OffsetsOutOfOrderError,
    PylogsegError,
    RequestError,
    TooLargeError,
)
from pylogseg.format.batches import scan
from pylogseg.format.records import decode
from pylogseg.log.append_validation import Origin, Prepared, Rules, follower

NOW = 1_700_000_000_000
LONG_MAX = 2**63 - 1


def rules(**changes: Any) -> Rules:
    return Rules(**{**RULES, **changes})


RULES: dict[str, Any] = {
    "size_limit": 1 << 20,
    "codec": -1,
    "append_time": False,
    "key_required": False,
    "before_ms": LONG_MAX,
    "after_ms": 3_600_000,
}


def lead(data: Any, given_rules: Rules, **more: Any) -> Prepared:
    return validating.lead(data, given_rules, **{"next_offset": 100, "leader_epoch": 3, "now_ms": NOW, **more})


def some(count: int = 3, *, base: int = 0, key: bytes | None = b"k", timestamp: int = NOW) -> list[Record]:
    return [Record(base + i, timestamp + i, key, b"value %d" % i) for i in range(count)]


def resealed(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_usual(codec: str) -> None:
    data = batch_v2(some(), codec=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    done = lead(data, rules())
    (batch,) = done.batches
    assert (done.first_offset, done.last_offset, done.max_timestamp, done.append_time_ms) == (100, 102, NOW + 2, -1)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.count) == (100, 102, 3, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 1, 5, 7)
    assert done.records[12:] == struct.pack(">i", 3) + data[16:], "the CRC covers nothing that changed"
    stamped = lead(data, rules(append_time=True))
    assert (stamped.max_timestamp, stamped.append_time_ms) == (NOW, NOW)
    columns, damage = decode(scan(stamped.records).batches, stamped.records)
    assert not damage
    assert columns.timestamp.tolist() == [NOW] * 3


def test_ownership() -> None:
    data = batch_v2(some())
    kept = bytearray(data)
    assert lead(kept, rules()).records is not kept
    assert kept == data
    assert lead(kept, rules(), in_place=True).records is kept
    assert kept != data
    assert isinstance(lead(data, rules(), in_place=True).records, bytes), "bytes never change"
    assert lead(memoryview(data), rules(), in_place=True).last_offset == 102, "nor does what is read-only"


def test_several_legacy_messages() -> None:
    data = legacy(some(), 1)
    converted = lead(data + data[:20], rules(codec=3))
    (batch,) = converted.batches
    assert (batch.magic, batch.codec, batch.base_offset, batch.last_offset) == (2, 3, 100, 102)
    assert converted.valid_bytes == len(data), "the partial one is left out"


def test_record_errors_are_named() -> None:
    records = some(4)
    records[1] = records[1]._replace(key=None)
    records[3] = records[3]._replace(timestamp=NOW + 3_600_001)
    with pytest.raises(InvalidRecordError) as caught:
        lead(batch_v2(records), rules(key_required=True))
    assert [number for number, _ in caught.value.record_errors] == [1, 3]
    assert "no key" in caught.value.record_errors[0][1]
    assert "timestamp" in caught.value.record_errors[1][1]
    assert caught.value.kind == "invalid_record"


@pytest.mark.parametrize(("delta", "count"), [(0, 3), (15, 3), (-3, 3), (5, 6), (1, 2)])
def test_counts(delta: int, count: int) -> None:
    with pytest.raises(InvalidRecordError):
        lead(batch_v2(some(), last_offset=delta, count=count), rules())


@pytest.mark.parametrize("append_time", [False, True])
def test_bounds_of_time(append_time: bool) -> None:
    def is_accepted(timestamp: int) -> bool:
        data = batch_v2([Record(0, timestamp, b"k", b"v")])
        try:
            lead(data, rules(before_ms=1000, after_ms=500, append_time=append_time))
        except InvalidRecordError:
            return False
        return True

    for timestamp in (NOW - 1000, NOW + 500, -1):
        assert is_accepted(timestamp)
    for timestamp in (NOW - 1001, NOW + 501, 0, -2, LONG_MAX, -LONG_MAX - 1):
        assert is_accepted(timestamp) == append_time


def test_refusals() -> None:
    good = batch_v2(some())
    cases: list[tuple[bytes, type[PylogsegError]]] = [
        (good[:-1] + b"\1", CorruptionError),
        (batch_v2(some(base=7)), InvalidRecordError),
        (good + good, InvalidRecordError),
        (batch_v2(some(), control=True), InvalidRecordError),
        (resealed(good[:22] + b"\5" + good[23:]), RequestError),
        (good[:8] + bytes(4) + good[12:], CorruptionError),
        (good[:16] + b"\3" + good[17:], CorruptionError),
        (resealed(batch_v2(some(), codec="gzip")[:-1] + b"x"), RequestError),
    ]
    for data, error in cases:
        with pytest.raises(error):
            lead(data, rules())
    with pytest.raises(TooLargeError):
        lead(good, rules(size_limit=len(good) - 1))
    with pytest.raises(TooLargeError, match="becomes"):
        lead(batch_v2([Record(0, NOW, None, b"v" * 500)], codec="gzip"), rules(codec=0, size_limit=200))
    for nothing in (b"", good[:-1], good[:16]):
        assert lead(nothing, rules()).batches == []


def test_follower() -> None:
    data = b"".join(batch_v2(some(base=base), leader_epoch=epoch) for base, epoch in ((5, 1), (10, 2), (20, 4)))
    done = follower(data, next_offset=5, leader_epoch=4)
    assert [batch.base_offset for batch in done.batches] == [5, 10, 20]
    assert (done.first_offset, done.last_offset, done.valid_bytes) == (5, 22, len(data))
    assert done.records.obj is data
    left = follower(data, next_offset=0, leader_epoch=3)
    assert [batch.leader_epoch for batch in left.batches] == [1, 2]
    assert len(left.records) == left.valid_bytes < len(data)
    assert not follower(data, next_offset=0, leader_epoch=0).batches
    with pytest.raises(OffsetsOutOfOrderError, match=r"the log ends at 6; .*offsets 5, 6, 7, 10"):
        follower(data, next_offset=6, leader_epoch=4)
    with pytest.raises(OffsetsOutOfOrderError):
        follower(data + data, next_offset=0, leader_epoch=4)


def outcome(function: Any, *arguments: Any, **more: Any) -> Any:
    try:
        done = function(*arguments, **more)
    except PylogsegError as error:
        return error.kind
    batches = [(b.position, b.size, b.base_offset, b.last_offset, b.max_timestamp, b.attributes) for b in done.batches]
    return bytes(done.records), batches, done.first_offset, done.last_offset, done.max_timestamp, done.valid_bytes


damages = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)
batches = st.builds(
    lambda count, codec, key, timestamp, more: batch_v2(some(count, key=key, timestamp=timestamp), codec=codec, **more),
    st.integers(1, 5),
    st.sampled_from(["none", "none", "lz4", "zstd", "snappy"]),
    st.sampled_from([None, b"", b"key"]),
    st.sampled_from([NOW, -1, 0, -7, NOW + 9_000_000]),
    st.sampled_from(
        [{}, {"log_append_time": NOW}, {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0}, {"control": True}]
    ),
)


@given(batches, damages, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([-1, 0, 3]))
def test_kernel_like_the_careful_way(
    data: bytes, damage: list[tuple[int, int]], seal: bool, append_time: bool, key_required: bool, codec: int
) -> None:
    hurt = bytearray(data)
    for at, value in damage:
        hurt[at % len(hurt)] = value
    if seal and damage and len(hurt) >= 61:
        hurt = bytearray(resealed(bytes(hurt)))
    settings = {**RULES, "append_time": append_time, "key_required": key_required, "codec": codec}
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        short = outcome(lead, bytes(hurt), Rules(**settings), origin=origin)
        assert short == outcome(lead, bytes(hurt), Rules(**settings), origin=origin, careful=True)


@given(st.lists(batches, max_size=3), damages, st.integers(0, 30))
def test_hostile_bytes_end_in_an_answer(parts: list[bytes], damage: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(b"".join(parts))
    for at, value in damage:
        if data:
            data[at % len(data)] = value
    cut_off = bytes(data[: max(len(data) - cut, 0)])
    outcome(lead, cut_off, rules())
    outcome(follower, cut_off, next_offset=0, leader_epoch=5)
    outcome(follower, cut_off, next_offset=0, leader_epoch=-1)
    _append.end_marker(cut_off, 0, len(cut_off))


def test_doors_check_their_arguments() -> None:
    data = batch_v2(some())
    for position, size in ((-1, len(data)), (0, len(data) + 1), (len(data), 30), (0, 60)):
        with pytest.raises(ValueError, match="no whole batch"):
            _append.read_batch(data, position, size)
        assert _append.end_marker(data, position, size) is None
    with pytest.raises(TypeError):
        _append.batches_of(scan(data).batches.rows["size"], False)
    with pytest.raises(BufferError):
        Run(rules()).validate_one(memoryview(data)[::2], 0, NOW, True, False)
    with pytest.raises(ValueError, match="no whole batch"):
        _append.prepare_validated(data[:60], 0, -1)
    with pytest.raises(ValueError, match="no whole batch"):
        _append.prepare_validated(legacy(some(1), magic=1), 0, -1)
    rows = scan(data * 2).batches.rows
    assert [batch.position for batch in _append.batches_of(rows, False)] == [0, len(data)]
    assert _append.batches_of(rows, True) == []


def test_last_sequence_wraps() -> None:
    for sequence, count, last in ((2**31 - 1, 2, 0), (2**31 - 3, 3, 2**31 - 1), (0, 1, 0)):
        data = batch_v2(some(count), producer_id=1, producer_epoch=0, base_sequence=sequence)
        assert _append.read_batch(data, 0, len(data))[0].last_sequence == last


def test_many_followers_batches_in_one_pass() -> None:
    rng = random.Random(3)
    parts, offset = [], 0
    for _ in range(200):
        count = rng.randrange(1, 4)
        parts.append(batch_v2(some(count, base=offset), codec=rng.choice(["none", "lz4"]), leader_epoch=1))
        offset += count + rng.randrange(3)
    data = b"".join(parts)
    done = follower(data, next_offset=0, leader_epoch=1)
    table = scan(data).batches
    assert [batch.last_offset for batch in done.batches] == table.last_offset.tolist()
    assert [batch.position for batch in done.batches] == table.position.tolist()
    assert done.max_timestamp == table.max_timestamp.max()
