"""A broker's disk and its tier as one log: below the first segment of a folder come the uploaded ones."""

from __future__ import annotations

import os

from pylogseg.env.filesystem import Entry, FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.files.checkpoint import parse_leader_epochs
from pylogseg.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder
from pylogseg.lineage.chains import Lineage
from pylogseg.tier.files import File, files_of
from pylogseg.tier.slices import Slice, whole_log
from pylogseg.tier.tier import Tier

_UNENDING = 2**63 - 1


class DiskWithTier(LocalFiles):
    """The disks of this machine; the folders of partitions also have what a tier has below their first segment.

    Which uploaded segments these are, the leader epochs in the folder say, as for the broker. Where a folder and the
    tier have a file of one name, the folder's is taken.
    """

    def __init__(self, tier: Tier) -> None:
        self.notes = list(tier.notes())
        self.tier = tier
        self._remote: dict[str, File] = {}

    def list_folder(self, path: str) -> list[Entry]:
        entries = super().list_folder(path)
        folder = parse_partition_folder(self.split(path)[1])
        own = {entry.name for entry in entries}
        if folder is None or folder.state or FileKind.PARTITION_METADATA.value not in own:
            return entries
        metadata = self.join(path, FileKind.PARTITION_METADATA.value)
        try:
            topic_id = parse_partition_metadata(super().read_all(metadata), metadata).topic_id
        except (CorruptionError, StorageError):
            return entries
        name = (folder.topic, folder.partition, topic_id)
        uploads = self.tier.by_partition.get(name)
        if not uploads:
            return entries
        bases = [found.offset for entry in entries if (found := parse_file_name(entry.name)).kind is FileKind.LOG
                 and not found.suffix and found.offset is not None]  # fmt: skip
        lineage = self._lineage(path, min((upload.segment.start_offset for upload in uploads), default=0), bases)
        for file_name, file in files_of(whole_log(name, uploads, lineage)):
            if file_name not in own:
                entries.append(file.entry)
                self._remote[os.path.abspath(self.join(path, file_name))] = file
        return sorted(entries)

    def _lineage(self, path: str, start: int, bases: list[int]) -> Lineage | None:
        """Return what the folder knows of the log below its first segment; None if it has no leader epochs."""
        file = self.join(path, FileKind.LEADER_EPOCHS.value)
        try:
            epochs = parse_leader_epochs(super().read_all(file), file)
        except (CorruptionError, StorageError):
            return None
        return Lineage.of(epochs, start, min(bases, default=_UNENDING)) if epochs else None

    def slice_of(self, path: str) -> Slice | None:
        """Return the uploaded segment that a path of a `.log` means; None if it lies on the disk."""
        file = self._remote.get(os.path.abspath(path))
        return None if file is None else file.segment

    def stat(self, path: str) -> Entry:
        file = self._remote.get(os.path.abspath(path))
        return super().stat(path) if file is None else file.entry

    def read_all(self, path: str) -> bytes:
        file = self._remote.get(os.path.abspath(path))
        return super().read_all(path) if file is None else file.read()

    def open(self, path: str, *, sealed: bool) -> FileView:
        file = self._remote.get(os.path.abspath(path))
        return super().open(path, sealed=sealed) if file is None or file.segment is None else file.segment.open()
