"""The Python process that a task runs in: Spark keeps it for the next ones."""

from __future__ import annotations

import functools
import gc


@functools.lru_cache(maxsize=1)
def settle() -> None:
    """Take what this process has loaded out of the sight of the garbage collector, once; called at the end of a task.

    Between two tasks Spark lets a worker collect garbage, which looks at each object of all modules: 40 ms, as much as
    a task takes to read 50 MB.
    """
    gc.collect()  # what is garbage by now would stay for ever
    gc.freeze()
