"""Where the files of logs are: on disks of this machine, in a tier, or in an object store, read through one cache."""

from __future__ import annotations

from pylogseg.disk.disk import Partition
from pylogseg.disk.tier.files import TierFiles
from pylogseg.disk.tier.tier_storage import mount_tier, mounted_path
from pylogseg.env.filesystem import Entry, FileSystem
from pylogseg.env.handles import Handles
from pylogseg.env.listed_storage import ListedStorage, add_root
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.remote import RemoteFiles
from pylogseg.env.window_cache import WindowCache


def place(files: FileSystem, path: str) -> str:
    """Return the path of a file or folder in the storage that a log is opened over."""
    if isinstance(files, TierFiles):
        return mounted_path(files, path)
    return add_root(path) if isinstance(files, RemoteFiles) else path


class Sources:
    """Makes the storages below logs; writes stay in memory."""

    def __init__(self) -> None:
        self._handles, self.cache = Handles(), WindowCache()

    def of_partition(self, found: Partition) -> OverlayStorage:
        if not isinstance(found.files, RemoteFiles):
            return OverlayStorage(mount_tier(found.files), self._handles)
        entries = [Entry(segment.name, False, segment.size, segment.modified_ms) for segment in found.segments]
        entries += [Entry(found.files.split(file.path)[1], False, file.size, -1) for file in found.others]
        return self._list_storage(found.files, found.path, entries)

    def of_log_dir(self, files: FileSystem, path: str) -> OverlayStorage:
        """Return a storage with the checkpoints of a log directory, and the marker that it was closed cleanly."""
        if not isinstance(files, RemoteFiles):
            return OverlayStorage()
        return self._list_storage(files, path, files.list_folder(path))

    def _list_storage(self, files: RemoteFiles, path: str, entries: list[Entry]) -> OverlayStorage:
        return OverlayStorage(ListedStorage(files, path, entries, self.cache))

    def close(self) -> None:
        """Close the cache of windows."""
        self.cache.close()
