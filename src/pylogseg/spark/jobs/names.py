"""Check the names that a job is given."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError


def asked_for(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names and patterns; none for all that there are. What was computed and came out empty is refused.

    Raises
    ------
    RequestError
        For an empty sequence, an empty name, or one string.
    """
    if names is None:
        return ()
    if isinstance(names, str):
        raise RequestError(f"names are a sequence of names, not the string {names!r}")
    if not len(names):
        raise RequestError("names is empty: leave it out (or None) to select all")
    if "" in names:
        raise RequestError("names: a name is empty")
    return tuple(names)
