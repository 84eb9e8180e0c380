"""What another replica can give to a damaged one: batches of the same history."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pylogseg.catalog.target import Target, refuse_if_locked
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.lineage.chains import parting
from pylogseg.log.identity import topic_id_of
from pylogseg.log.segment_rewrite import Filtered
from pylogseg.offline.merging_replica import scan_replica
from pylogseg.offline.partition import Part
from pylogseg.offline.repairing_salvage import kept_batches


class OtherDisk:
    """The log directories of the broker with the other replicas; nothing is written to them."""

    def __init__(self, path: str) -> None:
        self.path, self._storage = path, LocalStorage()
        self._places = Target.find_all(self._storage, path)
        refuse_if_locked(self._places)

    def replica_of(self, part: Part) -> OtherReplica | None:
        """Return the replica of a partition; None if it is not there.

        Raises RequestError if it is of another topic, or its cleaning was interrupted.
        """
        place = next((place for place in self._places if part.name in place.names), None)
        if place is None or part.directory is None:
            return None
        folder = self._storage.join(place.parent, part.name)
        ids = topic_id_of(part.storage, part.folder), topic_id_of(self._storage, folder)
        if None not in ids and ids[0] != ids[1]:
            raise RequestError(f"{folder}: it has topic id {ids[1]}, and {part.folder} has {ids[0]}: another topic")
        return OtherReplica(part, place.parent)


class OtherReplica:
    """Another replica of a damaged partition, as far as both have the same history."""

    def __init__(self, part: Part, log_dir: str) -> None:
        self._storage = LocalStorage()
        own = scan_replica(part.storage, part.storage.split(part.folder)[0], part.name, lambda size: None)
        self._other = scan_replica(self._storage, log_dir, part.name, lambda size: None)
        self.folder = self._other.folder
        # What lies behind the damaged end of this one may be the other's alone.
        lineage = own.lineage._replace(end=max(own.lineage.end, self._other.end)) if own.lost_tail else own.lineage
        self.same_up_to = parting(lineage, self._other.lineage).offset
        self._own_end = max(own.known_end, own.entries.get(FileKind.HIGH_WATERMARKS.value, 0))
        self._ranges = sorted(self._other.parts(lineage, 0, is_own=False))

    def end_of(self, first: int) -> int:
        """Return up to where it has all that follows an offset."""
        reached = first
        for each in self._ranges:
            if each.first_offset <= reached < each.end_offset:
                reached = each.end_offset
        return reached

    def heals(self, first: int, end: int | None) -> int | None:
        """Return where a missing range ends that it has whole; None if it has not.

        Without an end, the log ended there: the range then goes as far as this replica does.
        """
        reached = self.end_of(first)
        if end is None:
            return reached if reached > first and reached >= self._own_end else None
        return end if reached >= end > first else None

    def batches(self, first: int, end: int) -> Iterator[Filtered]:
        """Yield its batches of a range."""
        for run in self._other.runs:
            if run.first_offset >= end or run.end_offset <= first:
                continue
            name = segment_file_name(run.base_offset, FileKind.LOG)
            file = self._storage.open_log(self._storage.join(self.folder, name), create=False)
            try:
                for kept in kept_batches(file, [(run.position, run.end_position)]):
                    rows = kept.batches
                    inside = np.flatnonzero((rows.last_offset >= first) & (rows.last_offset < end))
                    if not len(inside):
                        continue
                    low, high = int(inside[0]), int(inside[-1]) + 1
                    start, chosen = int(rows.position[0]), rows[low:high]
                    begin = int(chosen.position[0]) - start
                    size = int(chosen.size.sum(dtype=np.int64))
                    yield Filtered(kept.data[begin : begin + size], chosen)
            finally:
                file.close()
