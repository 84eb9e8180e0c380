"""A scheduler for tasks of a log: a disk failure in one takes the log offline."""

from __future__ import annotations

from collections.abc import Callable

from pylogseg.env.scheduler import Handle, Scheduler
from pylogseg.errors import StorageError


class WatchedScheduler:
    """A scheduler that reports tasks that failed with a `StorageError` to its owner, and raises the error.

    Parameters
    ----------
    inner : Scheduler
        Runs the tasks.

    Attributes
    ----------
    on_error : callable
        Called with the error.
    """

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.on_error: Callable[[StorageError], object] = lambda error: None
        self.shutdown = inner.shutdown

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        """Call a task later; see `Scheduler`."""

        def run() -> None:
            try:
                task()
            except StorageError as error:
                self.on_error(error)
                raise

        return self._inner.schedule(name, run, delay_ms, period_ms)
