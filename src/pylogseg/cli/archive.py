"""`pylogseg archive`: back up the disks of a cluster, and look at the points in time that there are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import click

from pylogseg.archive.looking import PointsLook, look_at_newest, look_at_points
from pylogseg.archive.pruning import differences, prune
from pylogseg.archive.writing import ArchiveResult, write
from pylogseg.cli import common, completion
from pylogseg.cli.options import question_option
from pylogseg.cli.outcomes import Columns, Row, end_with_outcome, print_outcome, print_rows
from pylogseg.cli.points import keep_options
from pylogseg.cli.streams import say
from pylogseg.cli.workers import Workers, parts_option, workers_option
from pylogseg.disk.notes import joined_lines
from pylogseg.disk.tier.at_point import UNSEALED
from pylogseg.disk.tier.point import ArchivedPartition, PointHead
from pylogseg.disk.tier.points import archive_store, find_point, read_point
from pylogseg.env.interrupts import answered
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, is_missing
from pylogseg.format.columns import to_row
from pylogseg.format.words import FEW, count_text, size_text

_EPILOG = """\b
Examples:
  pylogseg archive /data/kafka s3://bucket/archive
  pylogseg archive /mnt/broker1 /mnt/broker2 /mnt/broker3 /backup --jobs 4
  pylogseg archive /data/kafka /backup --every 60s --encrypt-to ops.pem --compress zstd
  pylogseg archive /data/kafka /backup --keep-last 24 --keep-daily 14
                                                   and prune, unless there are faults
  pylogseg archive /mnt/broker1 /mnt/broker2 s3://bucket/archive --spark yarn
  pylogseg archive status /backup --max-age 10m    one line, for an alarm
  pylogseg archive points /backup
  pylogseg archive show /backup 20261128T
  pylogseg archive diff /backup 20261127T20 20261128T20
  pylogseg archive prune /backup --keep-last 24 --keep-daily 14 --dry-run

\b
A run uploads what is not there yet, and writes a point: what each partition was
at that time. Brokers may run; of the active segment, what is below the high
watermark is uploaded. Replicas are one copy. A run may be killed anywhere.

\b
The objects lie as tiered storage does in Aiven's layout: aiven+file:///backup is
what other commands read. A DISK with the name of a subcommand is ./points.
Exit codes: 0 success; 1 damage, or committed records that no disk has; 2 wrong
usage, or a disk or store error; 130 interrupted.
"""
_RUN = "run"
_POINTS: Columns = {
    "POINT": "point",
    "TIME": "time",
    "PARTITIONS": "partitions",
    "SIZE": lambda row: size_text(row["bytes"]),
    "NOT SEEN": lambda row: "unknown" if row["notSeen"] is None else row["notSeen"],
    "FAULTS": "faults",
}
_CHANGES: Columns = {
    "PARTITION": lambda row: f"{row['topic']}-{row['partition']}",
    "CHANGE": "change",
    "BEFORE": lambda row: _ends_text(row["before"]),
    "AFTER": lambda row: _ends_text(row["after"]),
    "ADDED": "objectsAdded",
    "REMOVED": "objectsRemoved",
    "BYTES": "bytesAdded",
}


def _ends_text(side: Row | None) -> str:
    return "" if side is None else f"{side['start']}:{side['end']}"


def _parse_interval(text: str) -> float:
    seconds = common.parse_duration(text)
    if seconds < 1:
        raise RequestError(f"invalid time {text!r}: expected 1s or more between two points")
    return seconds


class ArchiveCommands(click.Group):
    """A group of which the first word may be left out: what is no subcommand is a disk."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word before what is a disk, or an option of it."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


@click.group(cls=ArchiveCommands, epilog=_EPILOG)
def archive() -> None:
    """Back up the disks of a cluster's brokers, each segment once, with points in time: DISK... URL."""


