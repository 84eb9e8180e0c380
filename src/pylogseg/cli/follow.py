"""What is asked of partitions that grow: the records that are there, and those that come."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import click

from pylogseg.cli import common
from pylogseg.cli.bar import Bar
from pylogseg.cli.query import OffsetRange, Query
from pylogseg.cli.tail import Followed, Following
from pylogseg.errors import RequestError
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.partition import Chunk
from pylogseg.walker.findings import Gap

follow_option = click.option(
    "--follow", "-F", "following", is_flag=True, help="Wait for new records, until Ctrl-C or --limit."
)


class Gaps:
    """Tells of each gap once, on stderr."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()
        self.damage = False

    def tell(self, gaps: Iterable[Gap], alarms_only: bool = False) -> None:
        """Tell of those that are new."""
        new = [gap for gap in gaps if (gap.path, gap.position) not in self._told and (gap.is_damage or not alarms_only)]
        self._told.update((gap.path, gap.position) for gap in new)
        self.damage |= common.report_gaps(new)

    def chunks(self, part: LogReader, bar: Bar) -> Iterator[Chunk]:
        """The chunks of a part; what was passed over is told when it ends."""
        try:
            yield from part.chunks()
        finally:
            if part.gaps:
                with bar.aside(sys.stderr):
                    self.tell(part.gaps)


class Again(NamedTuple):
    """What was asked for, to be looked for again."""

    arguments: tuple[str, ...]
    topic: tuple[str, ...]
    partition: tuple[int, ...]
    below_log_start: bool

    def followed(self, query: Query) -> list[Followed]:
        """The partitions that are there now, from their beginning."""
        try:
            chosen = common.select(self.arguments, self.topic, self.partition, from_log_start=not self.below_log_start)
            logs = chosen.logs(from_log_start=not self.below_log_start)
        except RequestError:
            return []
        whole = replace(query, offsets=OffsetRange())
        return [Followed(whole.of(log), of) for log, of in zip(logs, chosen.live_partitions(), strict=False)]


def follow(
    query: Query, wanted: list[LogReader], chosen: common.Selection, gaps: Gaps, again: Again
) -> Iterator[Chunk]:
    """What is wanted of the partitions that were chosen, and what is appended to them; until none is left."""
    if query.has_end:
        raise RequestError("--follow has no end: not with an end of --offset, and not with --until")
    if query.latest:
        raise RequestError("--follow has no end, so nothing is the latest: not with --latest")
    if chosen.disk.loose:
        raise RequestError("--follow needs a partition's folder, not a file: a file ends when its segment is rolled")
    parts = [Followed(part, of) for part, of in zip(wanted, chosen.live_partitions(), strict=True)]
    followed = Following(parts, chosen.disk.log_dirs, lambda: again.followed(query), common.complain)
    for chunk in followed.chunks():
        yield chunk
        # A batch that is being written looks cut off: that is no news.
        gaps.tell(itertools.chain.from_iterable(part.wanted.gaps for part in followed.parts), alarms_only=True)
    common.complain("no partition is left to follow")
