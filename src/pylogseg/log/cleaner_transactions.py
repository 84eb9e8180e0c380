"""Transactions during a cleaning: the aborted records, and the markers that have no data left."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from pylogseg.format.control import ControlKind
from pylogseg.format.files.txnindex import AbortedTxn


class CleanedTxns:
    """State that is carried from batch to batch, through all segments of a cleaning.

    As a broker's cleaner it takes a transaction for aborted from its first offset on until an abort marker is met: it
    asks the log where the transaction ends, not the index, as `AbortedRanges` does for readers.
    """

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()
        self._committed: set[int] = set()
        self._pushed = 0
        self.keep_aborted: Callable[[AbortedTxn], None] = lambda txn: None

    def add(self, txns: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions of the batches to come."""
        for txn in txns:
            self._pushed += 1
            heapq.heappush(self._coming, (txn.first_offset, self._pushed, txn))

    def _meet(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[2]
            self._aborted.setdefault(txn.producer_id, txn)

    def read_data(self, producer_id: int, last_offset: int) -> bool:
        """Note a transactional batch of records; return whether its transaction was aborted."""
        self._meet(last_offset)
        if producer_id not in self._aborted:
            self._committed.add(producer_id)
            return False
        self._with_data.add(producer_id)
        return True

    def read_control(self, producer_id: int, last_offset: int, kind: ControlKind | None) -> bool:
        """Note a control batch; return whether it may be dropped, as no data of its transaction is left.

        `kind` is None if an earlier cleaning removed the records.
        """
        self._meet(last_offset)
        if kind is None:
            return True
        if kind is ControlKind.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._with_data:
                return True
            self._with_data.remove(producer_id)
            self.keep_aborted(txn)
            return False
        if kind is ControlKind.COMMIT:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False
            return True
        return False
