"""`pylogseg truncate`: truncate a partition to an offset, as a broker does."""

from __future__ import annotations

import click

from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.truncating import truncate as truncate_log

_COLUMNS = {"endBefore": "END BEFORE", "firstGone": "FIRST GONE"}

_EPILOG = f"""\b
Examples:
  pylogseg truncate /data/kafka/orders-3 --to 1500 --dry-run
  pylogseg truncate /data/kafka orders-3 --to 1500
  pylogseg truncate /data/kafka/orders-3 --to 1500 --into /tmp/try

\b
Only whole batches are removed: if OFFSET is inside a batch, the log ends before
that batch, and the report says so.
`pylogseg dump FILE.log` shows where batches begin.
This deletes records. A follower fetches them again from its leader; a leader
makes its followers truncate too. Make a copy first: pylogseg copy, or --into.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option(
    "--to",
    required=True,
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="The new log end: remove this offset and all after it.",
)
def truncate(request: Request, to: int) -> None:
    """Truncate a partition: remove the batch that holds an offset, and all after it.

    Indexes, producer snapshots, leader epochs and the checkpoints of recovery point, high watermark, log start and
    cleaner are cut to match, as by a broker.
    """
    request.run(truncate_log, columns=_COLUMNS, to=to)
