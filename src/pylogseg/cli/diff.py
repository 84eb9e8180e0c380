"""`pylogseg diff`: compare the records of two partitions or directories."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from pylogseg.cli import common, completion, tiers
from pylogseg.cli.query import OffsetRange, parse_offsets
from pylogseg.cli.streams import say
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, open_dir
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.offline.comparing import Difference, DifferentRange
from pylogseg.offline.comparing import diff as compare
from pylogseg.walker.gaps import offsets_text

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
@common.below_log_start_option
@click.option(
    "--max-ranges", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
    help="List at most N ranges of each partition; all are counted.",
)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; report through the exit code.")
@common.isolation_option
@common.on_corrupt_option()
@common.decompressed_option("counts as damaged")
@common.rate_option
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
    below_log_start: bool,
    quiet: bool,
    as_json: bool,
    workers: Workers,
    **options: Any,
) -> None:
    """Compare the records of two partitions or directories, A and B, however they are batched."""
    if offsets_only and latest:
        raise RequestError("--offsets-only and --latest cannot be combined")
    sides = open_dir(a), open_dir(b)
    chosen = PartitionChoice.of((*names, *topic) or None, partition or None)
    for side in sides:
        with contextlib.suppress(RequestError):  # the comparison says that it is not there
            common.report_notes(side.select(*chosen.arguments), from_log_start=not below_log_start)
    mode: Any = "offsets" if offsets_only else "latest" if latest else "records"
    passes = 2 if latest else 1
    size = passes * sum(map(_size, sides))
    with workers.executor() as executor, common.progress(size, "comparing") as advance:
        found = compare(
            *sides,
            [*names, *topic] or None,
            list(partition) or None,
            mode=mode,
            offset=_range_of(offsets),
            common=in_common,
            from_log_start=not below_log_start,
            executor=executor,
            on_bytes=advance,
            **options,
        )
        code = _print(found, as_json, quiet)
    click.get_current_context().exit(code)


def _range_of(offsets: OffsetRange | None) -> tuple[int | None, int | None]:
    if offsets is None:
        return None, None
    first, end, at_most = offsets
    if (first or 0) < 0 or (end or 0) < 0:
        raise RequestError(
            "diff does not accept offsets from the end, which differ between the sides: give absolute offsets"
        )
    return first, end if at_most is None else (first or 0) + at_most


def _size(disk: Disk) -> int:
    return sum(segment.size for segment in disk.segments)


def _print(found: Iterator[Difference], as_json: bool, quiet: bool) -> int:
    """Print the differences as they are found; return the exit code."""
    total = {"partitions": 0, "differ": 0, "missing": 0, "changed": 0, "extra": 0, "recordsA": 0, "recordsB": 0}
    damaged = common.is_damage_met()
    try:
        for row in found:
            damaged |= common.report_gaps(row.gaps)
            counts = (1, not row.is_same, row.missing, row.changed, row.extra, row.records_a, row.records_b)
            total = {name: total[name] + count for name, count in zip(total, counts, strict=True)}
            if as_json and not quiet:
                common.try_print(common.print_json, row)
            elif not quiet:
                common.try_print(say, *_lines(row))
    except CorruptionError as error:
        common.complain(common.remedy(error))
        return 2
    if as_json and not quiet:
        common.try_print(common.print_json, {"type": "summary", **total, "damaged": damaged})
    return 2 if damaged else int(total["differ"] > 0)


def _lines(row: Difference) -> Iterator[str]:
    if row.path_a is None or row.path_b is None:
        yield f"{row.name}: only in {row.path_b if row.path_a is None else row.path_a}"
    elif row.is_same:
        first, end = row.compared
        offsets = offsets_text(first, end) if first < end else "no offsets to compare"
        yield f"{row.name}: the same, {row.records_a} records, {offsets}"
    elif not (row.missing or row.changed or row.extra):
        yield f"{row.name}: damaged; no difference in what can be read ({row.records_a} records)"
    else:
        yield (
            f"{row.name}: {row.missing} missing, {row.changed} changed, {row.extra} extra"
            f" ({row.records_a} records in A, {row.records_b} in B)"
        )
        if row.log_starts[0] != row.log_starts[1]:
            yield f"  log start offsets: {row.log_starts[0]} in A, {row.log_starts[1]} in B (--common skips this)"
        yield from map(_line, row.ranges)
        if row.unlisted:
            yield f"  and {row.unlisted} more ranges (--max-ranges lists more)"


def _line(found: DifferentRange) -> str:
    offsets = str(found.first_offset)
    if found.last_offset > found.first_offset:
        offsets += f"-{found.last_offset}"
    what = ", ".join(found.fields) or f"{found.records} record{'s' if found.records > 1 else ''}"
    return f"  {found.kind:<8}{offsets:<24}{what}"
