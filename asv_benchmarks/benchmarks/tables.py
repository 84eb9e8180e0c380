"""Tables of a lakehouse: an audit of one, as its log is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import many_logs
import numpy as np
import pyarrow.parquet as pq

import pylogseg

RECORDS = 400_000


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
