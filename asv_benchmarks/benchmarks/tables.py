"""Logs as tables: a scan by one thread and by two; an audit of a lakehouse table, as its log is."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import many_logs
import numpy as np
import pyarrow.parquet as pq
from halves import drained
from memory import page_faults

import pylogseg

RECORDS = 400_000


class Scan:
    """A dataset of a log that nobody has written to for an hour."""

    params: ClassVar[list[int]] = [1, 2]
    param_names: ClassVar[list[str]] = ["threads"]

    def setup(self, threads: int) -> None:
        """Write the log."""
        self.folder = Path(tempfile.mkdtemp())
        self.log = many_logs.write_keyed(self.folder, RECORDS)
        for path in self.log.rglob("*.log"):
            written = path.stat().st_mtime - 3600
            os.utime(path, (written, written))

    def teardown(self, threads: int) -> None:
        """Remove it."""
        shutil.rmtree(self.folder)

    def time_batches(self, threads: int) -> None:
        """All columns of all records; two threads share the tasks."""
        drained(self.log, use_threads=threads > 1)

    def track_page_faults(self, threads: int) -> float:
        """Pages that the system clears anew: what record batches let go of is lent again."""
        return page_faults(lambda: self.time_batches(threads))

    track_page_faults.unit = "faults"


class Audit:
    """A log, and a folder of Parquet with the same records."""

    def setup(self) -> None:
        """Write both."""
        self.folder = Path(tempfile.mkdtemp())
        self.log = many_logs.write_keyed(self.folder, RECORDS)
        self.table = self.folder / "table"
        self.table.mkdir()
        rows = pylogseg.read_arrow(self.log, columns=["topic", "partition", "offset", "key", "value"])
        pq.write_table(rows.read_all(), self.table / "rows.parquet")

    def teardown(self) -> None:
        """Remove both."""
        shutil.rmtree(self.folder)

    def time_audit(self) -> None:
        """Each record, with key and value."""
        pylogseg.audit(self.log, self.table)

    def time_audit_of_doubles(self) -> None:
        """The same where each tenth row is there twice."""
        twice = pq.read_table(self.table / "rows.parquet").take(np.arange(0, RECORDS, 10))
        pq.write_table(twice, self.table / "again.parquet")
        pylogseg.audit(self.log, self.table)
