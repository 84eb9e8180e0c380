"""Names of the folders and files on a broker's disk: taking them apart and making them.

A name has the partition, the offset and the kind of a file; nothing here looks at a disk. Rules: `docs/format.md`,
"Folders and names".
"""

from __future__ import annotations

import enum
import functools
import re
from typing import NamedTuple

from pylogseg.errors import RequestError

#: A topic and the number of a partition.
TopicPartition = tuple[str, int]

#: The longest file name that Kafka makes, in characters.
MAX_NAME_LENGTH = 255
#: The partition that holds the metadata of a KRaft cluster; its folder also has `.checkpoint` files.
METADATA_TOPIC = "__cluster_metadata"

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MARKED_FOLDER = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")
_PARTITION = re.compile(r"\+?[0-9]+")
_UNIQUE_ID = re.compile(r"[0-9a-f]{32}")
_SEGMENT_FILE = re.compile(r"([0-9]+)(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")
_KRAFT_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(\.part|\.deleted)?")


class FileKind(enum.Enum):
    """Kind of a file. The value is the extension, or the whole name of a file that has a fixed one."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    KRAFT_SNAPSHOT = ".checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    #: Ours, not a broker's: what commands cut out of the log on purpose.
    CUTS = "pylogseg-cuts.json"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    LOG_STARTS = "log-start-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    LOCK = ".lock"
    UNKNOWN = ""

    # Members are single objects: their identity is a hash that costs no call of Python, and a disk has many files.
    __hash__ = object.__hash__

    @property
    def is_segment_file(self) -> bool:
        """True if each segment has its own: the log, its indexes and the producer snapshot."""
        return self in _SEGMENT_KINDS

    @property
    def is_index(self) -> bool:
        """True if it is an offset, time or transaction index."""
        return self in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)

    @property
    def is_offset_checkpoint(self) -> bool:
        """True if it is one of the four text files with an offset per partition."""
        return self in _OFFSET_CHECKPOINTS

    @property
    def holds_batches(self) -> bool:
        """True if it is a sequence of record batches."""
        return self in (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)


_SEGMENT_KINDS = frozenset(
    [FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.PRODUCER_SNAPSHOT]
)
_BY_EXTENSION = {kind.value: kind for kind in _SEGMENT_KINDS}
_OFFSET_CHECKPOINTS = frozenset(
    [FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS, FileKind.CLEANER_OFFSETS]
)
_EXTENSIONS = _SEGMENT_KINDS | {FileKind.KRAFT_SNAPSHOT}
_FIXED_NAMES = {kind.value: kind for kind in FileKind if kind.value and kind not in _EXTENSIONS}

#: A broker writes the records that a new cluster starts with to this file; it has no offset in its name.
BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"


class FileName(NamedTuple):
    """A file name, taken apart."""

    kind: FileKind
    #: Of a segment file the base offset; of a snapshot the offset after the last record that it covers.
    offset: int | None = None
    epoch: int | None = None  #: Of a KRaft snapshot the leader epoch.
    #: ".deleted", ".cleaned", ".swap" (to replace older segments), ".part" (KRaft snapshot), ".tmp" or "".
    suffix: str = ""

    @property
    def is_live(self) -> bool:
        """True if a broker that starts uses the file as it is."""
        return not self.suffix and self.kind is not FileKind.UNKNOWN


@functools.lru_cache(maxsize=1024)  # thousands of folders have the same names in them
def parse_file_name(name: str) -> FileName:
    """Return a file's kind and offset by its name; ``UNKNOWN`` if Kafka makes no such name. Zeros may be missing."""
    if match := _SEGMENT_FILE.fullmatch(name):
        return _file_name(_BY_EXTENSION[match[2]], match[1], None, match[3])
    if name in _FIXED_NAMES:
        return FileName(_FIXED_NAMES[name])
    if name.endswith(".tmp") and name[:-4] in _FIXED_NAMES:
        return FileName(_FIXED_NAMES[name[:-4]], suffix=".tmp")
    if name == BOOTSTRAP_SNAPSHOT:
        return FileName(FileKind.KRAFT_SNAPSHOT)
    if match := _KRAFT_SNAPSHOT.fullmatch(name):
        return _file_name(FileKind.KRAFT_SNAPSHOT, match[1], match[2], match[3])
    return FileName(FileKind.UNKNOWN)


