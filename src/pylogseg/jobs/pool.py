"""A function mapped over items by threads: results in order, memory bounded, stopped at once when the caller stops.

The kernels leave the GIL, so threads use all processors.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Called by a job with the amount that it has done since the last call; raises `Cancelled` once the work is to stop.
Advance = Callable[[int], None]


class Cancelled(Exception):
    """Raised inside a job, by its `Advance`, when nobody waits for its result any more."""


def map_ordered(
    function: Callable[[T, Advance], R], items: Iterable[T], jobs: int, on_progress: Callable[[int], None] | None = None
) -> Iterator[R]:
    """Results of a function for each item, in the order of the items.

    Parameters
    ----------
    function : callable
        Gets an item and an `Advance`, which it calls every few megabytes.
    items : iterable
        Taken as they are needed, at most two a thread ahead of the results.
    jobs : int
        Threads; with 1 the caller's own thread does the work.
    on_progress : callable, optional
        Gets the sums that jobs report, from their threads.

    Yields
    ------
    object
        The first exception of a job is raised in its place. Then, or when the caller ends the iteration (also by
        Ctrl-C), running jobs end at their next report, and no other is begun.
    """
    stop = threading.Event()

    def advance(amount: int) -> None:
        if stop.is_set():
            raise Cancelled
        if on_progress is not None:
            on_progress(amount)

    if jobs == 1:
        for item in items:
            yield function(item, advance)
        return
    left = iter(items)
    with ThreadPoolExecutor(jobs, thread_name_prefix="pylogseg") as pool:
        try:
            running: deque[Future[R]] = deque(pool.submit(function, item, advance) for item in islice(left, 2 * jobs))
            while running:
                result = running.popleft().result()
                for item in islice(left, 1):
                    running.append(pool.submit(function, item, advance))
                yield result
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
