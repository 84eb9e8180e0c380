"""Small files of partitions that say less than they should, to a command that reads the logs or carries them away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from pylogseg.disk.disk import Partition
from pylogseg.disk.folders import Folders
from pylogseg.disk.listing import open_folder
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import (
    FileState,
    SmallFile,
    read_leader_epochs,
    read_meta_properties,
    read_partition_metadata,
    unknown_cluster,
)
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.remote import RemoteFiles
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.inspect.verify.epochs import check_leader_epochs
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.missing import Checkpoints
from pylogseg.inspect.verify.segment import header_report
from pylogseg.values.internal.cluster import ClusterMetadata, find_metadata, metadata_beside

_RECOVER = "; `pylogseg recover` writes it by the cluster's metadata"


class SmallFilesOnce:
    """Reads the small files beside logs for one run, each of them once: all that the run says is by the same bytes."""

    def __init__(self) -> None:
        self._checkpoints, self._metadata = dict[str, OffsetCheckpoints](), dict[str, SmallFile[str]]()
        self._owners, self._unknown = dict[str, SmallFile[MetaProperties]](), dict[str, str]()
        self._ids = dict[str, TopicIds]()

    def checkpoints(self, files: Folders, log_dir: str) -> OffsetCheckpoints:
        if log_dir not in self._checkpoints:
            self._checkpoints[log_dir] = OffsetCheckpoints(files, log_dir)
        return self._checkpoints[log_dir]

    def metadata(self, files: Folders, folder: str) -> SmallFile[str]:
        """Return the topic id of a partition."""
        if folder not in self._metadata:
            self._metadata[folder] = read_partition_metadata(files, folder)
        return self._metadata[folder]

    def meta_properties(self, files: Folders, log_dir: str) -> SmallFile[MetaProperties]:
        if log_dir not in self._owners:
            self._owners[log_dir] = read_meta_properties(files, log_dir)
        return self._owners[log_dir]

    def unknown_cluster(self, files: Folders, log_dir: str) -> str:
        """Return why `meta.properties` says no cluster, as `pylogseg.disk.small_files.unknown_cluster` does."""
        if log_dir not in self._unknown:
            self._unknown[log_dir] = unknown_cluster(files, log_dir, self.meta_properties(files, log_dir))
        return self._unknown[log_dir]

    def topic_ids(self, files: Folders, log_dir: str) -> TopicIds:
        """Return the ids of topics by the cluster's metadata; none for a log directory of another machine."""
        if log_dir not in self._ids:
            self._ids[log_dir] = TopicIds([log_dir] if isinstance(files, LocalFiles) else [])
        return self._ids[log_dir]


def source_doubts(
    partitions: Iterable[Partition], kinds: Sequence[FileKind], once: SmallFilesOnce | None = None
) -> list[str]:
    """Return why a `partition.metadata`, or a checkpoint of some kinds, says less than a reader of the logs needs."""
    doubts, once = list[str](), once or SmallFilesOnce()
    by_dir: dict[str, list[Partition]] = {}
    for part in partitions:
        if part.error is None and part.topic and not part.state and isinstance(part.files, LocalFiles | RemoteFiles):
            by_dir.setdefault(part.files.split(part.path)[0], []).append(part)
    for log_dir, parts in by_dir.items():
        noted = once.checkpoints(parts[0].files, log_dir)
        harms = filter(None, map(noted.harm, kinds))
        doubts += [f"{harm}: so missing records at the ends of logs would not show" for harm in harms]
        ids = once.topic_ids(parts[0].files, log_dir)
        unread = [(part, file) for part in parts if not (file := once.metadata(part.files, part.path)).is_read]
        for part, file in unread:
            if topic_id := ids.of.get(part.topic):
                says = f"the id of {part.topic} is {topic_id} by the cluster's metadata"
                doubts.append(f"{file.problem}: {says}{_RECOVER}")
            elif file.state is not FileState.ABSENT:
                doubts.append(f"{file.problem}: the folder does not say the id of {part.topic}")
        doubts += ids.doubts if unread else ()
    return doubts


def carried_doubts(files: Folders, log_dir: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return small files that lose information if their folders are copied, and notes about other files."""
    ids, notes = TopicIds([log_dir]), list[str]()
    doubts = list(ids.doubts)
    for name in names:
        place, path = parse_partition_folder(name), files.join(log_dir, name)
        if place is None or place.state:
            continue
        file, is_known = read_partition_metadata(files, path), place.topic in ids.of
        if not file.is_read and (file.state is not FileState.ABSENT or is_known):
            remedy = _RECOVER if is_known else ""
            doubts.append(f"{file.problem}: a broker of KRaft sets the folder aside, and begins an empty log{remedy}")
        for finding in epoch_findings(files, path):
            text = f"{finding.path}: {finding.reason}"
            if finding.is_damage:
                doubts.append(f"{text}; {finding.remedy}")
            else:
                notes.append(text)
    return doubts, notes


def epoch_findings(files: object, folder: str, *, only_without_entries: bool = False) -> list[Finding]:
    """Return the faults of a local folder's leader epochs, by the headers of its batches."""
    if not isinstance(files, LocalFiles | LocalStorage):
        return []
    try:
        if only_without_entries and read_leader_epochs(files, folder).value:
            return []
        findings = list[Finding]()
        for part in open_folder(LocalFiles(), folder).partitions:
            reports = [header_report(segment) for segment in part.segments]
            checkpoints = Checkpoints(part.files, part.files.split(part.path)[0])
            findings += check_leader_epochs(part, reports, checkpoints)
    except (RequestError, StorageError):  # who reads the partition names it
        return []
    return findings


class TopicIds:
    """The ids of topics by the metadata of a cluster; the first question reads it."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs, self._doubts = log_dirs, list[str]()

    @cached_property
    def of(self) -> dict[str, str]:
        """Ids by topic; none if nobody knows any."""
        try:
            folder = find_metadata(self._log_dirs) or next(filter(None, map(metadata_beside, self._log_dirs)), None)
            metadata = ClusterMetadata() if folder is None else ClusterMetadata.read(folder)
        except (CorruptionError, StorageError) as error:
            self._doubts.append(f"the ids of topics are not known: {error}")
            return {}
        self._doubts += metadata.notes
        return metadata.topic_ids

    @property
    def doubts(self) -> list[str]:
        """Why the metadata says less than it should."""
        return self._doubts if self.of is not None else []
