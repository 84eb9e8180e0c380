"""A broker in this process with the topics that a module names in TOPICS, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.kafka_clients import RawClient

import pylogseg


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(topics=request.module.TOPICS, trace=print) as found:  # shown where a test fails
        yield found


@pytest.fixture
def client(broker: pylogseg.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture(scope="module")
def server(examples: Path) -> Iterator[pylogseg.Server]:
    with pylogseg.serve(examples) as server:
        yield server
