"""Waiting for a log to grow."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Waiters:
    """Threads that wait for writers; a writer takes no lock if none waits."""

    def __init__(self) -> None:
        self.count = 0
        self._moved = threading.Condition()

    def wake(self) -> None:
        """Wake all waiting threads."""
        if self.count:
            with self._moved:
                self._moved.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `done` returns True, or for the timeout."""
        with self._moved:
            self.count += 1  # a writer that sees 0 has moved the end before `done` is called here
            try:
                self._moved.wait_for(done, timeout)
            finally:
                self.count -= 1
