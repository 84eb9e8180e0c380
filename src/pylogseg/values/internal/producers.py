"""The producers of a partition at a moment, as rows, and the markers that end their transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.producers import OnRefused, producers_at
from pylogseg.reading.transaction_markers import marker_rows, windows
from pylogseg.walker.windows import Window


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


def producers_of(log: LogFiles, end_offset: int, on_refused: OnRefused, *, crc: bool = True) -> dict[int, ProducerRow]:
    """Return the producers of a log by their ids; batches from `end_offset` on do not count.

    See `producers_at` for `on_refused`.
    """
    markers: dict[int, LastMarker] = {}

    def note(rows: BatchTable, window: Window) -> None:
        markers.update(_last_markers(rows, window))

    states = producers_at(
        log.segments, log.snapshots, 0, end_offset, crc=crc, on_refused=on_refused, on_batches=note
    ).active
    return {
        who: ProducerRow(
            who,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.coordinator_epoch,
            state.first_txn_offset,
            markers.get(who),
        )
        for who, state in states.items()
    }


def _last_markers(rows: BatchTable, window: Window) -> dict[int, LastMarker]:
    """Return the last marker of each producer among batches of a window."""
    rows = rows[rows.is_control]
    batches = dict(zip(rows.base_offset.tolist(), rows.rows, strict=True))
    return {
        marker.producer_id: LastMarker(
            int(batch["producer_epoch"]), int(batch["max_timestamp"]), marker.kind is ControlKind.COMMIT
        )
        for marker in marker_rows(rows, window)
        if (batch := batches.get(marker.offset)) is not None and marker.coordinator_epoch >= 0
    }


def marker_before(log: LogFiles, producer: ProducerRow) -> LastMarker | None:
    """Return the last marker of a producer below its open transaction, read from the end of the log on."""
    for segment in reversed(log.segments):
        marker = None
        for window in windows(segment, segment.base_offset, crc=False):
            rows = window.batches
            rows = rows[(rows.producer_id == producer.producer_id) & (rows.base_offset < producer.first_txn_offset)]
            marker = _last_markers(rows, window).get(producer.producer_id, marker)
        if marker is not None:
            return marker
    return None
