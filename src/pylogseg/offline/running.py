"""The common frame of offline commands: `run_command` applies a command to one partition after the other.

A command is a function of an `OfflinePartition`: it opens its log, changes it, fills in the result, and
leaves the rest to `run_command`: the lock, settings, a dry run, a copy to work on, checkpoints, the clean shutdown
marker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from pylogseg.disk.listing import open_dir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.target import Target, chosen_in, marked_epoch, moving_picture, refuse_if_locked, sizes_in
from pylogseg.env.beside import check_free
from pylogseg.env.executor import Advance, Threads, Workload
from pylogseg.env.file_errors import FULL
from pylogseg.env.filesystem import Entry
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import (
    FileKind,
    parse_file_name,
    parse_partition_folder,
    parse_topic_folder,
    segment_file_name,
)
from pylogseg.inspect.small_file_doubts import epoch_findings
from pylogseg.inspect.verify.findings import REMEDIES, Finding
from pylogseg.inspect.verify.lacking import Look, lacking, lacking_in
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.log.leader_epochs import LeaderEpochs
from pylogseg.log.recovery_keep import KeepError, check_keep_folder
from pylogseg.log.state import Start
from pylogseg.offline.copying.into import Destination
from pylogseg.offline.options import Options
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import PartitionResult, Result, checkpoint_changes, is_full, is_of_disk, merged
from pylogseg.offline.settings import Settings
from pylogseg.transfer.checkpoints import read_checkpoints
from pylogseg.values.internal.cluster import FOLDER, metadata_beside

_log = logging.getLogger(__name__)

Work = Callable[[OfflinePartition], None]
_NOT_KNOWN = -1


class _Command(NamedTuple):
    """The arguments of `run_command` that describe a command."""

    work: Work
    check: Callable[[Settings, list[str]], None] | None
    takes: Collection[str]
    frees: bool


def run_command(
    path: str | os.PathLike[str],
    options: Options,
    work: Work,
    check: Callable[[Settings, list[str]], None] | None = None,
    takes: Collection[str] = (),
    frees: bool = False,
) -> Result:
    """Take the chosen partitions of a log directory, of several, or one folder through a command.

    `work` gets an `OfflinePartition`, may call its `open` and `PartitionResult.skip`, and sets the result's state to
    ``"unchanged"`` where there was nothing to do; an error of this package ends only that partition. `check` gets the
    settings and the names that will not be skipped, before anything else is done. `takes` are states of folders
    (``"delete"``, ``"future"``, ``"stray"``) that are not skipped. `frees` says that the command removes the oldest
    segments: on a full disk they go before the log is opened, since what a crash left may need room to be put in order.
    The result has findings about the missing offsets of the partitions.

    Raises RequestError if the path, a name or a setting is wrong, or `Options.into` is not empty; StorageError if
    another writer has the lock, or the log directory cannot be written.
    """
    command = _Command(work, check, takes, frees)
    places = Target.find_all(options.storage, os.fspath(path))
    chosen = chosen_in(places, options.choice)
    if len(places) == 1:
        return _run_one(*chosen[0], options, command)
    if not options.dry_run and isinstance(options.storage, LocalStorage):
        refuse_if_locked(places)
    into = options.into
    if into is not None:
        check_free(options.storage, into)
    done = []
    for place, names in chosen:
        own = dataclasses.replace(options, cluster_metadata=options.cluster_metadata or _metadata_beside(place, places))
        if into is not None:
            own = dataclasses.replace(own, into=options.storage.join(into, os.path.basename(place.parent)))
        try:
            if place.error is not None:
                raise place.error
            done.append(_run_one(place, names, own, command))
        except RequestError:
            raise
        except PylogsegError as error:
            done.append(_report_failure(place, error, options))
    return merged(os.fspath(path), done)


def _metadata_beside(place: Target, places: Sequence[Target]) -> str | None:
    """The cluster's metadata of another log directory that was named, where this one has none and is of the cluster."""
    if FOLDER in place.names:
        return None
    beside = metadata_beside(place.parent)
    known = [os.path.abspath(other.parent) for other in places]
    return beside if beside is not None and os.path.dirname(os.path.abspath(beside)) in known else None


