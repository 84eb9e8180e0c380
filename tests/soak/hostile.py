"""Hostile bytes for everything that reads bytes.

    python tests/soak hostile [--inputs N] [--first INDEX] [--seed N] [--minutes M] [--target NAME] [--only INDEX]

Each input is made from the seed and its index alone, so a failure can be had again with ``--seed`` and ``--only``. The
buffers that kernels read are allocations of exactly their size: under a sanitiser (`sanitize.sh`) every byte read
behind one is found. `test_hostile.py` runs a fixed number.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from helpers import (
    hostile_engine,
    hostile_files,
    hostile_json,
    hostile_logs,
    hostile_messages,
    hostile_text,
    hostile_typed,
    mutations,
)

Target = Callable[[Random], None]

#: What is attacked, and its share of the inputs.
TARGETS: dict[str, tuple[Target, int]] = {
    "batches": (hostile_logs.batches, 28),
    "walk": (hostile_logs.walked, 14),
    "reader": (hostile_logs.read, 10),
    "codecs": (hostile_logs.codecs, 12),
    "doors": (hostile_logs.doors, 8),
    "files": (hostile_files.files, 12),
    "text": (hostile_text.texts, 8),
    "encoder": (hostile_text.encoded, 8),
    "messages": (hostile_messages.messages, 8),
    "typed": (hostile_typed.typed, 8),
    "protobuf": (hostile_typed.protobuf, 8),
    "strings": (hostile_json.strings, 8),
    "parts": (hostile_json.parts, 8),
    "columns": (hostile_json.columns, 8),
    "engine": (hostile_engine.appends, 1),
}
#: Processor seconds that one input may take; inputs have at most 200 KB.
SLOWEST_S = 2.0


class Broken(AssertionError):
    """An input did what none may do."""


@dataclass
class Report:
    """What a run did."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        total = self.counts.total()
        return (
            f"{total} inputs in {self.seconds:.0f} s ({total / max(self.seconds, 0.001):.0f}/s): {parts}; "
            f"slowest {1000 * self.slowest_s:.0f} ms ({self.slowest})"
        )


def run(
    inputs: int, seed: int, *, first: int = 0, target: str = "", minutes: float = 0, progress: bool = False
) -> Report:
    """Try inputs from index `first` on, of one target or of all, and raise `Broken` at the first that fails."""
    names = [target] if target else [name for name, (_, share) in TARGETS.items() for _ in range(share)]
    report, began, shown = Report(), time.monotonic(), time.monotonic()
    mutations.seeds(), mutations.bombs()
    logger = logging.getLogger("pylogseg")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # gaps are many here
    try:
        for index in range(first, first + inputs):
            rng = Random(seed << 64 | index)
            name = rng.choice(names)
            start = time.thread_time()
            try:
                TARGETS[name][0](rng)
            except Exception as error:
                raise Broken(f"{name}: {error!r}; again with: {again(seed, index, target)}") from error
            spent = time.thread_time() - start
            report.counts[name] += 1
            if spent > report.slowest_s:
                report.slowest_s, report.slowest = spent, f"{name}, {again(seed, index, target)}"
            if spent > SLOWEST_S:
                raise Broken(f"{name}: {spent:.1f} s for one input; again with: {again(seed, index, target)}")
            now = time.monotonic()
            report.seconds = now - began
            if progress and now - shown > 10:
                shown = now
                print(report, flush=True)
            if minutes and report.seconds > 60 * minutes:
                break
        return report
    finally:
        logger.setLevel(level)


def again(seed: int, index: int, target: str) -> str:
    """The command that repeats one input."""
    return f"python tests/soak hostile --seed {seed} --only {index}" + (f" --target {target}" if target else "")


def main() -> None:
    """Run a soak from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the index of the first input, to go on with a run")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long")
    parser.add_argument("--target", default="", choices=["", *TARGETS])
    parser.add_argument("--only", type=int, default=None, help="the index of one input")
    options = parser.parse_args()
    first, inputs = (options.first, options.inputs) if options.only is None else (options.only, 1)
    print(f"seed {options.seed}", flush=True)
    try:
        report = run(inputs, options.seed, first=first, target=options.target, minutes=options.minutes, progress=True)
    except Broken as error:
        if options.only is not None:
            raise
        sys.exit(str(error))
    print(f"all held: {report}")


if __name__ == "__main__":
    main()
