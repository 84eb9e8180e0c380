"""The contents of a broker's disk as values, as `disk/listing.py` finds it by names."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pylogseg.disk.choice import PartitionChoice, is_unlisted
from pylogseg.disk.folders import is_asked, not_here
from pylogseg.disk.notes import Note, note_lines
from pylogseg.env.filesystem import FileSystem, FileView
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.escape import printable
from pylogseg.format.names import FileKind, FileName, parse_file_name, parse_partition_folder

if TYPE_CHECKING:
    from pylogseg.live.files import LiveFiles

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
        True for the active segment, to which a broker may be writing: the last one, and not in a tier.
    topic, partition : str, int
        ``""`` and -1 if the folder's name is no partition's.
    companions : dict of FileKind to str
        Paths of the existing indexes, and of the snapshot at the base offset.
    next_base : int or None
        Base offset of the next segment of the partition, where the offsets of this one end; None without one.
    largest_ms : int or None
        The greatest timestamp if a manifest has it, as for an uploaded segment.
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
        """Return the pickled form; from a tier it has only this segment's objects."""
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


def fetched_from(segment: Segment) -> LiveFiles | None:
    """Return the files of the cluster that a segment is fetched from; None for a segment elsewhere.

    Such a segment is a whole log, with the ends that it had when it was listed.
    """
    return cast("LiveFiles", segment.files) if is_cluster(segment.files) else None


def is_cluster(files: FileSystem) -> bool:
    """Check whether files belong to a running cluster, without loading the modules that ask one."""
    return hasattr(files, "ends_of")


def beside(path: str, kind: FileKind) -> str:
    """Return the path of an index of the segment at a path, whether it is there or not."""
    stem, _, suffix = path.rpartition(FileKind.LOG.value)
    return f"{stem}{kind.value}{suffix}"


def uploaded_end(files: FileSystem, path: str) -> int | None:
    """Return where a segment of a tier or a cluster ends, -1 if unknown; None of a segment on a disk.

    One of a tier is sealed, also if no other follows it, and so is one of a cluster.
    """
    if is_cluster(files):
        return int(cast("LiveFiles", files).ends_of(path).end)
    slice_of = getattr(files, "slice_of", None)
    try:
        piece = None if slice_of is None else slice_of(path)
    except StorageError:  # it is not there any more
        return None
    return None if piece is None else int(piece.end_offset)


def _only(files: FileSystem, paths: Iterable[str]) -> FileSystem:
    """Return a file system with only some paths, if pickling it would send its whole listing."""
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
        Live ones, by base offset. After a crash in the middle of a replacement, the segments that a load keeps: such a
        file may end in `.swap`.
    others : sequence of OtherFile
        Checkpoints, snapshots, files with a suffix (`.deleted`, `.cleaned`, `.swap`), and replaced segments.
    log_start_offset : int
        From the log directory's checkpoint, or a higher base offset of the first segment.
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
        """Return the pickled form; from a tier it has only this partition's objects."""
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
        """Skipped problems, such as an unreadable log start offset (then deleted records are read, too).

        Only problems of the selected partitions; equal problems of several are one line. `open_dir` logs them as
        warnings.
        """
        return tuple(note_lines(self.noted))

    @property
    def unknown_starts(self) -> tuple[CorruptionError | StorageError, ...]:
        """Why the log start offsets are unknown."""
        return tuple(note.error for note in self.noted if note.error is not None)

    @property
    def topics(self) -> dict[str, list[Partition]]:
        """Live partitions by topic."""
        by_topic: dict[str, list[Partition]] = {}
        for partition in self.partitions:
            if not partition.state:
                by_topic.setdefault(partition.topic, []).append(partition)
        return by_topic

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
        selected = self._of_names(choice.names) if choice.names else self
        selected = self._of_numbers(selected, choice) if choice.numbers else selected
        if choice.is_all or not self.noted:
            return selected
        paths, topics = [p.path for p in selected.partitions], {p.topic for p in selected.partitions}
        return replace(selected, noted=tuple(note for note in self.noted if note.is_about(choice.takes, paths, topics)))

    @staticmethod
    def _of_numbers(disk: Disk, choice: PartitionChoice) -> Disk:
        there = [p for p in disk.partitions if disk.is_named or not p.state]
        if not any(map(is_unlisted, there)):
            choice.check_numbers([p.partition for p in there] + [segment.partition for segment in disk.loose])
        return replace(
            disk,
            partitions=tuple(p for p in there if choice.has_number(p.partition) or is_unlisted(p)),
            loose=tuple(segment for segment in disk.loose if choice.has_number(segment.partition)),
        )

    def _of_names(self, names: Iterable[str]) -> Disk:
        chosen: dict[str, Partition] = {}
        loose: dict[str, Segment] = {}
        unlisted = [p for p in self.partitions if is_unlisted(p)]
        for name in names:
            asked, files = self._select_partitions(name), [s for s in self.loose if _is_of(s, name)]
            if not asked and not files and not unlisted:
                raise not_here(name, (p.name for p in self.partitions))
            chosen.update((p.path, p) for p in asked)
            loose.update((segment.path, segment) for segment in files)
            if not any(p.name == name for p in asked):  # it may have more of what was asked for
                chosen.update((p.path, p) for p in unlisted)
        return replace(self, partitions=tuple(chosen.values()), loose=tuple(loose.values()), is_named=True)

    def has(self, name: str) -> bool:
        """Check whether a name or pattern matches something; see `select`."""
        return bool(self._select_partitions(name)) or any(_is_of(segment, name) for segment in self.loose)

    def _select_partitions(self, name: str) -> list[Partition]:
        return [p for p in self.partitions if is_asked(p.name, parse_partition_folder(p.name), name)]


def _is_of(segment: Segment, name: str) -> bool:
    """Check whether a single file belongs to a partition that a name selects."""
    folder = f"{segment.topic}-{segment.partition}"
    return bool(segment.topic) and is_asked(folder, parse_partition_folder(folder), name)
