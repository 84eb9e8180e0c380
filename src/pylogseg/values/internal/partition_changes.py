"""Changes of partitions, which are most of a metadata log, kept as columns until somebody asks for the partitions.

Only the last change of each partition and field counts, and the number of changes: so a log of a million changes
costs a few passes over arrays, and a step in Python for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.format.messages.program import Column, Decoded
from pylogseg.format.names import TopicPartition

_Fields = dict[str, Any]
_Longs = npt.NDArray[np.int64]
_UUID = 22  # characters
#: Fields that are taken over as they are where they are not null.
LISTS = ("isr", "replicas", "removingReplicas", "addingReplicas", "directories", "eligibleLeaderReplicas",
         "lastKnownElr")  # fmt: skip
SAME_LEADER, SAME_STATE = -2, -1
MIX = np.uint64(0x9E3779B97F4A7C15)  #: Odd: it spreads the bits of a key over a number.


class PartitionChanges:
    """Decoded changes in the order of the log, not yet applied."""

    def __init__(self) -> None:
        self._parts: list[Decoded] = []
        self._at: list[_Longs] = []
        self._now = 0
        self.count = 0  #: Changes that wait.

    def __len__(self) -> int:
        return len(self._parts)

    def tick(self, count: int) -> int:
        """Give numbers to the next records of the log; returns the first."""
        first, self._now = self._now, self._now + count
        return first

    def add(self, decoded: Decoded, at: _Longs) -> None:
        self._parts.append(decoded)
        self._at.append(at)
        self.count += len(at)

    def apply(
        self,
        partitions: dict[TopicPartition, _Fields],
        since: dict[TopicPartition, int],
        unknown: Callable[[TopicPartition], _Fields],
    ) -> None:
        """Apply all changes to the fields of partitions; `unknown` makes the fields of a partition without a record.

        `since` is the number of the record that gave a partition all of its fields: earlier changes do not count.
        """
        if not self._parts:
            return
        changes = _Joined(self._parts)
        at = np.concatenate(self._at)
        self._parts, self._at, self.count = [], [], 0
        keys, key_of = changes.keys()
        after = np.array([since.get(key, -1) for key in keys], np.int64)
        counts = at > after[key_of]
        rows = [partitions.get(key, {}) for key in keys]
        for i in np.unique(key_of[counts]).tolist():
            if not rows[i]:
                rows[i] = partitions[keys[i]] = unknown(keys[i])
        last = _LastOfEach(key_of, counts, rows)
        replaced, placed = (changes.there(name) for name in ("replicas", "directories"))
        for fields, _ in last.among(replaced & ~placed):
            fields["directories"] = []
        for name in LISTS:
            there = changes.there(name)
            if name == "directories":  # where replicas came later without directories, these are not known
                there &= last.row_of(placed) > last.row_of(replaced & ~placed)
            lists = changes.lists(name)
            for fields, row in last.among(there):
                fields[name] = lists(row)
        leader, state = changes.numbers("leader", np.int32), changes.numbers("leaderRecoveryState", np.int8)
        for name, values, same in (("leader", leader, SAME_LEADER), ("leaderRecoveryState", state, SAME_STATE)):
            for fields, row in last.among(values != same):
                fields[name] = int(values[row])
        for name, counted in (("leaderEpoch", leader != SAME_LEADER), ("partitionEpoch", np.True_)):
            number = np.bincount(key_of[counts & counted], minlength=len(keys))
            for i in np.flatnonzero(number).tolist():
                rows[i][name] += int(number[i])


class _LastOfEach:
    """Finds of each partition the last row that counts."""

    def __init__(self, key_of: _Longs, counts: npt.NDArray[np.bool_], rows: list[_Fields]) -> None:
        self._key_of, self._counts, self._rows = key_of, counts, rows

    def _last(self, mask: npt.NDArray[np.bool_]) -> _Longs:
        last = np.full(len(self._rows), -1, np.int64)
        chosen = np.flatnonzero(mask & self._counts)
        last[self._key_of[chosen]] = chosen  # ascending, so the last one of each stays
        return last

    def row_of(self, mask: npt.NDArray[np.bool_]) -> _Longs:
        """For each row the last row of its partition in a mask; -1 none."""
        return self._last(mask)[self._key_of]

    def among(self, mask: npt.NDArray[np.bool_]) -> Iterator[tuple[_Fields, int]]:
        """Yield the fields of each partition with a row in the mask, and the last of these rows."""
        last = self._last(mask)
        for i in np.flatnonzero(last >= 0).tolist():
            yield self._rows[i], int(last[i])


class _Joined:
    """Columns of several decoded parts as one."""

    def __init__(self, parts: list[Decoded]) -> None:
        self._parts = parts
        self._columns: dict[str, Column] = {column.name: column for column in parts[0].columns}

    def _nodes(self, name: str, child: bool = False) -> Iterator[Any]:
        column = self._columns[name].children[0] if child else self._columns[name]
        for part in self._parts:
            yield part.nodes[column.node]

    def numbers(self, name: str, kind: Any) -> npt.NDArray[Any]:
        return np.concatenate([np.frombuffer(data, kind) for _, _, data, _ in self._nodes(name)])

    def there(self, name: str) -> npt.NDArray[np.bool_]:
        """Where a column of lists is not null."""
        return np.concatenate([np.frombuffer(valid, np.bool_) for *_, valid in self._nodes(name)])

    def lists(self, name: str) -> Callable[[int], list[Any]]:
        """Return a function that gives the list of a row."""
        sizes = [np.diff(np.frombuffer(ends, np.int32)) for _, ends, *_ in self._nodes(name)]
        ends = np.zeros(1 + sum(map(len, sizes)), np.int64)
        np.cumsum(np.concatenate(sizes, dtype=np.int64), out=ends[1:])
        if self._columns[name].children[0].type == "uuid":
            text = b"".join(bytes(data) for _, _, data, _ in self._nodes(name, True))
            return lambda row: [text[_UUID * k : _UUID * (k + 1)].decode() for k in range(ends[row], ends[row + 1])]
        items = np.concatenate([np.frombuffer(data, np.int32) for _, _, data, _ in self._nodes(name, True)])
        return lambda row: items[ends[row] : ends[row + 1]].tolist()

    def keys(self) -> tuple[list[TopicPartition], _Longs]:
        """The partitions, and for each row which one it is of."""
        raw = b"".join(bytes(data) for _, _, data, _ in self._nodes("topicId"))
        ids, numbers = np.frombuffer(raw, np.uint8).reshape(-1, _UUID), self.numbers("partitionId", np.int32)
        parts = (np.ascontiguousarray(ids[:, first : first + 8]).view(np.uint64)[:, 0] for first in (0, 8, 14))
        mixed = numbers.astype(np.uint64)
        for part in parts:
            mixed = (mixed ^ part) * MIX
        _, first, key_of = np.unique(mixed, return_index=True, return_inverse=True)
        if (ids[first][key_of] != ids).any() or (numbers[first][key_of] != numbers).any():  # two keys with one number
            pairs = np.empty(len(ids), [("topic", f"S{_UUID}"), ("partition", np.int32)])
            pairs["topic"], pairs["partition"] = np.frombuffer(raw, f"S{_UUID}"), numbers
            _, first, key_of = np.unique(pairs, return_index=True, return_inverse=True)
        names = (raw[_UUID * row : _UUID * (row + 1)].decode() for row in first.tolist())
        return list(zip(names, numbers[first].tolist(), strict=True)), key_of
