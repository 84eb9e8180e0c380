"""Tools for tests: a storage in memory, one that fails, and a clock and a scheduler that move only when told."""

from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

__all__ = ["FaultyStorage", "ManualClock", "ManualScheduler", "MemoryStorage"]
