"""Check the names of partitions that a job selects."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError


def asked_for(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return names and patterns; none selects all. An empty sequence is refused: it may be a failed computation."""
    if names is None:
        return ()
    if isinstance(names, str):
        raise RequestError(f"names: expected a sequence of names, not the string {names!r}")
    if not len(names):
        raise RequestError("names is empty: leave it out (or None) to select all")
    if "" in names:
        raise RequestError("names: a name is empty")
    return tuple(names)
