"""The command line of a test that plays random histories, each made from the seed and its index alone."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path


def main(description: str | None, check: Callable[[int, int, Path], Counter[str]], done: str) -> int:
    """Run histories, by their index, the seed and a folder; the exception of the first that fails goes on."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--only", type=int, metavar="INDEX")
    parser.add_argument("--folder", type=Path, help="for the logs; those of a failure stay")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    indexes = range(options.histories) if options.only is None else [options.only]
    for index in indexes:
        folder = Path(tempfile.mkdtemp(prefix=f"{done}-{index}-", dir=options.folder))
        try:
            counts += check(index, options.seed, folder)
        except BaseException:
            print(f"--seed {options.seed} --only {index} failed, see {folder}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    print(f"{len(indexes)} histories {done}: {dict(sorted(counts.items()))}")
    return 0
