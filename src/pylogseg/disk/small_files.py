"""The small files of a log directory and of a partition's folder, each with its state.

Six things differ: the file is absent, it has 0 bytes, it has zeros alone (a disk that lost its power leaves them), it
ends behind its version, it cannot be read, or it was read and has no entries. A broker makes its checkpoints with 0
bytes and fills them later, so `FileState.EMPTY` is unknown, and not damage by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pylogseg.disk.folders import Folders
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.files.checkpoint import VERSION, EpochEntry, parse_leader_epochs, parse_offset_checkpoint
from pylogseg.format.files.properties import MetaProperties, parse_meta_properties
from pylogseg.format.files.status import QuorumState, parse_partition_metadata, parse_quorum_state
from pylogseg.format.names import METADATA_TOPIC, FileKind

_Value = TypeVar("_Value")


class FileState(enum.Enum):
    """The state of a small file."""

    READ = "read"  #: Its value counts, also one without entries.
    ABSENT = "absent"
    EMPTY = "empty"  #: 0 bytes.
    ZEROS = "zeros"  #: Bytes, and each is 0.
    CUT = (
        "cut"  #: A checkpoint of its version alone: brokers take it for empty, and write a number of entries behind it.
    )
    UNREADABLE = "unreadable"  #: Its bytes are not of the format, or the disk does not give them.


@dataclass(frozen=True)
class SmallFile(Generic[_Value]):
    """A small file that was looked at."""

    path: str
    state: FileState
    value: _Value | None = None  #: None unless it was read.
    problem: str = ""  #: A sentence for a person, which names the file; empty where it was read.
    error: CorruptionError | StorageError | None = None  #: Of a file of zeros, or of one that cannot be read.

    @property
    def is_read(self) -> bool:
        """True if the value counts."""
        return self.state is FileState.READ

    @property
    def is_damaged(self) -> bool:
        """True if the file has bytes without a meaning: zeros, a cut-off text, or unreadable bytes."""
        return self.state in (FileState.ZEROS, FileState.CUT, FileState.UNREADABLE)


def read_offset_checkpoint(files: Folders, log_dir: str, kind: FileKind) -> SmallFile[dict[tuple[str, int], int]]:
    """Read one of the four offset checkpoints of a log directory: offsets by topic and partition."""
    return _read(files, files.join(log_dir, kind.value), parse_offset_checkpoint)


def read_leader_epochs(files: Folders, folder: str) -> SmallFile[list[EpochEntry]]:
    return _read(files, files.join(folder, FileKind.LEADER_EPOCHS.value), parse_leader_epochs)


def read_partition_metadata(files: Folders, folder: str) -> SmallFile[str]:
    return _read(files, files.join(folder, FileKind.PARTITION_METADATA.value), _topic_id)


def read_meta_properties(files: Folders, log_dir: str) -> SmallFile[MetaProperties]:
    """Read the ids of the cluster, the node and the log directory; text that has none of them counts as unreadable."""
    return _read(files, files.join(log_dir, FileKind.META_PROPERTIES.value), _ids)


def unknown_cluster(files: Folders, log_dir: str, file: SmallFile[MetaProperties] | None = None) -> str:
    """Return why `meta.properties` says no cluster; empty if it was read, or where no broker needs one.

    A log directory without a metadata log need not be a broker's: there, one that is absent is in order.
    """
    file = file or read_meta_properties(files, log_dir)
    if file.is_read or (file.state is FileState.ABSENT and not _has_metadata(files, log_dir)):
        return ""
    return f"{file.problem}: the cluster of these logs is not known by it"


def _has_metadata(files: Folders, log_dir: str) -> bool:
    return read_quorum_state(files, files.join(log_dir, f"{METADATA_TOPIC}-0")).state is not FileState.ABSENT


def read_quorum_state(files: Folders, folder: str) -> SmallFile[QuorumState]:
    """Read for which node of a KRaft quorum this node voted."""
    return _read(files, files.join(folder, FileKind.QUORUM_STATE.value), parse_quorum_state)


def _read(files: Folders, path: str, parse: Callable[[bytes, str], _Value]) -> SmallFile[_Value]:
    try:
        data = bytes(files.read_all(path))
    except (CorruptionError, StorageError) as error:  # CorruptionError: too large to be read
        if is_missing(error):
            return SmallFile(path, FileState.ABSENT, None, f"{path}: the file is not there")
        return SmallFile(path, FileState.UNREADABLE, None, str(error), error)
    if not data:
        return SmallFile(path, FileState.EMPTY, None, f"{path}: the file has 0 bytes")
    if not any(data):
        zeros = CorruptionError(path, 0, f"the file has {len(data)} bytes, and each of them is 0")
        return SmallFile(path, FileState.ZEROS, None, str(zeros), zeros)
    if parse in (parse_offset_checkpoint, parse_leader_epochs) and data.strip() == b"%d" % VERSION:
        problem = f"{path}: the file ends behind its version: the number of entries is cut off, and what follows it"
        return SmallFile(path, FileState.CUT, None, problem)
    try:
        return SmallFile(path, FileState.READ, parse(data, path))
    except CorruptionError as error:
        return SmallFile(path, FileState.UNREADABLE, None, str(error), error)


def _topic_id(data: bytes, path: str) -> str:
    return parse_partition_metadata(data, path).topic_id


def _ids(data: bytes, path: str) -> MetaProperties:
    meta = parse_meta_properties(data, path)
    if (meta.cluster_id, meta.node_id, meta.directory_id) == (None, None, None):
        raise CorruptionError(path, 0, "the file names neither a cluster, nor a node, nor a directory")
    return meta
