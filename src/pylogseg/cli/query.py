"""Which records a command reads: ranges of offsets and times, filters, and how damage is met."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import click
import numpy as np

from pylogseg.cli import common
from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.records import RecordColumns
from pylogseg.reading.partition import MAX_OFFSET, Chunk, ReadOptions, Throttle, small_window
from pylogseg.reading.seek import end_offset
from pylogseg.reading.stream import Log, Reader

F = TypeVar("F", bound=Callable[..., Any])


class OffsetRange(NamedTuple):
    """A range of offsets as it was asked for.

    Attributes
    ----------
    first, end : int or None
        Half-open; None is open. A negative one counts from the log end offset of each partition.
    at_most : int or None
        Instead of an end: so many offsets from the first.
    """

    first: int | None = None
    end: int | None = None
    at_most: int | None = None

    def of(self, log: Log) -> tuple[int, int]:
        """The range in one log."""
        if (self.first or 0) < 0 or (self.end or 0) < 0:
            log_end = end_offset(log.segments)
            first, end = ((log_end + n if n is not None and n < 0 else n) for n in (self.first, self.end))
        else:
            first, end = self.first, self.end
        first = max(first or 0, 0)
        if self.at_most is not None:
            end = first + self.at_most
        return first, MAX_OFFSET if end is None else max(end, 0)


def parse_offsets(wanted: str) -> OffsetRange:
    """A range from ``A:B``, ``A:``, ``:B``, ``A`` (from there on) or ``A:+N``; A and B may be negative.

    >>> parse_offsets("100:200")
    OffsetRange(first=100, end=200, at_most=None)
    >>> parse_offsets("-10:+5")
    OffsetRange(first=-10, end=None, at_most=5)
    """
    match = re.fullmatch(r"(-?\d+)?(?::(?:\+(\d+)|(-?\d+))?)?", wanted.strip())
    if match is None or not wanted.strip() or (match[2] and match[1] is None):
        raise RequestError(
            f"{wanted!r} is no range of offsets: A:B (B not included), A:, :B, A, A:+N; -N counts from the end"
        )
    return OffsetRange(*(None if match[i] is None else int(match[i]) for i in (1, 3, 2)))


@dataclass
class Query:
    """Which records of a log are wanted, and how they are read.

    Attributes
    ----------
    options : ReadOptions
        For one reading at a time; see `another`.
    """

    offsets: OffsetRange
    since: int | None
    until: int | None
    key: bytes | None
    options: ReadOptions

    def another(self, on_bytes: Callable[[int], None] | None = None) -> Query:
        """The same for another thread: with memory and a report of its own, and the same throttle."""
        return replace(self, options=replace(self.options, gaps=[], on_bytes=on_bytes))

    @property
    def is_everything(self) -> bool:
        """Whether whole files are read."""
        return self.offsets == OffsetRange() and self.since is None and self.until is None

    def range_of(self, log: Log) -> tuple[int, int]:
        """Offsets in one log, those of the times apart."""
        first, end = self.offsets.of(log)
        return max(first, log.log_start_offset), end

    def settled(self, log: Log) -> Query:
        """The same for one log, with a range that does not move when the log grows."""
        first, end = self.offsets.of(log)
        return replace(self, offsets=OffsetRange(first, None if end == MAX_OFFSET else end))

    def read(self, log: Log) -> Iterator[Chunk]:
        """The records of the ranges in one log; `options.gaps` then has what was passed over in it."""
        return Reader([log], self.range_of(log), (self.since, self.until), None, self.options).chunks()

    def filtered(self, chunk: Chunk) -> Chunk:
        """The records of a chunk that the filters let through."""
        if self.key is None:
            return chunk
        return Chunk(chunk.columns.take(has_key(chunk.columns, self.key)), chunk.segment)

    def chunks(self, log: Log) -> Iterator[Chunk]:
        """The records that are wanted of one log."""
        for chunk in map(self.filtered, self.read(log)):
            if len(chunk.columns):
                yield chunk


def has_key(columns: RecordColumns, key: bytes) -> Any:
    """Which records have a key, as row numbers."""
    rows = np.flatnonzero(columns.key_size == len(key))
    # Of equal size: what holds it is it.
    return rows[text.find(columns.key_place[rows], columns.key_size[rows], columns.sources, key)]


def query_options(on_corrupt: str = "raise") -> Callable[[F], F]:
    """Add the options that `make_query` takes."""
    add = [
        click.option(
            "--offset",
            "-o",
            metavar="A:B",
            callback=common.parsed(parse_offsets),
            help="From A up to, not including, B; A: or A, :B, A:+N; -N counts from the end of each partition.",
        ),
        click.option(
            "--since",
            metavar="TIME",
            callback=common.parsed(common.parse_moment),
            help="2h, 30m or 7d (ago); 2026-01-31T12:00:00Z; or milliseconds.",
        ),
        click.option(
            "--until",
            metavar="TIME",
            callback=common.parsed(common.parse_moment),
            help="As --since; itself not included.",
        ),
        click.option("--key", "-k", metavar="KEY", help="Only records with this key, written as --key-as says."),
        click.option("--control", is_flag=True, help="Control records (transaction markers) too."),
        click.option("--below-log-start", is_flag=True, help="Also deleted records that are still in the files."),
        common.isolation_option,
        common.on_corrupt_option(on_corrupt),
        common.rate_option,
        click.option(
            "--drop-behind/--keep-pages", default=True, help="Give read pages of the page cache back (default), or not."
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
    isolation: Any,
    on_corrupt: Any,
    max_bytes_per_second: int | None,
    drop_behind: bool,
    key_as: str = "text",
    limit: int | None = None,
    reuse: bool = True,
) -> Query:
    """What the options of `query_options` ask for."""
    options = ReadOptions(
        isolation,
        on_corrupt,
        control=control,
        first_window_bytes=small_window(limit),
        throttle=None if max_bytes_per_second is None else Throttle(max_bytes_per_second),
        drop_behind=drop_behind,
        reuse=reuse,
    )
    return Query(offset or OffsetRange(), since, until, None if key is None else bytes_of(key, key_as), options)


def bytes_of(written: str, style: str) -> bytes:
    r"""Bytes from an argument that is text, hex or base64.

    >>> bytes_of("00ff", "hex")
    b'\x00\xff'
    """
    try:
        if style == "hex":
            return bytes.fromhex(written)
        if style == "base64":
            return base64.b64decode(written, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RequestError(f"{written!r} is not {style}: {error}") from None
    # Arguments that are not UTF-8 came in with their bytes escaped.
    return written.encode("utf-8", "surrogateescape")
