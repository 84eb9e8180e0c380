"""`pylogseg copy`: copy a partition or a log directory consistently while a broker may write to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.outcomes import end_with_outcome, print_part
from pylogseg.cli.repeated import parse_interval, repeat
from pylogseg.cli.tiers import Local, LocalOrCluster
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.format.codec_error import in_shell
from pylogseg.offline.copying.command import copy as copy_log_dir
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.options import Options
from pylogseg.offline.running import chosen_bytes

_EPILOG = r"""\b
Examples:
  pylogseg copy /data/kafka /backup/2026-01-31          all partitions
  pylogseg copy /data/kafka /backup/orders orders       one topic
  pylogseg copy /data/kafka/orders-3 /backup/o3         one partition, to
                                                        /backup/o3/orders-3
  pylogseg copy /data/kafka /backup/x --dry-run         list partitions and bytes
  pylogseg copy kafka://broker:9092/orders /backup/y    a topic of a running
                                                        cluster, up to its high
                                                        watermarks; once more:
                                                        what came since then
  pylogseg copy kafka://broker:9092 /backup/z --follow --every 5s

\b
DST is a new log directory: an empty folder, or a path that does not exist. Of a
disk, the copy is written beside it, to .DST.pylogseg-unfinished, and renamed when all of
it is on the disk, so DST is complete or missing. After an interruption run the
same command again; it removes what was left.
The command takes no lock and writes nothing to SRC; a broker may keep running.
Each partition is copied as of one moment, different partitions as of different
moments. The active segment is copied up to its last complete batch, and indexes,
snapshots, leader epochs and checkpoints are cut to match. If retention, a roll
or the cleaner changes a partition meanwhile, it is read again.
A broker that starts on the copy reads the active segments once more, as after
a crash, unless SRC had a clean shutdown. meta.properties is copied too: for
another broker, replace it with that broker's own.

\b
What SRC is known to lack is reported: offsets that checkpoints, indexes, leader
epochs or snapshots prove, and partitions that the cluster's metadata assigns to
this disk. So is damage that headers show; checksums of sealed segments are left
to `pylogseg verify`. The rest is copied, without the indexes of missing segments,
no checkpoint is above the end of its log, and the exit code is 1.

\b
A cluster is copied into DST itself, which has a file pylogseg-copy.json: the next
run goes on at the end of each log, also after one that was killed. A partition
stops where it cannot go on: its topic was made again, or an unclean election has
cut its log. Transactions stay as they are in the cluster; --end-transactions ends
open ones in the copy, which then never goes on.

\b
Exit codes: 0 success; 1 records are known to be missing, damage was seen, or the
copy of a partition has stopped;
2 wrong usage or a disk error (a partition or a small file of SRC that cannot be
read is reported and left out, the rest is copied); 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.transfer_options(
    {"type": LocalOrCluster(exists=True, file_okay=False)},
    {"type": Local()},
    "Only list the partitions that would be copied, with their bytes.",
)
@click.option(
    "--follow", "-F", is_flag=True, help="For a cluster: continue, and copy new records every --every, until Ctrl-C."
)
@click.option(
    "--every",
    default="10s",
    show_default=True,
    callback=common.parse_with(parse_interval),
    help="Time between the beginnings of two runs of --follow.",
)
@click.option(
    "--end-transactions",
    is_flag=True,
    help="For a cluster: end open transactions in the copy; it never goes on then.",
)
@common.json_option
@common.jobs_option
def copy(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    follow: bool,
    every: float,
    end_transactions: bool,
    as_json: bool,
    jobs: int,
) -> None:
    """Copy a partition or a log directory, SRC, into a new log directory, DST, while a broker may write to it."""
    choice: dict[str, Any] = {"topic": (*names, *topic) or None, "partition": partition or None}
    how: dict[str, Any] = {**choice, "dry_run": dry_run, "end_transactions": end_transactions, "jobs": jobs}
    if not follow:
        how["on_partition"] = functools.partial(print_part, as_json=as_json)  # the copy goes on if the pipe is closed
        end_with_outcome(copy_once(source, target, how), as_json)
        return
    if not source.startswith(CLUSTER_SCHEME) or dry_run or end_transactions:
        raise click.UsageError("--follow is for a cluster, kafka://HOST:PORT, without --dry-run or --end-transactions")
    reported: set[str] = set()

    def run_once() -> int:
        done = copy_once(source, target, how)
        _print_news(done, reported, as_json)
        return done.exit_code

    repeat(run_once, every)


def copy_once(source: str, target: str, how: dict[str, Any]) -> Copied:
    """Copy, with a bar of the bytes to come; a look at a cluster tells them."""
    with contextlib.ExitStack() as stack:
        moved: list[Callable[[int], None]] = []

        def begin(size: int) -> None:
            moved.append(stack.enter_context(common.progress(0 if how.get("dry_run") else size, "copying")))

        if not source.startswith(CLUSTER_SCHEME):
            choice = {name: how.get(name) for name in ("topic", "partition")}
            begin(0 if how.get("dry_run") else chosen_bytes(source, Options.of(choice)))
        return copy_log_dir(source, target, **how, on_size=begin, on_bytes=lambda size: moved[0](size))


def _print_news(done: Copied, reported: set[str], as_json: bool) -> None:
    """Print the partitions that a run of many has copied, and new warnings."""
    for warning in done.warnings():
        if warning not in reported:
            common.complain(in_shell(warning))
    rows = [row for row in done if row.state == "copied" or (row.state != "unchanged" and row.reason not in reported)]
    reported.clear()
    reported.update(done.warnings(), (row.reason for row in done if row.reason))
    for part in (*rows, done) if rows else ():
        print_part(part, as_json)
