"""`pylogseg latest`: `cat --latest`, with the help of its own."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.cat import print_chosen
from pylogseg.cli.output import output_options
from pylogseg.cli.query import query_options

_EPILOG = r"""\b
Examples:
  pylogseg latest /data/kafka users-0                   what compaction would leave
  pylogseg latest /data/kafka users --tombstones        also deleted keys
  pylogseg latest /data/kafka users --until 2026-01-31T00:00:00Z   as it was then
  pylogseg latest /data/kafka users --key user-17       one key
  pylogseg latest /data/kafka users --csv --fields key,value
  pylogseg latest /data/kafka users --value-as schema   typed values as JSON, as cat has them

\b
The log is not changed. It is read twice: the first pass finds the last offset of
each key, the second prints the records at these offsets, in offset order. Keys
are separate for each partition. Records without a key are skipped, and so are
keys whose last record is a tombstone (no value).
The map of keys uses --map-memory for a log of any size: 128Mi hold five million
keys of a partition at a time. More keys take more passes, and 8 bytes each in a
temporary file (TMPDIR).
With --until or --offset :B, the result is the state at that time or offset.

\b
Exit codes: 0 success; 1 damage was found, or a broker removed records meanwhile;
2 wrong usage or a disk error; 130 interrupted. A closed pipe is not an error.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.selection_options
@output_options
@query_options(always_latest=True)
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Print at most N records in total.")
@common.jobs_option
def latest(**given: Any) -> None:
    """Print the last value of each key, as compaction would leave it; the log is not changed."""
    print_chosen(**given)
