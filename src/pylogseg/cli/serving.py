"""Parts that `serve` and `broker` share: options of connections and logins, the first line, and the end by a signal."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from pylogseg.cli import common
from pylogseg.cli.streams import PrintedWarnings, say
from pylogseg.env.interrupts import mark_answered
from pylogseg.env.remote import without_login
from pylogseg.format.escape import printable
from pylogseg.format.words import count_text, size_text
from pylogseg.server.sasl import parse_users
from pylogseg.server.security import Security
from pylogseg.server.server import Server

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT",
        help="Address to listen on; port 0 takes a free one. With 0.0.0.0, other machines can connect.",
    ),
    click.option(
        "--advertise", metavar="HOST:PORT",
        help="Address that the server names to clients, for containers and mapped ports; default: the one they dial.",
    ),
    click.option(
        "--tls-cert", metavar="FILE",
        help="Certificate of this server, with its chain, in PEM: clients speak TLS (security.protocol=SSL).",
    ),
    click.option(
        "--tls-key", metavar="FILE",
        help="Private key of --tls-cert, unencrypted PEM. Default: in the certificate file.",
    ),
    click.option(
        "--tls-ca", metavar="FILE", help="Serve only clients with a certificate signed by one of these, in PEM.",
    ),
    click.option(
        "--users", metavar="FILE",
        help="Lines NAME:PASSWORD: clients log in by SASL. Default: the lines in PYLOGSEG_USERS, if it is set.",
    ),
    click.option(
        "mechanisms", "--sasl-mechanism", multiple=True,
        type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        help="Allow only this mechanism; repeatable. Default: all three.",
    ),
    click.option(
        "--max-connections", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
        help="Most connections at a time.",
    ),
    click.option("--trace", is_flag=True, help="Print each request and its outcome on stderr."),
)  # fmt: skip


def options(function: _F) -> _F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def server_options(given: dict[str, Any], **acls: Any) -> dict[str, Any]:
    """Return the shared options as keywords of `pylogseg.serve` and `Broker`."""
    names = ("tls_cert", "tls_key", "tls_ca", "users", "mechanisms")
    security = {name: given[name] for name in names}
    security["users"] = security["users"] or _users_of_environment()
    return {
        "listen": given["listen"],
        "advertise": given["advertise"],
        "security": Security(**security, **acls),
        "max_connections": given["max_connections"],
        "trace": common.complain if given["trace"] else None,
    }


def _users_of_environment() -> dict[str, str] | None:
    text = os.environ.get("PYLOGSEG_USERS", "")
    return parse_users(text, "PYLOGSEG_USERS") if text.strip() else None


def run_server(made: Callable[[], Server], where: str) -> None:
    """Start a server and wait for its end; `where` names the served place."""
    logging.getLogger("pylogseg.server").addHandler(PrintedWarnings(logging.WARNING))
    signal.signal(signal.SIGTERM, _interrupt)
    server: Server | None = None
    try:
        server = made()
        with server:
            _greet(server, where)
            server.wait()
    except KeyboardInterrupt:
        mark_answered()
        _part(server)


def paths_text(paths: tuple[str, ...]) -> str:
    return ", ".join(printable(without_login(path)) for path in paths)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _greet(server: Server, where: str) -> None:
    catalog = server.catalog
    for note in (*catalog.disk.notes, *catalog.notes):
        common.complain(printable(note))
    partitions = list(catalog.partitions())
    what = [
        count_text(len(catalog.topics), "topic"),
        count_text(len(partitions), "partition"),
        size_text(sum(partition.size for partition in partitions)),
    ]
    for warning in server.warnings():
        common.complain(printable(warning))
    of = f" of {where}" if where else ""
    say(f"serving {', '.join(what)}{of} at {server.bootstrap_servers}, {catalog.logs.keeps}; Ctrl-C stops")


def _part(server: Server | None) -> None:
    """Report records that consumers did not get as they are in the files; exit with 1 if there was damage."""
    (places, size), aborted = (server.left_out, server.aborted) if server is not None else ((0, 0), 0)
    said = []
    if places:
        where = count_text(places, "place")
        said.append(f"{count_text(size, 'byte')} in {where} were left out")
    if aborted:
        said.append(f"{count_text(aborted, 'open transaction')} counted as aborted")
    say("; ".join(["stopped", *said]))
    if places:
        click.get_current_context().exit(1)
