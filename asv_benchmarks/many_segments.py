"""A log directory of very many segments, and how soon `pylogseg sql` answers on it.

    python asv_benchmarks/many_segments.py [--segments N] [--rounds N]

The bar is what a person takes for "at once": half a second for `limit 10`, from the start of the process to its end.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure import Clock

from pylogseg import encode
from pylogseg.format.files.index import encode_offset_index, encode_time_index

_OF_A_PARTITION = 100
_OF_A_SEGMENT = 100
_QUERIES = (
    "select * from orders limit 10",
    "select * from records limit 10",
    "select key, value from orders where partition = 7 and offset >= 5050 limit 10",
    "select count(*) from segments",
    "select topic, count(*) from partitions group by topic",
)


def write(folder: Path, segments: int) -> None:
    """Write a directory: 100 segments a partition, 100 records a segment."""
    value = b"x" * 100
    for number in range(segments):
        partition, at = divmod(number, _OF_A_PARTITION)
        base = at * _OF_A_SEGMENT
        inside = folder / f"orders-{partition}"
        inside.mkdir(parents=True, exist_ok=True)
        records = [(1_700_000_000_000 + base + i, b"key-%d" % i, value) for i in range(_OF_A_SEGMENT)]
        stem = inside / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(encode(records, base_offset=base))
        stem.with_suffix(".index").write_bytes(encode_offset_index(base, [], []))
        last = 1_700_000_000_000 + base + _OF_A_SEGMENT - 1
        stem.with_suffix(".timeindex").write_bytes(encode_time_index(base, [last], [base + _OF_A_SEGMENT - 1]))


def main() -> None:
    """Print the best time of each query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    clock = Clock("wall")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), asked.segments)
        os.sync()
        for query in _QUERIES:
            command = [sys.executable, "-m", "pylogseg", "sql", folder, query]
            best = min(clock.of_process(command) for _ in range(asked.rounds))
            print(f"{best:6.2f} s  {query}", flush=True)


if __name__ == "__main__":
    main()
