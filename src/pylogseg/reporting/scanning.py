"""The facts of one segment, by its headers or as a whole: plain values that merge in the order of the segments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.files.txnindex import AbortedTxn, TxnIndex
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.format.names import FileKind
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.inspect.segment_pass import visit
from pylogseg.inspect.stats.listing import SegmentRow
from pylogseg.inspect.stats.listing_windows import segment_row
from pylogseg.inspect.stats.segment import SegmentCount, Stats, Times, header_stats, segment_stats
from pylogseg.inspect.stats.sketch import Distinct, Histogram
from pylogseg.inspect.stats.tops import Tops
from pylogseg.inspect.verify.findings import Level, finding_of_gap, of_failure
from pylogseg.inspect.verify.segment import SegmentCheck
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.reading.header_reader import are_plain, header_table, read_headers, tells_headers
from pylogseg.reading.removed_segments import open_unless_removed, removed_gap
from pylogseg.reading.state import Throttle
from pylogseg.reporting.series import Growth, Series
from pylogseg.walker.gaps import GapKind

#: A segment with more batches than it is given is sampled: so many stretches, each of so many headers.
_STRETCHES, _STRETCH = 32, 16
#: From the last entry of the index to the end of a sampled segment.
_MOST_AT_END = 1 << 14
_TO_THE_END = 2**63 - 1
#: Aborted transactions of a segment that are kept.
_MOST_ABORTED = 1000
#: How often damage is looked at again while its folder changes, which it does not if no file did for so long.
_LOOKS, _QUIET_MS = 3, 5000
#: What the disk reads for a header, and for the row of a segment in a list.
_PAGE_BYTES, _LISTED_BYTES = 4096, 128 << 10


class Sampling(NamedTuple):
    """Choice of the records of a segment that are decoded."""

    first_offset: int
    most_bytes: int


class Task(NamedTuple):
    """One segment to look at, and how."""

    segment: Segment
    is_full: bool
    now_ms: int
    times: Times | None = None
    sampling: Sampling | None = None
    most_headers: int = 1024  #: All of them are read if there are no more.
    top: int = 10
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES


@dataclass
class SegmentScan:
    """The result of scanning one segment."""

    row: SegmentRow
    report: SegmentReport
    read: str  #: As `SegmentFact.read`.
    headers: int = 0
    stats: Stats = field(default_factory=Stats)  #: By headers, or by all records.
    is_estimate: bool = False
    sample: Stats | None = None  #: Of the decoded records.
    series: Series = field(default_factory=Series)
    grown: Growth = field(default_factory=lambda: Growth(0))
    aborted: list[AbortedTxn] = field(default_factory=list)
    aborted_count: int = 0
    is_gone: bool = False


class _Found(NamedTuple):
    """Headers of a segment; each stands for `weights` of them."""

    rows: BatchTable
    weights: npt.NDArray[np.float64] | None
    end_position: int


def scan_segment(task: Task, advance: Advance, throttle: Throttle | None = None) -> SegmentScan:
    """Look at one segment; see `_scan`.

    Damage in a folder that is being written to is looked at again: a file may have been read while it was cut.
    """
    result = _scan(task, advance, throttle)
    for _ in range(_LOOKS):
        if not result.report.is_damaged or not _is_written(task.segment):
            break
        result = _scan(task, lambda size: None, throttle)
    return result


def is_local(segment: Segment) -> bool:
    """Check whether a segment lies on a disk of this machine, and not in the tier of that disk."""
    slice_of = getattr(segment.files, "slice_of", None)
    return isinstance(segment.files, LocalFiles) and (slice_of is None or slice_of(segment.path) is None)


def _is_written(segment: Segment) -> bool:
    """Check whether a file of a segment's folder has just changed."""
    try:
        entries = segment.files.list_folder(segment.files.split(segment.path)[0])
    except StorageError:
        return True
    newest = max((entry.modified_ms for entry in entries), default=0)
    return time.time_ns() // 1_000_000 - newest < _QUIET_MS


