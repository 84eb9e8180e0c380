"""The settings of topics, and the topics with too few settings to delete anything."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.folders import readable_topic_id
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.names import parse_partition_folder
from pylogseg.owned.manager.settings import BrokerSettings, topic_fields
from pylogseg.values.internal.cluster import FOLDER, INTERNAL_TOPICS, ClusterMetadata, find_metadata

_log = logging.getLogger(__name__)

#: Settings that delete and compact nothing.
_KEEPING = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}
_NOTHING: dict[str, Any] = {}


class TopicSettings:
    """Settings of topics: from the program, then the topic's and the brokers' in the metadata, then defaults.

    In the directories of a broker, a topic that is missing in the cluster's metadata keeps everything, unless the
    program has settings for it. The same holds for a topic with a folder of another topic id than in the metadata: it
    was deleted and recreated, and the settings belong to the new log. Raises RequestError for an unknown setting, or a
    value that Kafka refuses.
    """

    def __init__(self, settings: BrokerSettings, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._settings, self._defaults = settings, settings.topic_defaults
        self.said = {topic: dict(changes) for topic, changes in topics.items()}
        self._metadata = ClusterMetadata()
        self._known: dict[str, tuple[Mapping[str, Any], LogConfig]] = {}  # with what was said then
        self._made_again: dict[str, str] = {}  # recreated topics, with the reason
        self._why = ""  # why a topic's settings may be unknown; empty outside a broker's directories
        for changes in self.said.values():
            self._defaults.with_changes(**changes)

    def read_metadata(self, log_dirs: Iterable[str], node_ids: Iterable[int | None]) -> None:
        """Read the metadata of the cluster whose broker has these log directories."""
        ids, folders = list(node_ids), list(log_dirs)
        self._known.clear()
        named = self._settings.metadata_log_dir
        folder = find_metadata([*([] if named is None else [named]), *folders])
        if folder is None:
            self._why = f"there is no {FOLDER} in the log directories" if ids else ""
            return
        try:
            metadata = ClusterMetadata.read(folder)
            for note in metadata.notes:
                _log.warning("%s", note)
            of_broker = topic_fields(metadata.of_broker(str(ids[0]) if ids else ""))
            self._defaults = self._settings.topic_defaults.with_changes(**of_broker)
            self._metadata, self._why = metadata, f"{folder} does not have it"
            self._made_again = _made_again(folders, metadata.topic_ids, folder)
        except PylogsegError as error:
            self._why = f"{folder} cannot be read: {error}"

    def of(self, topic: str) -> LogConfig:
        said = self.said.get(topic, _NOTHING)
        config = self._known.get(topic)
        if config is None or config[0] is not said:
            config = self._known[topic] = said, self.after(said, topic)
        return config[1]

    def after(self, said: Mapping[str, Any], topic: str) -> LogConfig:
        """Return settings of a topic's logs after a change by the program.

        Raises RequestError for an unknown setting, or a value that Kafka refuses.
        """
        own, why = self._own(topic)
        return self._defaults.with_changes(**{**(_KEEPING if why else own), **said})

    def why_unknown(self, topic: str) -> str:
        """Return why nothing of a topic is deleted or compacted; empty if it has settings."""
        return "" if _KEEPING.keys() & self.said.get(topic, {}).keys() else self._own(topic)[1]

    def _own(self, topic: str) -> tuple[dict[str, str], str]:
        """Return a topic's settings in the metadata, or why they are unknown."""
        own = self._metadata.fields_of_topic(topic)
        if topic in self._made_again:
            own = INTERNAL_TOPICS.get(topic)
        if own is None:
            return {}, self._made_again.get(topic, self._why)
        refused = next(iter(self._metadata.refused_settings(topic).values()), "")
        try:
            self._defaults.with_changes(**own)
        except PylogsegError as error:  # two that do not go together
            refused = refused or str(error)
        return ({}, f"the metadata of the cluster has an invalid setting: {refused}") if refused else (own, "")


def _made_again(log_dirs: Iterable[str], topic_ids: Mapping[str, str], metadata: str) -> dict[str, str]:
    """Return topics with a folder whose topic id is not the one in the metadata, with the reason."""
    files, reasons = LocalFiles(), {}
    for log_dir in log_dirs:
        try:
            entries = files.list_folder(log_dir)
        except StorageError:  # it will not be loaded
            continue
        for entry in entries:
            folder = parse_partition_folder(entry.name) if entry.is_dir else None
            if folder is None or folder.state not in ("", "future") or folder.topic not in topic_ids:
                continue
            path = files.join(log_dir, entry.name)
            own = readable_topic_id(files, path)
            if own is not None and own != topic_ids[folder.topic]:
                reasons[folder.topic] = (
                    f"{path} belongs to an older topic {folder.topic} than the metadata, {metadata}: its topic id "
                    f"is {own}, in the metadata {topic_ids[folder.topic]}"
                )
    return reasons
