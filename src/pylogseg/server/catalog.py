"""What is served: topics and partitions of log directories, with logs that are opened when somebody asks for one.

Nothing here writes to a disk: each log is opened over an overlay of its own, which keeps in memory what a broker would
write when it starts, and no lock is taken.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.catalog.disk import Disk, Partition, open_dir
from pylogseg.catalog.folders import not_here, readable_topic_id
from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.handles import Handles
from pylogseg.env.locks import check_unlocked
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.files.checkpoint import parse_leader_epochs
from pylogseg.files.properties import parse_properties
from pylogseg.format.escape import printable
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.format.uuids import format_uuid, parse_uuid
from pylogseg.internal_topics.cluster import ClusterMetadata, clusters_of
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.reading.seek import end_offset
from pylogseg.server import codes
from pylogseg.server.codes import KafkaError

_log = logging.getLogger(__name__)

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
#: For ids of topics whose folders have none: the same name has always the same id.
_NAMESPACE = uuid.UUID("6f0c6c1e-6a53-4b0e-9f0c-8e5b7c3d2a41")
#: A log that could not be opened is not tried again for so long: clients ask many times a second.
_RETRY_SECONDS = 10.0
#: Producers of a backup are shown however long they were idle.
_NEVER_MS = 2**62


class Identity(NamedTuple):
    """Who a broker was, by its ``meta.properties``."""

    node_id: int | None
    cluster_id: str | None


class Served:
    """One partition: a folder, and its log from the first use on."""

    def __init__(self, catalog: Catalog, found: Partition) -> None:
        self.topic, self.number, self.folder = found.topic, found.partition, found.path
        self.log_dir, self.name = found.files.split(found.path)
        self.size = found.size
        self._catalog, self._error = catalog, found.error
        self._mutex = threading.Lock()
        self._log: Log | None = None
        self._failure: tuple[float, PylogsegError] | None = None
        self._epoch: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.number}"

    def log(self) -> Log:
        """Return the open log.

        Raises
        ------
        KafkaError
            That its directory is offline, if the log cannot be opened.
        """
        log = self._log
        if log is not None and log.is_usable:
            return log
        with self._mutex:
            if self._log is not None and self._log.is_usable:
                return self._log
            if self._failure is not None and time.monotonic() < self._failure[0]:
                raise KafkaError(codes.KAFKA_STORAGE_ERROR, str(self._failure[1]))
            try:
                if self._error is not None:
                    raise self._error
                self.close()
                self._log = self._catalog.open_log(self)
                self._failure = None
                return self._log
            except PylogsegError as error:
                _log.warning("%s: %s", self, printable(str(error)))
                self._failure = (time.monotonic() + _RETRY_SECONDS, error)
                raise KafkaError(codes.KAFKA_STORAGE_ERROR, str(error)) from error

    @property
    def leader_epoch(self) -> int:
        """The epoch that all answers give: that of the last entry of ``leader-epoch-checkpoint``, 0 at least."""
        if self._epoch is None:
            self._epoch = max(0, self._read_epoch())
        return self._epoch

    def _read_epoch(self) -> int:
        path = os.path.join(self.folder, FileKind.LEADER_EPOCHS.value)
        try:
            entries = parse_leader_epochs(LocalFiles().read_all(path), path)
            return entries[-1].epoch if entries else 0
        except (StorageError, CorruptionError):
            try:
                return self.log().epochs.latest_epoch
            except KafkaError:
                return 0

    def close(self) -> None:
        """Close the log's files, without writing."""
        if self._log is not None:
            self._log.close_handles()
            self._log = None


@dataclass
class Topic:
    """A topic with the partitions that are here."""

    name: str
    id: bytes
    partitions: dict[int, Served]
    count: int  #: Of partitions; some may not be here.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's own."""
        return self.name in INTERNAL


