"""Listing a broker's disk: log directories, partitions and segments, found by their names.

No payload is read. A path may be a log directory, a folder with several of them, one partition's folder or a single
file; local or an fsspec URL.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pylogseg.disk.disk import Disk, LogDir, OtherFile, Partition, Segment, uploaded_end
from pylogseg.disk.folders import (
    Contents,
    ambiguous,
    classify,
    files_of_partition,
    is_beside_log_dirs,
    is_log_dir_inside,
    is_of_partition,
    not_topics_here,
    nothing_here,
    refuse_unfinished,
)
from pylogseg.disk.notes import Note
from pylogseg.disk.swaps import MOST_LISTINGS, with_swap
from pylogseg.disk.tier.opening import any_file_system
from pylogseg.env.filesystem import Entry, FileSystem, LocalFiles
from pylogseg.env.garbage import pause_collection
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError, Ending, RequestError, StorageError, is_missing
from pylogseg.format.escape import printable
from pylogseg.format.foreign_formats import packed_as
from pylogseg.format.names import FileKind, is_topic, parse_file_name, parse_partition_folder, parse_topic_folder

if TYPE_CHECKING:
    from pylogseg.disk.tier.joined import DiskWithTier

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Once:
    """The result of a function that only the first thread calls; all threads get that result."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find, self._lock, self._found = find, threading.Lock(), None

    def __call__(self) -> Any:
        with self._lock:
            if self._found is None:
                self._found = self._find()
        return self._found


class Later(Sequence[_T]):
    """A sequence that is made on first use; other processes get it as a tuple."""

    def __init__(self, find: Callable[[], tuple[_T, ...]]) -> None:
        self._find = find

    def __len__(self) -> int:
        return len(self._find())

    def __iter__(self) -> Iterator[_T]:
        return iter(self._find())

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_T]: ...
    def __getitem__(self, at: int | slice) -> _T | Sequence[_T]:
        return self._find()[at]

    def __eq__(self, other: object) -> bool:
        return self._find() == (tuple(other) if isinstance(other, Later) else other)

    def __hash__(self) -> int:
        return hash(self._find())

    def __reduce__(self) -> Any:
        return tuple, (list(self._find()),)


class Names:
    """A file system of this machine whose folders are listed by name: no size or time of a file is looked up."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self.join, self.read_all = files.join, files.read_all

    def list_folder(self, path: str) -> list[Entry]:
        """Return the names in a folder, without sizes and times."""
        return self._files.list_names(path)


_Item = TypeVar("_Item", Segment, Partition, LogDir)


def as_disk(of: str | os.PathLike[str] | Sequence[Any] | Disk | Partition) -> Disk:
    """Return a disk from an argument of `pylogseg.read`: a disk, partitions, or an argument of `open_dir`."""
    if isinstance(of, Disk):
        return of
    if isinstance(of, Partition):
        return Disk((), (of,), is_named=True)
    if not isinstance(of, (str, os.PathLike)):
        partitions = [partition for partition in of if isinstance(partition, Partition)]
        if partitions and len(partitions) == len(of):
            return Disk((), tuple(partitions), is_named=True)
    return open_dir(of)


def open_dir(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *more: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    memory_map: bool = False,
) -> Disk:
    """List the contents of a broker's disk, or of the tier that its older segments were uploaded to.

    Parameters
    ----------
    path, more : path, URL, shell pattern, or a list of them
        Log directories, folders of log directories, partition folders, or files of batches. Duplicates are ignored.
        The URL of a tier begins with its layout: ``aiven+s3://bucket/prefix``, ``aiven+file:///path``,
        ``localtier+file:///path``.
    storage_options : mapping, optional
        Options of fsspec for URLs: credentials, an endpoint. For encrypted tiers ``tier_keys``, see `open_tier`.
    tier : str, optional
        The URL of the tier of these disks: each partition begins with its uploaded segments, and the disk's segments
        follow.
    memory_map : bool
        Map files of batches on this machine instead of reading them. Only for files that nobody cuts, such as a backup,
        a snapshot or a tier: the system ends a process that touches a mapped page behind the end of its file, or one
        that the disk cannot read.

    Returns
    -------
    Disk

    Raises
    ------
    StorageError
        If a path cannot be listed. For a partition's folder in a log directory, `Partition.error` is set instead.
    RequestError
        If a path has no Kafka files, or `memory_map` is asked for a URL of a store.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return _open_disk([*paths, *more], storage_options, tier, memory_map=memory_map)


