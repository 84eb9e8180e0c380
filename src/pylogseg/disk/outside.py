"""Places that commands may write to: outside of log directories, in which no broker starts beside other things."""

from __future__ import annotations

import os
from pathlib import Path

from pylogseg.disk.folders import LOG_DIR_FILES, is_of_partition
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.urls import refuse_cluster
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import parse_partition_folder

#: A restore writes into a folder of this topic, which a broker takes for one that awaits deletion.
STAGING_TOPIC = "pylogseg-staging"


def check_outside(place: str | os.PathLike[str]) -> None:
    """Raise RequestError for a path of this machine in a log directory, or in the folder of a partition.

    It need not exist. In the staging folder of a restore other commands may write.
    """
    refuse_cluster(place, is_written=True)
    real = Path(os.path.realpath(place))
    for folder in (real, *real.parents):
        if folder.name.startswith(f"{STAGING_TOPIC}-"):
            return
        if any(os.path.isfile(os.path.join(folder, name)) for name in LOG_DIR_FILES):
            what = "a log directory"
        elif parse_partition_folder(folder.name) is not None and _has_partition_files(folder):
            what = "the folder of a partition"
        else:
            continue
        raise RequestError(
            f"{os.fspath(place)}: {folder} is {what}, and no broker starts with other things in it: name a place "
            "outside of it"
        )


def _has_partition_files(folder: Path) -> bool:
    try:
        return any(map(is_of_partition, LocalFiles().list_folder(str(folder))))
    except StorageError:  # it does not exist, as a rule
        return False
