"""Every harm to every object of small tiers, and many flipped bits: what `test_harmed_objects.py` has a part of.

    python tests/soak tier-harms [--seed N] [--flips N] [--layout NAME...]

Each harm of `helpers/harmed_objects.py` comes to every kind of object of the first upload, of one in the middle and of
the last one, in every layout; then so many bits of each are flipped, one after the other. Each time `verify` has to
name the object, readers have to give the right records or an error that names it, and to skip may lose nothing but
what lies in it. What nothing stored proves is listed there. Minutes; exit code 0 if all is well.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from helpers.harmed_objects import FIRST, HARMS, KINDS, LAST, MIDDLE, World, harmed, judge, problems, write_partition


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=40, help="of each object (%(default)s)")
    parser.add_argument("--layout", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # gaps are counted
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tier-harms-") as root:
        disk = write_partition(Path(root, "disk", "orders-0"))
        for layout in options.layout:
            world = World.make(layout, Path(root, layout), disk)
            said: Counter[str] = Counter()
            cases = [(kind, upload) for kind in KINDS[layout] for upload in (FIRST, MIDDLE, LAST)]
            for kind, upload in cases:
                for number, harm in enumerate([*HARMS, *["flipped"] * options.flips]):
                    before = world.object(upload, kind).read_bytes()
                    data = harmed(world, upload, kind, harm, Random(f"{options.seed} {kind} {upload} {number}"))
                    if data == before:
                        continue
                    found = judge(world, upload, kind, data)
                    said[found.said or "nothing"] += 1
                    for text in problems(layout, kind, harm, upload, found):
                        wrong += 1
                        flipped = data is not None and len(data) == len(before)
                        places = [i for i in range(len(before)) if data[i] != before[i]] if flipped and data else []
                        where = f" at {places[0]}" if len(places) == 1 else ""
                        print(f"{layout}: {kind} {harm}{where}, upload {upload}: {text}", flush=True)
            print(
                f"{layout}: verify said " + ", ".join(f"{what} {count}" for what, count in sorted(said.items())),
                flush=True,
            )
    print(f"{wrong} are wrong" if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
