"""The indexes of a segment, written as the log grows.

Offset and time index are mapped files. They are created at their full size and trimmed when their segment is closed.
The transaction index is a plain file that is created with the first aborted transaction. How entries lie in a file and
are found there, `pylogseg.format.files` knows; here is what grows. The segment decides when to write an entry.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from pylogseg import _codec
from pylogseg.env.storage import AppendFile, MappedFile, Storage
from pylogseg.errors import ClosedError, RequestError
from pylogseg.format.files.index import IndexFile, OffsetIndex, OffsetPosition, TimeIndex
from pylogseg.format.files.txnindex import AbortedTxn, TxnIndex, encode_txn_index
from pylogseg.format.layout import TIME_INDEX_ENTRY, TXN_INDEX_ENTRY

_MAX_RELATIVE = 2**31 - 1
#: The smallest index size: one entry.
LEAST_INDEX_BYTES = TIME_INDEX_ENTRY.size
_FEW_ENTRIES = 512


class InvalidOffsetError(RequestError):
    """An entry's offset does not follow the last one; recovery then treats the segment as damaged."""


_File = TypeVar("_File", MappedFile, AppendFile)


class _OpenedOnUse(Generic[_File]):
    """A file that is opened on first use; readers and the writer that renames it take the lock."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self.path = storage, path
        self._file: _File | None = None
        self._lock = threading.Lock()

    def rename(self, path: str) -> None:
        """Give the file another name; one that does not exist is skipped."""
        with self._lock:
            if self._file is not None:
                self._file.rename(path)
            elif self._storage.exists(self.path):
                self._storage.rename(self.path, path)
            self.path = path


class _GrowingIndex(_OpenedOnUse[MappedFile], IndexFile):
    """An index over a mapped file, which is published last, and the number of valid entries."""

    _offset_field: ClassVar[int]  #: Of an entry, which has the offset.

    def __init__(self, storage: Storage, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(storage, path)
        self.base_offset, self._max_bytes = base_offset, max_bytes
        self._entry_bytes = self._entry.size
        self._count = self.odd_bytes = 0
        self._unsynced = self._closed = False

    @property
    def file(self) -> MappedFile:
        """The open file; a new one has its full size, an existing one counts as filled to its end."""
        file = self._file
        return self._open() if file is None else file

    def _open(self) -> MappedFile:
        with self._lock:
            file = self._file
            if file is not None:
                return file
            if self._closed:
                raise ClosedError(f"{self.path}: the index is closed")
            room = self._round(self._max_bytes)
            if not room and not self._storage.exists(self.path):
                raise RequestError(f"{self.path}: an index of {self._max_bytes} bytes has no room for an entry")
            file = self._storage.open_index(self.path, room)
            self._count = 0 if file.created else file.size // self._entry_bytes
            self._load_last(file)
            self._file = file
            return file

    def _load_last(self, file: MappedFile) -> None:
        """Take over the last entry of a file that was just opened."""

    def _round(self, size: int) -> int:
        return size - size % self._entry_bytes

    @property
    def buffer(self) -> memoryview:
        """The bytes of the file, mapped."""
        return self.file.buffer

    @property
    def count(self) -> int:
        """Number of valid entries."""
        if self._file is None:
            self._open()
        return self._count

    @property
    def slot_count(self) -> int:
        """Number of entries that the file has room for."""
        return self.file.size // self._entry_bytes

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def can_hold(self, offset: int) -> bool:
        """Return whether an offset can be written relative to the segment's first."""
        return 0 <= offset - self.base_offset <= _MAX_RELATIVE

    def _broker_finds(self, name: str, key: int) -> tuple[int, tuple[int, int]] | None:
        """Return slot and fields of the entry that a broker finds, also in an index that a crash left unsorted."""
        buffer, count = self.raw()
        entry, field = self._entry, self._entry[name]
        slot = _codec.search_as_broker(buffer, entry.size, field.offset, field.width, count, key)
        return (slot, entry.struct.unpack_from(buffer, slot * entry.size)) if slot >= 0 else None

    def _last(self, file: MappedFile) -> tuple[int, int]:
        """Return the last entry of an index that has one, without a map if the log is only loaded."""
        size = self._entry_bytes
        first, second = self._entry.struct.unpack(file.read((self._count - 1) * size, size))
        return first, second

    def _put(self, first: int, second: int) -> None:
        self.file.put(self._count * self._entry_bytes, self._entry.struct.pack(first, second))
        self._count += 1
        self._unsynced = True

    def raw(self) -> tuple[memoryview, int]:
        """Return the bytes of the file, and the number of valid entries."""
        file = self._file
        if file is None:
            file = self._open()
        return file.buffer, self._count

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def _extend(self, entries: bytes) -> None:
        """Add encoded entries, for which there is room."""
        size = self._entry_bytes
        self.file.put(self._count * size, entries)
        self._count += len(entries) // size
        self._unsynced = True

    def _keep(self, entries: int) -> None:
        """Keep the first entries; the bytes of the others stay until they are overwritten or trimmed."""
        self._count = entries
        self._load_last(self.file)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset."""
        keep = 0
        if (entry := self._broker_finds("relative_offset", offset - self.base_offset)) is not None:
            slot, fields = entry
            exact = fields[self._offset_field] == offset - self.base_offset
            keep = slot if exact else slot + 1
        if keep < self._count:
            self._keep(keep)

    def reset(self) -> None:
        """Drop all entries, and make the file as large as a new one."""
        _ = self.file
        self._keep(0)
        self.resize(self._max_bytes)

    def resize(self, size: int) -> None:
        """Make room for `size` bytes, rounded down to whole entries; valid entries are kept."""
        size = self._round(size)
        if self.file.size != size:
            self.file.resize(size)
            self._unsynced = True
            if size // self._entry_bytes < self._count:
                self._keep(size // self._entry_bytes)

    def trim(self) -> None:
        """Cut the file after the last valid entry."""
        self.resize(self.count * self._entry_bytes)

    def sync(self) -> None:
        """Flush the file, if it was ever opened."""
        if self._file is not None:
            self._unsynced = False
            self._file.sync()

    def close(self, *, trim: bool = True) -> None:
        """Trim the file, flush and close it; without `trim` it stays as a crash would leave it."""
        if self._file is not None and trim:
            self.trim()
            if self._unsynced:
                self.sync()
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None


class MutableOffsetIndex(_GrowingIndex, OffsetIndex):
    """The offset index of a segment: last offset of a batch -> position of that batch."""

    _offset_field = 0

    def __init__(self, storage: Storage, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(storage, path, base_offset, max_bytes)
        self.last_offset = base_offset

    def _load_last(self, file: MappedFile) -> None:
        self.last_offset = self.base_offset + (self._last(file)[0] if self._count else 0)

    @property
    def is_full(self) -> bool:
        """True if there is no room for the next entry."""
        return self.count >= self.slot_count

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets ascend."""
        self.check_next(offset)
        self._put(offset - self.base_offset, position)
        self.last_offset = offset

    def check_next(self, offset: int) -> None:
        """Refuse an entry that does not fit, or does not come after the last one."""
        if self.is_full:
            raise RequestError(f"{self.path}: the index is full ({self._count} entries)")
        if self._count and offset <= self.last_offset:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is not above the last entry's, {self.last_offset}")
        if not self.can_hold(offset):  # after a roll to an offset above the log's end, lower ones may come
            raise RequestError(f"{self.path}: offset {offset} is too far from the base offset {self.base_offset}")

    def extend(self, entries: bytes, last_offset: int) -> None:
        """Add encoded entries, for which there is room; the last one has the offset `last_offset`."""
        self._extend(entries)
        self.last_offset = last_offset

    def start_for(self, offset: int) -> int:
        """Return the position at which a broker's search for an offset begins in the log."""
        entry = None
        if offset >= self.base_offset and self.count:
            entry = self._broker_finds("relative_offset", offset - self.base_offset)
        return 0 if entry is None else entry[1][1]

    def place_of_last(self) -> int | None:
        """Return where a search for the last entry's offset begins in the log; None if that takes a map."""
        file, count = self.file, self._count
        if not 0 < count <= _FEW_ENTRIES:
            return None if count else 0
        entries = file.read(0, count * 8)
        slot = _codec.search_as_broker(entries, 8, 0, 4, count, self.last_offset - self.base_offset)
        position: int = self._entry.struct.unpack_from(entries, slot * 8)[1] if slot >= 0 else 0
        return position

    def upper_bound(self, position: int, size_bytes: int) -> OffsetPosition | None:
        """Find the first entry at or after the end of a fetch, as a broker does; None if the index ends before."""
        buffer, count = self.raw()
        slot = _codec.search_as_broker(buffer, 8, 4, 4, count, position + size_bytes, True)
        return self[slot] if slot >= 0 else None