def open_later(paths: Sequence[str], *, tier: str | None = None, memory_map: bool = False) -> Disk:
    """Open paths like `open_dir`, but list the files of a partition's folder when they are first asked for.

    Only names are looked at before, and none is listed later whose folder is being changed. The disk of another machine
    is listed at once.
    """
    return _open_disk(paths, None, tier, memory_map=memory_map, is_later=True)


def _open_disk(
    paths: Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None,
    tier: str | None,
    *,
    memory_map: bool,
    is_later: bool = False,
) -> Disk:
    log_dirs: list[LogDir] = []
    partitions: list[Partition] = []
    loose: list[Segment] = []
    notes: list[Note] = []
    located = 0
    joined: DiskWithTier | None = None
    if tier is not None:
        from pylogseg.disk.tier.joined import joined_with

        joined = joined_with(tier, storage_options, memory_map=memory_map)
    with pause_collection():
        for item in paths:
            files, pattern = any_file_system(item, storage_options, memory_map=memory_map)
            if joined is not None:
                if not isinstance(files, LocalFiles):
                    raise RequestError(f"{item}: a tier is joined with disks of this machine, not with a URL")
                files = joined
            else:
                notes += getattr(files, "notes", ())
            named = len(partitions)
            for place in files.glob(pattern) or [pattern]:
                _look(files, place, log_dirs, partitions, loose, notes, is_later=is_later and type(files) is LocalFiles)
                located += 1
            _refuse_unfinished(files, log_dirs, partitions[named:])
    if joined is not None:
        notes += joined.notes(of_all=bool(log_dirs))
    log_dirs = _once(log_dirs, set()) if len(log_dirs) > 1 else log_dirs
    partitions += [partition for log_dir in log_dirs for partition in log_dir.partitions]
    if located > 1:
        partitions = _once(partitions, set())
        loose = _once(loose, {segment.files.real(segment.path) for p in partitions for segment in p.segments})
    partitions.sort(key=lambda p: (p.topic, p.partition, p.state, p.path))
    disk = Disk(tuple(log_dirs), tuple(partitions), tuple(loose), tuple(notes))
    for text in disk.notes:
        _log.warning("%s", printable(text))
    return disk


def _refuse_unfinished(files: FileSystem, log_dirs: Iterable[LogDir], named: Iterable[Partition]) -> None:
    """Raise RequestError where a restore into a store did not finish."""
    if isinstance(files, (LocalFiles, RemoteFiles)):
        above = {files.split(partition.path)[0] for partition in named}
        for folder in sorted(above | {log_dir.path for log_dir in log_dirs if log_dir.files is files}):
            refuse_unfinished(files, folder)


def open_folder(files: FileSystem, path: str) -> Disk:
    """Do the work of `open_dir` for one folder of an open file system, with the same errors."""
    log_dirs: list[LogDir] = []
    partitions: list[Partition] = []
    loose: list[Segment] = []
    _look(files, path, log_dirs, partitions, loose, [])
    return Disk(tuple(log_dirs), (*partitions, *(p for log_dir in log_dirs for p in log_dir.partitions)), tuple(loose))


def _once(items: list[_Item], seen: set[str]) -> list[_Item]:
    """Return the items without duplicates, by real path."""
    kept = []
    for item in items:
        real = item.files.real(item.path)
        if real not in seen:
            seen.add(real)
            kept.append(item)
    return kept


