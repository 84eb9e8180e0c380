"""Classify folders (log directory, partition, folder of log directories), and match names of partitions.

All commands and readers use these functions, so that they agree. A folder is recognised by its contents; its name
counts only if these are ambiguous, since log directories have names such as ``data-0`` too.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pylogseg.env.filesystem import Entry, FileSystem
from pylogseg.errors import CorruptionError, RequestError, StorageError, is_missing
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind, PartitionFolder, parse_file_name, parse_partition_folder

if TYPE_CHECKING:
    pass

#: Folders in or around a log directory that are no partitions; only root can read the last one.
OTHER_FOLDERS = frozenset(["remote-log-index-cache", "lost+found"])
#: Files that only log directories have.
LOG_DIR_FILES = frozenset(
    kind.value
    for kind in FileKind
    if kind.is_offset_checkpoint or kind in (FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN)
)
_OF_PARTITION = frozenset([FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE, FileKind.CUTS])
_MANY = 12
#: Below a log directory in a store, while `restore` uploads to it: the names of partitions that are not whole. A broker
#: refuses to start with the folder.
RESTORING = "_pylogseg/restoring.json"


class Folders(Protocol):
    """An object that lists folders and reads files: a `FileSystem` or a `Storage`."""

    def list_folder(self, path: str) -> list[Entry]: ...
    def join(self, path: str, name: str) -> str: ...
    def read_all(self, path: str) -> Any: ...


@dataclass(frozen=True)
class Contents:
    """The classified contents of a folder."""

    is_log_dir: bool = False  #: By its files or by partitions in it.
    is_partition: bool = False
    log_dirs: tuple[str, ...] = ()  #: Names of the log directories in it, if it may be a folder of log directories.
    listed: dict[str, list[Entry]] = field(default_factory=dict)  #: Folders in it that were listed.
    unreadable: dict[str, StorageError] = field(default_factory=dict)  #: Folders in it that could not be listed.

    @property
    def is_ambiguous(self) -> bool:
        """True if it has files of a log directory and of a partition, and no partitions in it."""
        return self.is_log_dir and self.is_partition


def classify(folders: Folders, path: str, name: str, entries: Sequence[Entry]) -> Contents:
    """Classify a folder by its entries; `name` is the last part of its absolute path."""
    has_files = has_log_dir_files(entries)
    own = any(map(is_of_partition, entries))
    listed: dict[str, list[Entry]] = {}
    unreadable: dict[str, StorageError] = {}
    partitions: list[str] = []
    log_dirs: list[str] = []
    unclear: list[str] = []
    for entry in entries:
        is_named = parse_partition_folder(entry.name) is not None
        # Hidden folders are still being written.
        if not entry.is_dir or entry.name in OTHER_FOLDERS or (entry.name.startswith(".") and not is_named):
            continue
        if has_files and partitions:  # it is a log directory; the other folders are looked at later
            break
        inside = folders.join(path, entry.name)
        try:
            listed[entry.name] = names = folders.list_folder(inside)
        except StorageError as error:
            if not is_missing(error):
                unreadable[entry.name] = error
            continue
        if holds_partitions(folders, inside, names):
            log_dirs.append(entry.name)
        elif has_log_dir_files(names):
            (unclear if any(map(is_of_partition, names)) else log_dirs).append(entry.name)
        elif is_named and any(map(is_of_partition, names)):
            partitions.append(entry.name)
    if unclear and not partitions and not has_files:
        log_dirs += unclear
    if partitions or (has_files and not log_dirs):
        around = () if has_files else tuple(log_dirs)
        return Contents(True, own and not partitions, around, listed, unreadable)
    if log_dirs:
        return Contents(False, False, tuple(log_dirs), listed, unreadable)
    if any(map(parse_partition_folder, unreadable)):  # only their names are known
        return Contents(True, False, (), listed, unreadable)
    is_empty_one = not entries and parse_partition_folder(name) is not None
    return Contents(False, own or is_empty_one, (), listed, unreadable)


def is_beside_log_dirs(files: FileSystem, path: str, entries: list[Entry]) -> bool:
    """Check whether an empty folder is a log directory and not a partition, by the folders beside it."""
    if entries:
        return False
    parent, _ = files.split(path)
    try:
        around = classify(files, parent, files.split(parent)[1], files.list_folder(parent))
    except StorageError:
        return False
    return bool(around.log_dirs) and not around.is_log_dir


def refuse_unfinished(folders: Folders, log_dir: str) -> None:
    """Raise RequestError for a log directory with partitions that a restore did not finish."""
    path = log_dir
    for name in RESTORING.split("/"):
        path = folders.join(path, name)
    try:
        names = sorted(json.loads(bytes(folders.read_all(path)))["unfinished"])
    except StorageError:  # there is none, as a rule
        return
    raise RequestError(
        f"{log_dir}: a restore of {_few(names, 5)} did not finish, and this is not a log: run it again (or wait, "
        f"if it still runs; {path} says so)"
    )


def has_log_dir_files(entries: Sequence[Entry]) -> bool:
    """Check whether a folder has a file that only log directories have."""
    marks = LOG_DIR_FILES.intersection([entry.name for entry in entries])  # of very many names, as a rule none
    return bool(marks) and any(entry.name in marks and not entry.is_dir for entry in entries)


def holds_partitions(folders: Folders, path: str, entries: Iterable[Entry]) -> bool:
    """Check whether a folder has partition folders in it, by name and contents."""
    for entry in entries:
        if entry.is_dir and parse_partition_folder(entry.name) is not None:
            try:
                inside = folders.list_folder(folders.join(path, entry.name))
            except StorageError:
                continue
            if any(map(is_of_partition, inside)):
                return True
    return False


def is_log_dir_inside(folders: Folders, path: str, entries: Sequence[Entry]) -> bool:
    """Check whether a folder in a log directory, named like a partition, is a log directory itself."""
    if has_log_dir_files(entries) and not any(map(is_of_partition, entries)):
        return True
    return holds_partitions(folders, path, entries)


def is_of_partition(entry: Entry) -> bool:
    """Check whether it is a file that exists only in partition folders."""
    if entry.is_dir:
        return False
    name = parse_file_name(entry.name)
    is_snapshot = name.kind is FileKind.KRAFT_SNAPSHOT and name.offset is not None
    return name.kind.is_segment_file or name.kind in _OF_PARTITION or is_snapshot


def files_of_partition(entries: Iterable[Entry]) -> str:
    """List a few names of files that exist only in partition folders."""
    return _few([entry.name for entry in entries if is_of_partition(entry)], 3)


def ambiguous(path: str, entries: Iterable[Entry]) -> RequestError:
    """Return the error for a folder that may be a log directory or a partition's folder."""
    own = _few([entry.name for entry in entries if entry.name in LOG_DIR_FILES and not entry.is_dir], 3)
    return RequestError(
        f"{path}: a log directory ({own}) or the folder of a partition ({files_of_partition(entries)})? "
        "Move the files that do not belong there"
    )