def _report_failure(place: Target, error: PylogsegError, options: Options) -> Result:
    """Return the result for a log directory that could not be opened."""
    result = PartitionResult(
        os.path.basename(place.parent), place.parent, "failed", str(error), _remedy(error), error=error
    )
    if options.on_result is not None:
        options.on_result(result)
    return Result([result], place.parent, options.dry_run)


def _run_one(place: Target, names: list[str], options: Options, command: _Command) -> Result:
    settings = Settings(place, options)
    kept = [name for name in names if not reason_to_skip(place, name, command.takes)]
    if command.check is not None:
        command.check(settings, kept)
    known = known_lacks(place, kept, options)
    result = _run_there(place, names, settings, options, command)
    name_lacks(result, known)
    return result


def _run_there(place: Target, names: list[str], settings: Settings, options: Options, command: _Command) -> Result:
    if options.into is None:
        return _Run(place, names, settings, options, command).run()
    check_keep_folder(options.into, place.parent, names[0] if place.log_dir is None else None)
    into = Destination(options.storage, options.into)
    if options.dry_run:
        return _Run(place, names, settings, options, command._replace(frees=False)).run()
    try:
        kept = [name for name in names if not reason_to_skip(place, name, command.takes)]
        copied = into.copy(place, kept, options.on_bytes or (lambda size: None))
        result = _Run(copied, kept, settings, options, command._replace(frees=False), into).run()
        if len(result.failed) < len(result.partitions):
            into.finish()
        else:
            into.discard()
    except BaseException:
        into.discard()
        raise
    return result


def is_named(place: Target, options: Options) -> bool:
    """Check whether partitions were asked for, as opposed to all that there are."""
    return not place.is_whole or not options.choice.is_all


def chosen_bytes(path: str, options: Options) -> int:
    """Bytes of the files in the chosen partitions' folders, for a bar of progress."""
    if path.startswith(CLUSTER_SCHEME):
        return sum(part.size for part in open_dir(path).select(*options.choice.arguments))
    storage = options.storage
    chosen = chosen_in(Target.find_all(storage, path), options.choice)
    folders = [storage.join(place.parent, name) for place, names in chosen for name in names]
    return sum(entry.size for folder in folders for entry in sizes_in(storage, folder) if entry.name.endswith(".log"))


