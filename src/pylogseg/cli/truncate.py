"""`pylogseg truncate`: a partition ends at an offset, as after a broker's truncation."""

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
A batch goes as a whole: where OFFSET lies inside of one, the log ends in front
of that batch, and the report says so.
`pylogseg dump FILE.log` shows where batches begin.
This loses records. A follower gets them again from its leader; a leader makes
its followers cut theirs. Keep a copy first: pylogseg copy, or --into.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option(
    "--to",
    required=True,
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="The log ends here: this offset and all after it go.",
)
def truncate(request: Request, to: int) -> None:
    """Cut off the end of a partition: the batch that holds an offset, and all after it.

    Indexes, producer snapshots and leader epochs are cut too, and the checkpoints of recovery point, high watermark,
    log start and cleaner follow, as after a truncation by a broker.
    """
    request.run(truncate_log, columns=_COLUMNS, to=to)
