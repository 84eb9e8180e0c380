"""The plugin of pytest: fixtures that are brokers; it imports pylogseg when a test asks for one, not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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

    with Broker(**_marked(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker_options() -> dict[str, Any]:
    """Return the options of the broker that all tests share; a project has its own fixture of this name."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_session(kafka_broker_options: dict[str, Any]) -> Iterator[Broker]:
    """Return a broker in this process that all tests share, at one address; it has what they have written."""
    from pylogseg import Broker

    with Broker(**kafka_broker_options) as broker:
        yield broker


@pytest.fixture
def kafka_broker_shared(request: pytest.FixtureRequest, kafka_broker_session: Broker) -> Broker:
    """Return the broker that all tests share, which has forgotten the tests before."""
    options = _marked(request)
    topics = options.pop("topics", ())
    if options:
        _fail(f"{', '.join(options)}: options of the broker that tests share are in the fixture kafka_broker_options")
    kafka_broker_session.reset()
    for name in topics:
        kafka_broker_session.create_topic(name, topics[name] if isinstance(topics, dict) else None)
    return kafka_broker_session


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of a test's marker."""
    marker = request.node.get_closest_marker("kafka_broker")
    if marker is not None and marker.args:
        given = ", ".join(map(repr, marker.args))
        _fail(f"the marker kafka_broker takes options by their names, not {given}: topics={{'orders': 3}}")
    return {} if marker is None else dict(marker.kwargs)


def _fail(text: str) -> None:
    pytest.fail(text, pytrace=False)
