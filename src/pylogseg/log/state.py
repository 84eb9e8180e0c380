"""The state of a log: its parts, its lock, and whether it is usable; other modules change it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn, TypeVar

from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import Handle, Scheduler
from pylogseg.errors import ClosedError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.identity import LogIdentity
from pylogseg.log.leader_epochs import LeaderEpochs
from pylogseg.log.metrics import LogMetrics
from pylogseg.log.offsets import LogOffsets
from pylogseg.log.producers import Producers
from pylogseg.log.reads import locate
from pylogseg.log.recovery_report import LoadReport
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_removal import Remover
from pylogseg.log.segments import Segments

_Result = TypeVar("_Result")


class Start(NamedTuple):
    """Facts that a log directory has of a partition before its log is opened; checkpoints without an entry give 0."""

    clean: bool = False  #: True if it was shut down cleanly, or is new: nothing has to be recovered.
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0


class LogState:
    """The parts of a log; `Log` and its collaborators work on them. The load fills `report`."""

    def __init__(
        self,
        environment: Environment,
        identity: LogIdentity,
        config: LogConfig,
        report: LoadReport,
        files: Iterable[str],
        producer_expiration_ms: int,
    ) -> None:
        self.environment, self.identity, self.config = environment, identity, config
        self.storage, self.clock = environment.storage, environment.clock
        self.folder, self.report = identity.folder, report
        self.producer_expiration_ms = producer_expiration_ms
        #: Runs delayed tasks; a failure of the disk takes the log offline.
        self.tasks = WatchedScheduler(environment.scheduler)
        self.segments = Segments()
        name = FileKind.LEADER_EPOCHS.value
        path = self.storage.join(self.folder, name)
        self.epochs = LeaderEpochs(self.storage, path, self.tasks.schedule, is_there=name in files)
        self.producers = self.new_producers(files)
        self.remover = Remover(self.storage, self.tasks, config.file_delete_delay_ms)
        self.offsets = LogOffsets(self.producers, lambda offset: locate(self.segments, self.offsets, offset))
        self.metrics = LogMetrics()
        self.lock = threading.RLock()  #: Held while the log is changed.
        self.failure: StorageError | None = None  #: The first failure of the disk, which took the log offline.
        self.is_closing = self.is_closed = False  #: True if appends and rolls are no longer allowed.
        self.changes = 0  #: Rolls and truncations so far; a flush starts over if it changed meanwhile.
        self.cuts = 0  #: Truncations so far.
        # What the owner of the log adds; see `owned.ownership.Ownership`.
        #: Returns a context manager during which nobody rewrites segments.
        self.undisturbed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        #: Called with the first failure, by the thread that met it and maybe with the lock held.
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        #: Called when the log's start has moved, before segments are deleted.
        self.on_log_start: Callable[[], None] = lambda: None
        #: Called after an append, also a refused one, with the lock held; and after a truncation.
        self.on_append: Callable[[], None] = lambda: None
        self.on_cut: Callable[[], None] = lambda: None

    def new_producers(self, names: Iterable[str] | None = None) -> Producers:
        return Producers(self.storage, self.folder, expiration_ms=self.producer_expiration_ms, names=names)

    def new_segment(self, base_offset: int) -> LogSegment:
        """Create an empty segment, without adding it to the log."""
        preallocate = self.config.preallocate_bytes
        return LogSegment(self, base_offset, preallocate_bytes=preallocate)

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        segment = self.segments.active
        if segment is None:
            raise ClosedError(f"{self.folder}: the log has no segment")
        return segment

    @property
    def is_usable(self) -> bool:
        """True if it is open, and the disk has not failed."""
        return not self.is_closed and self.failure is None

    def raise_unusable(self) -> NoReturn:
        """Raise the reason why the log cannot be used."""
        if self.is_closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        failed = self.failure
        number = None if failed is None else failed.errno
        raise StorageError(self.folder, "use", f"the log is offline since {failed}", number)

    def check_usable(self) -> None:
        """Raise if the log cannot be used."""
        if self.is_closed or self.failure is not None:
            self.raise_unusable()

    def check_disk(self) -> None:
        """Raise the failure that took the log offline, if there is one."""
        if self.failure is not None:
            self.raise_unusable()

    def guard(self, work: Callable[[], _Result]) -> _Result:
        """Run work on the disk; its first failure takes the log offline."""
        self.check_usable()
        try:
            return work()
        except StorageError as error:
            self.take_offline(error)
            raise

    def take_offline(self, error: StorageError) -> None:
        """Take the log offline after a failure of the disk."""
        if self.failure is None:
            self.failure = error
            self.on_failure(error)


class WatchedScheduler:
    """Hands the `StorageError` of a task to `on_error`, and raises it."""

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.on_error: Callable[[StorageError], object] = lambda error: None
        self.shutdown = inner.shutdown

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Handle:
        """Call a task later; see `Scheduler`."""

        def run() -> None:
            try:
                task()
            except StorageError as error:
                self.on_error(error)
                raise

        return self._inner.schedule(name, run, delay_ms, period_ms)
