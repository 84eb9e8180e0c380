"""Schedulers for delayed and periodic tasks, such as file deletion and flushes."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pylogseg.env.interrupts import held_back
from pylogseg.errors import ClosedError, PylogsegError, RequestError

_logger = logging.getLogger(__name__)


class Handle(Protocol):
    """A scheduled task; ``cancel()`` keeps it from being started again and says whether it was still to come."""

    def cancel(self) -> bool: ...


class Scheduler(Protocol):
    """Runs tasks at their time.

    ``schedule`` calls ``task()`` after `delay_ms`, and then every `period_ms` if that is given. A task without delay
    may run before `schedule` returns, in the caller's thread: do not hold a lock that the task takes. ``shutdown``
    starts no task any more, and returns when none is running.
    """

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle: ...
    def shutdown(self) -> None: ...


@dataclass(order=True)
class _Task:
    due: float
    number: int
    name: str = field(compare=False)
    body: Callable[[], object] = field(compare=False)
    period: float | None = field(compare=False)
    cancelled: bool = field(compare=False, default=False)
    done: bool = field(compare=False, default=False)

    def cancel(self) -> bool:
        """Cancel the task; return whether it was still to run."""
        to_come = not self.cancelled and not self.done
        self.cancelled = True
        return to_come


class ThreadScheduler:
    """Runs tasks one after another in one daemon thread, which starts with the first task.

    A task that raises is logged and, if it is periodic, called again at its next time. Safe to use from several
    threads, tasks included.
    """

    def __init__(self, name: str = "pylogseg-scheduler") -> None:
        self._name = name
        self._tasks: list[_Task] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        if delay_ms < 0 or (period_ms is not None and period_ms <= 0):
            raise RequestError(f"{name}: cannot run in {delay_ms} ms, every {period_ms} ms")
        period = None if period_ms is None else period_ms / 1000
        with held_back(), self._changed:  # an interrupt would leave the lock held, or a thread that was not begun
            if self._closed:
                raise ClosedError(f"{name}: the scheduler is shut down")
            item = _Task(time.monotonic() + delay_ms / 1000, next(self._numbers), name, task, period)
            heapq.heappush(self._tasks, item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return item

    def shutdown(self) -> None:
        """Start no task any more, and wait for the one that runs (unless that one asks for it)."""
        with held_back(), self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                item.body()
            except PylogsegError as error:  # a full disk, say: what there is to know is in the message
                _logger.error("the task %s failed: %s", item.name, error)
            except Exception:
                _logger.exception("the task %s failed", item.name)
            self._again(item)

    def _next(self) -> _Task | None:
        """Wait for the next task that is due; None after `shutdown`."""
        with self._changed:
            while not self._closed:
                wait = self._tasks[0].due - time.monotonic() if self._tasks else None
                if wait is not None and wait <= 0:
                    item = heapq.heappop(self._tasks)
                    if not item.cancelled:
                        item.done = item.period is None
                        return item
                else:
                    # A wait of many days is more than a lock's timeout takes.
                    self._changed.wait(None if wait is None else min(wait, 3600))
            return None

    def _again(self, item: _Task) -> None:
        with self._changed:
            if item.period is not None and not item.cancelled and not self._closed:
                item.due = max(item.due + item.period, time.monotonic())
                heapq.heappush(self._tasks, item)


class CollectingScheduler:
    """Runs tasks without delay at once, in the caller's thread, and the others in `finish`.

    For work that ends, such as an offline recovery: nothing runs beside it, and nothing is left undone.
    """

    def __init__(self) -> None:
        self._tasks: list[_Task] = []

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        """Call a task, or keep it for `finish`; call a periodic one once."""
        item = _Task(delay_ms, len(self._tasks), name, task, None, done=delay_ms <= 0)
        if item.done:
            task()
        else:
            self._tasks.append(item)
        return item

    def finish(self) -> None:
        """Run the kept tasks, in the order of their delays."""
        while self._tasks:
            item = min(self._tasks)
            self._tasks.remove(item)
            if not item.cancelled:
                item.done = True
                item.body()

    def shutdown(self) -> None:
        """Drop the kept tasks."""
        self._tasks.clear()
