#!/usr/bin/env python3
"""Puts examples/data together out of golden folders: a log directory that holds a little of everything.

    examples.py GOLDEN OUT

The partition folders are copied as Kafka left them; the text files beside them, which a broker keeps one of for all its
partitions, have the lines of their sources for the partitions taken.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

BROKER = "broker-4.3"
#: Source folder -> partition folders taken from it.
TAKEN = {
    "codecs/data0": ["codec-lz4-1", "codec-none-1", "mixed-0", "timestamps-0"],
    "codecs/data1": ["codec-gzip-0", "codec-snappy-0", "codec-zstd-0", "levels-0"],
    "compact-3-cleaned/data1": ["cmp-short-0", "cmp-txn-0"],
    "metadata/data0": ["__cluster_metadata-0"],
    "retention/data0": ["ret-bytes-0"],
    "retention/data1": ["del-records-0"],
    "txn/data0": ["__consumer_offsets-0", "__transaction_state-0", "txn-a-1", "txn-b-0"],
    "txn/data1": ["txn-a-0"],
}
#: A log of magic 0, 1 and 2, which no broker of today writes by itself: Kafka's storage classes wrote it in a replay.
LEGACY = ("replay/legacy-formats/final", "legacy-0")
CHECKPOINTS = ("cleaner-offset", "log-start-offset", "recovery-point-offset", "replication-offset")


def entries(path: Path, partitions: list[str]) -> list[str]:
    """Return the lines of an offset checkpoint that are about ``partitions``."""
    lines = path.read_text(encoding="ascii").splitlines()[2:] if path.exists() else []
    return [line for line in lines if "-".join(line.split()[:2]) in partitions]


def main() -> None:
    """Write the directory."""
    golden, out = Path(sys.argv[1]), Path(sys.argv[2])
    lines: dict[str, list[str]] = {name: [] for name in CHECKPOINTS}
    for source, partitions in TAKEN.items():
        folder = golden / BROKER / source
        for partition in partitions:
            shutil.copytree(folder / partition, out / partition, copy_function=shutil.copyfile)
        for name in CHECKPOINTS:
            lines[name] += entries(folder / f"{name}-checkpoint", partitions)
    shutil.copytree(golden / LEGACY[0], out / LEGACY[1], copy_function=shutil.copyfile)
    for name in ("recovery-point-offset", "replication-offset"):
        lines[name].append("legacy 0 55")
    for name, rows in lines.items():
        text = "".join(f"{row}\n" for row in ["0", str(len(rows)), *rows])
        (out / f"{name}-checkpoint").write_text(text, encoding="ascii", newline="\n")
    for name in ("meta.properties", ".kafka_cleanshutdown", "bootstrap.checkpoint"):
        shutil.copyfile(golden / BROKER / "codecs/data0" / name, out / name)


if __name__ == "__main__":
    main()
