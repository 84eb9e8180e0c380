"""Apply a function to many items in one Spark job; the results return to the driver, in order."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import pickle
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from pylogseg.spark import _compat
from pylogseg.spark.worker import freeze_modules

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Tasks per core, so that all cores end at about the same time.
_TASKS_PER_CORE = 4
#: The fewest bytes that a task should read.
_LEAST_BYTES = 16 << 20
#: The cost of opening a file, in bytes that could be read in that time.
_OPEN_BYTES = 64 << 10
_POLL_SECONDS = 0.5


def run(
    spark: Any,
    items: Sequence[_Item],
    work: Callable[[_Item], _Result],
    sizes: Sequence[int],
    *,
    label: str = "pylogseg",
    progress: bool | None = None,
) -> list[_Result]:
    """Apply a function to each item on the workers.

    Parameters
    ----------
    spark : SparkSession
        The session.
    items : sequence
        They are pickled and sent to the workers, as is `work`.
    work : callable
        Takes an item. It may run several times for one item, so what it writes must not depend on that.
    sizes : sequence of int
        The approximate bytes that a task reads for each item; small items share a task.
    label : str
        The name of the job.
    progress : bool, optional
        Whether to show progress on stderr; by default only if it is a terminal.

    Returns
    -------
    list
        One result per item.
    """
    if not items:
        return []
    groups = shares(sizes, _compat.cores_of(spark) or 1)
    # A task unpacks only its own items: there may be a million in all.
    shipped = [packed([items[i] for i in group]) for group in groups]

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                done = packed([work(item) for item in unpacked(shipped[number])])
                columns = [pa.array([number], pa.int64()), pa.array([done], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["share", "results"])
        freeze_modules()

    frame = spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, "share bigint, results binary")
    found: dict[int, _Result] = {}
    with _followed(spark, label, len(groups), progress):
        for row in frame.collect():
            found.update(zip(groups[row["share"]], unpacked(row["results"]), strict=True))
    return [found[i] for i in range(len(items))]


def merged(
    spark: Any,
    items: Sequence[_Item],
    keys: Sequence[str],
    work: Callable[[_Item], _Result],
    fold: Callable[[dict[int, _Result], int, _Result], None],
    merge: Callable[[str, dict[int, _Result]], Any],
    sizes: Sequence[int],
    *,
    label: str = "pylogseg",
    progress: bool | None = None,
) -> dict[str, Any]:
    """Apply a function to each item on the workers, and merge the results by key there.

    The driver only gets what `merge` returns, which may be much less than all results.

    Parameters
    ----------
    spark, items, work, sizes, label, progress
        As for `run`.
    keys : sequence of str
        The key of each item; results are merged by key.
    fold : callable
        Adds the result of an item, by its number, to the results of the same key in the same task. It may combine them
        to save memory.
    merge : callable
        Takes a key, and the results of its items by their numbers.

    Returns
    -------
    dict of str to object
        The merged result of each key.
    """
    if not items:
        return {}
    groups = shares(sizes, _compat.cores_of(spark) or 1)
    shipped = [packed([(i, keys[i], items[i]) for i in group]) for group in groups]
    schema = "key string, results binary"

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for key, group in itertools.groupby(unpacked(shipped[number]), lambda item: item[1]):
                    found: dict[int, _Result] = {}
                    for i, _, item in group:
                        fold(found, i, work(item))
                    yield _keyed(key, found)
        freeze_modules()

    def finish(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pairs = (pair for batch in rows for pair in zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True))
        for key, group in itertools.groupby(pairs, lambda pair: pair[0]):
            found = {i: done for _, data in group for part in unpacked(data) for i, done in part.items()}
            yield _keyed(key, merge(key, found))
        freeze_modules()

    frame = spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, schema)
    together = frame.repartition(min(len(groups), len(set(keys))), "key").sortWithinPartitions("key")
    with _followed(spark, label, len(groups), progress):
        rows = together.mapInArrow(finish, schema).collect()
    return {row["key"]: unpacked(row["results"])[0] for row in rows}


def _keyed(key: str, result: Any) -> pa.RecordBatch:
    columns = [pa.array([key], pa.string()), pa.array([packed([result])], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["key", "results"])


def packed(items: list[Any]) -> bytes:
    """Serialize items. Those of one disk are similar, so compression saves 90 %."""
    return zlib.compress(pickle.dumps(items), 1)


def unpacked(data: bytes) -> list[Any]:
    """Deserialize the items of `packed`."""
    found: list[Any] = pickle.loads(zlib.decompress(data))
    return found


def shares(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Put items, by number, into groups of about equal size: the largest first, each into the smallest group.

    >>> shares([100 << 20, 1, 1, 60 << 20, 50 << 20], 1)
    [[0], [3], [4], [1, 2]]
    """
    costs = [size + _OPEN_BYTES for size in sizes]
    target = max(_LEAST_BYTES, -(-sum(costs) // (_TASKS_PER_CORE * cores)))
    count = min(len(costs), max(cores, -(-sum(costs) // target)))
    groups: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for item in sorted(range(len(costs)), key=lambda item: -costs[item]):
        held, number = heapq.heappop(heap)
        groups[number].append(item)
        heapq.heappush(heap, (held + costs[item], number))
    return [sorted(group) for group in groups if group]


def _followed(spark: Any, label: str, tasks: int, progress: bool | None) -> contextlib.AbstractContextManager[None]:
    """Name the Spark job that runs inside, show its progress, and cancel it if it is interrupted."""
    group = f"pylogseg-{uuid.uuid4().hex}"
    shown = sys.stderr.isatty() if progress is None else progress
    follow = _followed_on_server if _compat.is_connect(spark) else _followed_here
    return follow(spark, group, label, tasks, shown)


@contextlib.contextmanager
def _followed_here(spark: Any, group: str, label: str, tasks: int, shown: bool) -> Iterator[None]:
    context, ended = spark.sparkContext, threading.Event()
    context.setJobGroup(group, label, interruptOnCancel=True)
    thread = threading.Thread(target=_show, args=(context.statusTracker(), group, label, tasks, ended), daemon=True)
    if shown:
        thread.start()
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        if shown:
            thread.join()
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


@contextlib.contextmanager
def _followed_on_server(spark: Any, group: str, label: str, tasks: int, shown: bool) -> Iterator[None]:
    """Do the same for Spark Connect, which has tags instead of groups and reports progress itself."""

    def show(stages: Any, **_: Any) -> None:
        _show_progress(label, sum(stage.num_completed_tasks for stage in stages or ()), tasks)

    spark.addTag(group)
    if shown:
        spark.registerProgressHandler(show)
    try:
        yield
    except KeyboardInterrupt:
        spark.interruptTag(group)
        raise
    finally:
        spark.removeTag(group)
        if shown:
            spark.removeProgressHandler(show)
            _wipe()


def _show(tracker: Any, group: str, label: str, tasks: int, ended: threading.Event) -> None:
    """Print the number of finished tasks on stderr until the job ends."""
    while not ended.wait(_POLL_SECONDS):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        _show_progress(label, done, tasks)
    _wipe()


def _show_progress(label: str, done: int, tasks: int) -> None:
    print(f"\r{label}: {done} of {tasks} tasks", end="", file=sys.stderr, flush=True)


def _wipe() -> None:
    print("\r\033[K", end="", file=sys.stderr, flush=True)
