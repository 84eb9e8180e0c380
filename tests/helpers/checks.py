"""Checks that many tests share."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

T = TypeVar("T")


def some(found: Iterable[T]) -> list[T]:
    """The items, of which there must be any: a loop over nothing proves nothing."""
    items = list(found)
    assert items, "there is nothing to look at"
    return items


def begun_since(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """Threads that live now and were not among those; others, of earlier tests, may end meanwhile."""
    return [each for each in threading.enumerate() if each not in before]


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Come back when something is so; fail if that takes longer."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.002)


def duckdb_version() -> int:
    """The first part of the version that is installed."""
    return int(importlib.metadata.version("duckdb").split(".")[0])
