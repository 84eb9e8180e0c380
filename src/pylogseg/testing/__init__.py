"""Tools for tests: a storage in memory, one that fails, and a manual clock and scheduler."""

from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

__all__ = ["FaultyStorage", "ManualClock", "ManualScheduler", "MemoryStorage"]
