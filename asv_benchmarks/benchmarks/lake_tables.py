"""Tables of lakehouses; the work of the table's rows of `lakes`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import dataset
import lakes

import pylogseg


class Lake:
    """A new table, and one that has all there is."""

    params = tuple(lakes.FORMATS)
    param_names = ("format",)
    timeout = 300

    def setup(self, name: str) -> None:
        """Write the logs."""
        self.folder = Path(tempfile.mkdtemp(prefix="pylogseg-asv-"))
        self.log = dataset.written(self.folder, 500_000)
        self.disk = lakes.many(self.folder)
        self.table = lakes.FORMATS[name].format(self.folder / "out")
        pylogseg.lake(self.disk, self.table, "orders")

    def teardown(self, name: str) -> None:
        """Remove them."""
        shutil.rmtree(self.folder)

    def time_write(self, name: str) -> None:
        """Half a million records."""
        lakes.write(self.log, lakes.FORMATS[name])

    def time_nothing_new(self, name: str) -> None:
        """A second run over a thousand partitions."""
        pylogseg.lake(self.disk, self.table, "orders")
