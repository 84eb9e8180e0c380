"""Statistics of a segment: counts, sizes, codecs, keys, producers, times, and missing offsets.

`segment_stats` reads one segment and returns a `Stats`; `Stats.merge` joins those of a partition or of a whole disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _gather
from pylogseg.disk.disk import Segment, fetched_from
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, RecordColumns, Slice
from pylogseg.inspect.segment_pass import Visitor, visit
from pylogseg.inspect.stats.sketch import Distinct, Histogram
from pylogseg.inspect.stats.tops import Tops
from pylogseg.reading.offset_order import Order
from pylogseg.reading.partition import of_segment, records_gap
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import removed_gap, unreadable_gap
from pylogseg.reading.state import Throttle
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window

#: Ranges of offsets of a segment, empty or of control records, that are kept one by one.
MAX_RANGES = 1000


class Times(NamedTuple):
    """A half-open range of time (ms) for whole batches, by their largest timestamps."""

    since: int | None
    until: int | None
    first_offset: int = 0  #: No record before it is in the range.

    def hold(self, rows: BatchTable) -> npt.NDArray[np.bool_]:
        """Return a mask of the batches in the range."""
        mask = np.ones(len(rows), np.bool_)
        if self.since is not None:
            mask &= rows.max_timestamp >= self.since
        if self.until is not None:
            mask &= rows.max_timestamp < self.until
        return mask


@dataclass
class CodecStats:
    """Batches of one codec."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0  #: Of whole batches in the file, headers included.
    body_bytes: int = 0  #: Of their records, as stored.
    raw_bytes: int = 0  #: The same, decompressed.

    def merge(self, other: CodecStats) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def ratio(self) -> float | None:
        """Decompressed bytes per stored byte of records; None without records."""
        return self.raw_bytes / self.body_bytes if self.body_bytes else None

    @property
    def rounded_ratio(self) -> float | None:
        """The ratio with three decimals."""
        return None if self.ratio is None else round(self.ratio, 3)


@dataclass
class Stats:
    """Counts of one segment, or of several that were merged."""

    segments: int = 0
    size_bytes: int = 0
    first_offset: int = -1  #: Of the batches, half-open; -1 if there is none.
    end_offset: int = -1
    batches: int = 0
    empty_batches: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    horizon_batches: int = 0  #: With a delete horizon: the cleaner has been there.
    records: int = 0  #: Data records, without those of control batches.
    control_records: int = 0
    null_keys: int = 0
    tombstones: int = 0  #: With a key and a null value.
    headers: int = 0
    least_timestamp: int | None = None
    largest_timestamp: int | None = None
    keys: Distinct = field(default_factory=Distinct)
    key_sizes: Histogram = field(default_factory=Histogram)  #: Bytes that are not null.
    value_sizes: Histogram = field(default_factory=Histogram)
    record_sizes: Histogram = field(default_factory=Histogram)  #: Of key and value together.
    codecs: dict[int, CodecStats] = field(default_factory=dict)  #: By number.
    magics: Counter[int] = field(default_factory=Counter)  #: Batches by magic.
    time_types: Counter[int] = field(default_factory=Counter)  #: Batches by timestamp type.
    markers: Counter[str] = field(default_factory=Counter)  #: And other control records, by kind.
    producers: Counter[int] = field(default_factory=Counter)  #: Batches by producer id.
    left_out: int = 0  #: Offsets of batches without a record: the cleaner removed it.
    gaps: list[Gap] = field(default_factory=list)  #: Unreadable parts.
    base_offset: int = -1  #: Of the segment; -1 for several.
    #: Ranges without records, half-open and not merged, inside the batches: up to `MAX_RANGES`.
    empty: list[tuple[int, int]] = field(default_factory=list)
    control: list[tuple[int, int]] = field(default_factory=list)  #: The same of control records.
    unlisted: int = 0  #: The number of further ranges.
    tops: Tops | None = None  #: Heaviest keys and largest records, if requested.

    def merge(self, other: Stats) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("keys", "key_sizes", "value_sizes", "record_sizes"):
            getattr(self, name).merge(getattr(other, name))
        for number, codec in other.codecs.items():
            self.codecs.setdefault(number, CodecStats()).merge(codec)
        for name in ("magics", "time_types", "markers", "producers"):
            getattr(self, name).update(getattr(other, name))
        if other.tops is not None:
            self.tops = self.tops or Tops(other.tops.key_count, other.tops.record_count)
            self.tops.merge(other.tops)
        if other.first_offset >= 0:
            self.first_offset = (
                min(self.first_offset, other.first_offset) if self.first_offset >= 0 else other.first_offset
            )
        self.end_offset = max(self.end_offset, other.end_offset)
        self.least_timestamp = choose_known(min, self.least_timestamp, other.least_timestamp)
        self.largest_timestamp = choose_known(max, self.largest_timestamp, other.largest_timestamp)
        self.gaps += other.gaps


