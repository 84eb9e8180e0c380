"""Where a command works: threads of this machine, or Spark."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from pylogseg.cli.common import F, add_all, jobs_option
from pylogseg.env.executor import Executor, Threads
from pylogseg.errors import RequestError, install_text
from pylogseg.reading.ranges import PART_BYTES

#: Options that count or slow down what this process does.
_OF_THREADS = {"jobs": "--jobs", "max_bytes_per_second": "--max-bytes-per-second"}


@dataclass(frozen=True)
class Workers:
    """Values of the options of `workers_option`."""

    jobs: int
    master: str | None
    settings: tuple[str, ...]

    @property
    def is_spark(self) -> bool:
        return self.master is not None

    @property
    def part_bytes(self) -> int | None:
        """About the size of parts of segments, for `LogReader.parts`; None if one thread reads all."""
        return PART_BYTES if self.is_spark or self.jobs > 1 else None

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor]:
        """Yield the executor for the items of a command."""
        if self.master is None:
            if self.settings:
                raise click.UsageError("--spark-conf needs --spark MASTER")
            yield Threads(self.jobs)
            return
        context = click.get_current_context()
        for name, option in _OF_THREADS.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{option} is for threads of this machine: it cannot be combined with --spark")
        try:
            from pylogseg.spark.executor import SparkExecutor
            from pylogseg.spark.session import session
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
                raise
            raise RequestError(f"{error.name} is not installed: run {install_text('spark')}") from None
        with session(self.master, dict(map(_setting, self.settings))) as spark:
            yield SparkExecutor(spark)


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise RequestError(f"--spark-conf {text!r}: expected NAME=VALUE")
    return name.strip(), value.strip()


def workers_of(given: dict[str, Any]) -> Workers:
    """Take the values of `worker_options` out of the parameters of a command."""
    return Workers(given.pop("jobs"), given.pop("spark"), given.pop("spark_conf"))


def worker_options(jobs: Callable[[Any], Any] = jobs_option) -> list[Callable[[Any], Any]]:
    """Return ``--jobs``, ``--spark`` and ``--spark-conf``, for `workers_of`."""
    return [
        jobs,
        click.option(
            "--spark",
            metavar="MASTER",
            help="Work on Spark: local[4], spark://host:7077, yarn, sc://host, or default, as spark-submit says. Its "
            "workers must see the paths under the same names.",
        ),
        click.option(
            "--spark-conf", multiple=True, metavar="NAME=VALUE", help="A configuration property of Spark; repeatable."
        ),
    ]


def workers_option(function: F, jobs: Callable[[Any], Any] = jobs_option) -> F:
    """Add `worker_options`: a parameter ``workers``."""

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        return function(workers=workers_of(given), **given)

    return add_all(call, worker_options(jobs))  # type: ignore[return-value]


#: ``--jobs`` of commands that write partitions.
parts_option = click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads; each works on one partition.",
)
