"""`restore`: partitions from a backup, or from an exported table, into a log directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Partition
from pylogseg.disk.folders import refuse_archive
from pylogseg.disk.listing import open_dir
from pylogseg.disk.small_files import FileState, read_meta_properties, read_partition_metadata
from pylogseg.disk.target import Target, moving_picture
from pylogseg.disk.tier.opening import is_tier
from pylogseg.env.executor import INLINE, Executor, Threads, WorkKeywords, choose_executor
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import check_unlocked
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.keywords import split_keywords
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder
from pylogseg.format.words import check_word
from pylogseg.inspect.small_file_doubts import TopicIds, epoch_findings
from pylogseg.inspect.verify.lacking import refuse
from pylogseg.log.directory import partition_of
from pylogseg.log.identity import topic_id_of
from pylogseg.offline.moving import refuse_target
from pylogseg.offline.restoring.adopting import Arrival, seen_by_clients
from pylogseg.offline.restoring.ending import OpenTransactions, is_added_by_restore
from pylogseg.offline.restoring.from_logs import FromLogs
from pylogseg.offline.restoring.from_table import FromTable
from pylogseg.offline.restoring.partition import RestoreOptions, TableKeywords
from pylogseg.offline.restoring.source import RestoreOrder, RestoreSource, read_contents, write_partitions
from pylogseg.offline.restoring.tables import Tables, is_table
from pylogseg.offline.restoring.tier import FromTier, Until
from pylogseg.offline.restoring.uploading import StoreUpload
from pylogseg.offline.result import PartitionResult, Result, checkpoint_changes
from pylogseg.reading.transaction_markers import windows_between
from pylogseg.tables.export.notes import is_noted, noted_losses
from pylogseg.transfer.checkpoints import read_checkpoints
from pylogseg.transfer.contents import Content, content_of
from pylogseg.transfer.staging import Staging, WrittenPart, entries_of_table, finish_commits
from pylogseg.values.internal.cluster import ClusterMetadata, cluster_id_of, find_metadata
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Makes small files of a log directory, by their names, of what a restore has written.
SmallFiles = Callable[[Result], Mapping[str, bytes]]


class TierKeywords(TypedDict, total=False):
    """Keywords of `restore` for a source in tiered storage."""

    storage_options: Mapping[str, Any] | None
    tier: str | None
    until: Until | None
    on_corrupt: Literal["raise", "skip"]
    keep_going: bool


class ArrivalKeywords(TypedDict, total=False):
    """Keywords of `restore` for logs that come into a cluster."""

    cluster_metadata: str | None
    keep_producers: bool | None
    abort_open_transactions: bool


class RestoreKeywords(WorkKeywords, ArrivalKeywords, TierKeywords, TableKeywords, total=False):
    """Keywords of `restore` for some sources, and keywords that it shares with other functions."""


def restore(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    overwrite: bool = False,
    force: bool = False,
    dry_run: bool = False,
    target_storage_options: Mapping[str, Any] | None = None,
    on_result: Callable[[PartitionResult], None] | None = None,
    files: SmallFiles | None = None,
    **how: Unpack[RestoreKeywords],
) -> Result:
    """Put partitions into a log directory of a broker that does not run: all that were chosen appear, or none.

    From a log directory they come byte for byte, with what its checkpoints say of them: transactions, markers,
    producers and leader epochs too. If they come into another cluster, or if nothing shows that it is the same one, its
    new producers must not be taken for those that the logs remember: their ids become ones that no cluster hands out,
    and leader epochs begin with 0. `Result.clients` says what clients will see.

    From a table, as `export` writes it, records come with their offsets, timestamps, keys, values and headers. A table
    has no markers, so an aborted record would come back as an ordinary one: what may have been aborted is refused,
    unless the caller says otherwise.

    Parameters
    ----------
    path : path or URL
        A log directory, a folder of several, or a partition's; or a Parquet or Arrow file, or a folder of such files;
        or the URL of tiered storage, as `open_dir` takes it.
    target : path or URL
        The log directory; an empty folder becomes one. At a URL, a place in a store: partitions are made on this
        machine and uploaded, and until all are there, everything that opens the place refuses it.
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    overwrite : bool
        True if a partition that is there gives way, whatever it has. An empty one does anyway.
    force : bool
        Restore also from a backup that lacks records, as its checkpoints, indexes, leader epochs, snapshots or metadata
        show. `Result.lacking` names what is missing, and no checkpoint is above the end of its log.
    committed : bool
        That all records of the table were committed, where its files do not tell.
    without_transactions : bool
        Leave out records that were part of a transaction; the table needs the column ``isTransactional``.
    cluster_metadata : str, optional
        The folder ``__cluster_metadata-0`` of the cluster, for the ids of topics; looked for in the target if None.
    keep_producers : bool, optional
        True if producers and leader epochs stay as they are. If None, they do where the partition has the id of the
        topic that it had, or had none in the same cluster.
    abort_open_transactions : bool
        Abort the transactions that are open at the end of a log: nobody would end them in another cluster, and
        consumers with ``read_committed`` would stop there.
    storage_options : mapping, optional
        For a tier, options of its store, and ``tier_keys``, as `open_dir` takes them.
    tier : str, optional
        The URL of the tier of the log directories in `path`: the uploaded segments and the disk's segments are restored
        as one log.
    until : Until, optional
        From a tier: the offset or the time that restored logs end before, at the bounds of a batch.
    on_corrupt : {"raise", "skip"}
        From a tier: at damage, or offsets that no upload has, restore nothing, or all but these.
    keep_going : bool
        From a tier: a partition that fails is a result with the state ``"failed"``, and the others are restored. By
        default nothing is.
    dry_run : bool
        Only say what would be done.
    target_storage_options : mapping, optional
        Options of the store of `target`.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`, whose workers see `path` and `target`.
    on_result : callable, optional
        Called with the result of each partition, in the order of names.
    on_bytes : callable, optional
        Gets the bytes that were read since its last call.
    files : callable, optional
        Called with the result when all partitions are written: small files of the log directory, by their names. They
        appear with the partitions, or nothing does.
    compression, batch_bytes, segment_bytes
        For records of a table, as in `RestoreOptions`.

    Returns
    -------
    Result
        A partition that is there with the same records (of a log: the same batches) is ``"unchanged"``, unless
        `overwrite` is set, which always writes.

    Raises
    ------
    IncompleteError
        If the backup lacks records, unless `force` is set. RequestError
        If a name is not there, the target has other records, or the table does not show what was committed.
    StorageError
        If a broker has the lock, or a disk fails.
    """
    kinds = (WorkKeywords, ArrivalKeywords, TierKeywords, TableKeywords)
    work, arrival, of_tier, table = split_keywords(how, *kinds)
    check_word("on_corrupt", of_tier.get("on_corrupt", "raise"), ("raise", "skip"))
    source, into = os.fspath(path), os.fspath(target)
    is_remote = "://" in into
    into = into if is_remote else checked_target(into)
    if os.path.isdir(source):
        refuse_archive(source, os.listdir(source))
    given = _source_of(
        source, PartitionChoice.of(topic, partition), force, of_tier, table, arrival.get("cluster_metadata")
    )
    if isinstance(given, FromLogs) and not is_remote:
        given.refuse_inside(into)
    on_bytes = work.pop("on_bytes", None)
    executor = choose_executor(**work)
    options = {**arrival, "on_bytes": on_bytes, "executor": executor}
    if is_remote:
        if not isinstance(executor, Threads):
            raise RequestError(f"{into}: a restore into a store works on one machine, as it makes the partitions there")
        return _into_store(given, StoreUpload(into, target_storage_options), overwrite, dry_run, on_result, options)
    job = Restoring(given, into, on_result, files=files, **options)
    return job.plan(overwrite) if dry_run else job.run(overwrite)


def _source_of(
    source: str,
    choice: PartitionChoice,
    force: bool,
    of_tier: dict[str, Any],
    table: dict[str, Any],
    cluster_metadata: str | None,
) -> RestoreSource:
    """Open a source by its kind; RequestError for the options of another kind."""
    committed, without = table.pop("committed", False), table.pop("without_transactions", False)
    options, is_of_table = RestoreOptions(**table), bool(committed or without or table)
    opening = {name: of_tier.pop(name, None) for name in ("storage_options", "tier")}
    until, skips_damage = of_tier.get("until"), of_tier.get("on_corrupt", "raise") == "skip"
    keeps_going = of_tier.get("keep_going", False)
    comes_from_tier = opening["tier"] is not None or is_tier(source)
    if not comes_from_tier and (until is not None or skips_damage or keeps_going):
        raise RequestError(f"{source}: only what comes from tiered storage is restored in part")
    if not comes_from_tier and comes_from_table(source):
        lacking = noted_losses(source, choice.takes)
        if not force:
            refuse(lacking)
        rows = FromTable(Tables(source), choice, options, committed, without)
        rows.lacking = lacking
        return rows
    if is_of_table:
        raise RequestError(f"{source}: logs are restored byte for byte: options of tables do not apply")
    if not comes_from_tier:
        return FromLogs(source, choice, force, cluster_metadata)
    disk = open_dir(source, **opening)
    uploads = FromTier(disk, choice, until or Until(), skips_damage=skips_damage, keeps_going=keeps_going)
    uploads.lacking = uploads.look(disk, force)
    return uploads


def _into_store(
    given: RestoreSource,
    upload: StoreUpload,
    overwrite: bool,
    dry_run: bool,
    on_result: Callable[[PartitionResult], None] | None,
    options: Mapping[str, Any],
) -> Result:
    """Restore into a folder of this machine, and upload that folder."""
    with upload.open_scratch(dry_run=dry_run) as root:
        upload.check_free([result.name for result in given.partitions if result.state == "done"], overwrite)
        job = Restoring(given, str(root), **options)
        result = job.plan(overwrite) if dry_run else job.run(overwrite)
        made = {each.name: root / each.name for each in result if (root / each.name).is_dir()}
        if not dry_run:
            upload.commit({name: {e.name: e for e in sorted(path.iterdir())} for name, path in made.items()}, root)
    result.log_dir = upload.url
    result.notes = [note.replace(str(root), upload.url) for note in result.notes]
    for each in result:
        each.path = upload.store.name(each.name)
        (on_result or (lambda result: None))(each)
    return result


def checked_target(target: str | os.PathLike[str]) -> str:
    """Return the path of a log directory, or of an empty folder that becomes one."""
    if "://" in os.fspath(target):
        raise RequestError(
            f"{target}: partitions appear by renames, which object stores do not have; restore into a folder"
        )
    found = os.path.abspath(target)
    refuse_target(LocalStorage(), found)
    return found


def comes_from_table(path: str) -> bool:
    """Check whether a source of `restore` is an exported table, and not a log directory or a partition's folder."""
    if os.path.isdir(path):
        with contextlib.suppress(RequestError):
            Target.find_all(LocalStorage(), path)
            return False
    return is_table(path) or is_noted(path)


class Restoring:
    """The source, on its way into a log directory that `checked_target` found to be one."""

    def __init__(
        self,
        given: RestoreSource,
        target: str,
        on_result: Callable[[PartitionResult], None] | None = None,
        on_bytes: Callable[[int], None] | None = None,
        cluster_metadata: str | None = None,
        keep_producers: bool | None = None,
        abort_open_transactions: bool = False,
        executor: Executor = INLINE,
        files: SmallFiles | None = None,
    ) -> None:
        self._given, self._target, self._executor = given, target, executor
        self._keeps, self._aborts, self._files = keep_producers, abort_open_transactions, files
        self._arrivals: dict[str, Arrival] = {}
        self._known: dict[str, str] = {}  #: The ids that the target's cluster has for topics.
        self._tell, self._advance = on_result or (lambda result: None), on_bytes or (lambda size: None)
        self._storage = LocalStorage()
        folder = find_metadata([target], cluster_metadata)
        metadata = ClusterMetadata() if folder is None else ClusterMetadata.read(folder)
        self._ids = None if folder is None else metadata.topic_ids
        self._result = Result(log_dir=target, notes=list(given.notes), lacking=list(given.lacking))
        self._result.doubts += [*given.doubts, *metadata.notes]
        self._marker = os.path.join(target, FileKind.CLEAN_SHUTDOWN.value)

    def plan(self, overwrite: bool) -> Result:
        self._result.dry_run = True
        self._result.notes += moving_picture(self._target)
        self._chosen(overwrite)
        self._result.notes.append("no batch was read: damage, or a disk without room, shows when they are restored")
        return self._end()

    def run(self, overwrite: bool) -> Result:
        """Restore; a partition that `given` marks as failed does not change in the target."""
        check_unlocked(self._target)
        if placed := finish_commits(self._target):  # what died after its commit began is finished first
            places = ", ".join(placed)
            self._note(f"a restore that was killed left partitions half-way, and now they are in place: {places}")
        before = read_checkpoints(self._storage, self._target, self._result.doubts)
        names, given = self._chosen(overwrite), self._given
        if not names and self._files is None:
            return self._end()
        staging = Staging(self._target)
        try:
            staging.begin()
            with staging.mark_process():
                order = RestoreOrder(staging, names, self._topic_ids(names), self._arrivals, self._advance)
                done = write_partitions(given, order, self._executor) if names else []
                if done:
                    done = self._ends.end(done, self._result)
                    self._match_markers()
                    self._doubt_written(done)
                files = {} if self._files is None else self._files(self._result)
                if done or files:
                    staging.commit(done, overwrite=True, may_repeat=False, files=files)
        finally:
            staging.abort()
        written = {each.name: each for each in done}
        for result in self._result:
            if result.state == "done" and result.name in names and result.name not in written:
                result.skip("all of its records were part of transactions", not_done=True)
            elif each := written.get(result.name):
                result.log_start, result.log_end = each.first_offset, each.end_offset
                result.bytes_after, result.segments_after = each.size_bytes, each.segments
        self._result.checkpoints = checkpoint_changes(before, read_checkpoints(self._storage, self._target))
        return self._end()

    def _doubt_written(self, done: Sequence[WrittenPart]) -> None:
        """Say which logs have no leader epochs for their batches, or no high watermark, since the source had none."""
        parts: dict[str, list[WrittenPart]] = {}
        for each in sorted(done, key=lambda each: each.first_offset):
            parts.setdefault(each.name, []).append(each)
        ids = TopicIds(self._given.folders)
        for result in self._result:
            if result.name not in parts:
                continue
            if self._given.has_producers:
                folder = parts[result.name][0].folder
                result.doubts += [
                    f"{os.path.join(result.path, FileKind.LEADER_EPOCHS.value)}: {each.reason}; {each.remedy}"
                    for each in epoch_findings(self._storage, folder)
                    if each.is_damage
                ]
                file, topic = read_partition_metadata(self._storage, folder), partition_of(result.name)[0]
                if not file.is_read and topic in ids.of:
                    path = os.path.join(result.path, FileKind.PARTITION_METADATA.value)
                    result.doubts.append(
                        f"{path}: no such file came with the log, and where it comes from the id of {topic} is "
                        f"{ids.of[topic]}: a broker of KRaft sets the folder aside"
                    )
            elif not entries_of_table(parts[result.name]):
                result.notes.append(
                    "no high watermark is noted, as the table lacks offsets: a broker counts no record as committed "
                    "before it has led the partition"
                )

    def _chosen(self, overwrite: bool) -> list[str]:
        self._result.partitions += self._given.partitions
        arriving = [each.name for each in self._result if each.state == "done"]
        refuse_second_copies(self._target, arriving, self._given.folders)
        for result in self._result:
            self._note_id(result.name)
        if self._given.has_producers:
            self._arrivals = {each.name: self._arrival(each.name) for each in self._result if each.state == "done"}
        self._ends = OpenTransactions(self._storage, self._given, self._arrivals, aborts=self._aborts)
        self._leave_transactions()
        self._has_coordinators = any(
            result.state == "done" and partition_of(result.name)[0] == TRANSACTIONS for result in self._result
        )
        parts: dict[str, Partition] = {}
        for result in self._result:
            result.path = os.path.join(self._target, result.name)
            if result.state == "done" and (part := self._there(result)) is not None:
                parts[result.name] = part
        found = {} if overwrite else {name: content_of(part) for name, part in parts.items()}
        names, wanted = [], read_contents(self._given, found, self._arrivals, self._executor)
        for result in self._result:
            if result.state != "done":
                continue
            there = found.get(result.name)
            if there is not None and self._is_there(result, there, wanted[result.name]):
                result.state = "unchanged"
                result.notes.append("it already exists, with the same records")
                result.bytes_after, result.segments_after = result.bytes_before, result.segments_before
                continue
            if there is not None and there.records and there != wanted[result.name]:
                is_alike = there._replace(producers=wanted[result.name].producers) == wanted[result.name]
                what = "producers" if is_alike else "records"
                raise RequestError(
                    f"{result.path}: it already exists with other {what} ({there.records:,}, offsets "
                    f"{there.first_offset} to {there.end_offset - 1}); overwrite (--overwrite) replaces it"
                )
            names.append(result.name)
        return names + self._coordinators_again(names)

    def _coordinators_again(self, names: Sequence[str]) -> list[str]:
        """Write the coordinators' log again beside others, as it has to agree with them."""
        again = [] if not names else [
            each for each in self._result
            if each.state == "unchanged" and partition_of(each.name)[0] == TRANSACTIONS and each.name in self._arrivals
        ]  # fmt: skip
        for result in again:
            result.state, result.notes = "done", result.notes[:-1]
        return [result.name for result in again]

    def _arrival(self, name: str) -> Arrival:
        """Check whether new producers of the target's cluster have ids that a log does not remember."""
        topic_id, there = self._given.topic_id(name), self._known.get(partition_of(name)[0])
        clusters = {self._given.cluster_id(name), cluster_id_of(self._target)}
        origin = self._given.cluster_id(name) or topic_id or ""
        if self._keeps is not None:
            return Arrival(not self._keeps, "as was asked for", origin, self._aborts)
        if None not in clusters and len(clusters) > 1:
            return Arrival(True, "it is another cluster", origin, self._aborts)
        if topic_id is not None:
            if there in (None, topic_id):
                return Arrival(False, "the topic has the id that it had", origin, self._aborts)
            return Arrival(
                True, "the topic has another id: another cluster, or it was made again", origin, self._aborts
            )
        if None not in clusters:
            return Arrival(False, "it is the same cluster", origin, self._aborts)
        return Arrival(True, "nothing shows that it is the same cluster", origin, self._aborts)

    def _leave_transactions(self) -> None:
        """Leave the coordinators' topic of another cluster: it names producers by ids that this one hands out."""
        for result in self._result:
            arrival = self._arrivals.get(result.name)
            if arrival is not None and arrival.is_foreign and partition_of(result.name)[0] == TRANSACTIONS:
                result.skip(
                    "it names producers of another cluster by their ids, and this one hands those out again",
                    "transactional producers begin anew without it; --keep-producers restores it",
                    not_done=self._given.asked,
                )

    def _is_there(self, result: PartitionResult, there: Content, wanted: Content) -> bool:
        """Check whether a log is as it would be written, with the ends of transactions that were open."""
        if result.name not in self._arrivals:
            return self._given.is_same(result.name, self._target, there, wanted)
        (part,) = open_dir(result.path).partitions
        if self._given.is_same(result.name, self._target, there, wanted):
            if not (self._aborts or self._has_coordinators):
                return True  # the coordinator that is there may know more of it
        else:
            if there.end_offset < wanted.end_offset or content_of(part, below=wanted.end_offset) != wanted:
                return False
            if partition_of(result.name)[0] == TRANSACTIONS:
                return is_added_by_restore(part, wanted.end_offset)
            windows = windows_between(part.segments, wanted.end_offset, there.end_offset, crc=True)
            if not all((w.batches.is_control | (w.batches.base_offset < wanted.end_offset)).all() for w in windows):
                return False
        return not self._ends.is_pending(result.path, result.name, result.doubts)

    def _there(self, result: PartitionResult) -> Partition | None:
        """Return the partition that is in the target; None if it has no segment."""
        if not os.path.lexists(result.path):
            return None
        logs = [part for part in open_dir(result.path).partitions if part.segments]
        for part in logs:
            result.bytes_before, result.segments_before = part.size, len(part.segments)
        return logs[0] if logs else None

    def _topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return topic ids that differ from the source's, or may differ; note the unknown ones."""
        found: dict[str, str] = {}
        for name in names:
            topic = partition_of(name)[0]
            known = self._known.get(topic)
            if known:
                found[topic] = known
            elif self._ids is not None:
                self._note(
                    f"the cluster does not know topic {topic}: make it, or a broker renames its folders to -stray"
                )
            elif own := self._given.topic_id(name):
                self._note(f"topic {topic} has the id that it had, {own}: the cluster's own one is not known here")
        return found

    def _note_id(self, name: str) -> None:
        """Find a topic's id in the target's cluster: from its metadata, or from the topic's folders in the target."""
        folder = parse_partition_folder(name)
        if folder is not None and folder.topic not in self._known:
            known = (self._ids or {}).get(folder.topic) or topic_id_of(self._storage, os.path.join(self._target, name))
            if known:
                self._known[folder.topic] = known

    def _note(self, text: str) -> None:
        if text not in self._result.notes:
            self._result.notes.append(text)

    def _match_markers(self) -> None:
        """A marker of a clean shutdown vouches for all partitions of its directory."""
        if self._given.is_marked or not self._storage.remove(self._marker):
            return
        self._storage.sync_folder(self._target)
        self._note(f"the backup has no clean shutdown, so {self._target} has none any more: a broker recovers it")

    def _end(self) -> Result:
        self._result.is_closed_clean = os.path.exists(self._marker)
        self._result.clients = list(seen_by_clients(self._result, self._arrivals, self._result.lacking))
        for result in self._result:
            self._tell(result)
        return self._result


# ---- the other log directories of a broker: a partition in one of them is not restored into another ----


class _Sibling(NamedTuple):
    """A log directory beside one, of the same broker as far as its `meta.properties` tells."""

    path: str
    problem: str  #: Why it is not known whose it is; empty where it is the same broker's.

    @property
    def partitions(self) -> set[str]:
        """The names of its partitions; without `meta.properties`, only of folders with a segment."""
        try:
            names = {e.name for e in os.scandir(self.path) if e.is_dir() and parse_partition_folder(e.name)}
            return {name for name in names if not self.problem or _has_segment(os.path.join(self.path, name))}
        except OSError as error:
            raise StorageError(self.path, "list", error.strerror or str(error), error.errno) from error


def _siblings(log_dir: str, sources: Collection[str]) -> list[_Sibling]:
    """Return the log directories beside one with its cluster and node, or without `meta.properties`."""
    files, root = LocalFiles(), os.path.realpath(log_dir)
    own = read_meta_properties(files, root)
    if own.state is FileState.ABSENT:  # a folder that becomes a log directory of whichever broker
        return []
    left = {root, *map(os.path.realpath, sources)}
    try:
        paths = sorted(entry.path for entry in os.scandir(os.path.dirname(root)) if entry.is_dir())
    except OSError:  # then nobody can tell
        return []
    siblings = []
    for path in paths:
        if os.path.realpath(path) not in left:
            other = read_meta_properties(files, path)
            problem = own.problem or other.problem
            if problem or (own.value is not None and other.value is not None and other.value[1:3] == own.value[1:3]):
                siblings.append(_Sibling(path, problem))
    return siblings


def refuse_second_copies(log_dir: str, names: Iterable[str], sources: Collection[str]) -> None:
    """Raise RequestError for a partition that another log directory of the broker has: no broker starts with two.

    One that this directory has already does not become a second copy. `sources` are the folders that a restore reads.
    A directory that has it, and does not say whose it is, may be the broker's.
    """
    wanted = {name for name in names if not os.path.exists(os.path.join(log_dir, name))}
    for sibling in _siblings(log_dir, sources) if wanted else ():
        twice = sorted(wanted & sibling.partitions)
        if not twice:
            continue
        first = f"{twice[0]} and {len(twice) - 1:,} more" if len(twice) > 1 else twice[0]
        backup = f"If {sibling.path} is a backup that no broker opens, move it to another folder first"
        if sibling.problem:
            raise RequestError(
                f"{first}: {sibling.path} has it, and may be a log directory of the same broker, which starts with no "
                f"second copy: {sibling.problem}. Bring that file back. {backup}"
            )
        raise RequestError(
            f"{first} is also in {sibling.path}, another log directory of the same broker, which "
            "does not start with two "
            f"copies: restore it into {sibling.path}, and the others by their names. {backup}"
        )


def _has_segment(folder: str) -> bool:
    return any(parse_file_name(name).kind is FileKind.LOG for name in os.listdir(folder))
