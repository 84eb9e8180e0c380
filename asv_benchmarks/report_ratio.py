"""What `pylogseg report` costs beside `pylogseg verify` on a disk of very many partitions, in seconds of processors.

    python asv_benchmarks/report_ratio.py [--partitions N] [--runs N]

Both run in turn, as other work on the machine changes what they cost. The bar: at most 1.5 times for 3,000 partitions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from many_partitions import write


def seconds_of(folder: Path, *words: str) -> float:
    """Run a command of the shell; the seconds of processors that it took."""
    command = [sys.executable, "-m", "pylogseg", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print a line for each run, and the ratio of the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, asked.partitions)
        for _ in range(asked.runs):
            verify = seconds_of(folder, "verify", "b1")
            report = seconds_of(folder, "report", "b1", "-o", "report.html", "--overwrite")
            ratios.append(report / verify)
            print(f"verify {verify:.1f} s, report {report:.1f} s: {ratios[-1]:.2f} times", flush=True)
    print(f"{asked.partitions:,} partitions: {statistics.median(ratios):.2f} times the processors of verify (median)")


if __name__ == "__main__":
    main()
