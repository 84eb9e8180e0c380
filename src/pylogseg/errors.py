"""The errors that pylogseg raises, and the results of a scan.

The class of an error says what is wrong: the bytes (`CorruptionError`), the request (`RequestError`), the disk
(`StorageError`), or too little for this process (`ExhaustedError`, and Python's `MemoryError`).
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar

#: The packages of each extra that a user may want, as `pyproject.toml` has them; tables of others have theirs in
#: `lakehouse/formats.py`.
EXTRAS = {
    "fsspec": ("fsspec>=2024.2",),
    "s3": ("s3fs>=2024.2",),
    "polars": ("polars>=1.32",),
    "tier": ("cryptography>=42", "pycryptodome>=3.20"),
    "sql": ("duckdb>=1.5.6",),
    "msk": ("aws-msk-iam-sasl-signer-python>=1.0.2",),
    "spark": ("pyspark>=4.0", "pandas>=2.2,<3"),
}


def install_text(extra: str) -> str:
    """Return the command that installs the packages of an extra, however this package was installed.

    >>> install_text("sql")
    "pip install 'duckdb>=1.5.6'"
    """
    return install_command(EXTRAS[extra])


def install_command(packages: Sequence[str]) -> str:
    """Return the command that installs packages."""
    return " ".join(["pip install", *(f"'{package}'" for package in packages)])


class PylogsegError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    kind : str
        Its subject, in one word for programs to compare.
    """

    kind: ClassVar[str] = "request"


class NullTimestampWarning(UserWarning):
    """A record's timestamp is null in the result, because the column cannot hold it."""


class RequestError(PylogsegError, ValueError):
    """The request is invalid; nothing was changed."""


class OffsetOutOfRangeError(RequestError):
    """An offset below the log start offset, or above the last offset that may be read or removed."""

    kind = "offset_out_of_range"


class NotOwnError(RequestError):
    """A topic is no internal one: neither Kafka nor Connect nor a schema registry writes it for itself."""

    kind = "not_own"


class OutOfOrderSequenceError(RequestError):
    """A producer's sequence does not follow its last one."""

    kind = "out_of_order_sequence"


class FencedError(RequestError):
    """A newer producer or transaction coordinator has taken over."""

    kind = "fenced"


class TransactionStateError(RequestError):
    """A batch does not fit the state of its producer's transaction."""

    kind = "transaction_state"


class TooLargeError(RequestError):
    """A batch above ``max.message.bytes``, or an append above ``segment.bytes``."""

    kind = "too_large"


class InvalidRecordError(RequestError):
    """A batch or record that breaks a rule of the log it is appended to.

    Parameters
    ----------
    reason : str
        The fault, with the values found.
    record_errors : sequence of (int, str)
        The invalid records, by their number in the batch, and why; empty if the batch as a whole is invalid.
    """

    kind = "invalid_record"

    def __init__(self, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.record_errors = tuple(record_errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.record_errors))


class OffsetsOutOfOrderError(RequestError):
    """Offsets of an append that keeps its offsets do not ascend, or lie below the end of the log."""

    kind = "offsets_out_of_order"


class ClosedError(PylogsegError):
    """The object was closed before it was used."""

    kind = "state"


class StorageError(PylogsegError, OSError):
    """The disk, or another storage, failed.

    Parameters
    ----------
    path : str
        The file or folder.
    operation : str
        The operation that failed, as a verb: ``"read"``, ``"open"``, ``"list"``.
    reason : str
        The system's message.
    number : int, optional
        The system's error number, such as ``errno.ENOSPC`` for a full disk.

    Attributes
    ----------
    errno : int or None
        The error number.
    filename, strerror : str
        `path` and `reason`, as in any other OSError.
    """

    kind = "storage"

    def __init__(self, path: str | PathLike[str], operation: str, reason: str, number: int | None = None) -> None:
        is_missing = operation == "stat" and number == errno.ENOENT
        fault = "no such file or folder" if is_missing else f"cannot {operation}: {reason}"
        super().__init__(f"{path}: {fault}")
        self.path = str(path)
        self.operation = operation
        self.reason = reason
        self.errno, self.filename, self.strerror = number, self.path, reason

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.operation, self.reason, self.errno))


