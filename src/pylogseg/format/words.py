"""Arguments that are one of a few words, of which another is refused; and names in the JSON of reports."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError


def check_word(name: str, given: str, allowed: Sequence[str]) -> None:
    """Raise RequestError unless an argument is one of the allowed words."""
    if given not in allowed:
        raise RequestError(f"{name}={given!r}: must be one of {', '.join(map(repr, allowed))}")


def camel_case(name: str) -> str:
    """Return a name as the JSON of reports and summaries has it: ``end_position`` is ``endPosition``."""
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)
