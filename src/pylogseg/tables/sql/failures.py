"""Errors of duckdb in one line, with the table or column that was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pylogseg.errors import RequestError

_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_NO_COLUMN = re.compile(r'(?:Referenced column|column named|Referenced table) "(.+?)"')
_PREFIX = re.compile(r"^(?:[\w ]+ Error: |INTERRUPT )+")
_NO_FILES = ": statements reach only the tables of the log; --allow-files lets them read and write files"
#: By a part of the error.
_HINTS = {
    "STRING -> BLOB": ": keys and values are bytes: write encode('...') for text, '\\x00'::blob for bytes",
    "BLOB": ": keys and values are bytes: write text(value), or octet_length(value) for the size",
    "file system operations are disabled": _NO_FILES,
    "disabled through configuration": _NO_FILES,
    "the configuration has been locked": ": a query has the settings of the command",
    "Out of Memory": ": select fewer columns or rows",
}
#: A name that needs no quotes.
_PLAIN = re.compile(r"[A-Za-z_]\w*")


class SqlNames(NamedTuple):
    """Names that a statement can have."""

    tables: Sequence[str]
    nameless: Sequence[str]  #: Topics without a table of their own.
    columns: Sequence[str]  #: Of the tables that were opened.


def explained(error: Exception, sql: str, known: SqlNames) -> RequestError:
    """Return the error of a statement that duckdb refused."""
    said = str(error)
    first = _PREFIX.sub("", said.strip().splitlines()[0]).rstrip("!. ")
    return RequestError(f"{first}{_hint(said, sql, known)}")


def _hint(said: str, sql: str, known: SqlNames) -> str:
    unquoted = [name for name in known.tables if not _PLAIN.fullmatch(name) and _is_bare(name, sql)]
    if unquoted:
        return f': the name {unquoted[0]} has to be in double quotes: "{unquoted[0]}"'
    table = _NO_TABLE.search(said)
    if table:
        return _of_table(table[1], known)
    column = _NO_COLUMN.search(said)
    if column:
        if column[1].lower() in (name.lower() for name in known.tables):
            return f": text is in single quotes: '{column[1]}'"
        return _meant(column[1], known.columns) or (f"; there are {', '.join(known.columns)}" if known.columns else "")
    return next((hint for sign, hint in _HINTS.items() if sign in said), "")


def _of_table(name: str, known: SqlNames) -> str:
    same = [topic for topic in known.nameless if topic.lower() == name.strip('"').lower()]
    if same:
        return f": SQL does not tell {' and '.join(same)} apart; select from records where topic = '{same[0]}'"
    return _meant(name, known.tables) or f"; there are {_listed(known.tables)}"


def _meant(word: str, names: Iterable[str]) -> str:
    by_word = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.strip('"').lower(), by_word, n=1)
    if not close:
        return ""
    name = by_word[close[0]]
    return f": did you mean {name if _PLAIN.fullmatch(name) else f'{chr(34)}{name}{chr(34)}'}?"


def _is_bare(name: str, sql: str) -> bool:
    """Check whether a name stands in a statement without quotes."""
    return bool(re.search(rf'(?<![\w."\'-]){re.escape(name)}(?![\w."\'-])', sql, re.IGNORECASE))


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
