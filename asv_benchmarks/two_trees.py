"""The ratio table of two checkouts, run in turn on one machine: which figures changed, and by how much.

    python asv_benchmarks/two_trees.py BEFORE AFTER [--rounds N] [--tolerance PERCENT] [TABLE OPTION ...]

BEFORE and AFTER are interpreters in whose environment a checkout is installed in editable form, such as
``~/before/.venv/bin/python``. Each round runs `asv_benchmarks/table.py` of both checkouts with the options that follow,
such as ``--quick --only arrow lookups``. The best figure of all rounds counts for each row. The exit code is 1 if a
figure fell by more than the tolerance.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_TIMES = ("us", "ms", "MB")
_FIND = "import pathlib, pylogseg; print(pathlib.Path(pylogseg.__file__).parents[2] / 'asv_benchmarks' / 'table.py')"


class Figure(NamedTuple):
    """A figure of a row: what it counts, and how good it is."""

    value: float
    unit: str

    def better(self, other: Figure | None) -> Figure:
        """The better one of two."""
        if other is None:
            return self
        return min(self, other) if self.unit in _TIMES else max(self, other)

    def gain(self, before: Figure) -> float:
        """How many times as good as another."""
        better, worse = (before.value, self.value) if self.unit in _TIMES else (self.value, before.value)
        return better / worse if worse else 1.0 if better == worse else float("inf")


Key = tuple[str, str]  # work, compared with


def figures(python: str, options: list[str]) -> dict[Key, Figure]:
    """Run the table of one checkout."""
    table = subprocess.run([python, "-c", _FIND], check=True, capture_output=True, text=True).stdout.strip()
    if not Path(table).exists():
        raise SystemExit(f"{python}: pylogseg is not installed from a checkout in editable form: no {table}")
    run = subprocess.run([python, table, "--markdown", *options], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[Key, Figure] = {}
    for line in run.stdout.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) >= 3:
            value, unit = cells[1].split(" ", 1)
            found[cells[0], cells[2]] = Figure(float(value), unit)
    return found


def main() -> None:
    """Run both, and print each row that both have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=3, metavar="PERCENT")
    asked, options = parser.parse_known_args()
    best: tuple[dict[Key, Figure], dict[Key, Figure]] = ({}, {})
    for number in range(asked.rounds):
        print(f"... round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
        for python, kept in zip((asked.before, asked.after), best, strict=True):
            for key, figure in figures(python, options).items():
                kept[key] = figure.better(kept.get(key))
    before, after = best
    fell = 0
    print("| work | compared with | before | after | after / before |\n| --- | --- | --- | --- | --- |")
    for key in [key for key in before if key in after]:
        gain = after[key].gain(before[key])
        fell += gain < 1 - asked.tolerance / 100
        old, new = (f"{figure.value:g} {figure.unit}" for figure in (before[key], after[key]))
        print(f"| {key[0]} | {key[1]} | {old} | {new} | {gain:.2f} |")
    for name, only in (("before", before.keys() - after.keys()), ("after", after.keys() - before.keys())):
        if only:
            print(f"\nonly {name}: {'; '.join(sorted({work for work, _ in only}))}")
    print(f"\n{fell} figures fell by more than {asked.tolerance:g} %")
    sys.exit(bool(fell))


if __name__ == "__main__":
    main()
