"""What is logged of clients that break a rule: once, as many of them try it again many times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_AGAIN_SECONDS = 60.0
_MOST_HOSTS, _MOST_TEXTS = 1000, 10
_MOST_CHARACTERS = 300
_OTHERS = "more of this kind, which is not said one by one"


class ClientComplaints:
    """Logs a warning about a host when it comes first, and once a minute with how often it came meanwhile.

    Clients choose words of it: so many different ones are logged of a host, and of each only the beginning.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._mutex = threading.Lock()
        self._told: dict[str, dict[str, tuple[float, int]]] = {}

    def add(self, host: str, who: str, text: str) -> None:
        """Note what a client did."""
        now, text = self._now(), _cut(text)
        with self._mutex:
            told = self._told.get(host)
            if told is None:
                if len(self._told) >= _MOST_HOSTS:
                    del self._told[next(iter(self._told))]
                told = self._told[host] = {}
            if text not in told and len(told) >= _MOST_TEXTS:
                for old in [each for each, (until, _) in told.items() if until <= now and each != _OTHERS]:
                    del told[old]
                text = text if len(told) < _MOST_TEXTS else _OTHERS
            until, count = told.get(text, (0.0, 0))
            if now < until:
                told[text] = until, count + 1
                return
            told[text] = now + _AGAIN_SECONDS, 0
        more = f" (and {count} times more since the last word of it)" if count else ""
        self._log.warning("%s: %s%s", _cut(who), text, more)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
