"""A clock and a scheduler that a test advances by hand."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from pylogseg.env.scheduler import Handle


class ManualClock:
    """A clock that is set by hand.

    Parameters
    ----------
    now_ms : int
        Milliseconds since 1970.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was set."""
        return self._now_ms

    def set_ms(self, now_ms: int) -> None:
        """Set the time, without running tasks: see `ManualScheduler.advance`."""
        self._now_ms = now_ms


class _ManualTask:
    def __init__(
        self, due_ms: int, number: int, body: Callable[[], object], period_ms: int, tasks: list[_ManualTask]
    ) -> None:
        self.due_ms, self.number, self.body, self.period_ms = due_ms, number, body, period_ms
        self._tasks = tasks

    def order(self) -> tuple[int, int]:
        return self.due_ms, self.number

    def cancel(self) -> bool:
        """Cancel the task; return False if it has already run."""
        if self in self._tasks:
            self._tasks.remove(self)
            return True
        return False


class ManualScheduler:
    """Runs tasks in the thread that schedules them or advances the clock, in order of their times.

    A task without delay runs before `schedule` returns. An error of a task reaches the caller. Tasks with the same
    time run in the order in which they were scheduled.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._tasks: list[_ManualTask] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        """Call a task after the clock has advanced by `delay_ms`."""
        item = _ManualTask(self.clock.now_ms() + delay_ms, self._count, task, period_ms or 0, self._tasks)
        self._count += 1
        self._add(item)
        self.run_due()
        return item

    def advance(self, ms: int) -> None:
        """Advance the clock, then run the due tasks; a task sees the new time, not its own."""
        self.clock.set_ms(self.clock.now_ms() + ms)
        self.run_due()

    def run_due(self) -> None:
        """Run the due tasks, and tasks that these schedule without delay."""
        while self._tasks and self._tasks[0].due_ms <= self.clock.now_ms():
            item = self._tasks.pop(0)
            item.body()
            if item.period_ms > 0:
                item.due_ms += item.period_ms
                self._add(item)

    def shutdown(self) -> None:
        """Forget all tasks."""
        self._tasks.clear()

    def _add(self, item: _ManualTask) -> None:
        bisect.insort(self._tasks, item, key=_ManualTask.order)