def _scan(task: Task, advance: Advance, throttle: Throttle | None) -> SegmentScan:
    """Look at one segment once.

    Headers suffice where all batches have magic 2 and follow one another to the end of a local file; any other segment
    is read whole, as all of them with `Task.is_full`. The first and the last batches of a file that is not local.
    """
    segment = task.segment
    headers = check = None
    if not task.is_full:
        check = SegmentCheck(segment, Level.HEADERS, with_entries=True) if is_local(segment) else None
        try:
            opened = open_unless_removed(segment)
        except StorageError as error:
            return _unreadable(task, segment_row(segment), error)
        if opened is None:
            return _make_gone(task, segment_row(segment))
        with opened as view:
            if check is None:
                return _remote(task, advance, throttle)
            headers = _headers(segment, view, task.most_headers)
    row = segment_row(segment, rows=headers.rows if headers is not None and headers.weights is None else None)
    if headers is None or check is None:
        result = _whole(task, row, advance, throttle)
    else:
        result = _by_headers(task, row, headers, check)
        if throttle is not None:
            throttle.spend(min(segment.size, len(headers.rows) * _PAGE_BYTES + _LISTED_BYTES))
        _add_sample(result, task, throttle)
        if result.sample is not None and any(gap.is_damage for gap in result.sample.gaps):
            result = _whole(task, row, advance, throttle)  # headers do not tell what of it is good
        else:
            advance(segment.size)
    _add_aborted(result, segment)
    return result


# ---- headers ----


def _headers(segment: Segment, view: FileView, most: int) -> _Found | None:
    """Return headers of a segment; None if it has to be read whole."""
    if not tells_headers(view):
        return None
    rows, position = _read(view, 0, most)
    if position >= view.size:
        return _Found(BatchTable(rows), None, position) if are_plain(rows, segment) else None
    if len(rows) < most:
        return None
    return _sample_headers(segment, view) or _all(segment, view, most)


def _all(segment: Segment, view: FileView, most: int) -> _Found | None:
    position, parts = 0, []
    while position < view.size:
        rows, behind = _read(view, position, most)
        if behind == position:
            return None
        parts.append(rows)
        position = behind
    rows = np.concatenate(parts)
    return _Found(BatchTable(rows), None, position) if are_plain(rows, segment) else None


def _sample_headers(segment: Segment, view: FileView) -> _Found | None:
    """Return headers from places all over a segment, by its offset index; None if that is missing or wrong."""
    data = segment.hint(FileKind.OFFSET_INDEX)
    if not data:
        return None
    index = OffsetIndex(data, segment.base_offset, segment.companions[FileKind.OFFSET_INDEX])
    if len(index) < 2 * _STRETCHES:
        return None
    slots = np.linspace(0, len(index) - 1, _STRETCHES + 1).astype(np.int64)
    positions, offsets = index.positions.astype(np.int64), index.offsets
    tail, end = _read(view, int(positions[-1]), _MOST_AT_END)
    if end != view.size:
        return None
    starts = np.concatenate(([0], positions[slots[1:]]))
    if not (np.diff(starts) > 0).all():
        return None
    parts, weights = [], []
    for i, (start, stop) in enumerate(zip(starts.tolist(), [*starts[1:].tolist(), end], strict=True)):
        rows = tail if i == len(starts) - 1 else _read(view, start, _STRETCH)[0]
        rows = rows[rows["position"] < stop]
        if not len(rows) or (i and rows["last_offset"][0] != offsets[slots[i]]):
            return None
        parts.append(rows)
        weights.append(np.full(len(rows), (stop - start) / float(rows["size"].sum())))
    joined = np.concatenate(parts)
    return _Found(BatchTable(joined), np.concatenate(weights), end) if are_plain(joined, segment) else None


def _read(view: Any, position: int, most: int) -> tuple[npt.NDArray[Any], int]:
    memory = memoryview(bytearray(most * BATCH_HEADER.size))
    count, behind = read_headers(view, position, _TO_THE_END, memory)
    if not count:
        return np.empty(0, BATCH_DTYPE), position
    return header_table(memory[: count * BATCH_HEADER.size], position), behind


