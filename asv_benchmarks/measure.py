"""Timing of two or more programs in turn, so that what else the machine does hits all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

Side = Callable[[], float]
"""Does its work once and says how many seconds that took."""


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
        """Seconds of a whole command, all of its threads; its output goes nowhere. RuntimeError if it fails."""
        began = time.perf_counter()
        null = os.open(os.devnull, os.O_WRONLY)
        child = os.fork()
        if child == 0:
            os.dup2(null, 1)
            os.dup2(null, 2)
            if cores:
                os.sched_setaffinity(0, cores)
            try:
                os.execvpe(command[0], command, {**os.environ, **environment})
            finally:
                os._exit(127)
        os.close(null)
        _, status, used = os.wait4(child, 0)
        if status:
            raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
        wall = time.perf_counter() - began
        return wall if self.name == "wall" else used.ru_utime + used.ru_stime


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
