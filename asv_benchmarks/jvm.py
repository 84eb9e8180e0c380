"""Kafka itself: the programs of `tests/kafka/kafka.sh`, and the figures that they print."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).resolve().parent.parent / "tests" / "kafka" / "kafka.sh"


class Figure(NamedTuple):
    """One line of `kafka.sh bench`."""

    work: str
    records: int
    size_bytes: int
    seconds: float


class Kafka:
    """Runs Kafka's programs, on all cores: a JVM compiles and collects beside the thread that is measured.

    With the clock "cpu" the figure is the processor time of the thread that does the work; what compiler and collector
    use beside it is given to Kafka for free.
    """

    def __init__(self, clock: str, cores: set[int]) -> None:
        self._clock, self._cores = clock, cores

    @staticmethod
    def missing() -> str | None:
        """What is missing to run it, None if nothing."""
        if not SCRIPT.exists():
            return "tests/kafka/kafka.sh, which a clone has"
        lacks = [name for name in ("bash", "java", "javac") if shutil.which(name) is None]
        return None if not lacks else f"{' and '.join(lacks)} (a JDK 17; jars come by Maven)"

    def _run(self, *arguments: str) -> str:
        free = (lambda: os.sched_setaffinity(0, self._cores)) if self._cores else None
        done = subprocess.run(
            ["bash", str(SCRIPT), *arguments], check=True, capture_output=True, text=True, preexec_fn=free
        )
        return done.stdout

    def bench(self, *arguments: str) -> list[Figure]:
        """Figures of one run of a benchmark."""
        lines = [json.loads(line) for line in self._run("bench", *arguments).splitlines() if line.startswith("{")]
        return [self._figure(line) for line in lines]

    def _figure(self, line: dict[str, Any]) -> Figure:
        seconds = line.get("cpu_seconds", line["seconds"]) if self._clock == "cpu" else line["seconds"]
        return Figure(line["work"], line["records"], line["bytes"], seconds)

    def write(self, folder: Path, records: int, codec: str) -> None:
        """Make a log in ``folder/bench-0`` by appending 16 KiB batches of 100-byte values as a leader does."""
        self._run("bench", "write", str(folder), str(records), codec, "0", "1")
