"""A tab of a browser for the pages of reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from helpers.browser import Opened, tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def one_tab(browser: Browser) -> Iterator[Opened]:
    """A tab that the tests of a file share: each new one is a process more."""
    made = tab(browser)
    yield made
    made.page.context.close()


@pytest.fixture
def opened(one_tab: Opened) -> Iterator[Opened]:
    """An empty tab; whatever a test does in it, the page logs nothing, asks for nothing, and does not fail."""
    one_tab.emptied()
    yield one_tab
    assert one_tab.wrong == []
