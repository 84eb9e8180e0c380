"""Fixtures of tables of a lakehouse."""

from __future__ import annotations

import pytest
from helpers.lake_tables import FORMATS, has_format
from helpers.odd_folder import tmp_path

__all__ = ["kind", "tmp_path"]


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    if not has_format(request.param):
        pytest.skip(f"duckdb's extension {request.param} is not here")
    return str(request.param)