class _Run:
    def __init__(
        self,
        place: Target,
        names: list[str],
        settings: Settings,
        options: Options,
        command: _Command,
        into: Destination | None = None,
    ) -> None:
        self._place, self._names, self._settings, self._command = place, names, settings, command
        self._options, self._into = options, into
        self._frees = command.frees and not options.dry_run
        self._storage: Storage = self._overlay() if options.dry_run else options.storage
        self._is_named = is_named(place, options)
        self._directory: LogDirectory | None = None
        self._marks: dict[tuple[str, int], int] = {}
        self._noted: OffsetCheckpoints | None = None
        shown = place.log_dir if into is None else into.path
        self._result = Result(log_dir=shown, dry_run=options.dry_run, notes=[settings.describe(command.frees)])
        self._result.node_id = settings.node_id
        self._result.doubts += settings.doubts
        if options.dry_run and isinstance(options.storage, LocalStorage):
            self._result.notes += moving_picture(place.parent)

    def run(self) -> Result:
        if self._place.log_dir is None:
            lock = self._storage.lock(self._place.parent)
            try:
                self._take_all()
            finally:
                lock.release()
        else:
            self._run_in(self._place.log_dir)
        if isinstance(self._storage, OverlayStorage):
            self._result.changes = self._place.changes(self._storage)
        return self._result

    def _run_in(self, log_dir: str) -> None:
        result, storage = self._result, self._storage
        before = read_checkpoints(storage, log_dir, result.doubts)
        self._marks, self._noted = before[FileKind.HIGH_WATERMARKS], OffsetCheckpoints(storage, log_dir)
        for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS):
            self._noted.file(kind)  # before it is written again
        epoch = marked_epoch(storage, log_dir)
        self._directory = LogDirectory(storage, log_dir)
        result.was_closed_clean = self._directory.was_clean
        try:
            self._take_all()
        finally:
            lost = any(part_result.loses_records for part_result in result)
            self._directory.broker_epoch = None if lost else epoch
            self._directory.close()
        result.checkpoints = checkpoint_changes(before, read_checkpoints(storage, log_dir))
        result.is_closed_clean = storage.exists(storage.join(log_dir, FileKind.CLEAN_SHUTDOWN.value))

    def _take_all(self) -> None:
        options, waiting = self._options, []
        load = Workload(on_bytes=options.on_bytes)
        for result in Threads(options.jobs).map(self._take, self._names, load):
            if self._frees and is_full(result.error):
                waiting.append(result)  # until the others have made room
            else:
                self._add(result)
        freed = any(result.state == "done" for result in self._result)
        for result in waiting:
            self._add(self._take(result.name, options.on_bytes or (lambda size: None)) if freed else result)
        self._result.partitions.sort(key=lambda result: result.name)

    def _add(self, result: PartitionResult) -> None:
        self._result.partitions.append(result)
        if self._options.on_result is not None:
            self._options.on_result(result)

    def _take(self, name: str, advance: Advance) -> PartitionResult:
        result = self._attempt(name, advance)
        if not (self._frees and is_full(result.error)):
            return result
        planned = self._run_dry(name)
        first, count = self._remove_oldest(planned)
        if not count:
            return result
        result = self._attempt(name, advance, first)
        if is_full(result.error) and self._note_start(planned):
            result.state, result.reason, result.remedy, result.error = "done", "", "", None
            result.log_start, result.log_end = planned.log_start, planned.log_end
            result.notes.append("the disk is too full to recover the log: a broker does that when it starts, "
                                 "and needs room for its indexes")  # fmt: skip
        result.bytes_before, result.segments_before = planned.bytes_before, planned.segments_before
        removed = result.numbers.get("segmentsDeleted", 0) + count
        result.numbers = {**planned.numbers, "segmentsDeleted": removed}
        if result.state == "unchanged":
            result.state = "done"
        result.notes.append(f"the disk was full, so the oldest segments ({count:,}) went before the log was opened")
        return result

    def _run_dry(self, name: str) -> PartitionResult:
        options = dataclasses.replace(self._options, dry_run=True, jobs=1, on_result=None, on_bytes=None)
        run = _Run(self._place, [name], self._settings, options, self._command._replace(frees=False))
        (result,) = run.run()
        return result

    def _remove_oldest(self, planned: PartitionResult) -> tuple[int, int]:
        """Remove the oldest segments that a command would remove; return where the log begins now, and how many.

        The last one stays: it tells where the log ends.
        """
        storage, folder = self._storage, planned.path
        if planned.log_start is None or planned.state != "done":
            return 0, 0
        gone = {os.path.basename(change.path) for change in planned.changes if change.after is None}
        files: dict[int, list[str]] = {}
        logs = set()
        for entry in storage.list_folder(folder):
            name = parse_file_name(entry.name)
            if name.is_live and name.offset is not None and name.kind.is_segment_file:
                files.setdefault(name.offset, []).append(entry.name)
                if name.kind is FileKind.LOG:
                    logs.add(name.offset)
        bases, count, is_noted = sorted(logs), 0, False
        for base, next_base in pairwise(bases):
            if next_base > planned.log_start or segment_file_name(base, FileKind.LOG) not in gone:
                break
            is_noted = is_noted or self._note_start(planned)  # where there is no room before, there is after the first
            for file in files[base]:
                storage.remove(storage.join(folder, file))
            count += 1
        if count:
            storage.sync_folder(folder)
            if not is_noted:
                self._note_start(planned)
        return bases[count] if count else 0, count

    def _note_start(self, planned: PartitionResult) -> bool:
        """Write down where a log begins that is not open, in the checkpoint and the leader epochs; if there is room."""
        storage, start = self._storage, planned.log_start or 0
        path = storage.join(planned.path, FileKind.LEADER_EPOCHS.value)
        try:
            if storage.exists(path):
                LeaderEpochs(storage, path, lambda name, write: write()).truncate_from_start(start)
            if self._directory is not None:
                self._directory.note_start(planned.name, start)
        except PylogsegError as error:
            if isinstance(error, StorageError) and not is_full(error):
                raise
            return False  # a malformed file is what the load tells of
        return True

    def _attempt(self, name: str, advance: Advance, log_start: int = 0) -> PartitionResult:
        storage = self._storage
        if isinstance(storage, OverlayStorage):
            storage = self._overlay()  # of its own, so that its memory is given back
        result = PartitionResult(name, storage.join(self._place.parent, name))
        reason = reason_to_skip(self._place, name, self._command.takes)
        if reason:
            result.skip(reason, not_done=self._is_named)
            return result
        try:
            self._work_on(name, storage, result, advance, log_start)
        except PylogsegError as error:
            if self._into is not None and is_of_disk(error):
                raise  # a partial copy is useless
            result.state, result.reason, result.error = "failed", str(error), error
            result.remedy = result.remedy or _remedy(error)
        except MemoryError as error:
            result.state, result.reason = "failed", f"{result.path}: out of memory: {error or 'an allocation failed'}"
            result.error = PylogsegError(result.reason)
            result.remedy = "give the process more memory, or run it with --jobs 1"
        except Exception as error:  # a fault of ours: it must not keep the partitions after this one from their turn
            _log.exception("%s: %s", result.path, type(error).__name__)
            result.error = PylogsegError(f"{result.path}: {type(error).__name__}: {error}")
            result.state, result.reason = "failed", str(result.error)
            result.remedy = "this is a fault of pylogseg: report it, with a copy of the partition if you can"
        if isinstance(storage, OverlayStorage):
            result.changes = self._place.changes(storage)
        result.not_done |= result.state == "skipped" and self._is_named
        return result if self._into is None else self._in_its_place(result, self._into)

    def _overlay(self) -> OverlayStorage:
        storage = self._options.storage
        return OverlayStorage() if isinstance(storage, LocalStorage) else OverlayStorage(storage)

    def _work_on(self, name: str, storage: Storage, result: PartitionResult, advance: Advance, log_start: int) -> None:
        self._place.check(storage, name)
        folder = parse_partition_folder(name)
        topic, partition = (folder.topic, folder.partition) if folder else ("", -1)
        config = self._settings.config_of(topic, name)
        result.notes += self._settings.notes(topic, name)
        result.replicas = self._settings.replicas_of(topic, partition, name)
        path, clock = storage.join(self._place.parent, name), self._options.clock
        start = self._claim(name)
        start = start._replace(log_start_offset=max(start.log_start_offset, log_start))
        directory = None if _is_deleted(name) else self._directory
        part = OfflinePartition(path, name, storage, directory, start, config, self._settings, clock, result, advance)
        if self._noted is not None and topic:
            part.why_no_high_watermark = self._noted.why_no_high_watermark(topic, partition)
        closed, before = False, _state_of(storage, path)
        lost = epoch_findings(self._options.storage, path, only_without_entries=True) if part.is_live else ()
        try:
            result.bytes_before, result.segments_before = part.sizes()
            self._command.work(part)
            part.close()
            closed = True
            if topic and result.state in ("done", "unchanged"):
                part.doubt_topic_id()
                part.doubt_epochs(lost)
            result.bytes_after, result.segments_after = part.sizes()
        except BaseException as error:
            closed = closed or part.give_up(error)
            with contextlib.suppress(StorageError):
                result.bytes_after, result.segments_after = part.sizes()
            raise
        finally:
            as_before = part.stays_trusted and start.clean and before is not None and _state_of(storage, path) == before
            self._release(part, closed, as_before)

    def _claim(self, name: str) -> Start:
        if self._directory is None or _is_deleted(name):
            return Start(False, 0, 0, _NOT_KNOWN)
        start = self._directory.claim(name)
        folder = parse_partition_folder(name)
        known = folder is not None and not folder.state and partition_of(name) in self._marks
        return start if known else start._replace(high_watermark=_NOT_KNOWN)

    def _release(self, part: OfflinePartition, closed: bool, as_before: bool) -> None:
        if part.directory is None:
            return
        if closed and part.log is not None:
            part.directory.attach(part.name, part.log)
        # One whose log was not opened, or that failed before a file was changed, is as trustworthy as before.
        clean = as_before or (closed and (part.log is not None or part.start.clean))
        part.directory.release(part.name, clean=clean, write=False)

    def _in_its_place(self, result: PartitionResult, into: Destination) -> PartitionResult:
        """Readers will look in the later place; failed partitions are not there."""
        if result.state == "failed":
            self._storage.remove_folder(result.path)
            result.notes.append(f"it is not in {into.path}; the input is as it was")
        result.path, result.reason = into.name_final_path(result.path), into.name_final_path(result.reason)
        result.report.actions = [
            dataclasses.replace(action, path=into.name_final_path(action.path)) for action in result.report.actions
        ]
        return result


