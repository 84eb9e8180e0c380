r"""Regular expressions over columns: by Arrow's engine (RE2) where it means the same as Python's `re`, else by `re`.

RE2 goes over a whole column in one call without the GIL, so threads search side by side; `re` wants an object of Python
for each record, and may try forever (`may_explode`). But the two are different languages: look-around and references
are Python's alone, ``$``, ``{,3}`` and letters beyond ASCII mean different things. A pattern beyond the small common
part is left to `re`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.reading.arrow import columns as arrow

#: A column larger than that does not fit Arrow's 32 bits of offsets.
_MOST_BYTES = 2**31 - 1

_NAMES = ("re._parser", "re._constants") if sys.version_info >= (3, 11) else ("sre_parse", "sre_constants")
_parser: Any
_constants: Any
_parser, _constants = map(import_module, _NAMES)
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
#: Repetitions from which on all the ways to divide a text are too many.
_MANY = 12

# Each alternative means the same in both languages, wherever it stands. A class may not contain a bracket, and a brace
# that begins no count is itself.
_COMMON = re.compile(
    rb"""(?x) (?:
        [^\\\[\](){}*+?|^$.\x80-\xff]        # itself
      | \\ [^0-9A-Za-z_\x80-\xff]            # an escaped sign
      | \\ (?: [dDwWsSbnrt] | x[0-7][0-9a-fA-F] )
      | \[ \^? (?: [^\\\[\]^\x80-\xff] | \\ [^0-9A-Za-z_\x80-\xff] | \\[dwsnrt] )+ \]
      | \{ (?! [0-9,] ) | \}
      | \( (?! \? ) | \(\?: | \) | \| | \^ | \.
      | [*+?] \??
      | \{ [0-9]{1,3} (?: , [0-9]{0,3} )? \} \??
    )*"""
)


_TOKEN = re.compile(r"\[(?:[^\]\\]|\\.)+\]|\\.", re.DOTALL)


def _with_vertical_tab(token: re.Match[str]) -> str:
    r"""A class, or an escaped sign, with Python's meaning of ``\s``: RE2's has no vertical tab."""
    if token[0].startswith("["):
        return re.sub(r"\\(.)", lambda sign: r"\s\x0b" if sign[1] == "s" else sign[0], token[0], flags=re.DOTALL)
    return {r"\s": r"[\s\x0b]", r"\S": r"[^\s\x0b]"}.get(token[0], token[0])


@functools.lru_cache(maxsize=4096)
def in_re2(expression: bytes) -> str | None:
    r"""Return an expression with the same meaning in RE2 as this one in Python; None in doubt.

    >>> in_re2(b"^k[0-9]+$"), in_re2(rb"(?<!a)b")
    ('^k[0-9]+\\n?\\z', None)
    """
    body, end = expression.removeprefix(b"(?i)"), ""  # the flag is told apart
    # Python's also stands before a last line feed. An odd backslash before it would not have matched.
    for sign, means in ((b"$", r"\n?\z"), (b"\\Z", r"\z")):
        if body.endswith(sign) and _COMMON.fullmatch(body.removesuffix(sign)):
            body, end = body.removesuffix(sign), means
            break
    if not _COMMON.fullmatch(body):
        return None
    text = _TOKEN.sub(_with_vertical_tab, body.decode("ascii")) + end
    try:
        pc.match_substring_regex(pa.array([b""], pa.binary()), text)
    except pa.ArrowInvalid:
        return None
    return text


def may_explode(expression: bytes) -> bool:
    r"""Check whether `re` may take exponential time: it repeats a part that matches a text in many ways.

    That is one of alternatives, or of another repetition without anything fixed beside it.

    >>> may_explode(rb"(?<!x)(a+)+b"), may_explode(rb"(?<!x)(\d+,)+b")
    (True, False)
    """
    return any(_divides(body) for body in _find_repeats(_parser.parse(expression)))


def _find_repeats(parsed: Any) -> Iterator[Any]:
    """The bodies of all repetitions without a bound."""
    for operation, argument in parsed:
        if operation in _REPEATS and argument[1] >= _MANY:
            yield argument[2]
        for inner in _inner(operation, argument):
            yield from _find_repeats(inner)


def _divides(body: Any) -> bool:
    fixed = any(operation in (_constants.LITERAL, _constants.IN, _constants.NOT_LITERAL) for operation, _ in body)
    for operation, argument in body:
        if operation is _constants.BRANCH:
            return True
        if operation in _REPEATS and argument[1] >= _MANY and not fixed:
            return True
        if not fixed and any(_divides(inner) for inner in _inner(operation, argument)):
            return True
    return False


def _inner(operation: Any, argument: Any) -> list[Any]:
    """The expressions inside an operation of the parser."""
    if operation is _constants.BRANCH:
        return list(argument[1])
    if operation in (_constants.SUBPATTERN, *_REPEATS):
        return [argument[-1]]
    if operation in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [argument[1]]
    return []


def search(
    pattern: re.Pattern[bytes], place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...]
) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the spans that match a pattern; None if RE2 cannot be used for it.

    Only the flag IGNORECASE is supported; any other gives None. A size of -1 matches nothing.
    """
    text = None if pattern.flags & ~re.IGNORECASE else in_re2(pattern.pattern)
    if text is None or int(np.maximum(size, 0).sum(dtype=np.int64)) > _MOST_BYTES:
        return None
    column = arrow.binary_array(place, size, sources, pa.binary())
    matches = pc.match_substring_regex(column, text, ignore_case=bool(pattern.flags & re.IGNORECASE))
    return np.asarray(matches.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def spans(pattern: re.Pattern[bytes], data: bytes) -> list[tuple[int, int]]:
    r"""Return begin and end of each match; empty ones are left out.

    >>> spans(re.compile(b"[0-9]+"), b"k17=42")
    [(1, 3), (4, 6)]
    """
    text = None if pattern.flags & ~re.IGNORECASE else in_re2(pattern.pattern)
    if text is None:
        pairs = [match.span() for match in pattern.finditer(data)]
    else:
        pairs = _spans_in_re2(f"(?i:{text})" if pattern.flags & re.IGNORECASE else text, data)
    return [(begin, end) for begin, end in pairs if begin < end]


def _spans_in_re2(expression: str, data: bytes) -> list[tuple[int, int]]:
    """RE2's matches, which Arrow does not tell, but puts marks around."""
    mark = "\0\1"
    while mark.encode() in data:
        mark += "\1"
    marked = pc.replace_substring_regex(pa.scalar(data, pa.binary()), expression, f"{mark}\\0{mark}").as_py()
    pairs, at = [], 0
    for number, piece in enumerate(marked.split(mark.encode())):
        if number % 2:
            pairs.append((at, at + len(piece)))
        at += len(piece)
    return pairs
