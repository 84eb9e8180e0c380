"""Small files beside the logs that a command reads, where they say less than they should."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pylogseg.disk.disk import Partition
from pylogseg.disk.offset_checkpoints import SmallFilesOnce
from pylogseg.disk.small_files import FileState
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.values.internal.cluster import ClusterMetadata, find_metadata, metadata_beside


def source_doubts(
    partitions: Iterable[Partition], kinds: Sequence[FileKind], once: SmallFilesOnce | None = None
) -> list[str]:
    """Return why a `partition.metadata`, or a checkpoint of some kinds, says less than it should."""
    doubts, once = list[str](), once or SmallFilesOnce()
    by_dir: dict[str, list[Partition]] = {}
    for part in partitions:
        if part.error is None and part.topic and not part.state and isinstance(part.files, LocalFiles | RemoteFiles):
            by_dir.setdefault(part.files.split(part.path)[0], []).append(part)
    for log_dir, parts in by_dir.items():
        noted = once.checkpoints(parts[0].files, log_dir)
        harms = filter(None, map(noted.harm, kinds))
        doubts += [f"{harm}: not known what the ends of logs lack by it" for harm in harms]
        doubts += _without_id(log_dir, parts, once)
    return doubts


def _without_id(log_dir: str, parts: Sequence[Partition], once: SmallFilesOnce) -> list[str]:
    doubts, topics, remedy = list[str](), None, "; `pylogseg recover` writes it by the cluster's metadata"
    for part in parts:
        file = once.metadata(part.files, part.path)
        if file.is_read:
            continue
        topics = _topic_ids(part.files, log_dir) if topics is None else topics
        topic_id = topics.get(part.topic)
        if topic_id is not None:
            doubts.append(f"{file.problem}: the id of {part.topic} is {topic_id} by the cluster's metadata{remedy}")
        elif file.state is not FileState.ABSENT:
            doubts.append(f"{file.problem}: the folder does not say the id of {part.topic}")
    return doubts


def _topic_ids(files: FileSystem, log_dir: str) -> dict[str, str]:
    if not isinstance(files, LocalFiles):
        return {}
    try:
        folder = find_metadata([log_dir]) or metadata_beside(log_dir)
        return {} if folder is None else ClusterMetadata.read(folder).topic_ids
    except (CorruptionError, StorageError):
        return {}
