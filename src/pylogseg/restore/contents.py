"""Summary of a log's contents, to compare two logs of one partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.catalog.disk import Partition
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import walk

Ids = npt.NDArray[np.int64]


class Content(NamedTuple):
    """Offsets, half-open, the number of records, and a checksum of the producers of its batches."""

    first_offset: int
    end_offset: int
    records: int
    producers: int = 0


def content_of(partition: Partition, renamed: Callable[[Ids], Ids] | None = None, below: int | None = None) -> Content:
    """Return the contents of a partition by its headers, of batches below an offset; `renamed` gives producers ids."""
    first, end, records, producers = partition.log_start_offset, partition.log_start_offset, 0, 0
    for segment in partition.segments:
        with segment.open() as view:
            for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=False):
                if isinstance(item, Gap):
                    continue
                rows = item.batches if below is None else item.batches[item.batches.base_offset < below]
                records += int(rows.count.sum())
                end = max(end, int(rows.last_offset.max(initial=-1)) + 1)
                producers = checksum(producers, rows, renamed)
    return Content(first, end, records, producers)


def checksum(before: int, rows: Any, renamed: Callable[[Ids], Ids] | None = None) -> int:
    """Return the checksum of the producers of batches, and of those before them."""
    ids = rows.producer_id[rows.producer_id >= 0]
    return _codec.crc32c(np.ascontiguousarray(ids if renamed is None else renamed(ids)).tobytes(), before)