class MutableTimeIndex(_GrowingIndex, TimeIndex):
    """The time index of a segment: greatest timestamp so far -> last offset of its batch."""

    _offset_field = 1

    def __init__(self, storage: Storage, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(storage, path, base_offset, max_bytes)
        self.last = (-1, base_offset)

    def _load_last(self, file: MappedFile) -> None:
        timestamp, relative = self._last(file) if self._count else (-1, 0)
        self.last = (timestamp, self.base_offset + relative)

    @property
    def is_full(self) -> bool:
        """True if there is no room for the next entry; the last slot is kept for the one that ends the segment."""
        return self.count >= self.slot_count - 1

    def last_entry(self) -> tuple[int, int]:
        """Return timestamp and offset of the last entry; -1 and the base offset of an empty index."""
        _ = self.file
        return self.last

    def maybe_append(self, timestamp: int, offset: int, *, last: bool = False) -> None:
        """Add an entry if its timestamp is above the last one's; `last` may take the reserved slot."""
        self.check_next(timestamp, offset, last=last)
        if timestamp > self.last[0]:
            self._put(timestamp, offset - self.base_offset)
            self.last = (timestamp, offset)

    def check_next(self, timestamp: int, offset: int, *, last: bool = False) -> None:
        """Refuse an entry that does not fit, or lies below the last one."""
        if not last and self.is_full:
            raise RequestError(f"{self.path}: the index is full ({self._count} entries)")
        before = self.last_entry()
        if self._count and offset < before[1]:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is below the last entry's, {before[1]}")
        if self._count and timestamp < before[0]:
            raise RequestError(f"{self.path}: timestamp {timestamp} is below the last entry's, {before[0]}")
        if timestamp > before[0] and not self.can_hold(offset):
            raise RequestError(f"{self.path}: offset {offset} is too far from the base offset {self.base_offset}")

    def extend(self, entries: bytes, last: tuple[int, int]) -> None:
        """Add encoded entries, for which there is room; `last` is timestamp and offset of the last one."""
        self._extend(entries)
        self.last = last


class AbortedTxns(_OpenedOnUse[AppendFile]):
    """The transaction index of a segment; the first aborted transaction creates its file."""

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        super().__init__(storage, path)
        self.base_offset = base_offset
        self._is_new = False
        # As in Kafka the guard is not read back from an existing file.
        self._last_offset: int | None = None

    def _open_existing(self) -> AppendFile | None:
        with self._lock:
            if self._file is None and self._storage.exists(self.path):
                self._file = self._storage.open_log(self.path)
            return self._file

    def append(self, txn: AbortedTxn) -> None:
        """Add an aborted transaction; markers ascend."""
        if self._last_offset is not None and txn.last_offset <= self._last_offset:
            raise RequestError(
                f"{self.path}: last offset {txn.last_offset} is not above the last entry's, {self._last_offset}"
            )
        file = self._open_existing()
        if file is None:
            with self._lock:
                file = self._file = self._storage.open_log(self.path)
            self._is_new = True
        file.append(encode_txn_index([txn]))
        self._last_offset = txn.last_offset

    def _index(self) -> TxnIndex:
        file = self._open_existing()
        return TxnIndex(b"" if file is None else file.read(0, file.size), self.path)

    def __iter__(self) -> Iterator[AbortedTxn]:
        return iter(self._index())

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Return the aborted transactions that overlap a range, and whether no later segment can have more."""
        return self._index().collect(fetch_offset, upper_bound)

    def check(self) -> None:
        """Refuse entries whose marker lies below the segment, as a broker does when it loads it."""
        self._index().check_base(self.base_offset)

    def reset(self) -> None:
        file = self._open_existing()
        if file is not None:
            file.truncate(0)
        self._last_offset = None

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker lies at or above an offset."""
        last: int | None = None
        for i, txn in enumerate(self):
            if txn.last_offset >= offset:
                file = self._open_existing()
                assert file is not None
                file.truncate(i * TXN_INDEX_ENTRY.size)
                self._last_offset = last
                return
            last = txn.last_offset

    def sync(self) -> None:
        """Flush the file, if it was ever opened."""
        if self._file is not None:
            self._file.sync()
            if self._is_new:  # a flush syncs the folder for new segments only
                self._storage.sync_folder(self._storage.split(self.path)[0])
                self._is_new = False

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
