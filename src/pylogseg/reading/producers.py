"""The producers of a log at an offset, by its newest snapshot before it and the batches since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pylogseg._native import _append
from pylogseg.disk.disk import Segment
from pylogseg.env.overlay import OverlayStorage
from pylogseg.errors import CorruptionError, PylogsegError, StorageError, is_missing
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.log.producers import Producers
from pylogseg.reading.transaction_markers import windows_between
from pylogseg.walker.windows import Window

#: Gets why a snapshot or a batch is left out; it may raise that.
OnRefused = Callable[[PylogsegError], object]
_FOR_EVER_MS = 2**62


def raise_refused(error: PylogsegError) -> None:
    raise error


def producers_at(
    segments: Sequence[Segment],
    snapshots: Mapping[int, str],
    start: int,
    end: int,
    *,
    crc: bool = True,
    on_refused: OnRefused = raise_refused,
    on_batches: Callable[[BatchTable, Window], object] | None = None,
) -> Producers:
    """Return the producers of a log as a load by a broker would have them, that began at `start` and ended at `end`.

    `on_refused` gets each batch that no broker would take, and each snapshot that the disk does not give; a snapshot
    that is damaged is passed over, as by a broker. `on_batches` gets all batches that count.
    """
    producers = Producers(OverlayStorage(), "", expiration_ms=_FOR_EVER_MS, names=())
    start = _load(producers, segments, snapshots, start, end, on_refused)
    for window in windows_between(segments, start, end, crc=crc):
        rows = window.batches
        rows = rows[(rows.producer_id >= 0) & (rows.base_offset >= start) & (rows.base_offset < end)]
        if len(rows):
            replay(producers, rows, window, on_refused)
            if on_batches is not None:
                on_batches(rows, window)
    return producers


def replay(producers: Producers, rows: BatchTable, window: Window, on_refused: OnRefused = raise_refused) -> None:
    """Let producers go on with batches of a window."""
    batches = _append.batches_of(rows.rows, True)
    try:
        producers.replay_pieces([(batches, window.buffer, window.file_position)])
    except PylogsegError:
        if on_refused is raise_refused:
            raise
        for batch in batches:
            try:
                producers.replay_one(batch, window.buffer, window.file_position)
            except PylogsegError as error:
                on_refused(error)


def _load(
    producers: Producers,
    segments: Sequence[Segment],
    snapshots: Mapping[int, str],
    start: int,
    end: int,
    on_refused: OnRefused,
) -> int:
    """Load the newest snapshot of a range that can be read; return its offset, or where the range begins.

    A cleaner of a broker that runs removes those of segments that it makes one of.
    """
    for offset in sorted((offset for offset in snapshots if start < offset <= end), reverse=True) if segments else ():
        path = snapshots[offset]
        try:
            entries = parse_snapshot(segments[0].files.read_all(path), path)
        except CorruptionError:
            continue
        except StorageError as error:
            if not is_missing(error):
                on_refused(error)
            continue
        producers.load(entries, offset)
        return offset
    producers.load((), start)
    return start