def _by_headers(task: Task, row: SegmentRow, found: _Found, check: SegmentCheck) -> SegmentScan:
    segment, rows = task.segment, found.rows
    if found.weights is None:
        check.take_headers(rows, found.end_position)
        report = check.report()
    else:
        report = _report_of_some(segment, row, rows, found.end_position)
    result = SegmentScan(
        row,
        report,
        "headers" if found.weights is None else "some",
        len(rows),
        Stats(segments=1, base_offset=segment.base_offset),
        grown=Growth(task.now_ms),
    )
    weights = found.weights
    if task.times is not None:
        kept = task.times.hold(rows)
        rows = rows[kept]
        weights = None if weights is None else weights[kept]
    counts = np.where(rows.is_control, 0, rows.count).astype(np.int64)
    sizes = rows.size.astype(np.int64)
    header_stats(result.stats, rows)
    if weights is None:
        result.stats.size_bytes = segment_size(task, row, rows)
    else:
        result.is_estimate = True
        counts, sizes = np.rint(counts * weights).astype(np.int64), np.rint(sizes * weights).astype(np.int64)
        _scale(result.stats, weights, counts, sizes, rows, row, task.times is not None)
    _add_times(result, rows, counts, sizes)
    return result


def segment_size(task: Task, row: SegmentRow, rows: BatchTable) -> int:
    """Return the size of a segment, or of its batches in the range of time, as `segment_stats` counts it."""
    return row.size if task.times is None else int(rows.size.sum(dtype=np.int64))


def _scale(
    stats: Stats,
    weights: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    rows: BatchTable,
    row: SegmentRow,
    is_part: bool,
) -> None:
    """Extrapolate the counts of some headers to all; offsets missing between them stay uncounted."""
    read = max(1, len(rows))
    stats.batches, stats.records = round(float(weights.sum())), int(counts.sum())
    stats.size_bytes = int(sizes.sum()) if is_part else row.size
    for name, mask in (("control_batches", rows.is_control), ("transactional_batches", rows.is_transactional)):
        setattr(stats, name, round(float(weights[mask].sum())))
    stats.empty, stats.control, stats.unlisted, stats.left_out = [], [], 0, 0
    stats.control_records = stats.control_batches
    if row.next_offset is not None:
        stats.end_offset = max(stats.end_offset, row.next_offset)
    factor = stats.batches / read
    for codec in stats.codecs.values():
        for name, value in vars(codec).items():
            setattr(codec, name, round(value * factor))


def _report_of_some(segment: Segment, row: SegmentRow, rows: BatchTable, end_position: int) -> SegmentReport:
    """Return a report that claims nothing about headers between the ones that were read."""
    report = SegmentReport(
        segment.path, segment.topic, segment.partition, segment.base_offset, segment.size, int(Level.HEADERS)
    )
    report.is_sampled, report.batches, report.records = True, len(rows), int(rows.count.sum())
    report.first_offset, report.end_position = int(rows.base_offset[0]), end_position
    report.next_offset = int(rows.last_offset.max()) + 1
    report.max_timestamp = int(rows.max_timestamp.max())
    width = rows.last_offset - rows.base_offset + 1
    report.is_compacted = bool((rows.count < width).any() or rows.has_delete_horizon.any())
    return report


# ---- records ----


def _whole(task: Task, row: SegmentRow, advance: Advance, throttle: Throttle | None) -> SegmentScan:
    """Read all of a segment: its counts, and the checks of `verify`."""
    segment = task.segment
    result = SegmentScan(row, SegmentReport("", "", 0, 0, 0, 0), "all")
    result.grown = Growth(task.now_ms)

    def count(rows: BatchTable) -> None:
        result.headers += len(rows)
        counts = np.where(rows.is_control | (rows.count < 0), 0, rows.count).astype(np.int64)
        timestamps, sizes = rows.max_timestamp.copy(), rows.size.astype(np.int64)
        result.series.add(timestamps, counts, sizes)
        result.grown.add(timestamps, counts, sizes)

    check = SegmentCheck(segment, Level.INDEXES)
    counted = SegmentCount(segment, times=task.times, tops=_tops(task), on_batches=count)
    visit(
        segment,
        [check, counted],
        limit_bytes=task.limit_bytes,
        advance=advance,
        throttle=throttle,
        drop_behind=True,
    )
    result.report, result.sample = check.report(), counted.stats
    gap = result.report.end_gap
    result.is_gone = gap is not None and gap.kind is GapKind.REMOVED
    none = Histogram()
    result.stats = replace(
        result.sample, keys=Distinct(), key_sizes=none, value_sizes=none, record_sizes=none, tops=None
    )
    return result


