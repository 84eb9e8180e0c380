"""The files that a load leaves of a partition in which a replacement of segments was interrupted.

A cleaning, or a split, renames what it wrote from `.cleaned` to `.swap`, then the old segments to `.deleted`, then
takes `.swap` away. From the first step to the last a load finishes it, or undoes all of it; so who reads the folder
takes the files that the load would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pylogseg.env.filesystem import Entry, FileSystem
from pylogseg.errors import StorageError, is_missing
from pylogseg.format.names import FileKind, FileName, parse_file_name

_SWAP, _CLEANED = ".swap", ".cleaned"


class Swap(NamedTuple):
    """How a load finishes a replacement."""

    renamed: dict[str, str]  #: The final names of `.swap` files.
    replaced: frozenset[str]  #: Files without a suffix that go.

    def name_of(self, name: str) -> FileName | None:
        """Return a file's name after the load; None if the load deletes it."""
        return None if name in self.replaced else parse_file_name(self.renamed.get(name, name))


_NONE = Swap({}, frozenset())

#: A folder that never rests is listed so often.
MOST_LISTINGS = 100


def unfinished_swap(names: Iterable[str], end_of: Callable[[str, int], int]) -> Swap:
    """Return the renames by which a load would finish an interrupted replacement of segments.

    `end_of` returns the offset after the last record of a `.log.swap` file, by name and base offset.
    """
    names = list(names)
    if not any(name.endswith(_SWAP) for name in names):
        return _NONE
    parsed = {name: parse_file_name(name) for name in names}
    offsets = {name: file_name.offset for name, file_name in parsed.items() if file_name.offset is not None}
    # One that is still `.cleaned`: it, and all at or above it, were not complete.
    lowest = min((offset for name, offset in offsets.items() if parsed[name].suffix == _CLEANED), default=2**63)
    renamed = {
        name: name.removesuffix(_SWAP)
        for name, offset in offsets.items()
        if parsed[name].suffix == _SWAP and offset < lowest
    }
    logs = {name: offsets[name] for name in renamed if parsed[name].kind is FileKind.LOG}
    first = min(logs.values(), default=0)
    end = max((end_of(name, base) for name, base in logs.items()), default=0)
    finals = set(renamed.values())
    replaced = {
        name
        for name, offset in offsets.items()
        if not parsed[name].suffix and (first <= offset < end or name in finals)
    }
    return Swap(renamed, frozenset(replaced))


def with_swap(files: FileSystem, path: str, entries: list[Entry]) -> tuple[list[Entry], Swap]:
    """Return the entries of a partition's folder, and how a load ends a replacement of segments among them.

    Raises StorageError if the folder cannot be listed, or changes with each look.
    """

    def end_of(name: str, base: int) -> int:
        from pylogseg.walker.windows import next_offset_of

        with files.open(files.join(path, name), sealed=True) as view:
            return next_offset_of(view, base)

    for _ in range(MOST_LISTINGS):
        try:
            return entries, unfinished_swap([entry.name for entry in entries], end_of)
        except StorageError as error:
            if not is_missing(error):
                raise
        entries = files.list_folder(path)  # a broker has just ended it
    raise StorageError(path, "list", "segments are replaced faster than they can be looked at")
