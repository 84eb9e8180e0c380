"""Transaction index: the aborted transactions of a segment, which a read_committed reader leaves out.

Fixed entries in the order of the abort markers, no checksum, no preallocation; a segment without aborts has no file.
Rules: `docs/format.md`, "Transaction index".
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import TXN_INDEX_ENTRY

_SIZE = TXN_INDEX_ENTRY.size
_NEVER = 2**63


class AbortedTxn(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int  #: Of its first record.
    last_offset: int  #: Of its abort marker.
    #: At the abort: where the oldest other open transaction began, or the offset after the marker.
    last_stable_offset: int


class TxnIndex:
    """A transaction index (``.txnindex``); the buffer is viewed, not copied.

    Raises CorruptionError if an entry's version is not 0. As in Kafka only the first of the version's two bytes counts,
    and only as a signed number: version 1 passes. `odd_bytes` after the last whole entry, of one that a crash cut off,
    are skipped.
    """

    __slots__ = ("buffer", "count", "odd_bytes", "path")

    def __init__(self, buffer: Any, path: str = "<transaction index>") -> None:
        self.buffer = byte_view(buffer)
        self.path = str(path)
        self.count, self.odd_bytes = divmod(len(self.buffer), _SIZE)
        versions = np.frombuffer(self.buffer, np.int8)[: self.count * _SIZE : _SIZE]
        newer = np.flatnonzero(versions > 0)
        if len(newer):
            slot = int(newer[0])
            version = int(self.entries["version"][slot])
            raise CorruptionError(self.path, slot * _SIZE, f"entry {slot} has version {version}, only 0 is known")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, slot: int) -> AbortedTxn:
        return AbortedTxn(*self.entries[slot].item()[1:])

    def __iter__(self) -> Iterator[AbortedTxn]:
        return (AbortedTxn(*entry[1:]) for entry in self.entries.tolist())

    def __repr__(self) -> str:
        return f"TxnIndex({self.path!r}, {self.count} entries)"

    @property
    def entries(self) -> npt.NDArray[Any]:
        """The entries as a structured big-endian array: a view into the buffer."""
        return np.frombuffer(self.buffer, TXN_INDEX_ENTRY.dtype, self.count)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Find the aborted transactions that overlap a half-open range of offsets; and whether that is all.

        All means: no later segment can hold another one. An entry whose last stable offset is at or above the upper
        bound proves it, since every earlier transaction had ended by then.
        """
        aborted = []
        for txn in self:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
                aborted.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return aborted, True
        return aborted, False

    def check(self, base_offset: int) -> None:
        """Raise CorruptionError if a marker lies below the segment's first offset or the markers do not ascend."""
        self.check_base(base_offset)
        last_offsets = self.entries["last_offset"]
        broken = last_offsets[1:] <= last_offsets[:-1]
        if broken.any():
            slot = int(broken.argmax()) + 1
            reason = f"entry {slot} has last offset {last_offsets[slot]}, not above {last_offsets[slot - 1]} before it"
            raise CorruptionError(self.path, slot * _SIZE, reason)

    def check_base(self, base_offset: int) -> None:
        """Raise CorruptionError if a marker lies below the segment's first offset, as a broker that loads it does."""
        last_offsets = self.entries["last_offset"]
        below = np.flatnonzero(last_offsets < base_offset)
        if len(below):
            slot = int(below[0])
            reason = f"entry {slot} has last offset {last_offsets[slot]}, below the segment's first, {base_offset}"
            raise CorruptionError(self.path, slot * _SIZE, reason)


class AbortedRanges:
    """Offsets of aborted transactions: ranges by producer, both ends inclusive, joined where they overlap."""

    def __init__(self, transactions: Iterable[AbortedTxn]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for txn in sorted(transactions, key=lambda txn: txn.first_offset):
            ranges = self._ranges.setdefault(txn.producer_id, [])
            if ranges and txn.first_offset <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], txn.last_offset))
            else:
                ranges.append((txn.first_offset, txn.last_offset))

    def __len__(self) -> int:
        return len(self._ranges)

    def covers(self, producer_id: int, offset: int) -> bool:
        """Check whether a data batch of a transaction, by its base offset, is in an aborted one."""
        ranges = self._ranges.get(producer_id, ())
        at = bisect_right(ranges, (offset, _NEVER)) - 1
        return at >= 0 and offset <= ranges[at][1]


def encode_txn_index(transactions: Iterable[AbortedTxn]) -> bytes:
    """Make the bytes of a transaction index, in the order of the markers; RequestError if these do not ascend."""
    rows = [(0, *txn) for txn in transactions]
    for before, after in itertools.pairwise(rows):
        if after[3] <= before[3]:
            raise RequestError(f"last offset {after[3]} does not ascend: {before[3]} is before it")
    try:
        return np.array(rows, TXN_INDEX_ENTRY.dtype).tobytes()
    except (OverflowError, ValueError, TypeError) as error:
        raise RequestError(f"transaction index entry: {error}") from None
