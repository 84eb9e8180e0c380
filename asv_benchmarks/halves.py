"""Several processes, each of which scans one partition of a log: what the machine gives to whom shares nothing."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pylogseg
from pylogseg.reading.column_names import DEFAULT_COLUMNS


def drained(log: Path, partition: int | None = None, **how: Any) -> int:
    """Read all records of a dataset; how many."""
    found = pylogseg.dataset(log, partition=partition).scanner(columns=list(DEFAULT_COLUMNS), **how)
    return sum(len(batch) for batch in found.to_batches())


def seconds(log: Path, partitions: int, rounds: int) -> float:
    """The best time in which a process for each partition, all at once, have scanned a log."""
    apart = multiprocessing.get_context("spawn")
    barrier, times = apart.Barrier(partitions), apart.Queue()
    workers = [apart.Process(target=_scan, args=(log, each, rounds, barrier, times)) for each in range(partitions)]
    for worker in workers:
        worker.start()
    best: float = min(times.get(timeout=600) for _ in range(rounds))
    for worker in workers:
        worker.join()
    return best


def _scan(log: Path, partition: int, rounds: int, barrier: Any, times: Any) -> None:
    drained(log, partition, use_threads=False)
    for _ in range(rounds):
        barrier.wait()
        began = time.perf_counter()
        drained(log, partition, use_threads=False)
        barrier.wait()  # until the last of them is done
        if not partition:
            times.put(time.perf_counter() - began)
