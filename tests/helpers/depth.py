"""What an ordinary run leaves to a deep one: sweeps are thinned, by one switch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
#: `make deep` sets it: every sweep is whole.
IS_DEEP = bool(os.environ.get("PYLOGSEG_DEEP"))


def some_of(values: Iterable[T], count: int) -> list[T]:
    """Return all values in a deep run; else so many, spread evenly with both ends, the same ones in each run."""
    found = list(values)
    if IS_DEEP or len(found) <= count:
        return found
    return [found[i * (len(found) - 1) // (count - 1)] for i in range(count)]


def diagonals(first: Iterable[T], second: Iterable[U], every: int = 3) -> list[tuple[T, U]]:
    """Return all pairs in a deep run; else every so many-th of a row, shifted from row to row: each value is there."""
    columns = list(second)
    return [(a, b) for i, a in enumerate(first) for j, b in enumerate(columns) if IS_DEEP or (i + j) % every == 0]


def draws(count: int) -> int:
    """Return how many examples Hypothesis makes: so many in a deep run, else a quarter."""
    return count if IS_DEEP else max(count // 4, 8)
