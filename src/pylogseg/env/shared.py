"""Folders to which the tasks of several machines write: a mark shows a task that it sees the folder of the driver.

A machine without the mount has an empty folder of the same name, and what is written there is lost.
"""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pylogseg.env.beside import make_temporary_name, sweep, whole
from pylogseg.env.file_errors import storage_error
from pylogseg.errors import StorageError

_MARK = "pylogseg-shared-"


class SharedFolder(NamedTuple):
    """A folder that all workers have to share."""

    path: str
    remedy: str = "mount it on all of them under this name, or name a folder that they share"


@contextlib.contextmanager
def mark_folders(folders: Sequence[SharedFolder]) -> Iterator[list[tuple[SharedFolder, str]]]:
    """Put a mark into each folder, for `check_marks`; remove them at the end, with the marks of killed processes."""
    with contextlib.ExitStack() as stack:
        yield [(folder, stack.enter_context(_mark_folder(Path(folder.path)))) for folder in folders]


@contextlib.contextmanager
def _mark_folder(folder: Path) -> Iterator[str]:
    # A new name each time: a network file system remembers that it did not find a name.
    mark = folder / make_temporary_name(f"{_MARK}{uuid.uuid4().hex}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder, [f".{_MARK}*.tmp"])
        with whole(mark):
            pass
        yield str(mark)
    except OSError as error:
        raise error if isinstance(error, StorageError) else storage_error(folder, "write to", error) from error
    finally:
        with contextlib.suppress(OSError):
            mark.unlink(missing_ok=True)


def check_marks(marks: Sequence[tuple[SharedFolder, str]]) -> None:
    """Raise StorageError if this machine does not see a folder that the driver has marked."""
    for folder, path in marks:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            reason = f"{not_shared()}: {folder.remedy}"
            raise StorageError(folder.path, "write to", reason, error.errno) from error
        except OSError as error:
            raise storage_error(folder.path, "write to", error) from error


def check_written(path: str, written: int, there: int | None, outcome: str) -> None:
    """Raise StorageError unless a file that a job wrote is there, with the size that the job reported.

    `there` is its size, None without a file; `outcome` says what the run left undone.
    """
    if there == written:
        return
    fact = "it is not there" if there is None else f"it has {there:,} bytes"
    reason = (
        f"a job wrote {written:,} bytes, and here {fact}: {outcome}. Either the machine that wrote it does not share "
        "its folder with this one: mount it on both. Or another program has changed it: run this again"
    )
    raise StorageError(path, "find what was written", reason)


def not_shared() -> str:
    """Return why a task cannot write to a folder, when its machine has another one of the same name, or none."""
    return f"this machine ({platform.node()}) does not share the folder with the one that began the work"
