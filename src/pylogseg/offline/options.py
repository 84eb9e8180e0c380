"""The options that all offline commands have."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypedDict

from pylogseg.disk.choice import PartitionChoice
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.executor import Executor, Threads, job_count
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import RequestError
from pylogseg.offline.result import PartitionResult, Result

P = ParamSpec("P")

_PATHS = ("into", "server_properties", "cluster_metadata")


@dataclass(frozen=True)
class FixedClock:
    """A clock that always returns the same time."""

    ms: int

    def now_ms(self) -> int:
        return self.ms


class OptionKeywords(TypedDict, total=False):
    """The keywords that every offline command takes besides its own: the fields of `Options`."""

    topic: str | Sequence[str] | None
    partition: int | Sequence[int] | None
    dry_run: bool
    into: str | os.PathLike[str] | None
    config: Mapping[str, str]
    server_properties: str | os.PathLike[str] | None
    cluster_metadata: str | os.PathLike[str] | None
    now_ms: int | None
    jobs: int | None
    executor: Executor | None
    overwrite: bool
    on_result: Callable[[PartitionResult], None] | None
    on_bytes: Callable[[int], None] | None
    storage: Storage


@dataclass(frozen=True)
class Options:
    """The options that every offline command has besides its own.

    Attributes
    ----------
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    dry_run : bool
        Do everything in memory and leave the disk as it is.
    into : str or None
        An empty or new folder: change a copy of the selected partitions in it, and leave the input alone. The folder
        appears whole at the end, or not at all.
    config : mapping of str to str
        Settings by Kafka's names: of topics (``retention.ms``), and ``log.cleaner.*`` of the broker. They override all
        others.
    server_properties : str or None
        The broker's configuration file, for settings that are not in the cluster's metadata.
    cluster_metadata : str or None
        The folder ``__cluster_metadata-0`` with the topics' own settings; looked for in the log directory and in the
        ones that `server_properties` names if None, and not at all if ``"none"``.
    now_ms : int or None
        The time to assume, milliseconds since 1970; by default the clock's.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`. Each partition is changed by itself, on a copy in
        `into`. The workers share that folder, and another run completes it.
    overwrite : bool
        With such an executor: replace partitions that are in `into` already.
    on_result : callable, optional
        Called with each result as soon as it is there, in the order of names.
    on_bytes : callable, optional
        Called with the bytes processed since its last call, from several threads.
    storage : Storage
        The storage of the logs.
    """

    topic: str | Sequence[str] | None = None
    partition: int | Sequence[int] | None = None
    dry_run: bool = False
    into: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    server_properties: str | None = None
    cluster_metadata: str | None = None
    now_ms: int | None = None
    jobs: int = 1
    executor: Executor | None = None
    overwrite: bool = False
    on_result: Callable[[PartitionResult], None] | None = None
    on_bytes: Callable[[int], None] | None = None
    storage: Storage = field(default_factory=LocalStorage)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """Make options from keywords.

        Raises
        ------
        RequestError
            For an unknown option, an empty selection, and a dry run on a storage other than local disks.
        """
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise RequestError(f"unknown option {name!r}; expected one of {', '.join(known)}")
        paths = {name: os.fspath(options[name]) for name in _PATHS if options.get(name) is not None}
        executor = options.get("executor")
        jobs = executor.jobs if isinstance(executor, Threads) else job_count(options.get("jobs", 1))
        made = cls(**{**options, **paths, "jobs": jobs})
        made.choice  # noqa: B018  (what is wrong with it is said before anything is done)
        if made.dry_run and not isinstance(made.storage, LocalStorage):
            raise RequestError("a dry run works on the disks of this machine only")
        if made.overwrite:
            raise RequestError("overwrite is for an executor of other processes: without one, into has to be empty")
        return made

    @property
    def choice(self) -> PartitionChoice:
        """The selection by `topic` and `partition`."""
        return PartitionChoice.of(self.topic, self.partition)

    @property
    def clock(self) -> Clock:
        """The time of `now_ms`, or this machine's clock."""
        return SystemClock() if self.now_ms is None else FixedClock(self.now_ms)


def takes_executor(command: Callable[P, Result]) -> Callable[P, Result]:
    """Give a command the options `executor` and `overwrite`: an executor of other processes gets partitions."""
    names = list(inspect.signature(command).parameters)

    @functools.wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> Result:
        options: dict[str, Any] = {**dict(zip(names, args, strict=False)), **given}
        executor = options.pop("executor", None)
        if executor is None or isinstance(executor, Threads):
            return command(*args, **given)
        from pylogseg.offline.by_executor import rewrite_by_executor

        return rewrite_by_executor(executor, run, options.pop("path"), options)

    return run
