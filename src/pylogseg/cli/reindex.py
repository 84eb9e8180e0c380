"""`pylogseg reindex`: rebuild indexes, producer snapshots and leader epochs from the log."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.reindexing import KINDS
from pylogseg.offline.reindexing import reindex as reindex_logs

_COLUMNS = {"filesWritten": "WRITTEN", "filesRemoved": "REMOVED"}

_EPILOG = f"""\b
Examples:
  pylogseg reindex /data/kafka --dry-run                files that differ
  pylogseg reindex /data/kafka orders --only time
  pylogseg reindex /data/kafka/orders-3 --only snapshots --only epochs

\b
The log is read from its beginning and not changed. Only files that differ from
those of a broker's recovery are written. They depend on index.interval.bytes and
segment.index.bytes: if a topic overrides these and there is no cluster metadata,
give them with --config.
Producer snapshots and leader epochs can hold more than the log does: producers
whose batches were deleted or compacted, and leaders that wrote nothing. So without
--only, only missing or unreadable ones are rebuilt.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(KINDS)),
    help="A kind of file to rebuild; repeatable. Default: the three indexes, and missing or unreadable others.",
)
def reindex(request: Request, only: Sequence[str]) -> None:
    """Rebuild offset, time and transaction indexes, producer snapshots and leader epochs from the log.

    The files equal those of a broker's recovery byte for byte. A damaged log, or one without a clean shutdown, is
    skipped: use repair or recover.
    """
    request.run(reindex_logs, columns=_COLUMNS, what=only)
