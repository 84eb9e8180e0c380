"""Files of a partition's folder that are listed when they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from pylogseg.env.filesystem import Entry, LocalFiles

T = TypeVar("T")


class Once:
    """What a function returns, which is called once, by the first thread that asks."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find, self._lock, self._found = find, threading.Lock(), None

    def __call__(self) -> Any:
        with self._lock:
            if self._found is None:
                self._found = self._find()
        return self._found


class Later(Sequence[T]):
    """A sequence that is not known before it is used; it is sent to other processes as a tuple."""

    def __init__(self, find: Callable[[], tuple[T, ...]]) -> None:
        self._find = find

    def __len__(self) -> int:
        return len(self._find())

    def __iter__(self) -> Iterator[T]:
        return iter(self._find())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._find()[at]

    def __eq__(self, other: object) -> bool:
        return self._find() == (tuple(other) if isinstance(other, Later) else other)

    def __hash__(self) -> int:
        return hash(self._find())

    def __reduce__(self) -> Any:
        return tuple, (list(self._find()),)


class Names:
    """A file system of this machine whose folders are listed by name: no size or time of a file is looked up."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self.join, self.read_all = files.join, files.read_all

    def list_folder(self, path: str) -> list[Entry]:
        """Return the names in a folder, without sizes and times."""
        return self._files.list_names(path)
