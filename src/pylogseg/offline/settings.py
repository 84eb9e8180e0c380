"""Settings for offline commands: flags, then the topics' own, then the broker's, then Kafka's defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

from pylogseg.config import LogConfig
from pylogseg.disk.small_files import FileState, read_meta_properties, read_partition_metadata
from pylogseg.disk.target import Target
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.properties import parse_properties
from pylogseg.offline.options import Options
from pylogseg.owned.manager.settings import BrokerSettings, topic_fields
from pylogseg.values.internal.cluster import FOLDER, INTERNAL_TOPICS, ClusterMetadata, find_metadata, metadata_beside

_BROKER_FIELDS = set(BrokerSettings.__dataclass_fields__) - {"log_dirs", "topic_defaults"}


class Settings:
    """Settings of the logs in one place.

    Raises RequestError for an unknown setting, a value that Kafka refuses, or a named file that is missing,
    CorruptionError if the metadata of the cluster is damaged.
    """

    def __init__(self, place: Target, options: Options) -> None:
        flags = {name.replace(".", "_"): value for name, value in options.config.items()}
        self._flags = {name: value for name, value in flags.items() if name not in _BROKER_FIELDS}
        #: Where settings come from, those that count most first; empty if all are Kafka's defaults.
        self.sources = [", ".join(f"{name}={value}" for name, value in options.config.items())] if flags else []
        properties = _properties(options.server_properties)
        self._place, self._folder, self._has_file = place, "", options.server_properties is not None
        self._storage = options.storage
        self._metadata = self._read_metadata(place, options, properties)
        #: Small files that say less than they should, each with what was taken instead.
        self.doubts = list(self._metadata.notes)
        node_id = self._node_id(options, properties)
        #: Of the broker, if the directory or the broker's file says it.
        self.node_id = int(node_id) if node_id.isdecimal() else None
        properties.update(self._metadata.of_broker(node_id))
        if options.server_properties is not None:
            self.sources.append(options.server_properties)
        self._of_broker = set(topic_fields(properties))
        properties.update({name.replace("_", "."): value for name, value in flags.items() if name in _BROKER_FIELDS})
        properties.setdefault("log.dirs", place.parent)
        self.broker = BrokerSettings.from_properties(properties)
        self._build_config(self._flags)

    def _read_metadata(self, place: Target, options: Options, properties: Mapping[str, str]) -> ClusterMetadata:
        if options.cluster_metadata == "none" or not isinstance(options.storage, LocalStorage):
            return ClusterMetadata()
        listed = (properties.get("metadata.log.dir", ""), *properties.get("log.dirs", "").split(","))
        others = [path.strip() for path in listed if path.strip()]
        folder = find_metadata([place.parent, *others], options.cluster_metadata)
        if folder is None:
            return ClusterMetadata()
        self.sources.append(folder)
        self._folder = folder
        try:
            return ClusterMetadata.read(folder)
        except CorruptionError as error:
            raise RequestError(
                f"{error}; so the topics' own settings are not known: name another copy of {os.path.basename(folder)} "
                "by --cluster-metadata, or do without by --cluster-metadata none and --config"
            ) from error

    def _node_id(self, options: Options, properties: Mapping[str, str]) -> str:
        """Return the node id from the log directory, then from the settings; -1 (no broker's id) if unknown."""
        file = read_meta_properties(options.storage, self._place.parent)
        own = None if file.value is None else file.value.node_id
        if not file.is_read and (file.state is not FileState.ABSENT or FOLDER in self._place.names):
            self.doubts.append(f"{file.problem}: the broker of the directory is not known")
        elif file.is_read and own is None:
            self.doubts.append(f"{file.path}: the file names no node: the broker of the directory is not known")
        return str(own) if own is not None else properties.get("node.id") or "-1"

    def _build_config(self, changes: Mapping[str, str]) -> LogConfig:
        return self.broker.topic_defaults.with_changes(**changes)

    def config_of(self, topic: str, name: str = "") -> LogConfig:
        """Settings of the log of a topic; `name`: the partition folder, here and below."""
        own = self._own(topic, name) or {}
        try:
            return self._build_config({**own, **self._flags})
        except RequestError as error:
            raise RequestError(f"{topic}: {error}") from None

    def _own(self, topic: str, name: str) -> dict[str, str] | None:
        """Return a topic's settings from the metadata; None if there are none, or for another topic of that name."""
        if self._ids(topic, name):
            return dict(INTERNAL_TOPICS[topic]) if topic in INTERNAL_TOPICS else None
        return self._metadata.fields_of_topic(topic)

    def _ids(self, topic: str, name: str) -> tuple[str, str] | None:
        """The topic ids in a partition's folder and in the metadata, where they differ: it was made again."""
        known = self._metadata.topic_ids.get(topic)
        if known is None or not name:
            return None
        found = read_partition_metadata(self._storage, self._storage.join(self._place.parent, name)).value
        return None if found is None or found == known else (found, known)

    def knows(self, topic: str, *fields: str, name: str = "") -> bool:
        """Check whether any of some fields of `LogConfig` is set for a topic, and not only one of Kafka's defaults.

        The broker's file tells by its silence as well, for topics that are in the metadata.
        """
        own, refused = self._own(topic, name), self._find_refused(topic, name)
        said = {*self._flags, *(self._of_broker - set(refused)), *(own or {})}
        silent = set(fields) - set(refused) if own is not None and self._has_file else set()
        return not said.isdisjoint(fields) or bool(silent)

    def _find_refused(self, topic: str, name: str) -> dict[str, str]:
        """Return the settings of a topic in the metadata that `LogConfig` refuses and no flag replaces."""
        refused = {} if self._ids(topic, name) else self._metadata.refused_settings(topic)
        return {field: reason for field, reason in refused.items() if field not in self._flags}

    def notes(self, topic: str, name: str = "") -> list[str]:
        """Return a sentence for each setting in the metadata that does not count."""
        remedy = "the default counts here, and no Kafka 4.3 starts with it: change it, or give --config"
        return [f"topic {topic}, {self._folder}: {why}; {remedy}" for why in self._find_refused(topic, name).values()]

    def why_unknown(self, topic: str, name: str = "") -> str:
        """Return why a topic's own settings, or one of them, are unknown; otherwise empty."""
        if self._own(topic, name) is not None:
            return next(iter(self.notes(topic, name)), "")
        if ids := self._ids(topic, name):
            return (
                f"{name} is of another topic {topic} than the one in the metadata, {self._folder}: its topic id is "
                f"{ids[0]}, there it is {ids[1]}"
            )
        if self._folder:
            return f"topic {topic} is not in the metadata, {self._folder}"
        hint = f"; {self._beside} is of the same cluster" if self._beside else ""
        return f"the settings of topic {topic} are unknown: {self._place.parent} has no {FOLDER}{hint}"

    @cached_property
    def _beside(self) -> str | None:
        return metadata_beside(self._place.parent)

    def replicas_of(self, topic: str, partition: int, name: str = "") -> tuple[int, ...]:
        """Brokers that hold a partition; empty if unknown."""
        if self._ids(topic, name):
            return ()
        return self._metadata.replicas.get((self._metadata.topic_ids.get(topic, ""), partition), ())

    def assigned_topic_id(self, topic: str, partition: int) -> str | None:
        """Return a topic's id in the metadata; None unless it assigns the partition to the broker of this directory."""
        topic_id = self._metadata.topic_ids.get(topic)
        if topic_id is None or self.node_id not in self._metadata.replicas.get((topic_id, partition), ()):
            return None
        return topic_id

    @property
    def metadata_folder(self) -> str:
        """Where the cluster's metadata was read; empty if it was not."""
        return self._folder

    def describe(self, deletes: bool = False) -> str:
        """One line: where the settings come from; a command that `deletes` does not do so by a default."""
        defaults = "Kafka's defaults" + ", except for deletions" * deletes
        return "settings: " + "; then ".join([*self.sources, defaults])


def _properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return dict(parse_properties(file.read(), path))
    except OSError as error:
        raise RequestError(f"{path}: the settings of the broker cannot be read: {error.strerror}") from None
