"""`pylogseg ls`: list what is on a broker's disk."""

from __future__ import annotations

import itertools
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.executor import Threads
from pylogseg.errors import RequestError
from pylogseg.format.foreign_formats import LOOK_BYTES, packed_as
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listing import (
    PartitionRow,
    SegmentRow,
    bytes_on_disk,
    companions_of,
    gaps_between,
    partition_fields,
    segment_fields,
    shown_path,
    state_of,
)
from pylogseg.walker.gaps import offsets_text

#: Name at most this many missing segments.
_NAMED = 5
#: Fields that few rows have.
_RARE = ("missingSegments", "error")

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
    errors: list[Any] = []
    if by is not None:
        _print_topics(partitions, sort, as_json)
    elif segments or not partitions:
        # With numpy, whose import takes longer than a list of partitions.
        from pylogseg.inspect.stats.listing_windows import segment_row

        found = [segment for p in partitions for segment in p.segments] + list(chosen.disk.loose)
        if sort == "size":
            found.sort(key=lambda segment: segment.size, reverse=True)
        rows = list(zip(found, Threads(jobs).map(segment_row, found), strict=True))
        _print_segments(rows, as_json)
        if not as_json:
            _print_gaps(rows)
        errors = [row.error for _, row in rows]
    else:
        listed = list(zip(partitions, Threads(jobs).map(partition_row, partitions), strict=True))
        _print_partitions(listed, as_json, everything)
        if not as_json:
            _print_missing(listed)
        errors = [row.error for _, row in listed]
    if everything and not as_json:
        _print_leftovers(partitions)
    common.end_with_unreadable([*(p.error for p in partitions), *errors])


def _print_topics(partitions: list[Partition], sort: str, as_json: bool) -> None:
    topics: dict[str, list[Partition]] = {}
    for p in partitions:
        topics.setdefault(p.topic or p.name, []).append(p)
    rows = [_topic_row(name, found) for name, found in topics.items()]
    rows.sort(key=lambda row: (-row["diskBytes"] if sort == "size" else 0, row["topic"]))
    if as_json:
        for row in rows:
            common.print_json(row)
        return
    total = _topic_row("TOTAL", partitions)
    table = [
        (row["topic"], row["partitions"], row["segments"], *map(size_text, (row["size"], row["diskBytes"])))
        for row in [*rows, total]
    ]
    heads = ["TOPIC", "PARTITIONS", "SEGMENTS", "SIZE", "ON DISK"]
    common.print_table(heads, table, right=heads[1:])


def _topic_row(name: str, partitions: list[Partition]) -> dict[str, Any]:
    return {
        "topic": name,
        "partitions": len(partitions),
        "segments": sum(len(p.segments) for p in partitions),
        "size": sum(p.size for p in partitions),
        "diskBytes": sum(map(bytes_on_disk, partitions)),
    }


def _print_partitions(rows: list[tuple[Partition, PartitionRow]], as_json: bool, everything: bool) -> None:
    if as_json:
        for partition, row in rows:
            common.print_json(_partition_json(partition, row, everything))
        return
    columns = ["TOPIC", "PARTITION", "STATE", "SEGMENTS", "START", "END", "SIZE", "FIRST TIME", "NEWEST TIME"]
    table: list[tuple[Any, ...]] = [
        (
            p.topic or p.name,
            None if p.partition < 0 else p.partition,
            state_of(p),
            *(
                (len(p.segments), row.log_start_offset, row.log_end_offset, size_text(p.size))
                if p.error is None
                else (None, None, None, None)
            ),
            common.time_text(row.first_timestamp),
            common.time_text(row.newest_timestamp),
        )
        for p, row in rows
    ]
    if len(rows) > 1:
        table.append(_total([p for p, _ in rows], [row for _, row in rows]))
    folders = [p.files.split(shown_path(p.files, p.path))[0] for p, _ in rows]
    if len(set(folders)) > 1:
        columns.append("LOG DIR")
        table = [(*line, folder) for line, folder in zip(table, [*folders, None], strict=True)]
    common.print_table(columns, table, right=["PARTITION", "SEGMENTS", "START", "END", "SIZE"])


