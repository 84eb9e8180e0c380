"""The world of a module: its class `World`, in a folder of its own for each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.module.World(tmp_path)
