#!/usr/bin/env python3
"""What a real broker leaves of damaged partitions, beside what the golden data say that it left.

    damaged.py [CASE...]

`broker.sh damage` starts a broker on each damaged folder of the golden data (Kafka 4.3 made those), with the version
that KAFKA_VERSION names. The files that it leaves, and the records that it gives a consumer, are compared with the
golden ones, which tests hold `recover` to. Nine minutes for all cases. Exit code 0 if all is equal.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: What a broker gives a partition anew (topic id, leader epoch), and what it will delete.
ITS_OWN = (".deleted", "checkpoint", ".metadata")
#: Cases in which a Kafka from 4.4 on leaves other indexes (docs/fidelity.md): a stop cuts those of odd size to whole
#: entries in the active segment only.
OTHER_INDEXES = ("bad-index-clean",)


def left(case: Path) -> dict[str, bytes]:
    """The files of a partition, and the records that a consumer got."""
    found = {str(path.relative_to(case)): path.read_bytes() for path in (case / "after").rglob("*") if path.is_file()}
    found = {name: data for name, data in found.items() if not name.endswith(ITS_OWN)}
    return {**found, "read.jsonl": gzip.decompress((case / "read.jsonl.gz").read_bytes())}


def main(arguments: list[str]) -> int:
    """Compare the cases."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    sys.path.insert(0, str(HERE.parents[1]))
    from helpers.golden import GOLDEN, unpack

    wrong = 0
    is_44 = tuple(map(int, os.environ.get("KAFKA_VERSION", "4.3").split(".")[:2])) >= (4, 4)
    with tempfile.TemporaryDirectory(prefix="pylogseg-damaged-") as scratch:
        golden, fresh = Path(scratch, "golden"), Path(scratch, "fresh")
        archives = sorted((GOLDEN / "broker-4.3").glob("*.tar.xz"))
        for target in (golden, fresh):
            unpack(archives, target)
        golden, fresh = golden / "broker-4.3", fresh / "broker-4.3"
        subprocess.run(
            ["bash", HERE / "broker.sh", "damage", fresh, *arguments], check=True, stderr=subprocess.DEVNULL,
            env={**os.environ, "ORACLE_TMP": str(Path(scratch, "work"))},
        )  # fmt: skip
        cases = sorted(path.name for path in (golden / "damage").iterdir() if not arguments or path.name in arguments)
        for case in cases:
            before, now = (left(folder / "damage" / case) for folder in (golden, fresh))
            names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
            if is_44 and case in OTHER_INDEXES and names and all(name.endswith(".index") for name in names):
                print(f"{case}: equal, but for indexes of odd size", flush=True)
                continue
            wrong += bool(names)
            print(f"{case}: {'DIFFERENT: ' + ', '.join(names) if names else 'equal'}", flush=True)
    print(f"{len(cases)} cases, {wrong} differ")
    return int(wrong > 0 or not cases)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
