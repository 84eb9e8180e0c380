#!/usr/bin/env python3
"""Random lists of operations, on a real Kafka and on our engine: the same answers, states and files.

    fuzz.py [--seed SEED] [--lists N] [--first I | --only I,J,...] [--no-cleaning] [--keep DIR]
    fuzz.py --named [--keep DIR]

Without --seed every run takes another one; it is printed. List I of a seed is the same whenever it is made, so what a
run reports is run again with `--seed SEED --only I`. With --keep the lists that differ stay in DIR/NAME:
ops.jsonl, expected.jsonl and final/ as Kafka left them, out.jsonl and work/ as we did. With --named the lists are those
of `scenarios.py`.
Prints each difference; exit code 0 none, 1 some.
"""

import argparse
import contextlib
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import compare
from random_lists import random_lists
from replay import Replay, ReplayAs44, replay
from scenarios import SCENARIOS, write

HERE = Path(__file__).resolve().parent

#: The version of the real Kafka.
KAFKA = tuple(map(int, os.environ.get("KAFKA_VERSION", "4.3").split(".")[:2]))
#: Lists that one start of the JVM replays.
CHUNK = 50
#: The log compresses itself, in segments that fill: other sizes, so other segments; the records are the same.
RECODED = {"legacy-formats"}
#: How often a list is run, each time without more of what is known to differ.
RUNS = 8
#: What Kafka says where we differ on purpose (docs/fidelity.md): the list is run again without these operations.
KNOWN = {
    "no larger than the last offset appended": "an index with an entry above the batch: Kafka leaves the batch's bytes",
    "Attempt to append to a full index": "where an index has no room, batches go without an entry",
    "Attempt to append to a full time index": "where an index has no room, batches go without an entry",
    "Invalid negative timestamp": "a batch with a record of a time below -1: Kafka's cleaner ends with an error",
    "without a valid producer ID": "a transactional batch without a producer: Kafka's cleaner ends with an error",
    "newPosition > limit": "an index that is larger than segment.index.bytes allows now keeps a log from opening",
}


def on_kafka(lists, out):
    """Replay lists on a real Kafka, in one JVM: OUT/NAME/{ops.jsonl, expected.jsonl, final/} for each."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, operations in lists:
            write(Path(scratch) / f"{name}.jsonl", operations)
        done = subprocess.run(
            [HERE / "kafka.sh", "replay", scratch, out], capture_output=True, encoding="utf-8", check=False
        )
    if done.returncode:
        raise RuntimeError(f"kafka.sh replay: exit code {done.returncode}: {done.stderr[-2000:]}")
    for name, operations in lists:
        settle(operations, out / name)


def settle(operations, folder):
    """Put the bytes and numbers that descriptions and places stood for into the operations."""
    answers = [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    # a list may have one operation twice, which stood for another place each time
    settled = [
        {**operation, **answer.pop("resolved", {})} for operation, answer in zip(operations, answers, strict=True)
    ]
    write(folder / "ops.jsonl", settled)
    write(folder / "expected.jsonl", answers)
    (folder / "out.jsonl").unlink()
    (folder / "work" / "final").rename(folder / "final")
    shutil.rmtree(folder / "work")


def on_ours(folder):
    """Replay the list in a folder on our engine, beside what Kafka left there; where versions differ, as that one."""
    operations = [json.loads(line) for line in (folder / "ops.jsonl").read_text(encoding="utf-8").splitlines()]
    random.seed(0)
    with (folder / "out.jsonl").open("w", encoding="utf-8") as out:
        replay(operations, folder / "work", out, Replay if KAFKA < (4, 4) else ReplayAs44)


def compared(folders):
    """Differences of each list; what Kafka has to read, it reads in one start."""
    asked = set()

    def note(paths):
        asked.update(paths)
        return {path: [] for path in paths}

    for folder in folders:
        compare.compare(folder, folder, note, recoded=folder.name in RECODED)
    known = compare.decode(sorted(asked)) if asked else {}
    return {
        folder.name: compare.compare(
            folder, folder, lambda paths: {path: known[path] for path in paths}, recoded=folder.name in RECODED
        )
        for folder in folders
    }


def run(lists, out):
    """Replay lists on both; the differences of each."""
    on_kafka(lists, out)
    folders = [out / name for name, _ in lists]
    for folder in folders:
        on_ours(folder)
    return compared(folders)


def explanations(folder):
    """Why we differ from each of Kafka's answers, if that is known."""
    for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines():
        message = json.loads(line).get("message", "")
        yield next((why for said, why in KNOWN.items() if said in message), None)


