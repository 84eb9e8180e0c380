"""An explanation of a reading: the segments and bytes that it needs, and why it skips the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pylogseg.reading.bounds import bound_logs
from pylogseg.reading.ranges import Extent, pieces, shares, url_of
from pylogseg.reading.scan import TASK_BYTES, LogScan


class ExplainedSegment(NamedTuple):
    """A segment, and the bytes of it that a reading needs."""

    topic: str
    partition: int
    path: str
    size_bytes: int
    read_bytes: int  #: About, by its index.
    reason: str  #: Why nothing is read; empty if something is.


class Explanation(NamedTuple):
    """The segments of the logs of a reading, in order; as text, a line for each and a summary."""

    segments: tuple[ExplainedSegment, ...]

    @property
    def read_bytes(self) -> int:
        """Bytes that are read, about."""
        return sum(s.read_bytes for s in self.segments)

    @property
    def summary(self) -> str:
        """The counts in one line."""
        count, size = sum(not s.reason for s in self.segments), sum(s.size_bytes for s in self.segments)
        plural = "" if len(self.segments) == 1 else "s"
        return f"{count} of {len(self.segments)} segment{plural}, {self.read_bytes:,} of {size:,} bytes"

    def __str__(self) -> str:
        lines = [f"{s.path}: {s.reason or f'{s.read_bytes:,} bytes'}" for s in self.segments]
        return "\n".join([*lines, self.summary])


def explain(table: LogScan, filter: Any) -> Explanation:
    read: dict[str, int] = {}
    for task in table.tasks(filter, TASK_BYTES):
        for path, size in table.files(task):
            read[path] = read.get(path, 0) + size
    selection, rows = table.selection, list[ExplainedSegment]()
    left = {log.path for log, _ in bound_logs(table.logs, filter, table.schema)}
    for log in table.logs:
        first, end = selection.range_of(log)
        extent = Extent(log, first, min(end, log.log_end_offset) if log.segments else end)
        until = None if selection.until is None else selection.until - 1
        in_offsets = _paths([share.segment for share in shares(extent)])
        timely = pieces(extent, selection.since, until) if selection.has_times else ()
        in_times = {piece.range.path for piece in timely} if selection.has_times else in_offsets
        for segment in log.segments:
            path = url_of(segment.files, segment.path)
            size = min(read.get(path, 0), segment.size)
            if path in read:
                reason = ""
            elif path not in in_offsets:
                reason = "no offset of the range" if segment.size else "empty"
            elif path not in in_times:
                reason = "no timestamp of the range"
            else:
                reason = "the filter leaves out the " + ("segment" if log.path in left else "partition")
            rows.append(ExplainedSegment(segment.topic, segment.partition, segment.path, segment.size, size, reason))
    return Explanation(tuple(rows))


def _paths(segments: Sequence[Any]) -> set[str]:
    return {url_of(s.files, s.path) for s in segments}
