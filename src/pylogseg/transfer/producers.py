"""The producers of a log at an offset, by its newest snapshot before it and the batches since."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

from pylogseg._native import _append
from pylogseg._native._append import Batch
from pylogseg.env.overlay import OverlayStorage
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.log.producers import Producers
from pylogseg.reading.transaction_markers import windows_between
from pylogseg.transfer.log_here import LogHere
from pylogseg.transfer.segment_files import snapshot_file
from pylogseg.walker.windows import Window

_FOR_EVER_MS = 2**62


def producers_at(log: LogHere, end: int) -> Producers:
    producers = _reload(log, end)
    start = producers.map_end_offset
    for window in windows_between(log.partition.segments, start, end, crc=True):
        rows = window.batches
        replay(producers, rows[(rows.base_offset >= start) & (rows.base_offset < end)], window)
    return producers


def replay(producers: Producers, rows: BatchTable, window: Window) -> None:
    """Let producers go on with batches of a window."""
    batches: Iterable[Batch] = _append.batches_of(rows.rows, True)
    producers.replay_pieces([(batches, window.buffer, window.file_position)])


def snapshot_at(log: LogHere, end: int) -> bytes:
    """Return the snapshot of the producers at an offset: the file there, or what the log since the last one says."""
    data = read_snapshot(log, end)
    return snapshot_file(producers_at(log, end)) if data is None else data


def read_snapshot(log: LogHere, end: int) -> bytes | None:
    """Return the snapshot of an offset, if there is a file of it that can be read."""
    path = log.snapshots.get(end)
    if path is not None:
        with contextlib.suppress(PylogsegError):
            data = bytes(log.partition.files.read_all(path))
            parse_snapshot(data, path)
            return data
    return None


def last_stable(snapshot: bytes, end: int) -> int:
    """Return where the first open transaction of a snapshot begins; else the end."""
    firsts = [entry.first_txn_offset for entry in parse_snapshot(snapshot, "snapshot") if entry.has_open_txn]
    return min([end, *firsts])


def _reload(log: LogHere, end: int) -> Producers:
    """Return the producers of the newest snapshot up to an offset that is still there.

    A cleaner of a broker that runs removes those of segments that it makes one of.
    """
    part: Any = log.partition
    while True:
        there = [path for path in log.snapshots.values() if os.path.exists(path)]
        names = [part.files.split(path)[1] for path in there]
        producers = Producers(OverlayStorage(), part.path, expiration_ms=_FOR_EVER_MS, names=names)
        try:
            producers.truncate_and_reload(part.log_start_offset, end, 0)
            return producers
        except StorageError:
            if all(map(os.path.exists, there)):
                raise
