"""Pulled plugs in memory: crash images and failing operations of whole logs.

    python tests/crash images [--count 100000] [--seed 0]
    python tests/crash faults [--seed 0]

An image is what a disk may hold when the power goes, a fault is one operation that the disk refuses.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crash.images import CrashImage, Names, crash_images
from crash.judge import Broken, judge, must
from crash.promises import Promise, Witness
from crash.workloads import LONG, SHORT, Workload, random_workload
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.testing.faults import Fault, FaultyStorage
from pylogseg.testing.memory import MemoryStorage
from pylogseg.testing.state import Trace

ERRORS: tuple[int | Fault, ...] = (errno.EIO, errno.ENOSPC, "short", "sync")


class Judged(NamedTuple):
    """One image that was judged; the fault is empty if every promise holds."""

    workload: str
    description: str
    fault: str


def played(workload: Workload) -> tuple[Trace, Witness]:
    """Run a workload to its end."""
    storage, written = workload.prepared()
    witness = workload.witnessed(storage, storage.mark, written)
    workload.run(witness)
    return storage.trace, witness


def judge_images(workload: Workload, limit: int, seed: int = 0, *, nested: int = 0) -> Iterator[Judged]:
    """Judge images of a workload, each with the oldest checkpoint of the recovery point and with the newest.

    Parameters
    ----------
    workload : Workload
        Run here.
    limit : int
        All images are listed if they are no more than this; else so many are drawn.
    seed : int
        For drawing.
    nested : int
        Of each image, so many crashes of its recovery are judged too.
    """
    trace, witness = played(workload)
    for image in crash_images(trace, limit, seed):
        if image.marks:
            yield from _judge_image(workload, image, witness, seed, nested)


def _judge_image(workload: Workload, image: CrashImage, witness: Witness, seed: int, nested: int) -> Iterator[Judged]:
    promise = image.marks[-1]
    assert isinstance(promise, Promise)
    for point in sorted({0, promise.recovery_point}):
        storage, fault = image.open(), ""
        try:
            judge(storage, promise, witness.history, workload.config, recovery_point=point)
        except (Broken, PylogsegError) as error:
            fault = f"{type(error).__name__}: {error}"
        yield Judged(workload.name, f"{image.description}; recovery point {point}", fault)
        # A start notes first that the last stop is not an orderly one any more.
        if nested and not fault and not promise.clean:
            for again in crash_images(storage.trace, nested, seed):
                description = f"{image.description}; in the recovery from {point}: {again.description}"
                try:
                    judge(again.open(), promise, witness.history, workload.config, recovery_point=point)
                except (Broken, PylogsegError) as error:
                    fault = f"{type(error).__name__}: {error}"
                yield Judged(workload.name, description, fault)


def sweep(workload: Workload, error: int | Fault, crashes: int = 12) -> Iterator[Judged]:
    """Fail each operation of a workload once, and judge what is found afterwards.

    Parameters
    ----------
    workload : Workload
        Run once for each operation.
    error : int or str
        How it fails; see `FaultyStorage`.
    crashes : int
        A restart of the process is judged, and so many crashes of the machine at that moment.

    Yields
    ------
    Judged
        One for each operation.
    """
    for number in itertools.count(1):
        inner, written = workload.prepared()
        storage = FaultyStorage(inner, number, error)
        witness = workload.witnessed(storage, inner.mark, written)
        fault = ""
        try:
            _run_into(workload, witness, storage)
            if storage.failed is None:
                return
            _judge_both(workload, witness, inner, crashes)
        except Broken as broken:
            fault = str(broken)
        yield Judged(workload.name, f"operation {number}, {storage.failed}, failed with {error}", fault)


def _run_into(workload: Workload, witness: Witness, storage: FaultyStorage) -> None:
    """Run until the failure, which must be told with the file, and take the log offline."""
    try:
        workload.run(witness)
    except StorageError as error:
        must(storage.failed is not None, f"an error out of nothing: {error}")
        must(error.path in str(storage.failed), f"{error} does not name the file: {storage.failed}")
    else:
        must(storage.failed is None, f"{storage.failed} failed, and nobody was told")
    if storage.failed is None or witness.log is None:
        return
    syncs = storage.count
    for attempt in (witness.log.flush, lambda: witness.append(), witness.log.roll):
        try:
            attempt()
        except StorageError as error:
            must("offline" in str(error), f"the log does not say that it is offline: {error}")
        else:
            raise Broken(f"the log goes on after {storage.failed} failed")
    must(storage.count == syncs, "the log used the disk though it is offline")
    witness.log.close_handles()


def _judge_both(workload: Workload, witness: Witness, inner: MemoryStorage, crashes: int) -> None:
    """What a restart of the process finds, and what a crash at that moment leaves."""
    promise = witness.promise
    for point in sorted({0, promise.recovery_point}):
        judge(MemoryStorage(inner.state), promise, witness.history, workload.config, recovery_point=point)
        for image in crash_images(inner.trace, crashes, rules=[Names.FREE]) if crashes else ():
            if image.marks:
                told = image.marks[-1]
                assert isinstance(told, Promise)
                least = min(point, told.recovery_point)
                judge(image.open(), told, witness.history, workload.config, recovery_point=least)


def many_images(count: int, seed: int) -> Iterator[Judged]:
    """Judge all images of the short workloads, and without end images drawn of the long ones and of random ones."""
    for workload in SHORT:
        yield from judge_images(workload, 20_000, seed)
    for workload in LONG:
        yield from judge_images(workload, max(count // 100, 100), seed)
    for number in itertools.count(seed * 1_000_000):
        yield from judge_images(random_workload(number), 100, number, nested=1)


def many_faults(seed: int) -> Iterator[Judged]:
    """Let each operation of each workload fail, and of twenty random ones, with each kind of failure."""
    for workload in [*SHORT, *LONG, *(random_workload(seed + number) for number in range(20))]:
        for error in ERRORS:
            yield from sweep(workload, error)


def report(judged: Iterable[Judged], count: int | None) -> int:
    """Print what is wrong as it comes, and how many were looked at; the exit code."""
    looked = wrong = 0
    with contextlib.suppress(KeyboardInterrupt):
        for each in judged if count is None else itertools.islice(judged, count):
            looked += 1
            if each.fault:
                wrong += 1
                print(f"{each.workload}: {each.description}\n    {each.fault}", flush=True)
            if looked % 100 == 0 and sys.stderr.isatty():
                print(f"\r{looked}: {each.workload}        ", end="", file=sys.stderr, flush=True)
    print(f"{looked} judged, {wrong} wrong")
    return 1 if wrong else 0
