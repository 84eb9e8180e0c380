"""Executors of a job that goes item by item, segment by segment or partition by partition: this thread, several, Spark.

A job is a function of a module, with what it needs bound by `functools.partial`, and items: both can be pickled, so
each executor runs the same job. Spark's is `pylogseg.spark.executor`.

Some stages always take `Threads`: writing partitions below a lock of this process (`offline.running`, copies, merges);
a listing that waits for a few small reads of each segment (`ls`, `verify.lacking`); and the rows of a scan
(`Threads.flat`), which stay where they are read. On Spark, tasks of its data source scan. A pool of threads that only
waits for answers, of a store or of logs that are opened, is no executor: it is made where it waits.
"""

from __future__ import annotations

import functools
import operator
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypedDict, TypeVar

from pylogseg.env.handover import Handover
from pylogseg.env.interrupts import held_back, result_of
from pylogseg.errors import RequestError

if TYPE_CHECKING:  # it takes as long to import as all else here
    from pylogseg.env.shared import SharedFolder

T = TypeVar("T")
R = TypeVar("R")
M = TypeVar("M")

#: Called by a job with the amount that it has done since the last call; raises `Cancelled` once the work is to stop.
Advance = Callable[[int], None]
#: Takes a piece of the output of a job.
Emit = Callable[[bytes], None]


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


class Workload(NamedTuple):
    """The name and the size of a run."""

    label: str = "pylogseg"  #: For who watches the tasks of a cluster.
    sizes: Sequence[int] = ()  #: About the bytes of each item, for who has to plan.
    on_bytes: Callable[[int], None] | None = None  #: Gets the sums that the jobs report, of any thread.
    folders: Sequence[SharedFolder] = ()  #: To which the jobs write; a job on a machine that does not see one fails.


UNSAID = Workload()


class Executor(Protocol):
    """Runs a function over items. Results come in the order of the items, even if a later item ends first.

    The function also gets an `Advance`, which it calls with the bytes that it has read. An error of an item is raised
    in the place of its result. When the caller ends the iteration, also by Ctrl-C, what runs is stopped.
    """

    def map(self, function: Callable[[T, Advance], R], items: Sequence[T], load: Workload = UNSAID) -> Iterator[R]:
        """Yield the result for each item."""
        ...

    def merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        load: Workload = UNSAID,
    ) -> Iterator[tuple[str, M]]:
        """Yield each key, in the order of its first item, with the value that `merge` makes of its items' results.

        `merge` gets these in the order of the items and takes all of them. Where results travel, `fold` adds one to
        those of its key before, by number, and may make them smaller.
        """
        ...

    def stream(
        self, function: Callable[[T, Emit, Advance], R], items: Sequence[T], load: Workload = UNSAID
    ) -> Iterator[bytes | R]:
        """Yield the pieces of output that a function emits for each item, then its result, which is not ``bytes``."""
        ...

    def dumps(self, value: object) -> bytes:
        """Return the bytes as which a value travels: of a function that the other end does not have, with its code."""
        ...


