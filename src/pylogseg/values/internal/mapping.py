"""Committed offsets on another cluster's copy of a topic, found by the records themselves.

A mirrored topic has the same records in the same order, under other offsets: markers of transactions have none there,
and the copy began later. An offset names the record that a group reads next; if the copy has this record, the group
goes on with it. Where it does not have it (yet), the group goes on behind the record that it read last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pylogseg.format.records import RecordColumns
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import LENIENT
from pylogseg.values.internal.mirror_map import MirrorRuns
from pylogseg.values.internal.offsets import PartitionEnds

_Row = dict[str, Any]


_STALE = "it is of a topic that was deleted since"


class Identity(NamedTuple):
    """The parts of a record that are the same in both clusters."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes | None, bytes | None], ...]


#: A record and its offset.
_Placed = tuple[int, Identity]


def map_offsets(rows: Iterable[_Row], here: PartitionEnds, there: PartitionEnds) -> tuple[list[_Row], list[str]]:
    """Find the committed offsets of groups on another cluster's copies of their topics.

    Return rows of `group_offsets` with ``mappedOffset``, or a ``reason``; and the damage behind which no record can be
    found.
    """
    by_partition: dict[tuple[str, int], list[_Row]] = {}
    for row in rows:
        by_partition.setdefault((row["topic"], row["partition"]), []).append(row)
    mapped: list[_Row] = []
    gaps: list[str] = []
    for (topic, partition), listed in sorted(by_partition.items()):
        logs = here.log(topic, partition), there.log(topic, partition)
        ends = here.of(topic, partition).end, there.of(topic, partition).end
        if logs[0] is None or logs[1] is None or ends[0] is None or ends[1] is None:
            where = "this directory" if logs[0] is None else "the other directory"
            mapped += [row | _refuse(f"the partition is not in {where}") for row in listed]
            continue
        sides = _Side(logs[0], ends[0], gaps), _Side(logs[1], ends[1], gaps)
        answers = _map_partition({row["offset"] for row in listed if not row["stale"]}, *sides)
        stale = _refuse(_STALE)
        place = {"mappedTopic": topic, "mappedPartition": partition}
        mapped += [row | place | (stale if row["stale"] else answers[row["offset"]]) for row in listed]
    mapped.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
    return mapped, list(dict.fromkeys(gaps))


def map_by_runs(rows: Iterable[_Row], runs: Mapping[tuple[str, int], MirrorRuns]) -> list[_Row]:
    """Find the committed offsets of groups by a map of offsets; return rows as `map_offsets` does."""
    return [row | _by_runs(row, runs.get((row["topic"], row["partition"]))) for row in rows]


def _by_runs(row: _Row, runs: MirrorRuns | None) -> _Row:
    if row["stale"]:
        return _refuse(_STALE)
    if runs is None:
        return _refuse("the map has no such partition")
    offset = runs.translate(row["offset"])
    if offset is None:
        return _refuse(f"the map ends at offset {int(runs.runs['last'][-1])}: the mirror has no record behind it yet")
    topic, _, number = runs.target.rpartition("-")
    return _answer(offset) | {"mappedTopic": topic, "mappedPartition": int(number)}


def _refuse(reason: str) -> _Row:
    return {"mappedOffset": None, "reason": reason}


def _answer(offset: int) -> _Row:
    return {"mappedOffset": offset, "reason": None}


class _Side:
    """The committed records of one copy."""

    def __init__(self, log: LogFiles, end: int, gaps: list[str]) -> None:
        self.log, self.end, self._gaps = log, end, gaps

    @property
    def start(self) -> int:
        return self.log.log_start_offset

    def read(self, first: int, end: int, times: tuple[int, int] | None = None) -> Iterator[RecordColumns]:
        """Yield records, of a range of timestamps if one is given; both included."""
        state = replace(LENIENT, isolation_level="read_committed").start()
        selection = Selection() if times is None else Selection(since=times[0], until=times[1] + 1)
        try:
            for columns, _ in selection.chunks(self.log, first, min(end, self.end), state):
                yield columns
        finally:
            damage = [gap for gap in state.gaps if gap.is_damage]
            self._gaps += [f"{gap.path}, position {gap.position}: {gap.reason}" for gap in damage]

    def around(self, offset: int) -> tuple[_Placed | None, _Placed | None]:
        """Return the record at an offset or behind it, and the one before it; None where there is none."""
        following = next(((int(c.offset[0]), identity_of(c, 0)) for c in self.read(offset, self.end)), None)
        span, preceding = 1, None
        while preceding is None and offset > self.start:
            first = max(self.start, offset - span)
            for columns in self.read(first, offset):
                preceding = int(columns.offset[-1]), identity_of(columns, -1)
            if first == self.start:
                break
            span *= 64
        return following, preceding

    def offsets_of(self, wanted: set[Identity]) -> dict[Identity, list[int]]:
        offsets: dict[Identity, list[int]] = {record: [] for record in wanted}
        times = np.array(sorted({record.timestamp for record in wanted}), np.int64)
        if not len(times):
            return offsets
        for columns in self.read(self.start, self.end, (int(times[0]), int(times[-1]))):
            for i in np.flatnonzero(np.isin(columns.timestamp, times)).tolist():
                record = identity_of(columns, i)
                if record in offsets:
                    offsets[record].append(int(columns.offset[i]))
        return offsets


def identity_of(columns: RecordColumns, i: int) -> Identity:
    """Return the key by which a record equals record `i` elsewhere."""
    one = columns.take(np.array([i % len(columns)]))
    name, name_size, value, value_size = one.header_spans()
    headers = tuple((one.span(name[k], name_size[k]), one.span(value[k], value_size[k])) for k in range(len(name)))
    return Identity(int(one.timestamp[0]), one.key(0), one.value(0), headers)


def _map_partition(offsets: set[int], here: _Side, there: _Side) -> dict[int, _Row]:
    around = {offset: here.around(offset) for offset in offsets}
    wanted = {record[1] for pair in around.values() for record in pair if record is not None}
    ours, theirs = here.offsets_of(wanted), there.offsets_of(wanted)

    def place(at: _Placed | None) -> tuple[int | None, str]:
        if at is None:
            return None, "there is none"
        mine, copies = ours[at[1]], theirs[at[1]]
        if not copies:
            return None, f"that of offset {at[0]} is not in the other directory"
        if len(copies) == len(mine):  # of equal records the first is the first, and so on
            return copies[mine.index(at[0])], ""
        return None, f"that of offset {at[0]} is here {len(mine)} times, there {len(copies)} times"

    rows = {}
    for offset, pair in around.items():
        (following, why_not), (preceding, why_not_before) = map(place, pair)
        if following is not None:
            rows[offset] = _answer(following)
        elif preceding is not None:
            rows[offset] = _answer(preceding + 1)
        elif pair == (None, None):
            rows[offset] = _refuse("the partition has no records to go by")
        else:
            rows[offset] = _refuse(f"next record: {why_not}; record before: {why_not_before}")
    return rows
