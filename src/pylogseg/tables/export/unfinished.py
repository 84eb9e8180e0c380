"""Files and folders that are being written, beside the names that they get when they are whole."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pylogseg.env.handles import open_descriptor
from pylogseg.errors import StorageError

#: Readers of datasets skip names that begin with a dot.
_NAME = re.compile(r"\.(?:.+\.)?(?P<process>\d+)@(?P<host>[^/]+)\.tmp")


def unfinished(name: str = "") -> str:
    """Return a temporary name for a file or folder while this process writes it; `name` is the final name, if any."""
    return f".{name}{'.' if name else ''}{os.getpid()}@{_host()}.tmp"


def create(path: Path) -> IO[bytes]:
    """A new file for writing; what has the name, also a link that leads elsewhere, is removed and never followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(open_descriptor(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


@contextlib.contextmanager
def whole(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when all of it is written; nothing is left of it after a failure."""
    beside = target.with_name(unfinished(target.name))
    try:
        with create(beside) as file:
            yield file
        os.replace(beside, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        # What a write says names no file (a disk that is full), or one that nobody asked for.
        named = error.filename if isinstance(error, OSError) else ""
        if isinstance(error, OSError) and not isinstance(error, StorageError) and named in (None, str(beside)):
            reason = "there is no such folder: make it first" if error.errno == errno.ENOENT else error.strerror
            raise StorageError(target, "write", reason or str(error), error.errno) from error
        raise


def create_folder(path: Path) -> None:
    """A new folder, in the same way."""
    remove(path)
    path.mkdir(parents=True)


def sweep(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Remove what ended processes of this machine have left; return what other machines left, or somebody writes."""
    left = []
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        found = _NAME.fullmatch(path.name)
        if found is None or int(found["process"]) == os.getpid():
            continue
        if found["host"] == _host() and not is_alive(int(found["process"])):
            remove(path)
        else:
            left.append(path)
    return left


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", platform.node()) or "localhost"


def is_alive(process: int) -> bool:
    """Check whether there is such a process; where that cannot be asked, there is."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
