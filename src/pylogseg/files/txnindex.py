"""Transaction index: the aborted transactions of a segment, which a read_committed reader leaves out.

Fixed entries in the order of the abort markers, no checksum, no preallocation; a segment without aborts has no file.
Rules: `docs/format.md`, "Transaction index".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import TXN_INDEX_ENTRY

_SIZE = TXN_INDEX_ENTRY.size


class AbortedTxn(NamedTuple):
    """An aborted transaction.

    Attributes
    ----------
    producer_id : int
    first_offset : int
        Of its first record.
    last_offset : int
        Of its abort marker.
    last_stable_offset : int
        Of the log at the time of the abort: the first offset of the oldest transaction that was still open then, or
        the one after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """A transaction index (``.txnindex``).

    Parameters
    ----------
    buffer : buffer
        The whole file; viewed, not copied.
    path : str
        For errors.

    Attributes
    ----------
    odd_bytes : int
        Bytes after the last whole entry: of an entry cut off by a crash. They are skipped.

    Raises
    ------
    CorruptionError
        If an entry's version is not 0. As in Kafka only the first of the version's two bytes counts, and only as a
        signed number: version 1 passes.
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
        """Find the aborted transactions that overlap a range of offsets.

        Parameters
        ----------
        fetch_offset, upper_bound : int
            The range, half-open.

        Returns
        -------
        transactions : list of AbortedTxn
        complete : bool
            Whether that is all: no later segment can hold another one. An entry whose last stable offset is at or above
            the upper bound proves it, since every earlier transaction had ended by then.
        """
        found = []
        for txn in self:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
                found.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def check(self, base_offset: int) -> None:
        """Look at every entry.

        Parameters
        ----------
        base_offset : int
            Of the segment.

        Raises
        ------
        CorruptionError
            If a marker lies below the segment's first offset or the markers do not ascend. A broker checks the first
            of these when it loads the segment, and recovers the segment then.
        """
        last_offsets = self.entries["last_offset"]
        below = np.flatnonzero(last_offsets < base_offset)
        if len(below):
            slot = int(below[0])
            reason = f"entry {slot} has last offset {last_offsets[slot]}, below the segment's first, {base_offset}"
            raise CorruptionError(self.path, slot * _SIZE, reason)
        broken = last_offsets[1:] <= last_offsets[:-1]
        if broken.any():
            slot = int(broken.argmax()) + 1
            reason = f"entry {slot} has last offset {last_offsets[slot]}, not above {last_offsets[slot - 1]} before it"
            raise CorruptionError(self.path, slot * _SIZE, reason)


def encode_txn_index(transactions: Iterable[AbortedTxn]) -> bytes:
    """Make the bytes of a transaction index.

    Parameters
    ----------
    transactions : iterable of AbortedTxn
        In the order of their markers.

    Raises
    ------
    RequestError
        If a last offset is not above the one before it, or a number does not fit 64 bits.
    """
    rows = [(0, *txn) for txn in transactions]
    for before, after in itertools.pairwise(rows):
        if after[3] <= before[3]:
            raise RequestError(f"last offset {after[3]} does not ascend: {before[3]} is before it")
    try:
        return np.array(rows, TXN_INDEX_ENTRY.dtype).tobytes()
    except (OverflowError, ValueError, TypeError) as error:
        raise RequestError(f"transaction index entry: {error}") from None