@archive.command(_RUN)
@click.argument("disks", nargs=-1, required=True, metavar="DISK...", shell_complete=completion.files)
@click.argument("url", metavar="URL", shell_complete=completion.files)
@click.option(
    "--every",
    callback=common.parsed(_parse_interval),
    help="Go on, and write a point so often, until interrupted; a run that fails is reported, and the next one comes.",
)
@click.option(
    "--forget",
    multiple=True,
    metavar="TOPIC[-PARTITION]",
    help="Leave out of the points what no disk has any more, and nobody deleted by the metadata. May be given again.",
)
@click.option(
    "--to-end",
    is_flag=True,
    help="Archive a log to its end where no file says its high watermark: of a broker that does not come back.",
)
@click.option("--encrypt-to", metavar="PEM", help="Encrypt to a public RSA key; the name of the file is its id.")
@click.option("--compress", type=click.Choice(["none", "zstd"]), default="none", show_default=True)
@question_option("max_bytes_per_second")
@lambda function: workers_option(function, parts_option)
@keep_options
@common.json_option
def run(
    disks: tuple[str, ...],
    url: str,
    every: float | None,
    forget: tuple[str, ...],
    to_end: bool,
    encrypt_to: str | None,
    compress: str,
    max_bytes_per_second: int | None,
    as_json: bool,
    workers: Workers,
    **keep: Any,
) -> None:
    """Upload what is not there yet, and write a point; with --keep-..., prune after a run without a fault.

    Which points stay, the --keep options say, as for `archive prune`.
    """
    if forget and every is not None:
        raise click.UsageError("--forget is for one run: leave out --every")
    how: dict[str, Any] = {"encrypt_to": encrypt_to, "compress": compress == "zstd", "to_end": to_end, "forget": forget}
    with workers.executor() as executor:
        how |= {"executor": executor, "max_bytes_per_second": max_bytes_per_second}

        def run_once() -> bool:
            done = _write(disks, url, how)
            print_outcome(done, as_json)
            if any(keep.values()):
                _prune_after(done, url, keep, as_json)
            return done.is_whole

        if every is None:
            common.end_with(not run_once())
        else:
            _repeat(run_once, every)


def _repeat(run_once: Callable[[], bool], seconds: float) -> None:
    """Run until interrupted, also after runs that failed; the exit code is the worst one of them, 130 without any.

    The first run ends it for an error of usage and for a disk that is not there; later ones may miss a disk that comes
    back.
    """
    worst, is_first = 0, True
    try:
        while True:
            began = time.monotonic()
            try:
                worst = max(worst, 0 if run_once() else 1)
            except PylogsegError as error:
                if is_first and (isinstance(error, RequestError) or is_missing(error)):
                    raise
                common.complain(f"{common.remedy(error)}; the next run is in {_span_text(seconds)}")
                worst = max(worst, 1 if isinstance(error, CorruptionError) else 2)
            is_first = False
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    except KeyboardInterrupt:
        if worst:
            answered()
            click.get_current_context().exit(worst)
        raise


def _write(disks: tuple[str, ...], url: str, how: dict[str, Any]) -> ArchiveResult:
    """Write a point, with a bar of what has to be read for it, which is known after a look at the disks."""
    with contextlib.ExitStack() as stack:
        moved: list[Callable[[int], None]] = []

        def begin(size: int) -> None:
            moved.append(stack.enter_context(common.progress(size, "archiving")))

        return write(disks, url, on_size=begin, on_bytes=lambda size: moved[0](size), **how)


def _prune_after(done: ArchiveResult, url: str, keep: dict[str, Any], as_json: bool) -> None:
    """Prune after a run, unless it has faults: an older point may have what the new one lacks."""
    if not done.is_whole:
        common.complain("nothing was pruned: the run has faults, and older points may have what this one lacks")
        return
    print_outcome(prune(url, **keep), as_json)


_url = click.argument("url", metavar="URL", shell_complete=completion.files)


@archive.command("points")
@_url
@common.json_option
def points(url: str, as_json: bool) -> None:
    """List the points."""
    look = look_at_points(archive_store(url))
    print_rows([to_row(head) for head in look.heads], _POINTS, as_json, [*_POINTS][2:])
    for each in look.damage:
        common.complain(str(each))
    common.end_with(bool(look.damage))


