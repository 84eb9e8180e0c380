"""Committed offsets of all groups, and pending ones of open transactions. Callers hold the coordinator's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import TopicPartition

MOST_METADATA = 4096
#: What all offsets take, and one beside its text.
MOST_OFFSET_BYTES, _OFFSET_BYTES = 256 << 20, 256


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    epoch: int = -1
    metadata: str = ""


#: Offsets by group.
CommittedByTopic = dict[str, dict[TopicPartition, Committed]]


class CommittedOffsets:
    """The offsets; the first question calls `load` for the initial offsets of groups."""

    def __init__(
        self, load: Callable[[], CommittedByTopic] = dict, staged: Mapping[int, CommittedByTopic] | None = None
    ) -> None:
        self._load = load
        self._loaded: CommittedByTopic | None = None
        #: Offsets that take effect when the transaction of a producer commits.
        self._staged: dict[int, CommittedByTopic] = dict(staged or {})
        #: Bytes of all; None if these have to be counted.
        self._size: int | None = None

    @property
    def by_group(self) -> CommittedByTopic:
        """The offsets that have taken effect."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def of(self, group_id: str) -> dict[TopicPartition, Committed]:
        return dict(self.by_group.get(group_id, {}))

    def check(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, KafkaError]:
        """Return errors for offsets that cannot replace a group's offsets; count the valid ones as used memory."""
        refused: dict[TopicPartition, KafkaError] = {}
        previous = self.by_group.get(group_id, {})
        for place, committed in offsets.items():
            try:
                self.charge(committed, previous.get(place))
            except KafkaError as error:
                refused[place] = error
        return refused

    def charge(self, committed: Committed, known: Committed | None = None) -> None:
        """Count an offset that is kept from now on, in the place of another; KafkaError if there are too many."""
        if len(committed.metadata) > MOST_METADATA:
            raise KafkaError(codes.OFFSET_METADATA_TOO_LARGE)
        if self._size is None:
            self._size = sum(map(_size_of, self._all()))
        size = self._size + _size_of(committed) - (0 if known is None else _size_of(known))
        if size > MOST_OFFSET_BYTES:
            text = f"the offsets of all groups have {MOST_OFFSET_BYTES >> 20} MiB already"
            raise KafkaError(codes.INVALID_COMMIT_OFFSET_SIZE, text)
        self._size = size

    def recount(self) -> None:
        """Count all anew: some that were counted are not kept."""
        self._size = None

    def _all(self) -> Iterator[Committed]:
        for offsets in (self.by_group, *self._staged.values()):
            for committed in offsets.values():
                yield from committed.values()

    def put(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Keep offsets of a group, which were counted."""
        self.by_group.setdefault(group_id, {}).update(offsets)

    def drop(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        for place in places:
            del self.by_group[group_id][place]
        self._size = None

    def drop_group(self, group_id: str) -> None:
        self.by_group.pop(group_id, None)
        self._size = None

    # ---- transactions ----

    def stage(self, producer_id: int, group_id: str, place: TopicPartition, committed: Committed) -> None:
        """Keep an offset that a transaction commits, which was counted."""
        self._staged.setdefault(producer_id, {}).setdefault(group_id, {})[place] = committed

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Let the offsets of a transaction take effect, or forget them."""
        staged = self._staged.pop(producer_id, {})
        self._size = None
        for group_id, committed in staged.items() if commits else ():
            self.put(group_id, committed)

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions of which a group has offsets in open transactions."""
        return {place for staged in self._staged.values() for place in staged.get(group_id, ())}

    def unstage_topic(self, topic: str) -> None:
        """Forget a topic's pending offsets of open transactions."""
        for staged in self._staged.values():
            for committed in staged.values():
                for place in [place for place in committed if place[0] == topic]:
                    del committed[place]


def _size_of(committed: Committed) -> int:
    return _OFFSET_BYTES + len(committed.metadata)
