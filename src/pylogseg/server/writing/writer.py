"""State shared by the requests of a server that clients write to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pylogseg.server.service import Call
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.transaction_coordinator import TransactionCoordinator


@dataclass
class Writing:
    """State shared by all connections of a writable server, beside `Service`."""

    topics: Topics
    transactions: TransactionCoordinator
    new_id: Callable[[], int]  #: Of a producer.

    def close(self) -> None:
        """Stop looking at the time."""
        self.transactions.close()


def writing_of(call: Call) -> Writing:
    """Return the service of a request."""
    assert isinstance(call.service.writing, Writing)
    return call.service.writing
