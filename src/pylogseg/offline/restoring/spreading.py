"""The reading and writing of a restore, partition by partition, by an executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.errors import PylogsegError
from pylogseg.offline.restoring.source import Arrivals, RestoreOrder, RestoreSource
from pylogseg.offline.result import PartitionResult
from pylogseg.transfer.contents import Content
from pylogseg.transfer.staging import Staging, WrittenPart

_Part = tuple[RestoreSource, Arrivals]


class _Made(NamedTuple):
    value: Any
    results: list[PartitionResult]  #: What was noted.
    error: PylogsegError | None


def contents(given: RestoreSource, names: Iterable[str], arrivals: Arrivals, executor: Executor) -> dict[str, Content]:
    """Return what the logs will have; not of what cannot be read."""
    found: dict[str, Content] = {}
    for value in _spread(given, names, arrivals, _contents, executor, None):
        found.update(value)
    return found


def write(given: RestoreSource, order: RestoreOrder, executor: Executor) -> list[WrittenPart]:
    """Write partitions into the staging folder."""
    place = order.staging.root, order.staging.write_id
    work = functools.partial(_write, place=place, ids=order.ids)
    found = _spread(given, order.names, order.arrivals, work, executor, order.on_bytes)
    return [each for value in found for each in value]


def _contents(part: _Part, advance: Advance) -> _Made:
    given, arrivals = part
    return _tried(given, lambda: given.contents([each.name for each in given.partitions], arrivals))


def _write(part: _Part, advance: Advance, place: tuple[str, str], ids: dict[str, str]) -> _Made:
    given, arrivals = part
    names = [each.name for each in given.partitions]
    return _tried(given, lambda: given.write(RestoreOrder(Staging(*place), names, ids, arrivals, advance)))


def _tried(given: RestoreSource, work: Callable[[], Any]) -> _Made:
    try:
        return _Made(work(), given.partitions, None)
    except PylogsegError as error:
        if not given.keeps_going:
            raise
        return _Made(None, given.partitions, error)


def _spread(
    given: RestoreSource,
    names: Iterable[str],
    arrivals: Arrivals,
    work: Callable[[_Part, Advance], _Made],
    executor: Executor,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[Any]:
    groups, known = given.groups(names), {result.name: result for result in given.partitions}
    parts = [(given.only(group), {name: arrivals[name] for name in group if name in arrivals}) for group in groups]
    load = Workload("pylogseg restore", [given.size(group) for group in groups], on_bytes)
    for made in executor.map(work, parts, load):
        for result in made.results:
            known[result.name].absorb(result)
            if made.error is not None:
                known[result.name].fail(made.error)
        if made.error is None:
            yield made.value
