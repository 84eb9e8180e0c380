"""What a log needs of the machine."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.clock import Clock
from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import Storage


class Environment(NamedTuple):
    """Where the files of a log lie, what time it is, and who runs what is done later."""

    storage: Storage
    clock: Clock
    scheduler: Scheduler
