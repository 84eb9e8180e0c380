"""A copy of topics of a running cluster in a log directory, which goes on with each run.

Batches come whole, at their offsets and with their leader epochs, so the segments one after the other have the bytes of
the leader's. Nothing else is appended: a transaction that is open in the cluster is open in the copy. A run that was
killed left whole batches, and what a recovery cuts off; the next one goes on behind them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Partition
from pylogseg.disk.listing import open_dir
from pylogseg.disk.outside import check_outside
from pylogseg.env.executor import Advance, Threads, Workload
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.storage import LocalStorage
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import FileKind, parse_file_name, segment_file_name
from pylogseg.live.cluster import EpochEnd
from pylogseg.live.describing import topic_settings
from pylogseg.live.fetching import FetchedView
from pylogseg.live.files import ListedLog, LiveFiles
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.copying.fetched_log import FetchedLog
from pylogseg.offline.copying.ledger import CopiedLog, CopyLedger
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.offline.copying.transactions import UnfinishedCopy, end_transactions
from pylogseg.reading.offset_order import Order
from pylogseg.server.writing.bootstrap_checkpoint import BootstrapContents, KeptTopic, encode_kept, read_kept
from pylogseg.transfer.checked import checked_windows, refuse_gap
from pylogseg.transfer.checkpoints import all_entries, note_entries
from pylogseg.values.internal.cluster import FOLDER
from pylogseg.values.internal.groups import TOPIC as GROUPS
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS


def copy_cluster(
    source: str,
    target: str,
    choice: PartitionChoice,
    *,
    dry_run: bool,
    threads: int,
    ends_transactions: bool,
    on_size: Callable[[int], None] | None,
    on_bytes: Callable[[int], None] | None,
    on_partition: Callable[[PartitionCopy], None] | None,
) -> Copied:
    """Copy partitions of a cluster into a new log directory, or go on with a copy of it.

    See `pylogseg.offline.copying.command.copy`.
    """
    place = os.path.abspath(target)
    check_outside(os.path.dirname(place))
    ledger = CopyLedger.read(place)
    copy = ClusterCopy(source, choice, Copied(source, target, dry_run=dry_run), place, threads, on_bytes)
    if ledger is not None and ledger.is_ended:
        raise RequestError(
            f"{place}: the transactions of this copy were ended in it, so it never goes on: name another"
        )
    copy.list_cluster(ledger)
    if on_size is not None:
        on_size(copy.size)
    if dry_run:
        copy.plan_all()
    else:
        copy.run(is_new=ledger is None)
        if ends_transactions:
            copy.end_transactions()
    result = copy.result
    result.partitions.sort(key=lambda row: row.name)
    for row in result.partitions:
        if on_partition is not None:
            on_partition(row)
    if not dry_run and not any(row.looks for row in result):
        raise copy.errors[0] if copy.errors else StorageError(source, "copy", "nothing was chosen")
    if not dry_run and ledger is None:
        result.notes.append("meta.properties belongs to a broker: format the folder before another one starts on it")
    return result


class FetchJob(NamedTuple):
    """A partition to fetch."""

    part: Partition
    listed: ListedLog
    row: PartitionCopy
    leader_epoch: int  #: Of the leader that has all that is in the copy.
    known_epoch: int  #: The one that the copy had before; -1 for a new one.


class ClusterCopy:
    """One run over a cluster; an archive has one of its own, whose logs go up as they come."""

    def __init__(
        self,
        source: str,
        choice: PartitionChoice,
        result: Copied,
        place: str,
        threads: int,
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._source, self._choice, self.result, self._place = source, choice, result, place
        self._threads, self._on_bytes = threads, on_bytes
        self._storage = LocalStorage()
        self._ledger = CopyLedger("")
        self._listing: Sequence[Partition] = ()
        self._lock = threading.Lock()  #: Held while the ledger changes.
        self.errors: list[PylogsegError] = []

    def list_cluster(self, ledger: CopyLedger | None) -> None:
        """List the topics of the cluster; RequestError if the copy comes from another one."""
        self._listing = self._list()
        files = self._listing[0].files if self._listing else None
        cluster_id = files.cluster.cluster_id if isinstance(files, LiveFiles) else ""
        if ledger is not None and ledger.cluster_id and cluster_id and ledger.cluster_id != cluster_id:
            raise RequestError(
                f"{self._place}: this is a copy of cluster {ledger.cluster_id}, and {self._source} is cluster "
                f"{cluster_id}: name another folder"
            )
        self._ledger = ledger or CopyLedger(cluster_id)

    def _list(self) -> Sequence[Partition]:
        return open_dir(self._source).select(*self._choice.arguments).partitions

    @property
    def size(self) -> int:
        """About the bytes that are to come, by the first listing."""
        return sum(map(self._size_of, self._listing))

    def _size_of(self, part: Partition) -> int:
        if part.error is not None:
            return 0
        copied, listed = self._ledger.logs.get(part.name), ends_of(part)
        first = listed.start if copied is None else max(listed.start, copied.end)
        return int(listed.size * max(0, listed.end - first) / max(1, listed.end - listed.start))

    def plan_all(self) -> None:
        """Return the plan of a run."""
        for job in self._make_jobs(self._listing):
            job.row.bytes, job.row.segments, job.row.looks = self._size_of(job.part), 1, 0
        self._add_gone()

    def run(self, *, is_new: bool) -> None:
        """Fetch new batches; a new copy that gets none leaves no folder."""
        directory = LogDirectory(self._storage, self._place)
        try:
            self._run(directory)
        finally:
            self._ledger.faults = [*self.result.warnings(), *self.result.doubts]
            has_logs = any(os.path.isdir(self._path(name)) for name in self._ledger.logs)
            try:
                if has_logs or not is_new:
                    self._ledger.write(self._storage, self._place)
            finally:
                directory.close()
            if is_new and not has_logs:
                self._storage.remove_folder(self._place)

    def _run(self, directory: LogDirectory) -> None:
        if not directory.was_clean:
            self._recover(directory)
        self._add_all(directory)
        self._keep_settings()
        self._add_gone()

    def _add_all(self, directory: LogDirectory) -> None:
        # Offsets that groups commit are of records that were there before, and the coordinators' log of transactions
        # says how each ended that is in the logs: so one is listed first, and the other last.
        groups = [part for part in self._listing if part.topic == GROUPS]
        self._add(directory, groups)
        if groups:
            self._listing = self._list()
        self._add(directory, [part for part in self._listing if part.topic not in (GROUPS, TRANSACTIONS)])
        if any(part.topic == TRANSACTIONS for part in self._listing):
            self._add(directory, [part for part in self._list() if part.topic == TRANSACTIONS])

    def _recover(self, directory: LogDirectory) -> None:
        """Find the ends of the logs that a killed run was appending to."""
        logs = [(name, log) for name, log in self._ledger.logs.items() if os.path.isdir(self._path(name))]
        work = Workload("pylogseg copy", [1] * len(logs))

        def recover(item: tuple[str, CopiedLog], advance: Advance) -> None:
            name, copied = item
            log = FetchedLog(directory, name, copied)
            log.open(copied.start, advance)
            end = log.close()
            if end is not None and end < copied.end:
                raise StorageError(
                    self._path(name),
                    "go on with",
                    f"its log ends at offset {end}, and a run has copied it up to {copied.end}: something else changed "
                    "it: remove this folder, and the next run copies the partition again",
                )
            copied.end = max(copied.end, end or 0)

        for _ in Threads(self._threads).map(recover, logs, work):
            pass

    def _path(self, name: str) -> str:
        return os.path.join(self._place, name)

    def _has_folder(self, name: str) -> bool:
        return os.path.isdir(self._path(name))

    # ---- what there is to do ----

    def _make_jobs(self, parts: Sequence[Partition]) -> list[FetchJob]:
        """Compare partitions with the copy; partitions with nothing new, or without a continuation, only get a row."""
        rows = {part.name: self._row(part) for part in parts}
        live = [part for part in parts if part.error is None and rows[part.name].state == "copied"]
        epochs: dict[tuple[str, int], int | None] = {}
        for part in live:
            copied = self._ledger.logs.get(part.name)
            epochs[part.topic, part.partition] = None if copied is None or copied.epoch < 0 else copied.epoch
        files = live[0].files if live else None
        ends = files.cluster.epoch_ends(epochs) if isinstance(files, LiveFiles) else {}
        jobs = []
        for part in live:
            row, end = rows[part.name], ends[part.topic, part.partition]
            try:
                if isinstance(end, StorageError):
                    raise end
                job = self._compare(part, row, end)
            except StorageError as error:
                self._fail(row, error)
            else:
                if job is not None:
                    jobs.append(job)
        self.result.partitions += rows.values()
        return jobs

    def _row(self, part: Partition) -> PartitionCopy:
        row = PartitionCopy(part.name, part.path, os.path.join(self.result.target, part.name))
        copied = self._ledger.logs.get(part.name)
        if copied is not None and not self._has_folder(part.name) and copied.end > copied.start:
            del self._ledger.logs[part.name]  # somebody has removed it, and gets it again
            copied = None
        if copied is not None:
            row.log_end, row.looks = copied.end, 1
        if part.error is not None:
            self._fail(row, part.error)
        elif copied is None and self._has_folder(part.name):
            row.state, row.reason, row.looks = "failed", f"{self._path(part.name)} is not of this copy", 0
        elif copied is not None and copied.topic_id and (now := listed_topic_id(part)) and now != copied.topic_id:
            row.state = "stopped"
            row.reason = f"the topic was deleted and made again: it was {copied.topic_id}, and is {now}; move "
            row.reason += f"{self._path(part.name)} away, and the next run copies the new one"
        return row

    def _compare(self, part: Partition, row: PartitionCopy, end: EpochEnd) -> FetchJob | None:
        listed, copied = ends_of(part), self._ledger.logs.get(part.name)
        if copied is None:
            row.first_offset, row.looks = listed.start, 1
            return FetchJob(part, listed, row, end.leader_epoch, -1)
        row.first_offset = copied.end
        cut = self._say_that_it_stays(part.name, copied)
        if copied.epoch >= 0 and end.offset is not None and end.offset < copied.end:
            row.state = "stopped"
            row.reason = f"the log was cut at offset {end.offset} by an unclean election, and {cut}"
            return None
        if copied.epoch >= 0 and end.offset is None:
            self.result.doubts.append(
                f"{part.name}: its leader does not know epoch {copied.epoch}: whether the log was cut is not known"
            )
        if listed.end < copied.end:
            row.state, row.reason = "stopped", f"the log ends at offset {listed.end}, and {cut}"
            return None
        if listed.end == copied.end:
            row.state = "unchanged"
            return None
        if listed.start > copied.end:
            self._note_gap(copied, row, copied.end, listed.start)
        return FetchJob(part, listed, row, end.leader_epoch, copied.epoch)

    def _say_that_it_stays(self, name: str, copied: CopiedLog) -> str:
        return (
            f"the copy, up to offset {copied.end}, stays as it is; move {self._path(name)} away, and the next run "
            "copies the log that the cluster has now"
        )

    def _note_gap(self, copied: CopiedLog, row: PartitionCopy, first: int, end: int) -> None:
        copied.gaps.append([first, end])
        row.removed.append((first, end))

    def _fail(self, row: PartitionCopy, error: PylogsegError) -> None:
        self.errors.append(error)
        row.state, row.reason = "failed", str(error)

    def _add_gone(self) -> None:
        """Name partitions of the copy that the cluster has no more, if the whole cluster was asked for."""
        url, _, inside = self._source.removeprefix(CLUSTER_SCHEME).partition("/")
        if not self._choice.is_all or inside.strip("/"):
            return
        there = {row.name for row in self.result}
        for name, copied in self._ledger.logs.items():
            if name not in there:
                reason = f"the cluster has no such partition any more; the copy has it up to offset {copied.end}"
                row = PartitionCopy(
                    name, f"{CLUSTER_SCHEME}{url}/{name}", os.path.join(self.result.target, name), "gone", reason
                )
                row.log_end, row.looks = copied.end, 1
                self.result.partitions.append(row)

    def _keep_settings(self) -> None:
        """Write the cluster's settings of the copied topics."""
        topics: dict[str, KeptTopic] = {}
        for part in self._listing:
            copied = self._ledger.logs.get(part.name)
            if copied is not None and copied.topic_id and copied.topic_id == listed_topic_id(part):
                topic = topics.setdefault(part.topic, KeptTopic(part.topic, copied.topic_id))
                topic.count = max(topic.count, part.partition + 1)
                topic.epochs[part.partition] = max(copied.epoch, 0)
        files = self._listing[0].files if self._listing else None
        settings = topic_settings(files.cluster, sorted(topics)) if isinstance(files, LiveFiles) else {}
        for name, own in settings.items():
            if isinstance(own, StorageError):
                self.result.doubts.append(f"{name}: its settings are not in the {self.result.made}: {own.reason}")
            else:
                topics[name].settings = own
        keep_topics(self._storage, self._place, {name: topics[name] for name in settings})

    # ---- fetching ----

    def _add(self, directory: LogDirectory, parts: Sequence[Partition]) -> None:
        """Fetch partitions, each by one thread."""
        jobs = self._make_jobs(parts)
        if not jobs:
            return
        for job in jobs:
            log = self._ledger.logs.setdefault(
                job.part.name, CopiedLog(listed_topic_id(job.part), job.listed.start, job.listed.start)
            )
            log.epoch = job.leader_epoch
        self._ledger.write(self._storage, self._place)  # before there is more than it says
        work = Workload("pylogseg copy", [self._size_of(job.part) for job in jobs], self._on_bytes)
        for _ in Threads(self._threads).map(lambda job, advance: self._fetch(directory, job, advance), jobs, work):
            pass

    def _fetch(self, directory: LogDirectory, job: FetchJob, advance: Advance) -> None:
        row, copied = job.row, self._ledger.logs[job.part.name]
        before, end = copied.end, None
        log = self._make_log(directory, job)
        try:
            try:
                if log.is_there:
                    end_there = log.open(copied.start).log_end_offset
                    if end_there != before and not (end_there < before and before == copied.start):
                        reason = (
                            f"its log ends at offset {end_there}, and a run has copied it up to {before}: something "
                        )
                        reason += "else changed it"
                        raise StorageError(log.folder, "go on with", reason)
                self._fetch_batches(job, log, advance)
            finally:
                row.segments = log.segments
                end = log.close()
                with self._lock:
                    copied.end = max(copied.end, end or 0)
                row.log_end, row.bytes = copied.end, log.size
        except PylogsegError as error:
            if isinstance(error, StorageError) and self._is_of_target(error):
                raise
            self._fail(row, error)
            if end is None and job.known_epoch < 0 and not log.is_there:
                row.looks = 0
                with self._lock:
                    del self._ledger.logs[job.part.name]

    def _make_log(self, directory: LogDirectory, job: FetchJob) -> FetchedLog:
        return FetchedLog(directory, job.part.name, self._ledger.logs[job.part.name])

    def _is_of_target(self, error: StorageError) -> bool:
        """Check whether an error is of the disk of the copy, not of a partition."""
        return error.path.startswith(self._place) and error.errno is not None

    def _fetch_batches(self, job: FetchJob, log: FetchedLog, advance: Advance) -> None:
        segment, listed, copied = job.part.segments[0], job.listed, log.copied
        with segment.open() as view:
            assert isinstance(view, FetchedView)
            if copied.end > copied.start:
                view.follow(job.leader_epoch)
            # The last batch once more: the answer that has it ends with it, if the leader has begun a segment then.
            view.begin(copied.end - 1 if copied.end > copied.start else copied.end, listed.end, is_committed=False)
            order, count = Order(segment, view), 0
            for window in checked_windows(view, 0, refuse_gap, is_last=False):
                for gap in order.check(window.batches).gaps:
                    refuse_gap(gap)
                count = self._note_removed(view, log, job.row, count)
                log.append(window, listed.end, view.borders)
                advance(window.batches.summary().end_position - window.file_position)
            self._note_removed(view, log, job.row, count)
        log.reach(listed.end)

    def _note_removed(self, view: FetchedView, log: FetchedLog, row: PartitionCopy, count: int) -> int:
        """Name offsets that retention removed while they were fetched; return how many ranges are named.

        A copy that has nothing yet begins behind them.
        """
        copied = log.copied
        for first, end in view.removed[count:]:
            if (first := max(first, copied.end)) >= end:
                continue
            with self._lock:
                if log.is_there:
                    self._note_gap(copied, row, first, end)
                else:
                    copied.start = copied.end = end
                self._ledger.write(self._storage, self._place)
        return len(view.removed)

    # ---- transactions ----

    def end_transactions(self) -> None:
        """End open transactions as `__transaction_state` says; a later run cannot continue such a copy."""
        self._ledger.is_ended = True
        self._ledger.write(self._storage, self._place)
        lock = self._storage.lock(self._place)
        try:
            rows = [row for row in self.result if row.state in ("copied", "unchanged") and not row.is_damaged]
            self.result.notes += end_transactions(
                self._storage, self._list_unfinished(rows), [self._source], self.result.doubts
            )
            entries = all_entries(self._storage, self._place)
            for row in rows:
                said = entries.setdefault(partition_of(row.name), {})
                said |= dict.fromkeys((FileKind.RECOVERY_POINTS.value, FileKind.HIGH_WATERMARKS.value), row.log_end)
            names = {row.name: entries[partition_of(row.name)] for row in rows}
            note_entries(self._storage, self._place, names)
        finally:
            lock.release()

    def _list_unfinished(self, rows: Sequence[PartitionCopy]) -> Iterator[UnfinishedCopy]:
        for row in rows:
            yield UnfinishedCopy(row, self._path(row.name), self._ledger.logs[row.name].start)


