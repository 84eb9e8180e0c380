"""What lies on a broker's disk: log directories, partitions, segments, found by their names.

Nothing here reads a payload. A path may be a log directory, a folder with several of them, one partition's folder or a
single file; locally or behind an fsspec URL.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pylogseg.env.files import Entry, FileSystem, FileView, LocalFiles, file_system
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.names import FileKind, FileName, parse_file_name, parse_partition_folder

_log = logging.getLogger(__name__)

#: Folders in a log directory, or around one, that hold no partition; the last is open to root alone.
_OTHER_FOLDERS = frozenset(["remote-log-index-cache", "lost+found"])

#: A folder whose names were as they are for so long is left alone by writers.
_QUIET_MS = 2000
_RENAMES_S = 0.005
_MOST_LISTINGS = 100


@dataclass(frozen=True)
class Segment:
    """A file of batches and the files beside it.

    Attributes
    ----------
    files : FileSystem
        Where the file lies.
    path : str
        Of the `.log` file (or of whatever file of batches was named).
    base_offset : int
        From the name; 0 where the name has none.
    size : int
        Bytes when the folder was listed.
    modified_ms : int
    is_last : bool
        Whether no segment follows it: the active one, which a broker may be writing.
    topic, partition : str, int
        ``""`` and -1 where the folder's name does not tell.
    companions : dict of FileKind to str
        Paths of its indexes and of the snapshot at its base offset, those that exist.
    """

    files: FileSystem = field(repr=False)
    path: str
    base_offset: int
    size: int
    modified_ms: int
    is_last: bool
    topic: str = ""
    partition: int = -1
    companions: dict[FileKind, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.files.split(self.path)[1]

    def open(self) -> FileView:
        """Open the file of batches: mapped if it is sealed, read by position if a broker may be writing it."""
        return self.files.open(self.path, sealed=not self.is_last)

    def companion(self, kind: FileKind) -> bytes | None:
        """Bytes of an index of this segment, None if there is none (or it vanished)."""
        path = self.companions.get(kind)
        if path is None:
            return None
        try:
            return self.files.read_all(path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise


@dataclass(frozen=True)
class OtherFile:
    """A file in a partition's folder that is not part of a live segment."""

    path: str
    name: FileName
    size: int


@dataclass(frozen=True)
class Partition:
    """One replica of a partition: a folder of segments.

    Attributes
    ----------
    topic, partition : str, int
    path : str
    state : str
        ``""`` live, ``"delete"``, ``"future"`` or ``"stray"``, from the folder's name.
    segments : tuple of Segment
        Live ones, by base offset.
    others : tuple of OtherFile
        Checkpoints, snapshots, and files with a suffix (`.deleted`, `.cleaned`, `.swap`).
    log_start_offset : int
        From the log directory's checkpoint, or the first segment's base offset if that is higher.
    error : StorageError or None
        Why the folder cannot be listed; then no segment is known.
    """

    files: FileSystem = field(repr=False)
    topic: str
    partition: int
    path: str
    state: str
    segments: tuple[Segment, ...] = field(repr=False)
    others: tuple[OtherFile, ...] = field(repr=False)
    log_start_offset: int
    error: StorageError | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Topic and partition as in the folder's name."""
        return self.files.split(self.path)[1]

    @property
    def size(self) -> int:
        """Bytes of all live segments, indexes not counted."""
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True)
class LogDir:
    """One of a broker's log directories."""

    files: FileSystem = field(repr=False)
    path: str
    partitions: tuple[Partition, ...] = field(repr=False)
    checkpoints: dict[FileKind, str] = field(repr=False)


@dataclass(frozen=True)
class Disk:
    """Everything that was found under the paths given to `open_dir`.

    Attributes
    ----------
    log_dirs : tuple of LogDir
    partitions : tuple of Partition
        Of all log directories and of partition folders named by themselves; by topic and number.
    loose : tuple of Segment
        Files named by themselves.
    notes : tuple of str
        What was passed by: log start offsets that cannot be read, so that deleted records show. Logged as warnings too.
    """

    log_dirs: tuple[LogDir, ...]
    partitions: tuple[Partition, ...]
    loose: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def topics(self) -> dict[str, list[Partition]]:
        """Live partitions by topic."""
        found: dict[str, list[Partition]] = {}
        for partition in self.partitions:
            if not partition.state:
                found.setdefault(partition.topic, []).append(partition)
        return found

    @property
    def segments(self) -> Iterator[Segment]:
        """Segments of all live partitions, then the files named by themselves."""
        for partition in self.partitions:
            if not partition.state:
                yield from partition.segments
        yield from self.loose

    def select(self, names: Iterable[str]) -> Disk:
        """The partitions that names or patterns ask for.

        Parameters
        ----------
        names : iterable of str
            A topic (``orders``), a partition (``orders-3``), a folder's whole name (``orders-3.…-stray``), or a shell
            pattern for any of these.

        Raises
        ------
        RequestError
            If a name asks for something that is not there; it names what is.
        """
        chosen: list[Partition] = []
        for name in names:
            matching = [p for p in self.partitions if _asked(p, name)]
            if not matching:
                raise RequestError(f"no topic or partition {name!r} here; there are: {_some(sorted(self.topics))}")
            chosen += [p for p in matching if p not in chosen]
        return Disk(self.log_dirs, tuple(chosen), notes=self.notes)


