"""How old the disks of a merge are: where each one's metadata log ends, beside the newest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.disk.lineage.authority import Known
from pylogseg.values.internal.cluster import ClusterMetadata

#: A broker that died counts as alive so long: broker.session.timeout.ms, 9 s, and some more.
_FENCED_AFTER_MS = 12_000
#: A metadata log has a record twice a second; one that ends so much earlier than another is that of an earlier time.
_AT_ONCE_MS = 2_000


class Metadata(NamedTuple):
    """A metadata log that was read."""

    cluster: ClusterMetadata
    folder: str


class Age(NamedTuple):
    """How old a disk is, and what it may say of itself."""

    own: Metadata  #: The metadata log of the disk's broker, and the newest one of all.
    newest: Metadata
    node_id: int
    went_on: bool  #: True if the broker lived when its disk had nothing any more: this is an older copy of it.

    @classmethod
    def of(cls, node_id: int, own: Metadata, newest: Metadata) -> Age:
        """Compare the two; the newest log shows when a broker that died was fenced, and whether it came back."""
        seen_ms = newest.cluster.seen_ms.get(node_id, -1)
        return cls(own, newest, node_id, seen_ms > own.cluster.time_ms + _FENCED_AFTER_MS)

    def __str__(self) -> str:
        later = (self.newest.cluster.time_ms - self.own.cluster.time_ms) / 1000
        return (
            f"its metadata log ends at offset {self.own.cluster.offset}, {later:.0f} s before that of "
            f"{self.newest.folder}, which ends at {self.newest.cluster.offset}"
        )

    def refused(self, key: tuple[str, int]) -> str | None:
        """Say why the disk cannot be taken for in sync, as the newest metadata has it; None if it can."""
        if self.went_on:
            return f"{self}, and broker {self.node_id} went on meanwhile: it is an older copy"
        if self.newest.cluster.time_ms - self.own.cluster.time_ms <= _AT_ONCE_MS:
            return None
        own, newest = self.own.cluster.leaders.get(key), self.newest.cluster.leaders.get(key)
        for of_newest, of_own in zip(_in_sync(newest), _in_sync(own), strict=True):
            if self.node_id in of_newest:
                return None if self.node_id in of_own else f"{self}, and does not say yet that it was in sync"
        return None


def _in_sync(known: Known | None) -> Sequence[Sequence[int]]:
    """Who had all that was committed, and who was last known to have it."""
    return [(), ()] if known is None else [(*known.isr, *known.elr), known.last_known_elr]
