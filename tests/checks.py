"""Checks that many tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def some(found: Iterable[T]) -> list[T]:
    """The items, of which there must be any: a loop over nothing proves nothing."""
    items = list(found)
    assert items, "there is nothing to look at"
    return items
