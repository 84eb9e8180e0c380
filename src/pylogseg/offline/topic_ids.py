"""A missing `partition.metadata` is written again: without it a broker of a KRaft cluster sets the folder aside."""

from __future__ import annotations

from pylogseg.disk.small_files import FileState, read_partition_metadata
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import parse_partition_folder
from pylogseg.offline.partition import OfflinePartition


def write_missing_topic_id(part: OfflinePartition) -> None:
    """Write the topic id that the cluster's metadata has, if it assigns the partition to this broker; a note says so.

    Called at the end: a partition that the command gave up stays as it was.
    """
    folder = parse_partition_folder(part.name)
    file = read_partition_metadata(part.storage, part.folder)
    if folder is None or folder.state or file.state is not FileState.ABSENT:
        return
    topic_id = part.settings.assigned_topic_id(part.topic, part.partition)
    if topic_id is None:
        return
    part.storage.write_whole(file.path, encode_partition_metadata(PartitionMetadata(topic_id)))
    part.result.state = "done"
    part.result.notes.append(
        f"{file.path} is missing, and is written with the id that topic {part.topic} has in "
        f"{part.settings.metadata_folder}: {topic_id}; if the records are of a topic of that name that was deleted, "
        "remove the file"
    )
