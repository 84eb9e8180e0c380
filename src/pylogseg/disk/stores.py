"""The place of an export: a folder of this machine, or a store that fsspec knows.

An object appears whole under its name or not at all, there as here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from pylogseg.disk.tier.keys import KEYS_OPTION
from pylogseg.env.beside import make_temporary_name, scratch_folder, temporary_folder, whole
from pylogseg.env.file_errors import storage_error
from pylogseg.env.handles import open_descriptor
from pylogseg.env.remote import remote_system, tag_of, translate_errors, without_login
from pylogseg.env.shared import SharedFolder, check_written
from pylogseg.errors import RequestError, StorageError

_PIECE_BYTES = 8 << 20
#: No object that is read at once is as large: a point has 256 MiB at most.
_MOST_BYTES = 512 << 20
#: Threads that read objects of a store that is far away, and how many objects wait at most.
_READERS, _TOGETHER = 16, 32


class Fingerprint(NamedTuple):
    """An object: bytes, and the store's tag of its content, empty if it has none."""

    size: int
    tag: str = ""


class ObjectStore(Protocol):
    """Objects by their names below a place, with ``/`` between folders.

    ``list(name="")``
        The object of that name, or all below it.
    ``size(name)``
        The size of one object, asked by its name, since a listing may lag. None if there is none.
    ``read(name)``
        None if there is none.
    ``put(name, content)``
        Bytes, or a file of `scratch`, which is moved there; in place of an older object, whole or not at all.
    ``create(name, content)``
        Bytes as a new object; StorageError if there is another one of that name.
    ``delete(name)``
        Does nothing if there is none.
    ``has(name, noted)``
        True if the object has the content of which `put` returned the fingerprint.
    ``scratch()``
        A folder of this machine, for files until they are put.
    ``folders``
        Folders of the machine that workers have to share with the driver; none for a store that has a URL.
    """

    url: str  #: As people name the place.

    @property
    def folders(self) -> tuple[SharedFolder, ...]: ...
    def name(self, name: str) -> str: ...

    def list(self, name: str = "") -> dict[str, Fingerprint]: ...
    def size(self, name: str) -> int | None: ...
    def read(self, name: str) -> bytes | None: ...
    def put(self, name: str, content: bytes | Path) -> Fingerprint: ...
    def create(self, name: str, content: bytes) -> None: ...
    def delete(self, name: str) -> None: ...
    def has(self, name: str, noted: Fingerprint) -> bool: ...
    def scratch(self) -> contextlib.AbstractContextManager[Path]: ...


def store_of(
    place: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> FolderStore | RemoteStore:
    """Return the store of a folder or a URL; `storage_options` are fsspec's; options of a tier have no effect."""
    text = os.fspath(place)
    storage_options = {name: value for name, value in (storage_options or {}).items() if name != KEYS_OPTION}
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return RemoteStore(text, storage_options) if "://" in text else FolderStore(Path(text))


def read_many(
    store: ObjectStore, names: Sequence[str], key: Callable[[str], str] = str
) -> Iterator[bytes | StorageError | None]:
    """Yield objects in the order of their names, or why one cannot be read; `key` makes a name in the store of each.

    A store that is far away is asked for several at a time.
    """

    def read(name: str) -> bytes | StorageError | None:
        try:
            return store.read(key(name))
        except StorageError as error:
            return error

    if isinstance(store, FolderStore) or len(names) < 2:
        yield from map(read, names)
        return
    with ThreadPoolExecutor(_READERS, thread_name_prefix="pylogseg-store") as pool:
        for at in range(0, len(names), _TOGETHER):
            yield from pool.map(read, names[at : at + _TOGETHER])


class FolderStore:
    """A folder as a store; linked folders are not followed."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, str(root)

    def list(self, name: str = "") -> dict[str, Fingerprint]:
        """See `ObjectStore`; only files: a pipe or a device is no object."""
        top = self.root / name
        with contextlib.suppress(OSError):
            status = top.stat()
            if not stat.S_ISDIR(status.st_mode):
                return {name: Fingerprint(status.st_size)} if stat.S_ISREG(status.st_mode) else {}
        return dict(_files_below(str(top), name.rstrip("/")))

    def size(self, name: str) -> int | None:
        try:
            status = os.stat(self.root / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(self.root / name, "look up", error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, name: str) -> bytes | None:
        path = str(self.root / name)
        try:
            with open(open_descriptor(path, os.O_RDONLY), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > _MOST_BYTES:
                    raise StorageError(
                        path,
                        "read",
                        f"the file has {size:,} bytes, more than the {_MOST_BYTES:,} of any file that pylogseg "
                        "keeps here",
                    )
                return file.read()
        except (FileNotFoundError, NotADirectoryError):  # the place is one file, which has nothing beside it
            return None
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(path, "read", error) from error

    def put(self, name: str, content: bytes | Path) -> Fingerprint:
        target = self.path(name)
        with _failing(target, "write"):
            if not os.path.isdir(target.parent):
                target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                os.replace(content, target)
            else:
                with whole(target) as file:
                    file.write(content)
            return Fingerprint(target.stat().st_size)

    def create(self, name: str, content: bytes) -> None:
        target = self.path(name)
        with _failing(target, "create"):
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole(target, is_new=True) as file:
                file.write(content)

    def delete(self, name: str) -> None:
        target = self.path(name)
        with _failing(target, "delete"):
            target.unlink(missing_ok=True)

    def has(self, name: str, noted: Fingerprint) -> bool:
        """Check whether there is a file of that size."""
        return self.list(name).get(name) == Fingerprint(noted.size)

    @property
    def folders(self) -> tuple[SharedFolder, ...]:
        return (SharedFolder(str(self.root)),)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on the same disk, from which a file moves by a rename."""
        with scratch_folder(self.root / make_temporary_name()) as folder:
            yield folder

    def name(self, name: str) -> str:
        return str(self.root / name)

    def path(self, name: str) -> Path:
        """Return the path of a name; RequestError if a folder below the root is a link: it lies somewhere else."""
        folder = str(self.root)
        for part in name.split("/")[:-1]:
            folder = os.path.join(folder, part)
            if os.path.islink(folder):
                raise RequestError(
                    f"{folder} is a link to {os.readlink(folder)}: remove it, or export to where it leads"
                )
        return self.root / name


@contextlib.contextmanager
def _failing(path: Path, operation: str) -> Iterator[None]:
    """Turn the disk's errors into StorageError, as for any store."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(path, operation, error) from error


def _files_below(folder: str, name: str) -> Iterator[tuple[str, Fingerprint]]:
    """Yield the files below a folder, with `name` before their names.

    A folder that cannot be listed is not taken for an empty one, and one that is a link is left alone.
    """
    waiting = [(folder, name)]
    while waiting:
        path, name = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    inside = f"{name}/{entry.name}" if name else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, inside))
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat()
                        if stat.S_ISREG(status.st_mode):
                            yield inside, Fingerprint(status.st_size)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise storage_error(path, "list", error) from error


class RemoteStore:
    """A place in a store, by fsspec."""

    folders: tuple[SharedFolder, ...] = ()

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self.url = without_login(url).rstrip("/")
        self._system, self._root = remote_system(url, storage_options)
        self._root = self._root.rstrip("/")

    def list(self, name: str = "") -> dict[str, Fingerprint]:
        self._system.invalidate_cache()
        with translate_errors(self.name(name), "list"):
            try:
                infos = self._system.find(self._path(name), detail=True)
                return {
                    path[len(self._root) + 1 :]: _fingerprint(info or self._system.info(path))
                    for path, info in infos.items()
                }
            except FileNotFoundError:
                return {}

    def size(self, name: str) -> int | None:
        self._system.invalidate_cache()
        with translate_errors(self.name(name), "look up"):
            try:
                info = self._system.info(self._path(name))
            except FileNotFoundError:
                return None
        return None if info.get("type") == "directory" else int(info["size"] or 0)

    def read(self, name: str) -> bytes | None:
        with translate_errors(self.name(name), "read"):
            try:
                data: bytes = self._system.cat_file(self._path(name))
            except FileNotFoundError:
                return None
        return data

    def put(self, name: str, content: bytes | Path) -> Fingerprint:
        path = self._path(name)
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        with translate_errors(self.name(name), "write"):
            if isinstance(content, Path):
                self._system.put_file(str(content), path)
            else:
                self._system.pipe_file(path, content)
            self._system.invalidate_cache()
            stored = _fingerprint(self._system.info(path))
        if stored.size != size:
            raise StorageError(self.name(name), "write", f"{size} bytes were sent, and the store has {stored.size}")
        if isinstance(content, Path):
            stored = stored if stored.tag else Fingerprint(size, _digest(content.open("rb")))
            content.unlink()
        return stored

    def create(self, name: str, content: bytes) -> None:
        """See `ObjectStore`; of a call that failed, or met an object, it is looked up whether it did it after all."""
        try:
            with translate_errors(self.name(name), "create"):
                # A store that cannot create exclusively in one step looks first.
                self._system.pipe_file(self._path(name), content, mode="create")
        except StorageError as error:
            self._system.invalidate_cache()
            try:
                is_done = self.read(name) == content
            except StorageError as unread:
                reason = f"{error.reason}; whether it was done all the same is not known: {unread.reason}"
                raise StorageError(self.name(name), "create", reason, error.errno) from error
            if not is_done and isinstance(error.__cause__, FileExistsError):
                raise StorageError(self.name(name), "create", "there is one already", error.errno) from error
            if not is_done:
                raise

    def delete(self, name: str) -> None:
        with translate_errors(self.name(name), "delete"), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def copy(self, name: str, new: str) -> None:
        """Copy an object inside of the store; that does not pass through this machine where the store can do it."""
        with translate_errors(self.name(new), "write"):
            self._system.cp_file(self._path(name), self._path(new))

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        with temporary_folder("pylogseg-") as folder:
            yield folder

    def has(self, name: str, noted: Fingerprint) -> bool:
        """Check whether an object has the content that `put` said; it is read if the store has no tags."""
        there = self.list(name).get(name)
        if there is None or there.size != noted.size:
            return False
        with translate_errors(self.name(name), "read"):
            return noted.tag == (there.tag or _digest(self._system.open(self._path(name), "rb")))

    def name(self, name: str) -> str:
        return f"{self.url}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def check_objects(store: ObjectStore, sizes: Mapping[str, int], outcome: str) -> None:
    """Raise StorageError unless objects are in a store with these sizes; `outcome` ends the message."""
    listed: dict[str, Fingerprint] = {}
    if not isinstance(store, FolderStore):
        for folder in dict.fromkeys(name.rpartition("/")[0] for name in sizes):
            listed |= store.list(folder)
    for name, size in sizes.items():
        # By its name: a network file system may list a folder as it was, and so may a store.
        now = listed[name].size if name in listed else store.size(name)
        check_written(store.name(name), size, now, outcome)


def _fingerprint(info: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint(int(info["size"] or 0), tag_of(info))


def _digest(file: IO[bytes]) -> str:
    """Return the digest of a file, which is closed."""
    digest = hashlib.sha256()
    with file:
        while data := file.read(_PIECE_BYTES):
            digest.update(data)
    return digest.hexdigest()
