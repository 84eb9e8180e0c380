"""The time of day, as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """``now_ms()``: milliseconds since 1970, as brokers write them into records."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
