"""`pylogseg latest`: the last value of each key."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.cat import print_wanted, wanted_of
from pylogseg.cli.output import output_options, record_text
from pylogseg.cli.query import make_query, query_options

_EPILOG = r"""\b
Examples:
  pylogseg latest /data/kafka users-0                   what compaction would leave
  pylogseg latest /data/kafka users --tombstones        deleted keys too
  pylogseg latest /data/kafka users --until 2026-01-31T00:00:00Z   as it was then
  pylogseg latest /data/kafka users --key user-17       one key
  pylogseg latest /data/kafka users --csv --fields key,value

\b
Nothing is written to the log. It is read twice: first the last offset of each
key is noted, then the records at these offsets are given, in their order. Each
partition has its own keys. Records without a key have no latest and are left
out; so are keys whose last record has no value (tombstones).
The map of keys has --map-memory, whatever the size of the log: 128Mi hold five
million keys of a partition at a time. More keys take more passes, and 8 bytes
for each in a temporary file (TMPDIR).
A range says what counts: with --until or --offset :B, the state as of then.

\b
Exit codes: 0 fine; 1 damage was met; 2 wrong usage or the disk failed;
130 interrupted. A closed pipe is no error.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.selection_options
@output_options
@query_options(always_latest=True)
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="At most N records in all.")
@common.jobs_option
def latest(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    template: str | None,
    as_csv: bool,
    key_as: str,
    value_as: str,
    fields: str | None,
    headers: bool,
    limit: int | None,
    jobs: int,
    **ranges: Any,
) -> None:
    """The last value of each key, as compaction would leave it; nothing is rewritten."""
    text = record_text(template, as_csv, key_as, value_as, fields, headers)
    query = make_query(key_as=key_as, latest=True, **ranges)
    chosen = common.select(arguments, topic, partition, from_log_start=not ranges["below_log_start"])
    # Once for the map, once for the records.
    print_wanted(text, wanted_of(query, chosen, ranges["below_log_start"]), 2 * chosen.size, limit, jobs)
