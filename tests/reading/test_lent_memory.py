"""Tests of format/scratch.py. Memory of record batches that is used again: never while somebody can see it, and never
without end.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pylogseg
from pylogseg._native._gather import Lender
from pylogseg.format.scratch import Scratch
from pylogseg.reading.arrow.columns import lend

PIECE = 1 << 20


def test_memory_is_lent_again_once_nothing_points_into_it() -> None:
    made: list[Any] = []

    def allocate(size: int) -> Any:
        made.append(bytearray(size))
        return made[-1]

    lender = Lender(allocate)
    first = np.frombuffer(lender(PIECE), np.uint8)
    first[:] = 1
    part = pa.py_buffer(first[100:200])
    del first
    second = np.frombuffer(lender(PIECE), np.uint8)
    second[:] = 2
    assert (len(made), part.to_pybytes()) == (2, b"\1" * 100)
    del part
    third = np.frombuffer(lender(PIECE - 5), np.uint8)
    assert (len(made), len(third), int(third[0])) == (2, PIECE - 5, 1)
    assert (len(lender(PIECE)), len(made)) == (PIECE, 3)
    assert len(lender(PIECE // 4)) == PIECE // 4
    assert len(made) == 4, "a small piece in large memory would keep all of it"
    assert lender(100) is made[-1], "what an allocator keeps itself is not lent"


def test_little_memory_waits() -> None:
    made = 0

    def allocate(size: int) -> Any:
        nonlocal made
        made += 1
        return bytearray(size)

    lender = Lender(allocate)
    for count, size in ((100, 1 << 17), (20, 8 << 20)):
        lent = [lender(size) for _ in range(count)]
        lent.clear()
        before = made
        lent = [lender(size) for _ in range(count)]
        assert (before + count - made) == min(40, (64 << 20) // size)
        lent.clear()


def test_an_allocator_that_fails() -> None:
    def allocate(size: int) -> Any:
        raise MemoryError(size)

    with pytest.raises(MemoryError):
        Lender(allocate)(PIECE)
    with pytest.raises(BufferError):
        Lender(bytes)(PIECE)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_stream_lets_go_of_its_memory_at_its_end(tmp_path: Path, codec: str) -> None:
    """Also without the collector: what only that frees is memory of two streams at a time, and new for each."""
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    records = [(1_700_000_000_000 + i, b"k%d" % i, b"v" * 300) for i in range(3000)]
    path.write_bytes(
        b"".join(bytes(pylogseg.encode(records, base_offset=3000 * i, compression=codec)) for i in range(4))
    )
    gc.collect()
    gc.disable()
    try:
        for views in (False, True):
            rows = sum(len(batch) for batch in pylogseg.read_arrow(path, views=views))
            left = [each for each in gc.get_objects() if isinstance(each, Scratch)]
            assert (rows, left) == (12_000, [])
        table = pylogseg.read_arrow(path).read_all()
        assert pylogseg.read_arrow(path).read_all() == table, "rows that are kept are not written over"
    finally:
        gc.enable()
    assert len(lend(PIECE)) == PIECE