def _look(
    files: FileSystem,
    path: str,
    log_dirs: list[LogDir],
    partitions: list[Partition],
    loose: list[Segment],
    notes: list[Note],
    *,
    is_later: bool = False,
) -> None:
    entry = files.stat(path)
    if not entry.is_dir:
        check_is_log(files, path)
        loose.append(_loose_segment(files, path, entry))
        return
    entries = files.list_folder(path)
    names = Names(files) if is_later and isinstance(files, LocalFiles) else None
    contents = classify(files if names is None else names, path, files.split(path)[1], entries)
    if contents.is_ambiguous:
        raise ambiguous(path, entries)
    if contents.is_partition and not is_beside_log_dirs(files, path, entries):
        partitions.append(_partition(files, path, settle_entries(files, path, entries), log_start(files, path, notes)))
        return
    if not contents.is_log_dir and not contents.log_dirs:
        raise nothing_here(path, entries, is_local=isinstance(files, LocalFiles))
    if contents.is_log_dir:
        log_dirs.append(_log_dir(files, path, entries, contents, notes, names))
    for name in contents.log_dirs:
        folder, inside = files.join(path, name), contents.listed[name]
        log_dirs.append(_log_dir(files, folder, inside, Contents(True), notes, names))
    if contents.log_dirs:
        for name, error in contents.unreadable.items():
            partitions.append(Partition(files, "", -1, files.join(path, name), "", (), (), 0, error))


def _log_dir(
    files: FileSystem,
    path: str,
    entries: list[Entry],
    contents: Contents,
    notes: list[Note],
    names: Names | None,
) -> LogDir:
    checkpoints: dict[FileKind, str] = {
        name.kind: files.join(path, e.name)
        for e in entries
        if not e.is_dir and (name := parse_file_name(e.name)).kind is not FileKind.UNKNOWN and not name.suffix
    }
    starts = log_starts(files, path, notes) if any(kind.is_offset_checkpoint for kind in checkpoints) else {}
    if any(map(is_of_partition, entries)):
        fact = f"{files_of_partition(entries)}: in the log directory itself, where no broker looks for it"
        notes.append(Note(path, fact))
    partitions, not_topics = [], []
    for e in entries:
        of = parse_partition_folder(e.name) if e.is_dir else None
        if of is None or e.name in contents.log_dirs:
            continue
        if not is_topic(of.topic):
            not_topics.append(e.name)
            continue
        folder = files.join(path, e.name)
        start = 0 if of.state else starts.get((of.topic, of.partition), 0)
        try:
            inside = contents.listed.get(e.name)
            inside = (names or files).list_folder(folder) if inside is None else inside
            if is_log_dir_inside(files, folder, inside):
                notes.append(Note(folder, "a log directory in a log directory: to read it, name it"))
                continue
            if isinstance(files, LocalFiles) and not any(map(is_of_partition, inside)) and os.path.islink(folder):
                raise StorageError(folder, "read", "a link to a folder without any file of a partition")
            if names is None:
                partitions.append(_partition(files, folder, settle_entries(files, folder, inside), start))
            else:
                partitions.append(_partition_later(files, folder, inside, start))
        except StorageError as error:
            if is_missing(error):  # deleted by the broker since
                continue
            # One unreadable folder must not fail the others.
            partitions.append(Partition(files, of.topic, of.partition, folder, of.state, (), (), start, error))
    if not_topics:
        notes.append(Note(path, not_topics_here(not_topics)))
    return LogDir(files, path, tuple(partitions), checkpoints, tuple(not_topics))


def _partition(files: FileSystem, path: str, entries: list[Entry], log_start_offset: int) -> Partition:
    folder = parse_topic_folder(files.split(path)[1])
    topic, number, state = (folder.topic, folder.partition, folder.state) if folder else ("", -1, "")
    logs: dict[int, Entry] = {}
    companions: dict[int, dict[FileKind, str]] = {}
    others: list[OtherFile] = []
    entries, swap = with_swap(files, path, entries)
    is_replaced, inside = any(swap), files.join(path, "x")[:-1]  # a path for each of very many names
    for entry in entries:
        name = parse_file_name(entry.name)
        after = swap.name_of(entry.name) if is_replaced else name
        if entry.is_dir and name.kind is not FileKind.LOG:  # a folder with the name of a segment cannot be read
            continue
        file, is_live = inside + entry.name, after is not None and not after.suffix
        if is_live and name.kind is FileKind.LOG and name.offset is not None:
            logs[name.offset] = entry
            continue
        if is_live and name.kind.is_segment_file and name.offset is not None:
            companions.setdefault(name.offset, {})[name.kind] = file
        others.append(OtherFile(file, name, entry.size))
    bases = sorted(logs)
    segments = tuple(
        Segment(
            files,
            inside + logs[base].name,
            base,
            logs[base].size,
            logs[base].modified_ms,
            following is None and uploaded_end(files, inside + logs[base].name) is None,
            topic,
            number,
            companions.get(base, {}),
            following,
            logs[base].largest_ms,
        )
        for base, following in itertools.zip_longest(bases, bases[1:])
    )
    first = segments[0].base_offset if segments else 0
    return Partition(files, topic, number, path, state, segments, tuple(others), max(log_start_offset, first))


