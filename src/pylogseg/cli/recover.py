"""`pylogseg recover`: recover a log directory after a crash, as a broker does at startup."""

from __future__ import annotations

import click

from pylogseg.cli.offline import Request, keeps_copies, parallel_command
from pylogseg.offline.options import Options
from pylogseg.offline.recovering import recover as recover_logs
from pylogseg.offline.recovering import unflushed_bytes

_COLUMNS = {"recoveredSegments": "CHECKED", "cutBytes": "CUT BYTES"}

_EPILOG = """\b
Examples:
  pylogseg recover /data/kafka --dry-run       report what would be done
  pylogseg recover /data/kafka --keep /backup/kept
  pylogseg recover /data/kafka/orders-3        one partition only
  pylogseg recover /data                       all log directories in it

\b
Exit codes: 0 all is in order now; 1 written records were lost (also before:
checkpoints name more), a partition failed or was skipped although it was named, or
a broker will not start (lost+found, meta.properties); 2 wrong usage, a disk error,
or a broker runs; 130 interrupted: recovered partitions stay so, run the command
again for the rest.
"""


@click.command(epilog=_EPILOG)
@parallel_command
@click.option("--full", is_flag=True, help="Check every segment, also flushed ones and after a clean shutdown.")
@keeps_copies("cut off or removed")
def recover(request: Request, full: bool, keep: str | None) -> None:
    """Recover a log directory, or one partition's folder, after a crash.

    Does what a broker does when it starts and stops: cuts off a torn tail, rebuilds missing indexes, finishes or undoes
    replacements of segments, writes snapshots, checkpoints and the clean shutdown marker. It reports what it cuts off,
    and keeps a copy. It refuses to run while a broker runs.
    """
    request.run(
        recover_logs,
        columns=_COLUMNS,
        nothing="nothing to repair",
        total_bytes=unflushed_bytes(request.path, Options.of(request.options), full),
        full=full,
        keep=keep,
    )
