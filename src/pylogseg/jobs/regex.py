r"""Regular expressions over columns: by Arrow's engine (RE2) where it means the same as Python's `re`, else by `re`.

RE2 goes over a whole column in one call without the GIL, so threads search side by side; `re` wants an object of Python
for each record. But the two are different languages: look-around and references are Python's alone, ``$``, ``\s``,
``{,3}``, ``\Z`` and letters beyond ASCII mean different things. What is not in the small common part is left to `re`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg import arrow

#: A column larger than that does not fit Arrow's 32 bits of offsets.
_MOST_BYTES = 2**31 - 1

# Each alternative means the same in both languages, wherever it stands. A class may not contain a bracket, and a brace
# that begins no count is itself.
_COMMON = re.compile(
    rb"""(?x) (?:
        [^\\\[\](){}*+?|^$.\x80-\xff]        # itself
      | \\ [^0-9A-Za-z_\x80-\xff]            # an escaped sign
      | \\ (?: [dDwWbnrt] | x[0-7][0-9a-fA-F] )
      | \[ \^? (?: [^\\\[\]^\x80-\xff] | \\ [^0-9A-Za-z_\x80-\xff] | \\[dwnrt] )+ \]
      | \{ (?! [0-9,] ) | \}
      | \( (?! \? ) | \(\?: | \) | \| | \^ | \.
      | [*+?] \??
      | \{ [0-9]{1,3} (?: , [0-9]{0,3} )? \} \??
    )*"""
)


@functools.lru_cache
def in_re2(expression: bytes) -> str | None:
    r"""An expression that means in RE2 what this one means in Python; None where it is not sure that there is one.

    >>> in_re2(b"^k[0-9]+$"), in_re2(rb"(?<!a)b")
    ('^k[0-9]+\\n?\\z', None)
    """
    body, is_end = expression, False
    if expression.endswith(b"$") and _COMMON.fullmatch(expression[:-1]):
        # Python's also stands in front of a last line feed. An odd backslash before it would not have matched.
        body, is_end = expression[:-1], True
    if not _COMMON.fullmatch(body):
        return None
    text = body.decode("ascii") + (r"\n?\z" if is_end else "")
    try:
        pc.match_substring_regex(pa.array([b""], pa.binary()), text)
    except pa.ArrowInvalid:
        return None
    return text


def search(
    pattern: re.Pattern[bytes], place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...]
) -> npt.NDArray[np.bool_] | None:
    """Which spans hold what a pattern matches; None where RE2 is not the one to say so.

    Parameters
    ----------
    pattern : compiled pattern of bytes
        Its flag IGNORECASE counts; there is no answer to others.
    place, size : numpy.ndarray
        Spans, as in `RecordColumns`; a size of -1 matches nothing.
    sources : tuple of buffers
        What the places point into.
    """
    text = None if pattern.flags & ~re.IGNORECASE else in_re2(pattern.pattern)
    if text is None or int(np.maximum(size, 0).sum(dtype=np.int64)) > _MOST_BYTES:
        return None
    column = arrow.binary_array(place, size, sources, pa.binary())
    found = pc.match_substring_regex(column, text, ignore_case=bool(pattern.flags & re.IGNORECASE))
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
