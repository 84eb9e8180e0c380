"""`pylogseg move`: move partitions to another log directory of the same broker."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from pylogseg.cli.common import json_option, quiet_option, target_folder, transfer_options
from pylogseg.cli.offline import EXIT_CODES, Request
from pylogseg.cli.tiers import DISK
from pylogseg.errors import RequestError
from pylogseg.offline.moving import move as move_partitions
from pylogseg.offline.options import Options
from pylogseg.offline.running import chosen_bytes

_EPILOG = f"""\b
Examples:
  pylogseg move /disk1/kafka /disk2/kafka orders-3      one partition
  pylogseg move /disk1/kafka /disk2/kafka orders        a topic
  pylogseg move /disk1/kafka /disk2/kafka '*' -n        all, as a dry run

\b
SRC and DST are log directories of the same, stopped broker; DST may be an empty
folder. Partitions are moved one after the other: each is copied, read back from
the disk and compared byte for byte, and the CRCs of its batches are checked. Then
the copy is renamed into place, the original is deleted, and its checkpoint
entries (recovery point, log start, high watermark, cleaner) move with it.
After a crash or an interruption each partition is complete in SRC, in DST, or in
both: run the same command again to finish. Until then a broker refuses to start
with a partition in both; it never finds a partial one.
A partition that is known to lack records (by checkpoints, indexes, leader epochs
or snapshots) is an error and stays where it is, with the evidence; --force moves
it as it is, and the exit code is still 1.
A running broker moves partitions itself: use kafka-reassign-partitions.sh with
"log_dirs". After a move with this command the broker needs no further step: it
reports to the controller where its partitions are when it starts. Before you
remove an empty SRC from log.dirs, start the broker once with both.
Run the command as the broker's user, who must own the files.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@transfer_options(
    {"type": DISK}, {"callback": target_folder}, "Report the partitions that would move, and change nothing."
)
@click.option("--force", is_flag=True, help="Move also partitions that lack records.")
@json_option
@quiet_option
def move(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Move partitions from one log directory of a stopped broker, SRC, to another one, DST."""
    choice: dict[str, Any] = {"topic": (*names, *topic) or None, "partition": partition or None}
    size = 0
    with contextlib.suppress(RequestError):  # what is in DST already
        size = chosen_bytes(source, Options.of(choice))
    Request(source, {**choice, "dry_run": dry_run}, as_json, quiet).run(
        move_partitions, passes=2, total_bytes=size, target=target, force=force
    )
