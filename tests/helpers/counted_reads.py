"""Bytes that were asked of the storage."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pylogseg.env import filesystem
from pylogseg.reading import header_reader


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return what collects the bytes read, by the ending of the file's name, from now on."""
    found: Counter[str] = Counter()

    class Counting(filesystem.PositionedFile):
        def read(self, position: int, size: int) -> bytes:
            data = super().read(position, size)
            found[self.path.rpartition(".")[2]] += len(data)
            return data

        def read_into(self, position: int, memory: memoryview) -> int:
            done = super().read_into(position, memory)
            found[self.path.rpartition(".")[2]] += done
            return done

    by_header = header_reader.read_headers

    def read_headers(*args: Any) -> tuple[int, int]:
        count, end = by_header(*args)
        found["headers"] += 61 * count
        return count, end

    whole = filesystem.LocalFiles.read_all

    def read_all(self: Any, path: str) -> bytes:
        data = whole(self, path)
        found[path.rpartition(".")[2]] += len(data)
        return data

    monkeypatch.setattr(header_reader, "read_headers", read_headers)
    monkeypatch.setattr(filesystem, "PositionedFile", Counting)
    monkeypatch.setattr(filesystem.LocalFiles, "read_all", read_all)
    return found