def readable_topic_id(files: Folders, folder: str) -> str | None:
    """Return the topic id in a folder's `partition.metadata`; None if there is none, or it cannot be read."""
    path = files.join(folder, FileKind.PARTITION_METADATA.value)
    try:
        return parse_partition_metadata(files.read_all(path), path).topic_id
    except (CorruptionError, StorageError):
        return None


# ---- names ----


def is_asked(name: str, folder: PartitionFolder | None, asked: str) -> bool:
    """Check whether a topic, a partition, a folder's name, or a shell pattern for any of these selects a folder."""
    matches = name == asked or fnmatch.fnmatchcase(name, asked)
    if folder is None:
        return matches
    if folder.state:  # a pattern for topics does not select folders that are being deleted
        return matches and asked.endswith(f"-{folder.state}")
    return matches or folder.topic == asked or fnmatch.fnmatchcase(folder.topic, asked)


def not_here(asked: str, names: Iterable[str], where: str = "here") -> RequestError:
    """Return the error for a name that selects no partition, with suggestions out of `names`."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        folder = parse_partition_folder(name)
        if folder is not None and not folder.state:
            numbers.setdefault(folder.topic, []).append(folder.partition)
    said = f"no topic or partition {asked!r} {where}"
    named = parse_partition_folder(asked)
    if named is not None and named.topic in numbers:
        return RequestError(f"{said}; {named.topic} has {_few([str(n) for n in sorted(numbers[named.topic])])}")
    topics = sorted(numbers)
    similar = _similar(asked if named is None else named.topic, topics)
    hint = f" (did you mean {_few(similar)}?)" if similar else ""
    return RequestError(f"{said}{hint}; there are: {_few(topics)}")


def not_topics_here(names: Sequence[str]) -> str:
    """Return the note on folders in a log directory that are not read, since no topic can have their names."""
    return f"no topic can have the name of {_few(list(map(repr, names)), 5)}: not read (to read one, name it)"


def _similar(asked: str, topics: Sequence[str]) -> list[str]:
    """Return topics with similar names: first names that begin with the name or contain it, then similar spellings."""
    word = asked.strip("*").casefold()
    folded = {topic: topic.casefold() for topic in topics}
    holding = [topic for topic in topics if word and word in folded[topic]]
    holding.sort(key=lambda topic: not folded[topic].startswith(word))
    close = difflib.get_close_matches(word, folded.values(), n=3) if len(topics) <= 10_000 else []
    return list(
        dict.fromkeys([*holding, *(topic for spelled in close for topic in topics if folded[topic] == spelled)])
    )


def _few(names: Sequence[str], most: int = _MANY) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def nothing_here(path: str, entries: Iterable[Entry], *, is_local: bool) -> RequestError:
    """Return the error for a folder without a log; for an archive, it names the URL that reads it."""
    if is_local:
        refuse_archive(path, [entry.name for entry in entries])
    return RequestError(
        f"{path}: no Kafka log directory, partition folder or segment here "
        "(a log directory holds folders named <topic>-<partition>, and those files named <20 digits>.log)"
    )


def is_archive(names: Iterable[str]) -> bool:
    """Check whether a folder with these names is an archive with points."""
    return {"archive.json", "points"} <= set(names)


def refuse_archive(path: str, names: Iterable[str]) -> None:
    """Raise RequestError for a folder with these names if it is an archive: it says which URL reads it."""
    if is_archive(names):
        url = f"aiven+file://{os.path.abspath(path)}#latest"
        raise RequestError(f"{path}: this is an archive: name a point of it, such as '{url}' (in quotes)")
