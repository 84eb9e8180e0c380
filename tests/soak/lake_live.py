"""`lake` beside a live writer: each committed record once, none that was aborted, the latest of each key.

    python tests/soak lake-live [--minutes N] [--seed S]

Rounds of 20 seconds. In each, a process writes transactions of several producers, overlapping, some of them aborted, to
a log of tiny segments, and deletes old records behind the tables. Beside it tables of Delta and Iceberg, and one of the
latest records, are brought up to date again and again.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from helpers.lake_tables import log_rows, name_of, plain, rows_of

import pylogseg
from soak import itself

#: Offsets that stay in the log behind the slowest table.
_KEPT = 500


def write_log(folder: str, seed: int, seconds: float) -> None:
    """Transactions of three producers; prints how each has ended."""
    rng = random.Random(seed)
    with pylogseg.open_log(folder, segment_bytes=20_000, index_interval_bytes=500, retention_ms=-1) as log:
        producers, open_ids, number = [log.producer(i) for i in range(3)], dict[int, int](), 0
        end = time.monotonic() + seconds
        while time.monotonic() < end or open_ids:
            i = rng.randrange(3)
            if i in open_ids and (time.monotonic() >= end or rng.random() < 0.4):
                kind = rng.choice(("commit", "abort"))
                print(kind, open_ids.pop(i))
                (producers[i].commit if kind == "commit" else producers[i].abort)()
            elif time.monotonic() < end:
                if i not in open_ids:
                    number += 1
                    open_ids[i] = number
                    producers[i].begin()
                value = None if rng.random() < 0.1 else b"%d " % open_ids[i] + b"x" * rng.randrange(100)
                producers[i].append([(None, b"%d" % rng.randrange(50), value)] * rng.randint(1, 5))
            if rng.random() < 0.01 and (behind := Path(folder, "..", "..", "behind")).exists():
                log.increment_log_start(max(log.log_start_offset, int(behind.read_text() or 0) - _KEPT))
            time.sleep(rng.random() * 0.004)


def one(seed: int, root: Path, seconds: float) -> tuple[str, list[str]]:
    """Write, and keep tables fresh meanwhile; what was done, and what was wrong."""
    folder, told = root / "data" / "orders-0", root / "told"
    tables = {"delta": False, "iceberg": False, "delta latest": True, "iceberg latest": True}
    names = {name: name_of(name.split()[0], root / name.replace(" ", "-"), "orders") for name in tables}
    runs = rounds = 0
    with told.open("wb") as out:
        words = [*itself(__file__), "--write", str(folder), str(seed), str(seconds)]
        writing = subprocess.Popen(words, stdout=out, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        while not list(folder.glob("*.log")):
            time.sleep(0.05)
        while True:
            is_last = writing.poll() is not None
            ends = []
            for name, latest in tables.items():
                (done,) = pylogseg.lake(root / "data", names[name], latest=latest, commit_bytes=50_000)
                runs += done.commits > 0
                ends += [following for _, following in done.offsets.values()]
            (root / "behind").write_text(str(min(ends, default=0)))
            rounds += 1
            if is_last:
                break
    rows = {name: plain(rows_of(table)) for name, table in names.items()}
    wrong = [] if writing.returncode == 0 else [f"the writer ended with {writing.returncode}"]
    told_ends = [line.split() for line in told.read_text().splitlines()]
    aborted = {int(number) for kind, number in told_ends if kind == "abort"}
    there, last = log_rows(root / "data", "orders"), dict[bytes, Any]()
    for row in rows["delta"]:
        last[row["key"]] = row
        if row["value"] is not None and int(row["value"].split()[0]) in aborted:
            wrong.append(f"offset {row['offset']} was aborted")
    newest = sorted((row for row in last.values() if row["value"] is not None), key=lambda row: row["offset"])
    offsets = [row["offset"] for row in rows["delta"]]
    if rows["delta"][-len(there) :] != there or len(set(offsets)) != len(offsets):
        wrong.append("delta: other rows than the log")
    wrong += ["iceberg: other rows than delta"] if rows["iceberg"] != rows["delta"] else []
    wrong += [f"{name}: other rows" for name in tables if tables[name] and rows[name] != newest]
    what = f"{len(offsets)} records, {len(there)} of them still in the log, {len(newest)} keys, {len(aborted)} aborts"
    return f"seed {seed}: {what}, {rounds} rounds with {runs} runs that committed", wrong


def main() -> int:
    """Print a line for each round; exit code 1 if something was wrong."""
    if sys.argv[1:2] == ["--write"]:
        folder, seed, seconds = sys.argv[2:]
        write_log(folder, int(seed), float(seconds))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the others follow")
    options = parser.parse_args()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    while True:
        with tempfile.TemporaryDirectory(prefix="lake-live-") as root:
            what, wrong = one(seed, Path(root), 20)
        print("\n".join([what, *wrong]), flush=True)
        seed += 1
        if wrong or time.monotonic() >= end:
            return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
