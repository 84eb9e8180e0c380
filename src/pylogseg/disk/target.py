"""Resolve a path to a log directory with its partitions, or to the folder of one partition."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.folders import (
    ambiguous,
    classify,
    has_log_dir_files,
    is_asked,
    is_log_dir_inside,
    not_here,
    refuse_archive,
    refuse_unfinished,
)
from pylogseg.env.filesystem import Entry
from pylogseg.env.locks import check_unlocked
from pylogseg.env.overlay import FileChange, OverlayStorage
from pylogseg.env.storage import Storage
from pylogseg.env.urls import refuse_cluster
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.status import parse_clean_shutdown
from pylogseg.format.names import METADATA_TOPIC, FileKind, is_topic, parse_partition_folder

#: The folder of tiered storage, which is no partition.
_KNOWN_FOLDERS = ("remote-log-index-cache",)


#: Why the metadata of a cluster is left alone.
METADATA_REASON = "the metadata of the cluster, which its controller recovers at every start"

#: Why a folder is left alone that is named like a partition.
NOT_A_TOPIC = "no topic can have the name"


@dataclass(frozen=True)
class Target:
    """A log directory, one partition in it, or a partition's folder outside of a log directory."""

    parent: str  #: The folder of the partition folders.
    names: tuple[str, ...]  #: Of the partition folders; for a log directory all that a broker would load, in no order.
    log_dir: str | None  #: Which is `parent`; None for a partition's folder outside of a log directory.
    is_whole: bool  #: True if the path names the log directory itself.
    error: StorageError | None = None  #: Why a folder beside log directories cannot be read.

    @classmethod
    def find(cls, storage: Storage, path: str) -> Target:
        """Resolve a path; RequestError if the folder is neither a log directory nor a partition's."""
        places = cls.find_all(storage, path)
        if len(places) > 1:
            raise RequestError(f"{path}: holds {len(places)} log directories; name one of {_paths(places)}")
        return places[0]

    @classmethod
    def find_all(cls, storage: Storage, path: str) -> list[Target]:
        """Resolve a path, which may be a folder of log directories; RequestError if it is neither, or ambiguous."""
        if not path:  # an unset shell variable must not mean the root
            raise RequestError("the path is empty: name a log directory, or the folder of a partition")
        refuse_cluster(path)
        path = path.rstrip(os.sep) or os.sep
        entries = storage.list_folder(path)
        above, name = os.path.dirname(path) or os.curdir, os.path.basename(os.path.abspath(path))
        if os.path.basename(path) != name:  # "." and the like
            above = storage.split(path)[0]
        contents = classify(storage, path, name, entries)
        if contents.is_ambiguous:
            raise ambiguous(path, entries)
        if contents.is_partition and entries:
            is_log_dir = above if has_log_dir_files(storage.list_folder(above)) else None
            refuse_unfinished(storage, above)
            return [cls(above, (name,), is_log_dir, False)]
        if contents.is_log_dir and not contents.log_dirs:
            refuse_unfinished(storage, path)
            names = tuple(e.name for e in entries if e.is_dir and e.name not in _KNOWN_FOLDERS)
            return [cls(path, names, path, True)]
        if contents.is_log_dir:
            raise RequestError(
                f"{path}: partitions and log directories ({', '.join(contents.log_dirs)}) lie side by side here: "
                "name the log directory, or the partition, that is meant"
            )
        inside = [place for folder in contents.log_dirs for place in cls.find_all(storage, storage.join(path, folder))]
        if not inside:
            refuse_archive(path, [entry.name for entry in entries])
            raise RequestError(
                f"{path}: neither a log directory nor the folder of a partition: "
                "there are no files named <20 digits>.log and no folders named <topic>-<partition> here"
            )
        return [*inside, *(cls(error.path, (), error.path, True, error) for error in contents.unreadable.values())]

    def reason_to_skip(self, name: str) -> str:
        """Return why a broker would not load a folder when it starts; empty if it would."""
        folder = parse_partition_folder(name)
        if folder is None:
            return "not the name of a partition: a broker refuses to start with it" if self.is_whole else ""
        if self.log_dir is not None and not is_topic(folder.topic):
            return NOT_A_TOPIC
        if folder.state == "delete":
            return "pending deletion"
        if self.is_whole and folder.topic == METADATA_TOPIC:
            return METADATA_REASON
        return ""

    def check(self, storage: Storage, name: str) -> None:
        """Refuse a folder that is a log directory, even if it is named like a partition."""
        path = storage.join(self.parent, name)
        entries = storage.list_folder(path)
        if is_log_dir_inside(storage, path, entries):
            raise RequestError(f"{path}: this is a log directory, not a partition: name it directly")
        if has_log_dir_files(entries):
            raise ambiguous(path, entries)

    def chosen(self, choice: PartitionChoice) -> list[str]:
        """Select folders by names (see `is_asked`) and numbers, in the order of their names.

        Raises RequestError if one matches nothing, or a name is that of a partition and of a topic.
        """
        names = sorted(self.names)
        selected = set() if choice.names else set(names)
        for topic in choice.names:
            matching = [name for name in names if is_asked(name, parse_partition_folder(name), topic)]
            if not matching:
                raise not_here(topic, names, f"in {self.parent}")
            if topic in matching and len(matching) > 1:
                self._refuse_two_meanings(topic, matching)
            selected.update(matching)
        for number in choice.numbers:
            if not any(_number(name) == number for name in selected):
                raise RequestError(f"no partition {number} among those selected in {self.parent}")
        return [name for name in names if name in selected and (not choice.numbers or _number(name) in choice.numbers)]

    def _refuse_two_meanings(self, asked: str, matching: list[str]) -> None:
        """Raise if ``orders-3`` is both partition 3 of ``orders`` and a topic."""
        others = [name for name in matching if (folder := parse_partition_folder(name)) and folder.topic == asked]
        if others:
            raise RequestError(
                f"{asked} in {self.parent} is a partition, and a topic with {others[0]}: "
                f"name the partition's folder as the path, or the topic's by a pattern, '{asked}-*'"
            )

    def changes(self, storage: OverlayStorage) -> list[FileChange]:
        """Return the changes of a dry run, with paths as they were given."""
        top = os.path.abspath(self.parent)
        return [
            change._replace(path=storage.join(self.parent, os.path.relpath(change.path, top)))
            for change in storage.changes()
        ]


def chosen_in(places: list[Target], choice: PartitionChoice) -> list[tuple[Target, list[str]]]:
    """Select folders in several log directories, see `Target.chosen`; directories without any are left out.

    Raises RequestError if a name or a number matches nothing, or a partition is in two of them.
    """
    if len(places) == 1:
        return [(places[0], places[0].chosen(choice))]
    every = tuple(dict.fromkeys(name for place in places for name in place.names))
    chosen = set(Target(_paths(places), every, None, True).chosen(choice))
    selected = [(place, sorted(chosen.intersection(place.names))) for place in places]
    seen: dict[str, Target] = {}
    for place, names in selected:
        for name in names:
            other = seen.setdefault(name, place)
            folder = parse_partition_folder(name)
            if other is not place and folder is not None and folder.topic != METADATA_TOPIC:
                raise RequestError(
                    f"{name} lies in {other.parent} and in {place.parent}: a broker refuses to start on both. "
                    "Name the log directory that is meant"
                )
    return [(place, names) for place, names in selected if names or place.error is not None]


def refuse_if_locked(places: Iterable[Target]) -> None:
    """Raise if a log directory is locked, before anything is done: a broker locks all its log directories.

    Disk errors are left to the later work on that directory.
    """
    for place in places:
        try:
            check_unlocked(place.parent)
        except StorageError as error:
            if error.__cause__ is None:
                raise


def moving_picture(folder: str) -> list[str]:
    """Return a note for a dry run if somebody is writing to the folder."""
    try:
        check_unlocked(folder)
    except StorageError as error:
        if error.__cause__ is None:
            owner = error.reason.partition(" has the lock")[0]
            return [f"{folder}: {owner} has the lock, a broker or another writer: the files may change meanwhile"]
    return []


def marked_epoch(storage: Storage, log_dir: str) -> int | None:
    """Return the broker epoch in the clean shutdown marker; None if there is none."""
    path = storage.join(log_dir, FileKind.CLEAN_SHUTDOWN.value)
    return parse_clean_shutdown(storage.read_all(path)) if storage.exists(path) else None


def _number(name: str) -> int | None:
    folder = parse_partition_folder(name)
    return None if folder is None else folder.partition


def _paths(places: list[Target]) -> str:
    return ", ".join(place.parent for place in places)


def sizes_in(storage: Storage, folder: str) -> list[Entry]:
    """Return the entries of a folder for a progress bar; none if it cannot be listed."""
    try:
        return storage.list_folder(folder)
    except StorageError:
        return []
