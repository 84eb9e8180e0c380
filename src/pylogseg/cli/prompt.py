"""The prompt of `pylogseg sql`: statements that end in a semicolon, and a few commands that begin with a dot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pylogseg.cli import common
from pylogseg.cli.streams import say
from pylogseg.env.interrupts import mark_answered
from pylogseg.errors import CorruptionError, PylogsegError

if TYPE_CHECKING:
    from pylogseg.tables.sql.session import Session

_HELP = """\
A statement ends in a semicolon and may have several lines.
  .tables      list the tables
  .columns T   list the columns of a table
  .help        print this text
  .quit        end; so does Ctrl-D
Ctrl-C cancels a running query, or clears what was typed."""
#: Lines of history that are kept.
_HISTORY_LINES = 1000


def prompt(session: Session, answer: Callable[[str], None]) -> None:
    """Read statements from a terminal and answer them, until its end."""
    with _history():
        for statement in _statements(session):
            try:
                answer(statement)
            except KeyboardInterrupt:
                mark_answered()
                common.complain("cancelled")
            except PylogsegError as error:
                common.complain(common.remedy(error))
                if isinstance(error, CorruptionError):
                    click.get_current_context().meta[common.DAMAGE] = True


def _statements(session: Session) -> Iterator[str]:
    """Yield statements; run the commands between them."""
    typed = ""
    while True:
        try:
            line = input("      -> " if typed else "pylogseg> ")
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            mark_answered()
            typed = ""
            click.echo()
            continue
        if not typed and line.lstrip().startswith("."):
            if line.split()[0] in (".quit", ".exit"):
                return
            _command(session, *line.split())
            continue
        typed += line + "\n"
        if line.rstrip().endswith(";"):
            yield typed
            typed = ""
        elif not typed.strip():
            typed = ""


def _command(session: Session, name: str, *words: str) -> None:
    if name == ".tables":
        for table in session.tables:
            say(table)
    elif name == ".columns" and len(words) == 1 and words[0].strip('"') in session.tables:
        for field in session.open(words[0].strip('"')).schema:
            say(f"{field.name}  {field.type}")
    else:
        click.echo(_HELP)


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Let lines be edited, and remember them from one session to the next where this user has a home."""
    try:
        import readline
    except ImportError:  # Windows
        yield
        return
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "pylogseg" / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY_LINES)
            readline.write_history_file(path)