def _print_missing(rows: list[tuple[Partition, PartitionRow]]) -> None:
    for partition, row in rows:
        if row.missing:
            names = [f"{base:020d}.log" for base in row.missing[:_NAMED]] + ["..."] * (len(row.missing) > _NAMED)
            missing = f"indexes without their segment: {', '.join(names)} (pylogseg verify reports what is missing)"
            common.complain(f"{partition.name}: {missing}")


def _print_gaps(rows: list[tuple[Segment, SegmentRow]]) -> None:
    for folder, found in itertools.groupby(rows, key=lambda each: each[0].files.split(each[0].path)[0]):
        for first, end in gaps_between(sorted((row for _, row in found), key=lambda row: row.base_offset)):
            common.complain(
                f"{folder}: {offsets_text(first, end)} are in no segment (pylogseg stats --gaps shows the reason)"
            )


def _total(partitions: list[Partition], rows: list[PartitionRow]) -> tuple[Any, ...]:
    first = [row.first_timestamp for row in rows if row.first_timestamp is not None]
    newest = [row.newest_timestamp for row in rows if row.newest_timestamp is not None]
    return (
        "TOTAL",
        f"of {len(rows):,}",
        None,
        sum(len(p.segments) for p in partitions),
        None,
        None,
        size_text(sum(p.size for p in partitions)),
        common.time_text(min(first, default=None)),
        common.time_text(max(newest, default=None)),
    )


def _partition_json(partition: Partition, row: PartitionRow, everything: bool) -> dict[str, Any]:
    fields = _shown(partition_fields(partition, row))
    if everything:
        fields["leftovers"] = [
            {"path": shown_path(partition.files, other.path), "suffix": other.name.suffix, "size": other.size}
            for other in partition.others
            if not other.name.is_live
        ]
    return fields


def _shown(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as JSON has them: null for a name that says no topic, and only what is wrong of what may be."""
    fields["topic"] = fields["topic"] or None
    fields["partition"] = fields["partition"] if fields["partition"] >= 0 else None
    return {name: value for name, value in fields.items() if name not in _RARE or value is not None}


def _print_segments(rows: list[tuple[Segment, SegmentRow]], as_json: bool) -> None:
    if as_json:
        for segment, row in rows:
            common.print_json(_shown(segment_fields(segment, row)))
        return
    columns = ["PARTITION", "SEGMENT", "STATE", "BASE", "END", "SIZE", "INDEXES", "FIRST TIME", "LARGEST TIME"]
    table: list[tuple[Any, ...]] = [
        (
            f"{s.topic}-{s.partition}" if s.topic else None,
            s.name,
            "active" if s.is_last else "sealed",
            row.base_offset,
            row.next_offset,
            size_text(row.size),
            ",".join(companions_of(s)) or None,
            common.time_text(row.first_timestamp),
            common.time_text(row.largest_timestamp),
        )
        for s, row in rows
    ]
    if len(rows) > 1:
        size = size_text(sum(row.size for _, row in rows))
        table.append(("TOTAL", f"of {len(rows):,}", *[None] * 3, size, *[None] * 3))
    common.print_table(columns, table, right=["BASE", "END", "SIZE"])


def _print_leftovers(partitions: list[Partition]) -> None:
    found = [(p.name, other) for p in partitions for other in p.others if not other.name.is_live]
    if not found:
        return
    click.echo()
    table = [
        (name, other.path.rsplit("/", 1)[-1], other.name.suffix or None, size_text(other.size)) for name, other in found
    ]
    common.print_table(["PARTITION", "LEFTOVER", "SUFFIX", "SIZE"], table, right=["SIZE"])
