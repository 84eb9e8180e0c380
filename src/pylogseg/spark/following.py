"""Name a Spark job, show how far it is, and cancel it when the caller is interrupted."""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pylogseg.spark import _compat

_POLL_SECONDS = 0.5

#: Gets the number of tasks that are done.
Show = Callable[[int], None]


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
    """Return what shows how many tasks are done: the caller's bar, by their part of all bytes, or a line on stderr."""
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
