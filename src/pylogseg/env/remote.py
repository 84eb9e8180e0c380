"""Remote files, by fsspec: `s3://`, `gs://`, `memory://` and the like; ranged reads, nothing downloaded whole."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pylogseg.env.filesystem import Entry, FileSystem, FileView, _Closing
from pylogseg.errors import PylogsegError, RequestError, StorageError, install_text


@contextlib.contextmanager
def translate_errors(name: str, operation: str, otherwise: str = "") -> Iterator[None]:
    """Turn any exception of a store's library into a StorageError that names the object.

    Not all of it is an OSError: for botocore, that nobody answers is none, nor that nobody has logged in. `otherwise`
    is the reason for an OSError without a text.
    """
    try:
        yield
    except PylogsegError:
        raise
    except OSError as error:
        raise StorageError(name, operation, str(error) or otherwise or type(error).__name__, error.errno) from error
    except Exception as error:
        raise StorageError(name, operation, f"{type(error).__name__}: {error}") from error


def remote_files(url: str, storage_options: Mapping[str, Any]) -> tuple[FileSystem, str]:
    """Return the file system of a URL, with options such as credentials or an endpoint, and the path in it."""
    system, path = remote_system(url, storage_options)
    return RemoteFiles(system, url.split("://", 1)[0]), path


def _installing(url: str) -> str:
    return install_text("s3" if url.startswith(("s3://", "s3a://")) else "fsspec")


def remote_system(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it; RequestError if there is none."""
    shown = without_login(url)
    try:
        import fsspec
    except ImportError:
        raise RequestError(f"{shown}: URLs need fsspec: {_installing(url)}") from None
    try:
        system, path = fsspec.core.url_to_fs(url, **storage_options)
    except ImportError as error:
        raise RequestError(f"{shown}: {error} ({_installing(url)})") from error
    except (ValueError, TypeError) as error:
        raise RequestError(f"{shown}: {error}") from error
    return system, path


def tag_of(info: Mapping[str, Any]) -> str:
    """Return the store's mark of an object's content: a digest or a version, new with each change, or empty."""
    return next((str(info[name]) for name in ("ETag", "etag", "md5Hash", "content_md5") if info.get(name)), "")


def without_login(url: str) -> str:
    return re.sub(r"://[^/]*@", "://", url)


class RemoteFile(_Closing):
    """An object that is read by ranges; `read` copies."""

    def __init__(self, system: Any, path: str, size: int, scheme: str) -> None:
        self.path = path
        self._scheme = scheme
        self._system = system
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self._size)
        if end <= position:
            return b""
        with translate_errors(f"{self._scheme}://{self.path}", "read"):
            data: bytes = self._system.cat_file(self.path, start=position, end=end)
        return data

    def drop(self, start: int, end: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RemoteFiles:
    """An fsspec file system with the few calls that the readers need."""

    def __init__(self, system: Any, scheme: str) -> None:
        self._system = system
        self._scheme = scheme

    def list_folder(self, path: str) -> list[Entry]:
        with self._translate_errors(path, "list"):
            infos = self._system.ls(path, detail=True)
        # Object stores list a folder's own placeholder among its children.
        return sorted(_entry(item) for item in infos if item["name"].rstrip("/") != path.rstrip("/"))

    def stat(self, path: str) -> Entry:
        with self._translate_errors(path, "stat"):
            return _entry(self._system.info(path))

    def tag(self, path: str) -> str:
        """Return the store's present mark of an object's content; see `tag_of`."""
        self._system.invalidate_cache()
        with self._translate_errors(path, "stat"):
            return tag_of(self._system.info(path))

    def read_all(self, path: str) -> bytes:
        with self._translate_errors(path, "read"):
            data: bytes = self._system.cat_file(path)
        return data

    def open(self, path: str, *, sealed: bool) -> FileView:
        """Open a file; objects do not change, sealed or not."""
        return RemoteFile(self._system, path, self.stat(path).size, self._scheme)

    def open_sized(self, path: str, size: int) -> FileView:
        """Open a file of a given size, without a request."""
        return RemoteFile(self._system, path, size, self._scheme)

    def find(self, path: str) -> list[tuple[str, Entry]]:
        """Return all files below a folder, with their paths, by as few requests as the store allows."""
        with self._translate_errors(path, "list"):
            infos = self._system.find(path, detail=True)
        return [(name, _entry(info)) for name, info in sorted(infos.items())]

    def join(self, path: str, name: str) -> str:
        return f"{path.rstrip('/')}/{name}"

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return folder, name

    def real(self, path: str) -> str:
        """Return the canonical name of a path, with its scheme, as two file systems may have the same path."""
        return f"{self._scheme}://{path.rstrip('/')}"

    def glob(self, pattern: str) -> list[str]:
        if not any(sign in pattern for sign in "*?["):
            return [pattern]
        with self._translate_errors(pattern, "list"):
            return sorted(self._system.glob(pattern))

    def _translate_errors(self, path: str, operation: str) -> contextlib.AbstractContextManager[None]:
        otherwise = {"list": "no such folder", "stat": "no such file"}.get(operation, "")
        return translate_errors(f"{self._scheme}://{path}", operation, otherwise)


def display_path(files: FileSystem, path: str) -> str:
    """Return a path for people: a remote file's with its scheme."""
    return files.real(path) if isinstance(files, RemoteFiles) else path


def _entry(info: dict[str, Any]) -> Entry:
    is_dir = info["type"] == "directory"
    changed = info.get("mtime") or info.get("LastModified") or info.get("created")
    if isinstance(changed, datetime.datetime):
        changed = changed.timestamp()
    modified_ms = int(changed * 1000) if isinstance(changed, (int, float)) else -1
    return Entry(
        info["name"].rstrip("/").rsplit("/", 1)[-1], is_dir, 0 if is_dir else int(info["size"] or 0), modified_ms
    )
