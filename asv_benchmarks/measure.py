"""Timing of two or more programs in turn, so that what else the machine does hits all of them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

Side = Callable[[], float]
"""Does its work once and says how many seconds that took."""


class Used(NamedTuple):
    """What a command took."""

    wall: float  #: Seconds.
    processors: float  #: Seconds of all its threads.
    peak_mib: float  #: Of its memory.


def run_command(
    command: list[str],
    folder: Path | None = None,
    *,
    cores: set[int] | None = None,
    accepted: Collection[int] = (0,),
    environment: Mapping[str, str] | None = None,
) -> Used:
    """Run a command whose output goes nowhere; RuntimeError if its exit code is none of those that are accepted."""
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        preexec_fn=functools.partial(os.sched_setaffinity, 0, cores) if cores else None,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    if process.returncode not in accepted:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said[-400:].decode()}")
    return Used(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def run_pylogseg(*words: object, folder: Path | None = None, accepted: Collection[int] = (0,)) -> Used:
    """Run a command of the shell; see `run_command`."""
    return run_command([sys.executable, "-m", "pylogseg", *map(str, words)], folder, accepted=accepted)


class Clock:
    """Seconds of processor time, or of the clock on the wall.

    On a machine that does nothing else the two agree for work on one core. Processor time counts the kernel's part
    (page faults, reads) but not the time that other programs took, so it is the one to compare on a shared machine.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.now = {"cpu": time.process_time, "wall": time.perf_counter}[name]

    def timed(self, work: Callable[[], object]) -> Side:
        """Side that times a function of this process."""

        def side() -> float:
            began = self.now()
            work()
            return self.now() - began

        return side

    def of_process(self, command: list[str], cores: set[int] | None = None, **environment: str) -> float:
        """Seconds of a whole command, all of its threads; see `run_command`."""
        used = run_command(command, cores=cores, environment=environment)
        return used.wall if self.name == "wall" else used.processors


def in_turn(sides: Mapping[str, Side], rounds: int, *, warm: bool = True) -> dict[str, float]:
    """Best seconds of each side over rounds in which each has its turn."""
    if warm:
        for side in sides.values():
            side()
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, side in sides.items():
            best[name] = min(best[name], side())
    return best


def all_cores() -> set[int]:
    """Cores that this process may use."""
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set()


def pin() -> int | None:
    """Keep this process to one core; which, None where the system cannot."""
    cores = all_cores()
    if not cores:
        return None
    core = max(cores)
    os.sched_setaffinity(0, {core})
    return core
