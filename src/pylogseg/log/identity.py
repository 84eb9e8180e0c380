"""Identity of a log: its folder, partition and topic id."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError
from pylogseg.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind, parse_partition_folder


class LogIdentity(NamedTuple):
    """Folder, partition and topic id of a log.

    Attributes
    ----------
    folder : str
        Path of the partition's folder.
    name : str
        The folder's name.
    topic : str
        Empty if the folder is not named like a partition's.
    partition : int
        -1 then.
    topic_id : str, optional
        Of the topic in a Kafka cluster.
    """

    folder: str
    name: str
    topic: str
    partition: int
    topic_id: str | None = None

    @classmethod
    def of(cls, storage: Storage, folder: str, topic_id: str | None = None) -> LogIdentity:
        """Derive the identity from the path of a folder."""
        name = storage.split(folder)[1]
        found = parse_partition_folder(name)
        return cls(folder, name, found.topic if found else "", found.partition if found else -1, topic_id)


def check_topic_id(storage: Storage, folder: str, topic_id: str | None = None) -> bool:
    """Return whether a folder has a `partition.metadata`; raise if it cannot be read or has another id."""
    path = storage.join(folder, FileKind.PARTITION_METADATA.value)
    if not storage.exists(path):
        return False
    found = parse_partition_metadata(storage.read_all(path), path).topic_id
    if topic_id is not None and found != topic_id:
        raise RequestError(f"{path}: topic id is {found}, not {topic_id}")
    return True
