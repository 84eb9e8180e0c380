"""`pylogseg move`: partitions go to another log directory of the same broker."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli import completion
from pylogseg.cli.common import json_option
from pylogseg.cli.offline import EXIT_CODES, Request
from pylogseg.offline.moving import move as move_partitions

_EPILOG = f"""\b
Examples:
  pylogseg move /disk1/kafka /disk2/kafka orders-3      one partition
  pylogseg move /disk1/kafka /disk2/kafka orders        a topic
  pylogseg move /disk1/kafka /disk2/kafka '*' -n        all of it: only say what

\b
SRC and DST are log directories of one broker, which is stopped; DST may be an
empty folder. One partition after the other is copied, read back from the disk
and compared byte for byte, and its batches' CRCs are checked. Then the copy
gets its name, the original goes, and the lines of the checkpoints (recovery
point, log start, high watermark, cleaner) go with it.
After a crash or an interruption a partition is whole in SRC, in DST, or in
both: run the same command again, which ends what was begun. Until then a broker
refuses to start on both; it never finds half of one.
While the broker runs it moves partitions itself: kafka-reassign-partitions.sh
with "log_dirs". It need not be told of a move here: it tells the controller
where its partitions lie when it starts. Let it start once with both, before
an empty SRC leaves log.dirs.
Run it as the broker's user, to whom the files have to belong.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="DST", type=click.Path(exists=True, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completion.names)
@click.option("--topic", "-t", multiple=True, metavar="NAME", help="A topic, partition or pattern; repeatable.")
@click.option("--partition", "-p", multiple=True, type=int, metavar="N", help="Only this number; repeatable.")
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be moved; the disks stay as they are.")
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Only what went wrong.")
def move(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Move partitions from a log directory, SRC, to another one, DST, of the same broker, which is stopped."""
    options: dict[str, Any] = {"topics": (*names, *topic), "partitions": partition, "dry_run": dry_run}
    plan = move_partitions(source, target, **{**options, "dry_run": True})
    size = sum(outcome.bytes_before for outcome in plan if outcome.state == "done")
    Request(source, options, as_json, quiet).run(move_partitions, passes=2, total_bytes=size, target=target)
