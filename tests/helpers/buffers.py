"""Every kind of buffer that a kernel must take, made from the same bytes."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np


def mapped(data: bytes) -> Any:
    """The bytes as a memory map (of a file; an empty one cannot be mapped)."""
    if not data:
        return b""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ)


def read_only(data: bytes) -> Any:
    """The bytes as a numpy array that must not be written."""
    array = np.frombuffer(data, np.uint8)
    assert not array.flags.writeable
    return array


def inside(data: bytes) -> Any:
    """The bytes as a view that begins and ends in the middle of a larger buffer."""
    return memoryview(b"\xff" * 7 + data + b"\xff" * 9)[7 : 7 + len(data)]


BUFFERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "inside": inside,
    "mmap": mapped,
    "numpy": lambda data: np.frombuffer(bytearray(data), np.uint8),
    "read-only numpy": read_only,
}
