"""The served topics and partitions of log directories, with logs that are opened when somebody asks for one.

A log that nobody has asked for since some minutes is closed again. Nothing here writes to a disk, and no lock is taken.
The engine is imported with the first log: to say what there is takes neither it nor numpy.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.folders import readable_topic_id
from pylogseg.disk.listing import open_dir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.garbage import pause_collection
from pylogseg.env.locks import check_unlocked
from pylogseg.env.remote import RemoteFiles, display_path
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.files.properties import parse_properties
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.format.uuids import format_uuid, parse_uuid
from pylogseg.server.view import View
from pylogseg.values.internal.cluster import ClusterMetadata, clusters_of, fallbacks_of

if TYPE_CHECKING:
    from pylogseg.log.log import Log
    from pylogseg.server.overlays import Overlays

_log = logging.getLogger(__name__)

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
#: For ids of topics whose folders have none: the same name has always the same id.
_NAMESPACE = uuid.UUID("6f0c6c1e-6a53-4b0e-9f0c-8e5b7c3d2a41")
#: A log that could not be opened is not tried again for so long: clients ask many times a second.
_RETRY_SECONDS = 10.0
#: To an object store, at a time.
_ROUND_TRIPS = 16


class BrokerIdentity(NamedTuple):
    """The identity of a broker, by its ``meta.properties``."""

    node_id: int | None
    cluster_id: str | None


class LogOpener(Protocol):
    """Opens and closes the logs of a catalog; with `is_writable`, clients may change them."""

    #: What becomes of what clients write.
    keeps: str
    is_writable: bool

    @property
    def left_out(self) -> tuple[int, int]: ...  # places with damage, and their bytes, left out of the logs so far
    @property
    def aborted(self) -> int: ...  # open transactions of the logs opened so far that count as aborted
    def open(self, found: Partition) -> Log: ...
    def release(self, log: Log) -> None: ...
    def usage(self, log_dir: str) -> tuple[int, int]: ...
    def close(self) -> None: ...


class ReadOnlyLogs:
    """Logs of files that stay as they are; the engine is loaded with the first."""

    keeps, is_writable = "read-only", False

    def __init__(self, view: View) -> None:
        self._view, self._mutex = view, threading.Lock()
        self._overlays: Overlays | None = None

    def open(self, found: Partition) -> Log:
        """Open a log as a broker does when it starts, but in memory."""
        with self._mutex:
            if self._overlays is None:
                from pylogseg.server.overlays import Overlays

                self._overlays = Overlays(self._view)
        return self._overlays.open(found)

    def release(self, log: Log) -> None:
        """Close the files of a log, without writing."""
        log.close_handles()

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return how large the disk of a log directory is, and how much of it is free; OSError if it has none."""
        return usage_of_disk(log_dir)

    @property
    def left_out(self) -> tuple[int, int]:
        skipping = None if self._overlays is None else self._overlays.skipping
        return (0, 0) if skipping is None else skipping.left_out

    @property
    def aborted(self) -> int:
        return 0 if self._overlays is None else sum(self._overlays.aborted.values())

    def close(self) -> None:
        """Close the overlays, with the bytes that they hold."""
        if self._overlays is not None:
            self._overlays.close()


def usage_of_disk(log_dir: str) -> tuple[int, int]:
    """Return how large the disk of a folder is, and how much of it is free."""
    usage = shutil.disk_usage(log_dir)
    return usage.total, usage.free


