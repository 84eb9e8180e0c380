"""`pylogseg ls`: list the topics, partitions and segments of a broker's disk."""

from __future__ import annotations

import click

from pylogseg.cli import common
from pylogseg.cli.outcomes import print_list
from pylogseg.env.executor import Threads
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.foreign_formats import LOOK_BYTES, packed_as
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listed import DiskList, PartitionList, SegmentList, TopicList
from pylogseg.inspect.stats.listing import bytes_on_disk

_EPILOG = """\b
Examples:
  pylogseg ls /data/kafka                   all partitions
  pylogseg ls /data/kafka 'orders*' -l      segments of some topics
  pylogseg ls /data/kafka --all             also files that await deletion
  pylogseg ls /data/kafka --by topic --sort size   the largest topics first
  pylogseg ls /data/kafka --json | jq .size

\b
START and END are the log start offset and the log end offset: END is one above
the last record's offset. Times are in UTC: of the first record, and the newest in
the last segment. SIZE counts .log files only; ON DISK counts all files, also
indexes and files that await deletion.
Only indexes and a few headers are read. ls does not look for damage; verify does.
It reports segments of which only indexes are left, and with --segments offsets
that are in no segment: stats --gaps shows the reason, verify whether it is damage.

\b
Exit codes: 0 success; 2 wrong usage or a disk error. A partition whose folder
cannot be listed has the STATE unreadable; the others are shown.
"""


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option("--segments", "-l", is_flag=True, help="Print a line for each segment.")
@click.option(
    "--all", "-a", "everything", is_flag=True, help="Also list .deleted, .cleaned, .swap and other leftover files."
)
@click.option("--by", type=click.Choice(["topic"]), help="Print a line for each topic, and a total.")
@click.option(
    "--sort",
    type=click.Choice(["name", "size"]),
    default="name",
    show_default=True,
    help="Order of lines; size: largest first.",
)
@common.json_option
@common.jobs_option
def ls(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    segments: bool,
    everything: bool,
    by: str | None,
    sort: str,
    as_json: bool,
    jobs: int,
) -> None:
    """List topics, partitions and segments: offsets, sizes, times, state."""
    chosen = common.select(arguments, topic, partition)
    for segment in chosen.disk.loose:
        with segment.open() as view:
            packed = packed_as(bytes(view.read(0, LOOK_BYTES)))
        if packed is not None:
            raise RequestError(f"{segment.path} is a {packed} file, not a segment: unpack it first")
    partitions = [p for p in chosen.disk.partitions if chosen.choice.has_number(p.partition)]
    if everything and chosen.choice.names:  # a name selects live partitions, and not the folders that await deletion
        there = {p.path for p in partitions}
        more = [p for log_dir in chosen.disk.log_dirs for p in log_dir.partitions if p.state and p.path not in there]
        partitions += [p for p in more if chosen.choice.takes(p.topic, p.partition)]
    if sort == "size":
        partitions.sort(key=bytes_on_disk, reverse=True)
    outcome: DiskList
    errors: list[StorageError | None] = []
    if by is not None:
        outcome = TopicList(partitions, sort == "size", everything)
    elif segments or not partitions:
        # With numpy, whose import takes longer than a list of partitions.
        from pylogseg.inspect.stats.listing_windows import segment_row

        shown = [segment for p in partitions for segment in p.segments] + list(chosen.disk.loose)
        if sort == "size":
            shown.sort(key=lambda segment: segment.size, reverse=True)
        rows = list(zip(shown, Threads(jobs).map(segment_row, shown), strict=True))
        outcome, errors = SegmentList(rows, partitions if everything else ()), [row.error for _, row in rows]
    else:
        listed = list(zip(partitions, Threads(jobs).map(partition_row, partitions), strict=True))
        outcome, errors = PartitionList(listed, everything), [row.error for _, row in listed]
    print_list(outcome, as_json)
    for notice in () if as_json else outcome.notices:
        common.complain(notice)
    common.end_with_unreadable([*(p.error for p in partitions), *errors])
