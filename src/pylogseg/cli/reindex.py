"""`pylogseg reindex`: indexes, producer snapshots and leader epochs anew from the log."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.reindexing import KINDS
from pylogseg.offline.reindexing import reindex as reindex_logs

_COLUMNS = {"filesWritten": "WRITTEN", "filesRemoved": "REMOVED"}

_EPILOG = f"""\b
Examples:
  pylogseg reindex /data/kafka --dry-run                what does not fit the logs
  pylogseg reindex /data/kafka orders --only time
  pylogseg reindex /data/kafka/orders-3 --only snapshots --only epochs

\b
The log is read from its beginning and not changed. Only files that differ from
what a broker's recovery makes are written. index.interval.bytes and
segment.index.bytes decide how: give them by --config where the topic has its own
and there is no cluster metadata.
Producer snapshots and leader epochs may tell more than the log does: of batches
that were deleted or cleaned away, and of leaders that wrote nothing. So without
--only those are made that are missing or cannot be read, and the others stay.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(KINDS)),
    help="What to make anew; repeatable. Default: the three indexes, and of the rest what is missing or broken.",
)
def reindex(request: Request, only: Sequence[str]) -> None:
    """Make offset, time and transaction indexes, producer snapshots and leader epochs anew from the log.

    They are the same, byte for byte, as those that a broker's recovery makes. A log with damage in it, or one that was
    not left in order, is left alone: that is for repair and recover.
    """
    request.run(reindex_logs, columns=_COLUMNS, what=only)
