"""Fixtures for tests of copies and archives that go on with a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylogseg
from pylogseg.live import cluster as live_cluster


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on a partition without a leader."""
    monkeypatch.setattr(live_cluster, "ELECTION_S", 0.2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(tmp_path / "broker") as made:
        yield made
