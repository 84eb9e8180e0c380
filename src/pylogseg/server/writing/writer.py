"""What a request meets in a server that is written to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from pylogseg.server.service import Call, Service
from pylogseg.server.writing.coordination import Transactions
from pylogseg.server.writing.groups import WrittenGroups
from pylogseg.server.writing.topics import WritableCatalog


@dataclass(kw_only=True)
class Writer(Service):
    """What all connections share; see `Service`."""

    catalog: WritableCatalog
    groups: WrittenGroups
    transactions: Transactions
    new_id: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    def __post_init__(self) -> None:
        self.catalog.clock.on_move = self._moved
        self.catalog.on_change = self.groups.topics_changed

    def _moved(self) -> None:
        self.groups.wake()
        self.transactions.tick()

    def close(self) -> None:
        """Answer all that wait, and stop looking at the time."""
        super().close()
        self.transactions.close()


def writer_of(call: Call) -> Writer:
    """Return what a request meets."""
    assert isinstance(call.service, Writer)
    return call.service