def _tops(task: Task) -> Tops | None:
    return Tops(task.top, task.top) if task.top else None


def _add_sample(result: SegmentScan, task: Task, throttle: Throttle | None) -> None:
    if task.sampling is None:
        return
    first, most = task.sampling
    since, until = (None, None) if task.times is None else task.times[:2]
    first = first if task.times is None else max(first, task.times.first_offset)
    sample = segment_stats(
        task.segment,
        limit_bytes=task.limit_bytes,
        throttle=throttle,
        drop_behind=True,
        times=Times(since, until, first),
        tops=_tops(task),
        most_bytes=most,
    )
    result.sample = sample


def _add_times(
    result: SegmentScan, rows: BatchTable, counts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> None:
    result.series.is_estimate = result.is_estimate
    timestamps = rows.max_timestamp.copy()  # what waits to be counted must not keep all columns
    result.series.add(timestamps, counts, sizes)
    result.grown.add(timestamps, counts, sizes)


# ---- what is not here ----


def _remote(task: Task, advance: Advance, throttle: Throttle | None) -> SegmentScan:
    """Read the first and the last batches of a file that is not local, and its sample."""
    result = _by_name(task, segment_row(task.segment))
    _add_sample(result, task, throttle)
    gaps = () if result.sample is None else result.sample.gaps
    result.report.findings += [finding_of_gap(gap) for gap in gaps if gap.is_damage]
    _add_aborted(result, task.segment)
    advance(task.segment.size)
    return result


def _by_name(task: Task, row: SegmentRow) -> SegmentScan:
    """Return the facts in a segment's first and last batches, and in the names of its files."""
    segment = task.segment
    report = SegmentReport(
        segment.path, segment.topic, segment.partition, segment.base_offset, segment.size, int(Level.HEADERS)
    )
    report.is_sampled, report.first_offset = True, segment.base_offset
    if row.next_offset is not None:
        report.next_offset, report.end_position = row.next_offset, row.size
    result = SegmentScan(row, report, "names", is_estimate=True, grown=Growth(task.now_ms))
    result.stats = Stats(segments=1, size_bytes=row.size, base_offset=segment.base_offset)
    return result


def _make_gone(task: Task, row: SegmentRow) -> SegmentScan:
    result = _by_name(task, row)
    gap = removed_gap(task.segment, 0, task.segment.next_base)
    result.report.first_offset = result.report.next_offset = task.segment.base_offset
    result.report.end_position = -1
    result.report.end_gap, result.report.findings, result.is_gone = gap, [finding_of_gap(gap)], True
    result.stats = Stats(segments=1, base_offset=task.segment.base_offset)
    return result


def _unreadable(task: Task, row: SegmentRow, error: StorageError) -> SegmentScan:
    result = _by_name(task, row)
    result.report.findings = [of_failure(error)]
    result.report.end_position = -1
    return result


def _add_aborted(result: SegmentScan, segment: Segment) -> None:
    """Take the aborted transactions of a transaction index; `verify` reports one that is damaged."""
    data = segment.hint(FileKind.TXN_INDEX)
    if not data:
        return
    try:
        index = TxnIndex(data, segment.companions[FileKind.TXN_INDEX])
    except CorruptionError:
        return
    result.aborted_count = len(index)
    result.aborted = [index[slot] for slot in range(min(len(index), _MOST_ABORTED))]
