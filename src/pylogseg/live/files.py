"""A cluster as a log directory: a folder for each partition, with one segment from the log's start to its end.

Listings are answers of the cluster: metadata, and the ends of logs at that moment. Small files are made of them, as a
broker would write them. A segment has no bytes to seek in: it is read forward from an offset.
"""

from __future__ import annotations

import errno
import fnmatch
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pylogseg.env.filesystem import Entry
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.format.uuids import format_uuid
from pylogseg.live.cluster import EARLIEST, LATEST, Cluster, TopicState
from pylogseg.live.fetching import FetchedView
from pylogseg.live.settings import ClientSettings, settings_of

#: Of a record, where the leader does not tell the size of a log.
_RECORD_BYTES = 100
_METADATA, _META, _SEGMENT = "partition.metadata", "meta.properties", f"{0:020d}{FileKind.LOG.value}"


class ListedLog(NamedTuple):
    """A partition's log when it was listed."""

    start: int
    end: int  #: The high watermark.
    stable: int  #: The last stable offset.
    size: int  #: Bytes; an estimate where the leader does not tell.


class LiveFiles:
    """The file system of a cluster, or of some of its topics; see `pylogseg.env.filesystem.FileSystem`.

    A listing stays as it was: each reading of these files ends where the logs ended then.
    """

    def __init__(self, settings: ClientSettings, topics: Sequence[str] | None = None) -> None:
        self._settings, self._names = settings, topics
        self.cluster = Cluster(settings)
        self._lock = threading.RLock()
        self._topics: dict[str, TopicState] | None = None
        self._ends: dict[tuple[str, int], ListedLog | StorageError] = {}
        self._listed_ms = int(time.time() * 1000)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, with the login, and the listing, for another process."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "cluster")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self.cluster = threading.RLock(), Cluster(self._settings)

    @property
    def url(self) -> str:
        """URL of the cluster, without a topic."""
        return self.cluster.url

    # ---- logs ----

    def ends_of(self, path: str) -> ListedLog:
        """Return the ends of the log in whose folder a path lies, or that it is."""
        return self._ends_of(*self._partition_of(path))

    def topic_id_of(self, path: str) -> str:
        """Return the id of the topic of a partition; empty if older brokers gave it none."""
        topic_id = self._all()[self._partition_of(path)[0]].topic_id
        return format_uuid(topic_id) if any(topic_id) else ""

    def offset_of_time(self, path: str, time_ms: int) -> int | None:
        """Return the first offset whose record is not older than a time; None without one.

        Records below it are older, also where producers gave the times.
        """
        key = self._partition_of(path)
        offset = self.cluster.offsets([key], max(time_ms, 0))[key]
        if isinstance(offset, StorageError):
            raise offset
        return None if offset < 0 else offset

    # ---- a file system ----

    def list_folder(self, path: str) -> list[Entry]:
        """Return the partitions of the cluster, or the files of one."""
        if path.rstrip("/") == self.url:
            names = [(_META, False), (FileKind.LOG_STARTS.value, False), (FileKind.HIGH_WATERMARKS.value, False)]
            names += [(f"{topic.name}-{n}", True) for topic in self._all().values() for n in topic.leaders]
            return [Entry(name, is_dir, 0, self._listed_ms) for name, is_dir in sorted(names)]
        key = self._partition_of(path)
        ends = self._ends_of(*key)
        # The first batch may begin below the start of the log; a segment never begins above its first batch.
        sizes = {_SEGMENT: ends.size} | ({_METADATA: 0} if any(self._all()[key[0]].topic_id) else {})
        return [Entry(name, False, size, self._listed_ms) for name, size in sizes.items()]

    def stat(self, path: str) -> Entry:
        """Return the entry of a folder or file."""
        if path.rstrip("/") == self.url:
            return Entry("", True, 0, self._listed_ms)
        folder, name = self.split(path)
        for entry in self.list_folder(folder):
            if entry.name == name:
                return entry
        raise StorageError(path, "stat", "no such partition or topic", errno.ENOENT)

    def read_all(self, path: str) -> bytes:
        """Return a small file, made of the answers of the cluster."""
        folder, name = self.split(path)
        if folder == self.url and name in (FileKind.LOG_STARTS.value, FileKind.HIGH_WATERMARKS.value):
            logs = {key: log for key, log in self._all_ends().items() if isinstance(log, ListedLog)}
            is_start = name == FileKind.LOG_STARTS.value
            return encode_offset_checkpoint({key: log.start if is_start else log.end for key, log in logs.items()})
        if folder == self.url and name == _META:
            self._all()
            return encode_meta_properties(MetaProperties(0, self.cluster.cluster_id or None), "a running cluster")
        topic = self._partition_of(folder)[0] if name == _METADATA else ""
        if topic and any(self._all()[topic].topic_id):  # older brokers have none
            return encode_partition_metadata(PartitionMetadata(format_uuid(self._all()[topic].topic_id)))
        raise StorageError(path, "open", "no such file in a running cluster", errno.ENOENT)

    def open(self, path: str, *, sealed: bool) -> FetchedView:
        """Open the log of a partition, to be read forward; no request is made before it is read."""
        topic, number = self._partition_of(path)
        ends = self._ends_of(topic, number)
        topic_id = self._all()[topic].topic_id
        return FetchedView(self.cluster, path, topic, number, topic_id, (ends.start, ends.end, ends.stable))

    def join(self, path: str, name: str) -> str:
        """Return the path of a name in a folder."""
        return f"{path.rstrip('/')}/{name}"

    def split(self, path: str) -> tuple[str, str]:
        """Return folder and name."""
        if path.rstrip("/") == self.url:
            return self.url, ""
        folder, _, name = path.rstrip("/").rpartition("/")
        return folder, name

    def real(self, path: str) -> str:
        """Return the path: a partition has one."""
        return path

    def glob(self, pattern: str) -> list[str]:
        """Return the partitions of a topic, a partition, or partitions and topics that match a pattern."""
        if pattern.rstrip("/") == self.url or pattern.endswith(FileKind.LOG.value):
            return [pattern.rstrip("/")]
        name = pattern.removeprefix(f"{self.url}/").strip("/")
        topics = self._all()
        folders = {f"{topic.name}-{number}": topic.name for topic in topics.values() for number in topic.leaders}
        if name in topics and name in folders:
            raise RequestError(f"{pattern}: this is a topic, and a partition of {folders[name]}: name it by a pattern")
        chosen = [folder for folder, topic in folders.items() if name in (folder, topic)]
        chosen = chosen or [f for f, topic in folders.items() if fnmatch.fnmatchcase(topic, name)]
        chosen = chosen or [folder for folder in folders if fnmatch.fnmatchcase(folder, name)]
        if not chosen:
            raise RequestError(
                f"{pattern}: the cluster has no such topic or partition, or does not show it to this user"
            )
        return [f"{self.url}/{folder}" for folder in sorted(chosen)]

    # ---- answers ----

    def _all(self) -> dict[str, TopicState]:
        with self._lock:
            if self._topics is None:
                self._topics = self.cluster.topics(self._names)
            return self._topics

    def _all_ends(self) -> dict[tuple[str, int], ListedLog | StorageError]:
        """Return the ends of all logs; the leaders are asked for all at once."""
        with self._lock:
            topics = self._all()
            left = [
                (topic.name, number)
                for topic in topics.values()
                for number in topic.leaders
                if (topic.name, number) not in self._ends
            ]
            if left:
                starts = self.cluster.offsets(left, EARLIEST)
                led = [key for key in left if not isinstance(starts[key], StorageError)]
                ends, stable = self.cluster.offsets(led, LATEST), self.cluster.offsets(led, LATEST, is_committed=True)
                sizes = self.cluster.sizes(topics.values())
                for key in left:
                    start = starts[key]
                    self._ends[key] = _ends(start, ends.get(key, start), stable.get(key, start), sizes.get(key))
            return self._ends

    def _ends_of(self, topic: str, number: int) -> ListedLog:
        log = self._ends.get((topic, number)) or self._all_ends()[topic, number]
        if isinstance(log, StorageError):
            raise type(log)(log.path, log.operation, log.reason, log.errno)
        return log

    def _partition_of(self, path: str) -> tuple[str, int]:
        name = path.removeprefix(f"{self.url}/").partition("/")[0]
        folder = parse_partition_folder(name)
        if (
            folder is None
            or folder.topic not in self._all()
            or folder.partition not in self._all()[folder.topic].leaders
        ):
            raise StorageError(path, "stat", "no such partition", errno.ENOENT)
        return folder.topic, folder.partition


