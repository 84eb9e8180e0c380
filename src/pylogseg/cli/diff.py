"""`pylogseg diff`: compare the records of two partitions or directories."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from pylogseg.cli import common, completion, tiers
from pylogseg.cli.options import question_option, reading_options
from pylogseg.cli.outcomes import print_part, print_parts
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.offline.comparing import diff as compare
from pylogseg.reading.offset_range import OffsetRange, parse_offsets
from pylogseg.reading.state import Reading

_EPILOG = r"""\b
Examples:
  pylogseg diff /data/kafka /backup/kafka               all partitions
  pylogseg diff /data/kafka /backup/kafka orders        one topic
  pylogseg diff /data/1/orders-3 /data/2/orders-3 --common   two replicas
  pylogseg diff before/users-0 after/users-0 --latest   is one a compaction of
                                                        the other?
  pylogseg diff A B --offsets-only --json

\b
Compared: key, value, timestamp and headers of each record, including transaction
markers. Not compared: codecs, batches, segments, indexes, producers, leader
epochs. A "missing" record is in A only, an "extra" one in B only; a "changed" one
is in both with different content. Ranges of offsets include both ends. Each side
is read from its own log start offset.
Both sides are read once, in bounded memory; a broker may write to either.

\b
Exit codes, like those of diff(1): 0 the same; 1 they differ; 2 wrong usage, a disk error,
or damage, since unreadable records cannot be compared; 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("a", metavar="A", shell_complete=completion.files)
@click.argument("b", metavar="B", shell_complete=completion.files)
@common.names_options
@tiers.keys_option
@click.option("--offsets-only", is_flag=True, help="Compare which offsets exist, not the content of records.")
@click.option(
    "--latest", is_flag=True, help="Compare the last record of each key, so that a log equals its compaction."
)
@click.option("--common", "in_common", is_flag=True, help="Compare only the offset range that both sides have.")
@click.option(
    "--offset",
    "-o",
    "offsets",
    metavar="A:B",
    callback=common.parsed(parse_offsets),
    help="From offset A up to B, exclusive. A or A: is from A on, :B up to B, A:+1 one record.",
)
@question_option("from_log_start")
@click.option(
    "--max-ranges", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
    help="List at most N ranges of each partition; all are counted.",
)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; report through the exit code.")
@reading_options("isolation_level", "on_corrupt", "max_decompressed_bytes", "max_bytes_per_second")
@common.json_option
@workers_option
def diff(
    a: str,
    b: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    offsets_only: bool,
    latest: bool,
    in_common: bool,
    offsets: OffsetRange | None,
    from_log_start: bool,
    quiet: bool,
    as_json: bool,
    workers: Workers,
    reading: Reading,
    max_ranges: int,
) -> None:
    """Compare the records of two partitions or directories, A and B, however they are batched."""
    if offsets_only and latest:
        raise RequestError("--offsets-only and --latest cannot be combined")
    sides = open_dir(a), open_dir(b)
    chosen = PartitionChoice.of((*names, *topic) or None, partition or None)
    for side in sides:
        with contextlib.suppress(RequestError):  # the comparison says that it is not there
            common.report_notes(side.select(*chosen.arguments), from_log_start=from_log_start)
    mode: Any = "offsets" if offsets_only else "latest" if latest else "records"
    passes = 2 if latest else 1
    size = passes * sum(map(_size, sides))
    with workers.executor() as executor, common.progress(size, "comparing") as advance:
        found = compare(
            *sides,
            [*names, *topic] or None,
            list(partition) or None,
            mode=mode,
            offset=offsets,
            common=in_common,
            from_log_start=from_log_start,
            max_ranges=max_ranges,
            executor=executor,
            on_bytes=advance,
            **reading.keywords,
        )
        found.is_damaged = common.is_damage_met()
        try:
            print_parts(found, as_json, lambda part: not quiet and (as_json or not part.is_same))
        except CorruptionError as error:
            if not quiet and not as_json:
                print_part(found, as_json)
            common.complain(common.remedy(error))
            click.get_current_context().exit(2)
    if not quiet:
        print_part(found, as_json)
    click.get_current_context().exit(found.exit_code)


def _size(disk: Disk) -> int:
    return sum(segment.size for segment in disk.segments)
