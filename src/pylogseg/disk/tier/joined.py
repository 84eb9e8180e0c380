"""A broker's disk and its tier as one log: below the first segment of a folder come the uploaded ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.notes import Note
from pylogseg.disk.tier.files import TierFile, files_of, opened_once
from pylogseg.disk.tier.slices import TieredLog, TierSegment, whole_log
from pylogseg.disk.tier.tier import Tier, hole_notes
from pylogseg.env.filesystem import Entry, FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.checkpoint import EpochEntry, parse_leader_epochs
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.format.names import (
    FileKind,
    PartitionFolder,
    parse_file_name,
    parse_partition_folder,
    partition_folder_name,
)

_UNENDING = 2**63 - 1


class DiskWithTier(LocalFiles):
    """The disks of this machine; each partition's folder also has the tier's segments below its first one.

    Which uploaded segments these are, the leader epochs in the folder say, as for the broker. Where a folder and the
    tier have a file of one name, the folder's is taken.
    """

    def __init__(
        self,
        tier: Tier | None,
        remote: dict[str, dict[str, TierFile]] | None = None,
        copies: dict[str, list[TierSegment]] | None = None,
        *,
        memory_map: bool = False,
    ) -> None:
        super().__init__(memory_map=memory_map)
        self.tier, self._remote, self._copies = tier, remote or {}, copies or {}
        self._firsts: dict[str, int] = {}  # where the disk's own segments begin, by folder
        self._listed: set[tuple[str, int]] = set()
        self._told: dict[str, Note] = {}

    def notes(self, *, of_all: bool) -> Iterator[Note]:
        """Yield notes for readers about the listed folders, and about uploads that are left out.

        With `of_all`, the partitions count too that have no folder.
        """
        if self.tier is None:
            return
        yield from self.tier.notes()
        yield from self._told.values()
        others = self.tier.topic_ids.keys() - self._listed
        if of_all and others:
            such = partition_folder_name(*min(others))
            fact = f"partitions in the tier without a folder on these disks: {len(others):,}, such as {such}"
            yield Note(self.tier.url, f"{fact}; to read them, name the tier itself")

    def only(self, paths: Iterable[str]) -> DiskWithTier:
        """Return the file system of some files or partitions alone, which is small to be sent to another process."""
        remote: dict[str, dict[str, TierFile]] = {}
        copies: dict[str, list[TierSegment]] = {}
        for path in map(os.path.abspath, paths):
            folder, name = os.path.split(path)
            if path in self._remote:
                remote[path], copies[path] = self._remote[path], self.copies(path)
            elif name in self._remote.get(folder, {}):
                remote.setdefault(folder, {})[name] = self._remote[folder][name]
        return DiskWithTier(None, remote, copies, memory_map=self.memory_map)

    def list_folder(self, path: str) -> list[Entry]:
        entries = super().list_folder(path)
        folder = parse_partition_folder(self.split(path)[1])
        if folder is None or folder.state:
            return entries
        own = {entry.name for entry in entries}
        if self.tier is None:
            uploaded = self._remote.get(os.path.abspath(path), {})
            return sorted([*entries, *(file.entry for name, file in uploaded.items() if name not in own)])
        bases = [name.offset for entry in entries if (name := parse_file_name(entry.name)).kind is FileKind.LOG
                 and not name.suffix and name.offset is not None]  # fmt: skip
        first = min(bases, default=_UNENDING)
        log = self.uploaded_log(path, first)
        if log is None:
            return entries
        self._firsts[os.path.abspath(path)] = first
        hidden = own | ({FileKind.LEADER_EPOCHS.value} if bases else set())  # the folder has those of the end
        self._told |= {f"{path} {note.fact}": note for note in hole_notes(self.tier.url, [log])}
        remote = {name: file for name, file in files_of(log) if name not in hidden}
        self._remote[os.path.abspath(path)] = remote
        return sorted([*entries, *(file.entry for file in remote.values())])

    def _file(self, path: str) -> TierFile | None:
        folder, name = os.path.split(os.path.abspath(path))
        return self._remote.get(folder, {}).get(name)

    def uploaded_log(self, path: str, end: int = _UNENDING) -> TieredLog | None:
        """Return the uploaded part of a folder's log below an offset; None without uploads.

        Which uploads are of this log, the leader epochs in the folder say. Raises StorageError as `list_folder`.
        """
        folder = parse_partition_folder(self.split(path)[1])
        name = None if self.tier is None or folder is None else self._identify_uploads(self.tier, path, folder)
        if self.tier is None or name is None:
            return None
        if name in self.tier.mixed:
            raise StorageError(path, "read", self.tier.mixed[name])
        epochs = self._epochs(path)
        uploads = self.tier.by_partition[name]
        start = min(upload.segment.start_offset for upload in uploads)
        return whole_log(name, uploads, Lineage.of(epochs, start, end) if epochs else None, end)

    def _epochs(self, path: str) -> list[EpochEntry]:
        """Return the leader epochs in a folder; none if they cannot be read."""
        file = self.join(path, FileKind.LEADER_EPOCHS.value)
        try:
            return parse_leader_epochs(super().read_all(file), file)
        except (CorruptionError, StorageError):
            return []

    def _identify_uploads(self, tier: Tier, path: str, folder: PartitionFolder) -> tuple[str, int, str] | None:
        """Return topic, partition and topic id of the uploads of a folder; None if there are none.

        Raises StorageError if several topics may be meant.
        """
        self._listed.add((folder.topic, folder.partition))
        there = tier.topic_ids.get((folder.topic, folder.partition))
        if not there:
            return None
        file = self.join(path, FileKind.PARTITION_METADATA.value)
        try:
            topic_id = parse_partition_metadata(super().read_all(file), file).topic_id
        except (CorruptionError, StorageError) as error:
            if len(there) > 1:
                ids = ", ".join(there)
                reason = (
                    f"{error.reason}, and the tier has several topics of this name: write it again with one of {ids}"
                )
                raise StorageError(file, "read", reason) from None
            fact = f"{file}: {error.reason}: its uploads are found by the name alone"
            self._told[path] = Note("", fact, folder.topic, folder.partition)
            return folder.topic, folder.partition, there[0]
        if topic_id in there:
            return folder.topic, folder.partition, topic_id
        fact = f"it has topic id {topic_id}, and the uploads of this name have {there[0]}: they are of another topic"
        self._told[path] = Note(self.split(path)[0], f"{fact}, and left out", folder.topic, folder.partition)
        return None

    def slice_of(self, path: str) -> TierSegment | None:
        """Return the uploaded segment that a path of a `.log` means; None if it lies on the disk."""
        file = self._file(path)
        return None if file is None else file.segment

    def is_uploaded(self, path: str) -> bool:
        """Check whether a file of a folder comes from the tier."""
        return self._file(path) is not None

    def copies(self, path: str) -> list[TierSegment]:
        """Return all offsets of a folder's log that the tier has, also offsets that are read from the disk."""
        path = os.path.abspath(path)
        if path not in self._copies and path in self._firsts:
            # Without its leader epochs nobody knows whether what the disk has is the same.
            log = self.uploaded_log(path, _UNENDING if self._epochs(path) else self._firsts[path])
            there = [] if log is None else [*log.segments, *log.copies]
            self._copies[path] = [segment for segment in there if segment.end_offset >= 0]
        return self._copies.get(path, [])

    def stat(self, path: str) -> Entry:
        file = self._file(path)
        return super().stat(path) if file is None else file.entry

    def read_all(self, path: str) -> bytes:
        file = self._file(path)
        return super().read_all(path) if file is None else file.read()

    def open(self, path: str, *, sealed: bool) -> FileView:
        file = self._file(path)
        return super().open(path, sealed=sealed) if file is None or file.segment is None else file.segment.open()


def joined_with(tier: str, storage_options: Mapping[str, Any] | None, *, memory_map: bool = False) -> DiskWithTier:
    return DiskWithTier(Tier.open(tier, storage_options, memory_map=memory_map), memory_map=memory_map)


def joined_files(
    tier: str, path: str, storage_options: Mapping[str, Any] | None, *, memory_map: bool = False
) -> DiskWithTier:
    """Return a disk with a tier, for a file of a partition: the tier lists only this partition, once for all files.

    A path that was not there is looked for again.
    """
    folder, name = os.path.split(os.path.dirname(os.path.abspath(path)))

    def make() -> DiskWithTier:
        files = DiskWithTier(Tier.open(tier, storage_options, name, memory_map=memory_map), memory_map=memory_map)
        files.list_folder(os.path.join(folder, name))
        return files

    def has(files: DiskWithTier) -> bool:
        return files.slice_of(path) is not None or os.path.exists(path)

    return opened_once(tier, os.path.join(folder, name), storage_options, make, has, memory_map=memory_map)
