"""Gathers the facts of a disk: segments by an executor, then partitions, topics, disks, groups and transactions."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.env.executor import INLINE, Advance, Executor, Threads, Workload
from pylogseg.inspect.stats.groups import Unit, units_of, units_since
from pylogseg.inspect.stats.segment import Stats, Times
from pylogseg.inspect.verify.disk import VerifySummary, findings_of
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.reading.state import Throttle
from pylogseg.reporting.assembly import ReportAssembly
from pylogseg.reporting.facts import Facts
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.partitions import TOP
from pylogseg.reporting.scanning import Sampling, SegmentScan, Task, is_local, scan_segment

#: Bytes of records that are decoded without ``--full``: of a partition, and of all.
_SAMPLED_BYTES, _SAMPLED_TOTAL, _LEAST_SAMPLED = 1 << 20, 256 << 20, 64 << 10
#: Headers that are read of a segment before it is sampled: of all segments together, and of each.
_HEADERS_TOTAL, _LEAST_HEADERS, _MOST_HEADERS = 1 << 20, 1024, 1 << 16
#: Segments of a partition from which they come, and of all, if there are more than these: each costs a millisecond.
_SAMPLED_SEGMENTS, _SAMPLED_SEGMENTS_TOTAL = 4, 2000
#: What is read of a segment without ``--full``, about.
_SOME_BYTES = 1 << 20
#: Partitions that are sampled, the largest ones.
MOST_SAMPLED = 300


def gather(
    disk: Disk,
    chosen: Sequence[Partition],
    options: ReportOptions,
    executor: Executor,
    on_bytes: Callable[[int], None] | None = None,
) -> Facts:
    """Return the facts of partitions of a disk, and of its single files."""
    began = time.monotonic()
    readable = [p for p in chosen if p.error is None]
    notes: list[str] = []
    units = units_since(units_of(disk, readable, notes), options.since)
    by_path = {p.path: (unit, first) for p, (unit, first) in zip(readable, units, strict=False)}
    loose = units[len(readable) :]
    order = [(p, *by_path[p.path]) if p.error is None else (p, None, 0) for p in chosen]
    assembly = ReportAssembly(disk, options)
    assembly.scope.add_notes(*notes)
    whole = [(unit, first) for _, unit, first in order if unit is not None] + loose
    tasks = _tasks(whole, options)
    scans = _scan_segments(disk, tasks, options, executor, on_bytes)
    summary = VerifySummary(Level.INDEXES)
    if options.is_whole:
        reports = _reports(order, loose, scans, assembly)
        findings = findings_of(disk, chosen, reports, summary, options.choice)
    else:
        findings = summary.count_all(_of_segments(_reports(order, loose, scans, assembly)))
    for finding in findings:
        assembly.add_finding(finding)
    assembly.finish_partition()
    checked = {p.path for p in chosen}
    for partition in disk.partitions:
        if partition.path not in checked and options.choice.is_all:
            assembly.add_unscanned(partition)
    return assembly.facts(summary, round((time.monotonic() - began) * 1000))


def _of_segments(reports: Iterable[SegmentReport]) -> Iterator[Finding]:
    """Yield the findings in the segments: between the segments of a part of a log it finds nothing."""
    for report in reports:
        yield from report.findings


def _reports(
    order: Sequence[tuple[Partition, Unit | None, int]],
    loose: Sequence[tuple[Unit, int]],
    scans: Iterator[SegmentScan],
    assembly: ReportAssembly,
) -> Iterator[SegmentReport]:
    """Yield the reports of segments for the checks of `verify`, and give the scans to the assembly on the way."""
    logs = [*((partition, unit) for partition, unit, _ in order), *((None, unit) for unit, _ in loose)]
    for partition, unit in logs:
        assembly.begin(partition, unit)
        segments = () if unit is None else unit.segments
        for segment, segment_scan in zip(segments, islice(scans, len(segments)), strict=True):
            assembly.add(segment, segment_scan)
            yield segment_scan.report


def _scan_segments(
    disk: Disk,
    tasks: list[Task],
    options: ReportOptions,
    executor: Executor,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[SegmentScan]:
    """Scan segments, in order; a worker that scans a partition also merges the facts of its records."""
    # Headers of local files are many small reads with little work in between: threads would wait for each other.
    is_small = not options.full and all(is_local(task.segment) for task in tasks)
    if is_small and isinstance(executor, Threads):
        executor = INLINE
    keys = [task.segment.path if task.segment in disk.loose else _folder(task) for task in tasks]
    sizes = [task.segment.size if task.is_full else min(task.segment.size, _SOME_BYTES) for task in tasks]
    work = functools.partial(_scan, throttle=options.throttle)
    load = Workload("pylogseg report", sizes, on_bytes)
    for _, scans in executor.merge(work, tasks, keys, _fold, _merge_scans, load):
        yield from scans


def _scan(task: Task, advance: Advance, throttle: Throttle | None) -> SegmentScan:
    return scan_segment(task, advance, throttle)


def _folder(task: Task) -> str:
    return task.segment.files.split(task.segment.path)[0]


def _fold(found: dict[int, SegmentScan], number: int, scan: SegmentScan) -> None:
    """Keep the scan of a segment; merge its sample of records, which has no order, into the first one's."""
    first = next(iter(found.values()), None)
    found[number] = scan
    if first is None or first.sample is None or scan.sample is None:
        return
    # In another object: that of a segment shares its lists with what its headers say.
    together = Stats()
    together.merge(first.sample)
    together.merge(replace(scan.sample, tops=None))
    first.sample, scan.sample = together, Stats(tops=scan.sample.tops)