@archive.command("status")
@_url
@click.option(
    "--max-age",
    callback=common.parsed(common.parse_duration),
    metavar="TIME",
    help="Exit code 1 if the newest point is older, such as 10m, counted by the clock here.",
)
@common.json_option
def status(url: str, max_age: float | None, as_json: bool) -> None:
    """Say in one line how many points there are, how old the newest is, and what it lacks or verify found damaged.

    The exit code is 1 if it lacks something, or an object is damaged.
    """
    store = archive_store(url)
    look = look_at_newest(store)
    if not look.names and not look.damage:
        raise RequestError(f"{store.url}: the archive has no point yet")
    head, is_late = look.newest, False
    if head is not None:
        seconds = max(0, time.time_ns() // 1_000_000 - head.time_ms) / 1000
        is_late = max_age is not None and seconds > max_age
        _print_status(look, head, seconds, is_late, as_json)
    if is_late:
        common.complain(f"{store.name(look.names[-1].key)}: the newest point is {_span_text(seconds)} old")
    for error in look.damage:
        common.complain(str(error))
    common.end_with(head is None or bool(head.faults or look.damage) or is_late)


def _print_status(look: PointsLook, head: PointHead, seconds: float, is_late: bool, as_json: bool) -> None:
    if as_json:
        fields = {"point": head.id, "ageSeconds": seconds, "partitions": head.partitions, "bytes": head.size}
        lacking = {"notSeen": head.not_seen, "faults": head.faults, "damage": len(look.damage)}
        common.print_json({"type": "status", "points": len(look.names), **fields, **lacking, "isLate": is_late})
        return
    numbers = count_text(head.partitions, "partition"), size_text(head.size)
    unseen = "unknown" if head.not_seen is None else head.not_seen
    lacks = f"{count_text(head.faults, 'fault')}, not seen: {unseen}"
    age = f"the newest {_span_text(seconds)} old"
    say(f"{count_text(len(look.names), 'point')}, {age}: {', '.join(numbers)}, {lacks}")


def _span_text(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@archive.command("show")
@_url
@click.argument("point", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Name all that is missing, and print all notes.")
@common.json_option
def show(url: str, point: str | None, verbose: bool, as_json: bool) -> None:
    """Show what a point has, the newest by default; a beginning of its id is enough, or a time."""
    store = archive_store(url)
    found = read_point(store, find_point(store, point=point))
    if as_json:
        common.write(found.text.encode() + b"\n")
        return
    say(f"{found.id} of cluster {found.cluster_id or 'unknown'}, by {found.writer}")
    for disk in found.disks:
        say(f"disk {disk.path}: node {disk.node_id}, {disk.state}")
    if found.not_seen is None:
        say("no disk has the metadata of the cluster: which partitions are not here, is not known")
    commits = [f"{each.group}: {each.topic}-{each.partition}, {each.offset}" for each in found.above_end]
    topics, notes = {part.topic for part in found.partitions}, [n for n in found.notes if n not in found.faults]
    lists = {
        "not seen": [f"{each.topic}-{each.partition}" for each in found.not_seen or ()],
        "above the end": commits,
        "fault": found.faults if verbose else list(joined_lines(found.faults, topics)),
        "note": [
            *(notes if verbose else joined_lines(notes, topics)),
            *(() if found.is_sealed else (UNSEALED,)),
        ],
    }
    for label, texts in lists.items():
        shown = texts if verbose else texts[:FEW]
        say(*(f"{label}: {text}" for text in shown))
        if len(texts) > len(shown):
            say(f"{label}: {len(texts) - len(shown):,} more, {len(texts):,} in all (--verbose prints them)")
    columns = ["PARTITION", "TOPIC ID", "START", "END", "STABLE", "SEGMENTS", "BYTES", "FAULT"]
    common.print_table(columns, [_row(each) for each in found.partitions], columns[2:7])


def _row(partition: ArchivedPartition) -> tuple[Any, ...]:
    size = sum(stored.size for stored in partition.objects.values())
    ends = partition.start_offset, partition.end_offset, partition.last_stable_offset
    return partition.name, partition.topic_id, *ends, len(partition.segments), size, partition.fault


@archive.command("diff")
@_url
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@common.json_option
def diff(url: str, before: str, after: str, as_json: bool) -> None:
    """Show what changed from one point to another."""
    store = archive_store(url)
    rows = list(differences(read_point(store, before), read_point(store, after)))
    print_rows(rows, _CHANGES, as_json, [*_CHANGES][4:])


@archive.command("prune")
@_url
@keep_options
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@common.json_option
def prune_command(url: str, dry_run: bool, as_json: bool, **keep: Any) -> None:
    """Remove points, and what no kept point needs; the newest one is always kept."""
    end_with_outcome(prune(url, **keep, dry_run=dry_run), as_json)
