"""Arguments that are one of a few words."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError


def check_word(name: str, given: str, allowed: Sequence[str]) -> None:
    """Raise RequestError unless an argument is one of the allowed words."""
    if given not in allowed:
        raise RequestError(f"{name}={given!r}: must be one of {', '.join(map(repr, allowed))}")
