"""What all offline commands have in common: `run` takes one partition after the other through a command.

A command is a function of a `Part`. It asks the part for its log (`Part.open`), changes it, fills in the outcome, and
leaves the rest to `run`: the lock, settings, a dry run, a copy to work on, checkpoints, the marker of an orderly stop.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection

from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, PylogsegError, StorageError
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.jobs.place import Place, marked_epoch
from pylogseg.jobs.pool import Advance, map_ordered
from pylogseg.log.directory import LogDirectory, Start, partition_of
from pylogseg.log.keep import KeepError, check_place
from pylogseg.offline.checkpoints import differences, read_checkpoints
from pylogseg.offline.destination import Destination
from pylogseg.offline.options import Options
from pylogseg.offline.outcome import Outcome, Result, is_of_disk
from pylogseg.offline.part import Part
from pylogseg.offline.settings import Settings

Work = Callable[[Part], None]
_NOT_KNOWN = -1


def run(
    path: str | os.PathLike[str],
    options: Options,
    work: Work,
    check: Callable[[Settings], None] | None = None,
    takes: Collection[str] = (),
) -> Result:
    """Take the chosen partitions through a command.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    options : Options
        What the user chose.
    work : callable
        The command: gets a `Part`, may call `Part.open` and `Outcome.leave`, sets the outcome's state to
        ``"unchanged"`` where there was nothing to do. What it raises of this package's errors ends that partition
        alone.
    check : callable, optional
        Gets the settings before anything else is done.
    takes : collection of str
        States of folders (``"delete"``, ``"future"``, ``"stray"``) that the command takes too. Else they are left.

    Returns
    -------
    Result

    Raises
    ------
    RequestError
        If the path, a name or a setting is wrong, or the folder of `Options.into` is not empty.
    StorageError
        If a broker or another writer has the lock, or the log directory cannot be written.
    """
    place = Place.find(options.storage, os.fspath(path))
    names = place.chosen(options.topics, options.partitions)
    settings = Settings(place, options)
    if check is not None:
        check(settings)
    if options.into is None:
        return _Run(place, names, settings, options, work, takes).run()
    check_place(options.into, place.parent, names[0] if place.log_dir is None else None)
    into = Destination(options.storage, options.into)
    if options.dry_run:
        return _Run(place, names, settings, options, work, takes).run()
    try:
        kept = [name for name in names if not _reason_to_leave(place, name, takes)]
        copied = into.copy(place, kept, options.on_bytes or (lambda size: None))
        result = _Run(copied, kept, settings, options, work, takes, into).run()
        if len(result.failed) < len(result.outcomes):
            into.finish()
        else:
            into.discard()
    except BaseException:
        into.discard()
        raise
    return result


def chosen_bytes(path: str, options: Options) -> int:
    """Bytes of the files in the chosen partitions' folders, for a bar of progress."""
    storage = options.storage
    place = Place.find(storage, path)
    folders = [storage.join(place.parent, name) for name in place.chosen(options.topics, options.partitions)]
    return sum(entry.size for folder in folders for entry in storage.list_folder(folder) if entry.name.endswith(".log"))


