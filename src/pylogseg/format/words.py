"""Arguments that are one of a few words; counts and sizes as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError

#: Names in a line about many.
FEW = 5


def check_word(name: str, given: str, allowed: Sequence[str]) -> None:
    """Raise RequestError unless an argument is one of the allowed words."""
    if given not in allowed:
        raise RequestError(f"{name}={given!r}: must be one of {', '.join(map(repr, allowed))}")


def count_text(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun.

    >>> count_text(1, "segment"), count_text(1200, "segment"), count_text(2, "batch", "batches")
    ('1 segment', '1,200 segments', '2 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def names_text(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the rest.

    >>> names_text(["a", "b"]), names_text([f"orders-{number}" for number in range(9)])
    ('a, b', 'orders-0, orders-1, orders-2, orders-3, orders-4 and 4 more')
    """
    few = ", ".join(names[:FEW])
    return f"{few} and {len(names) - FEW:,} more" if len(names) > FEW else few


def size_text(size: float) -> str:
    """Return a number of bytes as text for people.

    >>> size_text(999), size_text(1536000)
    ('999 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
