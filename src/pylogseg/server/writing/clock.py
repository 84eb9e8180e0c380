"""A clock that runs, and that a test moves."""

from __future__ import annotations

import time
from collections.abc import Callable

from pylogseg.errors import RequestError


class MovableClock:
    """A clock that runs, and that a test moves ahead."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        #: Called after each move.
        self.on_move: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + round(self._ahead_s * 1000)

    def seconds(self) -> float:
        """Seconds of a clock that nobody sets back."""
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Move it ahead; timeouts up to then have happened when this returns.

        Raises RequestError for a step back.
        """
        if seconds < 0:
            raise RequestError(f"a clock can only go forward, got {seconds} seconds")
        self._ahead_s += seconds
        self.on_move()
