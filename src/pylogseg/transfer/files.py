"""Files copied whole, one or all of a folder, and compared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import NoReturn

from pylogseg.disk.swaps import Swap, unfinished_swap
from pylogseg.env.file_errors import storage_error
from pylogseg.env.filesystem import Entry, LocalFiles
from pylogseg.env.handles import open_descriptor
from pylogseg.env.positions import copy_with_holes
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind, FileName, parse_file_name
from pylogseg.transfer.checked import good_end
from pylogseg.transfer.segment_files import write_epochs
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import next_offset_of

_CHUNK_BYTES = 4 << 20


def copy_file(storage: Storage, source: str, target: str) -> tuple[int, int]:
    """Copy a file with its modification time, and wait until the copy is on the disk; return size and time (ms).

    On one file system that can, the copy shares the blocks of the original. Holes of a sparse file stay holes.
    The copy is as long as the original was at the beginning.
    """
    if isinstance(storage, LocalStorage):
        return _copy_local(source, target)
    original, copy = storage.open_log(source, create=False), storage.open_log(target)
    try:
        size, modified_ms = original.size, original.modified_ms()
        for position in range(0, size, _CHUNK_BYTES):
            copy.append(original.read(position, min(_CHUNK_BYTES, size - position)))
        copy.sync()
        copy.set_modified_ms(modified_ms)
        return size, modified_ms
    finally:
        original.close()
        copy.close()


def copy_folder(storage: Storage, source: str, target: str, on_bytes: Callable[[int], None]) -> None:
    """Copy the files of a folder into a new one, and wait until they are on the disk with their names.

    Raises StorageError also if the files changed meanwhile, or a folder has the name of a live file.
    """
    storage.make_folder(target)
    before = storage.list_folder(source)
    for entry in before:
        if is_copied(entry):
            copy_file(storage, storage.join(source, entry.name), storage.join(target, entry.name))
            on_bytes(entry.size)
    if storage.list_folder(source) != before:
        raise StorageError(source, "copy", "its files changed meanwhile: something writes to it without the lock")
    storage.sync_folder(target)


def swap_in(storage: Storage, folder: str, names: Iterable[str]) -> Swap:
    """Return how a load ends a replacement of segments that was interrupted in a partition's folder."""

    def end_of(name: str, base: int) -> int:
        path = storage.join(folder, name)
        if isinstance(storage, LocalStorage):  # who may only read it may ask
            with LocalFiles().open(path, sealed=True) as view:
                return next_offset_of(view, base)
        file = storage.open_log(path, create=False)
        try:
            return next_offset_of(file, base)
        finally:
            file.close()

    return unfinished_swap(names, end_of)


def finish_swap(storage: Storage, folder: str) -> None:
    """End an interrupted replacement of segments in a copy of a partition, as the load of the original would."""
    names = [entry.name for entry in storage.list_folder(folder)]
    swap = swap_in(storage, folder, names)
    undone = {name for name in names if parse_file_name(name).suffix in (".swap", ".cleaned")} - {*swap.renamed}
    for name in swap.replaced | undone:
        storage.remove(storage.join(folder, name))
    for name, final in swap.renamed.items():
        storage.rename(storage.join(folder, name), storage.join(folder, final))


def settle(storage: Storage, folder: str, log_end: int) -> list[str]:
    """Remove files of absent segments, and state above the log's end, from a copied partition; return notes."""
    files = [(parse_file_name(entry.name), entry) for entry in storage.list_folder(folder) if not entry.is_dir]
    files = [(name, entry) for name, entry in files if name.is_live]
    logs = {name.offset: entry.size for name, entry in files if name.kind is FileKind.LOG}

    def is_left(name: FileName, entry: Entry) -> bool:
        if name.kind is FileKind.PRODUCER_SNAPSHOT:
            return (name.offset or 0) > log_end
        if not name.kind.is_index or logs.get(name.offset):
            return False
        return name.offset not in logs or any(storage.read_all(storage.join(folder, entry.name)))

    gone = [entry.name for name, entry in files if is_left(name, entry)]
    for each in gone:
        storage.remove(storage.join(folder, each))
    notes = [f"left out, since their segments are not there: {', '.join(gone)}"] if gone else []
    path = storage.join(folder, FileKind.LEADER_EPOCHS.value)
    if storage.exists(path):
        with contextlib.suppress(CorruptionError):  # which a broker makes anew
            epochs = parse_leader_epochs(storage.read_all(path), path)
            kept = [epoch for epoch in epochs if epoch.start_offset <= log_end]
            if kept != epochs:
                write_epochs(storage, folder, kept)
                notes.append(f"leader epochs after {kept[-1].epoch if kept else 'the end'} are left out")
    return notes


