"""A run of `archive` that dies at one of its changes of a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pylogseg.archive import write


def killed(folders: list[Path], archive: Path, at: int) -> bool:
    """Run in a process that ends at its so manieth call that changes the archive; whether it came so far."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    count = 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        changes = event in ("os.rename", "os.link", "os.mkdir", "os.remove", "os.unlink")
        if changes or (event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)):
            count += 1
            if count == at:
                os._exit(9)

    try:
        sys.addaudithook(hook)
        write(folders, archive)
    finally:
        os._exit(0)
