"""What a restore reads and writes, partition by partition, by an executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pylogseg.env.executor import Executor
from pylogseg.env.pool import Advance
from pylogseg.errors import PylogsegError
from pylogseg.offline.restoring.adopting import Arrival
from pylogseg.offline.restoring.contents import Content
from pylogseg.offline.restoring.partition import Written
from pylogseg.offline.restoring.staging import Staging
from pylogseg.offline.result import PartitionResult

Arrivals = Mapping[str, Arrival]


class Restorable(Protocol):
    """Where partitions come from."""

    keeps_going: bool  #: If a partition fails, with the others.
    partitions: list[PartitionResult]

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """Return names of partitions in groups, each read by itself."""
        ...

    def only(self, names: Collection[str]) -> Any:
        """Return a source of some partitions, which can be sent to another process, with results of its own."""
        ...

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes of partitions."""
        ...


class _Made(NamedTuple):
    value: Any
    results: list[PartitionResult]  #: What was noted.
    error: PylogsegError | None


def contents(given: Restorable, names: Iterable[str], arrivals: Arrivals, executor: Executor) -> dict[str, Content]:
    """Return what the logs will have; not of what cannot be read."""
    found: dict[str, Content] = {}
    for value in _spread(given, names, arrivals, _contents, executor, None):
        found.update(value)
    return found


def write(
    given: Restorable,
    staging: Staging,
    names: Sequence[str],
    ids: dict[str, str],
    arrivals: Arrivals,
    executor: Executor,
    on_bytes: Callable[[int], None],
) -> list[Written]:
    """Write partitions into the staging folder."""
    work = functools.partial(_write, place=(staging.root, staging.write_id), ids=ids)
    return [each for value in _spread(given, names, arrivals, work, executor, on_bytes) for each in value]


def _contents(part: tuple[Any, Arrivals], advance: Advance) -> _Made:
    given, arrivals = part
    return _tried(given, lambda: given.contents([each.name for each in given.partitions], arrivals))


def _write(part: tuple[Any, Arrivals], advance: Advance, place: tuple[str, str], ids: dict[str, str]) -> _Made:
    given, arrivals = part
    names = [each.name for each in given.partitions]
    return _tried(given, lambda: given.write(Staging(*place), names, ids, advance, arrivals))


def _tried(given: Restorable, work: Callable[[], Any]) -> _Made:
    try:
        return _Made(work(), given.partitions, None)
    except PylogsegError as error:
        if not given.keeps_going:
            raise
        return _Made(None, given.partitions, error)


def _spread(
    given: Restorable,
    names: Iterable[str],
    arrivals: Arrivals,
    work: Callable[[tuple[Any, Arrivals], Advance], _Made],
    executor: Executor,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[Any]:
    groups, known = given.groups(names), {result.name: result for result in given.partitions}
    parts = [(given.only(group), {name: arrivals[name] for name in group if name in arrivals}) for group in groups]
    sizes = [given.size(group) for group in groups]
    for made in executor.map(work, parts, sizes, label="pylogseg restore", on_bytes=on_bytes):
        for result in made.results:
            known[result.name].absorb(result)
            if made.error is not None:
                known[result.name].fail(made.error)
        if made.error is None:
            yield made.value
