"""The rules by which retention deletes segments, from the oldest one on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Aged(Protocol):
    """A segment of a log, or the facts about one."""

    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int: ...


S = TypeVar("S", bound=Aged)


def breached_by_size(total_bytes: int, allowed: int) -> Callable[[S, S | None], bool]:
    """Return the rule of ``retention.bytes``: segments without which a log still has so many bytes."""
    surplus = total_bytes - allowed

    def breached(segment: S, behind: S | None) -> bool:
        nonlocal surplus
        if allowed < 0 or surplus < segment.size or surplus < 0:
            return False
        surplus -= segment.size
        return True

    return breached


def breached_by_time(now_ms: int, allowed_ms: int) -> Callable[[S, S | None], bool]:
    """Return the rule of ``retention.ms``: segments whose newest record is older."""
    return lambda segment, behind: allowed_ms >= 0 and now_ms - segment.largest_timestamp() > allowed_ms