@dataclass(frozen=True)
class Threads:
    """Threads of this process; with one job the caller's own. The kernels leave the GIL: they use all processors.

    Items are taken at most two a thread ahead of the results. When the caller ends the iteration, running jobs end at
    their next report, and no other is begun.
    """

    jobs: int = 1
    pieces_ahead: int = 16  #: Of a stream: so much output of a job waits for its turn.

    def map(self, function: Callable[[T, Advance], R], items: Iterable[T], load: Workload = UNSAID) -> Iterator[R]:
        stop = threading.Event()
        advance = _advance(stop, load.on_bytes)
        if self.jobs == 1:
            for item in items:
                yield function(item, advance)
            return
        left = iter(items)
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="pylogseg") as pool:
            try:
                running: deque[Future[R]] = deque(
                    _submit(pool, function, item, advance) for item in islice(left, 2 * self.jobs)
                )
                while running:
                    result = result_of(running.popleft())
                    for item in islice(left, 1):
                        running.append(_submit(pool, function, item, advance))
                    yield result
            finally:
                _end(pool, stop)

    def merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        load: Workload = UNSAID,
    ) -> Iterator[tuple[str, M]]:
        """See `Executor`; nothing travels, so nothing is folded: a result is merged when it is there."""
        by_key: dict[str, list[T]] = {}
        for key, item in zip(keys, items, strict=True):
            by_key.setdefault(key, []).append(item)
        results = self.map(function, [item for of in by_key.values() for item in of], load)
        for key, of in by_key.items():
            yield key, merge(key, islice(results, len(of)))

    def stream(
        self, function: Callable[[T, Emit, Advance], R], items: Iterable[T], load: Workload = UNSAID
    ) -> Iterator[bytes | R]:
        """See `Executor`; a job whose turn has not come waits when it has `pieces_ahead`, so memory is bounded."""
        stop = threading.Event()

        def start(pool: ThreadPoolExecutor, item: T) -> tuple[Handover[bytes | None], Future[R]]:
            pieces = Handover[bytes | None](self.pieces_ahead, stop)

            def work() -> R:
                try:
                    return function(item, functools.partial(_put, pieces), _advance(stop, load.on_bytes))
                finally:  # by this thread: a callback may run in the one that takes the pieces, and find no room
                    pieces.put(None)

            return pieces, _submit(pool, work)

        left = iter(items)
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="pylogseg") as pool:
            try:
                # Jobs begin in the order of the items, so the one whose turn it is always runs.
                running = deque(start(pool, item) for item in islice(left, self.jobs + 1))
                while running:
                    pieces, job = running.popleft()
                    while (piece := pieces.get()) is not None:
                        yield piece
                    yield result_of(job)
                    running.extend(start(pool, item) for item in islice(left, 1))
            finally:
                _end(pool, stop)

    def dumps(self, value: object) -> bytes:
        return pickle.dumps(value)

    def flat(self, function: Callable[[T], Iterator[R]], items: Iterable[T]) -> Iterator[R]:
        """Yield a function's results for each item, in the order of the items; the caller's thread works, too.

        Results of the first item are yielded as they come, and only then other threads begin: they are at most two
        items a job ahead of the results, and an item that nobody has begun when its turn comes is the caller's. While
        the caller would wait for the next results, its thread works on an item behind them. So there are no more
        threads than jobs, and the one that takes the results, and frees them, makes many of them too: of memory, that
        costs less.

        An exception is raised in its place, after what came before it. Then, or when the caller ends the iteration,
        running jobs end at the next thing that they yield.
        """
        left, stop = iter(items), threading.Event()
        for item in left if self.jobs == 1 else islice(left, 1):
            yield from function(item)
        if self.jobs == 1:
            return

        def whole(item: T) -> tuple[list[R], Exception | None]:
            results: list[R] = []
            try:
                for result in function(item):
                    if stop.is_set():
                        raise Cancelled
                    results.append(result)
            except Exception as error:
                return results, error
            return results, None

        with ThreadPoolExecutor(self.jobs - 1, thread_name_prefix="pylogseg") as pool:
            try:
                waiting = deque(_Shared(item, whole, pool) for item in islice(left, 2 * self.jobs))
                while waiting:
                    job = waiting.popleft()
                    is_ours = job.take()
                    while not is_ours and job.outcome is None and any(later.do_free() for later in waiting):
                        pass
                    results, error = (function(job.item), None) if is_ours else job.wait()
                    waiting.extend(_Shared(item, whole, pool) for item in islice(left, 1))
                    yield from results
                    if error is not None:
                        raise error
            finally:
                _end(pool, stop)


class _Shared(Generic[T, R]):
    """A job that a thread of a pool does, or the caller's own: the one that takes it first."""

    def __init__(self, item: T, work: Callable[[T], R], pool: ThreadPoolExecutor) -> None:
        self.item, self._work = item, work
        self._taken = threading.Lock()  #: Held for good by the thread that takes the job.
        self.outcome: R | None = None  #: Set when it is done.
        self._in_pool = _submit(pool, self.do_free)

    def take(self) -> bool:
        """Take the job; return whether no other thread has."""
        return self._taken.acquire(blocking=False)

    def do_free(self) -> bool:
        """Do the job if no other thread has taken it; return whether this one did."""
        if not self.take():
            return False
        self.outcome = self._work(self.item)
        return True

    def wait(self) -> R:
        """Return the outcome of a taken job when it is there; the job, which a pool may still hold, lets go of it."""
        if self.outcome is None:
            result_of(self._in_pool)
        outcome, self.outcome = self.outcome, None
        assert outcome is not None
        return outcome


#: The caller's own thread.
INLINE = Threads(1)


class WorkKeywords(TypedDict, total=False):
    """Threads or an executor of a function, and a callback for its progress, as keywords."""

    jobs: int | None
    executor: Executor | None
    on_bytes: Advance | None


def choose_executor(executor: Executor | None = None, jobs: int | None = 1) -> Executor:
    """Return the argument `executor` of a public function, or without one as many threads as `jobs` means."""
    return Threads(job_count(jobs)) if executor is None else executor


def _submit(pool: ThreadPoolExecutor, function: Callable[..., R], *given: Any) -> Future[R]:
    """Give a job to a pool with interrupts held back: one in between could leave a lock of the pool held."""
    with held_back():
        return pool.submit(function, *given)


def _end(pool: ThreadPoolExecutor, stop: threading.Event) -> None:
    """Tell the jobs to end, and begin no other; the block of the pool waits for them."""
    with held_back():
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _put(pieces: Handover[bytes | None], piece: bytes) -> None:
    if not pieces.put(piece):
        raise Cancelled


def _advance(stop: threading.Event, on_bytes: Callable[[int], None] | None) -> Advance:
    def advance(amount: int) -> None:
        if stop.is_set():
            raise Cancelled
        if on_bytes is not None:
            on_bytes(amount)

    return advance
