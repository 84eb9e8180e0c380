"""Memory of a process that streams a segment: run as a program, so that nothing else is in it.

``python memory.py FOLDER`` prints JSON: megabytes of anonymous memory (RssAnon of Linux: what is not a page of a file)
after the first tenth of the record batches and the most of all, as copies and as views.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def anonymous_mb() -> float:
    """Memory of this process that is its own."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("no RssAnon in /proc/self/status")
    return int(found[1]) * 1024 / 1e6


def stream(folder: str, views: bool) -> dict[str, float]:
    """Read all records as Arrow, holding one record batch at a time."""
    import pylogseg

    before, used, records = anonymous_mb(), [], 0
    for batch in pylogseg.read_arrow(folder, views=views):
        records += len(batch)
        used.append(anonymous_mb() - before)
    return {"records": records, "early_mb": max(used[: len(used) // 10 + 1]), "most_mb": max(used)}


if __name__ == "__main__":
    stream(sys.argv[1], False)  # what is loaded on first use is not memory that grows
    print(json.dumps({str(views): stream(sys.argv[1], views) for views in (False, True)}))