def _file_name(kind: FileKind, offset: str, epoch: str | None, suffix: str | None) -> FileName:
    # The length is checked first: int() of a thousand digits is slow, and an error beyond 4,300.
    number = int(offset) if len(offset) <= 255 else -1
    if not 0 <= number <= _MAX_INT64 or (epoch is not None and int(epoch) > _MAX_INT32):
        return FileName(FileKind.UNKNOWN)
    return FileName(kind, number, None if epoch is None else int(epoch), suffix or "")


def segment_file_name(offset: int, kind: FileKind, suffix: str = "") -> str:
    """Return the name of a file of the segment, or of the producer snapshot, at an offset.

    >>> segment_file_name(42, FileKind.TIME_INDEX, ".swap")
    '00000000000000000042.timeindex.swap'
    """
    if kind not in _SEGMENT_KINDS:
        raise RequestError(f"{kind.name} is not a file of a segment")
    if suffix not in ("", ".deleted", ".cleaned", ".swap"):
        raise RequestError(f"segment files have no suffix {suffix!r}")
    return f"{_digits(offset)}{kind.value}{suffix}"


def _digits(offset: int) -> str:
    if not 0 <= offset <= _MAX_INT64:
        raise RequestError(f"offset {offset} is not in 0..{_MAX_INT64}")
    return f"{offset:020d}"


class PartitionFolder(NamedTuple):
    """The name of a partition's folder, taken apart."""

    topic: str  #: May be cut short in states "delete" and "stray": names have at most 255 characters.
    partition: int
    state: str = ""  #: "" (live), "delete" (pending), "future" (being moved to this log directory) or "stray".
    unique_id: str = ""  #: 32 hex digits that keep several such folders apart; empty for a live one.


def parse_partition_folder(name: str) -> PartitionFolder | None:
    """Take the name of a partition's folder apart; None if no partition can have it.

    A broker refuses to start on such a folder (but for those it knows, such as ``remote-log-index-cache``); a reader
    skips it.
    """
    state = unique_id = ""
    if name.endswith(("-delete", "-future", "-stray")):
        match = _MARKED_FOLDER.fullmatch(name)
        if match is None:
            return None
        state = match[4]
        name, _, marked = name.rpartition(".")
        unique_id = marked[: -len(state) - 1]
    topic, _, number = name.rpartition("-")
    # 255 characters are all that a file system lets through, and int() has a limit of its own.
    if not topic or len(number) > MAX_NAME_LENGTH or not _PARTITION.fullmatch(number) or int(number) > _MAX_INT32:
        return None
    return PartitionFolder(topic, int(number), state, unique_id)


def parse_topic_folder(name: str) -> PartitionFolder | None:
    """Take the name of a partition's folder apart like `parse_partition_folder`; None if no topic can have its name.

    A topic becomes a part of paths and of lines: none comes from a folder such as ``..-0``, which a broker takes.
    """
    folder = parse_partition_folder(name)
    return folder if folder is not None and is_topic(folder.topic) else None


def partition_folder_name(topic: str, partition: int, state: str = "", unique_id: str = "") -> str:
    """Return the name of a partition's folder; with a state, `unique_id` is 32 lowercase hex digits.

    It is cut to 255 characters, at the end of the topic, for ``delete`` and ``stray``; ``future`` is not cut.
    """
    check_topic(topic)
    if not 0 <= partition <= _MAX_INT32:
        raise RequestError(f"partition {partition} is not in 0..{_MAX_INT32}")
    if not state:
        return f"{topic}-{partition}"
    if state not in ("delete", "future", "stray"):
        raise RequestError(f"a partition's folder has no state {state!r}")
    if not _UNIQUE_ID.fullmatch(unique_id):
        raise RequestError(f"{unique_id!r} is not 32 hex digits")
    tail = f"-{partition}.{unique_id}-{state}"
    return (topic if state == "future" else topic[: MAX_NAME_LENGTH - len(tail)]) + tail


def check_topic(topic: str) -> None:
    """Refuse an invalid name of a topic.

    It has 1 to 249 letters, digits, dots, underscores and hyphens of ASCII, and is not ``.`` or ``..``.
    """
    if not is_topic(topic):
        raise RequestError(f"{topic!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, and not . or ..")


def is_topic(name: str) -> bool:
    """Check whether Kafka allows a topic of this name, see `check_topic`."""
    return name not in (".", "..") and _TOPIC.fullmatch(name) is not None