def is_copied(entry: Entry) -> bool:
    """True if an entry of a partition's folder belongs to it: a file, or an entry in the place of one."""
    return not entry.is_dir or parse_file_name(entry.name).is_live


def check_is_file(storage: Storage, path: str) -> None:
    """Refuse an existing entry that cannot be opened as a file."""
    if not isinstance(storage, LocalStorage):
        return
    try:
        os.close(open_descriptor(path, os.O_RDONLY))
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(path, "open", error) from error


def first_difference(storage: Storage, a: str, b: str, on_bytes: Callable[[int], None]) -> str:
    """Return the first difference between the files of two folders, byte by byte; empty if there is none.

    Both are read from their disks, as far as the system can be asked for that.
    """
    files = [{entry.name: entry.size for entry in storage.list_folder(path) if not entry.is_dir} for path in (a, b)]
    for name in sorted({*files[0], *files[1]}):
        sizes = [sizes.get(name) for sizes in files]
        if None in sizes:
            return f"{name} is not in {a if sizes[0] is None else b}"
        if sizes[0] != sizes[1]:
            return f"{name} has {sizes[0]:,} bytes in {a} and {sizes[1]:,} in {b}"
        position = _first_byte(storage, storage.join(a, name), storage.join(b, name), on_bytes)
        if position is not None:
            return f"{name} differs from byte {position:,} on in {a} and {b}"
    return ""


def check_batches(storage: Storage, folder: str, original: str) -> tuple[int, int]:
    """Read every batch of a copy of a partition with its CRC; return where the log begins and ends.

    Raises CorruptionError at the first damage, with its place in the original. A torn or zero-filled end is none.
    """

    def refuse(name: str, gap: Gap) -> NoReturn:
        raise CorruptionError(storage.join(original, name), gap.position, gap.reason)

    names = [(parse_file_name(entry.name), entry.name) for entry in storage.list_folder(folder)]
    logs = sorted((name.offset or 0, each) for name, each in names if name.is_live and name.kind is FileKind.LOG)
    end = 0
    for number, (base, each) in enumerate(logs, 1):
        file = storage.open_log(storage.join(folder, each), create=False)
        try:
            _, end_here = good_end(file, base, partial(refuse, each), is_last=number == len(logs))
            end = max(end, end_here)
        finally:
            file.close()
    return (logs[0][0] if logs else 0), end


def _first_byte(storage: Storage, a: str, b: str, on_bytes: Callable[[int], None]) -> int | None:
    """Position of the first byte that differs in two files of the same size."""
    if isinstance(storage, LocalStorage):
        _forget_cached(a)
        _forget_cached(b)
    one, other = storage.open_log(a, create=False), storage.open_log(b, create=False)
    try:
        for position in range(0, one.size, _CHUNK_BYTES):
            left, right = (file.read(position, _CHUNK_BYTES) for file in (one, other))
            if left != right:
                same = next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
                return position + (min(len(left), len(right)) if same is None else same)
            on_bytes(len(left))
        return None
    finally:
        one.close()
        other.close()


def _forget_cached(path: str) -> None:
    """Let the next read of a file come from its disk."""
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        descriptor = open_descriptor(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_error(path, "read", error) from error


def _copy_local(source: str, target: str) -> tuple[int, int]:
    try:
        original = open_descriptor(source, os.O_RDONLY)
        try:
            status = os.fstat(original)
            with open(target, "xb", buffering=0) as copy:
                copy_with_holes(original, copy.fileno(), status.st_size)
                os.fsync(copy.fileno())
        finally:
            os.close(original)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename == source:
            raise StorageError(source, "read", reason, error.errno) from error
        raise StorageError(target, f"write the copy of {source}", reason, error.errno) from error
    return status.st_size, status.st_mtime_ns // 1_000_000