_SUMS = (
    "segments",
    "size_bytes",
    "batches",
    "empty_batches",
    "control_batches",
    "transactional_batches",
    "horizon_batches",
    "records",
    "control_records",
    "null_keys",
    "tombstones",
    "headers",
    "left_out",
)


def choose_known(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return choose(a, b) if a is not None and b is not None else b if a is None else a


def segment_stats(
    segment: Segment,
    advance: Callable[[int], None] | None = None,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    throttle: Throttle | None = None,
    drop_behind: bool = False,
    times: Times | None = None,
    tops: Tops | None = None,
    most_bytes: int | None = None,
) -> Stats:
    """Read one segment and count its contents; damage is skipped and reported.

    `advance` gets the bytes read since its last call, and may raise to end the work. A batch that decompresses to more
    than `limit_bytes` is damaged. With `times`, missing offsets mean nothing; nor with `most_bytes`, which ends the
    reading after a window that passes so many bytes.
    """
    count = SegmentCount(segment, times=times, tops=tops)
    visit(
        segment,
        [count],
        limit_bytes=limit_bytes,
        advance=advance,
        throttle=throttle,
        drop_behind=drop_behind,
        most_bytes=most_bytes,
    )
    return count.stats


class SegmentCount(Visitor):
    """Counts a segment window by window; damage is skipped and noted in `stats`.

    `times` and `tops` are those of `segment_stats`; `on_batches` gets the batches that are counted.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        times: Times | None = None,
        tops: Tops | None = None,
        on_batches: Callable[[BatchTable], None] | None = None,
    ) -> None:
        self.stats = Stats(segments=1, base_offset=segment.base_offset, tops=tops and tops.of(segment))
        self._segment, self._times, self._on_batches = segment, times, on_batches
        self._start, self._after_last = 0, -1  # the offset after the last record so far
        self._rows: BatchTable | None = None
        self._first = 0
        #: Runs of offsets of a window, and those of control records.
        self._runs: list[npt.NDArray[np.int64]] = []
        self._control_runs: list[npt.NDArray[np.int64]] = []

    def miss_segment(self, error: StorageError | None) -> None:
        segment = self._segment
        end = segment.next_base
        gap = removed_gap(segment, 0, end) if error is None else unreadable_gap(segment, error, 0, end)
        self.stats.gaps.append(gap)

    def start(self, view: FileView) -> int:
        """Begin where the range of time does."""
        times = self._times
        if times is None:
            self.stats.size_bytes = view.size if fetched_from(self._segment) is None else self._segment.size
        else:
            self._start = position_of_offset(self._segment, view, times.first_offset)
        self._order = Order(self._segment, view, starts_inside=self._start > 0)
        return self._start

    def gap(self, gap: Gap) -> None:
        if gap.end_position > self._start:
            self.stats.gaps += [*self._order.finish(gap.next_offset), gap]

    def window(self, window: Window) -> BatchTable | None:
        """Count the headers of batches in order, and in the range of time."""
        rows, stats, self._rows = window.batches, self.stats, None
        if self._start and rows.position[0] < self._start:
            rows = rows[rows.position >= self._start]
            if not len(rows):
                return None
        rows, gaps, _ = self._order.check(rows)
        stats.gaps += gaps
        if self._times is not None:
            kept = self._times.hold(rows)
            rows = rows if kept.all() else rows[kept]
            stats.size_bytes += int(rows.size.sum(dtype=np.int64))
        if not len(rows):
            return None
        _add_headers(stats, rows)
        self._rows, self._first, self._runs, self._control_runs = rows, int(rows.base_offset[0]), [], []
        return rows

    def records(self, part: Slice) -> None:
        decoded, damage, continues, _ = part
        stats = self.stats
        columns, below = of_segment(self._segment, decoded)
        stats.gaps += below
        rows = columns.batches
        stats.gaps += [records_gap(self._segment, rows, bad) for bad in damage]
        good = np.full(len(rows), not continues)
        good[[bad.row for bad in damage]] = False
        _add_codec(stats, int(rows.codec[0]), rows[good], columns, continues)
        _add_records(stats, columns)
        _add_left_out(stats, rows[good], columns)
        if len(columns):  # the header of a compressed legacy wrapper has no base offset, its first record has it
            self._first = min(self._first, int(columns.offset[0]))
            self._runs.append(_runs(columns.offset))
            self._control_runs.append(_runs(columns.offset[columns.batches.is_control[columns.batch]]))

    def after(self, window: Window) -> None:
        """Note where offsets are missing between records."""
        stats, rows, after = self.stats, self._rows, self._after_last
        if rows is None:
            return
        if stats.first_offset < 0:
            stats.first_offset = self._first
        stats.end_offset = max(stats.end_offset, int(rows.last_offset.max()) + 1)
        after = self._first if after < 0 else after
        _add_ranges(stats, stats.control, *_joined_runs(self._control_runs))
        begins, ends = _joined_runs(self._runs)
        before = np.concatenate(([after], ends[:-1]))
        jumps = begins > before
        _add_ranges(stats, stats.empty, before[jumps], begins[jumps])
        self._after_last = int(ends[-1]) if len(ends) else after
        if self._on_batches is not None:
            self._on_batches(rows)

    def finish(self, end_position: int) -> None:
        stats, after = self.stats, self._after_last
        stats.gaps += self._order.finish()
        if stats.end_offset > after >= 0:
            _add_ranges(stats, stats.empty, np.array([after]), np.array([stats.end_offset]))


def _runs(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the runs of consecutive offsets as rows of first and end offset."""
    if (offsets[1:] < offsets[:-1]).any():
        offsets = np.sort(offsets)
    last = np.append(np.flatnonzero(np.diff(offsets) > 1), len(offsets) - 1)[: len(offsets)]
    begin = np.concatenate(([0], last[:-1] + 1))[: len(offsets)]
    return np.stack((offsets[begin], offsets[last] + 1))


def _joined_runs(parts: list[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Merge the runs of several parts in order: decoding goes by codec."""
    begins, ends = np.concatenate(parts, axis=1) if parts else np.empty((2, 0), np.int64)
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    apart = begins[1:] > ends[:-1]
    return begins[np.append([True], apart)[: len(begins)]], ends[np.append(apart, [True])[: len(ends)]]


def _add_ranges(
    stats: Stats, ranges: list[tuple[int, int]], first: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> None:
    room = MAX_RANGES - len(ranges)
    ranges += zip(first[:room].tolist(), end[:room].tolist(), strict=True)
    stats.unlisted += max(0, len(first) - room)


def _add_headers(stats: Stats, batches: BatchTable) -> None:
    count, summary = len(batches), batches.summary()
    stats.batches += count
    stats.empty_batches += int(((batches.magic == 2) & (batches.count == 0)).sum())
    if not summary.is_ordinary:
        stats.control_batches += int(batches.is_control.sum())
        stats.transactional_batches += int(batches.is_transactional.sum())
        stats.horizon_batches += int(batches.has_delete_horizon.sum())
    if summary.timestamp_type is None:
        _count(stats.magics, batches.magic)
        _count(stats.time_types, batches.timestamp_type)
    else:  # of one magic, too
        stats.magics[summary.highest_magic] += count
        stats.time_types[summary.timestamp_type] += count
    has_id = batches.producer_id >= 0
    if has_id.any():
        _count(stats.producers, batches.producer_id[has_id])


def _count(counter: Counter[int], values: npt.NDArray[Any]) -> None:
    if len(values) and (values == values[0]).all():  # as mostly: much cheaper
        counter[int(values[0])] += len(values)
        return
    ids, counts = np.unique(values, return_counts=True)
    counter.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))


def _add_codec(stats: Stats, number: int, batches: BatchTable, columns: RecordColumns, continues: bool) -> None:
    codec = stats.codecs.setdefault(number, CodecStats())
    heads = int(np.where(batches.magic == 2, BATCH_HEADER_BYTES, 0).sum())
    stored = int(batches.size.sum(dtype=np.int64))
    codec.batches += len(batches)
    codec.records += len(columns)
    codec.stored_bytes += stored
    codec.body_bytes += stored - heads
    if not continues:  # else the bytes of its batch were counted
        codec.raw_bytes += len(columns.sources[1]) if number else stored - heads


def _add_records(stats: Stats, columns: RecordColumns) -> None:
    control = columns.batches.is_control[columns.batch]
    if control.any():
        _add_control(stats, columns.take(control))
        columns = columns.take(~control)
    if not len(columns):
        return
    keys, values = columns.key_size, columns.value_size
    hashes = np.empty(len(columns), np.uint64)
    _gather.hash_spans(columns.key_place, keys, columns.sources, hashes)
    is_keyed = keys >= 0
    stats.records += len(columns)
    stats.null_keys += len(columns) - int(is_keyed.sum())
    stats.tombstones += int(((values < 0) & is_keyed).sum())
    stats.headers += int(columns.header_count.sum(dtype=np.int64))
    stats.key_sizes.add(keys[is_keyed])
    stats.value_sizes.add(values[values >= 0])
    stats.record_sizes.add(np.maximum(keys, 0).astype(np.int64) + np.maximum(values, 0))
    stats.keys.add(hashes[is_keyed])
    if stats.tops is not None:
        stats.tops.add(columns, hashes)
    timestamps = columns.timestamp[columns.timestamp >= 0]
    if len(timestamps):
        stats.least_timestamp = choose_known(min, stats.least_timestamp, int(timestamps.min()))
        stats.largest_timestamp = choose_known(max, stats.largest_timestamp, int(timestamps.max()))


def _add_control(stats: Stats, columns: RecordColumns) -> None:
    stats.control_records += len(columns)
    for i in range(len(columns)):
        key = columns.key(i)
        number = int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else -1
        is_known = ControlKind.ABORT <= number <= ControlKind.KRAFT_VOTERS
        stats.markers[(ControlKind(number) if is_known else ControlKind.UNKNOWN).name.lower()] += 1


def _add_left_out(stats: Stats, batches: BatchTable, columns: RecordColumns) -> None:
    modern = batches.magic == 2
    spans = batches.last_offset[modern] - batches.base_offset[modern] + 1
    stats.left_out += int((spans - batches.count[modern]).sum())
    if modern.all() or len(columns) < 2:
        return
    # The header of a legacy wrapper has no base offset: only offsets missing between its records are known.
    steps = np.diff(columns.offset) - 1
    same = (np.diff(columns.batch) == 0) & (columns.batches.magic[columns.batch[1:]] < 2)
    stats.left_out += int(np.maximum(steps[same], 0).sum())


def header_stats(stats: Stats, rows: BatchTable) -> None:
    """Add batches of magic 2 in the order of the file.

    Their records are those that the headers declare; sizes, keys and values stay empty, and so do the decompressed
    bytes of compressed batches. Ranges of missing offsets are those between batches; inside of a batch they are only
    counted.
    """
    if not len(rows):
        return
    _add_headers(stats, rows)
    counts, summary = rows.count.astype(np.int64), rows.summary()
    total = int(counts.sum())
    if summary.has_control:
        control = rows.is_control
        held = int(counts[control].sum())
        stats.records, stats.control_records = stats.records - held, stats.control_records + held
        _add_ranges(stats, stats.control, rows.base_offset[control], rows.next_offset[control])
    stats.records += total
    ends = rows.next_offset
    stats.left_out += int((ends - rows.base_offset).sum()) - total
    for number in np.unique(rows.codec).tolist() if summary.codec is None else (summary.codec,):
        some = rows if summary.codec is not None else rows[rows.codec == number]
        stored = int(some.size.sum(dtype=np.int64))
        body = stored - BATCH_HEADER_BYTES * len(some)
        records = total if some is rows else int(some.count.sum(dtype=np.int64))
        codec = CodecStats(len(some), records, stored, body, 0 if number else body)
        stats.codecs.setdefault(number, CodecStats()).merge(codec)
    latest = int(rows.max_timestamp.max(where=counts > 0, initial=-1))
    if latest >= 0:
        stats.largest_timestamp = choose_known(max, stats.largest_timestamp, latest)
    before = np.empty_like(ends)
    before[0], before[1:] = stats.end_offset if stats.end_offset >= 0 else rows.base_offset[0], ends[:-1]
    jumps = rows.base_offset > before
    if jumps.any():
        _add_ranges(stats, stats.empty, before[jumps], rows.base_offset[jumps])
    if stats.first_offset < 0:
        stats.first_offset = int(rows.base_offset[0])
    stats.end_offset = max(stats.end_offset, int(ends.max()))
