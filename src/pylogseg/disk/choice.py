"""The choice of topics and partitions: the meaning of the arguments `topic` and `partition` everywhere."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from pylogseg.errors import RequestError

_Disk = TypeVar("_Disk", bound=Any)


class PartitionChoice(NamedTuple):
    """Names and numbers that select partitions; none selects all.

    Names are topics (``orders``), partitions (``orders-3``) or shell patterns for them.
    """

    names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, topic: str | Sequence[str] | None = None, partition: int | Sequence[int] | None = None
    ) -> PartitionChoice:
        """Return the choice of a caller's arguments; RequestError for anything but names and numbers.

        An empty sequence is refused: it may come from a failed computation, and does not mean all.
        """
        names, numbers = _several(topic, "topic"), _several(partition, "partition")
        for name in names:
            if name == "":
                raise RequestError("topic: a name is empty")
            if not isinstance(name, str):
                raise RequestError(f"topic: expected the name of a topic or partition, or a pattern, not {name!r}")
        return cls(names, tuple(whole_number(number, "partition") for number in numbers))

    @property
    def arguments(self) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
        """As `topic` and `partition` again."""
        return self.names or None, self.numbers or None

    @property
    def is_all(self) -> bool:
        """True if nothing is left out."""
        return not self.names and not self.numbers

    def has_number(self, number: int) -> bool:
        """True if partitions with this number are among the chosen ones."""
        return not self.numbers or number in self.numbers

    def check_numbers(self, there: Iterable[int]) -> None:
        """Raise RequestError for a number that no partition has."""
        missing = sorted(set(self.numbers).difference(there))
        if missing:
            raise RequestError(f"no partition {', '.join(map(str, missing))} among those selected")

    def takes(self, topic: str, number: int) -> bool:
        """True if the choice takes a live partition, whether the disk has it or not."""
        if not self.has_number(number):
            return False
        return not self.names or any(
            fnmatch.fnmatchcase(topic, name) or fnmatch.fnmatchcase(f"{topic}-{number}", name) for name in self.names
        )


#: All partitions.
ALL = PartitionChoice()


def _several(given: Any, what: str) -> tuple[Any, ...]:
    if given is None:
        return ()
    several = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not several:
        raise RequestError(f"{what} is empty: leave it out (or None) to select all")
    return several


def whole_number(number: Any, name: str) -> int:
    """Return a number as int; raise RequestError for text, fractions and truth values."""
    try:
        if isinstance(number, bool):
            raise TypeError
        return operator.index(number)
    except TypeError:
        raise RequestError(f"{name} must be a whole number, not {number!r}") from None


def is_unlisted(partition: Any) -> bool:
    """Check whether it stands for a folder beside log directories that could not be listed: anything may be in it."""
    return partition.partition < 0 and not partition.topic and partition.error is not None


def with_two_meanings(disk: Any, names: Iterable[str]) -> list[str]:
    """Return the names that are a topic's and also a partition's of another topic: of ``orders-0`` and ``orders``."""
    live = [partition for partition in disk.partitions if partition.is_live]
    both = {partition.topic for partition in live} & {f"{partition.topic}-{partition.partition}" for partition in live}
    return [name for name in dict.fromkeys(names) if name in both]


def of_topics(disk: _Disk, names: Sequence[str]) -> _Disk:
    """Return the selection of names on a disk; a topic's name means the topic, not a partition of another topic."""
    topics = {partition.topic for partition in disk.partitions}.intersection(names)
    others = [name for name in names if name not in topics]
    named = disk.select(others).partitions if topics and others else ()
    kept = tuple(
        member for member in disk.partitions if member.topic in topics or member in named or is_unlisted(member)
    )
    chosen: _Disk = replace(disk, partitions=kept) if topics else disk
    return chosen
