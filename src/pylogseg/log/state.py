"""The state of a log: its parts, its lock, and whether it may be used; what is done to it is in other modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn, TypeVar

from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
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
from pylogseg.log.watched_scheduler import WatchedScheduler

_Result = TypeVar("_Result")


class Start(NamedTuple):
    """What a log directory knows of a partition before its log is opened.

    Attributes
    ----------
    clean : bool
        Whether it was closed in order, or is new: nothing has to be recovered.
    log_start_offset, recovery_point, high_watermark : int
        From the checkpoints; 0 where they say nothing.
    """

    clean: bool = False
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0


class LogState:
    """The parts of a log; `Log` and its collaborators work on them.

    Parameters
    ----------
    environment : Environment
    identity : LogIdentity
    config : LogConfig
    report : LoadReport
        What the load does.
    files : iterable of str
        Names in the folder.
    producer_expiration_ms : int
        Idle producers are forgotten after that.

    Attributes
    ----------
    lock : lock
        Held by whoever changes the log.
    tasks : WatchedScheduler
        Runs what is done later; a failure of the disk takes the log offline.
    metrics : LogMetrics
        Rolls and flushes are counted by the log itself, the rest by who owns it.
    failure : StorageError or None
        The first failure of the disk. The log is offline since.
    is_closing : bool
        Whether no append and no roll may begin any more.
    is_closed : bool
        Whether the files were let go of.
    changes : int
        How often a segment was rolled or the end moved back; a flush that meets that looks again.
    on_failure : callable
        Told of the first failure, by the thread that met it and maybe with the lock held.
    on_log_start : callable
        Called when the log's start has moved, before any segment goes.
    """

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
        self.tasks = WatchedScheduler(environment.scheduler)
        self.segments = Segments()
        name = FileKind.LEADER_EPOCHS.value
        path = self.storage.join(self.folder, name)
        self.epochs = LeaderEpochs(self.storage, path, self.tasks.schedule, is_there=name in files)
        self.producers = self.new_producers(files)
        self.remover = Remover(self.storage, self.tasks, config.file_delete_delay_ms)
        self.offsets = LogOffsets(self.producers, lambda offset: locate(self.segments, self.offsets, offset))
        self.metrics = LogMetrics()
        self.lock = threading.RLock()
        self.failure: StorageError | None = None
        self.is_closing = self.is_closed = False
        self.changes = 0
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        self.on_log_start: Callable[[], None] = lambda: None

    def new_producers(self, names: Iterable[str] | None = None) -> Producers:
        """Producers of this log, none of them known yet."""
        return Producers(self.storage, self.folder, expiration_ms=self.producer_expiration_ms, names=names)

    def new_segment(self, base_offset: int) -> LogSegment:
        """An empty segment; it is not among the log's yet."""
        preallocate = self.config.preallocate_bytes
        return LogSegment(
            self.storage, self.folder, base_offset, self.config, self.clock, preallocate_bytes=preallocate
        )

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        segment = self.segments.active
        if segment is None:
            raise ClosedError(f"{self.folder}: the log has no segment")
        return segment

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and the disk has not failed."""
        return not self.is_closed and self.failure is None

    def refuse(self) -> NoReturn:
        """Raise what says why the log cannot be used."""
        if self.is_closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        failed = self.failure
        number = None if failed is None else failed.errno
        raise StorageError(self.folder, "use", f"the log is offline since {failed}", number)

    def check_usable(self) -> None:
        """Raise if the log cannot be used."""
        if self.is_closed or self.failure is not None:
            self.refuse()

    def guarded(self, work: Callable[[], _Result]) -> _Result:
        """Run work on the disk; its first failure takes the log offline."""
        self.check_usable()
        try:
            return work()
        except StorageError as error:
            self.take_offline(error)
            raise

    def take_offline(self, error: StorageError) -> None:
        """Let nothing more be done after a failure of the disk."""
        if self.failure is None:
            self.failure = error
            self.on_failure(error)
