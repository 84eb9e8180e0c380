"""The end of a log: where its last records begin, and what is appended to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from pylogseg.cli.query import Query
from pylogseg.disk import Partition, open_dir
from pylogseg.errors import RequestError, StorageError
from pylogseg.reading.partition import Chunk
from pylogseg.reading.seek import end_offset
from pylogseg.reading.stream import Log

_POLL_SECONDS = 0.2


def last_records(query: Query, log: Log, count: int) -> Log:
    """The log from its `count`-th last record on, of those that the query asks for.

    Looks from the end, further back each time, so that only the end is read.
    """
    first, end = query.range_of(log)
    end = min(end, end_offset(log.segments))
    back = max(count, 64)
    while True:
        start = max(first, end - back)
        offsets = _last_offsets(query, log._replace(log_start_offset=start), count)
        if len(offsets) >= count or start <= first:
            break
        back *= 8
    return log._replace(log_start_offset=max(first, int(offsets[0])) if len(offsets) and count else end)


def _last_offsets(query: Query, log: Log, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.empty(0, np.int64)
    for chunk in query.another().chunks(log):
        found = np.concatenate([found, chunk.columns.offset])[-count:] if count else found
    return found


class Followed:
    """A partition that is read again and again as it grows.

    Parameters
    ----------
    query : Query
    log : Log
        What was asked for.
    partition : Partition
        Its folder, which is listed anew for each look.
    """

    def __init__(self, query: Query, log: Log, partition: Partition) -> None:
        self.query, self._log, self._path = query.settled(log), log, partition.path
        self._seen: tuple[int, int] | None = None

    def new(self) -> Iterator[Chunk]:
        """Chunks behind those of the last look; none if the files have not changed."""
        last = self._log.segments[-1] if self._log.segments else None
        state = (last.base_offset, last.size) if last else (-1, 0)
        if state == self._seen:
            return
        self._seen = state
        for chunk in self.query.read(self._log):
            self._log = self._log._replace(log_start_offset=int(chunk.columns.offset[-1]) + 1)
            filtered = self.query.filtered(chunk)
            if len(filtered.columns):
                yield filtered

    def look(self) -> None:
        """List the folder again: segments that were rolled or removed, and the size of the active one."""
        try:
            segments = open_dir(self._path).partitions[0].segments
        except RequestError:  # an empty folder: all was moved away or deleted
            return
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return
            raise
        self._log = self._log._replace(segments=segments)


def follow(parts: list[Followed]) -> Iterator[Chunk]:
    """Chunks of all partitions as they are appended; never ends."""
    while True:
        for part in parts:
            yield from part.new()
        time.sleep(_POLL_SECONDS)
        for part in parts:
            part.look()
