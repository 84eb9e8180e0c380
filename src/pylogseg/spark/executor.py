"""Spark as an `Executor`: the function of a job runs in tasks, its results return to the driver."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import pickle
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from pylogseg.env.executor import UNSAID, Advance, Emit, Threads, Workload
from pylogseg.env.shared import check_marks, mark_folders
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.spark import _compat
from pylogseg.spark.worker import freeze_modules

T = TypeVar("T")
R = TypeVar("R")
M = TypeVar("M")

#: Tasks per core, so that all cores end at about the same time.
_TASKS_PER_CORE = 4
#: The fewest bytes that a task should read.
_LEAST_BYTES = 16 << 20
#: The cost of opening a file, in bytes that could be read in that time.
_OPEN_BYTES = 64 << 10
#: Output of a job that makes a row for the driver.
_PIECES_BYTES = 1 << 20


@dataclass(frozen=True)
class SparkExecutor:
    """Tasks of a Spark session.

    A function may run several times for one item, so what it writes must not depend on that. It fails with an error of
    this package in place of its result; one of the storage is tried again once, which may be on another machine. On a
    machine that does not share the folders of a load with the driver, it does not run.
    """

    spark: Any
    progress: bool | None = None  #: Show tasks on stderr if nobody asks for bytes; None if stderr is a terminal.

    def map(self, function: Callable[[T, Advance], R], items: Sequence[T], load: Workload = UNSAID) -> Iterator[R]:
        """See `Executor`. All results are on the driver before the first is yielded, so they must be small."""
        if not items:
            return
        with _check_marks(function, load) as work:
            results = self._run(work, items, load)
            again = [number for number, result in enumerate(results) if _is_passing(result)]
            sizes = [load.sizes[n] for n in again] if load.sizes else ()
            retried = self._run(work, [items[n] for n in again], Workload(load.label, sizes))
        for number, result in zip(again, retried, strict=True):
            results[number] = result
        for result in results:
            yield _result(result)

    def merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        load: Workload = UNSAID,
    ) -> Iterator[tuple[str, M]]:
        """See `Executor`. Workers merge, too: the driver gets only the merged values."""
        if not items:
            return
        with _check_marks(function, load) as work:
            merged = self._merge(work, items, keys, fold, merge, load)
        for key in dict.fromkeys(keys):
            yield key, _result(merged[key])

    def _merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        load: Workload,
    ) -> dict[str, M | _Failed]:
        groups = equal_groups(_sizes(items, load), self._cores)
        shipped = [pack_items([(i, keys[i], items[i]) for i in group]) for group in groups]
        schema = "key string, results binary"

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(numbers):
                for key, group in itertools.groupby(unpack_items(shipped[number]), lambda item: item[1]):
                    results: dict[int, Any] = {}
                    for i, _, item in group:
                        result = _try_item(function, item)
                        if isinstance(result, _Failed):
                            results = {i: result}
                            break
                        fold(results, i, result)
                    yield _key_result(key, results)
            freeze_modules()

        def finish(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pairs = (pair for batch in rows for pair in zip(*map(pa.Array.to_pylist, batch.columns), strict=True))
            for key, group in itertools.groupby(pairs, lambda pair: pair[0]):
                results = {i: done for _, data in group for part in unpack_items(data) for i, done in part.items()}
                failed = [done for done in results.values() if isinstance(done, _Failed)]
                yield _key_result(key, failed[0] if failed else merge(key, (results[i] for i in sorted(results))))
            freeze_modules()

        frame = self._frame(task, len(groups), schema)
        together = frame.repartition(min(len(groups), len(set(keys))), "key").sortWithinPartitions("key")
        with self._follow(load, len(groups)):
            rows = together.mapInArrow(finish, schema).collect()
        return {row["key"]: unpack_items(row["results"])[0] for row in rows}

    def stream(
        self, function: Callable[[T, Emit, Advance], R], items: Sequence[T], load: Workload = UNSAID
    ) -> Iterator[bytes | R]:
        """See `Executor`. The output waits on the workers' disks, and comes to the driver task by task."""
        if items:
            with _check_marks(function, load) as work:
                yield from self._stream(work, items, load)

    def _stream(
        self, function: Callable[[T, Emit, Advance], R], items: Sequence[T], load: Workload
    ) -> Iterator[bytes | R]:
        from pyspark import StorageLevel

        groups = cut_in_order(_sizes(items, load), self._cores)
        shipped = [pack_items([items[i] for i in group]) for group in groups]

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(numbers):
                for item in unpack_items(shipped[number]):
                    for row in _stream(function, item):
                        yield pa.RecordBatch.from_arrays([pa.array([pack_items([row])], pa.binary())], ["pieces"])
            freeze_modules()

        frame = self._frame(task, len(groups), "pieces binary").persist(StorageLevel.DISK_ONLY)
        try:
            with self._follow(load, len(groups)):
                frame.count()
            for row in frame.toLocalIterator():
                ((pieces, results),) = unpack_items(row["pieces"])
                yield from pieces
                yield from map(_result, results)
        finally:
            frame.unpersist()

    def dumps(self, value: object) -> bytes:
        data: bytes = cloudpickle.dumps(value)
        return data

    def _run(self, function: Callable[[T, Advance], R], items: Sequence[T], load: Workload) -> list[R | _Failed]:
        if not items:
            return []
        groups = equal_groups(_sizes(items, load), self._cores)
        # A task unpacks only its own items: there may be a million in all.
        shipped = [pack_items([items[i] for i in group]) for group in groups]

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(numbers):
                done = pack_items([_try_item(function, item) for item in unpack_items(shipped[number])])
                columns = [pa.array([number], pa.int64()), pa.array([done], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["share", "results"])
            freeze_modules()

        frame = self._frame(task, len(groups), "share bigint, results binary")
        results: dict[int, R | _Failed] = {}
        with self._follow(load, len(groups)):
            for row in frame.collect():
                results.update(zip(groups[row["share"]], unpack_items(row["results"]), strict=True))
        return [results[i] for i in range(len(items))]

    @property
    def _cores(self) -> int:
        return _compat.cores_of(self.spark) or 1

    def _follow(self, load: Workload, tasks: int) -> contextlib.AbstractContextManager[None]:
        show = choose_bar(load.label, tasks, sum(load.sizes), load.on_bytes, self.progress)
        return follow_job(self.spark, load.label, show)

    def _frame(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], n: int, schema: str) -> Any:
        return self.spark.range(0, n, 1, n).mapInArrow(task, schema)


