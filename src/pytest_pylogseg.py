"""The plugin of pytest: the fixture `kafka_broker`; it imports pylogseg when a test asks for it, not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pylogseg import Broker

_MARKER = "kafka_broker(**options): options of pylogseg.Broker for the fixture kafka_broker, as topics={'orders': 3}"


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker is for."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Return a broker in this process, with its records in memory, for one test."""
    from pylogseg import Broker

    marker = request.node.get_closest_marker("kafka_broker")
    with Broker(**(marker.kwargs if marker is not None else {})) as broker:
        yield broker
