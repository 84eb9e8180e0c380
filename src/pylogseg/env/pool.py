"""A function mapped over items by threads: results in order, memory bounded, stopped at once when the caller stops.

The kernels leave the GIL, so threads use all processors.
"""

from __future__ import annotations

import contextlib
import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import Full, Queue
from typing import TypeVar

from pylogseg.errors import RequestError

T = TypeVar("T")
R = TypeVar("R")

#: Called by a job with the amount that it has done since the last call; raises `Cancelled` once the work is to stop.
Advance = Callable[[int], None]


class Cancelled(Exception):
    """Raised inside a job, by its `Advance`, when nobody waits for its result any more."""


def processors() -> int:
    """Return the number of threads that can run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def job_count(jobs: int | None) -> int:
    """Return how many threads an argument `jobs` means: 1 is the caller's own, None one per processor."""
    if jobs is None:
        return processors()
    if isinstance(jobs, bool) or not hasattr(jobs, "__index__") or jobs < 1:
        raise RequestError(f"jobs must be 1 or more, or None for one per processor, not {jobs!r}")
    return operator.index(jobs)


def map_ordered(
    function: Callable[[T, Advance], R], items: Iterable[T], jobs: int, on_progress: Callable[[int], None] | None = None
) -> Iterator[R]:
    """Yield the results of a function for each item, in the order of the items.

    With one job the caller's own thread does the work. The function calls its `Advance` every few megabytes;
    `on_progress` gets the sums, from the threads. Items are taken at most two a thread ahead of the results. The first
    exception of a job is raised in its place. Then, or when the caller ends the iteration (also by Ctrl-C), running
    jobs end at their next report, and no other is begun.
    """
    stop = threading.Event()
    advance = _advance(stop, on_progress)
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


def flat_ordered(function: Callable[[T], Iterator[R]], items: Iterable[T], jobs: int) -> Iterator[R]:
    """Yield what a function yields for each item, in the order of the items; the caller's thread is one of the jobs.

    What the first item gives is yielded as it comes, and only then other threads begin: they are at most two items a
    job ahead of the results, and an item that nobody has begun when its turn comes is the caller's. While the caller
    would wait for the next results, its thread works on an item behind them. So there are no more threads than jobs,
    and the one that takes the results, and frees them, makes many of them too: of memory, that costs less.

    An exception is raised in its place, after what came before it. Then, or when the caller ends the iteration, running
    jobs end at the next thing that they yield, and no other is begun.
    """
    left, stop = iter(items), threading.Event()
    for item in left if jobs == 1 else islice(left, 1):
        yield from function(item)
    if jobs == 1:
        return

    def whole(item: T) -> tuple[list[R], Exception | None]:
        found: list[R] = []
        try:
            for each in function(item):
                if stop.is_set():
                    raise Cancelled
                found.append(each)
        except Exception as error:
            return found, error
        return found, None

    with ThreadPoolExecutor(jobs - 1, thread_name_prefix="pylogseg") as pool:
        try:
            waiting = deque((item, pool.submit(whole, item)) for item in islice(left, 2 * jobs))
            while waiting:
                item, job = waiting.popleft()
                is_ours = job.cancel()  # it can be as long as nobody has begun it
                while not job.done() and _one_of_them(whole, waiting):
                    pass
                found, error = (function(item), None) if is_ours else job.result()
                waiting.extend((each, pool.submit(whole, each)) for each in islice(left, 1))
                yield from found
                if error is not None:
                    raise error
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _one_of_them(work: Callable[[T], R], waiting: deque[tuple[T, Future[R]]]) -> bool:
    """Do the first of the jobs that nobody has begun; return whether there was one."""
    for place, (item, job) in enumerate(waiting):
        if job.cancel():
            done: Future[R] = Future()
            done.set_result(work(item))
            waiting[place] = item, done
            return True
    return False


def stream_ordered(
    function: Callable[[T, Callable[[bytes], None], Advance], R],
    items: Iterable[T],
    jobs: int,
    on_progress: Callable[[int], None] | None = None,
    pieces_ahead: int = 16,
) -> Iterator[bytes | R]:
    """Yield the output of jobs while they run, in the order of the items: each one's pieces, then its result.

    As `map_ordered`, but the function also gets one that takes a piece of output, and its result is not ``bytes``. A
    job whose turn has not come waits when it has `pieces_ahead` pieces: this bounds memory, whatever the output.
    """
    stop = threading.Event()

    def start(pool: ThreadPoolExecutor, item: T) -> tuple[Queue[bytes | None], Future[R]]:
        pieces: Queue[bytes | None] = Queue(pieces_ahead)

        def work() -> R:
            try:
                return function(item, lambda piece: _put(pieces, piece, stop), _advance(stop, on_progress))
            finally:  # by this thread: a callback may run in the one that takes the pieces, and find no room
                _put_end(pieces, stop)

        return pieces, pool.submit(work)

    left = iter(items)
    with ThreadPoolExecutor(jobs, thread_name_prefix="pylogseg") as pool:
        try:
            # Jobs begin in the order of the items, so the one whose turn it is always runs.
            running = deque(start(pool, item) for item in islice(left, jobs + 1))
            while running:
                pieces, job = running.popleft()
                while (piece := pieces.get()) is not None:
                    yield piece
                yield job.result()
                running.extend(start(pool, item) for item in islice(left, 1))
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _put(pieces: Queue[bytes | None], piece: bytes | None, stop: threading.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(Full):
            pieces.put(piece, timeout=0.1)
            return
    raise Cancelled


def _put_end(pieces: Queue[bytes | None], stop: threading.Event) -> None:
    with contextlib.suppress(Cancelled):
        _put(pieces, None, stop)


def _advance(stop: threading.Event, on_progress: Callable[[int], None] | None) -> Advance:
    def advance(amount: int) -> None:
        if stop.is_set():
            raise Cancelled
        if on_progress is not None:
            on_progress(amount)

    return advance
