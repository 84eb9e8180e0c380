"""Threads that wait for a log to grow."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Waiters:
    """Who waits, and is woken by writers; one that sees nobody wait does not take a lock.

    Attributes
    ----------
    count : int
        How many wait.
    """

    def __init__(self) -> None:
        self.count = 0
        self._moved = threading.Condition()

    def wake(self) -> None:
        """Let all look again."""
        if self.count:
            with self._moved:
                self._moved.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until something is so, or the time is over."""
        with self._moved:
            self.count += 1  # a writer that sees none has moved the end before it is looked at here
            try:
                self._moved.wait_for(done, timeout)
            finally:
                self.count -= 1
