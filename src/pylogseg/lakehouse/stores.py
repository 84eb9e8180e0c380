"""Where the files of a table are written: a folder of this machine, or an object store by the table's own library."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from pyarrow import fs

from pylogseg.env.beside import create
from pylogseg.env.file_errors import storage_error, walk_folders
from pylogseg.env.shared import SharedFolder
from pylogseg.lakehouse.library_errors import library_errors


class FileStore(Protocol):
    """Files by paths as it knows them; it may travel to another process.

    ``create(path)``
        Open a new file, and make the folders above it.
    ``close(file)``
        End a file: its bytes stay then, whatever happens. Return its size.
    ``opened(path)``
        Return what pyarrow reads.
    ``remove(path)``
        Remove a file, if it is there.
    ``walk(folder)``
        Yield the paths of all files below a folder.
    ``sizes(paths)``
        Return the sizes of files, in this order; None of one that is not there.
    ``shared(folder)``
        Return the folders of the machine which workers have to share with the driver, for one of its folders.
    """

    def create(self, path: str) -> IO[bytes]: ...
    def close(self, file: IO[bytes]) -> int: ...
    def open_file(self, path: str) -> Any: ...
    def remove(self, path: str) -> None: ...
    def walk(self, folder: str) -> Iterator[str]: ...
    def sizes(self, paths: Sequence[str]) -> list[int | None]: ...
    def list_shared(self, folder: str) -> tuple[SharedFolder, ...]: ...


class FolderFiles:
    """See `FileStore`."""

    def create(self, path: str) -> IO[bytes]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return create(Path(path))

    def close(self, file: IO[bytes]) -> int:
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.close()
        return size

    def open_file(self, path: str) -> Any:
        return path

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def walk(self, folder: str) -> Iterator[str]:
        for above, _, names in walk_folders(folder):
            yield from (f"{above}/{name}" for name in names)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [_size(path) for path in paths]

    def list_shared(self, folder: str) -> tuple[SharedFolder, ...]:
        return (SharedFolder(folder),)


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(path, "read", error) from error


class ObjectFiles:
    """See `FileStore`. `make` returns the library's file system for pyarrow, in each process anew."""

    def __init__(self, name: str, make: Callable[[], fs.FileSystem]) -> None:
        self._name, self._make = name, make
        self._made: fs.FileSystem | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectFiles, (self._name, self._make)

    @property
    def _system(self) -> fs.FileSystem:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _name_errors(self, path: str, operation: str) -> contextlib.AbstractContextManager[None]:
        return library_errors(f"{self._name}: {path}", operation)

    def create(self, path: str) -> IO[bytes]:
        with self._name_errors(path, "write"):
            file: IO[bytes] = self._system.open_output_stream(path)
            return file

    def close(self, file: IO[bytes]) -> int:
        size = file.tell()
        file.close()
        return size

    def open_file(self, path: str) -> Any:
        with self._name_errors(path, "open"):
            return self._system.open_input_file(path)

    def remove(self, path: str) -> None:
        with self._name_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
            self._system.delete_file(path)

    def walk(self, folder: str) -> Iterator[str]:
        with self._name_errors(folder, "list"):
            infos = self._system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        yield from (info.path for info in infos if info.type is fs.FileType.File)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        if not paths:
            return []
        with self._name_errors(paths[0], "look for"):
            infos = self._system.get_file_info(list(paths))
        return [info.size if info.type is fs.FileType.File else None for info in infos]

    def list_shared(self, folder: str) -> tuple[SharedFolder, ...]:
        return ()


LOCAL = FolderFiles()


def local_path(location: str) -> tuple[str, bool]:
    """Return the path of a file that a table lists, and whether it is one of this machine."""
    path = re.sub(r"^file:(//)?(?=/)", "", location)
    if os.name == "nt":
        path = re.sub(r"^/(?=[A-Za-z]:)", "", path)
    return path, "://" not in path


def below(folder: str, name: str) -> str:
    """Return the path of a name below a folder; an empty folder is the root of a store."""
    return f"{folder}/{name}" if folder else name


def name_below(path: str, folder: str) -> str:
    return path.removeprefix(f"{folder}/") if folder else path
