"""Count a whole disk: segments by an executor, merged by partition, topic or all together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from pylogseg.disk.disk import Segment
from pylogseg.env.executor import INLINE, Advance, Executor, Workload
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.inspect.stats.groups import StatsGroup, Unit, group_key
from pylogseg.inspect.stats.segment import Stats, Times, segment_stats
from pylogseg.inspect.stats.sketch import Distinct, Histogram
from pylogseg.inspect.stats.tops import Tops
from pylogseg.reading.state import Throttle

_Made = TypeVar("_Made")


class Counting(NamedTuple):
    """How the segments are counted; with a range of time, only batches in it."""

    since: int | None = None
    until: int | None = None
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    tops: Tops | None = None
    throttle: Throttle | None = None
    drop_behind: bool = True

    @property
    def is_whole(self) -> bool:
        return self.since is None and self.until is None


def count_units(
    units: Sequence[tuple[Unit, int]],
    by: str | None,
    how: Counting,
    finish: Callable[[StatsGroup], _Made],
    executor: Executor = INLINE,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, _Made]]:
    """Yield the result of `finish` for each group of units (from `units_since`), by the key of the group.

    The keys and sizes of a segment take about 64 KB: those of a group are merged where they were counted.
    """
    outlines: dict[str, list[_UnitOutline]] = {}
    parts: list[tuple[Segment, int]] = []
    keys: list[str] = []
    for unit, first in units:
        key, count = group_key(unit.name, by), len(unit.segments)
        outline = _UnitOutline(unit.name, count, unit.log_start_offset, unit.is_cleaned, *unit.dirty_and_sealed_bytes())
        outlines.setdefault(key, []).append(outline)
        parts += [(segment, first) for segment in unit.segments]
        keys += [key] * count
    merge = functools.partial(_merge_rows, outlines=outlines, is_whole=how.is_whole, finish=finish)
    count_part = functools.partial(_count, how=how)
    load = Workload("pylogseg stats", [segment.size for segment, _ in parts], on_bytes)
    groups = executor.merge(count_part, parts, keys, _fold, merge, load)
    results = dict(groups)
    for key in outlines:  # also those without a segment
        yield key, results[key] if key in results else merge(key, iter(()))


class _UnitOutline(NamedTuple):
    """A unit without its segments."""

    name: str
    segments: int
    log_start_offset: int
    is_cleaned: bool
    dirty_bytes: int
    sealed_bytes: int


def _count(part: tuple[Segment, int], advance: Advance, how: Counting) -> Stats:
    segment, first = part
    return segment_stats(
        segment,
        advance,
        limit_bytes=how.limit_bytes,
        throttle=how.throttle,
        drop_behind=how.drop_behind,
        times=None if how.is_whole else Times(how.since, how.until, first),
        tops=how.tops,
    )


#: Of a segment whose keys and sizes were merged into those of another one.
_NO_KEYS, _NO_SIZES = Distinct(), Histogram()


def _fold(found: dict[int, Stats], number: int, stats: Stats) -> None:
    """Keep the counts of a segment, and merge its keys and sizes into the first one's."""
    first = next(iter(found.values()), None)
    if first is not None:
        first.keys.merge(stats.keys)
        stats.keys = _NO_KEYS
        for name in ("key_sizes", "value_sizes", "record_sizes"):
            getattr(first, name).merge(getattr(stats, name))
            setattr(stats, name, _NO_SIZES)
    found[number] = stats


def _merge_rows(
    key: str,
    rows: Iterator[Stats],
    outlines: dict[str, list[_UnitOutline]],
    is_whole: bool,
    finish: Callable[[StatsGroup], _Made],
) -> _Made:
    group = StatsGroup(key, is_whole=is_whole)
    for unit in outlines[key]:
        group.add(unit.name, islice(rows, unit.segments), unit.log_start_offset, unit.is_cleaned)
        group.dirty_bytes += unit.dirty_bytes
        group.sealed_bytes += unit.sealed_bytes
    return finish(group)
