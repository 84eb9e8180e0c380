"""The settings of topics that a manager works by, and the topics of which it knows too little to delete anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError, PylogsegError, StorageError
from pylogseg.files.status import parse_partition_metadata
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.internal_topics.cluster import FOLDER, INTERNAL_TOPICS, ClusterMetadata, find_metadata
from pylogseg.manager.settings import BrokerSettings, topic_fields

#: By these nothing is deleted and nothing compacted.
_KEEPING = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}


class TopicSettings:
    """Settings of topics: what the program says, then the topic's in the metadata, then the brokers', then defaults.

    In the directories of a broker, a topic that the cluster's metadata does not know keeps everything, unless the
    program says something else of this very topic. So does one of which there is a folder with another topic id than
    the metadata has: it was deleted and made again, and the settings are not those of that log.

    Parameters
    ----------
    settings : BrokerSettings
        Has the defaults.
    topics : mapping of str to mapping
        What the program says of topics.

    Attributes
    ----------
    said : dict of str to dict
        The same, as it is now.

    Raises
    ------
    RequestError
        For a setting that there is not, or a value that Kafka refuses.
    """

    def __init__(self, settings: BrokerSettings, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._settings, self._defaults = settings, settings.topic_defaults
        self.said = {topic: dict(changes) for topic, changes in topics.items()}
        self._metadata = ClusterMetadata()
        self._made_again: dict[str, str] = {}  # topics and why they are not those of the metadata
        self._why = ""  # a topic may have settings that are not known here; empty in directories of no broker
        for changes in self.said.values():
            self._defaults.with_changes(**changes)

    def read_metadata(self, log_dirs: Iterable[str], node_ids: Iterable[int | None]) -> None:
        """Take the settings of the cluster whose broker has these log directories.

        Parameters
        ----------
        log_dirs : iterable of str
            Folders on disks of this machine; ``metadata.log.dir`` comes before them.
        node_ids : iterable of int
            Of the broker, from the files `meta.properties`; empty if there are none.
        """
        ids, folders = list(node_ids), list(log_dirs)
        named = self._settings.metadata_log_dir
        folder = find_metadata([*([] if named is None else [named]), *folders])
        if folder is None:
            self._why = f"there is no {FOLDER} in the log directories" if ids else ""
            return
        try:
            metadata = ClusterMetadata.read(folder)
            of_broker = topic_fields(metadata.of_broker(str(ids[0]) if ids else ""))
            self._defaults = self._settings.topic_defaults.with_changes(**of_broker)
            self._metadata, self._why = metadata, f"{folder} does not know it"
            self._made_again = _made_again(folders, metadata.topic_ids, folder)
        except PylogsegError as error:
            self._why = f"{folder} cannot be read: {error}"

    def of(self, topic: str) -> LogConfig:
        """Settings of a topic's logs."""
        return self.after(self.said.get(topic, {}), topic)

    def after(self, said: Mapping[str, Any], topic: str) -> LogConfig:
        """Settings of a topic's logs if the program said this of it.

        Raises
        ------
        RequestError
            For a setting that there is not, or a value that Kafka refuses.
        """
        own, why = self._own(topic)
        return self._defaults.with_changes(**{**(_KEEPING if why else own), **said})

    def why_unknown(self, topic: str) -> str:
        """Why nothing of a topic is deleted or compacted; empty if its settings are known."""
        return "" if _KEEPING.keys() & self.said.get(topic, {}).keys() else self._own(topic)[1]

    def _own(self, topic: str) -> tuple[dict[str, str], str]:
        """What the metadata says of a topic, or why that is not known."""
        own = self._metadata.fields_of_topic(topic)
        if topic in self._made_again:
            own = INTERNAL_TOPICS.get(topic)
        if own is None:
            return {}, self._made_again.get(topic, self._why)
        try:
            self._defaults.with_changes(**own)
        except PylogsegError as error:
            return {}, f"the metadata of the cluster has a setting that is refused: {error}"
        return own, ""


def _made_again(log_dirs: Iterable[str], topic_ids: Mapping[str, str], metadata: str) -> dict[str, str]:
    """Topics of which a folder has another topic id than the metadata, and what to say of them."""
    files, found = LocalFiles(), {}
    for log_dir in log_dirs:
        try:
            entries = files.list_folder(log_dir)
        except StorageError:  # nothing of it will be loaded
            continue
        for entry in entries:
            folder = parse_partition_folder(entry.name) if entry.is_dir else None
            if folder is None or folder.state not in ("", "future") or folder.topic not in topic_ids:
                continue
            path = files.join(log_dir, entry.name)
            name = files.join(path, FileKind.PARTITION_METADATA.value)
            try:
                own = parse_partition_metadata(files.read_all(name), name).topic_id
            except (CorruptionError, StorageError):  # what is wrong with it the load tells
                continue
            if own != topic_ids[folder.topic]:
                found[folder.topic] = (
                    f"{path} is of another topic {folder.topic} than the one in the metadata, {metadata}: its topic id "
                    f"is {own}, there it is {topic_ids[folder.topic]}"
                )
    return found
