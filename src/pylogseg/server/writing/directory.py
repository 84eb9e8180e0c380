"""Topics of a directory that this process owns, in the engine's files."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Partition
from pylogseg.disk.listing import open_dir
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.files.properties import MetaProperties, parse_meta_properties
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import METADATA_TOPIC, FileKind, partition_folder_name
from pylogseg.format.uuids import format_uuid, parse_uuid
from pylogseg.log.append_result import Appended
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.owned.manager.manager import LogManager
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.server.acls import Acls
from pylogseg.server.catalog import Catalog, ServedPartition, Topic, TopicDefaults, usage_of_disk
from pylogseg.server.defaults import settings_of_topics
from pylogseg.server.writing.bootstrap_checkpoint import (
    FILE,
    BootstrapContents,
    KeptTopic,
    encode_kept,
    random_id,
    read_kept,
    write_label,
)
from pylogseg.server.writing.clock import MovableClock
from pylogseg.server.writing.topics import NEW, Topics, config
from pylogseg.values.internal.cluster import BROKER_RESOURCE, INTERNAL_TOPICS

_log = logging.getLogger(__name__)

_CLEANER_BYTES = 16 << 20
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_METADATA_FOLDER = f"{METADATA_TOPIC}-0"
_ATTRIBUTES_AT, _CONTROL = 21, 0x20
#: Settings without which a log manager deletes and compacts nothing.
_SAID = ("cleanup_policy", "retention_ms", "retention_bytes")


class DirectoryLogs:
    """Logs of a directory that this process owns, by a log manager; see `TopicStore`.

    It takes the lock, recovers what was not closed cleanly, and applies retention and compaction, as a broker does. A
    new directory gets the number `node_id`, by default 1; another one has to have it.
    """

    keeps, is_writable = "what is written is kept there", True
    left_out, aborted = (0, 0), 0
    config_of: Callable[[str], LogConfig]

    def __init__(
        self,
        path: str | os.PathLike[str],
        node_id: int | None = None,
        internal_settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        self.home, self.internal_settings = os.path.realpath(path), internal_settings
        self._storage = LocalStorage()  # of its own: the lock keeps out who has another one
        self.clock = MovableClock()
        self.contents = self._read()
        #: True if a cluster has it: then only that changes topics.
        self.is_cluster = self._has_metadata()
        settings = BrokerSettings(log_dirs=(self.home,), log_cleaner_dedupe_buffer_size=_CLEANER_BYTES)
        self.manager = LogManager(settings, self._settings_of_topics(), storage=self._storage, clock=self.clock)
        try:
            self.label = self._check_label(node_id)
            #: What whoever starts the server should know.
            self.notes = [] if self.is_cluster else self._free_name()
        except BaseException:
            self.manager.close()
            raise

    def _settings_of_topics(self) -> dict[str, dict[str, Any]]:
        """Return the settings of topics that the manager gets before it loads their logs."""
        kept, dynamic = self.contents.topics, self.contents.dynamic
        nodes = {
            key: value for (kind, _), node in dynamic.items() if kind == BROKER_RESOURCE for key, value in node.items()
        }
        return {
            name: _select_settings(name, {**settings_of_topics(nodes), **topic.settings})
            for name, topic in ({} if self.is_cluster else kept).items()
        }

    # ---- what is there ----

    def _read(self) -> BootstrapContents:
        """Return the kept contents; for a new directory the first ones."""
        path = os.path.join(self.home, FILE)
        if not os.path.exists(path):
            return BootstrapContents(dynamic={of: dict(settings) for of, settings in NEW.items()})
        return read_kept(self._storage.read_all(path), path)

    def _has_metadata(self) -> bool:
        """True if there is the metadata of a cluster: a log that a quorum has begun."""
        folder = os.path.join(self.home, _METADATA_FOLDER)
        try:
            names = sorted(entry.name for entry in self._storage.list_folder(folder))
        except StorageError:
            return False
        if any(name == FileKind.QUORUM_STATE.value or name.endswith(FileKind.KRAFT_SNAPSHOT.value) for name in names):
            return True
        logs = [os.path.join(folder, name) for name in names if name.endswith(FileKind.LOG.value)]
        return bool(logs) and _begins_with_control(logs[0])

    def cuts(self) -> list[str]:
        """Return the bytes that recovery cut off logs, and their missing records."""
        logs = [log for _, _, log in self.manager.places()]
        return [str(action) for log in logs for action in log.report.actions if action.bytes_gone or action.is_damage]

    def _free_name(self) -> list[str]:
        """Set a topic aside that has the name of the metadata: an earlier version let clients make it."""
        if self.contents.topics.pop(METADATA_TOPIC, None) is None:
            return []
        place = partition_folder_name(METADATA_TOPIC, 0, "stray", uuid.uuid4().hex)
        self._storage.rename(os.path.join(self.home, _METADATA_FOLDER), os.path.join(self.home, place))
        return [f"{_METADATA_FOLDER} was a topic of clients, which no topic may be: its files are in {place}"]

    def _check_label(self, node_id: int | None) -> MetaProperties:
        """Return whose directory it is; a new one becomes this server's."""
        path = os.path.join(self.home, FileKind.META_PROPERTIES.value)
        if os.path.exists(path):
            properties = parse_meta_properties(self._storage.read_all(path), path)
            if node_id not in (None, properties.node_id):
                raise RequestError(
                    f"{self.home} is of node {properties.node_id}, not of {node_id}: leave out node_id (--node-id)"
                )
            return properties
        label = MetaProperties(1, random_id(), 1 if node_id is None else node_id, random_id())
        write_label(self._storage, path, label)
        return label

    # ---- logs ----

    def _engine(self, topic: str, number: int) -> Log:
        try:
            return self.manager[topic, number].engine
        except KeyError:
            folder = os.path.join(self.home, partition_folder_name(topic, number))
            raise StorageError(folder, "use", "the log directory is offline, or the topic was deleted") from None

    def open(self, found: Partition) -> Log:
        """Return a log, which the manager has opened; StorageError if its directory has failed, or it was deleted."""
        return self._engine(found.topic, found.partition)

    def release(self, log: Log) -> None:
        """Leave the log: the manager closes it."""

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return how large the disk of a log directory is, and how much of it is free; OSError if it has none."""
        return usage_of_disk(log_dir)

    def close(self) -> None:
        """Close all logs cleanly."""
        self.manager.close()

    # ---- changes ----

    def check_changeable(self) -> None:
        """Raise KafkaError where a cluster has the directory."""
        if self.is_cluster:
            text = (
                f"{self.home} belongs to a Kafka cluster, whose metadata names the topics and their settings: change "
                "them with its broker; records and groups can be written here"
            )
            raise KafkaError(codes.POLICY_VIOLATION, text)

    def note(self, topics: Topics, shown: Mapping[str, Topic]) -> None:
        """Write the list of topics, and all other state without records."""
        kept = {
            name: KeptTopic(
                topic.name,
                format_uuid(topic.id),
                topic.count,
                topic.settings,
                {number: served.leader_epoch for number, served in topic.partitions.items()},
            )
            for name, topic in shown.items()
        }
        dynamic = {of: dict(settings) for of, settings in topics.catalog.dynamic.items()}
        features, more = self.contents.features, self.contents.more
        data = encode_kept(
            BootstrapContents(kept, dynamic, topics.acls.by_id, topics.users, features, more),
            topics.catalog.node_id,
            self.label.directory_id or random_id(),
        )
        self._storage.write_whole(os.path.join(self.home, FILE), data)

    def configure(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Let the manager apply new settings."""
        self.manager.configure(topic.name, **_select_settings(topic.name, settings))

    def make(self, topic: Topic, number: int) -> None:
        self.manager.log(topic.name, number, topic_id=format_uuid(topic.id))

    def append(self, served: ServedPartition, data: Any, origin: Origin, transaction_version: int) -> Appended:
        """Append one batch, which can be read at once."""
        served.log()  # KafkaError if it has failed
        log, version = self._engine(served.topic, served.number), transaction_version
        return log.append_as_leader(data, served.leader_epoch, origin=origin, transaction_version=version)

    def compact(self, served: ServedPartition) -> None:
        """Do nothing: the manager compacts."""

    def delete(self, served: ServedPartition) -> None:
        """Let the manager delete a partition; log a failure."""
        try:
            self.manager.delete(served.topic, served.number)
        except PylogsegError as error:
            _log.warning("%s: it cannot be deleted: %s", served, printable(str(error)))

    def set_aside(self, topic: Topic) -> None:
        """Keep the files of a topic that was deleted, by names of strays."""
        for served in topic.partitions.values():
            place = self.manager.set_aside(served.topic, served.number)
            _log.warning("%s: the topic was deleted, its files are in %s", printable(topic.name), printable(place))

    def label_folder(self, served: ServedPartition, topic: Topic) -> None:
        """Give the folder of a partition the id of its topic."""
        path = os.path.join(served.folder, FileKind.PARTITION_METADATA.value)
        if not os.path.exists(path):
            self._storage.write_whole(path, encode_partition_metadata(PartitionMetadata(format_uuid(topic.id))))


