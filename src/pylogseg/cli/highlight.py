"""Coloured matches: marks are put around matches in the records, and replaced by colours in their text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pylogseg._codec import encode_varint
from pylogseg.cli import common
from pylogseg.cli.output import RecordText
from pylogseg.disk.disk import Segment
from pylogseg.format.escape import printable
from pylogseg.format.records import RecordColumns
from pylogseg.inspect.search.patterns import Needle
from pylogseg.inspect.search.regex import spans

#: Private-use characters, which no output format escapes.
_MARKS = tuple(mark.encode() for mark in ("\ue0f4", "\ue0f5"))
_COLOURS = (b"\x1b[1;31m", b"\x1b[0m")


def is_coloured(when: str) -> bool:
    """Check whether to colour matches: ``always``, ``never``, or ``auto``, by stdout and the environment."""
    if when != "auto":
        return when == "always"
    return common.is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Highlighter:
    """Writes records with coloured matches.

    Without the colours, `RecordText` gives the same text for any payload. So a field is not coloured if the marks would
    change its text (base64, hex, sizes, a match inside a JSON number). `ignore_case` is for needles that are bytes.
    """

    def __init__(self, text: RecordText, needles: Sequence[Needle], places: Sequence[str], ignore_case: bool) -> None:
        flag = re.IGNORECASE if ignore_case else 0
        self._patterns = [n if isinstance(n, re.Pattern) else re.compile(re.escape(n), flag) for n in needles]
        self._text, self._places, self._escapes = text, places, common.is_terminal(sys.stdout)

    def records(self, columns: RecordColumns, segment: Segment) -> Iterator[bytes]:
        changed = self._mark_columns(columns)
        for row in range(len(columns)):
            yield b"".join(map(self._colour, *zip(*self._text.pieces(columns, changed, segment, row), strict=True)))

    def _colour(self, plain: bytes, marked: bytes | None) -> bytes:
        is_marked = marked is not None and not any(mark in plain for mark in _MARKS) and _without(marked) == plain
        shown = marked if marked is not None and is_marked else plain
        if self._escapes:
            shown = printable(shown.decode("utf-8", "surrogateescape")).encode()
        return _with(shown, _COLOURS) if is_marked else shown

    def _mark_columns(self, columns: RecordColumns) -> RecordColumns:
        """Return the same records with marks around matches, and all their payloads in one source."""
        data = bytearray()
        keys: list[tuple[int, int]] = []
        values: list[tuple[int, int]] = []
        places, headers = [], _headers(columns)
        for row in range(len(columns)):
            for payload, place, sizes in ((columns.key(row), "key", keys), (columns.value(row), "value", values)):
                written = self._mark(payload, place)
                sizes.append((len(data), -1 if written is None else len(written)))
                data += written or b""
            places.append(len(data))
            for _ in range(int(columns.header_count[row])):
                data += b"".join(_encode_sized(self._mark(payload, "headers")) for payload in next(headers))
        key, value = np.array(keys, np.int64).reshape(-1, 2), np.array(values, np.int64).reshape(-1, 2)
        return replace(
            columns,
            key_place=key[:, 0],
            key_size=key[:, 1].astype(np.int32),
            value_place=value[:, 0],
            value_size=value[:, 1].astype(np.int32),
            headers_place=np.array(places, np.int64),
            sources=(bytes(data),),
        )

    def _mark(self, payload: bytes | None, place: str) -> bytes | None:
        if payload is None or place not in self._places:
            return payload
        marks = _join_spans(_whole(payload, span) for pattern in self._patterns for span in spans(pattern, payload))
        marked, at = bytearray(), 0
        for begin, end in marks:
            marked += payload[at:begin] + _MARKS[0] + payload[begin:end] + _MARKS[1]
            at = end
        return bytes(marked + payload[at:])


def _headers(columns: RecordColumns) -> Iterator[tuple[bytes | None, bytes | None]]:
    name_place, name_size, value_place, value_size = columns.header_spans()
    for i in range(len(name_place)):
        yield columns.span(name_place[i], name_size[i]), columns.span(value_place[i], value_size[i])


def _encode_sized(payload: bytes | None) -> bytes:
    """Encode a name or value of a header."""
    return encode_varint(-1 if payload is None else len(payload)) + (payload or b"")


def _whole(payload: bytes, span: tuple[int, int]) -> tuple[int, int]:
    """Widen a span to whole UTF-8 characters."""
    begin, end = span
    while begin > 0 and payload[begin] & 0xC0 == 0x80:
        begin -= 1
    while end < len(payload) and payload[end] & 0xC0 == 0x80:
        end += 1
    return begin, end


def _join_spans(found: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans, and join overlapping and touching ones."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def _with(marked: bytes, signs: tuple[bytes, bytes]) -> bytes:
    for mark, sign in zip(_MARKS, signs, strict=True):
        marked = marked.replace(mark, sign)
    return marked


def _without(marked: bytes) -> bytes:
    return _with(marked, (b"", b""))
