"""`pylogseg cluster`: the content of a cluster's metadata, without the cluster."""

from __future__ import annotations

import click

from pylogseg.cli.cluster_state import end_with_notes, open_state, shown_rows, state_options
from pylogseg.cli.outcomes import print_rows
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC

_EPILOG = r"""\b
Examples:
  pylogseg cluster /data/kafka                         the tables, and how many rows each has
  pylogseg cluster /data/kafka partitions              leaders, replicas, ISR
  pylogseg cluster /data/kafka configs --json          what was set, for programs
  pylogseg cluster /data/kafka topics --as-of 2026-01-31T12:00:00Z

\b
The tables are read from __cluster_metadata-0, which is on the disks of
controllers: from its newest snapshot, and the log after it. The state is that at
the end of the log: this disk alone does not show whether the other controllers
committed all of it. Passwords and keys are masked unless --show-secrets is given.

\b
Exit codes: 0 success; 1 records were left out, damaged or written by a newer
Kafka; 2 wrong usage, a disk error, or the topic is not in the given directories.
"""
_TABLES = ("topics", "partitions", "configs", "brokers", "acls", "quotas", "users", "features")


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@state_options("TABLE")
@click.option("--show-secrets", is_flag=True, help="Print passwords and the keys of users.")
def cluster(arguments: tuple[str, ...], as_of: str | None, as_json: bool, show_secrets: bool) -> None:
    """Print the cluster's topics, partitions, configs, brokers, acls, quotas, users or features."""
    state, names = open_state(arguments, as_of, METADATA_TOPIC, show_secrets=show_secrets)
    unknown = [name for name in names if name not in _TABLES]
    if unknown:
        raise RequestError(f"there is no table {', '.join(unknown)}: tables are {', '.join(_TABLES)}")
    if names:
        for i, name in enumerate(names):
            if i and not as_json:
                click.echo()
            print_rows(
                shown_rows(state, name), {column.upper(): column for column in state.table(name).column_names}, as_json
            )
    else:
        counts = [{"table": name, "rows": state.table(name).num_rows} for name in _TABLES]
        print_rows(counts, {"TABLE": "table", "ROWS": "rows"}, as_json)
    end_with_notes(state)
