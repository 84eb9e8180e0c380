"""Topics of a directory that this process owns: what is written is kept in the engine's files."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import open_dir
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.files.properties import MetaProperties, parse_meta_properties
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.format.names import METADATA_TOPIC, FileKind, partition_folder_name
from pylogseg.format.uuids import format_uuid, parse_uuid
from pylogseg.log.append_result import Appended
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.manager.manager import LogManager
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.server import codes
from pylogseg.server.catalog import Catalog, Served, Topic
from pylogseg.server.codes import KafkaError
from pylogseg.server.defaults import topic_settings
from pylogseg.server.writing.acls import Acls
from pylogseg.server.writing.clock import MovableClock
from pylogseg.server.writing.kept import FILE, Contents, Kept, encode_kept, read_kept, write_label
from pylogseg.server.writing.topics import NEW, WritableCatalog, Written, config
from pylogseg.values.internal.cluster import BROKER_RESOURCE, INTERNAL_TOPICS

_log = logging.getLogger(__name__)

_CLEANER_BYTES = 16 << 20
_METADATA_FOLDER = f"{METADATA_TOPIC}-0"
_ATTRIBUTES_AT, _CONTROL = 21, 0x20
#: Settings without which a log manager deletes and compacts nothing.
_SAID = ("cleanup_policy", "retention_ms", "retention_bytes")


class Owned(Written):
    """A partition whose log the manager has open."""

    _catalog: OwnedCatalog

    def _append(self, log: Log, data: Any, origin: Origin, version: int) -> Appended:
        owned, epoch = self._catalog.embedded(self), self.leader_epoch
        return owned.apply(owned.engine.append_as_leader, data, epoch, origin=origin, transaction_version=version)

    def configure(self, config: LogConfig) -> None:
        """Do nothing: the manager has the settings."""

    def compact(self) -> None:
        """Do nothing: the manager compacts."""

    def close(self) -> None:
        """Leave the log: the manager closes it."""
        self._log = None


class OwnedCatalog(WritableCatalog):
    """The topics of an own directory; see `WritableCatalog`.

    It takes the lock, recovers what was not closed cleanly, and applies retention and compaction, as a broker does.

    Parameters
    ----------
    path : path
        A log directory; it is made if it is missing.
    default_partitions, auto_create
        As in `WritableCatalog`.
    node_id : int, optional
        Of a new directory, by default 1; another one has to have the same.

    Raises
    ------
    StorageError
        If another process has the lock, or the disk fails.
    CorruptionError
        If a file that is needed is damaged.
    """

    served_type: type[Written] = Owned
    keeps = "what is written is kept there"
    internal_partitions = 1  # each has files
    internal_settings: Mapping[str, str] = {}

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        default_partitions: int = 1,
        auto_create: bool = True,
        node_id: int | None = None,
    ) -> None:
        self.path = os.path.realpath(path)
        self._storage = LocalStorage()  # of its own: the lock keeps out who has another one
        clock = MovableClock()
        contents = self._read()
        # Kafka's own tool formats directories without topics.
        kept, dynamic = contents.topics or None, contents.dynamic
        #: Whether a cluster has it: then only that changes topics.
        self.is_cluster = self._has_metadata()
        nodes = {
            key: value for (kind, _), each in dynamic.items() if kind == BROKER_RESOURCE for key, value in each.items()
        }
        said = {
            name: _said(name, {**topic_settings(nodes), **each.settings})
            for name, each in ({} if self.is_cluster else kept or {}).items()
        }
        settings = BrokerSettings(log_dirs=(self.path,), log_cleaner_dedupe_buffer_size=_CLEANER_BYTES)
        self.manager = LogManager(settings, said, storage=self._storage, clock=clock)
        try:
            self._label = self._labelled(node_id)
            freed = [] if self.is_cluster else self._free_name(kept or {})
            super().__init__(
                open_dir(self.path), clock=clock, default_partitions=default_partitions, auto_create=auto_create
            )
            self.node_id = self._label.node_id if self._label.node_id is not None else self.node_id
            self._home = self.path
            self.notes += freed
            if not self.is_cluster:
                self._dynamic, self.acls, self.users = dynamic, Acls(contents.acls), contents.users
                self._adopt(kept)
        except BaseException:
            self.manager.close()
            raise

    # ---- what is there ----

    def _read(self) -> Contents:
        """Return what was kept; of a new directory what each begins with."""
        path = os.path.join(self.path, FILE)
        if not os.path.exists(path):
            return Contents(dynamic={of: dict(each) for of, each in NEW.items()})
        return read_kept(self._storage.read_all(path), path)

    def _has_metadata(self) -> bool:
        """Whether there is the metadata of a cluster: a log that a quorum has begun."""
        folder = os.path.join(self.path, _METADATA_FOLDER)
        try:
            names = sorted(each.name for each in self._storage.list_folder(folder))
        except StorageError:
            return False
        if any(name == FileKind.QUORUM_STATE.value or name.endswith(FileKind.KRAFT_SNAPSHOT.value) for name in names):
            return True
        logs = [os.path.join(folder, name) for name in names if name.endswith(FileKind.LOG.value)]
        return bool(logs) and _begins_with_control(logs[0])

    def _free_name(self, kept: dict[str, Kept]) -> list[str]:
        """Set a topic aside that has the name of the metadata: an earlier version let clients make it."""
        if kept.pop(METADATA_TOPIC, None) is None:
            return []
        place = partition_folder_name(METADATA_TOPIC, 0, "stray", uuid.uuid4().hex)
        self._storage.rename(os.path.join(self.path, _METADATA_FOLDER), os.path.join(self.path, place))
        return [f"{_METADATA_FOLDER} was a topic of clients, which no topic may be: its files are in {place}"]

    def _labelled(self, node_id: int | None) -> MetaProperties:
        """Return whose directory it is; a new one becomes this server's."""
        path = os.path.join(self.path, FileKind.META_PROPERTIES.value)
        if os.path.exists(path):
            found = parse_meta_properties(self._storage.read_all(path), path)
            if node_id not in (None, found.node_id):
                raise RequestError(
                    f"{self.path} is of node {found.node_id}, not of {node_id}: leave out node_id (--node-id)"
                )
            return found
        label = MetaProperties(1, _new_id(), 1 if node_id is None else node_id, _new_id())
        write_label(self._storage, path, label)
        return label

    def _adopt(self, kept: Mapping[str, Kept] | None) -> None:
        """Bring topics and logs together: logs that nobody has kept are taken over once, and later set aside."""
        if kept is not None:
            self._set_aside([name for name in self.topics if name not in kept])
        topics = dict(self.topics)
        if kept is None:
            self._keep_for_ever([topic for topic in topics.values() if topic.name not in INTERNAL_TOPICS])
        for name, each in (kept or {}).items():
            topic = topics.setdefault(name, Topic(name, b"", {}, each.count))
            topic.id, topic.settings = parse_uuid(each.topic_id), dict(each.settings)
            topic.count = max(topic.count, each.count)
        for topic in topics.values():
            self.manager.configure(topic.name, **_said(topic.name, self.settings_of(topic.name, topic.settings)))
            self._add(topic, [number for number in range(topic.count) if number not in topic.partitions])
            for served in topic.partitions.values():
                self._label_folder(served, topic)
        self._keep(topics)
        self._show(topics)

    def _keep_for_ever(self, topics: Sequence[Topic]) -> None:
        """Let nothing of logs be deleted that others wrote, by settings that are not known here."""
        for topic in topics:
            topic.settings = {"retention.ms": "-1"}
        if topics:
            self.notes.append(
                f"logs of {len(topics):,} topics were found and taken over; nobody knows their settings here, so they"
                " are kept for ever (retention.ms=-1) until somebody changes that"
            )

    def _set_aside(self, names: Iterable[str]) -> None:
        for name in names:
            for served in self.topics[name].partitions.values():
                place = self.manager.set_aside(served.topic, served.number)
                _log.warning("%s: the topic was deleted, its files are in %s", printable(name), printable(place))
        self._show({name: each for name, each in self.topics.items() if name not in set(names)})

    def _label_folder(self, served: Served, topic: Topic) -> None:
        path = os.path.join(served.folder, FileKind.PARTITION_METADATA.value)
        if not os.path.exists(path):
            self._storage.write_whole(path, encode_partition_metadata(PartitionMetadata(format_uuid(topic.id))))

    # ---- logs ----

    def embedded(self, served: Served) -> EmbeddedLog:
        """Return the log of a partition; StorageError if its directory has failed, or it was deleted."""
        try:
            return self.manager[served.topic, served.number]
        except KeyError:
            raise StorageError(served.folder, "use", "the log directory is offline, or the topic was deleted") from None

    def open_log(self, served: Served) -> Log:
        """Return the log of a partition, which the manager has opened."""
        return self.embedded(served).engine

    # ---- changes ----

    def _check_changeable(self) -> None:
        if self.is_cluster:
            text = (
                f"{self.path} belongs to a Kafka cluster, whose metadata names the topics and their settings: change "
                "them with its broker; records and groups can be written here"
            )
            raise KafkaError(codes.POLICY_VIOLATION, text)

    def _keep(self, topics: Mapping[str, Topic]) -> None:
        kept = {name: Kept(each.name, format_uuid(each.id), each.count, each.settings) for name, each in topics.items()}
        contents = Contents(kept, {of: dict(each) for of, each in self._dynamic.items()}, self.acls.by_id, self.users)
        data = encode_kept(contents, self.node_id, self._label.directory_id or _new_id())
        self._storage.write_whole(os.path.join(self.path, FILE), data)

    def _configured(self, topic: Topic, found: LogConfig) -> None:
        self.manager.configure(topic.name, **_said(topic.name, self.settings_of(topic.name, topic.settings)))

    def _add(self, topic: Topic, numbers: Iterable[int]) -> None:
        self.manager.configure(topic.name, **_said(topic.name, self.settings_of(topic.name, topic.settings)))
        numbers = list(numbers)
        for number in numbers:
            self.manager.log(topic.name, number, topic_id=format_uuid(topic.id))
        super()._add(topic, numbers)

    def _remove(self, served: Written) -> None:
        super()._remove(served)
        try:
            self.manager.delete(served.topic, served.number)
        except PylogsegError as error:
            _log.warning("%s: it cannot be deleted: %s", served, printable(str(error)))

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return how large the disk of a log directory is, and how much of it is free; OSError if it has none."""
        return Catalog.usage(self, log_dir)

    def close(self) -> None:
        """Close all logs cleanly."""
        super().close()
        self.manager.close()


def _begins_with_control(path: str) -> bool:
    with open(path, "rb") as file:
        data = file.read(BATCH_HEADER.size)
    return len(data) == BATCH_HEADER.size and bool(data[_ATTRIBUTES_AT + 1] & _CONTROL)


def _said(topic: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic's settings for the manager, with those that it wants to hear before it deletes anything."""
    found = config(topic, settings)
    own = {name.replace(".", "_"): value for name, value in settings.items()}
    return {**{name: getattr(found, name) for name in _SAID}, **own}


def _new_id() -> str:
    """Return a random id; like Kafka's, it does not begin with ``-``, which is a nuisance in a shell."""
    while (text := format_uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text
