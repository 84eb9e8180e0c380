"""Spark: the planner without a session, and both doors into the sink that does nothing, beside Parquet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import pylogseg
import pylogseg.spark

RECORDS = 400_000
SEGMENTS = 500
FEW = ["partition", "offset", "timestamp"]


class Planning:
    """A log of many small segments, a record a second."""

    def setup(self) -> None:
        """Write them."""
        from pylogseg.spark.options import parse

        self.folder = tempfile.TemporaryDirectory()
        with pylogseg.open_log(Path(self.folder.name) / "small-0", segment_bytes=4096, retention_ms=-1) as log:
            for number in range(SEGMENTS):
                moments = pa.array(range(1000 * 20 * number, 1000 * 20 * (number + 1), 1000), pa.timestamp("ms", "UTC"))
                log.append(pa.table({"value": [b"v" * 180] * 20, "timestamp": moments}), batch_bytes=1 << 20)
        self.all, self.late = parse({}), parse({"startingTimestamp": 1000 * 20 * (SEGMENTS - 1)})

    def teardown(self) -> None:
        """Remove them."""
        self.folder.cleanup()

    def time_everything(self) -> None:
        """All segments."""
        from pylogseg.spark.plan import plan

        plan(self.folder.name, self.all)

    def time_from_a_moment(self) -> None:
        """The last segment, found by time."""
        from pylogseg.spark.plan import plan

        plan(self.folder.name, self.late)


class Doors:
    """Four partitions of 100-byte values with 16-byte keys; see `asv_benchmarks/spark.py` for ratios."""

    number, timeout = 1, 600

    def setup(self) -> None:
        """Begin a session, write the log and the Parquet files."""
        try:
            import spark as comparison
        except ImportError:
            raise NotImplementedError("needs pyspark") from None
        self.scratch = tempfile.TemporaryDirectory()
        folder = Path(self.scratch.name)
        self.root, self.parquet = comparison.prepare(folder, RECORDS), str(folder / "parquet")
        self.spark = comparison.session(folder)
        pylogseg.spark.read_segments(self.spark, self.root).write.option("compression", "none").parquet(self.parquet)

    def teardown(self) -> None:
        """End the session, and remove the files."""
        self.spark.stop()
        self.scratch.cleanup()

    def time_source(self) -> None:
        """`format("pylogseg")`."""
        _read(self.spark.read.format("pylogseg").load(str(self.root)))

    def time_fast_door(self) -> None:
        """`read_segments`."""
        _read(pylogseg.spark.read_segments(self.spark, self.root))

    def time_three_columns(self) -> None:
        """Of fixed width."""
        _read(pylogseg.spark.read_segments(self.spark, self.root, FEW))

    def time_parquet(self) -> None:
        """The same rows by Spark itself."""
        _read(self.spark.read.parquet(self.parquet))


def _read(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()
