"""Arguments of jobs: a job passes on the arguments of the functions that it calls, and takes out its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.listing import open_dir
from pylogseg.format.keywords import parameters_of
from pylogseg.spark.executor import SparkExecutor

F = TypeVar("F", bound=Callable[..., Any])

#: Arguments that no job takes: it gives the executor, whose progress is that of tasks.
_OWN = ("executor", "jobs", "max_bytes_per_second", "on_size", "on_bytes", "on_result", "memory_map")
_CHOICE = {
    name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)
    for name, annotation in (("topic", "str | Sequence[str] | None"), ("partition", "int | Sequence[int] | None"))
}
_PROGRESS = inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="bool | None")


def takes(*functions: Callable[..., Any], without: Sequence[str] = ()) -> Callable[[F], F]:
    """Give a job the keywords of the functions that it calls, and `progress`; refuse all other keywords.

    Where the job has ``*choice``, it takes `topic` and `partition`, by their places or names.
    """

    def decorate(job: F) -> F:
        own = inspect.signature(job)
        shown: dict[str, inspect.Parameter] = {}
        for parameter in own.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                shown |= _CHOICE
            elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                shown[parameter.name] = parameter
        for parameter in (_PROGRESS, *(parameter for function in functions for parameter in parameters_of(function))):
            if parameter.name not in (*_OWN, *without) and parameter.kind >= inspect.Parameter.KEYWORD_ONLY:
                shown.setdefault(parameter.name, parameter)
        signature = own.replace(parameters=sorted(shown.values(), key=lambda each: each.kind))

        @functools.wraps(job)
        def run(*given: Any, **how: Any) -> Any:
            try:
                signature.bind(*given, **how)
            except TypeError as error:
                raise TypeError(f"{job.__name__}() {error}") from None
            return job(*given, **how)

        cast(Any, run).__signature__ = signature
        return cast(F, run)

    return decorate


def take_choice(choice: Sequence[Any], how: dict[str, Any]) -> PartitionChoice:
    """Take `topic` and `partition`, by their places or names, out of the arguments of a job."""
    topic, partition = [*choice, None, None][:2]
    return PartitionChoice.of(how.pop("topic", topic), how.pop("partition", partition))


def take_executor(spark: Any, how: dict[str, Any]) -> SparkExecutor:
    return SparkExecutor(spark, how.pop("progress", None))


def take_log(path: Any, how: dict[str, Any]) -> Any:
    """Take the arguments of `open_dir` from a job's ones, and return the disk; without any, the path as it is."""
    opening = {name: how.pop(name) for name in ("storage_options", "tier") if name in how}
    return open_dir(path, **opening) if any(value is not None for value in opening.values()) else path