def _merge_scans(key: str, scans: Iterator[SegmentScan]) -> list[SegmentScan]:
    """Return the scans of a partition's segments; the first one with records has the records of all."""
    merged: list[SegmentScan] = []
    holder: SegmentScan | None = None
    together = Stats()
    for segment_scan in scans:
        merged.append(segment_scan)
        if segment_scan.sample is not None:
            holder = holder or segment_scan
            together.merge(segment_scan.sample)
            segment_scan.sample = Stats()
    if holder is not None:
        together.tops = None if together.tops is None else together.tops.trim()
        holder.sample = together
    return merged


def _tasks(units: Sequence[tuple[Unit, int]], options: ReportOptions) -> list[Task]:
    """Return the tasks of logs: the more segments there are, the fewer headers of each are read."""
    count = sum(len(unit.segments) for unit, _ in units)
    most = min(max(_HEADERS_TOTAL // max(1, count), _LEAST_HEADERS), _MOST_HEADERS)
    sizes = [sum(segment.size for segment in unit.segments) for unit, _ in units]
    largest = sorted(range(len(units)), key=lambda number: -sizes[number])[:MOST_SAMPLED]
    chosen = frozenset() if options.full else frozenset(largest)
    tasks = []
    for number, (unit, first) in enumerate(units):
        times = None if options.is_whole else Times(options.since, options.until, first)
        is_many = count > _SAMPLED_SEGMENTS_TOTAL
        sampled = _samplings(unit.segments, len(largest), is_many) if number in chosen else {}
        tasks += [
            Task(segment, options.full, options.now_ms, times, sampled.get(at), most, TOP, options.limit_bytes)
            for at, segment in enumerate(unit.segments)
        ]
    return tasks


def _samplings(segments: Sequence[Segment], partitions: int, is_many: bool) -> Mapping[int, Sampling]:
    """Return which segments are sampled: all, where their records are few and there are not many segments."""
    budget = max(_LEAST_SAMPLED, min(_SAMPLED_BYTES, _SAMPLED_TOTAL // max(1, partitions)))
    filled = [number for number, segment in enumerate(segments) if segment.size]
    if sum(segments[number].size for number in filled) <= budget and not is_many:
        return {number: Sampling(0, segments[number].size) for number in filled}
    count = min(_SAMPLED_SEGMENTS, len(filled))
    if is_many:
        count = min(count, max(1, _SAMPLED_SEGMENTS_TOTAL // partitions))
    picked = {filled[(2 * i + 1) * len(filled) // (2 * count)] for i in range(count)}
    return {number: Sampling(_middle(segments, number), budget // count) for number in sorted(picked)}


def _middle(segments: Sequence[Segment], number: int) -> int:
    """Return an offset in the middle of a sealed segment; for the last one its first, as its end is open."""
    segment = segments[number]
    return segment.base_offset if segment.next_base is None else (segment.base_offset + segment.next_base) // 2
