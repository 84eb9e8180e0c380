"""Batches of a log from any intact copy: for a damaged segment, other copies of its offsets are read.

Uploads of a tier overlap, and a disk has what was uploaded of it. As far as leader epochs show that both are of one
log, they have the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.filesystem import FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.reading.offset_order import Order
from pylogseg.walker.gaps import Gap, offsets_text
from pylogseg.walker.windows import Window, walk

if TYPE_CHECKING:
    from pylogseg.disk.tier.slices import TierSegment

_END = 2**63 - 1


class Good(NamedTuple):
    """Good batches that follow each other."""

    data: memoryview
    rows: BatchTable


class NotCopied(NamedTuple):
    """Offsets without a good batch; `end_offset` is 2**63 - 1 if unknown."""

    first_offset: int
    end_offset: int


@dataclass
class Damage:
    """Damage of a segment, after the batches that copies have of its offsets."""

    text: str
    error: CorruptionError | StorageError
    names: list[str] = field(default_factory=list)  #: Where these batches come from.
    lost: list[NotCopied] = field(default_factory=list)  #: What no copy has intact.


class _Source(NamedTuple):
    """A file or object with a range of a log's offsets."""

    name: str  #: Of the file or object.
    first_offset: int
    end_offset: int
    open: Callable[[int, int], FileView]  #: Of a range of offsets in it; there may be others around them.
    segment: Segment


class _Hole(NamedTuple):
    first_offset: int
    end_offset: int
    text: str
    error: CorruptionError | StorageError


class LogCopies:
    """The segments of a partition in a tier, or on a disk with one, and further copies of its offsets."""

    def __init__(self, part: Partition) -> None:
        self._sources = [_of_segment(segment) for segment in part.segments]
        copies: Callable[[str], Sequence[TierSegment]] | None = getattr(part.files, "copies", None)
        self.are_there = False
        if copies is not None:
            others = [_of_slice(copy) for copy in copies(part.path)]
            self.are_there = bool(others)
            self._sources = sorted([*self._sources, *others], key=lambda source: source.first_offset)

    def batches(self, segment: Segment) -> Iterator[Good | Damage]:
        """Yield the good batches of a segment in order; at damage, batches of copies."""
        own = _of_segment(segment)
        for item in self._walk_source(own, segment.base_offset, own.end_offset, is_whole=True):
            if isinstance(item, Good):
                yield item
                continue
            damage = Damage(item.text, item.error)
            yield from self._read_others(damage, item.first_offset, item.end_offset, own.name)
            yield damage

    def between(self, first: int, end: int, damage: Damage) -> Iterator[Good]:
        """Yield good batches of other copies for offsets that no segment has; `damage` gets the copies' names."""
        yield from self._read_others(damage, first, end, "")

    def search_others(self, first: int, end: int | None, but: str) -> tuple[list[str], list[NotCopied]]:
        """Read offsets from other copies than `but`: return their names, and the offsets that no copy has intact."""
        damage = Damage("", CorruptionError(but, 0, ""))
        for _ in self._read_others(damage, first, _END if end is None else end, but):
            pass
        return damage.names, damage.lost

    def _read_others(self, damage: Damage, first: int, end: int, but: str) -> Iterator[Good]:
        others = [source for source in self._sources if source.name != but and source.end_offset > first]
        if end == _END:  # the end of the log: what lies behind all copies is not known to be missing
            end = max([source.end_offset for source in others if source.end_offset < _END], default=end)
        for name, item in self._fill_range(first, end, others):
            if isinstance(item, NotCopied):
                damage.lost.append(item)
                continue
            if name not in damage.names:
                damage.names.append(name)
            yield item

    def _fill_range(self, first: int, end: int, sources: Sequence[_Source]) -> Iterator[tuple[str, Good | NotCopied]]:
        """Yield the good batches of a range, each from the first source that has it, and the lost offsets."""
        for number, source in enumerate(sources):
            low, high = max(first, source.first_offset), min(end, source.end_offset)
            if low >= high:
                continue
            rest = sources[number + 1 :]
            yield from self._fill_range(first, low, rest)
            for item in self._walk_source(source, low, high, is_whole=False):
                if isinstance(item, Good):
                    yield source.name, item
                else:
                    yield from self._fill_range(max(item.first_offset, low), min(item.end_offset, high), rest)
            first = high
        if first < end:
            yield "", NotCopied(first, end)

    def _walk_source(self, source: _Source, low: int, high: int, *, is_whole: bool) -> Iterator[Good | _Hole]:
        """Yield the good batches of a source, and the holes between them.

        A whole one may lack offsets, as after a cleaning; a range of offsets has to have each.
        """
        try:
            view = source.open(low, high)
        except StorageError as error:
            yield _Hole(low, high, str(error), error)
            return
        reached, damage = low, None
        with view:
            for item in self._in_order(source, view, is_last=is_whole and source.segment.is_last):
                if isinstance(item, Gap):
                    damage = item if damage is None else damage._replace(end_position=item.end_position)
                    continue
                for good in (item,) if is_whole else _inside(item, low, high):
                    base = int(good.rows.base_offset[0])
                    if damage is not None or (reached < base and not is_whole):
                        yield _hole(source, reached, base, damage)
                    yield good
                    reached, damage = int(good.rows.last_offset[-1]) + 1, None
        if damage is not None or (reached < high and not is_whole):
            yield _hole(source, reached, high, damage)

    def _in_order(self, source: _Source, view: FileView, *, is_last: bool) -> Iterator[Good | Gap]:
        """Yield batches with good offsets that follow each other, and the damage between them, by position."""
        order = Order(source.segment, view)
        for item in walk(view, lowest_offset=source.first_offset, is_last=is_last):
            if isinstance(item, Gap):
                gaps, runs = [*order.finish(item.next_offset), item], []
            else:
                rows, gaps, _ = order.check(item.batches)
                runs = list(_runs(rows, item)) if len(rows) else []
            both: list[Good | Gap] = [*runs, *(gap for gap in gaps if gap.is_damage)]
            yield from sorted(both, key=_position)
        yield from order.finish()


