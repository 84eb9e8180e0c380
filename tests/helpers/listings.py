"""Folders that list their names in any order: each file system has its own, and none of them promises one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any


class _Shuffled:
    """What `os.scandir` returns, with all entries read and in another order."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self._entries

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> _Shuffled:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def shuffle(seed: str) -> None:
    """Let `os.scandir` and `os.listdir`, and so `pathlib`, `os.walk` and `shutil`, list in an order of ``seed``."""
    draw = random.Random(seed)
    scandir, listdir = os.scandir, os.listdir

    def scan(path: Any = ".") -> _Shuffled:
        with scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        draw.shuffle(found)
        return _Shuffled(found)

    def names(path: Any = ".") -> list[Any]:
        found = sorted(listdir(path))
        draw.shuffle(found)
        return found

    os.scandir, os.listdir = scan, names  # type: ignore[assignment]
