"""What a report of 1,000 partitions with 10 segments each weighs, and when it is ready.

    python tests/soak report-page-rates [PARTITIONS]

Also what it would weigh if its charts were drawn when the report is made, instead of by its script: the charts of some
partitions are taken out of the browser and counted. Needs Chromium and the extra `test`.
"""

from __future__ import annotations

import base64
import json
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path

from helpers.browser import Opened, started, tab
from helpers.many_facts import many

import pylogseg
from pylogseg.reporting.page import page
from soak import EXAMPLES

SEGMENTS, LOADS, CHARTED = 10, 7, 40


def packed(text: str) -> int:
    return len(base64.b64encode(zlib.compress(text.encode(), 9)))


def loads(opened: Opened, file: Path) -> list[float]:
    """Return milliseconds from the start of a load to the page as it is read, of several loads."""
    found = []
    for _ in range(LOADS):
        opened.page.goto("about:blank")
        opened.go(file)
        found.append(float(opened.page.evaluate("document.documentElement.dataset.ready")))
    return found


def charts(opened: Opened, name: str) -> str:
    """Return the charts of a partition."""
    opened.at(name)
    text: str = opened.page.evaluate("[...document.querySelectorAll('main svg')].map(each => each.outerHTML).join('')")
    return text


def main() -> None:
    """Print the table."""
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    examples = EXAMPLES
    facts = many(pylogseg.report(examples).to_dict(), partitions, SEGMENTS)
    begin = time.perf_counter()
    text = page(facts)
    took = time.perf_counter() - begin
    plain = json.dumps(facts, separators=(",", ":"))
    names = [each["name"] for each in facts["partitions"]][:: max(1, partitions // CHARTED)]
    with tempfile.TemporaryDirectory() as scratch, started() as browser:
        file = Path(scratch) / "report.html"
        file.write_text(text, encoding="utf-8")
        opened = tab(browser)
        ready = loads(opened, file)
        drawn = "".join(charts(opened, name) for name in names)
    whole = partitions / len(names)
    size = len(text.encode())
    rows = {
        "partitions": f"{partitions:,} of {SEGMENTS} segments",
        "page": f"{size / 1e6:.2f} MB, made in {took:.1f} s",
        "  style and script": f"{(size - packed(plain)) / 1e3:.0f} kB",
        "  facts, packed": f"{packed(plain) / 1e6:.2f} MB; as plain JSON {len(plain) / 1e6:.1f} MB",
        "ready after": f"{statistics.median(ready):.0f} ms (of {LOADS}: {min(ready):.0f} to {max(ready):.0f})",
        "charts, if they were in it": f"{len(drawn) * whole / 1e6:.1f} MB; packed {packed(drawn) * whole / 1e6:.1f} MB",
    }
    for name, told in rows.items():
        print(f"{name:28}{told}")


if __name__ == "__main__":
    main()