def told_of_copies(gap: Gap, segment: Segment) -> Gap:
    """Return damage of a segment, with the remedy if other copies have its offsets; these are not read."""
    copies: Callable[[str], Sequence[TierSegment]] | None = getattr(segment.files, "copies", None)
    if copies is None:
        return gap
    end = _END if gap.next_offset is None else gap.next_offset
    own = _of_segment(segment).name
    if any(
        copy.first_offset < end and gap.first_offset < copy.end_offset and copy.upload.name != own
        for copy in copies(segment.files.split(segment.path)[0])
    ):
        reason = f"{gap.reason}; other uploads have these offsets: `pylogseg restore` takes their intact batches"
        return gap._replace(reason=reason)
    return gap


def _position(item: Good | Gap) -> int:
    return item.position if isinstance(item, Gap) else int(item.rows.position[0])


def _hole(source: _Source, first: int, end: int, damage: Gap | None) -> _Hole:
    if damage is None:
        reason = f"{offsets_text(first, end)} are not here"
        return _Hole(first, end, f"{source.name}: {reason}", CorruptionError(source.name, 0, reason, first))
    gap = damage._replace(first_offset=first, next_offset=None if end == _END else end)
    return _Hole(first, end, str(gap), gap.as_error())


def _runs(rows: BatchTable, window: Window) -> Iterator[Good]:
    starts, ends = rows.position, rows.position + rows.size
    cuts = [0, *(np.flatnonzero(ends[:-1] != starts[1:]) + 1).tolist(), len(rows)]
    for first, behind in pairwise(cuts):
        low, high = int(starts[first]) - window.file_position, int(ends[behind - 1]) - window.file_position
        yield Good(memoryview(window.buffer)[low:high], rows[first:behind])


def _inside(good: Good, low: int, high: int) -> Iterator[Good]:
    """Yield the batches whose offsets are all inside a range."""
    at = np.flatnonzero((good.rows.base_offset >= low) & (good.rows.last_offset < high))
    for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1):
        if len(run):
            rows, begin = good.rows[int(run[0]) : int(run[-1]) + 1], int(good.rows.position[0])
            start, end = int(rows.position[0]) - begin, int(rows.position[-1] + rows.size[-1]) - begin
            yield Good(good.data[start:end], rows)


def _of_segment(segment: Segment) -> _Source:
    slice_of: Any = getattr(segment.files, "slice_of", None)
    uploaded: TierSegment | None = None if slice_of is None else slice_of(segment.path)
    end = segment.next_base
    if uploaded is None:
        opened: Callable[[int, int], FileView] = lambda low, high: segment.open()  # noqa: E731
        return _Source(segment.path, segment.base_offset, _END if end is None else end, opened, segment)
    if uploaded.end_offset >= 0:
        end = uploaded.end_offset
    name, first = uploaded.upload.name, uploaded.first_offset
    return _Source(name, first, _END if end is None else end, _opener(uploaded), segment)


def _of_slice(found: TierSegment) -> _Source:
    # What of it is asked for is checked to be there, so that its own end says nothing more.
    segment = Segment(LocalFiles(), found.upload.name, found.first_offset, 0, 0, False)
    return _Source(found.upload.name, found.first_offset, found.end_offset, _opener(found), segment)


def _opener(found: TierSegment) -> Callable[[int, int], FileView]:
    return lambda low, high: found.within(low, high).open()
