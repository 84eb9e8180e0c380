"""Committed offsets with facts from the partitions' files: the ends of the logs, and the lags of groups."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.disk import Disk
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.groups import GroupRecords
from pylogseg.values.internal.keyed_log import newest_replicas
from pylogseg.values.internal.lag import Lag, lags_of
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.state_columns import LAGS, OFFSETS

_SCHEMA = arrow_schema(OFFSETS)
_NO_ID = "A" * 22


class Ends(NamedTuple):
    """Start and end of a partition at a moment; None where its folder is not here."""

    start: int | None
    end: int | None


class PartitionEnds:
    """Looks up the ends of partitions, each at most once and on demand."""

    def __init__(self, disk: Disk, cut_off: CutOff, notes: Notes) -> None:
        self._disk, self._cut_off, self._notes = disk, cut_off, notes
        self._topics: dict[str, dict[int, LogFiles]] = {}
        self._found: dict[tuple[str, int], Ends] = {}

    def of(self, topic: str, partition: int) -> Ends:
        key = topic, partition
        if key not in self._found:
            log = self.log(topic, partition)
            self._found[key] = Ends(None, None) if log is None else self._ends(log)
        return self._found[key]

    def topic_id(self, topic: str) -> str | None:
        """Return the id that the folders of a topic have in their ``partition.metadata``; None if they say nothing."""
        for log in self._logs(topic).values():
            path = os.path.join(log.path, FileKind.PARTITION_METADATA.value)
            with contextlib.suppress(CorruptionError, StorageError):
                return parse_partition_metadata(log.segments[0].files.read_all(path), path).topic_id
        return None

    def log(self, topic: str, partition: int) -> LogFiles | None:
        """Return the log of a partition; None if its folder is not here."""
        return self._logs(topic).get(partition)

    def _logs(self, topic: str) -> dict[int, LogFiles]:
        if topic not in self._topics:
            logs = newest_replicas(self._disk, topic, self._notes)
            self._topics[topic] = {int(log.name.rpartition("-")[2]): log for log in logs if log.segments}
        return self._topics[topic]

    def _ends(self, log: LogFiles) -> Ends:
        end = min(log.log_end_offset, self._cut_off.end(log.name))
        if self._cut_off.until_ms is not None:
            later = log.offset_of_time(self._cut_off.until_ms)
            end = min(end, later) if later != OPEN_END else end
        return Ends(log.log_start_offset, end)


def offsets_table(records: GroupRecords, topic_ids: Mapping[str, str] | None, ends: PartitionEnds) -> pa.Table:
    """Return a row for each group and partition with a committed offset, or one that is pending.

    Without the topic ids of the cluster's metadata, no row counts as stale.
    """
    parts = [_unify_columns(records.tables[number]) for number in (0, 1) if number in records.tables]
    table = pa.concat_tables(parts) if parts else _SCHEMA.empty_table().select(_COMMITTED)
    if len(parts) > 1:
        table = _last(table)
    table = _with_pending(table, records.pending)
    table = _with_ends(table, topic_ids, ends)
    return (
        table.select(_SCHEMA.names)
        .cast(_SCHEMA)
        .sort_by([(name, "ascending") for name in ("group", "topic", "partition")])
    )


def topic_names(records: GroupRecords) -> dict[str, str]:
    """Return topic names by id, as committed offsets have them, also of deleted topics."""
    table = records.tables.get(1)
    if table is None or "topicId" not in table.column_names:
        return {}
    pairs = table.select(["topicId", "topic"]).group_by(["topicId", "topic"]).aggregate([])
    return {row["topicId"]: row["topic"] for row in pairs.to_pylist() if row["topicId"] not in (None, _NO_ID)}


_COMMITTED = ["group", "topic", "partition", "offset", "leaderEpoch", "metadata", "commitTime", "expireTime", "topicId",
              "recordOffset"]  # fmt: skip


def _null_if(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(column, value), None, column)


def _unify_columns(table: pa.Table) -> pa.Table:
    """Offsets of one type of record; the old one has neither epoch nor topic id."""
    count, names = len(table), table.column_names
    columns = {
        "group": table["group"],
        "topic": table["topic"],
        "partition": table["partition"],
        "offset": table["offset"],
        "leaderEpoch": _null_if(table["leaderEpoch"], -1) if "leaderEpoch" in names else pa.nulls(count, pa.int32()),
        "metadata": table["metadata"],
        "commitTime": table["commitTimestamp"].cast(_SCHEMA.field("commitTime").type),
        "expireTime": (
            _null_if(table["expireTimestamp"], -1) if "expireTimestamp" in names else pa.nulls(count, pa.int64())
        ).cast(_SCHEMA.field("expireTime").type),
        "topicId": _null_if(table["topicId"], _NO_ID) if "topicId" in names else pa.nulls(count, pa.string()),
        "recordOffset": table["recordOffset"],
    }
    return pa.table(columns)


def _last(table: pa.Table) -> pa.Table:
    """The later one of old and new records of a partition."""
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    keys = zip(*(table[name].to_pylist() for name in ("group", "topic", "partition", "recordOffset")), strict=True)
    for row, (*key, offset) in enumerate(keys):
        last[tuple(key)] = max(last.get(tuple(key), (-1, -1)), (offset, row))
    return table.take(pa.array(sorted(row for _, row in last.values()), pa.int64()))


def _with_pending(table: pa.Table, pending: list[dict[str, Any]]) -> pa.Table:
    count = len(table)
    waiting = {(row["group"], row["topic"], row["partition"]): row for row in pending}
    if not waiting:
        nulls = pa.nulls(count, pa.int64())
        return table.append_column("pendingOffset", nulls).append_column("pendingProducerId", nulls)
    keys = list(zip(*(table[name].to_pylist() for name in ("group", "topic", "partition")), strict=True))
    mine = [waiting.get(key) for key in keys]
    for name, of in (("pendingOffset", "offset"), ("pendingProducerId", "recordProducerId")):
        table = table.append_column(name, pa.array([None if row is None else row[of] for row in mine], pa.int64()))
    rest = [row for key, row in waiting.items() if key not in set(keys)]
    rows = [
        {name: row[name] for name in ("group", "topic", "partition")}
        | {"pendingOffset": row["offset"], "pendingProducerId": row["recordProducerId"]}
        for row in rest
    ]
    return pa.concat_tables([table, pa.Table.from_pylist(rows, table.schema)])


def _with_ends(table: pa.Table, topic_ids: Mapping[str, str] | None, ends: PartitionEnds) -> pa.Table:
    """Add the ends of partitions; each is looked up once, for all groups."""
    topics = (
        pc.dictionary_encode(table["topic"].combine_chunks())
        if len(table)
        else pa.array([], pa.string()).dictionary_encode()
    )
    names = topics.dictionary.to_pylist()
    partitions = table["partition"].to_numpy().astype(np.int64)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, which = np.unique((codes << 32) | (partitions & 0xFFFFFFFF), return_inverse=True)
    ends_of_pairs = [ends.of(names[pair >> 32], int(np.int32(pair & 0xFFFFFFFF))) for pair in pairs.tolist()]
    which = which.reshape(-1)
    start, end = (_take_ends(ends_of_pairs, which, of) for of in (lambda item: item.start, lambda item: item.end))
    offset = table["offset"]
    table = table.append_column("startOffset", start).append_column("endOffset", end)
    table = table.append_column("lag", pc.subtract(end, offset))
    behind = pc.subtract(end, pc.max_element_wise(offset, start, skip_nulls=False))
    table = table.append_column("lagFromStart", behind)
    return table.append_column("stale", _stale(table, topic_ids, ends))


def _take_ends(found: list[Ends], which: npt.NDArray[np.intp], of: Callable[[Ends], int | None]) -> pa.Array:
    return pa.array([of(item) for item in found], pa.int64()).take(pa.array(which, pa.int64()))


def _stale(table: pa.Table, topic_ids: Mapping[str, str] | None, ends: PartitionEnds) -> pa.Array:
    """True if an offset is of a topic that was deleted since; null where neither metadata nor folders tell.

    The folders of a topic have its id too, and may be of another time than the metadata: what is the same as one of
    them is not stale.
    """
    names = pc.unique(table["topic"]).to_pylist()
    noted_ids = topic_ids or {}
    now = {name: {noted_ids.get(name), ends.topic_id(name)} - {None} for name in names}
    topics, ids = table["topic"].to_pylist(), table["topicId"].to_pylist()
    stale = [
        None if own is None or (topic_ids is None and not now[topic]) else own not in now[topic]
        for topic, own in zip(topics, ids, strict=True)
    ]
    return pa.array(stale, pa.bool_())


def with_lags(table: pa.Table, ends: PartitionEnds) -> pa.Table:
    """Add to `offsets_table` how far each offset is behind; the headers behind the lowest of a partition are read."""
    rows: dict[tuple[str, int], list[tuple[int, int]]] = {}
    keys = zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    for row, (topic, partition, offset) in enumerate(keys):
        if offset is not None:
            rows.setdefault((topic, partition), []).append((row, offset))
    lags_of_rows: list[Lag | None] = [None] * len(table)
    for (topic, partition), committed in rows.items():
        log, end = ends.log(topic, partition), ends.of(topic, partition).end
        if log is not None and end is not None:
            lags = lags_of(log, end, [offset for _, offset in committed])
            for (row, _), lag in zip(committed, lags, strict=True):
                lags_of_rows[row] = lag
    for i, field in enumerate(arrow_schema(LAGS)):
        values = [None if lag is None else lag[i] for lag in lags_of_rows]
        table = table.append_column(field, pa.array(values, field.type))
    return table


def utc(ms: int | None) -> datetime.datetime | None:
    """Return a time of a file; None for -1, and for times after the year 9999."""
    if ms is None or ms < 0 or ms >= 253402300800000:
        return None
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
