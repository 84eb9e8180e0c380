"""What is logged of clients that break a rule: once, as many of them try it again many times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_AGAIN_SECONDS = 60.0
_MOST = 1000


class Complaints:
    """Logs a warning about a host when it comes first, and once a minute with how often it came meanwhile."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._mutex = threading.Lock()
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, host: str, who: str, text: str) -> None:
        """Note what a client did."""
        now, key = self._now(), (host, text)
        with self._mutex:
            until, count = self._told.get(key, (0.0, 0))
            if now < until:
                self._told[key] = until, count + 1
                return
            if key not in self._told and len(self._told) >= _MOST:
                del self._told[next(iter(self._told))]
            self._told[key] = now + _AGAIN_SECONDS, 0
        more = f" (and {count} times more since the last word of it)" if count else ""
        self._log.warning("%s: %s%s", who, text, more)
