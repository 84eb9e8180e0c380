"""The task of Spark that writes rows."""

from __future__ import annotations


def task_name() -> str:
    """A name for the task that this is, and its attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "driver" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"
