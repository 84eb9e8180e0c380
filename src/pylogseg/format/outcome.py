"""The result of a command, a job and a function in one shape: parts, lines for people, warnings, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pylogseg.format.escape import printable_line

#: Headings, each with the name of a field or a function of the row.
Headings = Mapping[str, str | Callable[[Any], Any]]
#: A cell that is wider than this, and than most others of its column, moves only its own row.
_WIDE = 64


class TextTable(NamedTuple):
    """A table for people: None is ``-``, and the columns in `right` stand to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    right: Collection[str] = ()

    @classmethod
    def of(cls, rows: Sequence[Any], headings: Headings, right: Iterable[str] = ()) -> TextTable:
        """Return rows, dictionaries if headings name fields, as a table; numbers are to the right."""
        cells = [[of(row) if callable(of) else row[of] for of in headings.values()] for row in rows]
        numbers = (name for i, name in enumerate(headings) if any(type(line[i]) in (int, float) for line in cells))
        return cls([*headings], [[_text(cell) for cell in line] for line in cells], {*right, *numbers})

    @property
    def texts(self) -> list[list[str]]:
        """The cells as texts of one line each."""
        return [["-" if value is None else printable_line(str(value)) for value in row] for row in self.rows]

    def __str__(self) -> str:
        lines, texts = [], self.texts
        widths = [_width(column) for column in zip(self.headings, *texts, strict=True)]
        for line in [list(self.headings), *texts]:
            cells = [
                text.rjust(width) if name in self.right else text.ljust(width)
                for text, width, name in zip(line, widths, self.headings, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(map(str, value)) or None
    return str(value).lower() if isinstance(value, bool) else value


def _width(texts: Sequence[str]) -> int:
    lengths = sorted(map(len, texts))
    most = max(_WIDE, 2 * lengths[len(lengths) // 2])
    return max(length for length in lengths if length <= most)


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

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the lines for people, or tables; the last one is the summary."""
        yield from ()
