"""`pylogseg repair`: cut damage out of logs, and keep as much as possible."""

from __future__ import annotations

import click

from pylogseg.cli.offline import Request, keeps_copies, offline_command
from pylogseg.cli.options import decompressed_option
from pylogseg.cli.tiers import DISK
from pylogseg.offline.repairing.command import repair as repair_logs

_COLUMNS = {"gaps": "GAPS", "gapBytes": "GAP BYTES", "offsetsMissing": "OFFSETS MISSING"}

_EPILOG = """\b
Examples:
  pylogseg repair /data/kafka/orders-3 --dry-run --keep-behind   what would be kept
  pylogseg repair /data/kafka/orders-3 --keep-behind --keep /backup/kept
  pylogseg repair /data/kafka/orders-3 --keep-behind --into /data/repaired
  pylogseg repair /data/kafka/orders-3 --from /mnt/broker2       from a replica

\b
recover does what a broker would do, and checks only what may not have reached
the disk. repair reads every record of every segment, finds the next good batch
after damage even if lengths are destroyed, and keeps it with --keep-behind;
readers then see a gap in the offsets. With --from, the missing batches come from
another replica, as far as leader epochs show that both have the same records; what
it does not have is cut out as without it. If the cluster is well, delete this
replica instead and let the broker fetch it again.

\b
Exit codes: 0 all is in order now; 1 written records were lost, or a partition
failed; 2 wrong usage, a disk error, or a broker runs; 130 interrupted: finished
work stays, run the command again for the rest.
"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not changed, and its partition fails")
@click.option(
    "--keep-behind",
    is_flag=True,
    help="Keep the good batches after damage. Without it, all after the first damage is removed, as by a broker.",
)
@keeps_copies("cut out or removed")
@click.option(
    "--from", "other", metavar="OTHER", type=DISK,
    help="A log directory of another broker: damaged ranges come from its replicas, where leader epochs agree.",
)  # fmt: skip
def repair(
    request: Request,
    keep_behind: bool,
    keep: str | None,
    other: str | None,
    max_decompressed_bytes: int,
) -> None:
    """Cut out damage, report each gap, and rebuild indexes, snapshots and leader epochs.

    A batch is damaged if its checksum does not match, its length or magic is impossible, its records cannot be decoded
    (cut out only with --keep-behind), or its offsets do not fit between those of its neighbours. A torn tail is normal
    after a crash, and not damage.
    """
    request.run(
        repair_logs,
        columns=_COLUMNS if other is None else {**_COLUMNS, "offsetsFromOthers": "FROM OTHERS"},
        other=other,
        passes=2,
        keep_behind=keep_behind,
        keep=keep,
        max_decompressed_bytes=max_decompressed_bytes,
    )
