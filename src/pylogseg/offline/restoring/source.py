"""Sources of partitions for `restore`: a table, log directories, or a tier; read and written by an executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pylogseg.disk.disk import Disk
from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.errors import PylogsegError
from pylogseg.inspect.verify.findings import Finding
from pylogseg.offline.restoring.adopting import Arrival
from pylogseg.offline.result import PartitionResult
from pylogseg.transfer.contents import Content
from pylogseg.transfer.staging import Staging, WrittenPart
from pylogseg.values.internal.cut_off import CutOff

Arrivals = Mapping[str, Arrival]


class RestoreOrder(NamedTuple):
    """The order to a source: the partitions to write, and the target."""

    staging: Staging
    names: Sequence[str]
    ids: dict[str, str]  #: Of topics, where the target's cluster has another one than the source.
    arrivals: Arrivals  #: By partition; none for a table.
    on_bytes: Callable[[int], None]


class RestoreSource:
    """Partitions that are chosen of a source, each with its result."""

    has_producers = True
    keeps_going = False  #: If a partition fails, with the others.
    asked = True  #: True if partitions were named.
    notes: Sequence[str] = ()
    lacking: Sequence[Finding] = ()  #: What is known to be missing.
    doubts: Sequence[str] = ()  #: Small files that say less than they should.
    folders: Sequence[str] = ()  #: Log directories that are read.
    partitions: list[PartitionResult]

    @property
    def is_marked(self) -> bool:
        """True if all of it was closed cleanly and is whole; newly written partitions are."""
        return True

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """Return names of partitions in groups, each read by itself."""
        return [[name] for name in names]

    def only(self, names: Collection[str]) -> Any:
        """Return a source of some partitions, which can be sent to another process, with results of its own."""
        raise NotImplementedError

    def size(self, names: Iterable[str]) -> int:
        raise NotImplementedError

    def contents(self, names: Iterable[str], arrivals: Arrivals) -> dict[str, Content]:
        """Return the contents that the restored logs will have; every batch is read."""
        raise NotImplementedError

    def write(self, order: RestoreOrder) -> list[WrittenPart]:
        """Write partitions into the staging folder; leave out empty ones."""
        raise NotImplementedError

    def is_same(self, name: str, target: str, there: Content, wanted: Content) -> bool:
        """Check whether a partition in a log directory has the same content already."""
        return there == wanted

    def coordinators(self) -> tuple[Disk, CutOff] | None:
        """Return where the log of the coordinators of transactions can be read, and up to where; None if nowhere."""
        return None

    def topic_id(self, name: str) -> str | None:
        """Return the id of a partition's topic; None if unknown."""
        return None

    def cluster_id(self, name: str) -> str | None:
        """Return the id of the cluster that a partition comes from; None if unknown."""
        return None


# ---- by an executor ----

_Part = tuple[RestoreSource, Arrivals]


class _Made(NamedTuple):
    value: Any
    results: list[PartitionResult]  #: What was noted.
    error: PylogsegError | None


def read_contents(
    given: RestoreSource, names: Iterable[str], arrivals: Arrivals, executor: Executor
) -> dict[str, Content]:
    """Return the content that the logs will have, without unreadable logs."""
    found: dict[str, Content] = {}
    for value in _run_parts(given, names, arrivals, _contents, executor, None):
        found.update(value)
    return found


def write_partitions(given: RestoreSource, order: RestoreOrder, executor: Executor) -> list[WrittenPart]:
    """Write partitions into the staging folder."""
    place = order.staging.root, order.staging.write_id
    work = functools.partial(_write, place=place, ids=order.ids)
    found = _run_parts(given, order.names, order.arrivals, work, executor, order.on_bytes)
    return [each for value in found for each in value]


def _contents(part: _Part, advance: Advance) -> _Made:
    given, arrivals = part
    return _try_work(given, lambda: given.contents([each.name for each in given.partitions], arrivals))


def _write(part: _Part, advance: Advance, place: tuple[str, str], ids: dict[str, str]) -> _Made:
    given, arrivals = part
    names = [each.name for each in given.partitions]
    return _try_work(given, lambda: given.write(RestoreOrder(Staging(*place), names, ids, arrivals, advance)))


def _try_work(given: RestoreSource, work: Callable[[], Any]) -> _Made:
    try:
        return _Made(work(), given.partitions, None)
    except PylogsegError as error:
        if not given.keeps_going:
            raise
        return _Made(None, given.partitions, error)


def _run_parts(
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
