"""Small files of partitions that a command carries to another place, and that say nothing."""

from __future__ import annotations

from collections.abc import Iterable

from pylogseg.disk.small_files import FileState, read_leader_epochs, read_partition_metadata
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.names import parse_partition_folder
from pylogseg.values.internal.cluster import ClusterMetadata, find_metadata, metadata_beside


def doubts_of(storage: Storage, log_dir: str, names: Iterable[str]) -> list[str]:
    """Return which `partition.metadata` and leader epochs of folders say nothing, and what a broker does then."""
    try:
        folder = find_metadata([log_dir]) or metadata_beside(log_dir)
        metadata = ClusterMetadata() if folder is None else ClusterMetadata.read(folder)
    except (CorruptionError, StorageError) as error:
        return [f"the ids of topics are not known: {error}"]
    doubts = list(metadata.notes)
    for name in names:
        place, path = parse_partition_folder(name), storage.join(log_dir, name)
        if place is None or place.state:
            continue
        file, is_known = read_partition_metadata(storage, path), place.topic in metadata.topic_ids
        if not file.is_read and (file.state is not FileState.ABSENT or is_known):
            remedy = "; `pylogseg recover` writes it by the cluster's metadata" if is_known else ""
            doubts.append(f"{file.problem}: a broker of KRaft sets the folder aside, and begins an empty log{remedy}")
        if (epochs := read_leader_epochs(storage, path)).is_damaged:
            is_cut = epochs.state is FileState.CUT
            result = "it is empty to a broker" if is_cut else "a broker takes the log directory offline"
            doubts.append(f"{epochs.problem}: {result}; `pylogseg reindex` makes it again")
    return doubts
