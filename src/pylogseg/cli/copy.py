"""`pylogseg copy`: copy a partition or a log directory consistently while a broker may write to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import DISK, Local
from pylogseg.offline.copying.command import copy as copy_log_dir
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.offline.options import Options
from pylogseg.offline.running import chosen_bytes

_EPILOG = r"""\b
Examples:
  pylogseg copy /data/kafka /backup/2026-01-31          all partitions
  pylogseg copy /data/kafka /backup/orders orders       one topic
  pylogseg copy /data/kafka/orders-3 /backup/o3         one partition, to
                                                        /backup/o3/orders-3
  pylogseg copy /data/kafka /backup/x --dry-run         list partitions and bytes

\b
DST is a new log directory: an empty folder, or a path that does not exist. The
copy is written beside it, to .DST.pylogseg-unfinished, and renamed when all of
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
Exit codes: 0 success; 1 records are known to be missing, or damage was seen;
2 wrong usage or a disk error (a partition or a small file of SRC that cannot be
read is reported and left out, the rest is copied); 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.transfer_options({"type": DISK}, {"type": Local()}, "Only list what would be copied, and how many bytes.")
@common.json_option
@common.jobs_option
def copy(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    jobs: int,
) -> None:
    """Copy a partition or a log directory, SRC, into a new log directory, DST, while a broker may write to it."""
    choice: dict[str, Any] = {"topic": (*names, *topic) or None, "partition": partition or None}
    size = 0 if dry_run else chosen_bytes(source, Options.of(choice))
    with common.progress(size, "copying") as advance:
        done = copy_log_dir(
            source,
            target,
            **choice,
            dry_run=dry_run,
            jobs=jobs,
            on_bytes=advance,
            on_partition=_reporter(as_json, dry_run),
        )
    failed = [row for row in done if row.state == "failed"]
    for row in failed:
        common.complain(f"{row.name} is not in the copy: {row.reason}")
    for unread in done.unread:
        common.complain(f"{unread}; it is not in the copy")
    is_lacking = common.report_lacking(done.lacking) or any(row.is_damaged for row in done) or bool(done.doubts)
    code = 2 if failed or done.unread else int(is_lacking)
    if as_json:
        common.print_json(done)
        click.get_current_context().exit(code)
    for doubt in done.doubts:
        click.echo(f"not known: {doubt}")
    for note in done.notes:
        say(f"note: {note}")
    rows = [row for row in done if row.state == "copied"]
    say(
        f"{'would copy' if dry_run else 'copied'} {len(rows)} partition{'' if len(rows) == 1 else 's'},"
        f" {common.size_text(sum(row.bytes for row in rows))}, to {done.target}"
        + ("; a broker trusts it as it is (clean shutdown)" if done.is_marked_clean and not done.doubts else "")
    )
    if rows and not dry_run:
        say("checksums of sealed segments were not computed: pylogseg verify does that")
    click.get_current_context().exit(code)


def _reporter(as_json: bool, dry_run: bool) -> Callable[[PartitionCopy], None]:
    def print_row(row: PartitionCopy) -> None:
        if as_json:
            common.print_json(row)
            return
        if row.state != "copied":
            say(f"{row.name}: {row.state}: {row.reason}")
            return
        end = "" if dry_run else f", up to offset {row.log_end}"
        segments = f"{row.segments} segment{'' if row.segments == 1 else 's'}"
        say(f"{row.name}: {segments}, {common.size_text(row.bytes)}{end}")
        if row.cut_bytes:
            say(f"  left out: {row.cut_bytes} bytes after the last whole batch")
        for note in row.notes:
            say(f"  note: {note}")

    def report(row: PartitionCopy) -> None:
        common.try_print(print_row, row)  # the copy goes on if the pipe is closed

    return report
