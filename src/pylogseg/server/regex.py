"""Names that match a regular expression of a client, by RE2: its time is linear, so none can stop a server."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.errors import RequestError


def check_pattern(pattern: str) -> None:
    """Raise RequestError if an expression is not valid."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise RequestError(f"{pattern!r} is not a valid regular expression: {reason}") from None


def whole_matches(names: Collection[str], pattern: str) -> set[str]:
    """Return the names that match a valid expression as a whole."""
    ordered = sorted(names)
    matches = pc.match_substring_regex(pa.array(ordered, pa.string()), rf"\A(?:{pattern})\z")
    return {name for name, matches in zip(ordered, matches.to_pylist(), strict=True) if matches}
