"""The file system of a path or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.remote import remote_files, without_login
from pylogseg.errors import RequestError

#: How the URL of a running cluster begins.
CLUSTER_SCHEME = "kafka://"


def file_system(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, memory_map: bool = False
) -> tuple[FileSystem, str]:
    """Return the file system of a path or URL, and the path in it; `storage_options` has fsspec's options for URLs."""
    text = os.fspath(path)
    if "://" not in text:
        return LocalFiles(memory_map=memory_map), text
    if memory_map:
        refuse_map(text)
    return remote_files(text, storage_options or {})


def refuse_cluster(path: str | os.PathLike[str], *, is_written: bool = False) -> None:
    """Raise RequestError for the URL of a running cluster in place of a folder, as a source or as a target."""
    text = os.fspath(path)
    if not text.startswith(CLUSTER_SCHEME):
        return
    url = without_login(text)
    if is_written:
        raise RequestError(f"{url}: this command writes files, and this is a running cluster: name a folder")
    raise RequestError(
        f"{url}: this command reads files, and a running cluster's files are on its brokers' disks: name these, "
        f"or copy the topics first, by `pylogseg copy {url} DIR`"
    )


def refuse_map(url: str) -> None:
    """Refuse to map files of a store."""
    raise RequestError(f"{without_login(url)}: only files of this machine can be mapped: read it without memory_map")
