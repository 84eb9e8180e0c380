"""Memory that requests unfold to: a list of empty items has a byte for each on the wire, and a thousand in memory."""

from __future__ import annotations

import math
import threading

#: An item of a list, with its row in the answer and the pieces of that: 500 to 1,500 bytes, by the kind of request.
ITEM_BYTES = 1 << 10
#: What is not counted together: most requests stay below it.
_FREE_BYTES = 256 << 10
_STEP_BYTES = 1 << 20
#: A request may unfold to so much, and to so many times its own size more.
REQUEST_BYTES, TIMES = 40 << 20, 8
#: All requests that are being answered, without those that are small.
ALL_BYTES = 512 << 20


class TooMuch(Exception):
    """A request unfolds to more items than allowed; the text has the number."""


class Pool:
    """Bytes that all requests share."""

    def __init__(self, size: int = ALL_BYTES) -> None:
        self._size, self._left = size, size
        self._mutex = threading.Lock()

    def take(self, size: int) -> None:
        """Take some; raises `TooMuch` if there are not so many."""
        with self._mutex:
            if size > self._left:
                raise TooMuch(f"large requests are being answered already, of {self._size >> 20} MiB all together")
            self._left -= size

    def give(self, size: int) -> None:
        with self._mutex:
            self._left += size


class Budget:
    """The memory of one request, until `close`; by default any, else 256 KiB at least."""

    __slots__ = ("_granted", "_most", "_pool", "_seen", "_taken", "spent")

    def __init__(self, most: float = math.inf, pool: Pool | None = None) -> None:
        self.spent = 0
        self._granted = _FREE_BYTES
        self._most, self._pool, self._taken = most, pool, 0
        self._seen: set[object] | None = None

    def spend(self, items: int, size: int = 0) -> None:
        """Count items of a list or rows of an answer, with further bytes; raises `TooMuch`."""
        self.spent += items * ITEM_BYTES + size
        if self.spent > self._granted:
            self._grant()

    def spend_again(self, key: object, rows: int, size: int = 0) -> None:
        """Count rows of an answer about something that was asked for already: once, they are as many as there are."""
        if self._seen is None:
            self._seen = set()
        if key in self._seen:
            self.spend(rows, size)
        self._seen.add(key)

    def _grant(self) -> None:
        if self.spent > self._most:
            raise TooMuch(f"a request that unfolds to {self.spent >> 10} KiB; {int(self._most) >> 10} are allowed")
        more = self.spent - self._granted + _STEP_BYTES
        if self._pool is not None:
            self._pool.take(more)
            self._taken += more
        self._granted += more

    def close(self) -> None:
        """Give back the bytes that were taken."""
        if self._pool is not None:
            self._pool.give(self._taken)
            self._taken = 0
