"""Errors of the libraries that read and write tables, as errors of ours: the only place where they become that.

Their metadata and files are somebody else's, and may be damaged in any way: pyiceberg, deltalake, duckdb, SQLAlchemy,
pyarrow, fsspec, zlib, json and codecs raise errors of all classes then.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pylogseg.errors import ExhaustedError, PylogsegError, StorageError

_Class = TypeVar("_Class")
#: The exception of a panic in Rust; it is not an `Exception`, and no module exports it.
_PANIC = "PanicException"
#: Where SQLAlchemy goes on with the statement, and Rust with the frames of its stack.
_MORE = re.compile(r"\n\[SQL:|\n\s*(?:[Ss]tack )?[Bb]acktrace:|\n\s*0: ")


@contextlib.contextmanager
def library_errors(path: str, operation: str) -> Iterator[None]:
    """Turn any error of a library into a StorageError that names the table or file and the operation."""
    try:
        yield
    except PylogsegError:
        raise
    except MemoryError as error:  # for a length in a damaged file, too
        reason = f"{error}" or "an allocation failed"
        raise ExhaustedError(path, operation, f"out of memory: {reason}", errno.ENOMEM) from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        number = error.errno if isinstance(error, OSError) else None
        text = _MORE.split(str(error), maxsplit=1)[0].rstrip()
        raise StorageError(path, operation, f"{type(error).__name__}: {text}", number) from error


#: Methods of every sink, with what each does.
SINK_METHODS = {
    "load": "read",
    "make": "make",
    "open": "open",
    "commit": "commit to",
    "live": "read",
    "offsets": "read",
    "files": "read",
}


def with_library_errors(**operations: str) -> Callable[[type[_Class]], type[_Class]]:
    """Make the methods and properties of a class of tables raise such errors, each with its operation."""

    def add(sink: type[_Class]) -> type[_Class]:
        for name, operation in operations.items():
            there = sink.__dict__[name]
            if isinstance(there, property):
                assert there.fget is not None
                setattr(sink, name, property(_guard(there.fget, operation)))
            else:
                setattr(sink, name, _guard(there, operation))
        return sink

    return add


def _guard(method: Callable[..., Any], operation: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        with library_errors(self.name, operation):
            return method(self, *given, **named)

    return call
