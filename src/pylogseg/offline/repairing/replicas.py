"""Batches that another replica can give to a damaged one, as far as their history is the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pylogseg.disk.lineage.chains import divergence
from pylogseg.disk.target import Target, refuse_if_locked
from pylogseg.env.filesystem import is_same_folder
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import RequestError
from pylogseg.format.files.properties import parse_properties
from pylogseg.format.names import FileKind
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.log.identity import topic_id_of
from pylogseg.log.segment_rewrite import Filtered
from pylogseg.offline.merging.replica import ReplicaScan, noted_offsets, scan_replica
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.repairing.salvage import Survey
from pylogseg.transfer.checkpoints import Entries
from pylogseg.walker.gaps import Gap, GapKind, offsets_text


class OtherDisk:
    """The log directories of the broker with the other replicas; nothing is written to them."""

    def __init__(self, path: str, storage: Storage) -> None:
        self.path, self._storage = path, storage
        self._places = Target.find_all(storage, path)
        self._noted: dict[str, Entries] = {}
        if isinstance(storage, LocalStorage):
            refuse_if_locked(self._places)

    def refuse_same(self, log_dirs: Iterable[str]) -> None:
        """Raise RequestError if it is, or has, a log directory that is to be repaired."""
        for log_dir in log_dirs:
            for place in self._places:
                if is_same_folder(place.parent, log_dir):
                    raise RequestError(f"{self.path}: {log_dir} is to be repaired: name the disk of another broker")

    def replica_of(self, part: OfflinePartition) -> OtherReplica | None:
        """Return the replica of a partition; None if it is not there.

        Raises RequestError if it is of another topic.
        """
        place = next((place for place in self._places if part.name in place.names), None)
        if place is None or part.directory is None:
            return None
        folder = self._storage.join(place.parent, part.name)
        ids = topic_id_of(part.storage, part.folder), topic_id_of(self._storage, folder)
        if None not in ids and ids[0] != ids[1]:
            raise RequestError(f"{folder}: it has topic id {ids[1]}, and {part.folder} has {ids[0]}: another topic")
        above = part.storage.split(part.folder)[0]
        clusters = _cluster_of(part.storage, above), _cluster_of(self._storage, place.parent)
        if None not in clusters and clusters[0] != clusters[1]:
            raise RequestError(f"{place.parent} is of cluster {clusters[1]}, and {above} of cluster {clusters[0]}")
        if place.parent not in self._noted:
            self._noted[place.parent] = noted_offsets(self._storage, place.parent, part.result.notes)
        other = scan_replica(
            self._storage, place.parent, part.name, self._noted[place.parent], lambda size: part.advance(0)
        )
        return OtherReplica(part, part.directory, other, self._storage)


def _cluster_of(storage: Storage, log_dir: str) -> str | None:
    path = storage.join(log_dir, FileKind.META_PROPERTIES.value)
    return parse_properties(storage.read_all(path), path).get("cluster.id") if storage.exists(path) else None


def holes(
    surveys: Sequence[Survey], bases: Sequence[int], paths: Sequence[str], noted_end: int
) -> list[tuple[int, Gap]]:
    """Return missing offsets between and behind segments that no damaged bytes explain, each with its segment.

    `noted_end` is the end of the log by the checkpoints. The last segment may be empty, or have zeros alone.
    """
    found = []
    ranges = [survey.offsets for survey in surveys]
    if ranges and ranges[-1] is None:
        ranges[-1] = (bases[-1], bases[-1])
    for number, (survey, own, after) in enumerate(
        zip(surveys, ranges, [*ranges[1:], (noted_end, noted_end)], strict=True)
    ):
        if own is None or after is None or after[0] <= own[1]:
            continue
        is_last = number + 1 == len(surveys)
        end = survey.runs[-1][1] if survey.runs else 0
        behind = Survey([], []) if is_last else surveys[number + 1]
        begins_damaged = any(
            gap.is_damage and (not behind.runs or gap.position < behind.runs[0][0]) for gap in behind.gaps
        )
        if begins_damaged or any(gap.is_damage and gap.position >= end for gap in survey.gaps):
            continue
        size = max([end, *(gap.end_position for gap in survey.gaps)])
        reason = f"{offsets_text(own[1], after[0])} are not here"
        until = None if is_last else after[0]
        found.append((number, Gap(paths[number], GapKind.ORDER, end, size, own[1], until, reason, True)))
    return found


class OtherReplica:
    """Another replica of a damaged partition, as far as both have the same history."""

    def __init__(self, part: OfflinePartition, directory: LogDirectory, other: ReplicaScan, storage: Storage) -> None:
        self._storage, self._other = storage, other
        key = partition_of(part.name)
        noted = {kind: {key: offset} for kind, offset in directory.offsets_of(part.name).items()}
        above = part.storage.split(part.folder)[0]
        own = scan_replica(part.storage, above, part.name, noted, lambda size: part.advance(0))
        self.folder = self._other.folder
        self.own_is_compacted = own.is_compacted
        # What lies behind the damaged end of this one may be the other's alone.
        lineage = own.lineage._replace(end=max(own.lineage.end, self._other.end)) if own.lost_tail else own.lineage
        self.same_up_to = divergence(lineage, self._other.lineage).offset
        #: Where the damaged log ended, as far as that is known.
        self.own_end = max(own.known_end, own.entries.get(FileKind.HIGH_WATERMARKS.value, 0))
        trust = own.trust(self._other)
        self._ranges = sorted(self._other.parts(lineage, 0, is_own=False)) if trust.is_shown else []
        if trust.differs_at is not None:
            part.result.notes.append(
                f"nothing comes from {self.folder}: it has another batch at offset {trust.differs_at}, of the same "
                "leader epoch: it is not a replica of this partition, or one of them was changed"
            )
        elif not trust.is_shown:
            part.result.notes.append(
                f"nothing comes from {self.folder}: neither a topic id nor a batch that both have shows that it is a "
                "replica of the same partition"
            )

    def end_of(self, first: int) -> int:
        """Return up to where it has all that follows an offset."""
        reached = first
        for each in self._ranges:
            if each.first_offset <= reached < each.end_offset:
                reached = each.end_offset
        return reached

    def heals(self, first: int, end: int | None) -> int | None:
        """Return where a missing range ends that it has whole; None if it has not.

        Without an end, the log ended there: the range then goes as far as this replica does, maybe not to `own_end`.
        """
        reached = self.end_of(first)
        if end is None:
            return reached if reached > first else None
        return end if reached >= end > first else None

    def has_any(self, first: int, end: int) -> bool:
        """Check whether it has a batch in a range; the cleaner may have left none."""
        return next(self.batches(first, end), None) is not None

    def batches(self, first: int, end: int) -> Iterator[Filtered]:
        return self._other.batches(self._storage, first, end)