def _partition_later(files: FileSystem, path: str, names: list[Entry], log_start_offset: int) -> Partition:
    """Return a partition that lists its files on first use, or now if somebody is changing them."""

    def list_again() -> Partition:
        try:
            return _partition(files, path, settle_entries(files, path, files.list_folder(path)), log_start_offset)
        except StorageError as error:
            if not is_missing(error):
                raise
            return _partition(files, path, [], log_start_offset)  # deleted by the broker since

    ending = FileKind.LOG.value
    logs = [parse_file_name(name) for name, *_ in names if name.endswith(ending)]
    bases = [name.offset for name in logs if name.offset is not None]
    if not bases or not is_settled(files, path, names):
        return list_again()
    once = Once(list_again)
    segments: Later[Segment] = Later(lambda: once().segments)
    others: Later[OtherFile] = Later(lambda: once().others)
    folder = parse_topic_folder(files.split(path)[1])
    topic, number, state = (folder.topic, folder.partition, folder.state) if folder else ("", -1, "")
    return Partition(files, topic, number, path, state, segments, others, max(log_start_offset, min(bases)))


def _loose_segment(files: FileSystem, path: str, entry: Entry) -> Segment:
    """Return a segment for a file that was named directly, with the data that its folder provides."""
    folder, last_name = files.split(path)
    name = parse_file_name(last_name)
    of_partition = parse_topic_folder(files.split(folder)[1])
    topic, number = (of_partition.topic, of_partition.partition) if of_partition else ("", -1)
    if name.kind is not FileKind.LOG or name.offset is None:
        return Segment(files, path, 0, entry.size, entry.modified_ms, True, topic, number)
    beside = _partition(files, folder, settle_entries(files, folder, files.list_folder(folder)), 0)
    for segment in beside.segments:
        if segment.name == last_name:
            return segment
    return Segment(files, path, name.offset, entry.size, entry.modified_ms, True, topic, number)


# ---- one consistent listing of a partition's folder that somebody writes ----

#: A folder whose names have not changed for this long is not being written to.
_QUIET_MS = 2000
_RENAMES_S = 0.005


def settle_entries(files: FileSystem, path: str, entries: list[Entry]) -> list[Entry]:
    """Return consistent entries of a partition's folder; list it again while a writer is changing it.

    A listing is not atomic: it may lack a file that was made meanwhile, and have one that was made after that. A log
    that grows keeps the segments up to the last one of the first listing; segments that are newer are left out. While a
    cleaning replaces segments, neither the old nor the new ones have their names for a few renames. If a crash left the
    folder like that, the entries are returned as they are: see `pylogseg.disk.swaps`.
    """
    if not isinstance(files, LocalFiles) or _is_quiet(files, path):
        return entries
    names, last = {entry.name for entry in entries}, _last_base(entries)
    for _ in range(MOST_LISTINGS):
        before, listed = entries, files.list_folder(path)
        entries = _up_to(last, listed, names)
        if _last_base(entries) < 0 <= _last_base(listed):  # the log begins again, above all that it had
            entries, names, last = listed, {entry.name for entry in listed}, _last_base(listed)
        elif any(entry.name.endswith(".swap") for entry in entries):
            time.sleep(_RENAMES_S)
        elif [entry.name for entry in before] == [entry.name for entry in entries]:
            break
        if _is_quiet(files, path):
            break
    return entries


