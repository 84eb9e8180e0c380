"""What a file may hold after a crash, by what was durable and what was under way: assumptions 3 to 5 of `images`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from pylogseg.testing.state import Operation, resize_content, write_into

SECTOR_BYTES = 512

#: Parts of one write that reached the disk, as half-open ranges of its bytes.
Ranges = list[tuple[int, int]]


class Content(NamedTuple):
    """Bytes of a file after a crash, and what is missing in them."""

    data: bytes
    lost: str


def contents(base: bytes, pending: list[Operation]) -> list[Content]:
    """Every size that the file may have; with each all bytes, none, or one write damaged; without repetition.

    Parameters
    ----------
    base : bytes
        What is durable.
    pending : list of Operation
        Writes and changes of size since then, in order.

    Returns
    -------
    list of Content
        The first has lost nothing, the last everything (if that is a difference).
    """
    count = len(pending)
    whole = [_whole(each) for each in pending]
    found: dict[bytes, str] = {}
    for sized in range(count, -1, -1):
        kept = whole[:sized] + [[] for _ in range(count - sized)]
        outcomes: list[tuple[list[Ranges], str]] = [(kept, ""), ([[] for _ in pending], "all bytes")]
        for place, each in enumerate(pending):
            parts = list(_damaged(each)) if place < sized else [(whole[place], "nothing, early as it was,")]
            outcomes += [(_with(kept, place, part), f"{what} of write {place}") for part, what in parts if each.data]
        for ranges, what in outcomes:
            lost = [f"the last {count - sized} sizes"] if sized < count else []
            found.setdefault(_played(base, pending, sized, ranges), _lost(pending, [*lost, what]))
    if next(iter(found)) != base:
        found[base] = found.pop(base)
    return [Content(data, lost) for data, lost in found.items()]


def outcome_count(pending: list[Operation]) -> int:
    """At least as many as `contents` has entries."""
    return (len(pending) + 1) * (2 + 3 * sum(bool(each.data) for each in pending))


def random_content(base: bytes, pending: list[Operation], choose: random.Random) -> Content:
    """One of all the contents that are possible: each write whole, missing, cut, or with single sectors missing."""
    count = len(pending)
    sized = choose.choice((count, choose.randint(0, count)))
    damage = choose.choice((0.0, 0.2, 1.0))
    kept = []
    for place, each in enumerate(pending):
        expected = place < sized or choose.random() < 0.1
        kept.append(_some(each, choose) if expected and choose.random() < damage else _whole(each) if expected else [])
    lost = [f"write {place} but for {ranges}" for place, ranges in enumerate(kept) if ranges != _whole(pending[place])]
    return Content(_played(base, pending, sized, kept), _lost(pending, [f"{count - sized} sizes", *lost]))


def _played(base: bytes, pending: list[Operation], sized: int, kept: list[Ranges]) -> bytes:
    """The content after the first `sized` changes of size, with those ranges of each write that lie below the size."""
    content = bytearray(base)
    for place, each in enumerate(pending):
        if each.kind == "size":
            if place < sized:
                content = resize_content(content, each.position)
            continue
        if place < sized:
            content.extend(bytes(max(0, each.position + len(each.data) - len(content))))
        for start, end in kept[place]:
            end = min(end, len(content) - each.position)
            if end > start:
                write_into(content, each.position + start, each.data[start:end])
    return bytes(content)


def _whole(write: Operation) -> Ranges:
    return [(0, len(write.data))] if write.data else []


def _damaged(write: Operation) -> Iterator[tuple[Ranges, str]]:
    """The write missing, without its end, and, if a sector ends inside, without what lies in front of that."""
    size = len(write.data)
    yield [], "all"
    cut = -write.position % SECTOR_BYTES or SECTOR_BYTES
    if cut < size:
        yield [(cut, size)], "the beginning"
    else:
        cut = size // 2
    if cut:
        yield [(0, cut)], "the end"


def _some(write: Operation, choose: random.Random) -> Ranges:
    """Any part of a write: up to a byte, from a sector on, or some sectors."""
    size = len(write.data)
    first = write.position // SECTOR_BYTES
    last = (write.position + size) // SECTOR_BYTES
    edges = [max(0, sector * SECTOR_BYTES - write.position) for sector in range(first, last + 1)] + [size]
    sectors = [(a, b) for a, b in itertools.pairwise(edges) if b > a and choose.random() < 0.5]
    return choose.choice(([], [(0, choose.randint(0, size))], [(choose.choice(edges), size)], sectors))


def _with(kept: list[Ranges], place: int, part: Ranges) -> list[Ranges]:
    return [*kept[:place], part, *kept[place + 1 :]]


def _lost(pending: list[Operation], what: list[str]) -> str:
    text = ", ".join(filter(None, what))
    return f"file {pending[0].node} lost {text}" if text else ""
