"""A progress bar below the output of a command on the same terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from pylogseg.cli import common

#: The bar is hidden while lines are printed; it comes back after this long without output.
_SILENCE_SECONDS = 0.5


class Bar:
    """A bar of the bytes done so far; hidden if stderr is not a terminal or the total is 0."""

    def __init__(self, total_bytes: int, label: str) -> None:
        self._bar: Any = None
        self._lock, self._is_shown, self._next = threading.Lock(), False, 0.0
        if total_bytes and common.is_terminal(sys.stderr):
            self._bar = common.rich_bar(label, redirects=False)
            self._task = self._bar.add_task(label, total=total_bytes)

    def __call__(self, size: int) -> None:
        """Count bytes done; any thread may call this."""
        if self._bar is None:
            return
        self._bar.advance(self._task, size)
        with self._lock:
            if not self._is_shown and time.monotonic() >= self._next:
                self._bar.start()
                self._is_shown = True

    @contextlib.contextmanager
    def pause(self, stream: Any, ends_line: bool = True) -> Iterator[None]:
        """Hide the bar while something is printed to a stream; it comes back only after a complete line."""
        if self._bar is None or not common.is_terminal(stream):
            yield
            return
        with self._lock:
            self._hide()
            try:
                yield
            finally:
                self._next = time.monotonic() + _SILENCE_SECONDS if ends_line else float("inf")

    def _hide(self) -> None:
        if self._is_shown:
            self._bar.stop()
            self._is_shown = False

    def __enter__(self) -> Bar:
        self(0)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._hide()
            self._next = float("inf")
