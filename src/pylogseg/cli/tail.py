"""The end of a log: where its last records begin, and what is appended to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pylogseg.disk import Partition, open_dir
from pylogseg.errors import RequestError, StorageError
from pylogseg.reading.partition import Chunk
from pylogseg.reading.seek import end_offset
from pylogseg.reading.wanted import Wanted

_POLL_SECONDS = 0.2


def last_records(wanted: Wanted, count: int) -> Wanted:
    """The last `count` of the wanted records.

    Looks from the end, further back each time, so that only the end is read.
    """
    if wanted.log.error is not None:
        return wanted
    end = min(wanted.end_offset, end_offset(wanted.log.segments))
    back = max(count, 64)
    while True:
        start = max(wanted.first_offset, end - back)
        offsets = _last_offsets(replace(wanted.apart(), first_offset=start), count)
        if len(offsets) >= count or start <= wanted.first_offset:
            break
        back *= 8
    return replace(wanted, first_offset=int(offsets[0]) if len(offsets) else max(end, wanted.first_offset))


def _last_offsets(wanted: Wanted, count: int) -> npt.NDArray[np.int64]:
    found = np.empty(0, np.int64)
    for chunk in wanted.chunks():
        found = np.concatenate([found, chunk.columns.offset])
        found = found[max(0, len(found) - count) :]
    return found


class Followed:
    """A partition that is read again and again as it grows.

    Parameters
    ----------
    wanted : Wanted
        Without an end.
    partition : Partition
        Its folder, which is listed anew for each look.
    """

    def __init__(self, wanted: Wanted, partition: Partition) -> None:
        self.wanted, self._path = wanted, partition.path
        self._seen: tuple[int, int] | None = None

    def new(self) -> Iterator[Chunk]:
        """Chunks behind those of the last look; none if the files have not changed."""
        last = self.wanted.log.segments[-1] if self.wanted.log.segments else None
        state = (last.base_offset, last.size) if last else (-1, 0)
        if state == self._seen:
            return
        self._seen = state
        self.wanted.gaps.clear()
        for chunk in self.wanted.read():
            if len(chunk.columns):
                self.wanted = replace(self.wanted, first_offset=int(chunk.columns.offset[-1]) + 1)
            filtered = self.wanted.filtered(chunk)
            if len(filtered.columns):
                yield filtered

    def look(self) -> None:
        """List the folder again: segments that were rolled or removed, and the size of the active one."""
        if self.wanted.log.error is not None:
            return
        try:
            segments = open_dir(self._path).partitions[0].segments
        except RequestError:  # an empty folder: all was moved away or deleted
            return
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return
            raise
        self.wanted = replace(self.wanted, log=self.wanted.log._replace(segments=segments))


def follow(parts: list[Followed]) -> Iterator[Chunk]:
    """Chunks of all partitions as they are appended; never ends."""
    while True:
        for part in parts:
            yield from part.new()
        time.sleep(_POLL_SECONDS)
        for part in parts:
            part.look()
