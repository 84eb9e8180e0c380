"""What is inside of servers: the service of one that reads, with a guard of a test's choice, the topics of a broker."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pylogseg
from pylogseg.disk.choice import PartitionChoice
from pylogseg.server.catalog import Catalog
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.handlers import READ_ONLY
from pylogseg.server.security import Guard, Security
from pylogseg.server.service import Service
from pylogseg.server.writing.directory import DirectoryLogs
from pylogseg.server.writing.topics import Topics


def reading(
    paths: Sequence[str | os.PathLike[str]],
    topic: Sequence[str] | None = None,
    security: Security = Security(),  # noqa: B008
) -> Service:
    """Return the service of a server that reads log directories."""
    return Service(Catalog.open(paths, PartitionChoice.of(topic)), GroupCoordinator(), READ_ONLY, guard=Guard(security))


def topics_of(broker: pylogseg.Broker) -> Topics:
    """Return the topics of a broker, which a test changes past its clients."""
    return broker._topics


def directory_of(broker: pylogseg.Broker) -> DirectoryLogs:
    """Return what keeps the logs of a broker that has a directory."""
    store = topics_of(broker).store
    assert isinstance(store, DirectoryLogs)
    return store


def url_of(broker: pylogseg.Broker, path: str = "") -> str:
    """Return the URL of a broker of ours, as a running cluster."""
    return f"kafka://{broker.bootstrap_servers}{path}"
