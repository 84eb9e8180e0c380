"""`pylogseg diff`: compare the records of two partitions or directories."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from pylogseg.cli import common, completion, tiers
from pylogseg.cli.options import question_option, reading_options
from pylogseg.cli.outcomes import print_part, print_parts
from pylogseg.cli.outputs import check_output, refuse_overwriting
from pylogseg.cli.streams import say
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.env.beside import whole
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.words import count_text
from pylogseg.offline.aligned_result import AlignedDifference
from pylogseg.offline.aligning import WINDOW
from pylogseg.offline.comparing import Difference, Differences
from pylogseg.offline.comparing import diff as compare
from pylogseg.offline.comparing_content import diff_by_content
from pylogseg.reading.offset_range import OffsetRange, parse_offsets
from pylogseg.reading.state import Reading
from pylogseg.values.internal.mirror_map import MapWriter, check_map_name

_EPILOG = r"""\b
Examples:
  pylogseg diff /data/kafka /backup/kafka               all partitions
  pylogseg diff /data/kafka /backup/kafka orders        one topic
  pylogseg diff /data/1/orders-3 /data/2/orders-3 --common   two replicas
  pylogseg diff before/users-0 after/users-0 --latest   is one a compaction of
                                                        the other?
  pylogseg diff A B --offsets-only --json
  pylogseg diff kafka://here:9092 kafka://there:9092 orders --by-content \
      --rename "*=source.*" --map offsets.csv     a mirror by MirrorMaker

\b
Compared: key, value, timestamp and headers of each record, including transaction
markers. Not compared: codecs, batches, segments, indexes, producers, leader
epochs. A "missing" record is in A only, an "extra" one in B only; a "changed" one
is in both with different content. Ranges of offsets include both ends. Each side
is read from its own log start offset.
Both sides are read once, in bounded memory; a broker may write to either.

\b
--by-content is for a mirror, in which the same record has another offset: the
records are aligned by their order. Left out are markers, and records of aborted
transactions unless --isolation-level read_uncommitted is given. A "double" record
is in B once more, a "moved" one elsewhere, a "changed" one has the same key and
timestamp. A record that is further away than --window counts as missing and
extra. --map writes which offset of A is which of B, for "groups --map-to FILE".

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
@click.option("--by-content", is_flag=True, help="Align both sides by their records, where the offsets differ.")
@click.option(
    "--map", "map_file", metavar="FILE",
    help="With --by-content: write the offsets of A and B to FILE, as CSV (.csv) or JSON lines (.jsonl).",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the FILE of --map if it exists.")
@click.option(
    "--rename", multiple=True, metavar="A=B",
    help="With --by-content: topic A is B on the other side; one * stands for any text, as in '*=source.*'.",
)  # fmt: skip
@click.option(
    "--window", type=click.IntRange(min=2), metavar="N",
    help=f"With --by-content: compare N records of each side at a time (default: {WINDOW:,}).",
)  # fmt: skip
@click.option("--ignore-timestamps", is_flag=True, help="With --by-content: records may have other timestamps.")
@click.option("--common", "in_common", is_flag=True, help="Compare only the offset range that both sides have.")
@click.option(
    "--offset",
    "-o",
    "offsets",
    metavar="A:B",
    callback=common.parse_with(parse_offsets),
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
    by_content: bool,
    map_file: str | None,
    overwrite: bool,
    rename: tuple[str, ...],
    window: int | None,
    ignore_timestamps: bool,
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
    if offsets_only + latest + by_content > 1:
        raise RequestError("--offsets-only, --latest and --by-content cannot be combined")
    if not by_content and (map_file or rename or window or ignore_timestamps):
        raise RequestError("--map, --rename, --window and --ignore-timestamps need --by-content")
    if overwrite and not map_file:
        raise RequestError("--overwrite needs --map")
    sides = open_dir(a), open_dir(b)
    if map_file is not None:
        _check_map(map_file, overwrite, sides)
    chosen = PartitionChoice.of((*names, *topic) or None, partition or None)
    for side in sides:
        with contextlib.suppress(RequestError):  # the comparison says that it is not there
            common.report_notes(side.select(*chosen.arguments), from_log_start=from_log_start)
    passes = 2 if latest else 1
    size = passes * sum(map(_size, sides))
    with workers.executor() as executor, common.progress(size, "comparing") as advance:
        how: Any = reading.keywords | {
            "offset": offsets,
            "common": in_common,
            "from_log_start": from_log_start,
            "max_ranges": max_ranges,
            "executor": executor,
            "on_bytes": advance,
        }
        asked = [*names, *topic] or None, list(partition) or None
        outcome: Differences
        if by_content:
            if _is_given("isolation_level"):
                how["isolation_level"] = reading.isolation_level
            how |= {} if window is None else {"window": window}
            rules = dict(map(_rule, rename))
            outcome = diff_by_content(*sides, *asked, rename=rules, ignore_timestamps=ignore_timestamps, **how)
        else:
            mode: Any = "offsets" if offsets_only else "latest" if latest else "records"
            outcome = compare(*sides, *asked, mode=mode, **how)
        outcome.is_damaged = common.is_damage_met()
        try:
            with _map(outcome, map_file, is_shown=not (quiet or as_json)) as parts:
                print_parts(parts, as_json, lambda part: not quiet and (as_json or not part.is_same))
        except CorruptionError as error:
            if not quiet and not as_json:
                print_part(outcome, as_json)
            common.complain(common.remedy(error))
            click.get_current_context().exit(2)
    if not quiet:
        print_part(outcome, as_json)
    click.get_current_context().exit(outcome.exit_code)


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _rule(text: str) -> tuple[str, str]:
    name, equals, other = text.partition("=")
    if not equals:
        raise RequestError(f"--rename {text}: expected A=B")
    return name, other


def _check_map(path: str, overwrite: bool, sides: Iterable[Disk]) -> None:
    check_map_name(path)
    for side in sides:
        check_output(Path(path), side)
    refuse_overwriting(Path(path), overwrite)


@contextlib.contextmanager
def _map(outcome: Differences, path: str | None, *, is_shown: bool) -> Iterator[Any]:
    """Yield the comparison, whose partitions write their runs into a map as they are compared."""
    if path is None:
        yield outcome
        return
    with whole(Path(path)) as file:
        writer = MapWriter(file, path)
        yield _Mapping(outcome, writer)
    if is_shown:
        say(f"{path}: {count_text(writer.runs, 'run')} of offsets")


class _Mapping(NamedTuple):
    outcome: Differences
    writer: MapWriter

    def parts(self) -> Iterator[Difference]:
        for part in self.outcome.parts():
            if isinstance(part, AlignedDifference):
                self.writer.add(part.map)
                if part.is_damaged:
                    common.complain(f"{part.name}: it has damage, so that the map has no offsets of it")
            yield part


def _size(disk: Disk) -> int:
    return sum(segment.size for segment in disk.segments)
