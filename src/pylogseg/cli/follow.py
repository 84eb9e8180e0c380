"""`--follow`: read the records of partitions, and new ones as they are appended."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import click

from pylogseg.cli import common
from pylogseg.cli.bar import Bar
from pylogseg.cli.query import Query
from pylogseg.cli.tail import FollowedReader, Following
from pylogseg.disk.tier.files import TierFiles
from pylogseg.errors import RequestError
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.partition import Chunk
from pylogseg.walker.gaps import Gap

follow_option = click.option(
    "--follow", "-F", "following", is_flag=True, help="Wait for new records until Ctrl-C or --limit."
)


class Gaps:
    """Reports each gap once, on stderr."""

    def __init__(self) -> None:
        self._reported: set[Gap] = set()
        self.damage = False

    def report(self, gaps: Iterable[Gap], *, follows: bool = False) -> None:
        """Report the new gaps; while it `follows` the logs, a torn end is no gap, since somebody is writing it."""
        new = [gap for gap in gaps if gap not in self._reported and (gap.is_loss or not follows)]
        self._reported.update(new)
        self.damage |= common.report_gaps(new, waits=not follows)

    def chunks(self, part: LogReader, bar: Bar) -> Iterator[Chunk]:
        """Yield the chunks of a part; report its gaps at the end."""
        try:
            yield from part.chunks()
        finally:
            if part.gaps:
                with bar.pause(sys.stderr):
                    self.report(part.gaps)


class Selector(NamedTuple):
    """The arguments of a selection, to select again."""

    arguments: tuple[str, ...]
    topic: tuple[str, ...]
    partition: tuple[int, ...]

    def list_followed(self, query: Query) -> list[FollowedReader]:
        """Return the partitions that exist now, from their beginning."""
        try:
            chosen = common.select(
                self.arguments, self.topic, self.partition, from_log_start=query.selection.from_log_start
            )
            logs = chosen.logs()
        except RequestError:
            return []
        whole = replace(query, selection=replace(query.selection, offsets=OffsetRange()))
        return [FollowedReader(whole.of(log), of) for log, of in zip(logs, chosen.live_partitions(), strict=False)]


def follow(
    query: Query, readers: list[LogReader], chosen: common.Chosen, gaps: Gaps, selector: Selector
) -> Iterator[Chunk]:
    """Yield the selected records of partitions, and newly appended ones, until no partition is left."""
    if query.selection.has_end:
        raise RequestError("--follow has no end: it cannot be combined with --until or an end of --offset")
    if query.selection.latest:
        raise RequestError("--follow has no end: it cannot be combined with --latest")
    if common.is_mapped():
        raise RequestError("--follow reads files that a broker writes to: it cannot be combined with --memory-map")
    if any(isinstance(log_dir.files, TierFiles) for log_dir in chosen.disk.log_dirs):
        raise RequestError(
            "--follow needs a broker's disk: a tier gets new records only when segments are sealed; give the disk, and"
            " --tier for older records"
        )
    if chosen.disk.loose:
        raise RequestError("--follow needs a partition's folder, not a file: give the folder")
    parts = [FollowedReader(part, of) for part, of in zip(readers, chosen.live_partitions(), strict=True)]
    followed = Following(parts, chosen.disk.log_dirs, lambda: selector.list_followed(query), common.complain)
    for chunk in followed.chunks():
        yield chunk
        gaps.report(itertools.chain.from_iterable(part.reader.gaps for part in followed.parts), follows=True)
    common.complain("no partition is left to follow")
