"""A tier as a file system: a log directory with partition folders, which have the files of Kafka's segments.

Paths are the URL of the tier, then ``!/``, then names as on a broker's disk:
``aiven+s3://bucket/prefix!/orders-0/00000000000000000483.log``. Reads go to the objects, and errors name them.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from pylogseg.disk.notes import Note
from pylogseg.disk.tier.keys import KEYS_OPTION, KEYS_VARIABLE
from pylogseg.disk.tier.slices import TieredLog, TierSegment
from pylogseg.disk.tier.tier import Tier, hole_notes
from pylogseg.env.filesystem import Entry, FileView
from pylogseg.errors import StorageError
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import FileKind, partition_folder_name, segment_file_name

#: Between the URL of a tier and the names in it.
INSIDE = "!/"
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class TierFile(NamedTuple):
    """A file of a partition's folder."""

    entry: Entry
    kind: FileKind
    source: TierSegment | None  #: The uploaded segment that it belongs to.
    data: bytes = b""  #: Its bytes, if it belongs to none.

    @property
    def segment(self) -> TierSegment | None:
        """The uploaded segment of a `.log`."""
        return self.source if self.kind is FileKind.LOG else None

    def read(self) -> bytes:
        if self.source is None:
            return self.data
        if self.kind is not FileKind.LOG:
            return self.source.read_small(self.kind)
        with self.source.open() as view:
            return bytes(view.read(0, view.size))

    def open(self, path: str) -> FileView:
        """Open a file of batches: a segment, also an empty one, or a snapshot of metadata."""
        if not self.kind.holds_batches:
            raise StorageError(path, "open", "only segments are opened, small files are read as a whole")
        return BytesView(path) if self.source is None else self.source.open()


class BytesView:
    """A file in memory: a decrypted one, or the segment of a log without records."""

    is_copied = True

    def __init__(self, path: str, data: bytes = b"") -> None:
        self.path, self._data = path, data

    @property
    def size(self) -> int:
        return len(self._data)

    def __enter__(self) -> BytesView:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on, fewer only at the end."""
        return self._data[position : position + size]

    def drop(self, start: int, end: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TierFiles:
    """The file system of a tier; `notes` name uploads that are left out, and offsets that no upload has.

    `is_exact`: the list of segments is complete, so the cleaner removed the offsets between them.
    """

    is_exact = False

    def __init__(
        self,
        url: str,
        tier: Tier | None,
        folders: dict[str, dict[str, TierFile]] | None = None,
        copies: dict[str, list[TierSegment]] | None = None,
    ) -> None:
        self.tier, self.url = tier, url
        self.notes: list[Note] = [] if tier is None else [*tier.notes(), *hole_notes(self.url, tier.logs)]
        self.logs = {partition_folder_name(log.topic, log.partition): log for log in tier.logs} if tier else {}
        refused = {} if tier is None else tier.refused
        self._refused = {partition_folder_name(*name): why for name, why in refused.items()}
        self._folders, self._copies = folders or {}, copies or {}

    def only(self, paths: Iterable[str]) -> TierFiles:
        """Return the file system of some files or partitions alone, which is small to be sent to another process."""
        folders: dict[str, dict[str, TierFile]] = {}
        copies: dict[str, list[TierSegment]] = {}
        for path in paths:
            folder, name = self.split(path)
            if folder == self.url:
                folders[path], copies[path] = self._folder(path), self.copies(path)
            elif name in self._folder(folder):
                folders.setdefault(folder, {})[name] = self._folders[folder][name]
        some = TierFiles(self.url, None, folders, copies)
        some.is_exact = self.is_exact
        return some

    def list_folder(self, path: str) -> list[Entry]:
        if path.rstrip("/") == self.url:
            folders = [Entry(name, True, 0, -1) for name in sorted([*self.logs, *self._refused])]
            return [*folders, *(file.entry for file in self._folders.get(self.url, {}).values())]
        return [file.entry for file in self._folder(path).values()]

    def stat(self, path: str) -> Entry:
        if path.rstrip("/") == self.url:
            return Entry(self.split(self.url)[1], True, 0, -1)
        folder, name = self.split(path)
        if folder == self.url and name not in self._folders.get(self.url, {}):
            self._folder(path)
            return Entry(name, True, 0, -1)
        return self._file(path, "stat").entry

    def read_all(self, path: str) -> bytes:
        file = self._file(path, "read")
        return file.read()

    def open(self, path: str, *, sealed: bool) -> FileView:
        """Open a segment; uploaded ones do not change, sealed or not."""
        return self._file(path, "open").open(path)

    def has(self, path: str) -> bool:
        try:
            self.stat(path)
        except StorageError:
            return False
        return True

    def slice_of(self, path: str) -> TierSegment | None:
        """Return the uploaded segment that the path of a `.log` means."""
        return self._file(path, "stat").segment

    def copies(self, path: str) -> list[TierSegment]:
        """Return the offsets of a partition's log that other uploads have, too."""
        path = path.rstrip("/")
        log = self.logs.get(self.split(path)[1])
        return log.copies if log is not None else self._copies.get(path, [])

    def join(self, path: str, name: str) -> str:
        return f"{path}{INSIDE}{name}" if path == self.url else f"{path}/{name}"

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return folder.removesuffix("!"), name

    def real(self, path: str) -> str:
        return path.rstrip("/")

    def glob(self, pattern: str) -> list[str]:
        return [pattern]

    def _file(self, path: str, operation: str) -> TierFile:
        folder, name = self.split(path)
        file = self._folder(folder).get(name)
        if file is None:
            missing = FileNotFoundError(errno.ENOENT, "no such file in the tier", path)
            raise StorageError(path, operation, "no such file in the tier", errno.ENOENT) from missing
        return file

    def _folder(self, path: str) -> dict[str, TierFile]:
        path = path.rstrip("/")
        if path not in self._folders:
            root, name = self.split(path)
            log = self.logs.get(name) if root == self.url else None
            if log is None and root == self.url and name in self._refused:
                raise StorageError(path, "read", self._refused[name])
            if log is None:
                missing = FileNotFoundError(errno.ENOENT, "no such partition in the tier", path)
                raise StorageError(path, "list", "no such partition in the tier", errno.ENOENT) from missing
            self._folders[path] = dict(sorted(files_of(log)))
        return self._folders[path]


