"""Tests of _codec.pyx. CRC-32C and CRC-32: every implementation this processor has, against the oracle, crcmod and
zlib.
"""

import mmap
import random
import threading
import zlib
from collections.abc import Iterator
from itertools import pairwise

import crcmod.predefined
import numpy as np
import pytest
from helpers.depth import draws
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import crc as oracle

from pylogseg import _codec

IMPLEMENTATIONS = _codec.crc_implementations()
SUMS = {
    "crc32c": (_codec.crc32c, oracle.CASTAGNOLI, crcmod.predefined.mkPredefinedCrcFun("crc-32c")),
    "crc32": (_codec.crc32, oracle.IEEE, zlib.crc32),
}
# Lengths at which an implementation changes its way: lanes, vectors, chunks, and one byte to either side.
TURNING_POINTS = sorted(
    length
    for middle in (96, 128, 512, 1024, 4096, 16 * 1024, 24 * 1024, 25 * 1024, 32 * 1024, 48 * 1024, 64 * 1024)
    for length in range(middle - 9, middle + 10)
)


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    previous = _codec.use_crc_implementation(request.param)
    yield request.param
    _codec.use_crc_implementation(previous)


@pytest.fixture(params=SUMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_the_oracle_agrees_with_itself_and_with_others(name: str) -> None:
    _, polynomial, other = SUMS[name]
    data = noise(300)
    for size in range(len(data)):
        assert oracle.crc_by_bits(polynomial, data[:size]) == oracle.crc_by_table(polynomial, data[:size])
        assert oracle.crc_by_bits(polynomial, data[:size]) == other(data[:size])
        assert oracle.crc_by_bits(polynomial, data[size:], other(data[:size])) == other(data)


def test_known_sums(implementation: str) -> None:
    assert _codec.crc32c(b"Some String") == 608512271  # the vector of Kafka's own test of its CRC-32C
    assert _codec.crc32c(b"123456789") == 0xE3069283
    assert _codec.crc32(b"123456789") == 0xCBF43926
    assert _codec.crc32c(b"") == _codec.crc32(b"") == 0
    assert _codec.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4: 32 bytes of zeros, of ones, rising and falling
    assert _codec.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert _codec.crc32c(bytes(range(32))) == 0x46DD794E
    assert _codec.crc32c(bytes(range(31, -1, -1))) == 0x113FDB5C


def test_all_short_lengths(implementation: str, name: str) -> None:
    compute, polynomial, _ = SUMS[name]
    data = memoryview(noise(1100))
    for start in (0, 1, 31):
        for crc in (0, 0xFFFFFFFF, 0x12345678):
            expected = oracle.prefix_sums(polynomial, bytes(data[start : start + 1024]), crc)
            assert [compute(data[start : start + size], crc) for size in range(1025)] == expected


def test_all_alignments(implementation: str, name: str) -> None:
    compute, _, other = SUMS[name]
    space = mmap.mmap(-1, 64 * 1024)  # begins at a page
    space[:] = noise(len(space))
    with memoryview(space) as view:
        for start in range(64):
            for size in (1, 7, 16, 61, 100, 255, 777, 1500, 4097, 16 * 1024 - start, 60_000):
                part = view[start : start + size]
                assert compute(part) == other(part), (start, size)
                part.release()
    space.close()


def test_turning_points(implementation: str, name: str) -> None:
    compute, _, other = SUMS[name]
    data = memoryview(noise(TURNING_POINTS[-1]))
    for size in TURNING_POINTS:
        assert compute(data[:size]) == other(data[:size]), size
        assert compute(data[-size:], 0xDEADBEEF) == other(data[-size:], 0xDEADBEEF), size


def test_long_random_buffers(implementation: str, name: str) -> None:
    compute, _, other = SUMS[name]
    chance = random.Random(7)
    data = memoryview(noise(1 << 20, seed=9))
    for _ in range(40):
        start = chance.randrange(0, 1 << 19)
        end = chance.randrange(start, len(data))
        crc = chance.getrandbits(32)
        assert compute(data[start:end], crc) == other(data[start:end], crc), (start, end, crc)


def test_one_bit_at_a_time(implementation: str, name: str) -> None:
    """A sum is linear: the change a flipped bit makes depends on its place only, and no place is forgotten."""
    compute, polynomial, _ = SUMS[name]
    size = 2000
    blank = bytearray(size)
    base = compute(blank)
    expected = {}
    change = oracle.crc_by_table(polynomial, b"\x80") ^ oracle.crc_by_table(polynomial, b"\x00")
    for place in range(size - 1, -1, -1):
        expected[place] = change
        change = oracle.crc_by_table(polynomial, b"\x00", change ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    for place in range(size):
        blank[place] = 0x80
        assert compute(blank) ^ base == expected[place], place
        blank[place] = 0


def test_splits(implementation: str, name: str) -> None:
    """Byte by byte, two halves and three parts give the sum of the whole."""
    compute, _, other = SUMS[name]
    chance = random.Random(11)
    data = noise(40_000, seed=3)
    whole = other(data)
    for _ in range(100):
        first, second = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        crc = compute(data[second:], compute(data[first:second], compute(data[:first])))
        assert crc == whole, (first, second)
    crc = 0
    for place in range(3000):
        crc = compute(data[place : place + 1], crc)
    assert crc == other(data[:3000])


@settings(max_examples=draws(200), deadline=None)
@given(data=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=6), crc=st.integers(0, 2**32 - 1))
def test_any_bytes_cut_anywhere(data: bytes, cuts: list[int], crc: int) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    previous = _codec.use_crc_implementation(IMPLEMENTATIONS[0])
    try:
        for implementation in IMPLEMENTATIONS:
            _codec.use_crc_implementation(implementation)
            for compute, _, other in SUMS.values():
                running = crc
                for start, end in pairwise(edges):
                    running = compute(data[start:end], running)
                assert running == compute(data, crc) == other(data, crc)
    finally:
        _codec.use_crc_implementation(previous)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_kinds_of_buffers(name: str, make: type) -> None:
    compute, _, other = SUMS[name]
    data = noise(5000)
    assert compute(make(data)) == other(data)
    assert compute(make(b"")) == 0


def test_tables_are_always_there_and_last() -> None:
    assert IMPLEMENTATIONS[-1] == "tables"
    assert len(set(IMPLEMENTATIONS)) == len(IMPLEMENTATIONS)


def test_the_best_implementation_is_in_use_and_can_be_changed() -> None:
    before = _codec.use_crc_implementation("tables")
    try:
        assert before == IMPLEMENTATIONS[0]
        assert _codec.use_crc_implementation(before) == "tables"
    finally:
        _codec.use_crc_implementation(before)


def test_an_unknown_implementation_changes_nothing() -> None:
    with pytest.raises(ValueError, match="abacus"):
        _codec.use_crc_implementation("abacus")
    assert _codec.use_crc_implementation(IMPLEMENTATIONS[0]) == IMPLEMENTATIONS[0]


def test_threads_may_change_the_implementation_while_others_compute() -> None:
    data = noise(50_000)
    expected = SUMS["crc32c"][2](data)
    seen: set[int] = set()

    def compute() -> None:
        seen.update(_codec.crc32c(data) for _ in range(2000))

    workers = [threading.Thread(target=compute) for _ in range(2)]
    for worker in workers:
        worker.start()
    for turn in range(500):
        _codec.use_crc_implementation(IMPLEMENTATIONS[turn % len(IMPLEMENTATIONS)])
    _codec.use_crc_implementation(IMPLEMENTATIONS[0])
    for worker in workers:
        worker.join()
    assert seen == {expected}
