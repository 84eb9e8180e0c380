"""`pylogseg serve`: any Kafka client reads log directories."""

from __future__ import annotations

import logging
import os
import signal
from typing import Literal, NoReturn

import click

from pylogseg.cli import common, tiers
from pylogseg.disk.tier.urls import is_tier
from pylogseg.env.remote import without_login
from pylogseg.format.escape import printable
from pylogseg.server import opening
from pylogseg.server.sasl import parse_users
from pylogseg.server.security import Security
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
  pylogseg serve /data/dev --own                   a broker whose files these are
  pylogseg serve /backup/kafka --scratch           try a consumer, or a fix, on a copy
  pylogseg serve /backup/kafka --topic 'orders*' --listen 0.0.0.0:9092 \
      --tls-cert server.pem --tls-key server.key --users users.txt

\b
Consumers, consoles, Kafka's tools and Spark read the files as from a broker.
Nothing is written to the disk, and no lock is taken: logs that were not closed
cleanly are recovered in memory when they are first read. Groups and their
commits are kept in memory, or in a directory with --commits. Producing is
refused, and so are changes of topics, unless --scratch keeps them in memory,
too. With --own the directory is this server's: it takes the lock, and keeps
records, topics, groups and transactions in Kafka's formats, so that a broker
can take it over. Stop with Ctrl-C.

\b
Exit codes: 0 it was stopped; 1 the same, and damage was left out
(--on-corrupt skip); 2 wrong usage, a disk error, an address that is
taken, or a broker that has the lock: serve a copy then (pylogseg copy).
"""


class _Printing(logging.Handler):
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
@tiers.tier_option
@tiers.keys_option
@click.option(
    "topics",
    "--topic",
    "-t",
    "--topics",
    cls=common.Aliased,
    multiple=True,
    metavar="NAME",
    help="Serve only this topic or pattern; repeatable.",
)
@click.option(
    "--end-open-transactions",
    is_flag=True,
    help="Count transactions that were open at the copy as aborted: read_committed consumers go on behind them.",
)
@click.option("--group-offsets", is_flag=True, help="Let groups begin at the offsets in the copy's __consumer_offsets.")
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
@click.option("--own", is_flag=True, help="Be the broker of DIR: keep what clients write there. It may be new.")
@click.option(
    "--node-id",
    type=click.IntRange(0),
    metavar="N",
    help="Number of the broker of a new directory (--own); another one has to have it. Default: 1, or that of DIR.",
)
@click.option("--scratch", is_flag=True, help="Let clients write: in memory, above the files, until the server stops.")
@click.option(
    "--on-corrupt",
    type=click.Choice(["send", "skip"]),
    default="send",
    show_default=True,
    help="send damage as a broker does, or skip it: verify a log when it is first read, and leave bad batches out.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Certificate of this server, with its chain, in PEM: clients speak TLS (security.protocol=SSL).",
)
@click.option("--tls-key", metavar="FILE", help="Its private key, without a password. Default: in the same file.")
@click.option("--tls-ca", metavar="FILE", help="Serve only clients with a certificate signed by one of these, in PEM.")
@click.option(
    "--users",
    metavar="FILE",
    help="Lines NAME:PASSWORD: clients log in by SASL. Default: the lines in PYLOGSEG_USERS, if it is set.",
)
@click.option(
    "--sasl-mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
    help="Allow only this mechanism; repeatable. Default: all three.",
)
@click.option("--acls", is_flag=True, help="Keep the ACLs that clients make, and enforce them (--own, --scratch).")
@click.option(
    "super_users",
    "--super-user",
    multiple=True,
    metavar="User:NAME",
    help="May do everything, whatever ACLs say; repeatable. Who has not logged in is User:ANONYMOUS.",
)
@click.option(
    "--allow-everyone-if-no-acl-found",
    is_flag=True,
    help="Let everybody use a topic, group or transactional id that no ACL is about.",
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
    end_open_transactions: bool,
    group_offsets: bool,
    commits: str | None,
    until_checkpoint: bool,
    on_corrupt: Literal["send", "skip"],
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    users: str | None,
    mechanisms: tuple[str, ...],
    acls: bool,
    super_users: tuple[str, ...],
    allow_everyone_if_no_acl_found: bool,
    scratch: bool,
    own: bool,
    node_id: int | None,
    max_connections: int,
    trace: bool,
) -> None:
    """Serve log directories over Kafka's protocol: any client reads them, and nothing on the disk changes."""
    logging.getLogger("pylogseg.server").addHandler(_Printing(logging.WARNING))
    signal.signal(signal.SIGTERM, _interrupt)
    tell, tier = common.complain if trace else None, tiers.tier_of_command()
    others = [
        topics,
        group_offsets,
        until_checkpoint,
        scratch,
        commits,
        end_open_transactions,
        on_corrupt == "skip",
        tier,
    ]
    if own and (len(directories) > 1 or any(others)):
        raise click.UsageError(
            "--own takes one DIR, and none of --topic, --group-offsets, --until-checkpoint, --scratch, --commits, "
            "--end-open-transactions, --on-corrupt, --tier"
        )
    if node_id is not None and not own:
        raise click.UsageError(
            "--node-id needs --own: other servers have the number of the broker that wrote the files"
        )
    if own and is_tier(directories[0]):
        raise click.UsageError(f"--own {directories[0]}: a tier is only read; leave out --own, or restore it first")
    given = users or _users_of_environment()
    of_acls = (acls, super_users, allow_everyone_if_no_acl_found)
    security = Security(tls_cert, tls_key, tls_ca, given, mechanisms, *of_acls)
    server: Server | None = None
    try:
        if own:
            # What writes is loaded by whoever writes.
            from pylogseg.server.writing.broker import Broker

            server = Broker(
                directories[0],
                node_id=node_id,
                listen=listen,
                advertise=advertise,
                security=security,
                max_connections=max_connections,
                trace=tell,
            )
        else:
            server = opening.serve(
                *directories,
                listen=listen,
                advertise=advertise,
                topics=topics,
                until_checkpoint=until_checkpoint,
                end_open_transactions=end_open_transactions,
                group_offsets=group_offsets,
                commits=commits,
                on_corrupt=on_corrupt,
                scratch=scratch,
                security=security,
                max_connections=max_connections,
                tier=tier,
                trace=tell,
            )
        with server:
            _greet(server, directories)
            server.wait()
    except KeyboardInterrupt:
        _part(server)


def _part(server: Server | None) -> None:
    """Say what consumers did not get as it is in the files; exit with 1 if there was damage."""
    (places, size), aborted = (server.left_out, server.aborted) if server is not None else ((0, 0), 0)
    said = []
    if places:
        where = common.count_text(places, "place")
        said.append(f"{common.count_text(size, 'byte')} in {where} were left out")
    if aborted:
        said.append(f"{common.count_text(aborted, 'open transaction')} counted as aborted")
    click.echo("; ".join(["stopped", *said]))
    if places:
        click.get_current_context().exit(1)


def _users_of_environment() -> dict[str, str] | None:
    text = os.environ.get("PYLOGSEG_USERS", "")
    return parse_users(text, "PYLOGSEG_USERS") if text.strip() else None


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
    where = ", ".join(printable(without_login(each)) for each in directories)
    for warning in server.warnings():
        common.complain(printable(warning))
    how = catalog.logs.keeps
    click.echo(f"serving {', '.join(what)} of {where} at {server.bootstrap_servers}, {how}; Ctrl-C stops")
