"""`audit` of tables without offsets: rows and records as multisets of (key, value, timestamp), hour by hour.

Both sides have a count and a sum of hashes for each hour. Equal ones are the same multiset; for different ones the
counts decide. That is weaker than offsets: equal rows cannot be matched to records, and a lost record beside a double
one in the same hour counts as a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native import _keymap
from pylogseg.env.executor import Advance
from pylogseg.errors import StorageError
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.audit_partition import LogExtent, audit_of
from pylogseg.lakehouse.audit_result import PartitionAudit, TimeRange
from pylogseg.lakehouse.audit_runs import NONE, FilePiece, PieceRows, numbers_of, topic_numbers
from pylogseg.lakehouse.audit_values import Hashes, Secret, hash_bytes, row_hashes
from pylogseg.lakehouse.foreign import read_rows
from pylogseg.reading.log_reader import LogReader
from pylogseg.walker.gaps import Gap

HOUR_MS = 3_600_000
#: Rows of an hour: how many, and the sum of their hashes.
SUMS = np.dtype([("topic", "i4"), ("partition", "i4"), ("hour", "i8"), ("count", "i8"), ("sum", "u8")])
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)

Sums = npt.NDArray[Any]


@dataclass(frozen=True)
class Summing:
    """Reads tables and logs; runs in threads, or in tasks of Spark."""

    columns: TableColumns
    secret: Secret

    def of_table(self, piece: FilePiece, advance: Advance) -> PieceRows:
        topics: dict[str | None, int] = {}
        pieces, unnamed, error = [np.empty(0, SUMS)], 0, None
        try:
            for batch in read_rows(piece.file, self.columns, piece.groups, piece.first_row):
                time, has_time = numbers_of(_milliseconds(batch.columns.get("timestamp")), batch.rows, np.int64)
                partition, is_known = numbers_of(batch.columns.get("partition", NONE), batch.rows, np.int32)
                topic = topic_numbers(batch.columns.get("topic", ""), batch.rows, topics)

                def hash_role(role: str, out: Hashes, columns: dict[str, Any] = batch.columns) -> None:
                    hash_bytes(self.secret, columns[role], out)

                hashes, _ = row_hashes(self.columns.compared, None, batch.rows, hash_role)
                which = np.flatnonzero(has_time & is_known)
                unnamed += batch.rows - len(which)
                pieces.append(_sums(topic[which], partition[which], time[which], hashes[which]))
                advance(0)
        except StorageError as failed:
            error = str(failed)
        advance(piece.size)
        return PieceRows(add_sums(pieces), [topic or "" for topic in topics], unnamed, error)

    def of_log(self, part: LogReader, advance: Advance) -> tuple[Sums, list[Gap]]:
        part, pieces = part.apart(advance), [np.empty(0, SUMS)]
        for chunk in part.chunks():
            columns = chunk.columns

            def hash_role(role: str, out: Hashes, columns: Any = columns) -> None:
                place, size = (np.ascontiguousarray(getattr(columns, f"{role}_{what}")) for what in ("place", "size"))
                _keymap.hash_spans(self.secret, place, size, columns.sources, out)

            hashes, _ = row_hashes(self.columns.compared, None, len(columns), hash_role)
            none = np.zeros(len(columns), np.int32)
            pieces.append(_sums(none, none, np.asarray(columns.timestamp), hashes))
        return add_sums(pieces), part.gaps


def _milliseconds(given: Any) -> Any:
    if isinstance(given, pa.Array) and pa.types.is_timestamp(given.type):
        return pc.cast(given, pa.timestamp("ms", given.type.tz), safe=False)
    return given


def _sums(topic: Any, partition: Any, time_ms: npt.NDArray[np.int64], hashes: Hashes) -> Sums:
    mixed = hashes ^ (time_ms.astype(np.uint64) * _FACTORS[0])
    mixed ^= mixed >> np.uint64(31)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(29)
    sums = np.empty(len(mixed), SUMS)
    sums["topic"], sums["partition"], sums["hour"] = topic, partition, time_ms // HOUR_MS
    sums["count"], sums["sum"] = 1, mixed
    return add_sums([sums])


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Return one row for each topic, partition and hour."""
    every: Sums = np.concatenate(parts)
    if len(every) < 2:
        return every
    names = ("topic", "partition", "hour")
    if not all((every[name][1:] >= every[name][:-1]).all() for name in names):
        every = every[np.lexsort([every[name] for name in reversed(names)])]
    differs = np.logical_or.reduce([every[name][1:] != every[name][:-1] for name in names])
    starts = np.append(0, np.flatnonzero(differs) + 1)
    totals: Sums = every[starts]
    totals["count"], totals["sum"] = (np.add.reduceat(every[name], starts) for name in ("count", "sum"))
    return totals


def compare_hours(
    name: str,
    rows: Sums,
    records: Sums,
    known: LogExtent | None,
    gaps: Iterable[Gap],
    is_complete: bool,
    is_unread: bool,
) -> PartitionAudit:
    """Compare the hours of a partition, or of all of a topic; `known` is None without a log.

    With `is_unread` there are rows that could not be read.
    """
    result = audit_of(name, known or LogExtent(), rows=int(rows["count"].sum()), gaps=list(gaps))
    is_damaged = any(gap.is_loss for gap in result.gaps)
    table, log = ({int(row["hour"]): row for row in side} for side in (rows, records))
    last = max(table, default=None)
    first = min(log, default=None) if result.log_start_offset else None
    for hour in sorted({*table, *log}):
        here, there = (int(side[hour]["count"]) if hour in side else 0 for side in (table, log))
        result.present += min(here, there)
        if here == there and table[hour]["sum"] == log[hour]["sum"]:
            continue
        more = here - there
        if known is None:
            kind, into = "double", ("foreign", "noPartition")
        elif more > 0 and first is not None and hour <= first:
            kind, into = "", ("unchecked", "belowLogStart")
        elif more > 0 and (is_damaged or known.is_cleaned):
            kind, into = "", ("unchecked", "notLookedAt" if is_damaged else "compacted")
        elif more < 0 and not is_complete and last is not None and hour >= last:
            kind, into = "", ("missing", "notYet")
        elif more <= 0 and is_unread:
            kind, into = "", ("missing", "notLookedAt")
        else:
            kind, into = ("lost", ("missing", "lost")) if more < 0 else ("double" if more else "changed", ("", ""))
        if into[0]:
            getattr(result, into[0])[into[1]] += abs(more)
        elif more:
            result.double += more
        else:
            result.changed += 1  # at least
        if kind:
            result.times.append(TimeRange(kind, hour * HOUR_MS, (hour + 1) * HOUR_MS, here, there))
    return result
