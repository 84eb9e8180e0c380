"""Rounds of a program with live clusters: its options, a seed for each round, and the differences."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def play_rounds(description: str | None, play: Callable[..., tuple[int, list[str]]], modes: Sequence[str] = ()) -> None:
    """Play one round for each seed; `play` gets seed, partitions, steps, a folder, and a mode if there are some.

    Exit code 1 with a difference.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6)
    if modes:
        parser.add_argument("--mode", choices=modes, default=modes[0])
    asked = parser.parse_args()
    histories, faults = 0, 0
    for seed in range(asked.seed, asked.seed + asked.rounds):
        print(f"seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            mode = (asked.mode,) if modes else ()
            count, differences = play(seed, asked.partitions, asked.steps, Path(folder), *mode)
        histories, faults = histories + count, faults + len(differences)
        for difference in differences:
            print(f"  DIFFERENCE {difference}")
    print(f"{histories} histories of partitions in {asked.rounds} rounds, {faults} differences")
    sys.exit(bool(faults))
