"""The producers of a partition at a moment: the newest snapshot below it, and the headers behind that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.transaction_markers import marker_rows, windows, windows_between
from pylogseg.walker.windows import Window

_MAX_SEQUENCE = 2**31 - 1


class LastMarker(NamedTuple):
    """The last marker of a producer in a log."""

    epoch: int
    time_ms: int  #: When the leader of the partition wrote it.
    commits: bool


@dataclass
class ProducerRow:
    """One producer; -1 is unknown, and as `first_txn_offset` no open transaction."""

    producer_id: int
    epoch: int = -1
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    first_txn_offset: int = -1
    marker: LastMarker | None = None  #: None if no marker was met: its log has none, or a snapshot stands for it.

    def set_epoch(self, epoch: int) -> None:
        """A newer epoch begins with new sequences."""
        if epoch != self.epoch:
            self.epoch, self.last_sequence = epoch, -1


def producers_of(log: LogFiles, end_offset: int, *, crc: bool = True) -> dict[int, ProducerRow]:
    """Return the producers of a log by their ids; batches from `end_offset` on do not count."""
    producers, start = _from_snapshot(log, end_offset)
    if start >= end_offset:
        return producers
    for window in windows_between(log.segments, start, end_offset, crc=crc):
        rows = window.batches
        wanted = (rows.producer_id >= 0) & (rows.base_offset >= start) & (rows.base_offset < end_offset)
        if wanted.any():
            _follow(producers, rows[wanted], window)
    return producers


def _from_snapshot(log: LogFiles, end_offset: int) -> tuple[dict[int, ProducerRow], int]:
    for offset in sorted((offset for offset in log.snapshots if offset <= end_offset), reverse=True):
        path = log.snapshots[offset]
        try:
            data = log.segments[0].files.read_all(path) if log.segments else b""
            entries = parse_snapshot(data, path)
        except (CorruptionError, StorageError):  # the one before it will do: more headers are read then
            continue
        snapshot = (
            ProducerRow(
                e.producer_id, e.producer_epoch, e.last_sequence, e.timestamp, e.coordinator_epoch, e.first_txn_offset
            )
            for e in entries
        )
        return {producer.producer_id: producer for producer in snapshot}, offset
    return {}, 0


def _follow(found: dict[int, ProducerRow], rows: BatchTable, window: Window) -> None:
    markers = {marker.offset: marker for marker in marker_rows(rows[rows.is_control], window)}
    columns = ("producer_id", "producer_epoch", "base_offset", "last_offset", "base_sequence", "max_timestamp")
    values = [rows.rows[name].tolist() for name in columns]
    flags = zip(rows.is_transactional.tolist(), rows.is_control.tolist(), strict=True)
    for (who, epoch, base, last, sequence, time), (transactional, control) in zip(
        zip(*values, strict=True), flags, strict=True
    ):
        producer = found.setdefault(who, ProducerRow(who))
        producer.set_epoch(epoch)
        producer.last_timestamp = time
        if control:
            marker = markers.get(base)
            if marker is not None and marker.coordinator_epoch >= 0:
                producer.coordinator_epoch, producer.first_txn_offset = marker.coordinator_epoch, -1
                producer.marker = LastMarker(epoch, time, marker.kind is ControlKind.COMMIT)
        else:
            producer.last_sequence = (sequence + last - base) & _MAX_SEQUENCE if sequence >= 0 else -1
            if transactional and producer.first_txn_offset < 0:
                producer.first_txn_offset = base


def marker_before(log: LogFiles, producer: ProducerRow) -> LastMarker | None:
    """Return the last marker of a producer below its open transaction, read from the end of the log on."""
    for segment in reversed(log.segments):
        marker = None
        for window in windows(segment, segment.base_offset, crc=False):
            rows = window.batches
            mine = rows.is_control & (rows.producer_id == producer.producer_id)
            mine &= rows.base_offset < producer.first_txn_offset
            for row, last in zip(rows[mine].rows, marker_rows(rows[mine], window), strict=False):
                commits = last.kind is ControlKind.COMMIT
                marker = LastMarker(int(row["producer_epoch"]), int(row["max_timestamp"]), commits)
        if marker is not None:
            return marker
    return None