def directory_topics(
    path: str | os.PathLike[str],
    defaults: TopicDefaults = TopicDefaults(auto_create=True),  # noqa: B008  (it cannot be changed)
    node_id: int | None = None,
    internal_settings: Mapping[str, str] = NO_SETTINGS,
) -> Topics:
    """Return the topics of a directory, new or not, of which this process is the only writer.

    Raises StorageError if another process has its lock or the disk fails, RequestError if it is another node's, and
    CorruptionError if a file that is needed is damaged.
    """
    store = DirectoryLogs(path, node_id, internal_settings)
    try:
        catalog = Catalog(open_dir(store.home), logs=store, defaults=defaults)
        catalog.node_id = store.label.node_id if store.label.node_id is not None else catalog.node_id
        catalog.notes += [*store.notes, *store.cuts()]
        topics = Topics(catalog, store)
        if not store.is_cluster:
            catalog.dynamic = store.contents.dynamic
            topics.acls, topics.users = Acls(store.contents.acls), store.contents.users
            _adopt(topics, store)
        return topics
    except BaseException:
        store.close()
        raise


def _adopt(topics: Topics, store: DirectoryLogs) -> None:
    """Bring topics and logs together: logs that nobody has kept are taken over once, and later set aside."""
    topics_here, kept = dict(topics.catalog.topics), store.contents.topics
    if kept:  # Kafka's own tool formats directories without topics
        for name in [name for name in topics_here if name not in kept]:
            store.set_aside(topics_here.pop(name))
    else:
        _keep_for_ever(topics.catalog, [topic for topic in topics_here.values() if topic.name not in INTERNAL_TOPICS])
    for name, kept_topic in kept.items():
        topic = topics_here.setdefault(name, Topic(name, b"", {}, kept_topic.count))
        topic.id, topic.settings = parse_uuid(kept_topic.topic_id), dict(kept_topic.settings)
        topic.count = max(topic.count, kept_topic.count)
    for topic in topics_here.values():
        topics.add(topic, [number for number in range(topic.count) if number not in topic.partitions])
        for served in topic.partitions.values():
            store.label_folder(served, topic)
    store.note(topics, topics_here)
    topics.show(topics_here)


def _keep_for_ever(catalog: Catalog, topics: Sequence[Topic]) -> None:
    """Keep all records of logs from other brokers, since this one does not have the settings."""
    for topic in topics:
        topic.settings = {"retention.ms": "-1"}
    if topics:
        catalog.notes.append(
            f"logs of {len(topics):,} topics were found and taken over; nobody knows their settings here, so they"
            " are kept for ever (retention.ms=-1) until somebody changes that"
        )


def _begins_with_control(path: str) -> bool:
    with open(path, "rb") as file:
        data = file.read(BATCH_HEADER.size)
    return len(data) == BATCH_HEADER.size and bool(data[_ATTRIBUTES_AT + 1] & _CONTROL)


def _select_settings(topic: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic's settings for the manager, always with retention settings: without them it deletes nothing."""
    settings_of_log = config(topic, settings)
    own = {name.replace(".", "_"): value for name, value in settings.items()}
    return {**{name: getattr(settings_of_log, name) for name in _SAID}, **own}
