"""Search keys, values and headers of records for text, bytes or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import Mask
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns

Needle = bytes | re.Pattern[bytes]

#: From this many texts on, they are searched together by an expression of alternatives: one pass for so many of them.
_FEW_NEEDLES = 8
_JOINED_NEEDLES = 256

#: Fields to search; ``headers`` are their names and values.
PLACES = ("key", "value", "headers")


@dataclass(frozen=True)
class Pattern:
    """A pattern to search for."""

    needle: Needle  #: Bytes are searched by a kernel; an expression of Python's `re` by `inspect.search.regex`.
    places: Sequence[str] = ("key", "value")  #: Out of `PLACES`.
    #: For a needle of bytes: letters of ASCII match in both cases. An expression has its own flag.
    ignore_case: bool = False
    invert: bool = False  #: Match the records without it.

    def __post_init__(self) -> None:
        for place in self.places:
            if place not in PLACES:
                raise RequestError(f"cannot search in {place!r}; expected one of {', '.join(PLACES)}")

    def matches(self, columns: RecordColumns) -> Mask:
        mask = np.zeros(len(columns), np.bool_)
        if "key" in self.places:
            mask |= self._in_spans(columns.key_place, columns.key_size, columns.sources)
        if "value" in self.places:
            mask |= self._in_spans(columns.value_place, columns.value_size, columns.sources)
        if "headers" in self.places and columns.tally().headers:
            mask |= self._in_headers(columns)
        return ~mask if self.invert else mask

    def _in_headers(self, columns: RecordColumns) -> Mask:
        name_place, name_size, value_place, value_size = columns.header_spans()
        hits = self._in_spans(name_place, name_size, columns.sources)
        hits |= self._in_spans(value_place, value_size, columns.sources)
        mask = np.zeros(len(columns), np.bool_)
        mask[np.repeat(np.arange(len(columns)), columns.header_count)[hits]] = True
        return mask

    def _in_spans(self, place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...]) -> Mask:
        if isinstance(self.needle, bytes):
            return text.find(place, size, sources, self.needle, ignore_case=self.ignore_case)
        # It loads pyarrow, which a search for bytes does without.
        from pylogseg.inspect.search.regex import search

        by_column = search(self.needle, place, size, sources)
        if by_column is not None:
            return by_column
        find = self.needle.search
        views = [memoryview(source) for source in sources]
        mask = np.zeros(len(place), np.bool_)
        rows = np.flatnonzero(size >= 0)
        spans = zip(
            (place[rows] >> SOURCE_SHIFT).tolist(),
            (place[rows] & SOURCE_MASK).tolist(),
            size[rows].tolist(),
            strict=True,
        )
        hits = [find(views[source][at : at + length]) is not None for source, at, length in spans]
        mask[rows] = hits
        return mask


@dataclass(frozen=True)
class AnyOf:
    """Several needles, of which a record must contain one, or with `invert` none; see `Pattern`."""

    needles: Sequence[Needle]
    places: Sequence[str] = ("key", "value")
    ignore_case: bool = False
    invert: bool = False
    patterns: Sequence[Pattern] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        needles = _merge_needles(list(dict.fromkeys(self.needles)), self.ignore_case)
        object.__setattr__(self, "patterns", [Pattern(needle, self.places, self.ignore_case) for needle in needles])

    def matches(self, columns: RecordColumns) -> Mask:
        mask = np.zeros(len(columns), np.bool_)
        for pattern in self.patterns:
            mask |= pattern.matches(columns)
        return ~mask if self.invert else mask


def _merge_needles(needles: list[Needle], ignore_case: bool) -> list[Needle]:
    """Merge many ASCII texts into fewer expressions that match the same records."""
    texts = [needle for needle in needles if isinstance(needle, bytes) and needle.isascii()]
    if len(texts) < _FEW_NEEDLES:
        return needles
    others = [needle for needle in needles if not (isinstance(needle, bytes) and needle.isascii())]
    parts = [b"|".join(map(re.escape, texts[i : i + _JOINED_NEEDLES])) for i in range(0, len(texts), _JOINED_NEEDLES)]
    return [*others, *(re.compile(part, re.IGNORECASE if ignore_case else 0) for part in parts)]


def regular_expression(written: str, ignore_case: bool = False) -> re.Pattern[bytes]:
    r"""Compile an expression for bytes; ``.`` matches any byte but a line feed, ``^`` and ``$`` match at the ends of
    the field.

    >>> regular_expression("^user-[0-9]+$").search(b"user-17") is not None
    True
    """
    from pylogseg.inspect.search.regex import in_re2, may_explode  # they load pyarrow

    try:
        pattern = re.compile(written.encode("utf-8", "surrogateescape"), re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError) as error:
        raise RequestError(f"invalid regular expression {written!r}: {error}") from None
    if in_re2(pattern.pattern) is None and may_explode(pattern.pattern):
        raise RequestError(
            f"{written!r} might never end: it repeats a repetition or alternatives, and only Python's re knows "
            "look-around, references and a $ that is not at the end. Write it without the one or the other"
        )
    return pattern
