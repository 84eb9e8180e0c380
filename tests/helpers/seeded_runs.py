"""The command line of a test that plays random histories, each made from the seed and its index alone."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path


def seeded_indexes(count: int, minutes: float | None, only: int | None) -> Iterator[int]:
    """Yield the indexes of a run: one, or so many, or those that the time allows; at least one."""
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for index in itertools.count() if only is None else [only]:
        yield index
        if (index + 1 >= count) if end is None else time.monotonic() >= end:
            return


def main(description: str | None, check: Callable[[int, int, Path], Counter[str]], done: str) -> int:
    """Run histories, by their index, the seed and a folder; the exception of the first that fails goes on."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--minutes", type=float, help="so long, in place of a number")
    parser.add_argument("--only", type=int, metavar="INDEX")
    parser.add_argument("--folder", type=Path, help="for the logs; those of a failure stay")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    indexes = seeded_indexes(options.histories, options.minutes, options.only)
    played = 0
    for index in indexes:
        played += 1
        folder = Path(tempfile.mkdtemp(prefix=f"{done}-{index}-", dir=options.folder))
        try:
            counts += check(index, options.seed, folder)
        except BaseException:
            print(f"--seed {options.seed} --only {index} failed, see {folder}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    print(f"{played} histories {done}: {dict(sorted(counts.items()))}")
    return 0