def _state_of(storage: Storage, folder: str) -> list[Entry] | None:
    """Return names, sizes and times of the files in a folder; None if it cannot be listed."""
    try:
        return sorted(storage.list_folder(folder))
    except StorageError:
        return None


def _is_deleted(name: str) -> bool:
    folder = parse_partition_folder(name)
    return folder is not None and folder.state == "delete"


def reason_to_skip(place: Target, name: str, takes: Collection[str] = ()) -> str:
    """Return why a command leaves a folder alone; empty if it does not."""
    folder = parse_topic_folder(name)
    if folder is not None and folder.state in takes:
        return ""
    if folder is not None and folder.state == "future":
        return "it is being moved here from another log directory"
    if folder is not None and folder.state == "stray":
        return "a replica that this broker should not have"
    return place.reason_to_skip(name)


def remedy_of_disk(error: StorageError, kept: str = "completed work is kept") -> str:
    """Return the remedy for an error of the disk; `kept` names the work that another run need not repeat."""
    if os.path.islink(error.path):
        target = os.path.realpath(error.path)
        if not os.path.exists(target):
            return f"while the broker is stopped, put the folder where {error.path} is, or remove the link"
        words = shlex.join(["rm", error.path]), shlex.join(["mv", target, error.path])
        return f"while the broker is stopped, `{words[0]}`, then `{words[1]}`; then start again: {kept}"
    if error.errno in FULL:
        return f"make room on the disk, and start again: {kept}"
    return f"check the disk and the permissions, and start again: {kept}"


