"""The other log directories of a broker: a partition that lies in one of them is not restored into another."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from pylogseg.disk.small_files import read_meta_properties
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import parse_partition_folder


def _siblings(log_dir: str, sources: Collection[str]) -> list[str]:
    """Return the log directories beside one that have its cluster and its node, by their `meta.properties`."""
    files, root = LocalFiles(), os.path.realpath(log_dir)
    own = read_meta_properties(files, root).value
    if own is None or own.node_id is None:
        return []
    left = {root, *map(os.path.realpath, sources)}
    try:
        paths = sorted(entry.path for entry in os.scandir(os.path.dirname(root)) if entry.is_dir())
    except OSError:  # then nobody can tell
        return []
    others = {path: read_meta_properties(files, path).value for path in paths if os.path.realpath(path) not in left}
    return [path for path, of in others.items() if of is not None and of[1:3] == own[1:3]]


def refuse_second_copies(log_dir: str, names: Iterable[str], sources: Collection[str]) -> None:
    """Raise RequestError for a partition that another log directory of the broker has: no broker starts with two.

    One that this directory has already does not become a second copy. `sources` are the folders that a restore reads.
    """
    wanted = {name for name in names if not os.path.exists(os.path.join(log_dir, name))}
    for sibling in _siblings(log_dir, sources):
        twice = sorted(wanted & _partitions_in(sibling))
        if twice:
            more = f" and {len(twice) - 1:,} more" if len(twice) > 1 else ""
            raise RequestError(
                f"{twice[0]}{more}: {sibling}, another log directory of the same broker, has it, and no broker starts "
                f"with two copies: restore it into {sibling}, and the others by their names. If {sibling} is a backup "
                "that no broker opens, move it to another folder first"
            )


def _partitions_in(log_dir: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(log_dir) if entry.is_dir() and parse_partition_folder(entry.name)}
    except OSError as error:
        raise StorageError(log_dir, "list", error.strerror or str(error), error.errno) from error
