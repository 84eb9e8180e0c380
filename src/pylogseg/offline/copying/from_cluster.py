"""A copy of topics of a running cluster into a new log directory, fetched over Kafka's protocol.

Batches come whole, at their offsets and with their leader epochs, so the segments one after the other have the bytes of
the leader's. Indexes, snapshots and leader epochs are made from them. The coordinators' log of transactions is listed
and fetched behind all else, and says how each transaction ends that is open in the copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Partition
from pylogseg.disk.listing import open_dir
from pylogseg.env.beside import NewFolder
from pylogseg.env.executor import Advance, Threads, Workload
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.live.fetching import FetchedView
from pylogseg.live.files import LiveFiles
from pylogseg.log.directory import partition_of
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.offline.copying.transactions import UnfinishedCopy, end_transactions
from pylogseg.offline.reindexing import reindex
from pylogseg.reading.offset_order import Order
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window, walk

#: An offset index counts offsets from the base offset of its segment, in 32 bits.
_MOST_OFFSETS = 2**31 - 1
_SEGMENT_BYTES = 1 << 30


def copy_cluster(
    source: str,
    target: str,
    choice: PartitionChoice,
    *,
    dry_run: bool,
    threads: int,
    on_bytes: Callable[[int], None] | None,
    on_partition: Callable[[PartitionCopy], None] | None,
) -> Copied:
    """Copy partitions of a cluster into a new log directory; see `pylogseg.offline.copying.command.copy`."""
    storage = LocalStorage()
    result, new = Copied(source, target, dry_run=dry_run), NewFolder(storage, target)
    chosen = _chosen(source, choice)
    if dry_run:
        for part in chosen:
            row = PartitionCopy(part.name, part.path, os.path.join(target, part.name), bytes=part.size, segments=1)
            _note(row, result, on_partition)
        return result
    copy = _ClusterCopy(storage, new, result, threads, on_bytes)
    try:
        with new.locked():
            copy.add([part for part in chosen if part.topic != TRANSACTIONS])
            if any(part.topic == TRANSACTIONS for part in chosen):
                copy.add([part for part in _chosen(source, choice) if part.topic == TRANSACTIONS])
            result.notes += end_transactions(storage, copy.list_unfinished(), [source])
            copy.write_checkpoints()
            result.partitions.sort(key=lambda row: row.name)
            for row in result.partitions:
                if on_partition is not None:
                    on_partition(row)
            if not any(row.state == "copied" for row in result):
                raise copy.errors[0] if copy.errors else StorageError(source, "copy", "nothing was chosen")
        new.finish()
    except BaseException:
        new.discard()
        raise
    result.notes.append("meta.properties is that of a broker: format the folder before one starts on it")
    return result


def _chosen(source: str, choice: PartitionChoice) -> Sequence[Partition]:
    """List the cluster as it is now."""
    return open_dir(source).select(*choice.arguments).partitions


def _note(row: PartitionCopy, result: Copied, on_partition: Callable[[PartitionCopy], None] | None) -> None:
    result.partitions.append(row)
    if on_partition is not None:
        on_partition(row)


class _ClusterCopy:
    def __init__(
        self,
        storage: LocalStorage,
        new: NewFolder,
        result: Copied,
        threads: int,
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._storage, self._new, self._result, self._threads = storage, new, result, threads
        self._on_bytes = on_bytes
        self._starts: dict[tuple[str, int], int] = {}
        self._marks: dict[tuple[str, int], int] = {}
        self.errors: list[PylogsegError] = []

    def add(self, parts: Sequence[Partition]) -> None:
        """Fetch partitions, each by one thread."""
        work = Workload("pylogseg copy", [part.size for part in parts], self._on_bytes)
        self._result.partitions += Threads(self._threads).map(self._copy_partition, parts, work)

    def list_unfinished(self) -> Iterator[UnfinishedCopy]:
        """Yield the partitions that were copied."""
        for row in self._result:
            if row.state == "copied" and not row.is_damaged:
                start = self._starts.get(partition_of(row.name), 0)
                yield UnfinishedCopy(row, os.path.join(self._new.beside, row.name), start)

    def write_checkpoints(self) -> None:
        """Write where the copied logs start, and up to where they are committed."""
        ends = {partition_of(row.name): row.log_end for row in self._result if row.state == "copied"}
        starts = {key: start for key, start in self._starts.items() if start and key in ends}
        for kind, offsets in (
            (FileKind.LOG_STARTS, starts),
            (FileKind.HIGH_WATERMARKS, ends),
            (FileKind.RECOVERY_POINTS, ends),
        ):
            path = os.path.join(self._new.beside, kind.value)
            self._storage.write_synced(path, encode_offset_checkpoint(offsets))
        self._storage.sync_folder(self._new.beside)

    def _copy_partition(self, part: Partition, advance: Advance) -> PartitionCopy:
        row = PartitionCopy(part.name, part.path, os.path.join(self._result.target, part.name))
        # A log directory of its own, with a lock of its own, while its indexes are made.
        above = os.path.join(self._new.beside, f".fetched-{part.name}")
        folder = os.path.join(above, part.name)
        try:
            if part.error is not None:
                raise part.error
            self._storage.make_folder(above)
            self._fetch(part, folder, row, advance)
            self._storage.rename(folder, os.path.join(self._new.beside, part.name))
        except PylogsegError as error:
            if isinstance(error, StorageError) and error.path.startswith(self._new.beside):
                raise  # the disk of the copy
            self.errors.append(error)
            row.state, row.reason = "failed", str(error)
        if self._storage.exists(above):
            self._storage.remove_folder(above)
        return row

    def _fetch(self, part: Partition, folder: str, row: PartitionCopy, advance: Advance) -> None:
        storage, files = self._storage, part.files
        assert isinstance(files, LiveFiles)
        log = files.ends_of(part.path)
        storage.make_folder(folder)
        start, row.log_end, row.looks = log.start, log.end, 1
        with part.segments[0].open() as view:
            assert isinstance(view, FetchedView)
            writer, order = _SegmentWriter(storage, folder, log.start), Order(part.segments[0], view)
            try:
                for item in walk(view, is_last=False):
                    gaps = [item] if isinstance(item, Gap) else order.check(item.batches).gaps
                    if gaps or isinstance(item, Gap):
                        raise gaps[0].as_error()
                    writer.append(item, log.end)
                    advance(item.batches.summary().end_position - item.file_position)
            finally:
                writer.close()
            for first, following in view.removed:
                start = max(start, following)
                row.notes.append(f"retention removed offsets {first} to {following - 1} while they were fetched")
        if not writer.count:
            storage.open_log(os.path.join(folder, segment_file_name(log.end, FileKind.LOG))).close()
        row.segments, row.bytes = max(writer.count, 1), writer.size
        reindex(folder)
        entries = [entry.name for entry in files.list_folder(part.path)]
        if FileKind.PARTITION_METADATA.value in entries:
            data = files.read_all(files.join(part.path, FileKind.PARTITION_METADATA.value))
            storage.write_synced(os.path.join(folder, FileKind.PARTITION_METADATA.value), data)
        storage.sync_folder(folder)
        self._starts[part.topic, part.partition] = min(start, log.end)


class _SegmentWriter:
    """Writes batches into the segments of a new partition's folder."""

    def __init__(self, storage: LocalStorage, folder: str, start: int) -> None:
        self._storage, self._folder = storage, folder
        self._next = start  #: The offset that may come next; the first batch may begin below it.
        self._file: Any = None
        self._base = 0
        self.count, self.size = 0, 0

    def append(self, window: Window, end: int) -> None:
        """Append the batches of a window that begin below an offset."""
        rows = window.batches
        rows = rows[rows.base_offset < end]
        if not len(rows):
            return
        first, last = int(rows.position[0]), int(rows.position[-1] + rows.size[-1])
        # A compacted log begins before its first batch, and a compressed batch of magic 0 or 1 tells its last offset.
        base, behind = min(int(rows.base_offset[0]), self._next), int(rows.last_offset[-1])
        self._next = behind + 1
        is_full = self._file is not None and self._file.size + last - first > _SEGMENT_BYTES
        if self._file is None or is_full or behind - self._base > _MOST_OFFSETS:
            self.close()
            self._file, self._base = self._storage.open_log(self._path(base)), base
            self.count += 1
        self._file.append(memoryview(window.buffer)[first - window.file_position : last - window.file_position])
        self.size += last - first

    def close(self) -> None:
        """Put the segment on the disk."""
        file, self._file = self._file, None
        if file is not None:
            file.sync()
            file.close()

    def _path(self, base: int) -> str:
        return os.path.join(self._folder, segment_file_name(base, FileKind.LOG))
