"""A row of the table: our figure, the other's, the ratio, and whether it is what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One comparison.

    Attributes
    ----------
    work : str
    ours : float
        In `unit`; more is better, unless the unit is a time or a size.
    unit : str
    peer : str
        Whom we are compared with; empty if with a number alone.
    theirs : float or None
    bar : float or None
        The least ratio, or, without a peer, the least (greatest, for a time or a size) figure. None: no bar.
    bound : str
        What bounds our figure.
    """

    work: str
    ours: float
    unit: str
    peer: str
    theirs: float | None
    bar: float | None
    bound: str = ""

    @property
    def is_less_better(self) -> bool:
        """Whether the figure is a time or a size."""
        return self.unit in ("us", "ms", "MB")

    @property
    def ratio(self) -> float | None:
        """How many times as good as the other's."""
        if self.theirs is None:
            return None
        return self.theirs / self.ours if self.is_less_better else self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.bar is None:
            return None
        if self.ratio is not None:
            return self.ratio >= self.bar
        return self.ours <= self.bar if self.is_less_better else self.ours >= self.bar

    def cells(self) -> list[str]:
        """As text."""
        bar = "" if self.bar is None else f"{'<=' if self.ratio is None and self.is_less_better else '>='} {self.bar:g}"
        if bar:
            bar += "x" if self.ratio is not None else f" {self.unit}"
        verdict = {True: "yes", False: "NO", None: ""}[self.met]
        theirs = "" if self.theirs is None else f"{number(self.theirs)} {self.unit}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}x"
        return [self.work, f"{number(self.ours)} {self.unit}", self.peer, theirs, ratio, bar, verdict, self.bound]


HEAD = ("work", "pylogseg", "compared with", "its figure", "ratio", "bar", "met", "bounded by")


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def lines(rows: Sequence[Row], *, markdown: bool) -> list[str]:
    """The table, for a terminal or a page."""
    table = [list(HEAD), *(row.cells() for row in rows)]
    if markdown:
        table.insert(1, ["---"] * len(HEAD))
        return ["| " + " | ".join(cells) + " |" for cells in table]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(HEAD))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table]
