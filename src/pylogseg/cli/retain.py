"""`pylogseg retain`: retention as a broker does it, without a broker."""

from __future__ import annotations

import re

import click

from pylogseg.cli.common import parse_moment, parse_size, parsed
from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.retaining import retain as retain_logs

COLUMNS = {"logStartBefore": "START BEFORE", "segmentsDeleted": "DELETED"}

_EPILOG = f"""\b
Examples:
  pylogseg retain /data/kafka --dry-run             by the topics' settings
  pylogseg retain /data/kafka orders --ms 86400000  what is older than a day
  pylogseg retain /data/kafka orders --bytes 50Gi --dry-run
  pylogseg retain /data/kafka orders --before 2026-01-31T12:00:00Z

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@click.option("--ms", type=click.IntRange(min=0), metavar="MS", help="Segments whose newest record is older than this.")
@click.option(
    "--bytes",
    "max_bytes",
    callback=parsed(parse_size),
    metavar="SIZE",
    help="Segments without which a partition still has so much.",
)
@click.option(
    "--before",
    metavar="OFFSET|TIME",
    help="Segments below an offset (a number), or older than a time (7d, 2026-01-31T12:00:00Z).",
)
@click.option("--force", is_flag=True, help="Also topics without delete in the policy, and tiered ones.")  # fmt: skip
def retain(request: Request, ms: int | None, max_bytes: int | None, before: str | None, force: bool) -> None:
    """Delete the oldest segments of each partition, as a broker's retention does.

    By retention.ms and retention.bytes of the topics, or by the rules that are given, and by these alone. Whole
    segments go, as far as the high watermark; the active segment is rolled before it goes.
    """
    is_offset = before is not None and re.fullmatch(r"\d+", before) is not None
    request.run(
        retain_logs,
        columns=COLUMNS,
        ms=ms,
        max_bytes=max_bytes,
        before_offset=int(before) if before is not None and is_offset else None,
        before_ms=parse_moment(before, request.options["now_ms"]) if before is not None and not is_offset else None,
        force=force,
    )
