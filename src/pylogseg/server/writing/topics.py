"""Topics that can be made, changed, deleted and appended to, wherever they are kept."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Partition
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import OffsetOutOfRangeError, PylogsegError, RequestError
from pylogseg.format.escape import printable
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import METADATA_TOPIC, partition_folder_name
from pylogseg.log.append_result import Appended
from pylogseg.log.producer_state import Origin
from pylogseg.server.acls import Acls, acls_of
from pylogseg.server.catalog import INTERNAL, Catalog, LogOpener, ServedPartition, Topic
from pylogseg.server.defaults import settings as settings_of_kafka
from pylogseg.server.defaults import settings_of_topics, why_invalid
from pylogseg.server.sasl import ScramCredential, users_of
from pylogseg.server.writing.clock import MovableClock
from pylogseg.values.internal.cluster import BROKER_RESOURCE, INTERNAL_TOPICS

_log = logging.getLogger(__name__)

#: What a new cluster of Kafka 4.3 has set.
NEW = {(BROKER_RESOURCE, ""): {"min.insync.replicas": "1"}}
#: So many partitions a topic may have here, and all topics: each costs files, or memory.
MOST_PARTITIONS, MOST_IN_ALL = 10_000, 50_000


#: By mechanism and name.
UsersOfScram = dict[tuple[str, str], ScramCredential]


class TopicStore(LogOpener, Protocol):
    """Keeps topics and their logs: in memory, or in a directory."""

    clock: MovableClock
    #: The log directory of partitions that are made.
    home: str
    #: What keeps Kafka's own topics small, when they come into being.
    internal_settings: Mapping[str, str]
    #: Returns the settings of a topic's logs; `Topics` sets it.
    config_of: Callable[[str], LogConfig]

    def check_changeable(self) -> None: ...
    def note(self, topics: Topics, shown: Mapping[str, Topic]) -> None: ...
    def configure(self, topic: Topic, settings: Mapping[str, str]) -> None: ...
    def make(self, topic: Topic, number: int) -> None: ...
    def append(self, served: ServedPartition, data: Any, origin: Origin, transaction_version: int) -> Appended: ...
    def compact(self, served: ServedPartition) -> None: ...
    def delete(self, served: ServedPartition) -> None: ...


class Topics:
    """The topics of a catalog, for changes by clients and for appends."""

    def __init__(self, catalog: Catalog, store: TopicStore) -> None:
        self.catalog, self.store, self.clock = catalog, store, store.clock
        #: Called after topics or partitions have come or gone.
        self.on_change: Callable[[], None] = lambda: None
        self._changing = threading.RLock()
        #: Topics that come into being at the end of `together`, by what names may not have in common.
        self._waiting: dict[str, Topic] | None = None
        if not catalog.disk:
            catalog.dynamic = NEW
        clusters = catalog.clusters.values()
        #: Who may do what, and the users of SCRAM that clients have made, by mechanism and name.
        self.acls = Acls(acls_of(acl for cluster in clusters for acl in cluster.acls))
        self.users = users_of(user for cluster in clusters for user in cluster.users)
        store.config_of = self.config_of
        self.show(catalog.topics)

    # ---- records ----

    def append(
        self, served: ServedPartition, data: Any, *, origin: Origin = Origin.CLIENT, transaction_version: int = 0
    ) -> Appended:
        """Append one batch, which can be read at once."""
        try:
            return self.store.append(served, data, origin, transaction_version)
        finally:
            served.wake()

    def delete_records(self, served: ServedPartition, offset: int) -> int:
        """Delete the records below an offset, -1 all; return where the log begins then."""
        log = served.log()
        if offset < -1:
            raise KafkaError(
                codes.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {served}: expected -1 for the end, or an offset from 0 on",
            )
        try:
            log.increment_log_start(log.high_watermark if offset == -1 else offset)
        except OffsetOutOfRangeError as error:
            raise KafkaError(codes.OFFSET_OUT_OF_RANGE, str(error)) from error
        served.wake()
        return log.log_start_offset

    # ---- settings ----

    def config_of(self, topic: str) -> LogConfig:
        present = self.catalog.topics.get(topic)
        try:
            return config(topic, self.settings_of(topic, {} if present is None else present.settings))
        except RequestError:  # of a copy: it was somebody else's
            return LogConfig()

    def settings_of(self, topic: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a topic: its own, and the broker's defaults (not for Kafka's own topics)."""
        nodes = [self.catalog.dynamic.get((BROKER_RESOURCE, node), {}) for node in ("", str(self.catalog.node_id))]
        brokers = {name: value for node in nodes for name, value in node.items()}
        defaults = {} if topic in INTERNAL else settings_of_topics(brokers)
        return {**defaults, **own}

    def set_dynamic(self, of: tuple[int, str], settings: Mapping[str, str], *, dry: bool = False) -> None:
        """Change the settings of a broker, a group, or client metrics; a broker's count for all topics."""
        with self._changing:
            self.store.check_changeable()
            if dry:
                return
            before, self.catalog.dynamic = self.catalog.dynamic, {**self.catalog.dynamic, of: dict(settings)}
            try:
                with _translate_errors():
                    self.store.note(self, self.catalog.topics)
                    for topic in self.catalog.topics.values() if of[0] == BROKER_RESOURCE else ():
                        self.store.configure(topic, self.settings_of(topic.name, topic.settings))
            except KafkaError:
                self.catalog.dynamic = before
                raise

    def set_access(self, change: Callable[[Acls, UsersOfScram], tuple[Acls, UsersOfScram]]) -> None:
        """Replace ACLs and users by a function's result; KafkaError if the result cannot be stored."""
        with self._changing:
            self.store.check_changeable()
            before = self.acls, self.users
            self.acls, self.users = change(*before)
            if (self.acls.by_id, self.users) == (before[0].by_id, before[1]):
                return
            try:
                with _translate_errors():
                    self.store.note(self, self.catalog.topics)
            except KafkaError:
                self.acls, self.users = before
                raise

    def configure(self, topic: Topic, settings: Mapping[str, str], *, dry: bool = False) -> None:
        """Change a topic's settings to these; KafkaError if one is invalid."""
        with self._changing:
            self.store.check_changeable()
            changed = {name: value for name, value in settings.items() if topic.settings.get(name) != value}
            checked_config(topic.name, changed)
            effective = self.settings_of(topic.name, settings)
            config(topic.name, effective)
            if not dry:
                before, topic.settings = topic.settings, dict(settings)
                try:
                    with _translate_errors():
                        self.store.note(self, self.catalog.topics)
                        self.store.configure(topic, effective)
                except KafkaError:
                    topic.settings = before
                    raise

    # ---- topics ----

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Create topics at the end of a ``with``, with one note for all of them.

        Raises KafkaError if that fails.
        """
        with self._changing:
            self._waiting = {}
            try:
                yield
            finally:
                waiting, self._waiting = self._waiting, None
            if waiting:
                self._begin(list(waiting.values()))
        if waiting:
            self.on_change()  # without the lock: who is called has locks of its own

    def make(
        self, name: str, count: int = -1, settings: Mapping[str, str] | None = None, *, dry: bool = False
    ) -> Topic:
        """Make a topic, or only check that it could be; KafkaError if it cannot."""
        settings = settings or {}
        count = self.catalog.defaults.partitions if count == -1 else count
        with self._changing:
            self.store.check_changeable()
            self._check_name(name)
            if not 0 < count <= MOST_PARTITIONS:
                text = "Number of partitions was set to an invalid non-positive value."
                if count > 0:
                    text = f"the number of partitions is {count}, it may be 1 to {MOST_PARTITIONS}"
                raise KafkaError(codes.INVALID_PARTITIONS, text)
            waiting = self._waiting
            if name not in INTERNAL:  # without them nothing can be committed
                self._check_room(count)
            checked_config(name, settings)
            topic = Topic(name, uuid.uuid4().bytes, {}, count, dict(settings))
            if dry:
                return topic
            if waiting is not None:
                waiting[_alike(name)] = topic
                self._count += count
                return topic
            self._begin([topic])
        self.on_change()
        return topic

    def internal(self, name: str) -> Topic:
        """Return a topic of Kafka's own, which is made at its first use."""
        topic = self.catalog.topics.get(name)
        if topic is not None:
            return topic
        own = {key.replace("_", "."): value for key, value in INTERNAL_TOPICS[name].items()}
        try:
            return self.make(name, self.catalog.defaults.internal_partitions, {**own, **self.store.internal_settings})
        except KafkaError as error:
            if error.code == codes.TOPIC_ALREADY_EXISTS:
                return self.catalog.topics[name]
            _log.warning("%s is not here, so nothing can be kept in it: %s", name, printable(error.text or ""))
            raise KafkaError(codes.COORDINATOR_NOT_AVAILABLE, error.text) from error

    def _begin(self, made: list[Topic]) -> None:
        topics = {**self.catalog.topics, **{topic.name: topic for topic in made}}
        try:
            with _translate_errors():
                self.store.note(self, topics)
                for topic in made:
                    self.add(topic, range(topic.count))
        except KafkaError:
            self.show(self.catalog.topics)
            raise
        self.show(topics)

    def _check_name(self, name: str) -> None:
        """Raise KafkaError for a name that a topic may not have, or that one has."""
        invalid = codes.invalid_topic(name)
        if invalid is not None:
            raise invalid
        if name == METADATA_TOPIC:
            raise KafkaError(codes.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if name in self.catalog.topics:
            raise KafkaError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = self._alike.get(_alike(name)) or (self._waiting or {}).get(_alike(name))
        if alike is not None:
            raise KafkaError(codes.INVALID_TOPIC, f"Topic '{name}' collides with existing topic: {alike.name}")

    def _check_room(self, count: int) -> None:
        if self._count + count > MOST_IN_ALL:
            text = f"there are {self._count} partitions already, of {MOST_IN_ALL} that all topics may have here"
            raise KafkaError(codes.POLICY_VIOLATION, text)

    def add_partitions(self, topic: Topic, count: int, *, dry: bool = False) -> None:
        """Raise the number of a topic's partitions; KafkaError if it is not more."""
        with self._changing:
            self.store.check_changeable()
            if not topic.count < count <= MOST_PARTITIONS:
                has = f"The topic {topic.name} currently has {topic.count} partition(s)"
                text = f"{has}; {count} would not be an increase."
                if count == topic.count:
                    text = f"Topic already has {count} partition(s)."
                elif count > topic.count:
                    text = f"the number of partitions is {count}, it may be 1 to {MOST_PARTITIONS}"
                raise KafkaError(codes.INVALID_PARTITIONS, text)
            self._check_room(count - topic.count)
            if dry:
                return
            before, topic.count = topic.count, count
            try:
                with _translate_errors():
                    self.store.note(self, self.catalog.topics)
                    self.add(topic, range(before, count))
                    self._count += count - before
            except KafkaError:
                topic.count = before
                raise
        self.on_change()

    def delete(self, topic: Topic) -> None:
        with self._changing:
            self.store.check_changeable()
            if self.catalog.topics.get(topic.name) is not topic:
                raise KafkaError(codes.UNKNOWN_TOPIC_OR_PARTITION)
            left = {name: other for name, other in self.catalog.topics.items() if other is not topic}
            with _translate_errors():
                self.store.note(self, left)
            self.show(left)
            for served in topic.partitions.values():
                served.close()
                self.store.delete(served)
                served.wake()
        self.on_change()

    def show(self, topics: dict[str, Topic]) -> None:
        self.catalog.show(topics)
        self._alike = {_alike(name): topic for name, topic in topics.items()}
        self._count = sum(topic.count for topic in topics.values())

    def add(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Make partitions of a topic that is shown already."""
        self.store.configure(topic, self.settings_of(topic.name, topic.settings))
        partitions = {}
        for number in numbers:
            self.store.make(topic, number)
            path = os.path.join(self.store.home, partition_folder_name(topic.name, number))
            partition = Partition(LocalFiles(), topic.name, number, path, "", (), (), 0)
            partitions[number] = ServedPartition(partition, self.store, epoch=0)
        topic.partitions = {**topic.partitions, **partitions}


def _alike(name: str) -> str:
    """Return the part that two names may not share, because Kafka's metrics would collide."""
    return name.replace(".", "_")


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn a failure of the disk into Kafka's error."""
    try:
        yield
    except PylogsegError as error:
        raise KafkaError(codes.KAFKA_STORAGE_ERROR, str(error)) from error


def config(topic: str, settings: Mapping[str, str]) -> LogConfig:
    """Return settings of a topic by Kafka's names; RequestError if one is invalid."""
    own = {name.replace(".", "_"): value for name, value in settings.items()}
    return LogConfig.of(**{**INTERNAL_TOPICS.get(topic, {}), **own})


def checked_config(topic: str, settings: Mapping[str, str]) -> LogConfig:
    """Do the work of `config`; KafkaError, in Kafka's words, for an invalid or unknown setting."""
    definitions = settings_of_kafka("TOPIC")
    for name, value in settings.items():
        if name not in definitions and not name.startswith("internal."):
            raise KafkaError(codes.INVALID_CONFIG, f"Unknown topic config name: {name}")
        why = why_invalid(name, definitions[name], value) if name in definitions else ""
        if why:
            raise KafkaError(codes.INVALID_CONFIG, why)
    try:
        checked = config(topic, settings)
    except RequestError as error:
        raise KafkaError(codes.INVALID_CONFIG, str(error)) from error
    if checked.remote_storage_enable:
        text = "this broker has no tiered storage, and a Kafka without it would not load the topic"
        raise KafkaError(codes.INVALID_CONFIG, f"remote.storage.enable={settings['remote.storage.enable']}: {text}")
    return checked
