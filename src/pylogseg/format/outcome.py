"""The result of a command, a job and a function in one shape: parts, lines for people, warnings, an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


class Outcome:
    """A result that the shell prints for people, or as JSON.

    A subclass declares the columns of its own line of JSON, the last one (`pylogseg.format.columns`). Parts have
    columns and `lines` too.
    """

    #: Findings about records that are known to be missing.
    lacking: Sequence[Any] = ()

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if there is damage, a loss or a difference, 2 if not all could be done or looked at."""
        return 0

    def parts(self) -> Iterable[Any]:
        """Return the parts, in the order in which they are shown."""
        return ()

    def warnings(self) -> Iterable[str]:
        """Return the lines that a shell prints to stderr, also with JSON."""
        return ()

    def lines(self) -> Iterator[str]:
        """Yield the lines for people; the last one is the summary."""
        yield from ()
