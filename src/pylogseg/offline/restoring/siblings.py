"""The other log directories of a broker: a partition that lies in one of them is not restored into another."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

from pylogseg.disk.small_files import FileState, read_meta_properties
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder


class _Sibling(NamedTuple):
    """A log directory beside one, of the same broker as far as its `meta.properties` tells."""

    path: str
    problem: str  #: Why it is not known whose it is; empty where it is the same broker's.

    @property
    def partitions(self) -> set[str]:
        """The names of its partitions; without `meta.properties`, only of folders with a segment."""
        try:
            names = {e.name for e in os.scandir(self.path) if e.is_dir() and parse_partition_folder(e.name)}
            return {name for name in names if not self.problem or _has_segment(os.path.join(self.path, name))}
        except OSError as error:
            raise StorageError(self.path, "list", error.strerror or str(error), error.errno) from error


def _siblings(log_dir: str, sources: Collection[str]) -> list[_Sibling]:
    """Return the log directories beside one with its cluster and node, or without `meta.properties`."""
    files, root = LocalFiles(), os.path.realpath(log_dir)
    own = read_meta_properties(files, root)
    if own.state is FileState.ABSENT:  # a folder that becomes a log directory of whichever broker
        return []
    left = {root, *map(os.path.realpath, sources)}
    try:
        paths = sorted(entry.path for entry in os.scandir(os.path.dirname(root)) if entry.is_dir())
    except OSError:  # then nobody can tell
        return []
    siblings = []
    for path in paths:
        if os.path.realpath(path) not in left:
            other = read_meta_properties(files, path)
            problem = own.problem or other.problem
            if problem or (own.value is not None and other.value is not None and other.value[1:3] == own.value[1:3]):
                siblings.append(_Sibling(path, problem))
    return siblings


def refuse_second_copies(log_dir: str, names: Iterable[str], sources: Collection[str]) -> None:
    """Raise RequestError for a partition that another log directory of the broker has: no broker starts with two.

    One that this directory has already does not become a second copy. `sources` are the folders that a restore reads.
    A directory that has it, and does not say whose it is, may be the broker's.
    """
    wanted = {name for name in names if not os.path.exists(os.path.join(log_dir, name))}
    for sibling in _siblings(log_dir, sources) if wanted else ():
        twice = sorted(wanted & sibling.partitions)
        if not twice:
            continue
        first = f"{twice[0]} and {len(twice) - 1:,} more" if len(twice) > 1 else twice[0]
        backup = f"If {sibling.path} is a backup that no broker opens, move it to another folder first"
        if sibling.problem:
            raise RequestError(
                f"{first}: {sibling.path} has it, and may be a log directory of the same broker, which starts with no "
                f"second copy: {sibling.problem}. Bring that file back. {backup}"
            )
        raise RequestError(
            f"{first}: {sibling.path}, another log directory of the same broker, has it, and no broker starts with two "
            f"copies: restore it into {sibling.path}, and the others by their names. {backup}"
        )


def _has_segment(folder: str) -> bool:
    return any(parse_file_name(name).kind is FileKind.LOG for name in os.listdir(folder))
