"""The contents of a broker's disk: log directories, partitions and segments, found by their names.

No payload is read. A path may be a log directory, a folder with several of them, one partition's folder or a single
file; local or an fsspec URL.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.folders import (
    Contents,
    ambiguous,
    files_of_partition,
    is_asked,
    is_beside_log_dirs,
    is_log_dir_inside,
    is_of_partition,
    look,
    not_here,
    not_topics_here,
    nothing_here,
    refuse_unfinished,
)
from pylogseg.disk.later import Later, Names, Once
from pylogseg.disk.listing import is_settled, settled
from pylogseg.disk.log_starts import log_start, log_starts
from pylogseg.disk.notes import Note, note_lines
from pylogseg.disk.single_files import check_is_log
from pylogseg.disk.swaps import with_swap
from pylogseg.disk.tier.opening import file_system
from pylogseg.env.filesystem import Entry, FileSystem, FileView, LocalFiles
from pylogseg.env.garbage import uncollected
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError, RequestError, StorageError, is_missing
from pylogseg.format.escape import printable
from pylogseg.format.names import (
    FileKind,
    FileName,
    is_topic,
    parse_file_name,
    parse_partition_folder,
    parse_topic_folder,
)

if TYPE_CHECKING:
    from pylogseg.disk.tier.joined import DiskWithTier

_log = logging.getLogger(__name__)

#: A broker renames what retention or the cleaner deletes, and removes it a minute later.
DELETED = ".deleted"


@dataclass(frozen=True)
class Segment:
    """A file of batches and the files beside it.

    Attributes
    ----------
    files : FileSystem
        The file system of the file.
    path : str
        Path of the `.log` file (or of another file of batches that was named).
    base_offset : int
        From the name; 0 if the name has none.
    size : int
        Size in bytes when the folder was listed.
    modified_ms : int
    is_last : bool
        True if it is the active one, which a broker may be writing: no segment follows it, and it is not of a tier.
    topic, partition : str, int
        ``""`` and -1 if the folder's name is not that of a partition.
    companions : dict of FileKind to str
        Paths of the existing indexes, and of the snapshot at the base offset.
    next_base : int or None
        Base offset of the next segment of the partition, where the offsets of this one end; None without one.
    largest_ms : int or None
        The greatest timestamp, where it is known without reading: from the manifest of an uploaded segment.
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
    next_base: int | None = field(default=None, repr=False, compare=False)
    largest_ms: int | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is sent: of a tier, only what it has of this segment."""
        return {**self.__dict__, "files": _only(self.files, [self.path, *self.companions.values()])}

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.files.split(self.path)[1]

    def open(self) -> FileView:
        """Open the file of batches, also if it was renamed to `.deleted` since it was listed.

        If a sealed one is truncated while it is read, that is an error.
        """
        try:
            return self.files.open(self.path, sealed=not self.is_last)
        except StorageError as error:
            if not is_missing(error):
                raise
            with contextlib.suppress(StorageError):
                return self.files.open(self.path + DELETED, sealed=True)
            raise

    @property
    def is_swapped_in(self) -> bool:
        """True if a replacement of segments was interrupted, and a load ends it by giving this file its name."""
        return parse_file_name(self.name).suffix == ".swap"

    def hint(self, kind: FileKind) -> bytes | None:
        """Return the bytes of an index; None if there is none or it cannot be read, which is logged."""
        try:
            return self.companion(kind)
        except (StorageError, CorruptionError) as error:
            _log.warning("%s; the segment is read without it", printable(str(error)))
            return None

    def companion(self, kind: FileKind) -> bytes | None:
        """Return the bytes of an index of this segment, also if it was renamed to `.deleted`; None if there is none.

        Raises
        ------
        StorageError
            If it cannot be read.
        CorruptionError
            If it is too large for an index.
        """
        listed = self.companions.get(kind)
        for path in () if listed is None else (listed, listed + DELETED):
            try:
                return self.files.read_all(path)
            except StorageError as error:
                if not is_missing(error):
                    raise
        return None


def beside(path: str, kind: FileKind) -> str:
    """Return the path of an index of the segment at a path, whether it is there or not."""
    stem, _, suffix = path.rpartition(FileKind.LOG.value)
    return f"{stem}{kind.value}{suffix}"


def uploaded_end(files: FileSystem, path: str) -> int | None:
    """Return where a segment of a tier ends by its manifest, -1 if it is not known; None of a segment on a disk.

    One of a tier is sealed, also if no other follows it.
    """
    slice_of = getattr(files, "slice_of", None)
    try:
        found = None if slice_of is None else slice_of(path)
    except StorageError:  # it is not there any more
        return None
    return None if found is None else int(found.end_offset)


def _only(files: FileSystem, paths: Iterable[str]) -> FileSystem:
    """Return a file system with no more than some paths of it, if it would send another process all that it knows."""
    only = getattr(files, "only", None)
    return files if only is None else only(paths)


class OtherFile(NamedTuple):
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
    segments : sequence of Segment
        Live ones, by base offset. Where a crash interrupted a replacement of segments, those that a load leaves: a file
        may be a `.swap` one then.
    others : sequence of OtherFile
        Checkpoints, snapshots, files with a suffix (`.deleted`, `.cleaned`, `.swap`), and segments that a load replaces
        by `.swap` files.
    log_start_offset : int
        From the log directory's checkpoint, or the first segment's base offset if that is higher.
    error : StorageError or None
        Why the folder cannot be listed; then `segments` is empty.
    """

    files: FileSystem = field(repr=False)
    topic: str
    partition: int
    path: str
    state: str
    segments: Sequence[Segment] = field(repr=False)
    others: Sequence[OtherFile] = field(repr=False)
    log_start_offset: int
    error: StorageError | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is sent: of a tier, only what it has of this partition."""
        return {**self.__dict__, "files": _only(self.files, [self.path])}

    @property
    def name(self) -> str:
        """Topic and partition as in the folder's name."""
        return self.files.split(self.path)[1]

    def __repr__(self) -> str:
        """Return a short text with name and path."""
        state = f", {self.state}" if self.state else ""
        count = len(self.segments)
        said = "unreadable" if self.error else f"{count} segment{'' if count == 1 else 's'}, {self.size:,} bytes"
        return f"<pylogseg.Partition {self.topic}-{self.partition}{state}: {said}, {self.path}>"

    @property
    def is_live(self) -> bool:
        """True if it has no state: it is not pending deletion, not being moved here, and not a stray."""
        return not self.state

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
    not_topics: tuple[str, ...] = ()  #: Names of folders that are a partition's by their ends, and no topic's.


