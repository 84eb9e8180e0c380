"""The file system of a path or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.remote import remote_files


def file_system(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[FileSystem, str]:
    """Return the file system of a path or URL, and the path in it; `storage_options` has fsspec's options for URLs."""
    text = os.fspath(path)
    if "://" not in text:
        return LocalFiles(), text
    return remote_files(text, storage_options or {})