def ends_of(part: Partition) -> ListedLog:
    assert isinstance(part.files, LiveFiles)
    return part.files.ends_of(part.path)


def listed_topic_id(part: Partition) -> str:
    assert isinstance(part.files, LiveFiles)
    return part.files.topic_id_of(part.path)


_NODE, _NO_DIRECTORY = 1, "A" * 22
_SUFFIX = FileKind.KRAFT_SNAPSHOT.value


# ---- the topics of the copied cluster, in a snapshot of its metadata ----
#
# It has what clients may ask for, so no ACLs and users. Each partition has one replica: all of a copy is committed.


def keep_topics(storage: LocalStorage, place: str, topics: Mapping[str, KeptTopic]) -> None:
    """Add the topics to the metadata of a copy."""
    folder = os.path.join(place, FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    snapshots = [name for name in names if parse_file_name(name).kind is FileKind.KRAFT_SNAPSHOT]
    before, offset = BootstrapContents(features={}), 0
    if snapshots:
        path = os.path.join(folder, snapshots[-1])
        offset = int(snapshots[-1][:20])
        try:
            before = read_kept(bytes(LocalFiles().read_all(path)), path)
        except CorruptionError as error:
            reason = f"{error.reason}; remove {folder}, and it is made anew"
            raise CorruptionError(path, error.position, reason) from error
    after = BootstrapContents(topics={**before.topics, **topics}, features={})
    if snapshots and after.topics == before.topics:
        return
    storage.make_folder(folder)
    offset += 1
    log, snapshot = segment_file_name(offset, FileKind.LOG), f"{offset:020d}-{0:010d}{_SUFFIX}"
    storage.write_whole(os.path.join(folder, snapshot), encode_kept(after, _NODE, _NO_DIRECTORY))
    storage.open_log(os.path.join(folder, log)).close()
    for name in names:
        if parse_file_name(name).kind in (FileKind.KRAFT_SNAPSHOT, FileKind.LOG):
            storage.remove(os.path.join(folder, name))
    storage.sync_folder(folder)
    storage.sync_folder(place)