class ServedPartition:
    """One partition: a folder, and its log from the first use on."""

    def __init__(self, found: Partition, logs: LogOpener, *, epoch: int | None = None) -> None:
        self.topic, self.number, self.found = found.topic, found.partition, found
        self.folder = display_path(found.files, found.path)
        parent, self.name = found.files.split(found.path)
        self.log_dir = display_path(found.files, parent)
        #: Set when it has grown.
        self.watchers: set[threading.Event] = set()
        self._logs, self._error = logs, found.error
        self._mutex = threading.Lock()
        self._log: Log | None = None
        self._used = 0.0
        self._failure: tuple[float, PylogsegError] | None = None
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def size(self) -> int:
        """Bytes of its segments: as listed, or of a log that grows the present ones."""
        log = self._log if self._logs.is_writable else None
        return self.found.size if log is None else sum(segment.size for segment in log.segments)

    def log(self) -> Log:
        """Return the open log; KafkaError that its directory is offline if it cannot be opened."""
        self._used = time.monotonic()  # before the log is taken: see `close_unused`
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
                self._log = self._open_log()
                self._failure = None
                return self._log
            except PylogsegError as error:
                _log.warning("%s: %s", self, printable(str(error)))
                self._failure = (time.monotonic() + _RETRY_SECONDS, error)
                raise KafkaError(codes.KAFKA_STORAGE_ERROR, str(error)) from error

    def _open_log(self) -> Log:
        started = time.perf_counter()
        log = self._logs.open(self.found)
        ms = (time.perf_counter() - started) * 1000
        _log.info("%s: offsets %d to %d, opened in %.0f ms", self, log.log_start_offset, log.high_watermark, ms)
        return log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def open_log(self) -> Log | None:
        return self._log

    @property
    def leader_epoch(self) -> int:
        """The epoch in all answers: from the last entry of ``leader-epoch-checkpoint``, at least 0."""
        if self._epoch is None and not self.note_epoch():
            try:
                self._epoch = max(0, self.log().epochs.latest_epoch)
            except KafkaError:
                self._epoch = 0
        assert self._epoch is not None
        return self._epoch

    def note_epoch(self) -> bool:
        """Read the epoch from its file; return whether there is a good one."""
        files = self.found.files
        path = files.join(self.found.path, FileKind.LEADER_EPOCHS.value)
        try:
            entries = parse_leader_epochs(files.read_all(path), path)
        except (StorageError, CorruptionError):
            return False
        self._epoch = max(0, entries[-1].epoch) if entries else 0
        return True

    def wake(self) -> None:
        """Wake all that wait for it to grow."""
        for watcher in tuple(self.watchers):
            watcher.set()

    def close_unused(self, before: float) -> bool:
        """Close the log if nobody has asked for it since a moment of the monotonic clock; whether it was closed.

        Whoever asked before that moment must be done with it. It is opened again at its next use.
        """
        if self._log is None or self._used >= before:
            return False
        with self._mutex:
            log, self._log = self._log, None
            if log is None or self._used >= before:  # who has asked meanwhile may have got it
                self._log = log
                return False
            self._logs.release(log)
            return True

    def close(self) -> None:
        """Let the log go."""
        if self._log is not None:
            self._logs.release(self._log)
            self._log = None


@dataclass
class Topic:
    """A topic with the partitions that are here."""

    name: str
    id: bytes
    partitions: dict[int, ServedPartition]
    count: int  #: Of partitions; some may not be here.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """True if it is one of Kafka's own."""
        return self.name in INTERNAL


class TopicDefaults(NamedTuple):
    """The settings of topics that come into being here."""

    partitions: int = 1  #: Of one that is made without a number.
    internal_partitions: int = 1  #: Of each of Kafka's own.
    auto_create: bool = False  #: True if one comes into being when a client asks for it.


