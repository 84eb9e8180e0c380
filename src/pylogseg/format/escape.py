"""Names and messages for output: well-formed text, without characters that a terminal acts on."""

from __future__ import annotations

import json
import re
from typing import Any


def readable(name: str) -> str:
    r"""Return a name as text that can be encoded: a byte that is not UTF-8 becomes ``\xNN``.

    >>> readable("t\udcff-0")
    't\\xff-0'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_ACTING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def printable(written: str) -> str:
    r"""Escape characters that a terminal acts on: controls except tabs and line ends, and changes of direction.

    They are shown as ``\xNN`` and ``\uNNNN``, and so are bytes that are not UTF-8.

    >>> printable("\x1b[31m\u202e")
    '\\x1b[31m\\u202e'
    """
    if written.isascii() and written.isprintable():
        return written
    shown = _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), written)
    # Of bytes that were no UTF-8 when they came in, each is one byte again.
    return _SURROGATE.sub(_escaped_surrogate, shown)


def printable_line(text: str) -> str:
    r"""Escape as `printable`, and tabs and line ends, too: a name or a message of others stays one cell of one line.

    >>> printable_line("x\ny-0")
    'x\\ny-0'
    """
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def _escaped_surrogate(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code & 0xFF:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def json_line(row: Any, **how: Any) -> str:
    """Return a value as JSON that is well-formed for any text, without characters that a terminal acts on."""
    written = json.dumps(row, ensure_ascii=False, **how)
    if written.isascii() and written.isprintable():
        return written
    escaped = _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
    # What a name has of bytes that are no UTF-8: a lone surrogate is no JSON to many readers.
    return _SURROGATE.sub(lambda found: "\\" + _escaped_surrogate(found), escaped)


def json_fault(error: ValueError | RecursionError) -> str:
    """Return the reason why `json` refused a text."""
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
