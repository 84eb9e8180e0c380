"""The tables of `pylogseg.cluster_state` as engines scan them: groups, offsets, transactions, topics and so on."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.disk import Disk
from pylogseg.values.internal.cluster_state import STATE_TABLES, ClusterState, cluster_state
from pylogseg.walker.gaps import Gap, GapKind


class StateScan:
    """One of `STATE_TABLES`, as of now; it is made when rows are first asked for, whole."""

    undecoded, is_unchecked = 0, False

    def __init__(self, table: str, disk: Disk) -> None:
        self._name, self._disk = table, disk
        self.schema: pa.Schema = STATE_TABLES[table]

    def __reduce__(self) -> Any:
        return StateScan, (self._name, self._disk)

    @property
    def name(self) -> str:
        """For messages."""
        return self._name

    @functools.cached_property
    def _state(self) -> ClusterState:
        return cluster_state(self._disk)

    @functools.cached_property
    def _rows(self) -> pa.Table:
        return self._state.table(self._name)

    @property
    def gaps(self) -> list[Gap]:
        """The damage that the table was made without."""
        texts = self._state.notes.damage if "_rows" in self.__dict__ else []
        return [Gap(self._name, GapKind.RECORDS_BAD, 0, 0, 0, None, text, True) for text in texts]

    def memory(self, columns: Sequence[str]) -> None:
        """Return nothing: no memory is used again."""

    def guarantee(self, task: str) -> Any:
        """Return the trivial expression: nothing is certain about all rows."""
        return pc.scalar(True)

    def all_match(self, task: str, filter: Any) -> bool:
        """Say no: the filter has to look."""
        return False

    def files(self, task: str) -> list[tuple[str, int]]:
        """Return nothing: internal topics are read whole, with any filter."""
        return []

    def tasks(self, filter: Any, target_bytes: int, columns: Sequence[str] | None = None) -> Iterator[str]:
        yield self._name

    def batches(self, task: str, columns: Sequence[str], memory: None, filter: Any) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.to_batches():
            yield batch.select(list(columns))
