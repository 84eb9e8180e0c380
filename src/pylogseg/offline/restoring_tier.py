"""Partitions of tiered storage for `restore`: their segments, indexes, snapshots and epochs, as a broker opens them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pylogseg.catalog.disk import Disk, Partition, Segment
from pylogseg.catalog.folders import readable_topic_id
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, LockedError, PylogsegError, RequestError, StorageError
from pylogseg.files.checkpoint import encode_leader_epochs, parse_leader_epochs
from pylogseg.files.index import OffsetIndex, TimeIndex
from pylogseg.files.snapshot import parse_snapshot
from pylogseg.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.offline.reindexing import reindex
from pylogseg.offline.result import PartitionResult
from pylogseg.offline.truncating import truncate
from pylogseg.reading.log_reader import partitions_of
from pylogseg.reading.seek import offset_of_time
from pylogseg.restore.checkpoints import note_entries
from pylogseg.restore.contents import Content, content_of
from pylogseg.restore.partition import Written
from pylogseg.restore.staging import Staging
from pylogseg.walker.gaps import Gap, offsets_text
from pylogseg.walker.windows import walk

#: Indexes that a broker wants beside each segment, those without an entry too.
_WANTED = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_END = 2**63 - 1


class Until(NamedTuple):
    """Where restored logs end.

    Attributes
    ----------
    offset : int or None
        The lowest offset that is not restored.
    time_ms : int or None
        Nothing from the first record of this time or later on.
    """

    offset: int | None = None
    time_ms: int | None = None


class FromTier:
    """Partitions of a tier, or of a disk and its tier as one."""

    is_marked = True  # what is written here is written in order

    def __init__(
        self, disk: Disk, topics: Sequence[str], numbers: Sequence[int], until: Until, *, skips_damage: bool
    ) -> None:
        self.notes = disk.notes  # what of the tier is left out
        chosen = disk.select(topics) if topics else disk
        parts = partitions_of(chosen, list(numbers) or None, by_name=bool(topics))
        self._parts = {part.name: part for part in parts if part.topic}
        self._until, self._skips = until, skips_damage
        self._storage = LocalStorage()
        self._results = {name: self._new_result(part) for name, part in sorted(self._parts.items())}
        self.partitions = list(self._results.values())

    def _new_result(self, part: Partition) -> PartitionResult:
        result = PartitionResult(part.name, "")
        if part.error is not None:
            raise part.error
        if not part.segments:
            result.leave("it has no segment")
        result.bytes_after, result.segments_after = part.size, len(part.segments)
        result.log_start = part.log_start_offset
        return result

    def contents(self, names: Iterable[str]) -> dict[str, Content]:
        """Return offsets and number of records of what is to be written, by the headers of all batches."""
        return {name: content_of(self._parts[name], self._end_of(self._parts[name])) for name in names}

    def topic_id(self, name: str) -> str | None:
        part = self._parts[name]
        return readable_topic_id(part.files, part.path)

    def write(
        self, staging: Staging, names: Sequence[str], ids: dict[str, str], on_bytes: Callable[[int], None]
    ) -> list[Written]:
        """Write partitions into the staging folder; every batch is read, with its CRC."""
        above = staging.attempt_folder("restore")
        return [self._write(above, self._parts[name], ids, on_bytes) for name in names]

    def _write(self, above: str, part: Partition, ids: dict[str, str], on_bytes: Callable[[int], None]) -> Written:
        storage, folder, result = self._storage, os.path.join(above, part.name), self._results[part.name]
        storage.make_folder(folder)
        end = self._end_of(part)
        start = part.log_start_offset  # what was uploaded below it is not deleted at once, and no part of the log
        segments = [s for s in part.segments if s.base_offset < end and (s.next_base is None or s.next_base > start)]
        if not segments:
            raise RequestError(
                f"{part.name}: nothing of it lies below offset {end}: it begins at {part.log_start_offset}"
            )
        reached, remade, size = segments[0].base_offset, False, 0
        for segment in segments:
            self._check_hole(result, reached, segment.base_offset)
            made = self._copy(segment, folder, result, on_bytes)
            remade |= not made.is_whole
            reached, size = made.end, size + made.size
        self._write_beside(part, folder, reached)
        if remade:
            self._remake(folder, result)
        if end < reached:
            (cut,) = truncate(folder, end)
            reached = end if cut.log_end is None else cut.log_end
            result.notes.append(f"its batches from offset {reached} on are left out")
        topic_id = ids.get(part.topic) or self.topic_id(part.name)
        if topic_id:
            data = encode_partition_metadata(PartitionMetadata(topic_id))
            storage.write_synced(os.path.join(folder, FileKind.PARTITION_METADATA.value), data)
        start = max(part.log_start_offset, segments[0].base_offset)
        said = {FileKind.RECOVERY_POINTS.value: reached, FileKind.HIGH_WATERMARKS.value: reached}
        if start > segments[0].base_offset:
            said[FileKind.LOG_STARTS.value] = start
        note_entries(storage, above, {part.name: said})
        count = sum(entry.name.endswith(FileKind.LOG.value) for entry in storage.list_folder(folder))
        return Written(part.topic, part.partition, folder, start, reached, -1, count, size, -1)

    def _end_of(self, part: Partition) -> int:
        end = _END if self._until.offset is None else self._until.offset
        if self._until.time_ms is not None:
            end = min(end, offset_of_time(part.segments, self._until.time_ms, _END, part.log_start_offset))
        return end

    def _check_hole(self, result: PartitionResult, reached: int, base: int) -> None:
        if reached >= base:
            return
        missing = f"{result.name}: {offsets_text(reached, base)} are in no upload"
        if not self._skips:
            raise CorruptionError(
                result.name, 0, f"{missing}; to restore what there is, skip damage (--on-corrupt skip)", reached
            )
        result.notes.append(missing)
        result.is_undone = True

    def _copy(self, segment: Segment, folder: str, result: PartitionResult, on_bytes: Callable[[int], None]) -> _Copied:
        """Write a segment and its indexes; say where it ends, and whether the indexes have to be made anew."""
        storage, is_whole, end = self._storage, True, segment.base_offset
        target = storage.open_log(os.path.join(folder, segment_file_name(segment.base_offset, FileKind.LOG)))
        try:
            for piece in self._good(segment, result):
                if piece is None:
                    is_whole = False
                    continue
                target.append(piece.data)
                end = max(end, piece.end)
                on_bytes(len(piece.data))
            target.sync()
            size = target.size
        finally:
            target.close()
        for kind in (*_WANTED, FileKind.TXN_INDEX):
            data = self._index(segment, kind)
            is_whole &= data is not None
            if data or kind in _WANTED:
                name = segment_file_name(segment.base_offset, kind)
                storage.write_synced(os.path.join(folder, name), data or b"")
        return _Copied(end, size, is_whole)

    def _good(self, segment: Segment, result: PartitionResult) -> Iterator[_Good | None]:
        """Yield the good batches of a segment, and None for damage between them."""
        try:
            view = segment.open()
        except StorageError as error:
            self._damaged(result, str(error), error)
            yield None
            return
        with view:
            for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last):
                if isinstance(item, Gap):
                    if item.is_damage:
                        self._damaged(result, str(item), item.as_error())
                        yield None
                    continue
                rows = item.batches
                starts, ends = rows.position, rows.position + rows.size
                cuts = [0, *[i + 1 for i, (a, b) in enumerate(pairwise(range(len(rows)))) if ends[a] != starts[b]]]
                for first, behind in pairwise([*cuts, len(rows)]):
                    low, high = int(starts[first]) - item.file_position, int(ends[behind - 1]) - item.file_position
                    data = bytes(memoryview(item.buffer)[low:high])
                    yield _Good(data, int(rows.last_offset[first:behind].max()) + 1)

    def _damaged(self, result: PartitionResult, text: str, error: PylogsegError) -> None:
        if not self._skips:
            raise error
        result.notes.append(f"left out: {text}")
        result.is_undone, result.is_locked = True, result.is_locked or isinstance(error, LockedError)

    def _index(self, segment: Segment, kind: FileKind) -> bytes | None:
        """Return an index, empty if there is none; None if it cannot be read, or is damaged."""
        try:
            data = segment.companion(kind) or b""
            if kind is FileKind.TXN_INDEX:
                TxnIndex(data, segment.path)
            else:
                index = OffsetIndex if kind is FileKind.OFFSET_INDEX else TimeIndex
                index(data, segment.base_offset, segment.path).check_entries()
        except PylogsegError:
            return None
        return data

    def _write_beside(self, part: Partition, folder: str, end: int) -> None:
        """Write producer snapshots, and the leader epochs up to the end."""
        files = part.files
        for other in part.others:
            name = other.name
            if name.kind is FileKind.PRODUCER_SNAPSHOT and name.is_live and (name.offset or 0) <= end:
                try:
                    data = files.read_all(other.path)
                    parse_snapshot(data, other.path)
                except PylogsegError:  # a broker makes it anew
                    continue
                self._storage.write_synced(os.path.join(folder, files.split(other.path)[1]), data)
        for other in part.others:
            if other.name.kind is FileKind.LEADER_EPOCHS and other.name.is_live:
                epochs = [
                    e for e in parse_leader_epochs(files.read_all(other.path), other.path) if e.start_offset < end
                ]
                path = os.path.join(folder, FileKind.LEADER_EPOCHS.value)
                self._storage.write_synced(path, encode_leader_epochs(epochs))

    def _remake(self, folder: str, result: PartitionResult) -> None:
        reindex(folder)
        result.notes.append("indexes that were damaged, or of segments with damage, are made anew")


class _Copied(NamedTuple):
    end: int
    size: int
    is_whole: bool


class _Good(NamedTuple):
    data: bytes
    end: int
