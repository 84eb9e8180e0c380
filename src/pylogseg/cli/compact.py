"""`pylogseg compact`: compact logs as a broker's log cleaner does, without a broker."""

from __future__ import annotations

import click

from pylogseg.cli.common import size_option
from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.cli.options import decompressed_option
from pylogseg.offline.compacting import compact as compact_logs

_COLUMNS = {"rounds": "ROUNDS", "recordsRead": "RECORDS", "recordsRemoved": "REMOVED"}
#: Read the keys of the dirty section, read the whole log, write what stays.
_PASSES = 3

_EPILOG = f"""\b
Examples:
  pylogseg compact /data/kafka --dry-run       how much would be removed
  pylogseg compact /data/kafka users --include-active
  pylogseg compact /data/kafka/users-0 --into /backup/users

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not changed, and its partition fails")
@click.option(
    "--force", is_flag=True, help="Also compact topics without compact in cleanup.policy, if all records have keys."
)
@click.option(
    "--min-dirty-ratio",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="RATIO",
    help="Skip partitions with a smaller dirty ratio.",
)
@click.option(
    "--include-active",
    is_flag=True,
    help="Roll the active segment first: compaction never changes the last segment.",
)
@size_option(
    "--map-memory",
    "map_bytes",
    help="Memory for keys, 24 bytes each; less takes more rounds. Default: log.cleaner.dedupe.buffer.size.",
)
def compact(
    request: Request,
    force: bool,
    min_dirty_ratio: float,
    include_active: bool,
    map_bytes: int | None,
    max_decompressed_bytes: int,
) -> None:
    """Keep the last record of each key, as a broker's log cleaner does, in rounds until nothing is left to clean.

    Works on partitions with compact in cleanup.policy; without names, on all of them. Without a partition's
    settings, the command skips it, named or not, and ends with exit code 1. It keeps records that must not be cleaned
    yet: in the active segment, above the high watermark or in an open transaction, and records that
    min.compaction.lag.ms protects; also tombstones for delete.retention.ms.
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