_Files = TypeVar("_Files")
#: Partitions that were opened by the paths in them, the latest ones: a task of a plan opens several ranges of each.
_MOST_OPENED = 16
_opened: OrderedDict[tuple[str, str, str, bool], Any] = OrderedDict()
_lock = threading.Lock()


def opened_once(
    url: str,
    name: str,
    storage_options: Mapping[str, Any] | None,
    make: Callable[[], _Files],
    has: Callable[[_Files], bool],
    *,
    memory_map: bool,
) -> _Files:
    """Return the files of a partition of a tier: the earlier ones if they suffice, else new ones."""
    # Who gives other keys does not get what those before opened.
    ring = {KEYS_OPTION: os.environ.get(KEYS_VARIABLE), **(storage_options or {})}
    key = url, name, repr(sorted(ring.items(), key=lambda item: item[0])), memory_map
    with _lock:
        files = _opened.get(key)
    if files is None or not has(files):
        files = make()
        with _lock:
            _opened[key] = files
            while len(_opened) > _MOST_OPENED:
                _opened.popitem(last=False)
    return files


def partition_files(
    url: str, path: str, storage_options: Mapping[str, Any] | None, *, memory_map: bool = False
) -> TierFiles:
    """Return a tier for a path in it: only that partition is listed, and once for all paths in it.

    Uploads do not change. A path that was not there is looked for again.
    """
    name = path[len(url) + len(INSIDE) :].partition("/")[0]

    def make() -> TierFiles:
        return TierFiles(url, Tier.open(url, storage_options, name, memory_map=memory_map))

    return opened_once(url, name, storage_options, make, lambda files: files.has(path), memory_map=memory_map)


def files_of(log: TieredLog) -> Iterator[tuple[str, TierFile]]:
    """Yield the files of a partition's folder, by name."""
    for segment in log.segments:
        for kind, size in {FileKind.LOG: segment.size, **segment.small_files}.items():
            if kind is FileKind.PRODUCER_SNAPSHOT:
                name = segment_file_name(segment.end_offset, kind)
            elif kind is FileKind.LOG or kind in _INDEXES:
                name = segment_file_name(segment.first_offset, kind)
            else:
                continue
            is_log, largest = kind is FileKind.LOG, segment.upload.segment.max_timestamp_ms
            entry = Entry(name, False, size, segment.upload.modified_ms, largest if is_log and largest >= 0 else None)
            yield name, TierFile(entry, kind, segment)
    whole = [s for s in log.segments if FileKind.LEADER_EPOCHS in s.upload.small_files]
    if whole:
        last = max(whole, key=lambda s: s.end_offset)
        size, name = last.upload.small_files[FileKind.LEADER_EPOCHS], FileKind.LEADER_EPOCHS.value
        yield name, TierFile(Entry(name, False, size, last.upload.modified_ms), FileKind.LEADER_EPOCHS, last)
    metadata, name = encode_partition_metadata(PartitionMetadata(log.topic_id)), FileKind.PARTITION_METADATA.value
    yield name, TierFile(Entry(name, False, len(metadata), -1), FileKind.PARTITION_METADATA, None, metadata)
