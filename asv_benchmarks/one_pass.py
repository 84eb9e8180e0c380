"""What `verify` and `stats` of a segment cost one after the other, and in one pass: seconds of a processor.

    python asv_benchmarks/one_pass.py [--records N] [--runs N] [--folder DIR]

Of each codec, with and without keys, which `stats` hashes. The bar: one pass is 1.5 times faster.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import data
import pyarrow as pa

from pylogseg import encode, open_dir
from pylogseg.disk.disk import Segment
from pylogseg.inspect.segment_pass import visit
from pylogseg.inspect.stats.segment import SegmentCount, segment_stats
from pylogseg.inspect.verify.findings import Level
from pylogseg.inspect.verify.segment import SegmentCheck, verify_segment

_PIECE = 1 << 17


def write(folder: Path, codec: str, records: int, is_keyed: bool) -> Segment:
    """Write a log of one segment; 100,003 different keys, if any."""
    inside = folder / f"{codec}-{is_keyed}" / "bench-0"
    inside.mkdir(parents=True)
    with (inside / data.NAME).open("wb") as file:
        for first in range(0, records, _PIECE):
            table = data.table(min(_PIECE, records - first), first)
            if is_keyed:
                keys = [b"key-%07d" % (i * 7919 % 100_003) for i in range(first, first + len(table))]
                table = table.append_column("key", pa.array(keys, pa.binary()))
            file.write(bytes(encode(table, compression=codec, batch_bytes=data.BATCH_BYTES)))
    data.reload(inside / data.NAME)
    return open_dir(inside.parent).partitions[0].segments[0]


def seconds(work: Callable[[Segment], None], segment: Segment) -> float:
    """Seconds of a processor that a call takes."""
    before = time.process_time()
    work(segment)
    return time.process_time() - before


def apart(segment: Segment) -> None:
    """Read a segment twice."""
    verify_segment(segment)
    segment_stats(segment)


def together(segment: Segment) -> None:
    """Read a segment once, as a full report does."""
    visit(segment, [SegmentCheck(segment, Level.INDEXES), SegmentCount(segment)])


def main() -> None:
    """Print a line for each log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/pylogseg-one-pass"), help="made and removed")
    asked = parser.parse_args()
    try:
        for codec in data.CODECS:
            for is_keyed in (False, True):
                segment = write(asked.folder, codec, asked.records, is_keyed)
                rows = [(seconds(apart, segment), seconds(together, segment)) for _ in range(asked.runs)]
                twice, once = (min(column) * 1000 for column in zip(*rows, strict=True))
                ratio = statistics.median(a / b for a, b in rows)
                keys = "keys" if is_keyed else "no keys"
                print(
                    f"{codec:6} {keys:7} verify, then stats {twice:4.0f} ms, one pass {once:4.0f} ms: {ratio:.2f} times"
                )
    finally:
        shutil.rmtree(asked.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
