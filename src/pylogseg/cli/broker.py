"""`pylogseg broker`: a broker of one node, with its files in a directory, or in memory."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli import serving

_EPILOG = r"""\b
Examples:
  pylogseg broker /data/dev                        a broker whose files these are
  pylogseg broker                                  one in memory, to try things out
  pylogseg broker --above /backup/kafka            try a consumer, or a fix, on a copy
  pylogseg broker /data/dev --users users.txt --acls --super-user User:admin

\b
With DIR the directory is this broker's: it takes the lock, recovers what was
not closed cleanly, applies retention and compaction, and keeps records,
topics, groups and transactions in Kafka's formats, so that a Kafka broker can
take it over. Without DIR all is in memory, and gone when it stops; with
--above it begins with the topics, records and groups of a copy, which stays as
it is. Stop with Ctrl-C.

\b
Exit codes: 0 it was stopped; 2 wrong usage, a disk error, an address that is
taken, or another process that has the lock.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("directory", required=False, metavar="[DIR]")
@serving.options
@click.option(
    "--above",
    multiple=True,
    metavar="COPY",
    help="Start with the logs of COPY, and leave it unchanged; repeatable, for the log directories of one broker.",
)
@click.option(
    "--node-id",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="Number of the broker. DIR keeps it. Default: the one in DIR, or 1.",
)
@click.option("--acls", is_flag=True, help="Keep the ACLs that clients make, and enforce them.")
@click.option(
    "super_users",
    "--super-user",
    multiple=True,
    metavar="User:NAME",
    help="User with all rights, whatever the ACLs; repeatable. Without a login, clients are User:ANONYMOUS.",
)
@click.option(
    "--allow-everyone-if-no-acl-found",
    is_flag=True,
    help="Allow everyone to use a topic, group or transactional id without ACLs.",
)
def broker(
    directory: str | None,
    above: tuple[str, ...],
    node_id: int | None,
    acls: bool,
    super_users: tuple[str, ...],
    allow_everyone_if_no_acl_found: bool,
    **connecting: Any,
) -> None:
    """Run a broker of one node. It stores topics in DIR, creating it if needed; without DIR, in memory."""
    from pylogseg.server.writing.broker import Broker  # the engine, which the help does not need

    rights = {
        "acls": acls,
        "super_users": super_users,
        "allow_everyone_if_no_acl_found": allow_everyone_if_no_acl_found,
    }
    settings = serving.server_options(connecting, **rights)
    where = serving.paths_text((directory,) if directory is not None else above)
    serving.run_server(lambda: Broker(directory, above=above, node_id=node_id, **settings), where)
