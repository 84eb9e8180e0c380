"""A tab of a browser for the pages of reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from helpers.browser import Opened, tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """A tab; whatever a test does in it, the page logs nothing, asks for nothing, and does not fail."""
    made = tab(browser)
    yield made
    made.page.context.close()
    assert made.wrong == []
