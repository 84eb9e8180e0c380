"""Memory of a process that streams a segment: run as a program, so that nothing else is in it.

``python memory.py FOLDER copies|views [RECORDS]`` prints the most megabytes of anonymous memory (RssAnon of Linux: what
is not a page of a file) on top of a process that has read one record, while so many or all are read.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path


def anonymous_mb() -> float:
    """Memory of this process that is its own."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("no RssAnon in /proc/self/status")
    return int(found[1]) * 1024 / 1e6


def page_faults(work: Callable[[], object]) -> float:
    """How often the system gives this process a page while it does its work again: memory that is not used again."""
    work()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def stream(folder: str, views: bool, limit: int | None) -> float:
    """Read records as Arrow, holding one record batch at a time."""
    import pylogseg

    pylogseg.read_arrow(folder, views=views, limit=1).read_all()  # what is loaded on first use does not grow
    before = anonymous_mb()
    return max(anonymous_mb() - before for _ in pylogseg.read_arrow(folder, views=views, limit=limit))


if __name__ == "__main__":
    print(stream(sys.argv[1], sys.argv[2] == "views", int(sys.argv[3]) if sys.argv[3:] else None))
