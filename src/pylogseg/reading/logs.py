"""The logs that a read goes over: which partitions and files they are, and where their records come from."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.reading.known_losses import NotedEnd, known_losses, noted_ends
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk, PartitionReader
from pylogseg.reading.seek import end_offset, offset_of_time
from pylogseg.reading.stable_offset import Tail
from pylogseg.reading.state import ReadState
from pylogseg.walker.gaps import Gap, kind_of


class LogSource(Protocol):
    """A log that a `Reader` reads.

    Records below ``log_start_offset`` are left out; negative offsets count from ``log_end_offset``. ``offset_of_time``
    gives the first record that is not older, `OPEN_END` if there is none; ``chunks`` the records of a half-open range.
    """

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def offset_of_time(self, timestamp_ms: int) -> int: ...
    def chunks(self, first_offset: int, end_offset: int, state: ReadState) -> Iterator[Chunk]: ...


class LogFiles(NamedTuple):
    """The files of one log: a partition's segments, or a single file."""

    segments: Sequence[Segment]  #: By base offset.
    log_start_offset: int
    snapshots: Mapping[int, str]  #: Paths of producer snapshots by offset.
    name: str = ""  #: Of the partition, or the path of the file if the folder has no partition's name.
    error: StorageError | None = None  #: Why the segments cannot be listed.
    path: str = ""  #: Of the partition's folder, or of the file.
    tail: Tail | None = None  #: The known end of the log, for callers that read it repeatedly.
    noted: NotedEnd | None = None  #: How far the log once went, for callers that name what is lost.

    @property
    def log_end_offset(self) -> int:
        return end_offset(self.segments)

    def offset_of_time(self, timestamp_ms: int) -> int:
        return offset_of_time(self.segments, timestamp_ms, OPEN_END, self.log_start_offset)

    def losses(self, first_offset: int, end_offset: int) -> list[Gap]:
        """Return the known losses in a half-open range; of a log that cannot be listed none."""
        if self.error is not None:
            return []
        return known_losses(self.path, self.segments, self.log_start_offset, self.noted, first_offset, end_offset)

    def chunks(self, first_offset: int, end_offset: int, state: ReadState) -> Iterator[Chunk]:
        """See `LogSource`. A log that cannot be listed is an error, or a gap from the first offset on."""
        if self.error is None:
            yield from PartitionReader(self.segments, first_offset, end_offset, state, self.snapshots, tail=self.tail)
        elif state.reading.on_corrupt == "raise" and not state.reading.skip_unreadable:
            raise _copy_of(self.error)
        else:
            reason = f"cannot {self.error.operation}: {self.error.reason}"
            gap = Gap(self.error.path, kind_of(self.error), 0, 0, first_offset, None, reason, True)
            state.gaps.append(gap)


def partitions_of(disk: Disk) -> list[Partition]:
    """Return the partitions to read: live ones; other folders only if they are named or if there is no live one.

    Unreadable ones come last, so that everything readable is read before an error ends the reading. Raises RequestError
    if one lies in two folders.
    """
    is_named = disk.is_named or len(disk.partitions) == 1
    chosen = [p for p in disk.partitions if is_named or not p.state]
    check_once(chosen)
    return [p for p in chosen if p.error is None] + [p for p in chosen if p.error is not None]


def check_once(partitions: Iterable[Partition]) -> None:
    """Refuse partitions with two folders: their records would be read twice."""
    seen: dict[str, Partition] = {}
    for partition in partitions:
        if partition.topic:
            name = partition.name if partition.state else f"{partition.topic}-{partition.partition}"
            other = seen.setdefault(name, partition)
            if other is not partition:
                raise RequestError(
                    f"{name} lies in two folders, {other.path} and {partition.path}: are they replicas of two brokers, "
                    "or did a move end in the middle? Name the one that is meant"
                )


def logs_of(disk: Disk, *, from_log_start: bool = True, with_ends: bool = False) -> list[LogFiles]:
    """Return single files and the partitions of `partitions_of` as logs; StorageError if none can be listed.

    With `with_ends`, the logs also have the ends of their checkpoints, as `noted`.
    """
    chosen = partitions_of(disk)
    if chosen and chosen[0].error is not None and not disk.loose:
        raise _copy_of(chosen[0].error)
    noted = noted_ends(chosen) if with_ends else {}
    logs = [_files_of(p, p.log_start_offset if from_log_start else 0, noted.get(p.path)) for p in chosen]
    loose = [
        LogFiles(
            [segment],
            0,
            {},
            f"{segment.topic}-{segment.partition}" if segment.topic else segment.path,
            None,
            segment.path,
        )
        for segment in disk.loose
    ]
    readable = sum(log.error is None for log in logs)
    return logs[:readable] + loose + logs[readable:]


def log_of(partition: Partition) -> LogFiles:
    """Return a partition as a log, from its log start offset on; StorageError if it cannot be listed."""
    if partition.error is not None:
        raise _copy_of(partition.error)
    return _files_of(partition, partition.log_start_offset, None)


def _files_of(partition: Partition, log_start: int, noted: NotedEnd | None) -> LogFiles:
    name = f"{partition.topic}-{partition.partition}" if partition.topic else partition.path
    snapshots = _Snapshots(partition)
    return LogFiles(partition.segments, log_start, snapshots, name, partition.error, partition.path, noted=noted)


def _copy_of(error: StorageError) -> StorageError:
    """Return a copy of an error that can be raised again."""
    return type(error)(error.path, error.operation, error.reason, error.errno)


class _Snapshots(Mapping[int, str]):
    """The producer snapshots of a partition: paths by offset, looked up when they are asked for."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __reduce__(self) -> Any:
        return dict, (dict(self._found),)

    @functools.cached_property
    def _found(self) -> dict[int, str]:
        names = [(other.name, other.path) for other in self._partition.others]
        return {
            name.offset: path
            for name, path in names
            if name.kind is FileKind.PRODUCER_SNAPSHOT and not name.suffix and name.offset is not None
        }

    def __getitem__(self, offset: int) -> str:
        return self._found[offset]

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def topics_of(logs: Iterable[LogFiles]) -> list[str]:
    """Return the topics of logs, sorted; a log without a segment has none."""
    return sorted({log.segments[0].topic for log in logs if log.segments})