class _Run:
    def __init__(
        self,
        place: Place,
        names: list[str],
        settings: Settings,
        options: Options,
        work: Work,
        takes: Collection[str],
        into: Destination | None = None,
    ) -> None:
        self._place, self._names, self._settings, self._takes = place, names, settings, takes
        self._options, self._work, self._into = options, work, into
        self._storage: Storage = OverlayStorage() if options.dry_run else options.storage
        self._directory: LogDirectory | None = None
        self._marks: dict[tuple[str, int], int] = {}
        shown = place.log_dir if into is None else into.path
        self._result = Result(log_dir=shown, dry_run=options.dry_run, notes=[settings.describe()])

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
        before = read_checkpoints(storage, log_dir, result.notes)
        self._marks = before[FileKind.HIGH_WATERMARKS]
        epoch = marked_epoch(storage, log_dir)
        self._directory = LogDirectory(storage, log_dir)
        try:
            self._take_all()
        finally:
            lost = any(outcome.loses_records for outcome in result)
            self._directory.broker_epoch = None if lost else epoch
            self._directory.close()
        result.checkpoints = differences(before, read_checkpoints(storage, log_dir))
        result.is_closed_clean = storage.exists(storage.join(log_dir, FileKind.CLEAN_SHUTDOWN.value))

    def _take_all(self) -> None:
        options = self._options
        for outcome in map_ordered(self._take, self._names, options.jobs, options.on_bytes):
            self._result.outcomes.append(outcome)
            if options.on_outcome is not None:
                options.on_outcome(outcome)

    def _take(self, name: str, advance: Advance) -> Outcome:
        storage = self._storage
        if isinstance(storage, OverlayStorage):
            storage = OverlayStorage()  # of its own, so that its memory is given back
        outcome = Outcome(name, storage.join(self._place.parent, name))
        reason = _reason_to_leave(self._place, name, self._takes)
        if reason:
            outcome.leave(reason)
            return outcome
        try:
            self._work_on(name, storage, outcome, advance)
        except PylogsegError as error:
            if self._into is not None and is_of_disk(error):
                raise  # half of a copy is none
            outcome.state, outcome.reason, outcome.error = "failed", str(error), error
            outcome.remedy = _remedy(error)
        if isinstance(storage, OverlayStorage):
            outcome.changes = self._place.changes(storage)
        return outcome if self._into is None else self._in_its_place(outcome, self._into)

    def _work_on(self, name: str, storage: Storage, outcome: Outcome, advance: Advance) -> None:
        folder = parse_partition_folder(name)
        topic, partition = (folder.topic, folder.partition) if folder else ("", -1)
        config = self._settings.config_of(topic)
        outcome.replicas = self._settings.replicas_of(topic, partition)
        path, clock = storage.join(self._place.parent, name), self._options.clock
        start = self._claim(name)
        directory = None if _is_deleted(name) else self._directory
        part = Part(path, name, storage, directory, start, config, self._settings.broker, clock, outcome, advance)
        closed = False
        try:
            outcome.bytes_before, outcome.segments_before = part.sizes()
            self._work(part)
            part.close()
            closed = True
            outcome.bytes_after, outcome.segments_after = part.sizes()
        except BaseException as error:
            closed = closed or part.give_up(error)
            raise
        finally:
            self._release(part, closed)

    def _claim(self, name: str) -> Start:
        if self._directory is None or _is_deleted(name):
            return Start(False, 0, 0, _NOT_KNOWN)
        start = self._directory.claim(name)
        folder = parse_partition_folder(name)
        known = folder is not None and not folder.state and partition_of(name) in self._marks
        return start if known else start._replace(high_watermark=_NOT_KNOWN)

    def _release(self, part: Part, closed: bool) -> None:
        if part.directory is None:
            return
        if closed and part.log is not None:
            part.directory.attach(part.name, part.log)
        # One whose log was not opened is as trustworthy as before.
        part.directory.release(part.name, clean=closed and (part.log is not None or part.start.clean), write=False)

    def _in_its_place(self, outcome: Outcome, into: Destination) -> Outcome:
        """Whoever reads it will look in the later place; what failed is not there."""
        if outcome.state == "failed":
            self._storage.remove_folder(outcome.path)
            outcome.notes.append(f"it is not in {into.path}; the input is as it was")
        outcome.path, outcome.reason = into.shown(outcome.path), into.shown(outcome.reason)
        outcome.report.actions = [
            dataclasses.replace(action, path=into.shown(action.path)) for action in outcome.report.actions
        ]
        return outcome


def _is_deleted(name: str) -> bool:
    folder = parse_partition_folder(name)
    return folder is not None and folder.state == "delete"


def _reason_to_leave(place: Place, name: str, takes: Collection[str]) -> str:
    folder = parse_partition_folder(name)
    if folder is not None and folder.state in takes:
        return ""
    if folder is not None and folder.state == "future":
        return "it is being moved here from another log directory"
    if folder is not None and folder.state == "stray":
        return "a replica that this broker should not have"
    return place.reason_to_leave(name)


def _remedy(error: PylogsegError) -> str:
    if isinstance(error, KeepError):
        return "put it in order first, by `pylogseg repair` or `pylogseg recover`; no record was touched"
    if isinstance(error, StorageError):
        return "see to the disk or to the permissions, and start again: what was done stays so"
    if isinstance(error, CorruptionError):
        return "look at it by `pylogseg verify`, and put it in order by `pylogseg repair`"
    return ""
