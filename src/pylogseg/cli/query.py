"""The question of a command that reads records: which of them, and how, as its options say."""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import click

from pylogseg.cli import common
from pylogseg.cli.options import declared_option, reading_options
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.scratch import Scratch
from pylogseg.format.text import DECODED, MARK
from pylogseg.format.words import count_text
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.options import options_of
from pylogseg.reading.selection import KeyFilter, Selection
from pylogseg.reading.state import Reading, ReadState

F = TypeVar("F", bound=Callable[..., Any])

_READING = (
    "control",
    "isolation_level",
    "on_corrupt",
    "max_decompressed_bytes",
    "max_bytes_per_second",
    "drop_behind",
)


@dataclass
class Query:
    """The records that the options of `query_options` select, of any log."""

    selection: Selection
    reading: Reading
    key: str | None = None  #: As it was given; `with_key` makes a filter of it.

    def __post_init__(self) -> None:
        self.selection.check(self.reading)
        #: Of all readers: they share the throttle.
        self.state: ReadState = self.reading.start(
            scratch=Scratch, first_window_bytes=self.selection.first_window_bytes
        )

    def with_key(self, style: str, limit: int | None = None) -> Query:
        """Return the query of the records with its key, which is written in a style; and for a limit."""
        filter = None if self.key is None else KeyFilter(parse_key(self.key, style))
        return replace(self, selection=replace(self.selection, filter=filter, limit=limit))

    def of(self, log: LogFiles) -> LogReader:
        """Return a reader of the selected records of one log."""
        return LogReader.of(log, self.selection, replace(self.state, gaps=[]))

    def readers(self, logs: Iterable[LogFiles]) -> list[LogReader]:
        """Return a reader for each log; report on stderr where the first offset is above the end of the log."""
        logs = list(logs)
        ended = [(log.name, end) for log in logs if (end := self._end_below(log)) is not None]
        if ended:
            name, end = ended[0]
            more = f" ({count_text(len(ended) - 1, 'more partition')} likewise)" if len(ended) > 1 else ""
            first = self.selection.offsets.first
            common.complain(f"{name} has no records from offset {first} on: it ends at {end}{more}")
        return [self.of(log) for log in logs]

    def _end_below(self, log: LogFiles) -> int | None:
        """Return the end of a log if the first offset is above it."""
        first = self.selection.offsets.first or 0
        # Up to the base offset of the last segment, there is no need to open it.
        if log.error is not None or first <= (log.segments[-1].base_offset if log.segments else 0):
            return None
        with contextlib.suppress(StorageError):  # reading reports it
            end = log.log_end_offset
            return end if end < first else None
        return None


def query_options(always_latest: bool = False) -> Callable[[F], F]:
    """Return a decorator for the options of a `Query` (``query``); with `always_latest`, without ``--latest``."""
    when, memory = ("I", "M") if always_latest else ("With --latest: i", "With --latest: m")
    texts = {"since": "From this time on", "tombstones": when, "latest_memory_bytes": memory}
    declared = options_of(Selection)
    names = [name for name in declared if name != "latest" or not always_latest]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(reading: Reading, key: str | None, **given: Any) -> Any:
            chosen = {name: value for name in names if (value := given.pop(name)) is not None}
            if chosen["tombstones"] and not (always_latest or chosen["latest"]):
                raise RequestError("--tombstones needs --latest; without --latest, tombstones are always included")
            selection = Selection(**{"latest": always_latest, **chosen})
            return function(query=Query(selection, replace(reading, skip_unreadable=True), key), **given)

        add = [declared_option(*declared[name], texts.get(name, "")) for name in names]
        key = click.option("--key", "-k", metavar="KEY", help="Only records with this key, in the form of --key-as.")
        add = [*add[:3], key, reading_options(*_READING, on_corrupt="raise"), *add[3:]]
        return common.add_all(cast("F", call), add)

    return decorate


def parse_key(written: str, style: str) -> bytes:
    """Return the bytes of a key in the form that `cat` prints: as text also ``base64:...``."""
    if style in ("text", "json", DECODED) and written.startswith(MARK):
        return parse_bytes(written.removeprefix(MARK), "base64")
    return parse_bytes(written, style)


def parse_bytes(written: str, style: str) -> bytes:
    r"""Return the bytes of an argument in text, hex or base64.

    >>> parse_bytes("00ff", "hex")
    b'\x00\xff'
    """
    try:
        if style == "hex":
            return bytes.fromhex(written)
        if style == "base64":
            return base64.b64decode(written, validate=True)
    except (ValueError, binascii.Error) as error:
        fault = "expected pairs of the digits 0 to 9 and a to f" if style == "hex" else error
        raise RequestError(f"invalid {style} {written!r}: {fault}") from None
    # Python has escaped the bytes of arguments that are not UTF-8.
    return written.encode("utf-8", "surrogateescape")
