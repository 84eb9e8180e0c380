"""Look-ups in a segment's indexes, as a broker makes them, against all of its batches."""

from __future__ import annotations

import numpy as np

from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.records import decode


class Lookups:
    """The batches of a segment whose bytes are whole, and what look-ups in them should find."""

    def __init__(self, data: bytes) -> None:
        self.rows: BatchTable = scan(data).batches
        columns, _ = decode(self.rows, data, 0)
        #: The greatest timestamp of the records of each batch; -1 without any.
        self.times = np.full(len(self.rows), -1, np.int64)
        np.maximum.at(self.times, np.searchsorted(self.rows.last_offset, columns.offset), columns.timestamp)

    def are_misled(self, index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Whether a scan from where an index leads would miss the batch with an offset, or the first since a time."""
        rows, times = self.rows, self.times
        lasts = np.concatenate((rows.last_offset, rows.last_offset + 1, index.offsets))
        asked = lasts[(lasts >= index.base_offset) & (lasts <= rows.last_offset[-1])]
        starts = index.floor_positions(asked)
        behind = np.concatenate(([-1], rows.last_offset))[np.searchsorted(rows.position, starts)]
        if not np.isin(starts, rows.position).all() or (behind >= asked).any():
            return True
        since = np.concatenate((times, time_index.timestamps.astype(np.int64)))
        highest = np.maximum.accumulate(times)
        first = np.searchsorted(highest, since)
        some = first < len(rows)
        return bool((rows.last_offset[first[some]] < time_index.floor_offsets(since)[some]).any())
