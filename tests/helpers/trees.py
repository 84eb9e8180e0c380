"""What lies below a folder, to compare it with what lay there before."""

from __future__ import annotations

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Files below a folder, by their path in it."""
    return {name: data for name, data in entries(folder).items() if data is not None}


def entries(folder: Path) -> dict[str, bytes | None]:
    """Files and folders below a folder, by their path in it; None for a folder."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """A folder, and files and folders below it, with their times."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }
