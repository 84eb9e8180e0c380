"""What is restored lies in a folder whose name URLs and shells read otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """As pytest's own; for tests of restores one folder deeper."""
    if "restore" not in request.path.name:
        return tmp_path
    folder = tmp_path / "a #%ü"
    folder.mkdir()
    return folder
