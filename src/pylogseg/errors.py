"""Every error that pylogseg raises, and the words for what a scan found.

The classes tell who is wrong: the bytes (`CorruptionError`), the caller (`RequestError`), the disk (`StorageError`).
"""

from __future__ import annotations

import enum
from os import PathLike
from typing import Any


class PylogsegError(Exception):
    """Base of all errors of this package."""


class RequestError(PylogsegError, ValueError):
    """The caller asked for something that cannot be; nothing was changed."""


class ClosedError(PylogsegError):
    """The object was closed before it was used."""


class StorageError(PylogsegError, OSError):
    """The disk, or what stands for it, failed.

    Parameters
    ----------
    path : str
        The file or folder.
    operation : str
        What was tried, as a verb: ``"read"``, ``"open"``, ``"list"``.
    reason : str
        What the system said.
    """

    def __init__(self, path: str | PathLike[str], operation: str, reason: str) -> None:
        super().__init__(f"{path}: cannot {operation}: {reason}")
        self.path = str(path)
        self.operation = operation
        self.reason = reason


class CorruptionError(PylogsegError):
    """Bytes on disk are not what the format allows.

    Parameters
    ----------
    path : str
        The file, or a description of the buffer.
    position : int
        Byte position of the damaged structure in that file.
    reason : str
        What is wrong, with the value that was found, and where it helps the remedy.
    offset : int, optional
        The offset from which records are missing, where it is known.
    """

    def __init__(self, path: str | PathLike[str], position: int, reason: str, offset: int | None = None) -> None:
        where = f"{path}: at position {position}" + (f", offset {offset}" if offset is not None else "")
        super().__init__(f"{where}: {reason}")
        self.path = str(path)
        self.position = position
        self.reason = reason
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.position, self.reason, self.offset))


class Verdict(enum.IntEnum):
    """What was found out about one batch: the column ``verdict`` of a batch table."""

    GOOD = 0
    UNCHECKED = 1
    CRC_BAD = 2
    RECORDS_BAD = 3


class Ending(enum.IntEnum):
    """How a scan ended, at the position it reports."""

    COMPLETE = 0
    """The bytes end where a batch ends."""
    MORE = 1
    """The limit of rows was reached; the scan can go on from there."""
    TORN = 2
    """The last batch is cut off by the end of the bytes: a crash in the middle of a write. News, not an alarm."""
    ZEROS = 3
    """Only zero bytes follow: a preallocated or extended tail."""
    BAD_LENGTH = 4
    """A length that no batch can have: corruption."""
    UNKNOWN_MAGIC = 5
    """A magic byte other than 0, 1 and 2."""
    FOREIGN = 6
    """Another program's format (Redpanda's)."""
