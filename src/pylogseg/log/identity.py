"""Identity of a log: its folder, partition and topic id."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind, parse_partition_folder


class LogIdentity(NamedTuple):
    """Folder, partition and topic id of a log."""

    folder: str
    name: str
    topic: str  #: Empty if the folder is not named like a partition's.
    partition: int
    topic_id: str | None = None

    @classmethod
    def of(cls, storage: Storage, folder: str, topic_id: str | None = None) -> LogIdentity:
        """Derive the identity from the path of a folder."""
        name = storage.split(folder)[1]
        parsed = parse_partition_folder(name)
        return cls(folder, name, parsed.topic if parsed else "", parsed.partition if parsed else -1, topic_id)


def topic_id_of(storage: Storage, folder: str) -> str | None:
    """Return the topic id in a folder's `partition.metadata`; None without such a file."""
    path = storage.join(folder, FileKind.PARTITION_METADATA.value)
    return parse_partition_metadata(storage.read_all(path), path).topic_id if storage.exists(path) else None


def check_topic_id(storage: Storage, folder: str, topic_id: str | None = None) -> bool:
    """Return whether a folder has a `partition.metadata`; raise if it cannot be read or has another id."""
    own_id = topic_id_of(storage, folder)
    if own_id is not None and topic_id is not None and own_id != topic_id:
        path = storage.join(folder, FileKind.PARTITION_METADATA.value)
        raise RequestError(f"{path}: topic id is {own_id}, not {topic_id}")
    return own_id is not None
