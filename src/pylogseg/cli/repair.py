"""`pylogseg repair`: damage cut out of logs, with as much kept as can be."""

from __future__ import annotations

import os

import click

from pylogseg.cli.common import decompressed_option
from pylogseg.cli.offline import Request, offline_command
from pylogseg.cli.recover import default_keep
from pylogseg.errors import RequestError
from pylogseg.offline.repairing import repair as repair_logs

_COLUMNS = {"gaps": "GAPS", "gapBytes": "GAP BYTES", "offsetsMissing": "OFFSETS MISSING"}

_EPILOG = """\b
Examples:
  pylogseg repair /data/kafka/orders-3 --dry-run --keep-behind   what would stay
  pylogseg repair /data/kafka/orders-3 --keep-behind --keep /backup/kept
  pylogseg repair /data/kafka/orders-3 --keep-behind --into /data/mended

\b
How it differs from recover: that does what a broker would do, and looks only
at what may not have reached the disk. This reads every record of every
segment, finds the next good batch behind damage whatever the damage did to
lengths, and with --keep-behind keeps it: readers then meet a gap in the
offsets. Other replicas may still have what is missing here: if one has, delete
this one and let the broker fetch it anew.

\b
Exit codes: 0 in order now; 1 records that had been written were lost, or a
partition was given up; 2 wrong usage, the disk failed, or a broker runs; 130
interrupted: what was done stays so, start again for the rest.
"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not touched, and its partition given up")
@click.option(
    "--keep-behind",
    is_flag=True,
    help="Keep the good batches after damage. Without it all after the first damage goes, as with a broker.",
)
@click.option(
    "--keep",
    metavar="FOLDER",
    help="Where copies go of what is cut out or removed; default: pylogseg/kept/<time> below $XDG_STATE_HOME.",
)
@click.option("--no-keep", is_flag=True, help="Make no copies: what is cut out is gone.")
def repair(
    request: Request,
    keep_behind: bool,
    keep: str | None,
    no_keep: bool,
    max_decompressed_bytes: int,
) -> None:
    """Cut out what is damaged, report each gap, and rebuild indexes, snapshots and leader epochs.

    Damage is a batch whose check sum does not hold, whose length or magic is none, whose records cannot be decoded (cut
    out with --keep-behind only), or whose offsets do not fit in between those around it. A torn end is what a crash
    leaves, and no alarm.
    """
    if keep and no_keep:
        raise RequestError("--keep and --no-keep contradict each other")
    kept = None if no_keep else os.path.abspath(keep) if keep else default_keep()
    request.run(
        repair_logs,
        columns=_COLUMNS,
        passes=2,
        keep_behind=keep_behind,
        keep=kept,
        max_decompressed_bytes=max_decompressed_bytes,
    )
