"""Removal of segments: files are renamed at once and removed later, so that readers can finish."""

from __future__ import annotations

from collections.abc import Iterable

from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import Storage
from pylogseg.log.producers import Producers
from pylogseg.log.segment import LogSegment

DELETED = ".deleted"


class Remover:
    """Removes files of one log after `delay_ms` (`file.delete.delay.ms`), which may be changed."""

    def __init__(self, storage: Storage, scheduler: Scheduler, delay_ms: int) -> None:
        self._storage, self._scheduler, self.delay_ms = storage, scheduler, delay_ms

    def remove_segments(self, segments: Iterable[LogSegment], *, now: bool = False) -> None:
        """Rename the files of segments to `.deleted`, and remove them when the delay is over, or at once."""
        going = list(segments)
        for segment in going:
            if segment.suffix != DELETED:
                segment.change_suffix(DELETED)

        def remove() -> None:
            for segment in going:
                segment.delete()

        if now:
            remove()
        elif going:
            self._scheduler.schedule("delete-file", remove, self.delay_ms)

    def remove_snapshots(self, segments: Iterable[LogSegment], producers: Producers, *, now: bool = False) -> None:
        """Remove the producer snapshots at the base offsets of segments in the same way."""
        paths = [producers.snapshots.mark_deleted(segment.base_offset) for segment in segments]
        there = [path for path in paths if path is not None]

        def remove() -> None:
            for path in there:
                self._storage.remove(path)

        if now:
            remove()
        else:
            self._scheduler.schedule("delete-producer-snapshot", remove, self.delay_ms)
