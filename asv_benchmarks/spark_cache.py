"""`df.cache()` of a log with Spark's own serializer of cached batches, and with Spark 4.3's of Arrow batches.

    python asv_benchmarks/spark_cache.py [--records N] [--rounds N] [--clock wall] [--markdown] [--data DIR]

The serializer is a setting of a session, so each one has a session of its own, in a process of its own. Four partitions
of 100-byte values with 16-byte keys; the best of several rounds, but for the fill, which happens once. Figures of the
Arrow serializer come first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import rows as table_rows
import spark as readers
from rows import Row

ARROW = "org.apache.spark.sql.execution.columnar.ArrowCachedBatchSerializer"
DEFAULT = "org.apache.spark.sql.execution.columnar.DefaultCachedBatchSerializer"
_WORKS = {
    "fill of the cache": "M rows/s",
    "sum over cached rows": "M rows/s",
    "cached rows to Arrow": "M rows/s",
    "cached rows, in memory": "MB",
}


def measure(log: Path, options: argparse.Namespace, serializer: str) -> dict[str, float]:
    """Return the figures of a session with a serializer, by the work."""
    from pyspark.sql import functions
    from pyspark.storagelevel import StorageLevel

    now = readers.clock(options.clock)

    def rate(work: Any, rounds: int) -> float:
        seconds = []
        for _ in range(rounds):
            began = now()
            work()
            seconds.append(now() - began)
        return options.records / min(seconds) / 1e6

    with tempfile.TemporaryDirectory() as scratch:
        settings = {"spark.sql.cache.serializer": serializer, "spark.driver.memory": "4g"}
        session = readers.session(Path(scratch), settings)
        frame = session.read.format("pylogseg").load(str(log))
        total = functions.sum(functions.length("value"))
        frame.agg(total).collect()  # the workers start
        cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
        figures = [rate(cached.count, 1), rate(cached.agg(total).collect, options.rounds)]
        figures.append(rate(cached.select("key", "value", "offset").toArrow, options.rounds))
        stored = session._jsc.sc().getRDDStorageInfo()
        figures.append(sum(part.memSize() + part.diskSize() for part in stored) / 1e6)
        session.stop()
    return dict(zip(_WORKS, figures, strict=True))


def main() -> None:
    made = readers.parser(__doc__, records=4_000_000)
    made.add_argument("--serializer", help=argparse.SUPPRESS)
    options = made.parse_args()
    log = readers.prepare(options.data, options.records)
    if options.serializer:
        print(json.dumps(measure(log, options, options.serializer)))
        return
    figures = []
    for serializer in (ARROW, DEFAULT):
        command = [sys.executable, *sys.argv, "--serializer", serializer]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures.append(json.loads(done.stdout.splitlines()[-1]))
    arrow, default = figures
    table = [
        Row(work, arrow[work], unit, "Spark's own serializer", default[work], None) for work, unit in _WORKS.items()
    ]
    print("\n".join(table_rows.lines(table, markdown=options.markdown)))


if __name__ == "__main__":
    main()
