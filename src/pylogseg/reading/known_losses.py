"""Known losses of a log: checkpoints or an index show that there were records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pylogseg.disk.disk import Partition, Segment
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import check_unlocked
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind
from pylogseg.reading.seek import end_offset
from pylogseg.walker.gaps import Gap, GapKind

_WORDS = {FileKind.RECOVERY_POINTS: "recovery point", FileKind.HIGH_WATERMARKS: "high watermark"}
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


class NotedEnd(NamedTuple):
    """How far a log once went, by the checkpoints of its log directory."""

    offset: int
    by: str  #: The checkpoints, in words.
    log_dir: str


def noted_ends(partitions: Iterable[Partition]) -> dict[str, NotedEnd]:
    """Return the ends of partitions on this machine that checkpoints note, by folder; each checkpoint is read once."""
    checkpoints: dict[str, OffsetCheckpoints] = {}
    ends = dict[str, NotedEnd]()
    for part in partitions:
        if part.state or not part.topic or part.error is not None or not isinstance(part.files, LocalFiles):
            continue
        log_dir = part.files.split(part.path)[0]
        beside = checkpoints.setdefault(log_dir, OffsetCheckpoints(part.files, log_dir))
        key = part.topic, part.partition
        offsets = {kind: beside.offsets(kind).get(key, 0) for kind in _WORDS}
        if end := max(offsets.values()):
            texts = [f"{kind.value} says {_WORDS[kind]} {offset}" for kind, offset in offsets.items() if offset]
            ends[part.path] = NotedEnd(end, "; ".join(texts), log_dir)
    return ends


def known_losses(
    path: str, segments: Sequence[Segment], log_start: int, noted: NotedEnd | None, first: int, end: int
) -> list[Gap]:
    """Return the known losses in a half-open range of a log: at its end, and of segments that have become empty.

    The end is looked for only where checkpoints note one, and while nobody has the lock of the log directory: of a log
    that is written to, a checkpoint may be newer than what was read.
    """
    hidden = _hidden_by_start(path, segments, log_start)
    first = max(first, log_start)
    losses = [hidden] if hidden is not None else []
    losses += [
        loss
        for segment in segments
        if not segment.size and segment.next_base is not None and (loss := _loss_of(segment, first, end)) is not None
    ]
    if noted is not None and first < noted.offset:
        reached = max(end_offset(segments), log_start)
        if reached < min(end, noted.offset) and not _is_in_use(noted.log_dir):
            where = segments[-1].path if segments else path
            ends = f"the log ends at {reached}" if segments else "there is no segment"
            losses.append(_gap(where, max(first, reached), min(end, noted.offset), f"{ends}, but {noted.by}"))
    return losses


def _hidden_by_start(path: str, segments: Sequence[Segment], log_start: int) -> Gap | None:
    """Return the gap of a log that ends below its start: no deletion of records goes beyond the end."""
    if not segments or log_start <= segments[-1].base_offset or not isinstance(segments[-1].files, LocalFiles):
        return None
    files, reached = segments[-1].files, end_offset(segments)
    if log_start <= reached or _is_in_use(files.split(path)[0]):
        return None
    start = f"{FileKind.LOG_STARTS.value} says log start offset {log_start}"
    reason = f"the log ends at {reached}, but {start}: nothing of it is read, and a broker deletes its segments"
    return _gap(segments[-1].path, segments[0].base_offset, reached, reason)


def _loss_of(segment: Segment, first: int, end: int) -> Gap | None:
    """Return the gap of a segment without a byte that had records, as its indexes say."""
    first, end = max(first, segment.base_offset), min(end, segment.next_base or 0)
    if first >= end or not any((segment.hint(kind) or b"").strip(b"\0") for kind in _INDEXES):
        return None
    return _gap(segment.path, first, end, "the segment is empty, and its index has entries")


def _gap(path: str, first: int, end: int, reason: str) -> Gap:
    return Gap(path, GapKind.LOST, 0, 0, first, end, reason, False)


def _is_in_use(log_dir: str) -> bool:
    try:
        check_unlocked(log_dir)
    except StorageError:
        return True
    return False