class _Failed(NamedTuple):
    """In place of a result."""

    error: PylogsegError


def _sizes(items: Sequence[Any], load: Workload) -> Sequence[int]:
    return load.sizes or [0] * len(items)


def _try_item(function: Callable[[T, Advance], R], item: T) -> R | _Failed:
    try:
        return function(item, _unheard)
    except PylogsegError as error:
        return _Failed(error)


@contextlib.contextmanager
def _check_marks(function: Callable[..., R], load: Workload) -> Iterator[Callable[..., R]]:
    """Yield a function that first looks for the marks of the folders to which it writes."""
    with mark_folders(load.folders) as marks:
        yield functools.partial(_run_on_shared, function, marks) if marks else function


def _run_on_shared(function: Callable[..., R], marks: Any, *given: Any) -> R:
    check_marks(marks)
    return function(*given)


def _unheard(size: int) -> None:
    """Progress of a task goes by tasks."""


def _is_passing(result: object) -> bool:
    return isinstance(result, _Failed) and isinstance(result.error, StorageError)


def _result(result: R | _Failed) -> R:
    if isinstance(result, _Failed):
        raise result.error
    return result


def _stream(function: Callable[[T, Emit, Advance], R], item: T) -> Iterator[tuple[list[bytes], list[R | _Failed]]]:
    """Yield the output of a function in parts, the last one with its result."""
    pieces: list[bytes] = []
    result: R | _Failed
    held = 0
    try:
        for part in Threads().stream(function, [item]):
            if not isinstance(part, bytes):
                result = part
                continue
            pieces.append(part)
            held += len(part)
            if held >= _PIECES_BYTES:
                yield pieces, []
                pieces, held = [], 0
    except PylogsegError as error:
        result = _Failed(error)
    yield pieces, [result]


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _key_result(key: str, result: Any) -> pa.RecordBatch:
    columns = [pa.array([key], pa.string()), pa.array([pack_items([result])], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["key", "results"])


def pack_items(items: list[Any]) -> bytes:
    """Serialize items. Items of one disk are similar, so compression saves 90 %."""
    return zlib.compress(pickle.dumps(items), 1)


def unpack_items(data: bytes) -> list[Any]:
    """Deserialize the items of `packed`."""
    items: list[Any] = pickle.loads(zlib.decompress(data))
    return items


def equal_groups(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Put items, by number, into groups of about equal size: the largest first, each into the smallest group.

    >>> equal_groups([100 << 20, 1, 1, 60 << 20, 50 << 20], 1)
    [[0], [3], [4], [1, 2]]
    """
    costs = [size + _OPEN_BYTES for size in sizes]
    count = _tasks(costs, cores)
    groups: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for item in sorted(range(len(costs)), key=lambda item: -costs[item]):
        held, number = heapq.heappop(heap)
        groups[number].append(item)
        heapq.heappush(heap, (held + costs[item], number))
    return [sorted(group) for group in groups if group]


def cut_in_order(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Cut the sequence of items, by number, into groups of about equal size.

    >>> cut_in_order([100 << 20, 1, 1, 60 << 20, 50 << 20], 1)
    [[0], [1, 2, 3], [4]]
    """
    costs = [size + _OPEN_BYTES for size in sizes]
    target = sum(costs) / max(1, _tasks(costs, cores))
    groups: list[list[int]] = []
    held = 0.0
    for item, cost in enumerate(costs):
        if not groups or held >= target:
            groups.append([])
            held = 0.0
        groups[-1].append(item)
        held += cost
    return groups


def _tasks(costs: Sequence[int], cores: int) -> int:
    target = max(_LEAST_BYTES, -(-sum(costs) // (_TASKS_PER_CORE * cores)))
    return min(len(costs), max(cores, -(-sum(costs) // target)))


_POLL_SECONDS = 0.5

#: Gets the number of tasks that are done.
Show = Callable[[int], None]


# ---- a job of Spark: its name, its progress, its end by an interruption ----


@contextlib.contextmanager
def follow_job(spark: Any, label: str, show: Show | None) -> Iterator[None]:
    """Name the Spark job that runs inside, show its progress, and cancel it if it is interrupted."""
    group = f"pylogseg-{uuid.uuid4().hex}"
    follow = _followed_on_server if _compat.is_connect(spark) else _followed_here
    with follow(spark, group, label, show):
        yield


def choose_bar(
    label: str, tasks: int, total_bytes: int, on_bytes: Callable[[int], None] | None, progress: bool | None
) -> Show | None:
    """Return a function that shows the number of done tasks: on the caller's bar, or as a line on stderr."""
    if on_bytes is not None:
        return _Bar(tasks, total_bytes, on_bytes)
    if sys.stderr.isatty() if progress is None else progress:
        return lambda done: print(f"\r{label}: {done} of {tasks} tasks", end="", file=sys.stderr, flush=True)
    return None


class _Bar:
    def __init__(self, tasks: int, total_bytes: int, on_bytes: Callable[[int], None]) -> None:
        self._tasks, self._total_bytes, self._on_bytes = tasks, total_bytes, on_bytes
        self._said = 0

    def __call__(self, done: int) -> None:
        now = self._total_bytes * min(done, self._tasks) // self._tasks
        if now > self._said:
            self._on_bytes(now - self._said)
            self._said = now


@contextlib.contextmanager
def _followed_here(spark: Any, group: str, label: str, show: Show | None) -> Iterator[None]:
    context, ended = spark.sparkContext, threading.Event()
    context.setJobGroup(group, label, interruptOnCancel=True)
    thread = threading.Thread(target=_watch, args=(context.statusTracker(), group, show, ended), daemon=True)
    if show is not None:
        thread.start()
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        if show is not None:
            thread.join()
            _wipe(show)
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


@contextlib.contextmanager
def _followed_on_server(spark: Any, group: str, label: str, show: Show | None) -> Iterator[None]:
    """Do the same for Spark Connect, which has tags instead of groups and reports progress itself."""

    def watch(stages: Any, **_: Any) -> None:
        if show is not None:
            show(sum(stage.num_completed_tasks for stage in stages or ()))

    spark.addTag(group)
    if show is not None:
        spark.registerProgressHandler(watch)
    try:
        yield
    except KeyboardInterrupt:
        spark.interruptTag(group)
        raise
    finally:
        spark.removeTag(group)
        if show is not None:
            spark.removeProgressHandler(watch)
            _wipe(show)


def _watch(tracker: Any, group: str, show: Show, ended: threading.Event) -> None:
    while not ended.wait(_POLL_SECONDS):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        show(sum(stage.numCompletedTasks for stage in stages if stage is not None))


def _wipe(show: Show) -> None:
    if not isinstance(show, _Bar):
        print("\r\033[K", end="", file=sys.stderr, flush=True)
