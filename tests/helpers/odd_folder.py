"""A folder for a test whose name has what URLs and shells read otherwise: a `conftest.py` imports the fixture."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(name="tmp_path")
def tmp_path(tmp_path: Path) -> Path:
    """As pytest's own, one folder deeper."""
    folder = tmp_path / "a #%ü"
    folder.mkdir()
    return folder