_Item = TypeVar("_Item", Segment, Partition, LogDir)


def _asked(partition: Partition, name: str) -> bool:
    matches = partition.name == name or fnmatch.fnmatchcase(partition.name, name)
    if partition.state:  # a pattern for topics does not mean what is being deleted: that has to be said
        return matches and name.endswith(f"-{partition.state}")
    return matches or partition.topic == name or fnmatch.fnmatchcase(partition.topic, name)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(names[:12]) or "none") + more


def open_dir(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *more: str | os.PathLike[str],
    storage: Mapping[str, Any] | None = None,
) -> Disk:
    """Look at a broker's disk.

    Parameters
    ----------
    path, more : path, URL, shell pattern, or a list of them
        Log directories, folders that hold log directories, partition folders, or files of batches. What several of
        them name is there once.
    storage : mapping, optional
        What fsspec needs to open URLs: credentials, an endpoint.

    Returns
    -------
    Disk

    Raises
    ------
    StorageError
        If a path cannot be listed. A partition's folder in a log directory that cannot be is there with its error.
    RequestError
        If a path holds nothing that Kafka writes.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    log_dirs: list[LogDir] = []
    partitions: list[Partition] = []
    loose: list[Segment] = []
    notes: list[str] = []
    located = 0
    for item in [*paths, *more]:
        files, pattern = file_system(item, storage)
        for found in files.glob(pattern) or [pattern]:
            _look(files, found, log_dirs, partitions, loose, notes)
            located += 1
    partitions += [partition for log_dir in log_dirs for partition in log_dir.partitions]
    if located > 1:
        log_dirs, partitions = _once(log_dirs, set()), _once(partitions, set())
        loose = _once(loose, {segment.files.real(segment.path) for p in partitions for segment in p.segments})
    partitions.sort(key=lambda p: (p.topic, p.partition, p.state, p.path))
    for note in notes:
        _log.warning("%s", note)
    return Disk(tuple(log_dirs), tuple(partitions), tuple(loose), tuple(notes))


def _once(items: list[_Item], seen: set[str]) -> list[_Item]:
    """The items without those whose files were seen before, under whatever name."""
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
    notes: list[str],
) -> None:
    entry = files.stat(path)
    if not entry.is_dir:
        loose.append(_loose_segment(files, path, entry))
        return
    entries = files.list_folder(path)
    if _is_partition(entries, entry.name):
        partitions.append(_partition(files, path, _settled(files, path, entries), _log_start(files, path, notes)))
        return
    if _is_log_dir(entries):
        log_dirs.append(_log_dir(files, path, entries, notes))
        return
    folders = [files.join(path, e.name) for e in entries if e.is_dir and e.name not in _OTHER_FOLDERS]
    inner = [(folder, files.list_folder(folder)) for folder in folders]
    found = [_log_dir(files, folder, listed, notes) for folder, listed in inner if _is_log_dir(listed)]
    if not found:
        raise RequestError(
            f"{path}: no Kafka log directory, partition folder or segment here "
            "(a log directory holds folders named <topic>-<partition>, and those files named <20 digits>.log)"
        )
    log_dirs += found


def _is_partition(entries: list[Entry], name: str) -> bool:
    kinds = {parse_file_name(e.name).kind for e in entries if not e.is_dir}
    if any(kind.is_segment_file for kind in kinds):
        return True
    # A replica whose segments are all gone still has its checkpoint; log directories have names of that form too.
    has_own = bool(kinds & {FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA})
    return parse_partition_folder(name) is not None and (has_own or not entries)


def _is_log_dir(entries: list[Entry]) -> bool:
    if any(parse_file_name(e.name).kind is FileKind.META_PROPERTIES for e in entries):
        return True
    return any(e.is_dir and parse_partition_folder(e.name) is not None for e in entries)


def _log_dir(files: FileSystem, path: str, entries: list[Entry], notes: list[str]) -> LogDir:
    checkpoints: dict[FileKind, str] = {
        name.kind: files.join(path, e.name)
        for e in entries
        if not e.is_dir and (name := parse_file_name(e.name)).kind is not FileKind.UNKNOWN and not name.suffix
    }
    starts = _log_starts(files, checkpoints.get(FileKind.LOG_STARTS), notes)
    partitions = []
    for e in entries:
        of = parse_partition_folder(e.name) if e.is_dir and e.name not in _OTHER_FOLDERS else None
        if of is None:
            continue
        folder = files.join(path, e.name)
        start = 0 if of.state else starts.get((of.topic, of.partition), 0)
        try:
            partitions.append(_partition(files, folder, _settled(files, folder, files.list_folder(folder)), start))
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # deleted by the broker since
                continue
            # One folder that the disk or its rights refuse does not stand for the others.
            partitions.append(Partition(files, of.topic, of.partition, folder, of.state, (), (), start, error))
    return LogDir(files, path, tuple(partitions), checkpoints)


def _log_starts(files: FileSystem, path: str | None, notes: list[str]) -> dict[tuple[str, int], int]:
    if path is None:
        return {}
    from pylogseg.files.checkpoint import parse_offset_checkpoint

    try:
        return dict(parse_offset_checkpoint(files.read_all(path), path))
    except CorruptionError as error:
        notes.append(f"{error}; it is taken for empty, as by a broker: records that were deleted may show")
        return {}


def _log_start(files: FileSystem, folder: str, notes: list[str]) -> int:
    """Log start offset of a partition that was named by itself, from the log directory around it, if it is one."""
    parent, name = files.split(folder)
    parsed = parse_partition_folder(name)
    if parsed is None or parsed.state:
        return 0
    path = files.join(parent, FileKind.LOG_STARTS.value)
    try:
        starts = _log_starts(files, path, notes)
    except StorageError:
        return 0
    return starts.get((parsed.topic, parsed.partition), 0)


def _settled(files: FileSystem, path: str, entries: list[Entry]) -> list[Entry]:
    """Entries of a partition's folder, which was just listed, of one moment as far as a writer lets us see one.

    A listing is not of one moment itself; and while a cleaning puts a segment in the place of others, for some renames
    neither it nor they have their names. What a crash left so is taken as it is.
    """
    if not isinstance(files, LocalFiles):
        return entries
    for _ in range(_MOST_LISTINGS):
        if time.time() * 1000 - files.stat(path).modified_ms > _QUIET_MS:
            break
        before, entries = entries, files.list_folder(path)
        if any(entry.name.endswith(".swap") for entry in entries):
            time.sleep(_RENAMES_S)
        elif [entry.name for entry in before] == [entry.name for entry in entries]:
            break
    return entries


def _partition(files: FileSystem, path: str, entries: list[Entry], log_start_offset: int) -> Partition:
    folder = parse_partition_folder(files.split(path)[1])
    topic, number, state = (folder.topic, folder.partition, folder.state) if folder else ("", -1, "")
    logs: dict[int, Entry] = {}
    companions: dict[int, dict[FileKind, str]] = {}
    others: list[OtherFile] = []
    for entry in entries:
        if entry.is_dir:
            continue
        name = parse_file_name(entry.name)
        if name.kind is FileKind.LOG and not name.suffix and name.offset is not None:
            logs[name.offset] = entry
            continue
        if name.kind.is_segment_file and not name.suffix and name.offset is not None:
            companions.setdefault(name.offset, {})[name.kind] = files.join(path, entry.name)
        others.append(OtherFile(files.join(path, entry.name), name, entry.size))
    last = max(logs, default=-1)
    segments = tuple(
        Segment(
            files,
            files.join(path, e.name),
            base,
            e.size,
            e.modified_ms,
            base == last,
            topic,
            number,
            companions.get(base, {}),
        )
        for base, e in sorted(logs.items())
    )
    first = segments[0].base_offset if segments else 0
    return Partition(files, topic, number, path, state, segments, tuple(others), max(log_start_offset, first))


def _loose_segment(files: FileSystem, path: str, entry: Entry) -> Segment:
    """A file that was named by itself: with what its folder tells of it."""
    folder, last_name = files.split(path)
    name = parse_file_name(last_name)
    of_partition = parse_partition_folder(files.split(folder)[1])
    topic, number = (of_partition.topic, of_partition.partition) if of_partition else ("", -1)
    if name.kind is not FileKind.LOG or name.offset is None:
        return Segment(files, path, 0, entry.size, entry.modified_ms, True, topic, number)
    beside = _partition(files, folder, _settled(files, folder, files.list_folder(folder)), 0)
    for segment in beside.segments:
        if segment.name == last_name:
            return segment
    return Segment(files, path, name.offset, entry.size, entry.modified_ms, True, topic, number)
