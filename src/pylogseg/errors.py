"""Every error that pylogseg raises, and the words for what a scan found.

The classes tell who is wrong: the bytes (`CorruptionError`), the caller (`RequestError`), the disk (`StorageError`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar


class PylogsegError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    kind : str
        What it is about, in one word that programs may compare.
    """

    kind: ClassVar[str] = "request"


class RequestError(PylogsegError, ValueError):
    """The caller asked for something that cannot be; nothing was changed."""


class OffsetOutOfRangeError(RequestError):
    """An offset below the log start, or above what may be read or removed."""

    kind = "offset_out_of_range"


class OutOfOrderSequenceError(RequestError):
    """A producer's sequence does not follow on what it wrote before."""

    kind = "out_of_order_sequence"


class FencedError(RequestError):
    """A newer producer or transaction coordinator has taken over."""

    kind = "fenced"


class TransactionStateError(RequestError):
    """A batch does not fit to the state of its producer's transaction."""

    kind = "transaction_state"


class TooLargeError(RequestError):
    """A batch above ``max.message.bytes``, or an append above ``segment.bytes``."""

    kind = "too_large"


class InvalidRecordError(RequestError):
    """A batch or record that breaks a rule of the log it is appended to.

    Parameters
    ----------
    reason : str
        What is wrong, with the values that were found.
    record_errors : sequence of (int, str)
        The records that are to blame, by their number in the batch, and why; empty if the batch is as a whole.
    """

    kind = "invalid_record"

    def __init__(self, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.record_errors = tuple(record_errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.record_errors))


class OffsetsOutOfOrderError(RequestError):
    """An append that keeps its offsets goes back, within itself or behind the end of the log."""

    kind = "offsets_out_of_order"


class ClosedError(PylogsegError):
    """The object was closed before it was used."""

    kind = "state"


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
    number : int, optional
        The system's number of the error, ``errno.ENOSPC`` for a full disk.

    Attributes
    ----------
    errno : int or None
        The same number.
    filename, strerror : str
        `path` and `reason`, as of any other OSError.
    """

    kind = "storage"

    def __init__(self, path: str | PathLike[str], operation: str, reason: str, number: int | None = None) -> None:
        super().__init__(f"{path}: cannot {operation}: {reason}")
        self.path = str(path)
        self.operation = operation
        self.reason = reason
        self.errno, self.filename, self.strerror = number, self.path, reason

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.operation, self.reason, self.errno))


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

    kind = "corrupt"

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


class CleaningAbortedError(PylogsegError):
    """A cleaning was given up; the log is as it was, but for groups that were done; it may be tried again."""

    kind = "state"


class UncleanableError(PylogsegError):
    """A log that compaction cannot write anew; the log is as it was, but for groups of segments that were done."""

    kind = "state"