class Catalog:
    """The topics of some log directories.

    Parameters
    ----------
    disk : Disk
    names : sequence of str
        Topics that are served, or shell patterns for them; none means all.
    until_checkpoint : bool
        Whether consumers see only what lies below the checkpoint of the high watermark, and not all that is there.

    Raises
    ------
    RequestError
        If a name selects nothing, or one broker has a partition twice.
    """

    def __init__(self, disk: Disk, names: Sequence[str] = (), *, until_checkpoint: bool = False) -> None:
        self.disk, self.until_checkpoint = disk, until_checkpoint
        #: What whoever starts the server should know.
        self.notes: list[str] = []
        self._handles = Handles()
        self._directories: dict[str, LogDirectory] = {}
        self._identities: dict[str, Identity] = {}
        self._mutex = threading.Lock()
        self._clusters, notes = clusters_of(disk)
        self.notes += notes
        live = [each for each in disk.partitions if each.is_live and each.topic and each.topic != METADATA_TOPIC]
        self.topics = self._topics(_chosen(live, names))
        self.by_id = {topic.id: topic for topic in self.topics.values()}
        known = [self.identity(path) for path in self.log_dirs]
        self.node_id = next((each.node_id for each in known if each.node_id is not None), 1)
        self.cluster_id = next((each.cluster_id for each in known if each.cluster_id), None) or _made_up(self.log_dirs)

    @classmethod
    def open(
        cls, paths: Sequence[str | os.PathLike[str]], names: Sequence[str] = (), *, until_checkpoint: bool = False
    ) -> Catalog:
        """List some directories of this machine that no broker is writing to.

        Raises StorageError if a running broker has the lock of one, or a directory cannot be listed.
        """
        for path in paths:
            if "://" in os.fspath(path):
                raise RequestError(f"{path}: only directories of this machine are served: copy it here first")
        disk = open_dir([os.path.abspath(path) for path in paths])
        parents = {each.files.split(each.path)[0] for each in disk.partitions}
        for folder in sorted(parents | {log_dir.path for log_dir in disk.log_dirs}):
            try:
                check_unlocked(folder)
            except StorageError as error:
                if error.__cause__ is None:
                    remedy = f"or serve a copy: pylogseg copy {folder} FOLDER"
                    raise StorageError(folder, "serve", f"{error.reason}, {remedy}") from None
        return cls(disk, names, until_checkpoint=until_checkpoint)

    @property
    def log_dirs(self) -> list[str]:
        """Folders that hold the partitions that are served."""
        found = [log_dir.path for log_dir in self.disk.log_dirs]
        return found or sorted({served.log_dir for served in self.partitions()})

    def partitions(self) -> Iterable[Served]:
        """Yield all partitions that are served, by topic and number."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for number in sorted(topic.partitions):
                yield topic.partitions[number]

    def find(self, topic: Topic | None, number: int) -> Served:
        """Return a partition; KafkaError if it is not here."""
        served = None if topic is None else topic.partitions.get(number)
        if served is None:
            known = topic is not None and 0 <= number < topic.count
            raise KafkaError(codes.NOT_LEADER if known else codes.UNKNOWN_TOPIC_OR_PARTITION)
        return served

    def identity(self, log_dir: str) -> Identity:
        """Return who wrote a log directory."""
        if log_dir not in self._identities:
            path = os.path.join(log_dir, FileKind.META_PROPERTIES.value)
            try:
                found = parse_properties(LocalFiles().read_all(path), path)
            except (StorageError, CorruptionError):
                found = {}
            node = found.get("node.id") or found.get("broker.id") or ""
            self._identities[log_dir] = Identity(int(node) if node.isdecimal() else None, found.get("cluster.id"))
        return self._identities[log_dir]

    def broker_settings(self) -> dict[str, str]:
        """Return the dynamic settings of the broker, from the cluster's metadata."""
        for cluster in self._clusters.values():
            return cluster.of_broker(str(self.node_id))
        return {}

    # ---- listing ----

    def _topics(self, partitions: list[Partition]) -> dict[str, Topic]:
        found: dict[str, dict[int, list[Partition]]] = defaultdict(lambda: defaultdict(list))
        for each in partitions:
            found[each.topic][each.partition].append(each)
        return {name: self._topic(name, numbers) for name, numbers in sorted(found.items())}

    def _topic(self, name: str, numbers: dict[int, list[Partition]]) -> Topic:
        partitions = {number: Served(self, self._best(copies)) for number, copies in sorted(numbers.items())}
        first = next(iter(partitions.values()))
        metadata = self._clusters.get(first.log_dir, ClusterMetadata())
        known = next(filter(None, (readable_topic_id(LocalFiles(), each.folder) for each in partitions.values())), None)
        topic_id = known or metadata.topic_ids.get(name)
        raw = parse_uuid(topic_id) if topic_id else uuid.uuid5(_NAMESPACE, name).bytes
        same = topic_id is not None and metadata.topic_ids.get(name) == topic_id
        count = 1 + max([*partitions, *(number for key, number in metadata.replicas if same and key == topic_id)])
        return Topic(name, raw, partitions, count, dict(metadata.of_topic(name)) if same else {})

    def _best(self, copies: list[Partition]) -> Partition:
        """Return the copy of a partition that goes furthest."""
        if len(copies) == 1:
            return copies[0]
        name = f"{copies[0].topic}-{copies[0].partition}"
        brokers = [self.identity(each.files.split(each.path)[0]) for each in copies]
        if len(set(brokers)) < len(brokers):
            raise RequestError(
                f"{name} lies in {' and in '.join(each.path for each in copies)}, which one broker cannot have: did a "
                "move end in the middle? Name the log directory that is meant"
            )
        ends = [(Served(self, each).leader_epoch, end_offset(each.segments)) for each in copies]
        epoch, end = max(ends)
        best = copies[ends.index((epoch, end))]
        self.notes.append(f"{name}: of {len(copies)} replicas {best.path} is served (leader epoch {epoch}, end {end})")
        return best

    # ---- opening ----

    def open_log(self, served: Served) -> Log:
        """Open the log of a partition, as a broker does when it starts, but in memory."""
        with self._mutex:
            directory = self._directories.get(served.log_dir)
            if directory is None:
                directory = self._directories[served.log_dir] = LogDirectory(OverlayStorage(), served.log_dir)
            start = directory.claim(served.name)
            directory.release(served.name, clean=start.clean, write=False)
        started = time.perf_counter()
        # One overlay for each log: their threads change the names that are in it.
        environment = Environment(OverlayStorage(handles=self._handles), SystemClock(), CollectingScheduler())
        log = Log.open(environment, served.folder, LogConfig(), start, producer_expiration_ms=_NEVER_MS)
        log.update_high_watermark(start.high_watermark if self.until_checkpoint else log.log_end_offset)
        _log.info(
            "%s: offsets %d to %d, opened in %.0f ms",
            served,
            log.log_start_offset,
            log.high_watermark,
            (time.perf_counter() - started) * 1000,
        )
        return log

    def close(self) -> None:
        """Close all files."""
        for served in self.partitions():
            served.close()


def _chosen(partitions: list[Partition], names: Sequence[str]) -> list[Partition]:
    """Select topics by names or patterns; RequestError if one selects nothing."""
    topics = {each.topic for each in partitions}
    chosen = set() if names else topics
    for name in names:
        found = {topic for topic in topics if topic == name or fnmatch.fnmatchcase(topic, name)}
        if not found:
            raise not_here(name, (each.name for each in partitions))
        chosen |= found
    return [each for each in partitions if each.topic in chosen]


def _made_up(log_dirs: Iterable[str]) -> str:
    """Return the id of a cluster that no file names; the same for the same folders."""
    return format_uuid(uuid.uuid5(_NAMESPACE, "\n".join(map(os.path.abspath, log_dirs))).bytes)
