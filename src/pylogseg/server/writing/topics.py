"""Topics that can be made, changed, deleted and appended to, in memory above files that stay as they are."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Disk, Partition
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import OffsetOutOfRangeError, PylogsegError, RequestError
from pylogseg.format.escape import printable
from pylogseg.format.names import METADATA_TOPIC, partition_folder_name
from pylogseg.log.append_result import Appended
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable, dirtiness
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.producer_state import Origin
from pylogseg.server import codes
from pylogseg.server.catalog import INTERNAL, Catalog, Growth, Served, Topic
from pylogseg.server.codes import KafkaError
from pylogseg.server.defaults import settings as settings_of_kafka
from pylogseg.server.defaults import topic_settings, why_invalid
from pylogseg.server.sasl import Stored, users_of
from pylogseg.server.view import View
from pylogseg.server.writing.acls import Acls, acls_of
from pylogseg.server.writing.clock import MovableClock
from pylogseg.server.writing.growth import Watch, wake
from pylogseg.values.internal.cluster import BROKER_RESOURCE, INTERNAL_TOPICS

_log = logging.getLogger(__name__)

#: What a new cluster of Kafka 4.3 has set.
NEW = {(BROKER_RESOURCE, ""): {"min.insync.replicas": "1"}}
#: So many partitions a topic may have here, and all topics: each costs files, or memory.
MOST_PARTITIONS, MOST_IN_ALL = 10_000, 50_000


#: By mechanism and name.
UsersOfScram = dict[tuple[str, str], Stored]


class Written(Served):
    """A partition that is appended to."""

    def __init__(self, catalog: Catalog, found: Partition) -> None:
        self._listed = 0
        super().__init__(catalog, found)
        self.watchers: set[Watch] = set()
        self._cleaned: int | None = None  # up to which offset

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        log = self._log
        return self._listed if log is None else sum(segment.size for segment in log.segments)

    @size.setter
    def size(self, listed: int) -> None:
        self._listed = listed

    def note_epoch(self) -> bool:
        """Read the epoch from its file; a partition that was made here has the first."""
        if os.path.isdir(self.folder):
            return super().note_epoch()
        self._epoch = 0
        return True

    def append(self, data: Any, *, origin: Origin = Origin.CLIENT, transaction_version: int = 0) -> Appended:
        """Append one batch, which can be read at once."""
        log = self.log()
        try:
            return self._append(log, data, origin, transaction_version)
        finally:
            wake(self)

    def _append(self, log: Log, data: Any, origin: Origin, version: int) -> Appended:
        with log.state.lock:
            try:
                return log.append_as_leader(data, self.leader_epoch, origin=origin, transaction_version=version)
            finally:
                log.offsets.update_high_watermark(log.offsets.end)

    def close_unused(self, before: float) -> bool:
        """Leave the log open, however long nobody has asked for it: what was written to it is nowhere else."""
        return False

    def delete_records(self, offset: int) -> int:
        """Delete the records below an offset, -1 all; return where the log begins then."""
        log = self.log()
        if offset < -1:
            raise KafkaError(
                codes.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self}: -1 is the end, others are not negative"
            )
        try:
            log.increment_log_start(log.high_watermark if offset == -1 else offset)
        except OffsetOutOfRangeError as error:
            raise KafkaError(codes.OFFSET_OUT_OF_RANGE, str(error)) from error
        wake(self)
        return log.log_start_offset

    def compact(self) -> None:
        """Compact the log if as much of it is new as a broker waits for: in memory nobody else does."""
        log = self.log()
        if len(log.segments) == 1:
            return
        what = cleanable(log, self._cleaned, log.clock.now_ms())
        if dirtiness(log, what).ratio >= log.config.min_cleanable_dirty_ratio:
            self._cleaned, _ = Cleaner(OffsetMap()).clean(log, what)

    def configure(self, config: LogConfig) -> None:
        """Apply new settings, if the log is open; else it opens with them."""
        if self._log is not None:
            self._log.update_config(config)


class WritableCatalog(Catalog):
    """Topics above some log directories, or above nothing; see `Catalog`.

    Parameters
    ----------
    disk : Disk
        What is there to begin with.
    names, view
        As in `Catalog`; of the view, damage and open transactions stay as they are.
    clock : MovableClock, optional
        Stamps records; by default one that nobody has moved.
    default_partitions : int
        Of a topic that is made without a number.
    auto_create : bool
        Whether a topic comes into being when a client asks for it.
    """

    is_writable = True
    keeps = "what is written is kept in memory"
    clock: MovableClock
    served_type: type[Written] = Written
    #: Of Kafka's own topics, when they come into being: as many partitions as in a broker, and what keeps them small.
    internal_partitions = 50
    internal_settings: Mapping[str, str] = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"}

    def __init__(
        self,
        disk: Disk,
        names: Sequence[str] = (),
        *,
        clock: MovableClock | None = None,
        view: View = View(),  # noqa: B008  (it cannot be changed)
        default_partitions: int = 1,
        auto_create: bool = True,
    ) -> None:
        self.clock = MovableClock() if clock is None else clock
        self.default_partitions, self.auto_create = default_partitions, auto_create
        self._home = os.path.join(os.path.abspath(os.sep), f"pylogseg-memory-{uuid.uuid4().hex}")
        self._changing = threading.RLock()
        #: Called after topics or partitions have come or gone.
        self.on_change: Callable[[], None] = lambda: None
        self._dynamic: Mapping[tuple[int, str], Mapping[str, str]] = {}
        #: Topics that come into being at the end of `together`, by what names may not have in common.
        self._waiting: dict[str, Topic] | None = None
        super().__init__(disk, names, view=view)
        self._dynamic = dict(super().dynamic) if disk else NEW
        clusters = self._clusters.values()
        #: Who may do what, and the users of SCRAM that clients have made, by mechanism and name.
        self.acls = Acls(acls_of(each for cluster in clusters for each in cluster.acls))
        self.users = users_of(each for cluster in clusters for each in cluster.users)
        self._show(self.topics)

    @property
    def dynamic(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """See `Catalog`; they can be changed here."""
        return self._dynamic

    def written(self, topic: Topic | None, number: int) -> Written:
        """Return a partition; KafkaError if it is not here."""
        found = self.find(topic, number)
        assert isinstance(found, Written)
        return found

    # ---- settings ----

    def config_of(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        known = self.topics.get(topic)
        try:
            return config(topic, self.settings_of(topic, {} if known is None else known.settings))
        except RequestError:  # of a copy: it was somebody else's
            return LogConfig()

    def settings_of(self, topic: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a topic: its own, and those that the broker has for all but Kafka's own topics."""
        nodes = [self.dynamic.get((BROKER_RESOURCE, node), {}) for node in ("", str(self.node_id))]
        brokers = {name: value for each in nodes for name, value in each.items()}
        found = {} if topic in INTERNAL else topic_settings(brokers)
        return {**found, **own}

    def set_dynamic(self, of: tuple[int, str], settings: Mapping[str, str], *, dry: bool = False) -> None:
        """Change the settings of a broker, a group, or what clients report; those of a broker count for all topics."""
        with self._changing:
            self._check_changeable()
            if dry:
                return
            before, self._dynamic = self._dynamic, {**self._dynamic, of: dict(settings)}
            try:
                with _stored():
                    self._keep(self.topics)
                    for topic in self.topics.values() if of[0] == BROKER_RESOURCE else ():
                        self._configured(topic, self.config_of(topic.name))
            except KafkaError:
                self._dynamic = before
                raise

    def set_access(self, change: Callable[[Acls, UsersOfScram], tuple[Acls, UsersOfScram]]) -> None:
        """Exchange ACLs and users by what a function makes of them; KafkaError if that cannot be kept."""
        with self._changing:
            self._check_changeable()
            before = self.acls, self.users
            self.acls, self.users = change(*before)
            if (self.acls.by_id, self.users) == (before[0].by_id, before[1]):
                return
            try:
                with _stored():
                    self._keep(self.topics)
            except KafkaError:
                self.acls, self.users = before
                raise

    def configure(self, topic: Topic, settings: Mapping[str, str], *, dry: bool = False) -> None:
        """Change a topic's settings to these; KafkaError if one is invalid."""
        with self._changing:
            self._check_changeable()
            changed = {name: value for name, value in settings.items() if topic.settings.get(name) != value}
            checked_config(topic.name, changed)
            found = config(topic.name, self.settings_of(topic.name, settings))
            if not dry:
                before, topic.settings = topic.settings, dict(settings)
                try:
                    with _stored():
                        self._keep(self.topics)
                        self._configured(topic, found)
                except KafkaError:
                    topic.settings = before
                    raise

    def _configured(self, topic: Topic, found: LogConfig) -> None:
        for served in topic.partitions.values():
            assert isinstance(served, Written)
            served.configure(found)

    def _check_changeable(self) -> None:
        """Raise KafkaError where topics cannot be changed."""

    def _keep(self, topics: Mapping[str, Topic]) -> None:
        """Note which topics there are from now on, where that outlasts the process."""

    # ---- topics ----

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Let topics come into being at the end of a ``with``, noted all at once: else each is written with all others.

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
        count = self.default_partitions if count == -1 else count
        with self._changing:
            self._check_changeable()
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
        found = self.topics.get(name)
        if found is not None:
            return found
        own = {key.replace("_", "."): value for key, value in INTERNAL_TOPICS[name].items()}
        try:
            return self.make(name, self.internal_partitions, {**own, **self.internal_settings})
        except KafkaError as error:
            if error.code == codes.TOPIC_ALREADY_EXISTS:
                return self.topics[name]
            _log.warning("%s is not here, so nothing can be kept in it: %s", name, printable(error.text or ""))
            raise KafkaError(codes.COORDINATOR_NOT_AVAILABLE, error.text) from error

    def _begin(self, made: list[Topic]) -> None:
        topics = {**self.topics, **{each.name: each for each in made}}
        try:
            with _stored():
                self._keep(topics)
                for topic in made:
                    self._add(topic, range(topic.count))
        except KafkaError:
            self._show(self.topics)
            raise
        self._show(topics)

    def _check_name(self, name: str) -> None:
        """Raise KafkaError for a name that a topic may not have, or that one has."""
        invalid = codes.invalid_topic(name)
        if invalid is not None:
            raise invalid
        if name == METADATA_TOPIC:
            raise KafkaError(codes.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if name in self.topics:
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
            self._check_changeable()
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
                with _stored():
                    self._keep(self.topics)
                    self._add(topic, range(before, count))
                    self._count += count - before
            except KafkaError:
                topic.count = before
                raise
        self.on_change()

    def delete(self, topic: Topic) -> None:
        """Delete a topic."""
        with self._changing:
            self._check_changeable()
            if self.topics.get(topic.name) is not topic:
                raise KafkaError(codes.UNKNOWN_TOPIC_OR_PARTITION)
            left = {name: each for name, each in self.topics.items() if each is not topic}
            with _stored():
                self._keep(left)
            self._show(left)
            for served in topic.partitions.values():
                assert isinstance(served, Written)
                self._remove(served)
                wake(served)
        self.on_change()

    def _show(self, topics: dict[str, Topic]) -> None:
        # Others go through them meanwhile, so that they are exchanged and not changed.
        self.topics = topics
        self._alike = {_alike(name): each for name, each in topics.items()}
        self._count = sum(each.count for each in topics.values())
        self.by_id = {each.id: each for each in topics.values()}

    def _add(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Make partitions of a topic that is shown already."""
        made = {}
        for number in numbers:
            path = os.path.join(self._home, partition_folder_name(topic.name, number))
            made[number] = self.served_type(self, Partition(LocalFiles(), topic.name, number, path, "", (), (), 0))
        topic.partitions = {**topic.partitions, **made}

    def _remove(self, served: Written) -> None:
        served.close()

    # ---- for readers ----

    def open_log(self, served: Served) -> Log:
        """Open the log of a partition, as a broker does when it starts, over an overlay that keeps what is written."""
        return self._opener().open_or_make(served.found, self.config_of(served.topic), self.clock)

    def growth(self, partitions: Iterable[tuple[Topic | None, int]]) -> Growth | None:
        """Return who waits for partitions to grow."""
        found = [topic.partitions.get(number) for topic, number in partitions if topic is not None]
        return Watch([each for each in found if isinstance(each, Written)])

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return size and free bytes of a log directory's disk; -1 for what is in memory."""
        return (-1, -1) if log_dir == self._home else super().usage(log_dir)


def _alike(name: str) -> str:
    """Return what two names may not have in common, as those of metrics would."""
    return name.replace(".", "_")


@contextlib.contextmanager
def _stored() -> Iterator[None]:
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
    """Return what `config` does; KafkaError, in Kafka's words, if a setting is invalid or is none of Kafka's."""
    known = settings_of_kafka("TOPIC")
    for name, value in settings.items():
        if name not in known and not name.startswith("internal."):
            raise KafkaError(codes.INVALID_CONFIG, f"Unknown topic config name: {name}")
        why = why_invalid(name, known[name], value) if name in known else ""
        if why:
            raise KafkaError(codes.INVALID_CONFIG, why)
    try:
        return config(topic, settings)
    except RequestError as error:
        raise KafkaError(codes.INVALID_CONFIG, str(error)) from error