def is_missing(error: BaseException) -> bool:
    """Check whether an error says that a file or folder is not there (any more)."""
    return isinstance(error.__cause__, FileNotFoundError)


def is_denied(error: BaseException) -> bool:
    """Check whether an error says that this user may not look there; the file may exist or not."""
    number = error.errno if isinstance(error, OSError) else None
    return number in (errno.EACCES, errno.EPERM) or isinstance(error.__cause__, PermissionError)


class ExhaustedError(PylogsegError, OSError):
    """The system had no descriptor or no memory left, so a file was not read: that says nothing about the file.

    It is no `StorageError`, which readers of damaged disks take for a file that cannot be read; the parameters are the
    same.
    """

    kind = "exhausted"

    def __init__(self, path: str, operation: str, reason: str, number: int | None = None) -> None:
        remedy = "give the process more memory, or fewer --jobs"
        if number != errno.ENOMEM:
            remedy = "raise the limit of open files (ulimit -n), or close files of other programs"
        super().__init__(f"{path}: cannot {operation}: {reason}: {remedy}")
        self.path, self.operation, self.reason = path, operation, reason
        self.errno, self.filename, self.strerror = number, path, reason

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.operation, self.reason, self.errno))


class MissingKeyError(StorageError):
    """Encrypted data that none of the given keys opens: it was not looked at, so its bytes may be good or bad."""

    kind = "missing_key"


class DirectoryLockedError(StorageError):
    """Another program, a broker for example, or another object of this one has the lock of a log directory."""

    kind = "directory_locked"

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        super().__init__(path, "lock", reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.reason))


class CorruptionError(PylogsegError):
    """Bytes on disk break the rules of the format.

    Parameters
    ----------
    path : str
        The file, or a description of the buffer.
    position : int
        Byte position of the damaged structure in that file.
    reason : str
        The fault, with the value found and, where it helps, the remedy.
    offset : int, optional
        The offset from which records are missing; None if unknown.
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


class IncompleteError(CorruptionError):
    """The source of a copy or a restore lacks records; nothing was changed."""

    kind = "incomplete"

    def __init__(self, path: str | PathLike[str], reason: str, offset: int | None = None) -> None:
        super().__init__(path, 0, reason, offset)
        self.args = (f"{path}: {reason}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.reason, self.offset))


class Verdict(enum.IntEnum):
    """Result of checking one batch: the column ``verdict`` of a batch table."""

    GOOD = 0
    UNCHECKED = 1
    CRC_BAD = 2
    RECORDS_BAD = 3


class Ending(enum.IntEnum):
    """Reason for the end of a scan, at the position it reports."""

    COMPLETE = 0
    """The bytes end where a batch ends."""
    MORE = 1
    """The limit of rows was reached; the scan can continue from there."""
    TORN = 2
    """The last batch is cut off by the end of the bytes: a crash in the middle of a write. A notice, not damage."""
    ZEROS = 3
    """Only zero bytes follow: a preallocated or extended tail."""
    BAD_LENGTH = 4
    """A length that no batch can have: corruption."""
    UNKNOWN_MAGIC = 5
    """A magic byte other than 0, 1 and 2."""
    FOREIGN = 6
    """Another program's format (Redpanda's)."""


class CleaningAbortedError(PylogsegError):
    """A cleaning was aborted; except for finished groups of segments the log is unchanged. It may be repeated."""

    kind = "state"


class UncleanableError(PylogsegError):
    """Compaction cannot rewrite a log; except for finished groups of segments the log is unchanged."""

    kind = "state"
