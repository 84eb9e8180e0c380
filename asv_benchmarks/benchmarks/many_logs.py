"""Compaction of a log, and the work on many logs at once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import many_logs

from pylogseg import BrokerSettings, LogManager
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_filter import CleanerStats
from pylogseg.log.offset_map import OffsetMap


class Compaction:
    """400,000 records with 67,000 keys."""

    number = 1  # what was cleaned is clean

    def setup(self) -> None:
        """A fresh copy."""
        self.folder = tempfile.TemporaryDirectory()
        self.log, self.what = many_logs.dirty(many_logs.write_keyed(Path(self.folder.name), 400_000))
        self.cleaner = Cleaner(OffsetMap(many_logs.MAP_BYTES))

    def teardown(self) -> None:
        """Remove the log."""
        self.log.close()
        self.log.scheduler.shutdown()
        self.folder.cleanup()

    def time_clean(self) -> None:
        """All but the active segment."""
        self.cleaner.clean(self.log, self.what)

    def time_map(self) -> None:
        """The map of keys alone."""
        self.cleaner.read_keys(self.log, 0, self.what.first_uncleanable, CleanerStats())


class ManyLogs:
    """200 logs in two directories."""

    timeout = 300

    def setup(self) -> None:
        """Closed in order."""
        self.folder = tempfile.mkdtemp()
        self.settings = BrokerSettings(log_dirs=(f"{self.folder}/a", f"{self.folder}/b"), log_cleaner_enable=False)
        many_logs.make_many(self.settings, 200)
        self.manager = LogManager(self.settings)

    def teardown(self) -> None:
        """Remove them."""
        self.manager.close()
        shutil.rmtree(self.folder)

    def time_round(self) -> None:
        """Retention and checkpoints."""
        self.manager.retain()
        self.manager.checkpoint()

    def time_close_and_load(self) -> None:
        """An orderly end, and a start."""
        self.manager.close()
        self.manager = LogManager(self.settings)
