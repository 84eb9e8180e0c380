"""Sources of partitions for `restore`: a table, log directories, or a tier."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pylogseg.disk.disk import Disk
from pylogseg.inspect.verify.findings import Finding
from pylogseg.offline.restoring.adopting import Arrival
from pylogseg.offline.result import PartitionResult
from pylogseg.transfer.contents import Content
from pylogseg.transfer.staging import Staging, WrittenPart
from pylogseg.values.internal.cut_off import CutOff

Arrivals = Mapping[str, Arrival]


class RestoreOrder(NamedTuple):
    """The order to a source: what it writes, and where."""

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
        """True if all of it was closed cleanly and is whole; what is written anew is."""
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
        """Return what the logs will have; every batch is read."""
        raise NotImplementedError

    def write(self, order: RestoreOrder) -> list[WrittenPart]:
        """Write partitions into the staging folder; leave out those that come to nothing."""
        raise NotImplementedError

    def is_same(self, name: str, target: str, there: Content, wanted: Content) -> bool:
        """Check whether a partition in a log directory has what would be written."""
        return there == wanted

    def coordinators(self) -> tuple[Disk, CutOff] | None:
        """Return where the log of the coordinators of transactions can be read, and up to where; None if nowhere."""
        return None

    def topic_id(self, name: str) -> str | None:
        """Return the id of a partition's topic; None if it is not known."""
        return None

    def cluster_id(self, name: str) -> str | None:
        """Return the id of the cluster that a partition comes from; None if it is not known."""
        return None
