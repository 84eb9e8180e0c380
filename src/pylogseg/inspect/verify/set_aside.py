"""Folders that a broker took out of use, and the records in them that no partition on these disks has.

A broker renames a folder to ``-stray`` if the cluster's metadata does not assign it to the broker, and keeps it. It
renames a folder to ``-delete`` if its topic, or this replica, was deleted, and deletes it within minutes, or when it
starts again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pylogseg.disk.disk import Partition
from pylogseg.disk.small_files import read_partition_metadata
from pylogseg.errors import PylogsegError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.words import names_text
from pylogseg.inspect.differing_offset import differing_offset
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.owners import LogDirOwner
from pylogseg.reading.offset_range import subtract_ranges
from pylogseg.reading.seek import end_offset
from pylogseg.values.internal.cluster import ClusterMetadata
from pylogseg.walker.gaps import offsets_text

_Range = tuple[int, int]


def check_set_aside(
    owners: Sequence[LogDirOwner], clusters: Mapping[str, ClusterMetadata], asked: Callable[[str, int], bool]
) -> Iterator[Finding]:
    """Find ``-stray`` and ``-delete`` folders with records that no partition of the same topic has on these disks."""
    live: dict[tuple[str | None, str, int], list[tuple[LogDirOwner, Partition]]] = {}
    for owner in owners:
        for part in owner.log_dir.partitions:
            if part.is_live and part.topic != METADATA_TOPIC:
                live.setdefault((owner.broker[0], part.topic, part.partition), []).append((owner, part))
    for owner in owners:
        for part in owner.log_dir.partitions:
            if part.state in ("stray", "delete") and part.segments:
                folder = _FolderSetAside.read(part, owner, clusters.get(owner.log_dir.path))
                key = owner.broker[0], folder.topic, part.partition
                if asked(folder.topic, part.partition):
                    yield from folder.findings(live.get(key, ()))


@dataclass
class _FolderSetAside:
    """A folder that is out of use."""

    part: Partition
    owner: LogDirOwner
    cluster: ClusterMetadata | None
    topic: str
    topic_id: str | None

    @classmethod
    def read(cls, part: Partition, owner: LogDirOwner, cluster: ClusterMetadata | None) -> _FolderSetAside:
        """Read the topic's id, and by it the topic's name: the folder's name may be cut off."""
        topic_id = read_partition_metadata(part.files, part.path).value
        names = {} if cluster is None else {number: name for name, number in cluster.topic_ids.items()}
        return cls(part, owner, cluster, names.get(topic_id or "", part.topic), topic_id)

    def findings(self, live: Iterable[tuple[LogDirOwner, Partition]]) -> Iterator[Finding]:
        """Yield a finding if the folder has offsets that no partition has; `live` are the partitions of its name."""
        same = [
            (owner, other)
            for owner, other in live
            if self.topic_id in (None, read_partition_metadata(other.files, other.path).value)
        ]
        try:
            start, end = _range(self.part)
            ranges = [self._common(other, start, end) for _, other in same]
        except PylogsegError:  # of a live folder a finding of its own, of the other ones nobody's
            return
        left = subtract_ranges(start, end, sorted(ranges))
        if not left:
            return
        is_lost, why, remedy = self._judge(same, left)
        which = f"{self.topic}-{self.part.partition}, topic id {self.topic_id or 'unknown'}"
        text = ", ".join(offsets_text(*some) for some in left)
        reason = f"{which}: no partition on these disks has its {text}; {why}"
        kind = "set-aside" if self.part.state == "stray" else "awaits-deletion"
        yield Finding(self.part.path, kind, is_lost, reason, None, left[0][0], left[-1][1] - 1, other_remedy=remedy)

    def _common(self, other: Partition, start: int, end: int) -> _Range:
        """Return the offsets of the folder that a partition has, with the same batches."""
        first, last = _range(other)
        first, last = max(start, first), min(end, last)
        fields = None if self.cluster is None else self.cluster.fields_of_topic(self.topic)
        if first < last and fields is not None and fields.get("cleanup_policy", "delete") == "delete":
            differs = differing_offset(self.part.segments, other.segments, first, last)
            last = last if differs is None else differs
        return first, last

    def _judge(self, same: Sequence[tuple[LogDirOwner, Partition]], left: Sequence[_Range]) -> tuple[bool, str, str]:
        """Return if the records are lost to clients, why the folder is out of use, and the remedy."""
        if self.part.state == "delete":
            remedy = (
                "none if the topic, or this replica, was deleted on purpose: a broker deletes the folder when it "
                f"starts; else before it does, {self._restore_command('NEW_FOLDER')}"
            )
            return False, f"a broker was deleting the folder, and {self._metadata_text()}", remedy
        why = "a broker set the folder aside"
        here = next((part for owner, part in same if owner.broker == self.owner.broker), None)
        used = self.part if here is None else here
        log_dir = used.files.split(used.path)[0]
        if here is not None and left[-1][1] > (there := _range(here))[0]:
            command = self._restore_command(log_dir) + " --overwrite" * (there[0] < there[1])
            remedy = f"while the broker is stopped, {command}"
            return True, f"{why}, and {here.name} began anew: its log ends at {there[1]}", remedy
        remedy = (
            "none if the topic, or this replica, was deleted on purpose; else see that the cluster has the topic, and "
            f"this broker the partition; then, while the broker is stopped, {self._restore_command(log_dir)}"
        )
        if here is not None:
            return False, f"{why}, and {here.name} begins at offset {_range(here)[0]}", remedy
        if same:
            return False, f"{why}, and {names_text([other.path for _, other in same])} has the rest", remedy
        return False, f"{why}, and {self._metadata_text()}", remedy

    def _restore_command(self, target: str) -> str:
        """Return the command that makes a partition of the folder again."""
        source, name = self.part.files.split(self.part.path)
        return shlex.join(["pylogseg", "restore", source, target, name])

    def _metadata_text(self) -> str:
        """Return the metadata's facts about the partition as text."""
        if self.cluster is None:
            return "no metadata of the cluster was given"
        if self.topic_id is None:
            return "its topic id is unknown"
        replicas = self.cluster.replicas.get((self.topic_id, self.part.partition))
        if replicas is not None:
            return f"{METADATA_TOPIC}-0 assigns the partition to brokers {', '.join(map(str, replicas))}"
        now = self.cluster.topic_ids.get(self.topic)
        made_again = f": {self.topic} has the id {now} now" if now not in (None, self.topic_id) else ""
        return f"{METADATA_TOPIC}-0 does not know this topic id, or not this partition{made_again}"


def _range(part: Partition) -> _Range:
    """Return the first offset and the end of a log."""
    if not part.segments:
        return 0, 0
    start, end = max(part.log_start_offset, part.segments[0].base_offset), end_offset(part.segments)
    return start, max(start, end)
