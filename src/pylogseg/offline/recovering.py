"""`recover`: recover a log directory or one partition, like the start and the clean shutdown of a broker.

A partition that cannot be recovered does not stop the others. A dry run does the same on an overlay of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import open_dir
from pylogseg.disk.target import Target, marked_epoch, moving_picture, sizes_in
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.filesystem import Entry
from pylogseg.env.overlay import FileChange, OverlayStorage
from pylogseg.env.pool import Advance, map_ordered
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder
from pylogseg.inspect.verify.findings import REMEDIES, Finding
from pylogseg.inspect.verify.startup import check_start
from pylogseg.log.directory import LogDirectory, read_offsets
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks, UnreachedError
from pylogseg.log.recovery_keep import FolderKeeper, KeepError, PlannedKeeper, check_keep_folder
from pylogseg.log.recovery_report import REMEDIES as ACTION_REMEDIES
from pylogseg.log.recovery_report import ActionKind, LoadReport
from pylogseg.log.state import Start


@dataclass(frozen=True)
class RecoverOptions:
    """Options of a recovery."""

    config: LogConfig = field(default_factory=LogConfig)
    producer_expiration_ms: int = 86_400_000
    full: bool = False  #: Whether to read every segment: the marker and the recovery points are ignored.
    dry_run: bool = False
    keep: str | None = None  #: The folder for copies of what is cut off or removed; None for no copies.
    jobs: int = 1  #: Threads, each with a partition.
    clock: Clock = field(default_factory=SystemClock)  #: Tells which producers have expired.


@dataclass
class RecoverResult:
    """The result for one partition."""

    name: str
    path: str
    state: str  #: "recovered" (as far as it had to be), "clean" (trusted), "left" (not looked at) or "failed".
    reason: str = ""
    remedy: str = ""  #: What to do about a failure.
    log_start: int | None = None  #: Offsets afterwards.
    log_end: int | None = None
    report: LoadReport = field(default_factory=LoadReport)
    error: PylogsegError | None = None
    changes: list[FileChange] = field(default_factory=list)  #: In a dry run: how its files would differ.

    def as_row(self) -> dict[str, Any]:
        """Fields for a JSON line."""
        row = {
            "type": "partition",
            "partition": self.name,
            "path": self.path,
            "state": self.state,
            "reason": self.reason or None,
            "remedy": self.remedy or None,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            **self.report.as_row(),
        }
        return {**row, "changes": [change._asdict() for change in self.changes]} if self.changes else row


class Recovery:
    """The recovery of one folder, a log directory or a partition's, by `run`.

    Raises RequestError if the folder is neither, or copies would lie in it, and StorageError if it cannot be read or
    another writer has its lock. `log_dir` is None for a partition's folder outside of a log directory.
    """

    def __init__(self, path: str, options: RecoverOptions) -> None:
        self._options = options
        self._on_bytes: Callable[[int], None] | None = None
        self._storage: Storage = OverlayStorage() if options.dry_run else LocalStorage()
        self._place = place = Target.find(self._storage, path)
        self.log_dir, self._parent = place.log_dir, place.parent
        if options.keep is not None:
            check_keep_folder(options.keep, place.parent, place.names[0] if self.log_dir is None else None)
        self.notes: list[str] = moving_picture(place.parent) if options.dry_run else []
        #: In a dry run, after the last result: how the files of the log directory itself would differ.
        self.changes: list[FileChange] = []
        #: After the last result: whether a broker that starts now trusts the whole log directory.
        self.is_closed_clean = False

    def total_bytes(self) -> int:
        """Bytes of the segments that will be read, about."""
        clean, points = self._options.full is False and self._is_marked(), self._recovery_points()
        if clean:
            return 0
        total = 0
        for name in self._place.names:
            folder = parse_partition_folder(name)
            point = points.get((folder.topic, folder.partition), 0) if folder else 0
            total += _unflushed_bytes(sizes_in(self._storage, self._storage.join(self._parent, name)), point)
        return total

    def refusals(self) -> list[Finding]:
        """Return findings that keep a broker from starting on the log directory, whatever its logs are."""
        if self.log_dir is None or not self._place.is_whole:
            return []
        return [finding for finding in check_start(open_dir(self.log_dir).log_dirs) if finding.is_damage]

    def _is_marked(self) -> bool:
        marker = FileKind.CLEAN_SHUTDOWN.value
        return self.log_dir is not None and self._storage.exists(self._storage.join(self.log_dir, marker))

    def _recovery_points(self) -> dict[tuple[str, int], int]:
        if self.log_dir is None or self._options.full:
            return {}
        return self._checkpoint(FileKind.RECOVERY_POINTS) or {}

    def _checkpoint(self, kind: FileKind) -> dict[tuple[str, int], int] | None:
        path = self._storage.join(self._parent, kind.value)
        if not self._storage.exists(path):
            return {}
        try:
            return read_offsets(self._storage, path)
        except CorruptionError as error:
            self.notes.append(f"{error}; it is taken for empty, as by a broker")
            return None

    def run(self, on_bytes: Callable[[int], None] | None = None) -> Iterator[RecoverResult]:
        """Recover, once; results come in the order of names. To end the iteration early leaves the rest as it is.

        `on_bytes` gets the bytes of segments that were read, from several threads.
        """
        self._on_bytes = on_bytes
        if self.log_dir is None:
            lock = self._storage.lock(self._parent)
            try:
                yield from self._results(lambda name: Start(False, 0, 0, 0), lambda name, log: None)
            finally:
                lock.release()
            return
        for kind in (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS):
            self._checkpoint(kind)
        broker_epoch = marked_epoch(self._storage, self.log_dir)
        directory = LogDirectory(self._storage, self.log_dir)

        def done(name: str, log: Log | None) -> None:
            if log is not None:
                directory.attach(name, log)
            directory.release(name, clean=log is not None, write=False)

        lost = False
        try:
            for result in self._results(directory.claim, done):
                lost |= any(action.bytes_gone for action in result.report.actions)
                yield result
        finally:
            directory.broker_epoch = None if lost else broker_epoch
            directory.close()
            self.is_closed_clean = self._is_marked()
            if isinstance(self._storage, OverlayStorage):
                self.changes = self._place.changes(self._storage)

    def _results(
        self, claim: Callable[[str], Start], done: Callable[[str, Log | None], None]
    ) -> Iterator[RecoverResult]:
        """Partition by partition, in the order of their names."""

        def work(name: str, advance: Advance) -> RecoverResult:
            reason = self._place.reason_to_leave(name)
            if reason:
                return RecoverResult(name, self._storage.join(self._parent, name), "left", reason)
            try:
                self._place.check(self._storage, name)
            except PylogsegError as error:
                path = self._storage.join(self._parent, name)
                return RecoverResult(name, path, "failed", str(error), _remedy(error), error=error)
            return self._recover(name, claim(name), done, advance)

        return map_ordered(work, sorted(self._place.names), self._options.jobs, self._on_bytes)

    def _recover(
        self, name: str, start: Start, done: Callable[[str, Log | None], None], advance: Advance
    ) -> RecoverResult:
        options = self._options
        storage = OverlayStorage() if options.dry_run else self._storage
        path = storage.join(self._parent, name)
        clean = start.clean and not options.full
        result = RecoverResult(name, path, "clean" if clean else "recovered")
        keeper = None
        if options.keep is not None:
            keeper = (PlannedKeeper if options.dry_run else FolderKeeper)(LocalStorage(), options.keep)
        scheduler = CollectingScheduler()
        log = None
        try:
            log = Log.open(
                Environment(storage, options.clock, scheduler),
                path,
                options.config,
                Start(clean, start.log_start_offset, 0 if options.full else start.recovery_point),
                producer_expiration_ms=options.producer_expiration_ms,
                hooks=LoadHooks(keeper, advance, report=result.report, stops_at_unreached=True),
            )
            result.report.compare_end(path, log.log_end_offset, start.recovery_point, start.high_watermark)
            log.update_high_watermark(start.high_watermark)
            log.flush()
            log.close()
            scheduler.finish()
            result.log_start, result.log_end = log.log_start_offset, log.log_end_offset
        except PylogsegError as error:
            log, result.state, result.reason, result.error = None, "failed", str(error), error
            result.remedy = _remedy(error)
        done(name, log)
        if isinstance(storage, OverlayStorage):
            result.changes = self._place.changes(storage)
        return result


def _remedy(error: PylogsegError) -> str:
    if isinstance(error, KeepError):
        return "nothing was cut that has no copy: name another folder by --keep, or do without by --no-keep"
    if isinstance(error, UnreachedError):
        return ACTION_REMEDIES[ActionKind.UNREACHED]
    if isinstance(error, StorageError):
        return "check the disk and the permissions, and start again: recovered partitions stay recovered"
    if isinstance(error, CorruptionError) and error.path.endswith(FileKind.LEADER_EPOCHS.value):
        return REMEDIES["leader-epoch"]
    if isinstance(error, CorruptionError) and error.path.endswith(FileKind.PARTITION_METADATA.value):
        return REMEDIES["metadata"]
    if isinstance(error, RequestError):
        return "nothing was written there"
    return "take the partition from another replica: a broker cannot load it either"


def _unflushed_bytes(entries: list[Entry], recovery_point: int) -> int:
    """Bytes of the segments from the one on that holds an offset."""
    logs = {}
    for entry in entries:
        name = parse_file_name(entry.name)
        if name.kind is FileKind.LOG and name.is_live and name.offset is not None:
            logs[name.offset] = entry.size
    first = max((base for base in logs if base <= recovery_point), default=0)
    return sum(size for base, size in logs.items() if base >= first)
