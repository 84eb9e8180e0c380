"""What `pylogseg report` costs beside `pylogseg verify` on a disk of very many partitions, in seconds of processors.

    python asv_benchmarks/report_ratio.py [--partitions N] [--runs N]

Both run in turn, as other work on the machine changes what they cost. The bar: at most 1.5 times for 3,000 partitions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from many_partitions import write
from measure import run_pylogseg


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
            verify = run_pylogseg("verify", "b1", folder=folder).processors
            report = run_pylogseg("report", "b1", "-o", "report.html", "--overwrite", folder=folder).processors
            ratios.append(report / verify)
            print(f"verify {verify:.1f} s, report {report:.1f} s: {ratios[-1]:.2f} times", flush=True)
    print(f"{asked.partitions:,} partitions: {statistics.median(ratios):.2f} times the processors of verify (median)")


if __name__ == "__main__":
    main()
