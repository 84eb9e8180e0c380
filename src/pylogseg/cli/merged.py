"""`--merge`: print the records of several partitions in one order."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

from pylogseg.cli import common
from pylogseg.cli.bar import Bar
from pylogseg.cli.follow import Gaps
from pylogseg.cli.output import RecordText
from pylogseg.errors import RequestError
from pylogseg.format.text import TextBuffer
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.merged import merge_by_time
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, WINDOW_BYTES

#: For the windows of all partitions together; each has at least `SMALL_WINDOW_BYTES`.
_WINDOWS_BYTES = 64 << 20
#: Open files of the process other than those of partitions.
_OTHER_FILES = 64


def print_merged(text: RecordText, readers: list[LogReader], limit: int | None, gaps: Gaps, bar: Bar) -> None:
    """Write the records of all partitions to stdout by timestamp, topic, partition and offset."""
    readers = sorted(readers, key=_place)
    # With latest, each has a file of keys too.
    _allow_files(len(readers), len(readers) * (2 if any(part.latest for part in readers) else 1) + _OTHER_FILES)
    window = min(max(_WINDOWS_BYTES // max(len(readers), 1), SMALL_WINDOW_BYTES), WINDOW_BYTES)
    parts = [part.apart(bar) for part in readers]
    parts = [replace(part, options=replace(part.options, window_bytes=window)) for part in parts]
    if text.head:
        common.write(text.head)
    out, left = TextBuffer(), limit
    for pieces, order in merge_by_time([gaps.chunks(part, bar) for part in parts]) if left != 0 else ():
        texts = list(
            itertools.chain.from_iterable(
                text.each(chunk.columns, chunk.segment, out, start, stop) for chunk, start, stop in pieces
            )
        )
        with bar.paused(sys.stdout, text.ends_lines):
            common.write(b"".join([texts[i] for i in order[:left].tolist()]))
            sys.stdout.buffer.flush()
        left = None if left is None else left - len(order[:left])
        if left == 0:
            return


def _allow_files(count: int, needed: int) -> None:
    """Raise the limit of open files if the partitions need more at the same time."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise RequestError(
            f"merging {count} partitions needs {needed} open files, and the limit is {most}: "
            "name fewer partitions, or raise the limit (ulimit -n)"
        )
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def _place(part: LogReader) -> tuple[str, int, str]:
    segment = part.log.segments[0] if part.log.segments else None
    return (segment.topic, segment.partition, segment.path) if segment else ("", -1, part.name)
