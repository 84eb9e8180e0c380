"""`pylogseg compact`: the cleanings that a broker's cleaner would do, without a broker."""

from __future__ import annotations

import click

from pylogseg.cli.common import decompressed_option, parse_size, parsed
from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.compacting import compact as compact_logs

_COLUMNS = {"rounds": "ROUNDS", "recordsRead": "RECORDS", "recordsRemoved": "REMOVED"}
#: The keys of the dirty section are read, then the whole log is read, and what stays is written.
_PASSES = 3

_EPILOG = f"""\b
Examples:
  pylogseg compact /data/kafka --dry-run       how much would go
  pylogseg compact /data/kafka users --include-active
  pylogseg compact /data/kafka/users-0 --into /backup/users

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not touched, and its partition given up")
@click.option("--force", is_flag=True, help="Also topics without compact in cleanup.policy, if all records have keys.")
@click.option(
    "--min-dirty-ratio",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="RATIO",
    help="Leave partitions of which a smaller share is dirty.",
)
@click.option(
    "--include-active",
    is_flag=True,
    help="Roll the active segment first: a cleaning never touches the last one.",
)
@click.option(
    "--map-memory", "map_bytes", callback=parsed(parse_size), metavar="SIZE",
    help="For the keys, 24 bytes each; default: log.cleaner.dedupe.buffer.size. Too little takes more rounds.",
)  # fmt: skip
def compact(
    request: Request,
    force: bool,
    min_dirty_ratio: float,
    include_active: bool,
    map_bytes: int | None,
    max_decompressed_bytes: int,
) -> None:
    """Keep the last record of each key, as a broker's cleaner does, in rounds until nothing is left to clean.

    Takes the partitions whose cleanup.policy has compact. What must not be cleaned yet stays: the active segment, what
    is above the high watermark or in an open transaction, what min.compaction.lag.ms protects; and tombstones for
    delete.retention.ms.
    """
    request.run(
        compact_logs,
        columns=_COLUMNS,
        passes=_PASSES,
        force=force,
        min_dirty_ratio=min_dirty_ratio,
        include_active=include_active,
        map_bytes=map_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )
