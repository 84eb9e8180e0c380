"""The content of a tier's store: objects, and the uploaded segments that they make, with the small files beside."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pylogseg.disk.tier.chunk_view import OVERHEAD_BYTES, Cache, ChunkView, Open, Source, opener
from pylogseg.disk.tier.keys import KeyRing, NoKey, NotOpened
from pylogseg.disk.tier.manifest import FixedChunks, Manifest, UploadedSegment
from pylogseg.env.filesystem import FileSystem, FileView, LocalFiles
from pylogseg.env.remote import RemoteFiles, remote_files
from pylogseg.errors import CorruptionError, MissingKeyError, PylogsegError, RequestError, StorageError, is_missing
from pylogseg.format.names import FileKind

#: Ranges of plain objects in a store are fetched in pieces of this size.
_PIECE_BYTES = 256 << 10
#: What a broker writes as `.index` and the like; one that is larger is no index.
_SMALL_BYTES = 64 << 20
#: Small segments have them without an entry.
_ALWAYS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


class Stored(NamedTuple):
    """An object: its path in the store, bytes, and when it was written (-1: not known)."""

    path: str
    size: int
    modified_ms: int


class Objects:
    """The objects below a URL."""

    def __init__(self, url: str, storage_options: Mapping[str, Any], *, memory_map: bool = False) -> None:
        scheme, _, rest = url.partition("://")
        if not rest:
            raise RequestError(f"{url}: expected a URL, such as file:///path or s3://bucket/prefix")
        self.files: FileSystem
        if scheme == "file":
            self.files, self.root = LocalFiles(memory_map=memory_map), rest.rstrip("/") or "/"
        else:
            self.files, self.root = remote_files(url.rstrip("/"), storage_options)
        self.is_local = scheme == "file"
        #: Folders below the root that are links, which are not followed: they may lead anywhere, and in circles.
        self.links: list[str] = []

    def find(self, folder: str | None = None) -> list[Stored]:
        """Return all objects below a folder; StorageError if there is no such folder."""
        top = self.root if folder is None else folder
        if isinstance(self.files, RemoteFiles):
            return [Stored(path, entry.size, entry.modified_ms) for path, entry in self.files.find(top)]
        objects: list[Stored] = []
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
                    objects.append(Stored(path, entry.size, entry.modified_ms))
        return objects

    def is_link(self, folder: str) -> bool:
        """Check whether a folder is one of the links that are not followed."""
        return self.is_local and folder != self.root and os.path.islink(folder)

    def open(self, stored: Stored) -> FileView:
        """Open an object of a given size."""
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


class Upload(Protocol):
    """An uploaded segment.

    ``segment``
        The segment, as its manifest describes it.
    ``size``
        Bytes of the segment, not of the object.
    ``modified_ms``
        When its object was written.
    ``name``
        The name of its object, for messages.
    ``error``
        Why it cannot be read, if that shows before it is opened.
    ``small_files``
        Sizes of the small files that there are.
    ``small_name``
        The name of the object with a small file, for messages.
    ``missing``
        Names of the objects that are not there, and belong to it: its copy or its deletion broke off, or they are lost.
    ``flaw``
        Its flaw, as it shows before it is read: 0 none; 1 small files are not whole; 2 nor is the segment; 3 it cannot
        be opened. Readers of an offset take the upload with the least flaw.
    """

    @property
    def segment(self) -> UploadedSegment: ...
    @property
    def size(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def error(self) -> CorruptionError | StorageError | None: ...
    @property
    def small_files(self) -> dict[FileKind, int]: ...
    @property
    def missing(self) -> list[str]: ...
    @property
    def flaw(self) -> int: ...
    def open(self) -> FileView: ...
    def read_small(self, kind: FileKind) -> bytes: ...
    def small_name(self, kind: FileKind) -> str: ...


class Shared:
    """Parts that all uploads of a tier share: the store, the keys, the cache of chunks."""

    def __init__(self, objects: Objects, keys: KeyRing) -> None:
        self.objects, self.keys, self.cache = objects, keys, Cache()


def unreadable(name: str, operation: str, reason: str) -> StorageError:
    """Return the error for an object with wrong content (not for one that was deleted meanwhile)."""
    error = StorageError(name, operation, reason)
    error.__cause__ = OSError(errno.ENXIO, reason)
    return error


@dataclass(frozen=True)
class BrokenUpload:
    """An upload with a manifest, or a segment without one, that cannot be read: it has only a name."""

    segment: UploadedSegment
    size: int
    modified_ms: int
    name: str
    error: CorruptionError | StorageError
    small_files: dict[FileKind, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    has_manifest: bool = True
    flaw: int = 3

    def open(self) -> FileView:
        raise self._failure()

    def small_name(self, kind: FileKind) -> str:
        """Return the name of the segment."""
        return self.name

    def read_small(self, kind: FileKind) -> bytes:
        raise self._failure()

    def _failure(self) -> StorageError:
        what = "its manifest is damaged: " if self.has_manifest else "it is not whole: "
        return unreadable(self.name, "read", f"{what}{self.error}")


@dataclass(frozen=True)
class AivenUpload:
    """An upload of Aiven's plugin: two objects and a manifest."""

    shared: Shared = field(repr=False)
    manifest: Manifest
    log: Stored
    indexes: Stored | None
    #: At a point of an archive: the SHA-256 that it says of `log` and of `indexes`, or the first digits of them.
    sha256: tuple[str, str] | None = None

    @property
    def segment(self) -> UploadedSegment:
        return self.manifest.segment

    @property
    def size(self) -> int:
        return self.manifest.chunks.file_size

    @property
    def modified_ms(self) -> int:
        return self.log.modified_ms

    @property
    def name(self) -> str:
        return self.shared.objects.name(self.log.path)

    @property
    def manifest_name(self) -> str:
        """The name of its manifest, for messages."""
        return self.name.removesuffix(FileKind.LOG.value) + ".rsm-manifest"

    @property
    def error(self) -> CorruptionError | StorageError | None:
        return unreadable(self.name, "read", "the object is not there") if self.log.size < 0 else None

    @property
    def missing(self) -> list[str]:
        gone = [self.name] if self.log.size < 0 else []
        return gone if self.indexes is not None else [*gone, self.small_name(FileKind.OFFSET_INDEX)]

    @property
    def flaw(self) -> int:
        try:
            self._opener()
        except PylogsegError:
            return 3
        if self.log.size < self.manifest.chunks.object_size:
            return 3 if self.log.size < 0 else 2
        return int(self.indexes is None or self.indexes.size < self.indexes_size)

    @property
    def indexes_size(self) -> int:
        """Bytes that the object with the indexes should have."""
        return max((position + size for position, size in self.manifest.indexes.values()), default=0)

    @property
    def small_files(self) -> dict[FileKind, int]:
        places = self.manifest.indexes.items()
        return {kind: size - self._overhead if size else 0 for kind, (_, size) in places if size or kind in _ALWAYS}

    @property
    def _overhead(self) -> int:
        return 0 if self.manifest.encryption is None else OVERHEAD_BYTES

    def open(self) -> FileView:
        """Open the segment; StorageError if its object is not there, MissingKeyError if the key for it is not."""
        if self.error is not None:
            raise self.error
        objects, manifest = self.shared.objects, self.manifest
        is_plain = manifest.encryption is None and not manifest.is_compressed
        if is_plain and objects.is_local and self.log.size == manifest.chunks.file_size:
            return self._view()
        open_chunk = self._opener()
        chunks: Any = manifest.chunks
        if is_plain:  # no reason to fetch a whole chunk for a header
            last = chunks.file_size % _PIECE_BYTES or min(chunks.file_size, _PIECE_BYTES)
            chunks = FixedChunks(_PIECE_BYTES, chunks.file_size, _PIECE_BYTES, last)
        return ChunkView(Source(self._view(), chunks, open_chunk), self.shared.cache)

    def _view(self) -> FileView:
        try:
            return self.shared.objects.open(self.log)
        except StorageError as error:
            if is_missing(error):
                raise unreadable(self.name, "read", "the object is not there") from None
            raise

    def _opener(self, *, is_compressed: bool | None = None) -> Open:
        compressed = self.manifest.is_compressed if is_compressed is None else is_compressed
        try:
            return opener(self.manifest.encryption, compressed, self.shared.keys)
        except NoKey as error:
            raise MissingKeyError(self.name, "read", str(error)) from None
        except NotOpened as error:
            raise unreadable(self.manifest_name, "read", str(error)) from None

    def small_name(self, kind: FileKind) -> str:
        return self.name.removesuffix(FileKind.LOG.value) + ".indexes"

    def read_small(self, kind: FileKind) -> bytes:
        """Return an index, a snapshot or the leader epochs; CorruptionError if it cannot be opened."""
        position, size = self.manifest.indexes[kind]
        if not size:
            return b""
        if self.indexes is None:
            raise unreadable(self.name, "read", "the object with its indexes is not there")
        if size > _SMALL_BYTES:
            raise CorruptionError(
                self.shared.objects.name(self.indexes.path),
                position,
                f"the manifest says that {kind.value} has {size:,} bytes: at most {_SMALL_BYTES:,} are read",
            )
        data = self.shared.objects.read(self.indexes, position, size)
        opened = self._opener(is_compressed=False)(data, size)
        if isinstance(opened, str):
            raise CorruptionError(self.shared.objects.name(self.indexes.path), position, f"{kind.value}: {opened}")
        return opened


@dataclass(frozen=True)
class FileUpload:
    """An upload of Kafka's `LocalTieredStorage`: plain copies of a segment's files."""

    shared: Shared = field(repr=False)
    segment: UploadedSegment
    files: dict[FileKind, Stored] = field(repr=False)

    @property
    def size(self) -> int:
        return self.files[FileKind.LOG].size

    @property
    def modified_ms(self) -> int:
        return self.files[FileKind.LOG].modified_ms

    @property
    def name(self) -> str:
        return self.shared.objects.name(self.files[FileKind.LOG].path)

    @property
    def error(self) -> CorruptionError | StorageError | None:
        return None

    @property
    def missing(self) -> list[str]:
        stem = self.name.removesuffix(FileKind.LOG.value)
        return [stem + kind.value for kind in (*_ALWAYS, FileKind.PRODUCER_SNAPSHOT) if kind not in self.files]

    @property
    def flaw(self) -> int:
        return int(bool(self.missing))

    @property
    def small_files(self) -> dict[FileKind, int]:
        others = {kind: file.size for kind, file in self.files.items() if kind is not FileKind.LOG}
        return {kind: size for kind, size in others.items() if size or kind in _ALWAYS}

    def open(self) -> FileView:
        return self.shared.objects.open(self.files[FileKind.LOG])

    def small_name(self, kind: FileKind) -> str:
        return self.shared.objects.name(self.files[kind].path)

    def read_small(self, kind: FileKind) -> bytes:
        file = self.files[kind]
        return self.shared.objects.read(file, 0, file.size)
