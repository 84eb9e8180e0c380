"""A plan for very many segments, without the segments: what the driver has to hold, and how long the work takes.

    python asv_benchmarks/scale.py [--segments N] [--bytes N] [--cores N] [--markdown]

What is measured is measured on this machine with the code that the jobs use: giving out N segments, what they weigh in
the task's closure, what N reports weigh when they come back. What is computed from that, and from rates that are given
as options, is marked as such.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from collections.abc import Iterator
from typing import NamedTuple

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.spark.executor import equal_groups, pack_items

_SAMPLE = 20_000


class Line(NamedTuple):
    """One row of the table."""

    what: str
    value: str
    how: str


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=float, default=100e12, help="of all segments")
    parser.add_argument("--cores", type=int, default=512)
    parser.add_argument(
        "--verify-rate", type=float, default=1.2e9, help="bytes a second and core; verify, CRC and records"
    )
    parser.add_argument("--disk-rate", type=float, default=200e6, help="bytes a second and core that storage gives")
    parser.add_argument("--task-ms", type=float, default=7, help="what a Python task costs, see docs/spark.md")
    parser.add_argument("--list-us", type=float, default=50, help="to list and stat one file")
    parser.add_argument("--markdown", action="store_true", help="for a page")
    return parser.parse_args()


def segments(count: int, each: int) -> list[Segment]:
    """Segments of a disk that there is not, 100 a partition."""
    files = LocalFiles()
    made = []
    for number in range(count):
        partition, base = divmod(number, 100)
        stem = f"/data/kafka/orders-{partition}/{base * 1_000_000:020d}"
        companions = {kind: stem + kind.value for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)}
        made.append(
            Segment(files, f"{stem}.log", base * 1_000_000, each, 0, base == 99, "orders", partition, companions)
        )
    return made


def measured(asked: argparse.Namespace) -> Iterator[Line]:
    """What this machine does with so many."""
    each = int(asked.bytes / asked.segments)
    started = time.perf_counter()
    groups = equal_groups([each] * asked.segments, asked.cores)
    took = time.perf_counter() - started
    yield Line("segments given out to tasks", f"{took:.1f} s, {len(groups):,} tasks", "measured")
    sample = segments(min(_SAMPLE, asked.segments), each)
    scale = asked.segments / len(sample)
    there = sum(len(pack_items(sample[first : first + 500])) for first in range(0, len(sample), 500))
    yield Line("segments on their way to the tasks", _mb(there * scale), f"measured on {len(sample):,}")
    reports = [
        SegmentReport(s.path, s.topic, s.partition, s.base_offset, s.size, 3, 6000, 10**6, 0, s.base_offset, 10**12)
        for s in sample
    ]
    back = sum(len(pack_items(reports[first : first + 500])) for first in range(0, len(reports), 500))
    yield Line("reports of verify on their way back", _mb(back * scale), f"measured on {len(sample):,}")
    size = len(pickle.dumps(reports)) * scale
    yield Line("the same in the driver, at least", _mb(size), f"measured on {len(sample):,}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield Line("largest memory of this process", _mb(peak), "measured")


def computed(asked: argparse.Namespace) -> Iterator[Line]:
    """What follows from that and from the rates."""
    rate = min(asked.verify_rate, asked.disk_rate)
    tasks = len(equal_groups([int(asked.bytes / asked.segments)] * asked.segments, asked.cores))
    yield Line("listing by one thread", f"{asked.segments * 4 * asked.list_us / 1e6 / 60:.1f} min", "computed")
    yield Line("verify, all cores busy", f"{asked.bytes / rate / asked.cores / 3600:.2f} h", "computed")
    yield Line("cost of starting tasks", f"{tasks * asked.task_ms / 1000 / asked.cores:.1f} s", "computed")
    alone = asked.segments * asked.task_ms / 1000 / asked.cores
    yield Line("the same with a task a segment", f"{alone:.0f} s", "computed")
    for keys in (1e8, 1e9, 1e10):
        slices = -(-keys * 48 // (2 << 30))
        yield Line(f"compaction of a partition of {keys:.0e} keys", f"{slices:.0f} maps of 2 GB", "computed")


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def main() -> None:
    """Print the table."""
    asked = arguments()
    lines = [*measured(asked), *computed(asked)]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    if asked.markdown:
        print(f"| {asked.bytes / 1e12:g} TB in {asked.segments:,} segments, {asked.cores} cores | | |\n|---|---|---|")
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print(f"| {' | '.join(cells)} |" if asked.markdown else "  ".join(cells).rstrip())


if __name__ == "__main__":
    main()
