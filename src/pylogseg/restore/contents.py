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


def content_of(partition: Partition, until: int | None = None) -> Content:
    """Return offsets and number of records of a partition, by its headers; of the batches that end below `until`."""
    first, end, records = partition.log_start_offset, partition.log_start_offset, 0
    for segment in partition.segments:
        if until is not None and segment.base_offset >= until:
            break
        with segment.open() as view:
            for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=False):
                if not isinstance(item, Gap):
                    rows = item.batches
                    kept = slice(None) if until is None else rows.last_offset < until
                    records += int(rows.count[kept].sum())
                    end = max(end, int(rows.last_offset[kept].max(initial=-1)) + 1)
    return Content(first, end, records)
