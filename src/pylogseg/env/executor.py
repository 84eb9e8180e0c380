"""What runs a job that goes item by item, segment by segment or partition by partition: this thread, several, Spark.

A job is a function of a module, with what it needs bound by `functools.partial`, and items: both can be pickled, so
each executor runs the same job. Spark's is `pylogseg.spark.executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from pylogseg.env.pool import Advance, map_ordered, stream_ordered

T = TypeVar("T")
R = TypeVar("R")
M = TypeVar("M")


class Executor(Protocol):
    """Runs a function over items. Results come in the order of the items, whatever ends first.

    The function also gets an `Advance`, which it calls with the bytes that it has read; `on_bytes` gets their sums, of
    any thread. `sizes` are about the bytes of each item, for who has to plan. An error of an item is raised in the
    place of its result. When the caller ends the iteration, also by Ctrl-C, what runs is stopped.
    """

    def map(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[R]:
        """Yield the result for each item."""
        ...

    def merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[str, M]]:
        """Yield each key, in the order of its first item, with what `merge` makes of the results of its items.

        `merge` gets these in the order of the items and takes all of them. Where results travel, `fold` adds one to
        those of its key before, by number, and may make them smaller.
        """
        ...

    def stream(
        self,
        function: Callable[[T, Callable[[bytes], None], Advance], R],
        items: Sequence[T],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[bytes | R]:
        """Yield the pieces of output that a function emits for each item, then its result, which is not ``bytes``."""
        ...


@dataclass(frozen=True)
class Threads:
    """Threads of this process; with one job the caller's own."""

    jobs: int = 1

    def map(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[R]:
        """See `Executor`."""
        return map_ordered(function, items, self.jobs, on_bytes)

    def merge(
        self,
        function: Callable[[T, Advance], R],
        items: Sequence[T],
        keys: Sequence[str],
        fold: Callable[[dict[int, R], int, R], None],
        merge: Callable[[str, Iterator[R]], M],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[str, M]]:
        """See `Executor`; nothing travels, so nothing is folded: a result is merged when it is there."""
        by_key: dict[str, list[T]] = {}
        for key, item in zip(keys, items, strict=True):
            by_key.setdefault(key, []).append(item)
        results = self.map(function, [item for of in by_key.values() for item in of], on_bytes=on_bytes)
        for key, of in by_key.items():
            yield key, merge(key, islice(results, len(of)))

    def stream(
        self,
        function: Callable[[T, Callable[[bytes], None], Advance], R],
        items: Sequence[T],
        sizes: Sequence[int] = (),
        *,
        label: str = "pylogseg",
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[bytes | R]:
        """See `Executor`; a job that is ahead of the output waits, so memory is bounded."""
        return stream_ordered(function, items, self.jobs, on_bytes)


#: The caller's own thread.
INLINE = Threads(1)
