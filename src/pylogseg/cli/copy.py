"""`pylogseg copy`: a consistent copy of a partition or a log directory, while a broker may write to it."""

from __future__ import annotations

from collections.abc import Callable

import click

from pylogseg.cli import common, completion
from pylogseg.offline.copying import copy as copy_log_dir
from pylogseg.offline.copying_partition import PartitionCopy

_EPILOG = r"""\b
Examples:
  pylogseg copy /data/kafka /backup/2026-01-31          all partitions
  pylogseg copy /data/kafka /backup/orders orders       one topic
  pylogseg copy /data/kafka/orders-3 /backup/o3         one partition, which
                                                        becomes /backup/o3/orders-3
  pylogseg copy /data/kafka /backup/x --dry-run         what, and how many bytes

\b
DST is a new log directory: an empty folder, or one that is not there. It is
made beside its place, as .DST.pylogseg-unfinished, and gets its name when all
of it is on the disk; so it is there whole or not at all. Start again after an
interruption: what it left is removed.
No lock is taken, nothing is written to SRC, and a broker may go on working.
Each partition is copied as it was at one moment; others at other moments. Of
the active segment as much is taken as has whole batches, and indexes,
snapshots, leader epochs and checkpoints are cut to that. Where retention, a
roll or the cleaner comes between, the partition is looked at again.
A broker that starts on the copy reads the active segments once more, as after
a crash. meta.properties is copied too: a copy for another broker needs that
one's own.

\b
Exit codes: 0 fine; 2 wrong usage, or a disk failed: a partition of which a
part cannot be read, or a small file of SRC, is left out and named, the
others are copied; 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="DST", type=click.Path())
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completion.names)
@click.option("--partition", "-p", multiple=True, type=int, metavar="N", help="Only this number; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only say what would be copied, and how many bytes.")
@common.json_option
@common.jobs_option
def copy(
    source: str,
    target: str,
    names: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    jobs: int,
) -> None:
    """Copy a partition or a log directory, SRC, into a new log directory, DST, while a broker may write to it."""
    plan = copy_log_dir(source, target, topics=names, partitions=partition, dry_run=True)
    tell = _teller(as_json, dry_run)
    if dry_run:
        done = plan
        for row in plan:
            tell(row)
    else:
        with common.progress(sum(row.bytes for row in plan), "copying") as advance:
            done = copy_log_dir(
                source, target, topics=names, partitions=partition, jobs=jobs, on_bytes=advance, on_partition=tell
            )
    failed = [row for row in done if row.state == "failed"]
    for row in failed:
        common.complain(f"{row.name} is not in the copy: {row.reason}")
    for unread in done.unread:
        common.complain(f"{unread}; the copy has none")
    code = 2 if failed or done.unread else 0
    if as_json:
        common.print_json(done.as_row())
        click.get_current_context().exit(code)
    for note in done.notes:
        click.echo(f"note: {note}")
    rows = [row for row in done if row.state == "copied"]
    click.echo(
        f"{'would copy' if dry_run else 'copied'} {len(rows)} partition{'' if len(rows) == 1 else 's'},"
        f" {common.size_text(sum(row.bytes for row in rows))}, to {done.target}"
        + ("; a broker trusts it as it is (clean shutdown)" if done.is_marked_clean else "")
    )
    click.get_current_context().exit(code)


def _teller(as_json: bool, dry_run: bool) -> Callable[[PartitionCopy], None]:
    def say(row: PartitionCopy) -> None:
        if as_json:
            common.print_json(row.as_row())
            return
        if row.state != "copied":
            click.echo(f"{row.name}: {row.state}: {row.reason}")
            return
        end = "" if dry_run else f", up to offset {row.log_end}"
        segments = f"{row.segments} segment{'' if row.segments == 1 else 's'}"
        click.echo(f"{row.name}: {segments}, {common.size_text(row.bytes)}{end}")
        if row.cut_bytes:
            click.echo(f"  left out: {row.cut_bytes} bytes after the last whole batch")
        for note in row.notes:
            click.echo(f"  note: {note}")

    def tell(row: PartitionCopy) -> None:
        common.told(say, row)  # a copy is made also where nobody reads of it

    return tell
