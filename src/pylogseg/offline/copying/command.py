"""A consistent copy of a partition or a log directory, while a broker may write to it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.outside import check_outside
from pylogseg.disk.small_files import unknown_cluster
from pylogseg.disk.target import NOT_A_TOPIC, Target, chosen_in, sizes_in
from pylogseg.env.beside import NewFolder, check_free
from pylogseg.env.executor import Advance, Threads, Workload, job_count
from pylogseg.env.filesystem import is_within, refuse_inside
from pylogseg.env.locks import check_unlocked
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.names import (
    BOOTSTRAP_SNAPSHOT,
    FileKind,
    parse_file_name,
    parse_partition_folder,
    parse_topic_folder,
)
from pylogseg.inspect.small_file_doubts import carried_doubts
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import Look, lacking_in
from pylogseg.log.directory import partition_of
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.copying.partition import Changed, PartitionCopier, PartitionCopy
from pylogseg.offline.copying.transactions import UnfinishedCopy
from pylogseg.offline.copying.transactions import end_transactions as end_open_transactions
from pylogseg.transfer.checkpoints import CHECKPOINTS, within
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS

_AS_THEY_ARE = (FileKind.META_PROPERTIES.value, BOOTSTRAP_SNAPSHOT)

_Offsets = dict[tuple[str, int], int]


def copy(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    dry_run: bool = False,
    end_transactions: bool = False,
    jobs: int | None = 1,
    on_size: Callable[[int], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_partition: Callable[[PartitionCopy], None] | None = None,
    storage: Storage | None = None,
) -> Copied:
    """Copy a log directory, or partitions of it, into a new log directory; a broker may be writing to it.

    No lock is taken and nothing is written to the source. Each partition is copied as it was at one moment: sealed
    segments whole, the active one up to its last whole batch, indexes, snapshots, leader epochs and checkpoints up to
    there. Different partitions are copied at different moments, `__transaction_state` last: of a running broker, what
    is open at the end of a log is ended as that says. The copy gets its name when all of it is on the disk; what an
    interrupted run left is removed by the next one. The result names the records that checkpoints, indexes, leader
    epochs, snapshots and the metadata show to be missing, and the copy has the rest.

    Parameters
    ----------
    source : path
        A log directory, or the folder of a partition; or the ``kafka://`` URL of a running cluster or a topic, whose
        partitions are fetched up to their high watermarks. Each log directory of a folder with several is copied, into
        a folder of its name; one that fails does not stop the others, and its error is raised at the end.
    target : path
        The new log directory: an empty folder, or one that is not there. A partition becomes a folder in it. The copy
        of a cluster may be there already: it goes on at the end of each log.
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    dry_run : bool
        Only print the plan, by the present listing of the folders.
    end_transactions : bool
        For a cluster: end open transactions in the copy as `__transaction_state` says. Such a copy never goes on.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    on_size : callable, optional
        For a cluster: gets an estimate of the bytes that are to come.
    on_bytes : callable, optional
        Gets the bytes that were copied since the last call, from several threads.
    on_partition : callable, optional
        Gets each partition when it is copied, in the order of names, `__transaction_state` last.
    storage : Storage, optional
        Where both lie; the disks of this machine by default.

    Returns
    -------
    Copied

    Raises
    ------
    RequestError
        If the source is none of both, a name is not there, or the target is no empty folder.
    StorageError
        If the disk fails, or a partition changes faster than it can be copied.
    """
    choice, count = PartitionChoice.of(topic, partition), job_count(jobs)
    if os.fspath(source).startswith(CLUSTER_SCHEME):
        from pylogseg.offline.copying.from_cluster import copy_cluster

        given: Any = {"on_size": on_size, "on_bytes": on_bytes, "on_partition": on_partition}
        given |= {"dry_run": dry_run, "threads": count, "ends_transactions": end_transactions and not dry_run}
        return copy_cluster(os.fspath(source), os.fspath(target), choice, **given)
    if end_transactions:
        raise RequestError(
            "end_transactions is for a copy of a cluster; a copy of a running broker's disk always ends them"
        )
    disk = LocalStorage() if storage is None else storage
    places, into = Target.find_all(disk, os.fspath(source)), os.fspath(target)
    chosen = chosen_in(places, choice)
    found = lacking_in(chosen, choice, jobs=count, how=Look.CARRIED) if isinstance(disk, LocalStorage) else []
    if len(places) == 1:
        job = _Copy(disk, *chosen[0], into, on_partition, found)
        if dry_run:
            return job.plan()
        for error in _run_all([job], count, on_bytes):
            raise error
        return job.result
    check_free(disk, into)
    if isinstance(disk, LocalStorage):
        refuse_inside(into, os.fspath(source), "copied")
    result, failed = Copied(os.fspath(source), into, dry_run=dry_run, is_marked_clean=True), list[PylogsegError]()
    result.lacking, jobs_of_all = found, list[_Copy]()
    for place, names in chosen:
        try:
            if place.error is not None:
                raise place.error
            of_place = [finding for finding in found if is_within(finding.path, place.parent)]
            job = _Copy(disk, place, names, disk.join(into, os.path.basename(place.parent)), on_partition, of_place)
            jobs_of_all.append(job)
        except PylogsegError as error:
            failed.append(error)
    if dry_run:
        for job in jobs_of_all:
            job.plan()
    else:
        failed += _run_all(jobs_of_all, count, on_bytes)
    for job in jobs_of_all:
        if job.is_done or dry_run:
            done = job.result
            result.partitions += done.partitions
            result.notes += [f"{done.source}: {note}" for note in done.notes]
            result.doubts += done.doubts
            result.unread += done.unread
            result.is_marked_clean &= done.is_marked_clean
    if failed:  # the others are copied, and this one has no place in the copy
        raise failed[0]
    return result


def _run_all(jobs: Sequence[_Copy], threads: int, on_bytes: Callable[[int], None] | None) -> list[PylogsegError]:
    """Copy log directories of one broker, and give the copies their names; return why some have none.

    The coordinators' log of transactions is copied behind all else, and has how each transaction ended that was open.
    """
    failed: list[PylogsegError] = []
    is_live = any(job.is_live() for job in jobs)
    with contextlib.ExitStack() as locks:
        going: Sequence[_Copy] = jobs
        try:
            for step in (
                lambda job: (locks.enter_context(job.new.lock()), job.begin(threads, on_bytes)),
                lambda job: job.copy_coordinators(threads, on_bytes),
            ):
                going = [job for job in going if _succeeds(job, step, failed)]
            if is_live or any(job.is_live() for job in going):
                end_in_copies(going)
            going = [job for job in going if _succeeds(job, lambda job: job.write_rest(), failed)]
        except BaseException:
            for job in jobs:
                job.discard()
            raise
    for job in going:
        _succeeds(job, lambda job: job.finish(), failed)
    return failed


def _succeeds(job: _Copy, step: Callable[[_Copy], Any], failed: list[PylogsegError]) -> bool:
    try:
        step(job)
    except PylogsegError as error:
        job.discard()
        failed.append(error)
        return False
    return True


def end_in_copies(jobs: Sequence[_Copy]) -> None:
    """End the transactions that are open in the copies of a running broker."""
    storage = jobs[0].storage if jobs else None
    if not isinstance(storage, LocalStorage):
        return
    copies = [copy for job in jobs for copy in job.list_unfinished()]
    lines = end_open_transactions(storage, copies, [job.result.source for job in jobs], jobs[0].result.doubts)
    for job in jobs[:1]:
        job.result.notes += lines


class _Copy:
    def __init__(
        self,
        storage: Storage,
        place: Target,
        names: Sequence[str],
        target: str,
        on_partition: Callable[[PartitionCopy], None] | None,
        lacking: list[Finding],
    ) -> None:
        self.storage, self._place, self._names, self._on_partition = storage, place, names, on_partition
        self._clean: bytes | None = None
        self._checkpoints: dict[FileKind, _Offsets] = {kind: {} for kind in CHECKPOINTS}
        self.is_done = False
        self.result = Copied(place.parent, target, lacking=lacking)
        self._errors: list[StorageError | CorruptionError] = []
        self.new = NewFolder(storage, target)
        if isinstance(storage, LocalStorage):
            check_outside(target)
        if isinstance(storage, LocalStorage) and place.log_dir:
            refuse_inside(target, place.log_dir, "copied")

    def plan(self) -> Copied:
        result, storage = self.result, self.storage
        result.dry_run = True
        self._read_checkpoints()
        for name in self._names:
            row = self._row(name)
            if row.state == "copied":
                files = [(parse_file_name(entry.name), entry.size) for entry in sizes_in(storage, row.source)]
                sizes = [size for parsed, size in files if parsed.kind is FileKind.LOG and parsed.is_live]
                row.bytes, row.segments = sum(sizes), len(sizes)
            self._add(row)
        return result

    def is_live(self) -> bool:
        """Check whether a broker has the log directory open."""
        if not isinstance(self.storage, LocalStorage) or self._place.log_dir is None:
            return False
        try:
            check_unlocked(self._place.log_dir)
        except StorageError as error:
            return error.__cause__ is None
        return False

    def begin(self, jobs: int, on_bytes: Callable[[int], None] | None) -> None:
        """Copy all but the coordinators' log."""
        self._clean = self._marker()
        # What they say now is no more than what is copied later.
        self._read_checkpoints()
        self._copy_some([name for name in self._names if not _is_coordinators(name)], jobs, on_bytes)

    def copy_coordinators(self, jobs: int, on_bytes: Callable[[int], None] | None) -> None:
        self._copy_some([name for name in self._names if _is_coordinators(name)], jobs, on_bytes)
        order = {name: number for number, name in enumerate(self._names)}
        self.result.partitions.sort(key=lambda row: order[row.name])
        if self._errors and not any(self._list_copied()):
            raise self._errors[0]

    def _copy_some(self, names: Sequence[str], jobs: int, on_bytes: Callable[[int], None] | None) -> None:
        for row in Threads(jobs).map(self._copy, names, Workload(on_bytes=on_bytes)):
            row.target = self.storage.join(self.result.target, row.name)
            self._add(row)

    def list_unfinished(self) -> Iterator[UnfinishedCopy]:
        """Yield the partitions that were copied, but damaged ones."""
        starts = self._checkpoints[FileKind.LOG_STARTS]
        for row in self._list_copied():
            if not row.is_damaged and parse_partition_folder(row.name):
                folder = self.storage.join(self.new.beside, row.name)
                yield UnfinishedCopy(row, folder, starts.get(partition_of(row.name), 0))

    def write_rest(self) -> None:
        """Write checkpoints, and copy the small files."""
        for kind, offsets in self._checkpoints.items():
            self._write_checkpoint(kind, offsets)
        self._copy_small_files(self._clean)
        self.storage.sync_folder(self.new.beside)

    def finish(self) -> None:
        self.new.finish()
        self.is_done = True

    def discard(self) -> None:
        with contextlib.suppress(StorageError):
            self.new.discard()

    def _row(self, name: str) -> PartitionCopy:
        row = PartitionCopy(
            name, self.storage.join(self._place.parent, name), self.storage.join(self.result.target, name)
        )
        folder = parse_partition_folder(name)
        if folder is None and self._place.is_whole:
            row.state, row.reason = "skipped", "no partition has such a name"
        elif self._place.log_dir is not None and parse_topic_folder(name) is None:
            row.state, row.reason = "skipped", NOT_A_TOPIC
        elif folder is not None and folder.state:
            row.state, row.reason = "skipped", _STATES[folder.state]
        return row

    def _add(self, row: PartitionCopy) -> None:
        self.result.partitions.append(row)
        if self._on_partition is not None:
            self._on_partition(row)

    def _copy(self, name: str, advance: Advance) -> PartitionCopy:
        row = self._row(name)
        if row.state != "skipped":
            target = self.storage.join(self.new.beside, name)
            try:
                row = PartitionCopier(self.storage, row.source, target, advance).run()
            except (StorageError, CorruptionError) as error:
                if not _is_of_source(error):
                    raise
                self._errors.append(error)
                row.state, row.reason = "failed", str(error)
            if row.state in ("gone", "failed"):
                self.storage.remove_folder(target)
        return row

    # ---- what the log directory knows ----

    def _read_checkpoints(self) -> None:
        noted = OffsetCheckpoints(self.storage, self._place.parent)
        self._checkpoints = {kind: self._checkpoint(kind, noted) for kind in CHECKPOINTS}
        doubts, notes = carried_doubts(self.storage, self._place.parent, self._names)
        self.result.doubts += doubts
        self.result.notes += notes
        if self._place.log_dir is not None and (why := unknown_cluster(self.storage, self._place.parent)):
            self.result.doubts.append(why)

    def _checkpoint(self, kind: FileKind, noted: OffsetCheckpoints) -> _Offsets:
        if self._place.log_dir is None:
            return {}
        file = noted.file(kind)
        if isinstance(file.error, StorageError):
            self._small_file(file.path)
        elif harm := noted.harm(kind):
            self.result.doubts.append(f"{harm}; the copy has none")
        return noted.offsets(kind)

    def _write_checkpoint(self, kind: FileKind, offsets: _Offsets) -> None:
        kept: _Offsets = {}
        for row in self._list_copied():
            folder = parse_partition_folder(row.name)
            if folder is None or (key := (folder.topic, folder.partition)) not in offsets:
                continue
            offset = within(kind.value, offsets[key], row.log_end)
            if offset is not None:
                kept[key] = offset
            else:
                row.notes.append(
                    f"{kind.value} says log start offset {offsets[key]}, and the copy does not: with it a broker "
                    f"would delete all of the log, which ends at {row.log_end}"
                )
        if kept:
            ordered = {key: kept[key] for key in offsets if key in kept}
            path = self.storage.join(self.new.beside, kind.value)
            self.storage.write_synced(path, encode_offset_checkpoint(ordered))

    def _list_copied(self) -> Iterable[PartitionCopy]:
        return (row for row in self.result.partitions if row.state == "copied")

    def _marker(self) -> bytes | None:
        """Return the clean shutdown marker, which a broker removes when it starts."""
        if self._place.log_dir is None:
            return None
        path = self.storage.join(self._place.log_dir, FileKind.CLEAN_SHUTDOWN.value)
        return self._small_file(path)

    def _small_file(self, path: str) -> bytes | None:
        """Read a file of the log directory; None if it is missing, or unreadable, which is noted."""
        try:
            return bytes(self.storage.read_all(path)) if self.storage.exists(path) else None
        except StorageError as error:
            if not _is_of_source(error):
                raise
            self.result.unread += [str(error)] if str(error) not in self.result.unread else []
            return None

    def _copy_small_files(self, marker: bytes | None) -> None:
        storage, log_dir = self.storage, self._place.log_dir
        if log_dir is None:
            return
        for name in _AS_THEY_ARE:
            data = self._small_file(storage.join(log_dir, name))
            if data is not None:
                storage.write_synced(storage.join(self.new.beside, name), data)
        result = self.result
        is_whole = not (result.unread or result.lacking or any(row.cut_bytes or row.is_damaged for row in result))
        if marker is not None and self._marker() == marker and is_whole:
            storage.write_synced(storage.join(self.new.beside, FileKind.CLEAN_SHUTDOWN.value), marker)
            self.result.is_marked_clean = True


def _is_coordinators(name: str) -> bool:
    folder = parse_partition_folder(name)
    return folder is not None and folder.topic == TRANSACTIONS


_STATES = {
    "delete": "pending deletion",
    "future": "it is being moved here from another log directory",
    "stray": "a replica that this broker should not have",
}


#: What a disk says that takes nothing more: the copy cannot go on.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def _is_of_source(error: StorageError | CorruptionError) -> bool:
    """Check whether a partition cannot be read, so that others may be copied anyway."""
    cause = error.__cause__
    if isinstance(error, CorruptionError) or isinstance(cause, Changed):
        return True
    return isinstance(cause, OSError) and cause.errno not in _FULL
