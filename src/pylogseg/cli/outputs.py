"""Files and folders that commands write: never among the files that they read; existing ones only with --overwrite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pylogseg.disk.disk import Disk
from pylogseg.disk.folders import has_log_dir_files
from pylogseg.disk.outside import check_outside
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.errors import RequestError, StorageError


def check_output(out: Path, disk: Disk) -> None:
    """Refuse to write into a log directory or a partition, or over a segment that is read."""
    check_outside(out)
    real = Path(os.path.realpath(out))
    for place in dict.fromkeys(_places(disk)):
        if real.is_relative_to(os.path.realpath(place)):
            raise RequestError(f"{out} is inside {place}, which is read: choose a place outside of it")


def refuse_overwriting(out: Path, overwrite: bool) -> None:
    """Refuse to write where something is, unless `overwrite` is set."""
    if not overwrite and os.path.lexists(out):
        raise RequestError(f"{out} exists already: replace it with --overwrite")


def _places(disk: Disk) -> Iterator[str]:
    for log_dir in disk.log_dirs:
        if isinstance(log_dir.files, LocalFiles):
            yield log_dir.path
    folders: dict[str, FileSystem] = {}
    for partition in disk.partitions:
        if isinstance(partition.files, LocalFiles):
            folders[partition.path] = partition.files
    for segment in disk.loose:
        if isinstance(segment.files, LocalFiles):
            yield segment.path
            if segment.topic:
                folders[segment.files.split(segment.path)[0]] = segment.files
    yield from folders
    above = {files.split(folder)[0]: files for folder, files in folders.items()}
    yield from (place for place, files in above.items() if _is_log_dir(files, place))


def _is_log_dir(files: FileSystem, path: str) -> bool:
    try:
        return has_log_dir_files(files.list_folder(path))
    except StorageError:  # then nobody can say
        return False
