"""One folder of a remote file system as a read-only storage: the listed files, read through a cache."""

from __future__ import annotations

from collections.abc import Iterable

from pylogseg.env.file_errors import missing_error
from pylogseg.env.filesystem import Entry
from pylogseg.env.remote import RemoteFiles
from pylogseg.env.window_cache import Remote, WindowCache


def add_root(path: str) -> str:
    """Return a path of a remote file system in the form that storages have, from a root on."""
    return "/" + path.strip("/")


class ListedStorage:
    """A folder of a remote file system with the names that were listed; an `OverlayStorage` lies above it."""

    def __init__(self, files: RemoteFiles, folder: str, entries: Iterable[Entry], cache: WindowCache) -> None:
        self._files, self._path, self._cache = files, folder, cache
        self._folder = add_root(folder)
        self._entries = {entry.name: entry for entry in entries}

    def exists(self, path: str) -> bool:
        """Return whether it is a name in the folder, the folder, or one above it."""
        folder, name = self.split(path)
        return (folder == self._folder and name in self._entries) or f"{self._folder}/".startswith(
            f"{path.rstrip('/')}/"
        )

    def stat(self, path: str) -> Entry:
        folder, name = self.split(path)
        if folder == self._folder and name in self._entries:
            return self._entries[name]
        return Entry(name, True, 0, -1)

    def list_folder(self, path: str) -> list[Entry]:
        return sorted(self._entries.values()) if path == self._folder else []

    def open_log(self, path: str, *, create: bool = True) -> ListedFile:
        entry = self._entries.get(self.split(path)[1])
        if entry is None:  # none is made
            raise missing_error(self._files.real(path), "open")
        place = self._files.join(self._path, entry.name)
        remote = Remote(self._files.real(place), entry.size, lambda: self._files.open_sized(place, entry.size))
        return ListedFile(remote, self._cache)

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return folder or "/", name


class ListedFile:
    """An open file of a `ListedStorage`."""

    def __init__(self, remote: Remote, cache: WindowCache) -> None:
        self._remote, self._cache = remote, cache
        self.path, self.size = remote.name, remote.size

    def read(self, position: int, size: int) -> memoryview:
        return self._cache.read(self._remote, position, size)

    view = read

    def close(self) -> None:
        """Do nothing."""
