"""A real browser for tests of pages: Chromium without a screen, which reports errors and requests of a page."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Rows of a table as dictionaries: by the title of the column, the exact value of a cell or its text.
_TABLE = """region => {
    const titles = [...region.querySelectorAll("thead th")].map(head => head.textContent);
    const value = cell => {
        const [data, time] = [cell.querySelector("data"), cell.querySelector("time")];
        if (data) return Number(data.value);
        if (time) return Number(time.dataset.ms);
        return cell.querySelector(".none") ? null : cell.textContent;
    };
    return [...region.querySelectorAll("tbody tr")].map(row =>
        Object.fromEntries([...row.children].map((cell, at) => [titles[at], value(cell)])));
}"""
_TILES = """root => Object.fromEntries([...root.querySelectorAll(".tile")].map(tile =>
    [tile.querySelector("dt").textContent, Number(tile.querySelector("dd data")?.value ?? NaN)]))"""


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Start the Chromium on the path, or the one that Playwright fetched; skip without one, but fail in CI."""
    if not os.environ.get("CI"):
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, NAMES)), playwright.chromium.executable_path)
        if not Path(path).exists():
            reason = f"a browser is needed: none of {', '.join(NAMES)} is on the path"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A report in a tab: its tables by name, and what went wrong."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))

    def _asked(self, request: Any) -> None:
        # The page itself, and the tables that it saves.
        if not (request.is_navigation_request() and request.url.startswith(("file:", "blob:"))):
            self.wrong.append(f"request: {request.url}")

    def emptied(self) -> Opened:
        """Leave the page, and whatever was chosen, said or pointed at there."""
        self.page.mouse.move(0, 0)
        self.page.emulate_media(media="null")
        self.page.goto("about:blank")
        self.wrong.clear()
        return self

    def go(self, file: Path, place: str = "") -> Opened:
        """Open a file at a place, and wait until it is drawn."""
        self.page.goto(f"{file.as_uri()}#{place}")
        self.page.wait_for_selector("html[data-ready]")
        return self

    def at(self, place: str) -> Opened:
        """Go to another place of the open file."""
        self.page.evaluate("place => { location.hash = place }", place)
        return self.drawn()

    def drawn(self) -> Opened:
        """Wait until the page shows the place of its address: a browser tells the page a moment after a click."""
        place = self.page.evaluate("location.hash")
        self.page.wait_for_selector(f"html[data-place={json.dumps(place)}]")
        return self

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        self.drawn()
        return self.page.locator(selector).first.inner_text()

    def rows(self, caption: str) -> list[dict[str, Any]]:
        """Return a table; all of its rows."""
        self.drawn()
        self.page.evaluate("document.querySelectorAll('details.numbers').forEach(each => { each.open = true })")
        region = self.page.get_by_role("group", name=caption, exact=True).first
        more = region.locator("xpath=following-sibling::button")
        if more.is_visible():
            more.click()
        rows: list[dict[str, Any]] = region.evaluate(_TABLE)
        return rows

    def tiles(self, part: str = "main") -> dict[str, float]:
        """Return the numbers on the tiles of an element."""
        self.drawn()
        numbers: dict[str, float] = self.page.locator(part).first.evaluate(_TILES)
        return numbers

    def saved(self, click: Callable[[], None]) -> str:
        """Return the file that a click saves."""
        with self.page.expect_download() as waiting:
            click()
        return Path(waiting.value.path()).read_bytes().decode()


def tab(browser: Browser, **options: Any) -> Opened:
    """Open a tab with a profile of its own."""
    return Opened(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}).new_page())
