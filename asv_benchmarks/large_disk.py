"""A large disk of many partitions: `archive` beside `cp -r`, `report` beside `verify`, `drill` beside `restore`.

    python asv_benchmarks/large_disk.py [--partitions N] [--bytes N] [--runs N] [--folder DIR]

Each side runs in turn, in a process of its own. Copies and restores end with a flush of their file system, and are
measured on the wall; `report` and `verify` in seconds of processors. The bars: `archive` 0.8 of the rate of `cp -r`, a
report 1.2 times `verify`, and a drill of all of it twice a restore. Nothing is removed before the end, since ext4
avoids inodes that were freed a moment ago: the folder needs room for three disks a run, and two more.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import data
from many_partitions import write_disk
from measure import Used, run_command

import pylogseg
from pylogseg.env.beside import flush


def measure(command: list[str], folder: Path) -> Used:
    """Run a command in a folder, and flush its file system."""
    began = time.perf_counter()
    # 2: a drill could not check which partitions there are, without the metadata of the cluster.
    used = run_command(command, folder, accepted=(0, 2) if "drill" in command else (0,))
    flush(folder)
    return used._replace(wall=time.perf_counter() - began)


def compare(
    name: str, sides: dict[str, Callable[[], Used]], runs: int, figure: Callable[[Used], float], bar: str
) -> None:
    """Run both sides in turn; print the figures of each run, and the median ratio of the second side to the first."""
    ratios = []
    first, second = sides
    for _ in range(runs):
        figures = {side: figure(work()) for side, work in sides.items()}
        ratios.append(figures[second] / figures[first])
        print(f"{first} {figures[first]:.1f} s, {second} {figures[second]:.1f} s: {ratios[-1]:.2f}", flush=True)
    print(f"{name}: {statistics.median(ratios):.2f} ({bar})", flush=True)


def main() -> None:
    """Make the disk, and print a line for each run and each ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=2_400_000, help="of a partition")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are made")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        root = Path(name)
        log = root / "log" / "t-0"
        with pylogseg.open_log(log, segment_bytes=asked.bytes // 2, leader_epoch=3) as one:
            one.append(data.table(asked.bytes // 112), batch_bytes=data.BATCH_BYTES)
            end = one.log_end_offset
        write_disk(root / "disk", asked.partitions, log, end, shutil.copy)
        size = sum(path.stat().st_size for path in (root / "disk").rglob("*"))
        print(f"{asked.partitions:,} partitions, {size / 1e9:.1f} GB", flush=True)

        numbers = itertools.count()

        def shell(*words: str) -> Used:
            return measure([sys.executable, "-m", "pylogseg", *words], root)

        def copy() -> Used:
            return measure(["cp", "-r", "disk", f"copy{next(numbers)}"], root)

        def restore() -> Used:
            target = root / f"restored{next(numbers)}"
            target.mkdir()
            return shell("restore", "backup0", target.name, "-q", "--jobs", "2")

        def wall(seconds: Used) -> float:
            return seconds.wall

        def processors(seconds: Used) -> float:
            return seconds.processors

        backups = itertools.count()
        archive = {
            "cp -r": copy,
            "archive": lambda: shell("archive", "disk", f"backup{next(backups)}", "--jobs", "2"),
        }
        compare("archive / cp -r, on the wall", archive, asked.runs, wall, "at most 1.25")
        report = {
            "verify": lambda: shell("verify", "disk"),
            "report": lambda: shell("report", "disk", "-o", "report.html", "--overwrite"),
        }
        compare("report / verify, processors", report, asked.runs, processors, "at most 1.2")
        drill = {
            "restore": restore,
            "drill": lambda: shell("drill", "backup0", "--folder", str(root), "--jobs", "2"),
        }
        compare("drill / restore, on the wall", drill, asked.runs, wall, "at most 2")


if __name__ == "__main__":
    main()
