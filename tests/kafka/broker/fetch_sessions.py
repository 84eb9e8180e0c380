#!/usr/bin/env python3
"""The model of fetch sessions of the tests, on a real broker: what it says there, it says of `pylogseg serve` as well.

    fetch_sessions.py [--seed N] [--steps N]

A broker starts on a copy of a golden scenario, and `pylogseg serve` on another one. Both get the same random walk:
sessions that begin, go on, change, forget, end, and clients that use wrong epochs, numbers and versions. Each answer is
compared with the model's. A minute. Exit code 0 if all is as the model says.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from helpers.fetch_sessions import IDS, NAMES, ONE_BYTE, UNLIMITED, Part, Sessions  # noqa: E402
from helpers.golden import GOLDEN, unpack  # noqa: E402  (folders above this program)
from one_broker import Broker  # noqa: E402

import pylogseg  # noqa: E402

TOPICS = ["codec-gzip", "codec-zstd", "mixed", "producers"]


def wanted(sessions: Sessions, noise: random.Random) -> dict[Part, int]:
    """Some partitions, some of which are not there, from offsets inside, at the end and beyond."""
    found = {}
    for _ in range(noise.choice([0, 1, 2, 5])):
        place = noise.choice(TOPICS), noise.choice([0, 1, 2, 77])
        first, end = sessions.ranges.get(place, (0, 0))
        found[place] = noise.choice([first, end, end + 1, (first + end) // 2])
    return found


def walk(address: str, seed: int, steps: int) -> int:
    """Use sessions at random; return how many requests were compared."""
    noise, sessions = random.Random(seed), Sessions(address, TOPICS)
    for _ in range(steps):
        limit, version = noise.choice([UNLIMITED, ONE_BYTE]), noise.choice([NAMES, IDS])
        chosen = noise.choice(sessions.open) if sessions.open and noise.random() < 0.9 else None
        kind = noise.random()
        if chosen is None or kind < 0.1:
            if noise.random() < 0.3:
                sessions.without(version, wanted(sessions, noise), limit)
            else:
                sessions.begin(version, wanted(sessions, noise), limit, chosen)
        elif kind < 0.8:
            change = wanted(sessions, noise) if noise.random() < 0.4 else {}
            forgotten = noise.sample(sorted(chosen.offsets), 1) if chosen.offsets and noise.random() < 0.2 else []
            sessions.go_on(chosen, change, [place for place in forgotten if place not in change], limit)
        elif kind < 0.87:
            sessions.end(chosen, wanted(sessions, noise), limit)
        elif kind < 0.95:
            sessions.mistake(chosen, noise.choice([1, 100]))
        else:
            sessions.mix(chosen)
    sessions.close()
    return steps


def main(arguments: list[str]) -> int:
    """Walk on both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--steps", type=int, default=2000)
    chosen = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-sessions-"))
    broker = Broker(folder)
    try:
        unpack(sorted((GOLDEN / "broker-4.3").glob("codecs.*tar.xz")), folder / "golden")
        for source in sorted((folder / "golden" / "broker-4.3" / "codecs").glob("data?")):
            shutil.copytree(source, folder / source.name)
            shutil.copytree(source, folder / "served" / source.name)
        broker.start()
        count = walk(broker.address, chosen.seed, chosen.steps)
        print(f"Kafka: {count} steps as the model says (seed {chosen.seed})", flush=True)
        with pylogseg.serve(*sorted((folder / "served").iterdir())) as server:
            count = walk(server.bootstrap_servers, chosen.seed, chosen.steps)
        print(f"pylogseg serve: {count} steps as the model says (seed {chosen.seed})")
    finally:
        broker("stop")
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
