"""The environment of a log."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.clock import Clock
from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import Storage


class Environment(NamedTuple):
    """Storage, clock and scheduler of a log."""

    storage: Storage
    clock: Clock
    scheduler: Scheduler