def _remedy(error: PylogsegError) -> str:
    if isinstance(error, KeepError):
        return "repair it first with `pylogseg repair` or `pylogseg recover`; no record was touched"
    if isinstance(error, StorageError):
        return remedy_of_disk(error)
    if isinstance(error, CorruptionError) and error.path.endswith(FileKind.PARTITION_METADATA.value):
        return REMEDIES["metadata"]
    if isinstance(error, CorruptionError):
        return "check it with `pylogseg verify`, and repair it with `pylogseg repair`"
    return ""


# ---- gaps that a log had before the command, which may remove their signs ----


def known_lacks(place: Target, names: list[str], options: Options) -> list[Finding]:
    """Return the missing records of folders. Call it first: opening a log rewrites the checkpoints that show them."""
    if not isinstance(options.storage, LocalStorage):
        return []
    return lacking_in([(place, names)], jobs=options.jobs, whole=False, how=Look.OUTLINE)


def name_lacks(result: Result, known: list[Finding]) -> None:
    """Add the missing records of the partitions to a result, without records that the command has brought back."""
    by_name = defaultdict[str, list[Finding]](list)
    for finding in known:  # of a partition's folder, or of a file in it
        for name in {os.path.basename(finding.path), os.path.basename(os.path.dirname(finding.path))}:
            by_name[name].append(finding)
    for part in result:
        before = by_name.get(part.name, [])
        left = before if result.dry_run else _select_remaining(part, before)
        if "offsetsMissing" in part.numbers and part.log_end is not None:
            # It counts what is missing below the end, and what was removed there.
            removed = [action.next_offset or 0 for action in part.report.actions if action.is_damage]
            counted = max([part.log_end, *removed])
            part.numbers["offsetsMissing"] += sum(_count_from(finding, counted) for finding in left)
        result.lacking += left


def _select_remaining(part: PartitionResult, before: list[Finding]) -> list[Finding]:
    if not before or "offsetsFromOthers" not in part.numbers:
        return before
    now = lacking(open_dir([part.path]))
    log_start, log_end = part.log_start or 0, part.log_end or 0

    def is_back(first: int, end: int) -> bool:
        is_inside = log_start <= first < end <= log_end
        return is_inside and not any(finding.is_about(first, end) for finding in now)

    return [finding for finding in before if not is_back(*finding.offsets)]


def _count_from(finding: Finding, offset: int) -> int:
    first, end = finding.offsets
    return max(end - max(first, offset), 0)
