"""The Python process of a task, which Spark reuses for later tasks."""

from __future__ import annotations

import functools
import gc


@functools.lru_cache(maxsize=1)
def freeze_modules() -> None:
    """Exclude all loaded objects from garbage collection, once; called at the end of a task.

    Spark collects garbage between tasks. Visiting each object of all modules takes 40 ms, as long as a task needs to
    read 50 MB.
    """
    gc.collect()  # garbage would otherwise be kept forever
    gc.freeze()


def task_name() -> str:
    """Return a name for the current task and its attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "driver" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"