def _ends(
    start: int | StorageError, end: int | StorageError, stable: int | StorageError, size: int | None
) -> ListedLog | StorageError:
    for offset in (start, end, stable):
        if isinstance(offset, StorageError):
            return offset
    first, last = int(start), max(int(start), int(end))  # type: ignore[arg-type]
    estimate = (last - first) * _RECORD_BYTES
    return ListedLog(first, last, int(stable), 0 if last == first else size or estimate)  # type: ignore[arg-type]


def open_cluster(url: str, options: Mapping[str, Any]) -> tuple[LiveFiles, str]:
    """Return the file system of a cluster, and the path in it: ``kafka://HOST:PORT``, and perhaps a topic behind it.

    The URL is that of a cluster, of a topic, of a partition, or has a pattern for topics; options as of
    `pylogseg.live.settings.settings_of`. StorageError if the cluster cannot be reached, or refuses the login.
    """
    host, _, inside = url.removeprefix(CLUSTER_SCHEME).partition("/")
    settings = settings_of(host, options)
    name = inside.strip("/").partition("/")[0]
    files = LiveFiles(settings, _topics_in(name))
    return files, f"{files.url}/{inside.strip('/')}" if name else files.url


def _topics_in(name: str) -> list[str] | None:
    """Return the topics to ask for: the name may be a topic, or a partition of one; None for all."""
    if not name or any(letter in name for letter in "*?["):
        return None
    folder = parse_partition_folder(name)
    return [name] if folder is None else [name, folder.topic]
