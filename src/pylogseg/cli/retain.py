"""`pylogseg retain`: delete old segments as a broker's retention does, without a broker."""

from __future__ import annotations

import click

from pylogseg.cli.common import parse_moment, size_option
from pylogseg.cli.offline import DELETED, EXIT_CODES, Request, offline_command
from pylogseg.offline.retaining import retain as retain_logs

_EPILOG = f"""\b
Examples:
  pylogseg retain /data/kafka --dry-run             by the topics' settings
  pylogseg retain /data/kafka orders --ms 86400000  older than a day
  pylogseg retain /data/kafka orders --bytes 50Gi --dry-run
  pylogseg retain /data/kafka orders --before-time 2026-01-31T12:00:00Z

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option(
    "--ms", type=click.IntRange(min=0), metavar="MS", help="Delete segments whose newest record is older than MS."
)
@size_option("--bytes", "max_bytes", help="Delete the oldest segments while at least SIZE remains.")
@click.option("--before-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Delete segments below OFFSET.")
@click.option(
    "--before-time",
    metavar="TIME",
    help="Delete segments older than TIME: 2h or 7d (ago), 2026-01-31T12:00:00Z (or with +02:00), or milliseconds.",
)
@click.option("--force", is_flag=True, help="Also change topics without delete in cleanup.policy, and tiered topics.")
def retain(
    request: Request,
    ms: int | None,
    max_bytes: int | None,
    before_offset: int | None,
    before_time: str | None,
    force: bool,
) -> None:
    """Delete the oldest segments of each partition, as a broker's retention does.

    Uses retention.ms and retention.bytes of each topic, or only the rules given as options. It never
    deletes by Kafka's defaults: it skips a topic without settings (exit code 1), and refuses to run if no topic has
    settings (exit code 2). Only whole segments below the high watermark are deleted; the active segment is rolled
    before it is deleted.
    """
    request.run(
        retain_logs,
        columns=DELETED,
        ms=ms,
        max_bytes=max_bytes,
        before_offset=before_offset,
        before_ms=None if before_time is None else parse_moment(before_time, request.options["now_ms"]),
        force=force,
    )
