"""Options that select the records to read: ranges of offsets and times, filters, handling of damage."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import click

from pylogseg.cli import common
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.scratch import Scratch
from pylogseg.format.text import DECODED, MARK
from pylogseg.format.words import count_text
from pylogseg.reading.latest import Latest
from pylogseg.reading.log_reader import Filter, KeyFilter, LogReader, check_order, check_times
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.partition import OPEN_END, ReadOptions, Throttle, small_window
from pylogseg.reading.seek import end_offset

F = TypeVar("F", bound=Callable[..., Any])


class OffsetRange(NamedTuple):
    """A range of offsets as given on the command line."""

    first: int | None = None  #: Half-open with `end`; None is open, a negative one counts from the log end offset.
    end: int | None = None
    at_most: int | None = None  #: Instead of an end: this many offsets from the first.

    def of(self, log: LogFiles) -> tuple[int, int]:
        """Return the range in one log."""
        if (self.first or 0) < 0 or (self.end or 0) < 0:
            log_end = end_offset(log.segments)
            first, end = ((log_end + n if n is not None and n < 0 else n) for n in (self.first, self.end))
        else:
            first, end = self.first, self.end
        first = max(first or 0, 0)
        if self.at_most is not None:
            end = first + self.at_most
        return first, OPEN_END if end is None else max(end, 0)


def parse_offsets(text: str) -> OffsetRange:
    """Parse a range from ``A:B``, ``A:``, ``:B``, ``A`` (from there on) or ``A:+N``; A and B may be negative.

    >>> parse_offsets("100:200")
    OffsetRange(first=100, end=200, at_most=None)
    >>> parse_offsets("-10:+5")
    OffsetRange(first=-10, end=None, at_most=5)
    """
    match = re.fullmatch(r"(-?\d+)?(?::(?:\+(\d+)|(-?\d+))?)?", text.strip())
    if match is None or not text.strip() or (match[2] and match[1] is None):
        raise RequestError(
            f"invalid offset range {text!r}: expected A:B (B exclusive), A:, :B, A or A:+N; -N counts from the end"
        )
    found = OffsetRange(*(None if match[i] is None else int(match[i]) for i in (1, 3, 2)))
    check_order(found.first, found.end)
    return found


@dataclass
class Query:
    """The records that the options of `query_options` select, of any log."""

    offsets: OffsetRange
    since: int | None
    until: int | None
    filter: Filter | None
    options: ReadOptions
    latest: Latest | None = None

    @property
    def has_end(self) -> bool:
        """True if the selection excludes records that are appended later."""
        return self.offsets.end is not None or self.offsets.at_most is not None or self.until is not None

    def of(self, log: LogFiles) -> LogReader:
        """Return a reader of the selected records of one log."""
        options = replace(self.options, gaps=[])
        reader = LogReader.of(log, self.offsets.of(log), (self.since, self.until), options, self.filter)
        return replace(reader, latest=self.latest)

    def readers(self, logs: Iterable[LogFiles]) -> list[LogReader]:
        """Return a reader for each log; report on stderr where the first offset is above the end of the log."""
        logs = list(logs)
        ended = [(log.name, end) for log in logs if (end := self._end_below(log)) is not None]
        if ended:
            name, end = ended[0]
            more = f" ({count_text(len(ended) - 1, 'more partition')} likewise)" if len(ended) > 1 else ""
            common.complain(f"{name} has no records from offset {self.offsets.first} on: it ends at {end}{more}")
        return [self.of(log) for log in logs]

    def _end_below(self, log: LogFiles) -> int | None:
        """Return the end of a log if the first offset is above it."""
        first = self.offsets.first or 0
        # Up to the base offset of the last segment, there is no need to open it.
        if log.error is not None or first <= (log.segments[-1].base_offset if log.segments else 0):
            return None
        with contextlib.suppress(StorageError):  # reading reports it
            end = log.log_end_offset
            return end if end < first else None
        return None


def query_options(on_corrupt: str = "raise", always_latest: bool = False) -> Callable[[F], F]:
    """Add the options of `make_query`; with `always_latest`, without ``--latest``."""
    flag = click.option("--latest", is_flag=True, help="Only the last of the selected records of each key.")
    when, memory = ("I", "M") if always_latest else ("With --latest: i", "With --latest: m")
    add = [
        click.option(
            "--offset",
            "-o",
            metavar="A:B",
            callback=common.parsed(parse_offsets),
            help="From offset A up to B, exclusive. A or A: is from A on, :B up to B, A:+1 one record; -N counts from "
            "the end of each partition.",
        ),
        common.time_options(),
        click.option("--key", "-k", metavar="KEY", help="Only records with this key, in the form of --key-as."),
        click.option("--control", is_flag=True, help="Include control records (transaction markers)."),
        common.below_log_start_option,
        common.isolation_option,
        common.on_corrupt_option(on_corrupt),
        common.decompressed_option("counts as damaged"),
        common.rate_option,
        common.drop_behind_option,
        *([] if always_latest else [flag]),
        click.option("--tombstones", is_flag=True, help=f"{when}nclude keys whose last record has no value."),
        common.size_option(
            "--map-memory",
            default="128Mi",
            help=memory + "emory for the map of keys, 27 bytes each; more keys take more passes.",
        ),
    ]

    def decorate(function: F) -> F:
        return common.decorated(function, add)

    return decorate


def make_query(
    *,
    offset: OffsetRange | None,
    since: int | None,
    until: int | None,
    key: str | None,
    control: bool,
    below_log_start: bool,
    isolation_level: Any,
    on_corrupt: Any,
    max_decompressed_bytes: int,
    max_bytes_per_second: int | None,
    drop_behind: bool,
    latest: bool,
    tombstones: bool,
    map_memory: int,
    key_as: str = "text",
    limit: int | None = None,
) -> Query:
    """Return the query of the options of `query_options`."""
    check_times(since, until)
    options = ReadOptions(
        isolation_level,
        on_corrupt,
        control=control,
        limit_bytes=max_decompressed_bytes,
        first_window_bytes=small_window(limit),
        throttle=None if max_bytes_per_second is None else Throttle(max_bytes_per_second),
        drop_behind=drop_behind,
        scratch=Scratch,
        skip_unreadable=True,
    )
    if tombstones and not latest:
        raise RequestError("--tombstones needs --latest; without --latest, tombstones are always included")
    latest_of = Latest(tombstones, map_memory) if latest else None
    if latest_of is not None:
        latest_of.check(options)
    filter = None if key is None else KeyFilter(key_of(key, key_as))
    return Query(offset or OffsetRange(), since, until, filter, options, latest_of)


def key_of(written: str, style: str) -> bytes:
    """Return the bytes of a key in the form that `cat` prints: as text also ``base64:...``."""
    if style in ("text", "json", DECODED) and written.startswith(MARK):
        return bytes_of(written.removeprefix(MARK), "base64")
    return bytes_of(written, style)


def bytes_of(written: str, style: str) -> bytes:
    r"""Return the bytes of an argument in text, hex or base64.

    >>> bytes_of("00ff", "hex")
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
