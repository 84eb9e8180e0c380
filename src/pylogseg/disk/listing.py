"""One consistent listing of a partition's folder that somebody writes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from pylogseg.env.filesystem import Entry, FileSystem, LocalFiles
from pylogseg.format.names import FileKind, parse_file_name

#: A folder whose names have not changed for this long is not being written to.
_QUIET_MS = 2000
_RENAMES_S = 0.005
MOST_LISTINGS = 100


def settled(files: FileSystem, path: str, entries: list[Entry]) -> list[Entry]:
    """Return consistent entries of a partition's folder; list it again while a writer is changing it.

    A listing is not atomic: it may lack a file that was made meanwhile, and have one that was made after that. Of a log
    that grows, what is up to the last segment of the first listing stays; segments that are newer are left out. While a
    cleaning replaces segments, neither the old nor the new ones have their names for a few renames. If a crash left the
    folder like that, the entries are returned as they are: see `pylogseg.disk.swaps`.
    """
    if not isinstance(files, LocalFiles) or _is_quiet(files, path):
        return entries
    known, last = {entry.name for entry in entries}, _last_base(entries)
    for _ in range(MOST_LISTINGS):
        before, listed = entries, files.list_folder(path)
        entries = _up_to(last, listed, known)
        if _last_base(entries) < 0 <= _last_base(listed):  # the log begins again, above all that it had
            entries, known, last = listed, {entry.name for entry in listed}, _last_base(listed)
        elif any(entry.name.endswith(".swap") for entry in entries):
            time.sleep(_RENAMES_S)
        elif [entry.name for entry in before] == [entry.name for entry in entries]:
            break
        if _is_quiet(files, path):
            break
    return entries


def is_settled(files: FileSystem, path: str, entries: Iterable[Entry]) -> bool:
    """Check whether nobody is changing a folder of a partition, and nobody was interrupted in it."""
    return not any(entry.name.endswith(".swap") for entry in entries) and _is_quiet(files, path)


def _is_quiet(files: FileSystem, path: str) -> bool:
    return time.time() * 1000 - files.stat(path).modified_ms > _QUIET_MS


def _last_base(entries: Iterable[Entry]) -> int:
    """Return the base offset of the last segment; -1 without one. An index alone counts: its log was just made."""
    names = (parse_file_name(entry.name) for entry in entries)
    bases = (name.offset for name in names if name.kind is FileKind.LOG or name.kind.is_index)
    return max((base for base in bases if base is not None), default=-1)


def _up_to(last: int, entries: Iterable[Entry], known: Collection[str]) -> list[Entry]:
    """Return the entries that are known, and those of segments up to a base offset."""
    kept = []
    for entry in entries:
        name = parse_file_name(entry.name)
        if entry.name in known or not name.kind.is_segment_file or (name.offset or 0) <= last:
            kept.append(entry)
    return kept
