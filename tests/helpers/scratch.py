"""Where tests and examples have their files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")


def memory() -> str | None:
    """A folder in memory, if no other one is asked for and there is room."""
    if {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys():
        return os.environ.get("PYTEST_DEBUG_TEMPROOT")
    return str(MEMORY) if is_roomy(MEMORY) else None


def is_roomy(folder: Path) -> bool:
    """Whether tests may have their folders there: a container gives 64 MB, or runs no program that lies in it."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    return shutil.disk_usage(folder).free >= 4 << 30 and not os.statvfs(folder).f_flag & os.ST_NOEXEC