def is_settled(files: FileSystem, path: str, entries: Iterable[Entry]) -> bool:
    """Return True if the folder has no `.swap` file, and has not changed for some seconds."""
    return not any(entry.name.endswith(".swap") for entry in entries) and _is_quiet(files, path)


def _is_quiet(files: FileSystem, path: str) -> bool:
    return time.time() * 1000 - files.stat(path).modified_ms > _QUIET_MS


def _last_base(entries: Iterable[Entry]) -> int:
    """Return the base offset of the last segment; -1 without one. An index alone counts: its log was just made."""
    names = (parse_file_name(entry.name) for entry in entries)
    bases = (name.offset for name in names if name.kind is FileKind.LOG or name.kind.is_index)
    return max((base for base in bases if base is not None), default=-1)


def _up_to(last: int, entries: Iterable[Entry], names: Collection[str]) -> list[Entry]:
    """Return the given entries, and the entries of segments up to a base offset."""
    kept = []
    for entry in entries:
        name = parse_file_name(entry.name)
        if entry.name in names or not name.kind.is_segment_file or (name.offset or 0) <= last:
            kept.append(entry)
    return kept


# ---- where logs start, by the checkpoint of their log directory ----


def log_starts(files: FileSystem, log_dir: str, notes: list[Note]) -> dict[tuple[str, int], int]:
    """Return the starts by topic and partition in a log directory's checkpoint; with a note if it cannot be read."""
    from pylogseg.disk.offset_checkpoints import OffsetCheckpoints

    checkpoints, kind = OffsetCheckpoints(files, log_dir), FileKind.LOG_STARTS
    if harm := checkpoints.harm(kind):
        file = checkpoints.file(kind)
        error = file.error or CorruptionError(file.path, 0, harm.removeprefix(f"{file.path}: "))
        fact = f"{error}; it is taken for empty, as by a broker: records that were deleted may show"
        notes.append(Note(log_dir, fact, error=error))
    return checkpoints.offsets(kind)


def log_start(files: FileSystem, folder: str, notes: list[Note]) -> int:
    """Return the log start offset of a directly named partition, from its log directory's checkpoint if any."""
    parent, name = files.split(folder)
    parsed = parse_partition_folder(name)
    if parsed is None or parsed.state:
        return 0
    return log_starts(files, parent, notes).get((parsed.topic, parsed.partition), 0)


# ---- files that are named one by one: are they logs? ----

#: `packed_as` knows tar by its bytes from 257 on.
_LOOK_BYTES = 512
_PREFIX_BYTES, _LEAST_BYTES = 17, 14


def begins_like_log(head: bytes) -> bool:
    """Return whether bytes may begin a log, of Kafka or of Redpanda: nothing, or a header, which may be cut off."""
    if len(head) < _PREFIX_BYTES:
        return head[:1] in (b"", b"\0")
    length = int.from_bytes(head[8:12], "big", signed=True)
    if (head[0] == 0 and head[16] <= 2 and length >= _LEAST_BYTES) or not any(head):
        return True
    from pylogseg.format.batches import scan  # with numpy, which a listing can do without

    return scan(head, crc=False, max_rows=1).ending is Ending.FOREIGN


def check_is_log(files: FileSystem, path: str) -> None:
    """Refuse a file that is no log, by its name or, if no broker gives such a name, by its first bytes.

    A file that cannot be opened is left to the reader, and so is a packed file, which the reader explains.
    """
    name = parse_file_name(files.split(path)[1])
    if name.kind.holds_batches:
        return
    if name.kind is not FileKind.UNKNOWN:
        raise RequestError(
            f"{path}: not a log, but a small file beside logs: `pylogseg dump` decodes it, `pylogseg verify` checks it"
            " with its folder"
        )
    try:
        with files.open(path, sealed=False) as view:
            head = bytes(view.read(0, _LOOK_BYTES))
    except StorageError:
        return
    if not begins_like_log(head) and packed_as(head) is None:
        raise RequestError(
            f"{path}: not a Kafka file, by its name and by its first bytes (a log that is damaged at its beginning"
            " needs its name, 20 digits and .log)"
        )
