"""Commands on the disk of a broker that does not run, each on a log of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import many_logs

import pylogseg
from pylogseg import offline

RECORDS = 400_000
_OPTIONS = {"cluster_metadata": "none"}


class _OnALog:
    number = 1  # what was changed is changed

    def setup(self) -> None:
        """A fresh log of 67,000 keys."""
        self.folder = Path(tempfile.mkdtemp())
        self.log = many_logs.write_keyed(self.folder, RECORDS)

    def teardown(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder)


class OfflineReading(_OnALog):
    """Commands that leave a log as it is."""

    def setup(self) -> None:
        """With a copy beside it."""
        super().setup()
        shutil.copytree(self.log, self.folder / "twin" / self.log.name)

    def time_latest(self) -> None:
        """The last record of each key."""
        for _ in pylogseg.read(self.log, latest=True).chunks():
            pass

    def time_diff(self) -> None:
        """Two logs that are the same."""
        offline.diff(self.log, self.folder / "twin" / self.log.name)

    def time_copy(self) -> None:
        """Into a new log directory."""
        offline.copy(self.log, self.folder / "copy")


class OfflineChanging(_OnALog):
    """Commands that write a log anew, or look whether they have to."""

    def time_redact(self) -> None:
        """One key, which has records in most segments."""
        offline.redact(self.log, keys=[b"key-00000007"], **_OPTIONS)

    def time_recode(self) -> None:
        """From no compression to lz4."""
        offline.recode(self.log, compression="lz4", **_OPTIONS)

    def time_repair(self) -> None:
        """A log without damage."""
        offline.repair(self.log, keep_behind=True, **_OPTIONS)

    def time_compact(self) -> None:
        """All of it."""
        offline.compact(self.log, include_active=True, config={"cleanup.policy": "compact"}, **_OPTIONS)


class OfflineMerging(_OnALog):
    """Three replicas of a log; the first has lost half of its segments."""

    def setup(self) -> None:
        """On three disks."""
        super().setup()
        self.disks = [self.folder / f"b{number}" for number in (1, 2, 3)]
        for disk in self.disks:
            shutil.copytree(self.log, disk / self.log.name)
        for path in sorted((self.disks[0] / self.log.name).glob("*.log"))[1::2]:
            path.unlink()

    def time_merge(self) -> None:
        """All read, one written."""
        offline.merge(self.disks, self.folder / "merged")

    def time_merge_plan(self) -> None:
        """Nothing is written."""
        offline.merge(self.disks, self.folder / "merged", dry_run=True)
