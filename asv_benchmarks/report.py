"""How long `pylogseg report` takes on a disk of very many segments, the memory that it takes, and the size of its page.

    python asv_benchmarks/report.py [--segments N] [--partitions N] [--batches N] [--jobs N] [--full]

The bar: 10,000 segments in 20 seconds from headers on two cores, and a page below 3 MB for 1,000 partitions.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import run_pylogseg

from pylogseg import encode, scan
from pylogseg.format.files.index import encode_offset_index, encode_time_index

_RECORDS = 10
_INTERVAL = 4


def write(folder: Path, segments: int, partitions: int, batches: int) -> int:
    """Write partitions whose segments have `batches` batches of ten records; return the bytes of the segments."""
    value = os.urandom(50).hex().encode()
    width, now = batches * _RECORDS, int(time.time() * 1000)
    parts = [
        encode([(0, b"key-%d" % (first + i), value) for i in range(_RECORDS)], base_offset=first)
        for first in range(0, width, _RECORDS)
    ]
    # Base offsets are not in the checksum, so one segment serves as a form for all.
    form = np.frombuffer(b"".join(parts), np.uint8)
    places = scan(form.tobytes()).batches.position
    each = -(-segments // partitions)
    total = 0
    for number in range(segments):
        partition, at = divmod(number, each)
        base = at * width
        data = form.copy()
        for i, place in enumerate(places.tolist()):
            data[place : place + 8] = np.frombuffer((base + i * _RECORDS).to_bytes(8, "big"), np.uint8)
        inside = folder / f"orders-{partition}"
        inside.mkdir(parents=True, exist_ok=True)
        stem = inside / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(data.tobytes())
        slots = range(_INTERVAL, batches, _INTERVAL)
        offsets, positions = [base + (i + 1) * _RECORDS - 1 for i in slots], [int(places[i]) for i in slots]
        stem.with_suffix(".index").write_bytes(encode_offset_index(base, offsets, positions))
        stem.with_suffix(".timeindex").write_bytes(encode_time_index(base, [0], [base + _RECORDS - 1]))
        os.utime(stem.with_suffix(".log"), (now / 1000, now / 1000))
        total += len(data)
    return total


def main() -> None:
    """Print seconds, memory and the size of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder) / "kafka", asked.segments, asked.partitions, asked.batches)
        page = Path(folder) / "report.html"
        words = ["report", f"{folder}/kafka", "-o", page, "-j", asked.jobs]
        used = run_pylogseg(*words, *["--full"] * asked.full)
        print(f"{asked.segments:,} segments of {asked.partitions:,} partitions, {size / 1e6:,.0f} MB")
        print(f"{used.wall:.1f} s, {used.processors:.1f} s of processors")
        print(f"{used.peak_mib:,.0f} MiB of memory at most, a page of {page.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
