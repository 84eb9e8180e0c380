"""A tier as a storage that the engine reads; `OverlayStorage` above it keeps all writes in memory."""

from __future__ import annotations

import os
import re
from typing import Any, cast

from pylogseg.disk.tier.files import INSIDE, TierFiles
from pylogseg.disk.tier.joined import DiskWithTier
from pylogseg.env.file_errors import missing_error
from pylogseg.env.filesystem import Entry, FileSystem, FileView
from pylogseg.env.storage import Storage
from pylogseg.errors import StorageError


def mount_point(files: TierFiles) -> str:
    """Return the path that stands for a tier in the engine, since the engine takes only local paths."""
    return os.path.abspath(os.sep + re.sub(r"[:/]+", "/", files.url))


def mounted_path(files: TierFiles, path: str) -> str:
    """Return the path that stands for one in a tier."""
    top, inside = mount_point(files), path.removeprefix(files.url).removeprefix(INSIDE)
    return os.path.join(top, *inside.split("/")) if inside else top


def mount_tier(files: FileSystem) -> Storage | None:
    """Return a storage for the file system of a tier, or of a disk with one; None for another."""
    return cast(Storage, _Mounted(files)) if isinstance(files, (TierFiles, DiskWithTier)) else None


class _TierLog:
    """A segment that is read."""

    def __init__(self, view: FileView) -> None:
        self._view = view
        self.close = view.close

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._view.read(position, size))

    def view(self, position: int, size: int) -> memoryview:
        return memoryview(self.read(position, size))


class _Small(_TierLog):
    """A small file that is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def close(self) -> None:
        """Do nothing."""

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


class _Mounted:
    """The calls of `Storage` that an overlay makes below itself."""

    def __init__(self, files: TierFiles | DiskWithTier) -> None:
        self._files = files
        self._top = mount_point(files) if isinstance(files, TierFiles) else None

    def _inside(self, path: str) -> str | None:
        """Return the path in the file system; None for a folder above the tier."""
        if self._top is None or not isinstance(self._files, TierFiles):
            return path
        if path == self._top:
            return self._files.url
        if path.startswith(self._top + os.sep):
            return self._files.url + INSIDE + path[len(self._top) + 1 :].replace(os.sep, "/")
        return None

    def _is_above(self, path: str) -> bool:
        return self._top is not None and self._top.startswith(path.rstrip(os.sep) + os.sep)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except StorageError:
            return False
        return True

    def stat(self, path: str) -> Entry:
        inside = self._inside(path)
        if inside is not None:
            return self._files.stat(inside)
        if self._is_above(path):
            return Entry(os.path.basename(path), True, 0, -1)
        raise missing_error(path, "stat")

    def list_folder(self, path: str) -> list[Entry]:
        inside = self._inside(path)
        return [] if inside is None else self._files.list_folder(inside)

    def open_log(self, path: str, **_: Any) -> _TierLog:
        inside = self._inside(path) or path
        if path.endswith(".log"):
            return _TierLog(self._files.open(inside, sealed=True))
        return _Small(self._files.read_all(inside))

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def split(self, path: str) -> tuple[str, str]:
        return os.path.split(os.path.abspath(path))
