"""Check of the producer snapshot behind a segment: that it is of that offset, and knows what the segment has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.inspect.verify.findings import Finding


class ProducersCheck:
    """Checks the snapshot at the end of a segment against its batches, window by window.

    A broker drops producers that were silent for a day, and forgets a producer's last batch at a marker of a new epoch.
    So it is damage only if the snapshot has an offset from its own on, or a last batch before one in the segment.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._last: dict[int, int] = {}

    def window(self, rows: BatchTable) -> None:
        """Note the last batches of producers."""
        chosen = (rows.producer_id >= 0) & ~rows.is_control
        if chosen.any():
            producers, last = rows.producer_id[chosen][::-1], rows.last_offset[chosen][::-1]
            names, at = np.unique(producers, return_index=True)
            self._last |= dict(zip(names.tolist(), last[at].tolist(), strict=True))

    def finish(self, next_offset: int) -> Iterator[Finding]:
        """Read the snapshot, if there is one, and yield a finding if it cannot be that of the offset."""
        files, segment = self._segment.files, self._segment
        offset = next_offset if segment.next_base is None else segment.next_base
        path = files.join(files.split(segment.path)[0], segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT))
        try:
            entries = parse_snapshot(files.read_all(path), path)
        except (CorruptionError, StorageError):  # the partition's check says it
            return
        for entry in entries:
            highest = max(entry.last_offset, entry.first_txn_offset)
            if highest >= offset:
                reason = f"producer {entry.producer_id} has offset {highest}: this is the snapshot of a later offset"
            elif entry.has_batch and entry.last_offset < self._last.get(entry.producer_id, -1):
                known = self._last[entry.producer_id]
                reason = (
                    f"producer {entry.producer_id} has offset {entry.last_offset} as its last, and {known} in the log:"
                    " this is the snapshot of an earlier offset"
                )
            else:
                continue
            yield Finding(path, "snapshot", True, reason, None, offset)
            return
