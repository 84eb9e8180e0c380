"""Summary of a log's contents, to compare two logs of one partition."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.catalog.disk import Partition
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import walk


class Content(NamedTuple):
    """Offsets, half-open, and the number of records."""

    first_offset: int
    end_offset: int
    records: int


def content_of(partition: Partition) -> Content:
    """Return offsets and number of records of a partition, by its headers."""
    first, end, records = partition.log_start_offset, partition.log_start_offset, 0
    for segment in partition.segments:
        with segment.open() as view:
            for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=False):
                if not isinstance(item, Gap):
                    records += int(item.batches.count.sum())
                    end = max(end, int(item.batches.last_offset.max()) + 1)
    return Content(first, end, records)
