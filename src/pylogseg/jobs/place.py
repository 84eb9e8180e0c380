"""What a path names: a log directory with its partitions, or the folder of one partition."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from dataclasses import dataclass

from pylogseg.env.files import Entry
from pylogseg.env.overlay import FileChange, OverlayStorage
from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError
from pylogseg.files.status import parse_clean_shutdown
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_file_name, parse_partition_folder

#: A folder that every broker with tiered storage has and no loader looks at.
_KNOWN_FOLDERS = ("remote-log-index-cache",)
_OF_LOG_DIR = (FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN, FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS)


@dataclass(frozen=True)
class Place:
    """A log directory, or one partition of it, or a partition's folder by itself.

    Attributes
    ----------
    parent : str
        The folder that holds the folders of partitions.
    names : tuple of str
        Those folders; of a log directory all that a broker would look at, in no order.
    log_dir : str or None
        The log directory, which is `parent`; None for a partition's folder that lies in none.
    is_whole : bool
        Whether the path names the log directory itself.
    """

    parent: str
    names: tuple[str, ...]
    log_dir: str | None
    is_whole: bool

    @classmethod
    def find(cls, storage: Storage, path: str) -> Place:
        """Look at what a path names.

        Raises
        ------
        RequestError
            If the folder is neither a log directory nor a partition's.
        StorageError
            If it cannot be read.
        """
        path = path.rstrip(os.sep) or os.sep
        entries = storage.list_folder(path)
        above, name = os.path.dirname(path) or os.curdir, os.path.basename(os.path.abspath(path))
        if os.path.basename(path) != name:  # "." and the like
            above = storage.split(path)[0]
        if is_partition(entries):
            return cls(above, (name,), above if is_log_dir(storage.list_folder(above)) else None, False)
        if is_log_dir(entries) or any(e.is_dir and parse_partition_folder(e.name) for e in entries):
            return cls(path, tuple(e.name for e in entries if e.is_dir and e.name not in _KNOWN_FOLDERS), path, True)
        raise RequestError(
            f"{path}: neither a log directory nor the folder of a partition: {_advice(storage, path, entries)}"
        )

    def reason_to_leave(self, name: str) -> str:
        """Why a broker would not load a folder when it starts; empty if it would."""
        folder = parse_partition_folder(name)
        if folder is None:
            return "no partition has such a name: a broker refuses to start on it" if self.is_whole else ""
        if folder.state == "delete":
            return "it waits for its removal"
        if self.is_whole and folder.topic == METADATA_TOPIC:
            return "the metadata of the cluster, which its controller recovers at every start"
        return ""

    def chosen(self, topics: Iterable[str] = (), partitions: Iterable[int] = ()) -> list[str]:
        """The folders that names and numbers ask for, in the order of their names.

        Parameters
        ----------
        topics : iterable of str
            Topics (``orders``), partitions (``orders-3``), whole names of folders, or shell patterns for any of these;
            none means all.
        partitions : iterable of int
            Numbers; none means all.

        Raises
        ------
        RequestError
            If a name or a number asks for something that is not there.
        """
        names, asked = sorted(self.names), list(topics)
        found = set() if asked else set(names)
        for topic in asked:
            matching = [name for name in names if _is_meant(name, topic)]
            if not matching:
                raise RequestError(f"no topic or partition {topic!r} in {self.parent}; there are: {_some(names)}")
            found.update(matching)
        for number in (numbers := set(partitions)):
            if not any(_number(name) == number for name in found):
                raise RequestError(f"no partition {number} of what was asked for in {self.parent}")
        return [name for name in names if name in found and (not numbers or _number(name) in numbers)]

    def changes(self, storage: OverlayStorage) -> list[FileChange]:
        """What a dry run would change, with paths as they were given."""
        top = os.path.abspath(self.parent)
        return [
            change._replace(path=storage.join(self.parent, os.path.relpath(change.path, top)))
            for change in storage.changes()
        ]


def marked_epoch(storage: Storage, log_dir: str) -> int | None:
    """The broker epoch of the marker of an orderly stop; None if it says none, or there is no marker."""
    path = storage.join(log_dir, FileKind.CLEAN_SHUTDOWN.value)
    return parse_clean_shutdown(storage.read_all(path)) if storage.exists(path) else None


def is_partition(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these names in it is a partition's."""
    names = [parse_file_name(entry.name) for entry in entries if not entry.is_dir]
    return any(name.kind.is_segment_file or name.kind is FileKind.LEADER_EPOCHS for name in names)


def is_log_dir(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these names in it has a file that only log directories have."""
    return any(parse_file_name(entry.name).kind in _OF_LOG_DIR for entry in entries if not entry.is_dir)


def _advice(storage: Storage, path: str, entries: Iterable[Entry]) -> str:
    inside = [storage.join(path, entry.name) for entry in entries if entry.is_dir]
    found = [folder for folder in inside if is_log_dir(storage.list_folder(folder))]
    if found:
        return f"name one of {', '.join(found)}"
    return "there are no files named <20 digits>.log and no folders named <topic>-<partition> here"


def _is_meant(name: str, asked: str) -> bool:
    folder = parse_partition_folder(name)
    if name == asked or fnmatch.fnmatchcase(name, asked):
        # A pattern for topics does not mean what is being deleted or moved: that has to be said.
        return folder is None or not folder.state or asked.endswith(f"-{folder.state}")
    return folder is not None and not folder.state and fnmatch.fnmatchcase(folder.topic, asked)


def _number(name: str) -> int | None:
    folder = parse_partition_folder(name)
    return None if folder is None else folder.partition


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(names[:12]) or "none") + more
