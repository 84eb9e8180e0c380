"""The rows of `audit`: beside the export that wrote the table, and the memory that it takes as tables grow.

Run as a program, ``python audits.py LOG TABLE [RECORDS]`` prints the most megabytes of a process that audits so many
offsets, or all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from data import count_records
from measure import in_turn
from rows import Row
from sections import Bench, rate

import pylogseg


def audits(bench: Bench) -> list[Row]:
    """Commands as they are run, on one core: the export of a log to Parquet, and the audit of that table."""
    log = bench.log("none")
    records = sum(map(count_records, log.folder.rglob("*.log")))  # of all segments
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        table = Path(folder) / "table"
        command = [sys.executable, "-m", "pylogseg"]
        export = [*command, "export", str(log.folder), "--out", str(table)]

        def exported() -> float:
            shutil.rmtree(table, ignore_errors=True)
            return bench.clock.of_process(export)

        audit = [*command, "audit", str(log.folder), str(table)]
        rounds = min(bench.rounds, 3)
        best = in_turn({"export": exported, "audit": lambda: bench.clock.of_process(audit)}, rounds)
        found = [
            Row("audit of a table of Parquet", rate(records, best["audit"]), "M/s", "export to Parquet",
                rate(records, best["export"]), 0.5, "decompression of the table, hashes of both sides"),
        ]  # fmt: skip
        if sys.platform == "linux":
            few = records // 10
            part = Path(folder) / "part"
            bench.clock.of_process([*command, "export", str(log.folder), "--out", str(part), "--offset", f":{few}"])
            tenth, whole = _memory(log.folder, part, str(few)), _memory(log.folder, table)
            work = f"memory of an audit of {records / 1e6:.1f} M offsets"
            found += [
                Row(work, whole, "MB", "", None, 1074, "row groups of the table that are read"),
                Row(f"{work}, beyond that of a tenth", max(0.0, whole - tenth), "MB", "", None, 100, "the same"),
            ]  # fmt: skip
    return found


def _memory(log: Path, table: Path, *records: str) -> float:
    command = [sys.executable, __file__, str(log), str(table), *records]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def most_megabytes(log: str, table: str, records: int | None) -> float:
    """Audit, and return the most memory of this process."""
    found = pylogseg.audit(log, table, offset=(None, records))
    if not found.is_right:
        raise ValueError(f"{table} is not {log}")
    # Not the figure of getrusage, which has the memory of the process that began this one.
    most = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if most is None:
        raise OSError("no VmHWM in /proc/self/status")
    return int(most[1]) * 1024 / 1e6


if __name__ == "__main__":
    print(most_megabytes(sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None))
