"""`pylogseg archive`: back up the disks of a cluster, and look at the points in time that there are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click

from pylogseg.archive.looking import PointReport, archive_status, look_at_points
from pylogseg.archive.pruning import PointChanges, prune
from pylogseg.archive.writing import SPOOL_OPTION, ArchiveResult, write
from pylogseg.cli import common, completion
from pylogseg.cli.copy import copy_once
from pylogseg.cli.options import question_option
from pylogseg.cli.outcomes import end_with_outcome, print_list, print_outcome, print_part
from pylogseg.cli.points import keep_options
from pylogseg.cli.repeated import parse_interval, repeat
from pylogseg.cli.workers import Workers, parts_option, workers_option
from pylogseg.disk.tier.points import archive_store, find_point, read_point
from pylogseg.env.urls import CLUSTER_SCHEME

_EPILOG = """\b
Examples:
  pylogseg archive /data/kafka s3://bucket/archive
  pylogseg archive /mnt/broker1 /mnt/broker2 /mnt/broker3 /backup --jobs 4
  pylogseg archive /data/kafka /backup --every 60s --encrypt-to ops.pem --compress zstd
  pylogseg archive /data/kafka /backup --keep-last 24 --keep-daily 14
                                                   and prune, unless there are faults
  pylogseg archive /mnt/broker1 /mnt/broker2 s3://bucket/archive --spark yarn
  pylogseg archive kafka://broker:9092 s3://bucket/archive --spool /data/spool
                                                   of a cluster whose disks are not here
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


class ArchiveCommands(click.Group):
    """A group of commands; before a disk, the word `run` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word before a disk, or an option of it."""
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
    callback=common.parse_with(parse_interval),
    help="Go on, and write a point so often, until interrupted; a run that fails is reported, and the next one comes.",
)
@click.option(
    "--copy",
    metavar="DIR",
    help="The folder of the copy of a running cluster, whose kafka:// URL stands for its disks. Each run goes on with "
    "the copy, as `pylogseg copy` does, and archives it.",
)
@click.option(
    "--spool",
    metavar="DIR",
    help="For a running cluster without --copy: the folder for a segment of each partition at work, in place of "
    "TMPDIR.",
)
@click.option(
    "--forget",
    multiple=True,
    metavar="TOPIC[-PARTITION]",
    help="Leave this topic or partition out of new points: no disk has it any more, and the "
    "metadata shows no deletion. May be given again.",
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
    copy: str | None,
    spool: str | None,
    forget: tuple[str, ...],
    to_end: bool,
    encrypt_to: str | None,
    compress: str,
    max_bytes_per_second: int | None,
    as_json: bool,
    workers: Workers,
    **keep: Any,
) -> None:
    """Upload the missing offsets and write a point; with --keep-..., prune after a run without a fault.

    Which points stay, the --keep options say, as for `archive prune`.
    """
    if forget and every is not None:
        raise click.UsageError("--forget is for one run: leave out --every")
    is_cluster = any(disk.startswith(CLUSTER_SCHEME) for disk in disks)
    if (is_cluster and disks[1:]) or (copy is not None and (spool is not None or not is_cluster)):
        raise click.UsageError(
            "a running cluster is archived alone: kafka://HOST:PORT URL, with --copy DIR, --spool DIR, or neither"
        )
    how: dict[str, Any] = {"encrypt_to": encrypt_to, "compress": compress == "zstd", "to_end": to_end, "forget": forget}
    how["storage_options"] = {} if spool is None else {SPOOL_OPTION: spool}
    with workers.executor() as executor:
        how |= {"executor": executor, "max_bytes_per_second": max_bytes_per_second}

        def run_once() -> bool:
            if copy is not None:
                copy_once(disks[0], copy, {"jobs": None})
            done = _write(disks if copy is None else (copy,), url, how)
            print_outcome(done, as_json)
            if any(keep.values()):
                _prune_after(done, url, keep, as_json)
            return done.is_whole

        if every is None:
            common.end_with(not run_once())
        else:
            repeat(lambda: int(not run_once()), every)


def _write(disks: tuple[str, ...], url: str, how: dict[str, Any]) -> ArchiveResult:
    """Write a point, with a bar of the bytes to read; a look at the disks tells them."""
    with contextlib.ExitStack() as stack:
        moved: list[Callable[[int], None]] = []

        def begin(size: int) -> None:
            moved.append(stack.enter_context(common.progress(size, "archiving")))

        return write(disks, url, on_size=begin, on_bytes=lambda size: moved[0](size), **how)


def _prune_after(done: ArchiveResult, url: str, keep: dict[str, Any], as_json: bool) -> None:
    """Prune after a run without faults: after faults, an older point may have data that the new one lacks."""
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
    print_list(look, as_json)
    common.end_with(bool(look.exit_code))


@archive.command("status")
@_url
@click.option(
    "--max-age",
    callback=common.parse_with(common.parse_duration),
    metavar="TIME",
    help="Exit code 1 if the newest point is older, such as 10m, counted by the clock here.",
)
@common.json_option
def status(url: str, max_age: float | None, as_json: bool) -> None:
    """Print one line: the number of points, the age of the newest one, its gaps, and damage that verify found.

    The exit code is 1 if it lacks something, or an object is damaged.
    """
    state = archive_status(archive_store(url), max_age)
    print_list(state, as_json)
    common.end_with(bool(state.exit_code))


@archive.command("show")
@_url
@click.argument("point", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Name all that is missing, and print all notes.")
@common.json_option
def show(url: str, point: str | None, verbose: bool, as_json: bool) -> None:
    """Show the contents of a point, by default the newest; name it by its id, a unique prefix of it, or a time."""
    store = archive_store(url)
    contents = read_point(store, find_point(store, point=point))
    if as_json:
        common.write_stdout(contents.text.encode() + b"\n")
    else:
        print_part(PointReport(contents, verbose), as_json)


@archive.command("diff")
@_url
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@common.json_option
def diff(url: str, before: str, after: str, as_json: bool) -> None:
    """Show the changes from one point to another."""
    store = archive_store(url)
    print_list(PointChanges(read_point(store, before), read_point(store, after)), as_json)


@archive.command("prune")
@_url
@keep_options
@click.option("--dry-run", is_flag=True, help="Print the objects that would be removed, and remove nothing.")
@common.json_option
def prune_command(url: str, dry_run: bool, as_json: bool, **keep: Any) -> None:
    """Remove points, then objects that no remaining point needs; the newest point always remains."""
    end_with_outcome(prune(url, **keep, dry_run=dry_run), as_json)
