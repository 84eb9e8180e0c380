"""Summary of a log's contents, to compare two logs of one partition."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pylogseg import _codec
from pylogseg.disk.disk import Partition
from pylogseg.format.batches import BatchTable
from pylogseg.transfer.checked import checked_windows
from pylogseg.transfer.segment_files import Ids
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window


class Content(NamedTuple):
    """Offsets, half-open, the number of records, a checksum of the producers of its batches, and a digest of these.

    Logs with one digest have the same batches, wherever their segments begin, whatever the ids of their producers and
    leader epochs. A table has none, and a damaged log one that no other has.
    """

    first_offset: int
    end_offset: int
    records: int
    producers: int = 0
    digest: str = ""


#: Bytes of a batch of magic 2 that a digest leaves out: the leader epoch, the checksum over it, and the producer's id.
_LEFT_OUT = np.r_[12:16, 17:21, 43:51]


class ContentSum:
    """Sums up the batches of a log in their order; `new_ids` gives producers other ids."""

    def __init__(self, first_offset: int, new_ids: Callable[[Ids], Ids] | None = None) -> None:
        self._content, self._new_ids, self._hash = Content(first_offset, first_offset, 0), new_ids, hashlib.sha256()

    def add(self, buffer: Any, rows: BatchTable, position: int) -> None:
        """Add batches, whose checksums were found right; the buffer begins at a position of their file."""
        if not len(rows):
            return
        before, ids = self._content, rows.producer_id[rows.producer_id >= 0]
        ids = np.ascontiguousarray(ids if self._new_ids is None else self._new_ids(ids))
        self._content = before._replace(
            end_offset=max(before.end_offset, int(rows.last_offset.max()) + 1),
            records=before.records + int(rows.count.sum()),
            producers=_codec.crc32c(ids.tobytes(), before.producers),
        )
        data = np.frombuffer(buffer, np.uint8)
        first, ends = rows.position - position, rows.position - position + rows.size
        runs = np.flatnonzero(np.concatenate(([True], first[1:] != ends[:-1])))
        for begin, stop in zip(first[runs], ends[np.append(runs[1:], len(rows)) - 1], strict=True):
            run = data[begin:stop].copy()
            heads = first[(first >= begin) & (first < stop) & (rows.magic == 2)] - begin
            run[(heads[:, None] + _LEFT_OUT).ravel()] = 0
            self._hash.update(run.tobytes())

    def content(self, damage: str = "") -> Content:
        return self._content._replace(digest=damage or self._hash.hexdigest())


def content_of(
    partition: Partition,
    renamed: Callable[[Ids], Ids] | None = None,
    below: int | None = None,
    changed: Callable[[Window], Any] | None = None,
) -> Content:
    """Return the contents of a partition's batches below an offset; `renamed` maps its producer ids to new ones.

    Every batch is read, with its checksum. `changed` returns the bytes of a window after the caller's change.
    """
    total, damage = ContentSum(partition.log_start_offset, renamed), ""

    def note(gap: Gap) -> None:
        nonlocal damage
        damage = damage or f"damaged: {segment.path}" * gap.is_damage

    for segment in partition.segments:
        with segment.open() as view:
            for window in checked_windows(view, segment.base_offset, note, is_last=segment.is_last):
                rows = window.batches if below is None else window.batches[window.batches.base_offset < below]
                total.add(window.buffer if changed is None else changed(window), rows, window.file_position)
    return total.content(damage)