@dataclass(frozen=True)
class Disk:
    """Everything that was found under the paths given to `open_dir`.

    Attributes
    ----------
    log_dirs : tuple of LogDir
    partitions : tuple of Partition
        Of all log directories and of partition folders named by themselves; by topic and number.
    loose : tuple of Segment
        Single files.
    noted : tuple of Note
        The problems of `notes`, each with what it is about.
    is_named : bool
        True if the partitions were named, or given one by one: then those with a state are read too.

    Iterate over it for its partitions; ``disk["orders"]`` selects those of a topic or a pattern, like `select`.
    """

    log_dirs: tuple[LogDir, ...]
    partitions: tuple[Partition, ...]
    loose: tuple[Segment, ...] = ()
    noted: tuple[Note, ...] = field(default=(), repr=False)
    is_named: bool = False

    def __repr__(self) -> str:
        """Return a short text with counts."""
        counts = [(len(self.log_dirs), "log directory", "log directories"), (len(self.topics), "topic", "topics"),
                  (len(self.partitions), "partition", "partitions"), (len(self.loose), "file", "files")]  # fmt: skip
        parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
        return f"<pylogseg.Disk: {', '.join(parts) or 'empty'}>"

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __bool__(self) -> bool:
        return bool(self.partitions or self.loose)

    def __getitem__(self, name: str) -> Disk:
        return self.select(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems that were skipped, like unreadable log start offsets, so that deleted records show.

        Those of the selected partitions; one that several have is one line. `open_dir` logs them as warnings.
        """
        return tuple(note_lines(self.noted))

    @property
    def unknown_starts(self) -> tuple[CorruptionError | StorageError, ...]:
        """Why it is not known where logs start."""
        return tuple(note.error for note in self.noted if note.error is not None)

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
        """The segments of all live partitions, then the single files."""
        for partition in self.partitions:
            if not partition.state:
                yield from partition.segments
        yield from self.loose

    def select(self, topic: str | Sequence[str] | None = None, partition: int | Sequence[int] | None = None) -> Disk:
        """Select partitions by names or patterns, by numbers, or by both.

        Parameters
        ----------
        topic : str or sequence of str, optional
            A topic (``orders``), a partition (``orders-3``), a folder's whole name (``orders-3.…-stray``), or a shell
            pattern for any of these; of several, what any of them selects. All if left out.
        partition : int or sequence of int, optional
            Only partitions with these numbers; those with a state (``stray``) only if they are named.

        Raises
        ------
        RequestError
            If a name or a number matches nothing; the message lists what there is.
        """
        choice = PartitionChoice.of(topic, partition)
        found = self._of_names(choice.names) if choice.names else self
        found = self._of_numbers(found, choice) if choice.numbers else found
        if choice.is_all or not self.noted:
            return found
        paths, topics = [p.path for p in found.partitions], {p.topic for p in found.partitions}
        return replace(found, noted=tuple(note for note in self.noted if note.is_about(choice.takes, paths, topics)))

    @staticmethod
    def _of_numbers(found: Disk, choice: PartitionChoice) -> Disk:
        there = [p for p in found.partitions if found.is_named or not p.state]
        choice.check_numbers([p.partition for p in there] + [segment.partition for segment in found.loose])
        return replace(
            found,
            partitions=tuple(p for p in there if choice.has_number(p.partition)),
            loose=tuple(segment for segment in found.loose if choice.has_number(segment.partition)),
        )

    def _of_names(self, names: Iterable[str]) -> Disk:
        chosen: dict[str, Partition] = {}
        loose: dict[str, Segment] = {}
        for name in names:
            asked, files = self._asked(name), [s for s in self.loose if _is_of(s, name)]
            if not asked and not files:
                raise not_here(name, (p.name for p in self.partitions))
            chosen.update((p.path, p) for p in asked)
            loose.update((segment.path, segment) for segment in files)
        return replace(self, partitions=tuple(chosen.values()), loose=tuple(loose.values()), is_named=True)

    def has(self, name: str) -> bool:
        """Check whether a name or pattern matches something; see `select`."""
        return bool(self._asked(name)) or any(_is_of(segment, name) for segment in self.loose)

    def _asked(self, name: str) -> list[Partition]:
        return [p for p in self.partitions if is_asked(p.name, parse_partition_folder(p.name), name)]


def _is_of(segment: Segment, name: str) -> bool:
    """Check whether a single file belongs to a partition that a name selects."""
    folder = f"{segment.topic}-{segment.partition}"
    return bool(segment.topic) and is_asked(folder, parse_partition_folder(folder), name)


_Item = TypeVar("_Item", Segment, Partition, LogDir)


def as_disk(of: str | os.PathLike[str] | Sequence[Any] | Disk | Partition) -> Disk:
    """Return a disk from an argument of `pylogseg.read`: a disk, partitions, or an argument of `open_dir`."""
    if isinstance(of, Disk):
        return of
    if isinstance(of, Partition):
        return Disk((), (of,), is_named=True)
    if not isinstance(of, (str, os.PathLike)):
        partitions = [each for each in of if isinstance(each, Partition)]
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
        The URL of the tier of these disks: each partition begins with its uploaded segments, and what lies on the disk
        follows.
    memory_map : bool
        Map the files of batches of this machine instead of reading them, for whatever reads this disk. Only for files
        that nobody cuts, such as a backup, a snapshot or a tier: the system ends a process that touches a mapped page
        which was cut off, or which the disk cannot read.

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
    return _opened([*paths, *more], storage_options, tier, memory_map=memory_map)


def open_later(paths: Sequence[str], *, tier: str | None = None, memory_map: bool = False) -> Disk:
    """Open paths like `open_dir`, but list the files of a partition's folder when they are first asked for.

    Only names are looked at before, and none is listed later whose folder is being changed. What the disk of another
    machine has is listed at once.
    """
    return _opened(paths, None, tier, memory_map=memory_map, is_later=True)


def _opened(
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
    with uncollected():
        for item in paths:
            files, pattern = file_system(item, storage_options, memory_map=memory_map)
            if joined is not None:
                if not isinstance(files, LocalFiles):
                    raise RequestError(f"{item}: a tier is joined with disks of this machine, not with a URL")
                files = joined
            else:
                notes += getattr(files, "notes", ())
            named = len(partitions)
            for found in files.glob(pattern) or [pattern]:
                _look(files, found, log_dirs, partitions, loose, notes, is_later=is_later and type(files) is LocalFiles)
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
    """Return what `open_dir` finds in one folder of a file system that is open already; errors are the same."""
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
    contents = look(files if names is None else names, path, files.split(path)[1], entries)
    if contents.is_ambiguous:
        raise ambiguous(path, entries)
    if contents.is_partition and not is_beside_log_dirs(files, path, entries):
        partitions.append(_partition(files, path, settled(files, path, entries), log_start(files, path, notes)))
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
                partitions.append(_partition(files, folder, settled(files, folder, inside), start))
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
    """Return a partition whose files are listed when they are asked for; at once while somebody changes them."""

    def listed() -> Partition:
        try:
            return _partition(files, path, settled(files, path, files.list_folder(path)), log_start_offset)
        except StorageError as error:
            if not is_missing(error):
                raise
            return _partition(files, path, [], log_start_offset)  # deleted by the broker since

    ending = FileKind.LOG.value
    logs = [parse_file_name(name) for name, *_ in names if name.endswith(ending)]
    bases = [name.offset for name in logs if name.offset is not None]
    if not bases or not is_settled(files, path, names):
        return listed()
    once = Once(listed)
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
    beside = _partition(files, folder, settled(files, folder, files.list_folder(folder)), 0)
    for segment in beside.segments:
        if segment.name == last_name:
            return segment
    return Segment(files, path, name.offset, entry.size, entry.modified_ms, True, topic, number)
