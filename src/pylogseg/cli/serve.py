"""`pylogseg serve`: any Kafka client reads log directories."""

from __future__ import annotations

import logging
import signal
from typing import NoReturn

import click

from pylogseg.cli import common
from pylogseg.format.escape import printable
from pylogseg.server import opening
from pylogseg.server.server import Server, topics_text

_EPILOG = r"""\b
Examples:
  pylogseg serve /backup/kafka
  kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning
  kcat -b 127.0.0.1:9092 -L

\b
  pylogseg serve /mnt/data0 /mnt/data1             the log directories of one broker
  pylogseg serve /backup/kafka --group-offsets     groups continue at their copied offsets
  pylogseg serve /backup/kafka --topics 'orders*' --listen 0.0.0.0:9092

\b
Consumers, consoles, Kafka's tools and Spark read the files as from a broker.
Nothing is written to the disk, and no lock is taken: logs that were not closed
cleanly are recovered in memory when they are first read. Groups and their
commits are kept in memory, until the server stops. Producing is refused, and
so are changes of topics. Stop with Ctrl-C.

\b
Exit codes: 0 it was stopped; 2 wrong usage, a disk error, an address that is
taken, or a broker that has the lock: serve a copy then (pylogseg copy).
"""


class _Log(logging.Handler):
    """Prints what the server warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        common.complain(printable(record.getMessage()))


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 takes a free one. With 0.0.0.0, other machines can connect.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address that clients are told: for containers and mapped ports. Default: the one they connected to.",
)
@click.option("--topics", multiple=True, metavar="NAME", help="Serve only this topic or pattern; repeatable.")
@click.option("--group-offsets", is_flag=True, help="Let groups begin at the offsets in the copy's __consumer_offsets.")
@click.option(
    "--until-checkpoint",
    is_flag=True,
    help="Show only records below the broker's checkpointed high watermark; by default all that are there.",
)
@click.option(
    "--max-connections", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
    help="Most connections at a time.",
)  # fmt: skip
@click.option("--trace", is_flag=True, help="Print each request and its outcome on stderr.")
def serve(
    directories: tuple[str, ...],
    listen: str,
    advertise: str | None,
    topics: tuple[str, ...],
    group_offsets: bool,
    until_checkpoint: bool,
    max_connections: int,
    trace: bool,
) -> None:
    """Serve log directories over Kafka's protocol: any client reads them, and nothing on the disk changes."""
    logging.getLogger("pylogseg.server").addHandler(_Log(logging.WARNING))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        server = opening.serve(
            *directories,
            listen=listen,
            advertise=advertise,
            topics=topics,
            until_checkpoint=until_checkpoint,
            group_offsets=group_offsets,
            max_connections=max_connections,
            trace=common.complain if trace else None,
        )
        with server:
            _greet(server, directories)
            server.wait()
    except KeyboardInterrupt:
        click.echo("stopped")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _greet(server: Server, directories: tuple[str, ...]) -> None:
    """Say what is served, and to whom."""
    catalog = server.catalog
    for note in (*catalog.disk.notes, *catalog.notes):
        common.complain(printable(note))
    partitions = list(catalog.partitions())
    what = [
        common.count_text(len(catalog.topics), "topic"),
        common.count_text(len(partitions), "partition"),
        common.size_text(sum(each.size for each in partitions)),
    ]
    where = ", ".join(map(printable, directories))
    if server.is_open_to_others:
        common.complain(
            f"whoever reaches {server.bootstrap_servers} can read without a password: {topics_text(server.topics)}"
        )
    click.echo(f"serving {', '.join(what)} of {where} at {server.bootstrap_servers}, read-only; Ctrl-C stops")
