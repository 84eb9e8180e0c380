"""Tests of reading/offset_order.py and walker/base_offsets.py. A flipped bit of a base offset, which no checksum
covers: the neighbours decide which batch is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.format.batches import scan
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from pylogseg.offline import repair
from pylogseg.walker.base_offsets import Span, is_too_high

#: Offsets of batches: without gaps, and with those that compaction leaves.
LOGS = {
    "as it was written": [(17, 1), (18, 1), (19, 1), (20, 1), (21, 3), (24, 4), (28, 1), (29, 2), (31, 1)],
    "after gaps": [(9, 1), (17, 1), (18, 1), (19, 1), (40, 3), (43, 1), (44, 1), (100, 2), (102, 1), (103, 1)],
}
START = 4
BITS = (*range(8), 12, 20, 31, 32, 47, 62, 63)


def made(folder: Path, spans: list[tuple[int, int]]) -> bytes:
    """Write a log with batches at some offsets: a sealed segment, and an empty one behind it."""
    data = b""
    for base, width in spans:
        offsets = list(range(base, base + width))
        keys = pa.array([None] * width, pa.binary())
        columns = {"offset": offsets, "timestamp": offsets, "key": keys, "value": [b"%d" % o for o in offsets]}
        batch = pylogseg.encode(pa.table(columns))
        assert len(scan(batch).batches) == 1
        data += batch
    folder.mkdir()
    end = spans[-1][0] + spans[-1][1]
    (folder / f"{START:020}.log").write_bytes(data)
    (folder / f"{end:020}.log").write_bytes(b"")
    return data


def explanations(spans: list[tuple[int, int]], end: int) -> set[int]:
    """Return the batches of which one bit, flipped back, makes all offsets ascend."""
    found = set()
    for i, (base, width) in enumerate(spans):
        for bit in range(64):
            other = base ^ (1 << bit) if bit < 63 else base - 2**63
            now = [*spans[:i], (other, width), *spans[i + 1 :]]
            behind = [START, *(b + w for b, w in now)]
            if all(b >= e for (b, _), e in zip([*now, (end, 0)], behind, strict=True)):
                found.add(i)
    return found


def damaged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield each batch and bit whose flip the neighbours show, and the offset that it makes."""
    end = spans[-1][0] + spans[-1][1]
    for i, (base, width) in enumerate(spans):
        for bit in BITS:
            flipped = base ^ (1 << bit) if bit < 63 else base - 2**63
            now = [*spans[:i], (flipped, width), *spans[i + 1 :]]
            behind = [START, *(b + w for b, w in now)]
            fits = all(b >= e for (b, _), e in zip([*now, (end, 0)], behind, strict=True))
            if not fits and explanations(now, end) == {i}:
                yield i, bit, flipped


@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_bit_of_a_base_offset_costs_its_own_batch_alone(tmp_path: Path, name: str) -> None:
    """Readers, `verify` and `repair` leave out that batch; no record gets another offset."""
    spans = LOGS[name]
    folder = tmp_path / "t-0"
    whole = made(folder, spans)
    path = folder / f"{START:020}.log"
    positions = scan(whole).batches.position.tolist()
    every = {offset for base, width in spans for offset in range(base, base + width)}
    count = 0
    for i, bit, flipped in damaged(spans):
        data = bytearray(whole)
        data[positions[i] : positions[i] + 8] = (flipped % 2**64).to_bytes(8, "big")
        path.write_bytes(data)
        base, width = spans[i]
        expected = sorted(every - set(range(base, base + width)))
        got = [(r.offset, r.value) for r in pylogseg.read(open_dir(folder), "t", 0, on_corrupt="skip")]
        assert got == [(offset, b"%d" % offset) for offset in expected], (base, bit)
        summary = VerifySummary(Level.RECORDS)
        found = [f for f in verify_disk(open_dir(folder), summary) if f.kind in ("order", "overlap")]
        assert [f.position for f in found] in ([positions[i]], [None] * (i == len(spans) - 1)), (base, bit)
        count += 1
        if bit in (0, 1, 4, 63):
            repair(folder, keep_behind=True)
            got = [(r.offset, r.value) for r in pylogseg.read(open_dir(folder), "t", 0)]
            assert got == [(offset, b"%d" % offset) for offset in expected], (base, bit)
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
            made(folder, spans)
    assert count > 10 * len(spans)


@pytest.mark.parametrize(
    ("batch", "expected", "following", "after", "wrong"),
    [
        ((17, 17), 10, (16, 16), 19, False),  # 18, with its lowest bit flipped
        ((17, 17), 10, (16, 16), 17, True),
        ((21, 21), 17, (18, 18), 19, True),
        ((21, 21), 17, (22, 22), 23, False),
        ((21, 21), 17, None, None, False),
        ((21, 21), 17, (12, 12), 23, False),
    ],
)
def test_the_batch_after_both_decides(
    batch: tuple[int, int], expected: int, following: tuple[int, int] | None, after: int | None, wrong: bool
) -> None:
    assert is_too_high(Span(*batch), expected, following and Span(*following), after) is wrong
