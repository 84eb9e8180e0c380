"""`pylogseg serve`: any Kafka client reads log directories."""

from __future__ import annotations

from typing import Any, Literal

import click

from pylogseg.cli import common, points, serving, tiers
from pylogseg.server import opening
from pylogseg.server.server import Server

_EPILOG = r"""\b
Examples:
  pylogseg serve /backup/kafka
  kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning
  kcat -b 127.0.0.1:9092 -L

\b
  pylogseg serve /mnt/data0 /mnt/data1             the log directories of one broker
  pylogseg serve /backup/kafka --group-offsets     groups continue at their copied offsets
  pylogseg serve s3://bucket/kafka                 from an object store, by fsspec
  pylogseg serve s3://bucket/archive --at 2026-01-31T12:00:00Z    an archive as it was
  pylogseg serve /backup/kafka --topic 'orders*' --listen 0.0.0.0:9092 \
      --tls-cert server.pem --tls-key server.key --users users.txt

\b
Consumers, consoles, Kafka's tools and Spark read the files as from a broker.
Nothing is written to these directories, and no lock is taken: logs that were
not closed cleanly are recovered in memory when they are first read. Groups and
their commits are kept in memory, or in a directory with --commits. Producing
is refused, and so are changes of topics: pylogseg broker is for these. Stop
with Ctrl-C.

\b
Exit codes: 0 it was stopped; 1 the same, and damage was left out
(--on-corrupt skip); 2 wrong usage, a disk error, an address that is
taken, or a broker that has the lock: serve a copy then (pylogseg copy).
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", callback=points.at_point)
@serving.options
@points.point_options
@tiers.tier_option
@tiers.keys_option
@common.topic_option
@common.partition_option
@click.option(
    "--end-open-transactions",
    is_flag=True,
    help="Treat transactions that the copy has open as aborted, so that read_committed consumers read on.",
)
@click.option("--group-offsets", is_flag=True, help="Start groups at the offsets in the copy's __consumer_offsets.")
@click.option(
    "--commits",
    metavar="COMMITS",
    help="Keep groups and their commits in a directory, for the next run. Default: in memory, until the server stops.",
)
@click.option(
    "--until-checkpoint",
    is_flag=True,
    help="Show only records below the broker's checkpointed high watermark; by default all that are there.",
)
@click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="At damage: raise sends the bytes as a broker does, and the client's own check fails; skip verifies a log "
    "when it is first read, and leaves bad batches out.",
)
def serve(
    directories: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    end_open_transactions: bool,
    group_offsets: bool,
    commits: str | None,
    until_checkpoint: bool,
    on_corrupt: Literal["raise", "skip"],
    **connecting: Any,
) -> None:
    """Serve log directories over Kafka's protocol: any client reads them, and nothing in them changes."""
    settings, tier = serving.server_options(connecting), tiers.tier_of_command()

    def make_server() -> Server:
        return opening.serve(
            *directories,
            topic=topic or None,
            partition=partition or None,
            until_checkpoint=until_checkpoint,
            end_open_transactions=end_open_transactions,
            group_offsets=group_offsets,
            commits=commits,
            on_corrupt=on_corrupt,
            tier=tier,
            **settings,
        )

    serving.run_server(make_server, serving.paths_text(directories))