class Catalog:
    """The topics of some log directories.

    RequestError if a name or number of `choice` selects nothing, or one broker has a partition twice.
    """

    def __init__(
        self,
        disk: Disk,
        choice: PartitionChoice = ALL,
        *,
        view: View = View(),  # noqa: B008  (it cannot be changed)
        logs: LogOpener | None = None,
        defaults: TopicDefaults = TopicDefaults(),  # noqa: B008
    ) -> None:
        self.disk, self.view, self.defaults = disk, view, defaults
        self.logs: LogOpener = ReadOnlyLogs(view) if logs is None else logs
        #: What whoever starts the server should know.
        self.notes: list[str] = []
        self._identities: dict[str, BrokerIdentity] = {}
        self.clusters, notes = clusters_of(disk)
        self.notes += [*notes, *fallbacks_of(self.clusters)]
        if view.until_checkpoint:
            self.notes += _unknown_high_watermarks(disk)
        if view.end_open_transactions:
            self.notes.append("transactions that were open when the copy was made count as aborted")
        live = [part for part in disk.partitions if part.is_live and part.topic and part.topic != METADATA_TOPIC]
        self._files = {display_path(log_dir.files, log_dir.path): log_dir for log_dir in disk.log_dirs}
        with pause_collection():
            self.show(self._topics(_chosen(live, choice)))
        ids = [self.identity(path) for path in self.log_dirs]
        self.node_id = next((owner.node_id for owner in ids if owner.node_id is not None), 1)
        self.cluster_id = next((owner.cluster_id for owner in ids if owner.cluster_id), None) or _made_up(self.log_dirs)
        #: Settings by type and name of their resource, from the cluster's metadata.
        self.dynamic: Mapping[tuple[int, str], Mapping[str, str]] = next(
            (cluster.configs for cluster in self.clusters.values()), {}
        )

    @classmethod
    def open(
        cls,
        paths: Sequence[str | os.PathLike[str]],
        choice: PartitionChoice = ALL,
        *,
        view: View = View(),  # noqa: B008  (it cannot be changed)
        storage_options: Mapping[str, Any] | None = None,
        tier: str | None = None,
        logs: LogOpener | None = None,
        defaults: TopicDefaults = TopicDefaults(),  # noqa: B008
    ) -> Catalog:
        """List some directories that no broker is writing to; `storage_options` has options of fsspec for URLs.

        `tier` is the URL of what was uploaded from these directories.

        Raises StorageError if a running broker has the lock of one, or a directory cannot be listed.
        """
        texts = [os.fspath(path) for path in paths]
        disk = open_dir(
            [path if "://" in path else os.path.abspath(path) for path in texts],
            storage_options=storage_options,
            tier=tier,
        )
        local = [partition for partition in disk.partitions if isinstance(partition.files, LocalFiles)]
        folders = {log_dir.path for log_dir in disk.log_dirs if isinstance(log_dir.files, LocalFiles)}
        for folder in sorted(folders | {partition.files.split(partition.path)[0] for partition in local}):
            try:
                check_unlocked(folder)
            except StorageError as error:
                if error.__cause__ is None:
                    remedy = f"or serve a copy: pylogseg copy {folder} FOLDER"
                    raise StorageError(folder, "serve", f"{error.reason}, {remedy}") from None
        return cls(disk, choice, view=view, logs=logs, defaults=defaults)

    def show(self, topics: dict[str, Topic]) -> None:
        """Serve these topics; others go through them meanwhile, so that they are exchanged and not changed."""
        self.topics = topics
        self.by_id = {topic.id: topic for topic in topics.values()}

    @property
    def log_dirs(self) -> list[str]:
        """Folders that hold the partitions that are served."""
        paths = list(self._files)
        return paths or sorted({served.log_dir for served in self.partitions()})

    def local_folders(self) -> set[str]:
        """Return the folders of this machine in which nothing may be written."""
        partitions = [partition.path for partition in self.disk.partitions if isinstance(partition.files, LocalFiles)]
        return {folder.path for folder in self.disk.log_dirs if isinstance(folder.files, LocalFiles)}.union(partitions)

    def partitions(self) -> Iterable[ServedPartition]:
        """Yield all partitions that are served, by topic and number."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for number in sorted(topic.partitions):
                yield topic.partitions[number]

    def find(self, topic: Topic | None, number: int) -> ServedPartition:
        """Return a partition; KafkaError if it is not here."""
        served = None if topic is None else topic.partitions.get(number)
        if served is None:
            exists = topic is not None and 0 <= number < topic.count
            raise KafkaError(codes.NOT_LEADER if exists else codes.UNKNOWN_TOPIC_OR_PARTITION)
        return served

    def identity(self, log_dir: str) -> BrokerIdentity:
        """Return who wrote a log directory."""
        if log_dir not in self._identities:
            of = self._files.get(log_dir)
            files, folder = (LocalFiles(), log_dir) if of is None else (of.files, of.path)
            path = files.join(folder, FileKind.META_PROPERTIES.value)
            try:
                meta = parse_properties(files.read_all(path), path)
            except (StorageError, CorruptionError):
                meta = {}
            node = meta.get("node.id") or meta.get("broker.id") or ""
            self._identities[log_dir] = BrokerIdentity(int(node) if node.isdecimal() else None, meta.get("cluster.id"))
        return self._identities[log_dir]

    # ---- listing ----

    def _topics(self, partitions: list[Partition]) -> dict[str, Topic]:
        copies_of: dict[str, dict[int, list[Partition]]] = defaultdict(lambda: defaultdict(list))
        for partition in partitions:
            copies_of[partition.topic][partition.partition].append(partition)
        names = sorted(copies_of)
        if not any(isinstance(partition.files, RemoteFiles) for partition in partitions):
            return {name: self._topic(name, copies_of[name]) for name in names}
        from concurrent.futures import ThreadPoolExecutor

        # Ids and epochs are in files of their own, each of which takes a round trip.
        with ThreadPoolExecutor(_ROUND_TRIPS) as pool:
            topics = dict(zip(names, pool.map(self._topic, names, [copies_of[name] for name in names]), strict=True))
            every = [served for topic in topics.values() for served in topic.partitions.values()]
            list(pool.map(ServedPartition.note_epoch, every))
        return topics

    def _topic(self, name: str, numbers: dict[int, list[Partition]]) -> Topic:
        partitions = {
            number: ServedPartition(self._best(copies), self.logs) for number, copies in sorted(numbers.items())
        }
        first = next(iter(partitions.values()))
        metadata = self.clusters.get(first.log_dir, ClusterMetadata())
        noted_id = next(
            filter(None, (readable_topic_id(part.found.files, part.found.path) for part in partitions.values())), None
        )
        topic_id = noted_id or metadata.topic_ids.get(name)
        raw = parse_uuid(topic_id) if topic_id else uuid.uuid5(_NAMESPACE, name).bytes
        same = topic_id is not None and metadata.topic_ids.get(name) == topic_id
        count = 1 + max([*partitions, *(number for key, number in metadata.replicas if same and key == topic_id)])
        return Topic(name, raw, partitions, count, dict(metadata.of_topic(name)) if same else {})

    def _best(self, copies: list[Partition]) -> Partition:
        """Return the copy of a partition that goes furthest."""
        if len(copies) == 1:
            return copies[0]
        name = f"{copies[0].topic}-{copies[0].partition}"
        brokers = [self.identity(display_path(copy.files, copy.files.split(copy.path)[0])) for copy in copies]
        if len(set(brokers)) < len(brokers):
            raise RequestError(
                f"{name} lies in {' and in '.join(copy.path for copy in copies)}, which one broker cannot have: did a "
                "move end in the middle? Name the log directory that is meant"
            )
        from pylogseg.reading.seek import end_offset

        ends = [(ServedPartition(copy, self.logs).leader_epoch, end_offset(copy.segments)) for copy in copies]
        epoch, end = max(ends)
        best = copies[ends.index((epoch, end))]
        self.notes.append(f"{name}: of {len(copies)} replicas {best.path} is served (leader epoch {epoch}, end {end})")
        return best

    # ---- closing ----

    def close_unused(self, before: float) -> int:
        """Close the logs that nobody has asked for since a moment of the monotonic clock; return how many.

        Where clients write, logs stay open: new records may be nowhere else.
        """
        if self.logs.is_writable:
            return 0
        closed = sum(served.close_unused(before) for served in self.partitions())
        if closed:
            _log.info("%d logs that nobody has read for a while are closed", closed)
        return closed

    def close(self) -> None:
        """Close all files."""
        for served in self.partitions():
            served.close()
        self.logs.close()


def _chosen(partitions: list[Partition], choice: PartitionChoice) -> list[Partition]:
    """Select from live partitions; a file by itself has no log to serve."""
    return list(Disk((), tuple(partitions)).select(*choice.arguments))


def _made_up(log_dirs: Iterable[str]) -> str:
    """Return the id of a cluster that no file names; the same for the same folders."""
    return format_uuid(uuid.uuid5(_NAMESPACE, "\n".join(map(os.path.abspath, log_dirs))).bytes)


def _unknown_high_watermarks(disk: Disk) -> list[str]:
    """Return the partitions in log directories without a high watermark, and the reasons."""
    texts = []
    for log_dir in disk.log_dirs:
        noted = OffsetCheckpoints(log_dir.files, log_dir.path)
        for part in log_dir.partitions:
            if part.is_live and (why := noted.why_no_high_watermark(part.topic, part.partition)):
                texts.append(f"{part.name}: its high watermark is not known: {why}")
    return texts
