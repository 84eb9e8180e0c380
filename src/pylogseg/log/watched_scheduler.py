"""Tasks of a log whose failures on the disk take the log offline, though nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable

from pylogseg.env.scheduler import Handle, Scheduler
from pylogseg.errors import StorageError


class WatchedScheduler:
    """A scheduler that tells its owner of tasks that failed with a `StorageError`, and passes the error on.

    Parameters
    ----------
    inner : Scheduler
        Runs the tasks.

    Attributes
    ----------
    tell : callable
        Gets the error.
    """

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.tell: Callable[[StorageError], object] = lambda error: None
        self.shutdown = inner.shutdown

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        """Call a task later; see `Scheduler`."""

        def run() -> None:
            try:
                task()
            except StorageError as error:
                self.tell(error)
                raise

        return self._inner.schedule(name, run, delay_ms, period_ms)