def known_difference(folder, found):
    """The explanation of the first difference, if it has one."""
    line = re.match(r"line (\d+)", found[0])
    return None if line is None else list(explanations(folder))[int(line[1]) - 1]


def without_known(folder, operations):
    """The operations without those that are known to differ: so what follows them is compared, too."""
    return [each for each, why in zip(operations, explanations(folder), strict=True) if why is None]


def census(folders):
    """How often each operation, and each answer that is a refusal, was there."""
    counts = Counter()
    for folder in folders:
        for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            counts[f"{row['op']} {row.get('kind', '')}".strip()] += 1
    return counts


def report(name, found, number, folder, keep):
    """Print differences of a list, and keep it."""
    which = f" (run {number}, without what is known to differ)" if number > 1 else ""
    print("\n  ".join([f"{name}{which}: {len(found)} differences", *found[:5]]), flush=True)
    if keep is not None:
        shutil.rmtree(keep / name, ignore_errors=True)
        shutil.copytree(folder, keep / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--lists", type=int, default=100, metavar="N", help="default: 100")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="begin with list I; default: 0")
    parser.add_argument("--only", metavar="I,J,...", help="these lists alone")
    parser.add_argument("--named", action="store_true", help="the lists of scenarios.py, not random ones")
    parser.add_argument("--no-cleaning", action="store_true", help="lists that do not clean")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where lists that differ stay")
    parser.add_argument("--census", action="store_true", help="print how often each operation and refusal was there")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    logging.disable(logging.CRITICAL)  # damage is repaired in thousands of lists
    began, differing, cut, done, counts, explained = time.monotonic(), 0, 0, 0, Counter(), Counter()
    named = [(name, list(make())) for name, make in SCENARIOS.items()] if args.named else []
    numbers = range(args.first, args.first + args.lists)
    numbers = numbers if args.only is None else sorted({int(each) for each in args.only.split(",")})
    count = len(named) or len(numbers)
    which = f"{count} named lists" if named else f"seed {seed}"
    if not named:
        print(f"{which}, {count} lists from number {numbers[0]}{', no cleaning' if args.no_cleaning else ''}")
    again = []  # lists without what is known to differ, and how often they ran
    while done < count or again:
        size = min(CHUNK, count - done)
        fresh = named[done : done + size] or list(random_lists(seed, numbers[done : done + size], not args.no_cleaning))
        runs, again = [*again, *((each, 1) for each in fresh)], []
        with tempfile.TemporaryDirectory() as scratch:
            found = run([each for each, _ in runs], Path(scratch))
            for (name, operations), number in runs:
                folder = Path(scratch) / name
                why = known_difference(folder, found[name]) if found[name] else None
                if why is not None:
                    explained[why] += number == 1
                    if number < RUNS:
                        again.append(((name, without_known(folder, operations)), number + 1))
                    else:
                        cut += 1
                elif found[name]:
                    differing += 1
                    report(name, found[name], number, folder, args.keep)
            counts += census([Path(scratch) / name for (name, _), _ in runs])
        done += size
        if size and (sys.stderr.isatty() or done % 500 == 0 or done == count):
            print(
                f"{done} of {count} lists, {differing} differ, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    if args.census:
        print(*(f"{count:8} {what}" for what, count in sorted(counts.items())), sep="\n")
    for why, times in explained.items():
        print(f"{times} lists differ as they are known to, and were run again without that: {why}")
    if cut:
        print(f"{cut} lists were not compared to their ends: still known to differ after {RUNS} runs")
    print(f"{which}: {done} lists, {sum(counts.values())} operations, {differing} lists differ")
    return 1 if differing else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
