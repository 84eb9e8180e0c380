"""The store that a tier lies in: what objects there are, and reading them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from pylogseg.env.filesystem import FileSystem, FileView, LocalFiles
from pylogseg.env.remote import RemoteFiles, remote_files
from pylogseg.errors import CorruptionError, RequestError, StorageError


class Stored(NamedTuple):
    """An object: its path in the store, bytes, and when it was written (-1: not known)."""

    path: str
    size: int
    modified_ms: int


class Objects:
    """The objects below a URL."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        scheme, _, rest = url.partition("://")
        if not rest:
            raise RequestError(f"{url}: expected a URL, such as file:///path or s3://bucket/prefix")
        self.files: FileSystem
        if scheme == "file":
            self.files, self.root = LocalFiles(), rest.rstrip("/") or "/"
        else:
            self.files, self.root = remote_files(url.rstrip("/"), storage_options)
        self.is_local = scheme == "file"
        #: Folders below the root that are links, which are not followed: they may lead anywhere, and in circles.
        self.links: list[str] = []

    def find(self, folder: str | None = None) -> list[Stored]:
        """Return all objects of a folder and of those in it; StorageError if there is no such folder."""
        top = self.root if folder is None else folder
        if isinstance(self.files, RemoteFiles):
            return [Stored(path, entry.size, entry.modified_ms) for path, entry in self.files.find(top)]
        found: list[Stored] = []
        folders = [top]
        while folders:
            here = folders.pop()
            if self.is_link(here):
                self.links.append(here)
                continue
            for entry in self.files.list_folder(here):
                path = self.files.join(here, entry.name)
                if entry.is_dir:
                    folders.append(path)
                else:
                    found.append(Stored(path, entry.size, entry.modified_ms))
        return found

    def is_link(self, folder: str) -> bool:
        """Check whether a folder is one of the links that are not followed."""
        return self.is_local and folder != self.root and os.path.islink(folder)

    def open(self, stored: Stored) -> FileView:
        """Open an object of which the size is known."""
        if isinstance(self.files, RemoteFiles):
            return self.files.open_sized(stored.path, stored.size)
        return self.files.open(stored.path, sealed=True)

    def read(self, stored: Stored, position: int, size: int) -> bytes:
        """Return bytes of an object; CorruptionError if it ends before them."""
        with self.open(stored) as view:
            data = bytes(view.read(position, size))
        if len(data) < size:
            raise CorruptionError(
                self.name(stored.path), position, f"{size} bytes should be here, and the object has {stored.size}"
            )
        return data

    def name(self, path: str) -> str:
        """Return the name of an object in messages: a path, or a URL."""
        return path if self.is_local else self.files.real(path)


def is_missing(error: StorageError) -> bool:
    """Check whether an object is not there."""
    return isinstance(error.__cause__, FileNotFoundError)
