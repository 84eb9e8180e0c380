"""Own memory of a process that compacts partitions of growing size in a map of a fixed one, in passes.

    python asv_benchmarks/passes.py [--sizes MB ...] [--map-kib KIB] [--value-bytes N] [--folder DIR]

Each partition has keys that are nearly all different, so that the map holds a part of them and the log is cleaned in
rounds. `pylogseg compact` runs in a process of its own, whose anonymous memory (RssAnon of Linux) is looked at after
each range. A line says what the partition took, and a partition larger than memory is one with a larger number in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import engine
import numpy as np
import pyarrow as pa
from memory import anonymous_mb

from pylogseg import offline
from pylogseg.reading.arrow.encode import encode

_RECORDS = 20_000  # encoded at once
_KEYS = 10**9


def write(folder: Path, size: int, value_bytes: int) -> int:
    """A log of so many bytes, in segments of 64 MiB; how many records."""
    random = np.random.default_rng(7)
    log = engine.open_log(folder, fresh=True, segment_bytes=64 << 20)
    count = 0
    while log.segments.size < size:
        keys = pa.array([b"key-%010d" % key for key in random.integers(0, _KEYS, _RECORDS).tolist()], pa.binary())
        values = pa.array([random.bytes(value_bytes)] * _RECORDS, pa.binary())
        moments = pa.array([1_700_000_000_000_000] * _RECORDS, pa.timestamp("us", "UTC"))
        table = pa.table({"key": keys, "value": values, "timestamp": moments})
        log.append_as_follower(encode(table, base_offset=count, batch_bytes=16 << 10, leader_epoch=0), 0)
        count += _RECORDS
    engine.close(log)
    return count


def compact(folder: str, map_bytes: int) -> dict[str, float]:
    """Clean it by the command, and look at memory meanwhile."""
    before = anonymous_mb()
    most = 0.0

    def look(size: int) -> None:
        nonlocal most
        most = max(most, anonymous_mb() - before)

    config = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
    options = {"config": config, "cluster_metadata": "none", "on_bytes": look}
    (result,) = offline.compact(folder, map_bytes=map_bytes, include_active=True, **options)
    if result.error is not None:
        raise result.error
    return {"rounds": result.numbers["rounds"], "most_mb": most, "bytes": result.bytes_after}


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024], metavar="MB", help="default: 256 1024")
    parser.add_argument("--map-kib", type=int, default=4096, help="default: 4096")
    parser.add_argument("--value-bytes", type=int, default=1000, help="default: 1000")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/pylogseg-passes"), help="made and removed")
    parser.add_argument("--of", help=argparse.SUPPRESS)  # a child's partition
    options = parser.parse_args()
    if options.of:
        print(json.dumps(compact(options.of, options.map_kib << 10)))
        return
    for size in options.sizes:
        with engine.scratch(options.folder) as folder:
            records = write(folder / "bench-0", size << 20, options.value_bytes)
            command = [sys.executable, __file__, "--of", str(folder / "bench-0"), "--map-kib", str(options.map_kib)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{size:,} MiB, {records:,} records, a map of {options.map_kib:,} KiB: {found['rounds']} rounds, "
            f"own memory {found['most_mb']:.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
