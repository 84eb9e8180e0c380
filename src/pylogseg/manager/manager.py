"""`LogManager`: all logs of several log directories, with what a broker does for them in the background."""

from __future__ import annotations

import functools
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.embedded.log import EmbeddedLog
from pylogseg.embedded.opening import local_storage, open_in
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.scheduler import Handle, Scheduler, ThreadScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import ClosedError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import FileKind, check_topic, partition_folder_name
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.log.retention import apply_retention
from pylogseg.manager.cleaning import Cleaning, Place
from pylogseg.manager.directories import Directories
from pylogseg.manager.settings import BrokerSettings

_log = logging.getLogger(__name__)
_FOR_EVER_MS = 2**63 - 1

TopicPartition = tuple[str, int]


class LogManager:
    """All logs of some log directories, of which this process is the only writer.

    Opening it takes the locks and loads every log, several at a time; those that were not closed in order are
    recovered. In the background it deletes what retention lets go, compacts, flushes, expires producers and writes
    checkpoints. A log directory that fails is left alone from then on; the others go on.

    Parameters
    ----------
    settings : BrokerSettings
        Log directories, defaults of topics, intervals.
    topics : mapping of str to mapping, optional
        Settings of topics that differ from the defaults, by Kafka's names with underscores.
    storage, clock, scheduler : optional
        The world it lives in; this machine's if not given.

    Raises
    ------
    StorageError
        If another process has the lock of a log directory, or none can be used.
    RequestError
        For settings that are refused, and if a partition lies in two log directories.
    CorruptionError
        If a log cannot be loaded.

    Examples
    --------
    >>> import pylogseg, tempfile
    >>> settings = pylogseg.BrokerSettings(log_dirs=(tempfile.mkdtemp(), tempfile.mkdtemp()))
    >>> with pylogseg.LogManager(settings, topics={"orders": {"cleanup_policy": "compact"}}) as manager:
    ...     done = manager.log("orders", 0).append([(None, b"key", b"value")])
    ...     sorted(manager)
    [('orders', 0)]

    Notes
    -----
    May be used by any number of threads, and so may the logs.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.settings = settings
        self._storage = local_storage() if storage is None else storage
        self._clock = SystemClock() if clock is None else clock
        self._owns_scheduler = scheduler is None
        self._mutex = threading.RLock()
        self._topics = {topic: dict(changes) for topic, changes in (topics or {}).items()}
        for topic in self._topics:
            self.config_of(topic)
        self._logs: dict[TopicPartition, Place] = {}
        self._ending = False
        self._tasks: list[Handle] = []
        self.directories = Directories(self._storage, settings.log_dirs)
        self.cleaning = Cleaning(settings, self.places, self._fail)
        self._scheduler = ThreadScheduler("pylogseg-manager") if scheduler is None else scheduler
        try:
            self._load()
        except BaseException:
            self._abandon()
            raise
        self._start()

    # ---- loading ----

    def _load(self) -> None:
        found: dict[TopicPartition, LogDirectory] = {}
        work: list[tuple[LogDirectory, str]] = []
        for directory in list(self.directories.online):
            try:
                contents = self.directories.contents(directory)
            except StorageError as error:
                self._fail(directory, error)
                continue
            for name in contents.live:
                key = partition_of(name)
                if key in found:
                    raise RequestError(
                        f"{name} lies in both {found[key].path} and {directory.path}: a move between them was cut "
                        "short; look at both and take one away"
                    )
                found[key] = directory
                work.append((directory, name))
            for name in contents.deleted:
                self._remove_later(directory, name, 0)
        threads = self.settings.num_recovery_threads_per_data_dir * max(len(self.directories.online), 1)
        with ThreadPoolExecutor(threads, "pylogseg-load") as pool:
            for directory, future in [(each[0], pool.submit(self._open, *each)) for each in work]:
                try:
                    future.result()
                except StorageError as error:
                    self._fail(directory, error)

    def _open(self, directory: LogDirectory, name: str, topic_id: str | None = None) -> EmbeddedLog:
        key = partition_of(name)
        log = open_in(
            LogDirectory.shared(self._storage, directory.path),
            name,
            self.config_of(key[0]),
            self._clock,
            self._scheduler,
            topic_id=topic_id,
            producer_id_expiration_ms=self.settings.producer_id_expiration_ms,
            tasks=False,
        )
        with self._mutex:
            self._logs[key] = (directory, name, log)
        return log

    def _abandon(self) -> None:
        for _, _, log in self.places():
            log.close_handles()
        self._logs.clear()
        self.directories.close()
        if self._owns_scheduler:
            self._scheduler.shutdown()

    # ---- logs ----

    def __iter__(self) -> Iterator[TopicPartition]:
        with self._mutex:
            return iter(sorted(self._logs))

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, key: object) -> bool:
        return key in self._logs

    def __getitem__(self, key: TopicPartition) -> EmbeddedLog:
        with self._mutex:
            return self._logs[key][2]

    def places(self) -> list[Place]:
        """All logs that are open, with the directory each lies in and the name of its folder."""
        with self._mutex:
            return list(self._logs.values())

    def log(
        self, topic: str, partition: int = 0, *, topic_id: str | None = None, log_dir: str | None = None
    ) -> EmbeddedLog:
        """The log of a partition, which is made if it is missing.

        Parameters
        ----------
        topic : str
            A legal name.
        partition : int
            Its number.
        topic_id : str, optional
            For a new one: its topic's in a Kafka cluster.
        log_dir : str, optional
            Where to make a new one; the directory with the fewest logs if not given.

        Raises
        ------
        StorageError
            If it cannot be made anywhere. With a log directory offline none is made, unless `log_dir` says where:
            the partition may lie in the one that failed.
        """
        check_topic(topic)
        with self._mutex:
            self._check_open()
            place = self._logs.get((topic, partition))
            if place is not None:
                return place[2]
            if self.directories.failed and log_dir is None:
                failed = ", ".join(self.directories.failed)
                raise StorageError(
                    f"{topic}-{partition}", "make", f"it may lie in a log directory that is offline: {failed}"
                )
            name = partition_folder_name(topic, partition)
            for directory in self._choices(log_dir):
                try:
                    return self._open(directory, name, topic_id)
                except StorageError as error:
                    self._fail(directory, error)
            raise StorageError(name, "make", "no log directory can be used")

    def _choices(self, log_dir: str | None) -> list[LogDirectory]:
        counts = {directory.path: 0 for directory in self.directories.online}
        for directory, _, _ in self._logs.values():
            counts[directory.path] += 1
        chosen = [each for each in self.directories.online if log_dir in (None, each.path)]
        if not chosen:
            raise RequestError(f"{log_dir}: not one of the log directories {', '.join(counts)}")
        return sorted(chosen, key=lambda each: counts[each.path])

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: its folder is renamed at once, and removed when ``file.delete.delay.ms`` is over."""
        with self._mutex:
            self._check_open()
            if (topic, partition) not in self._logs:
                raise RequestError(f"{topic}-{partition}: there is no such partition")
            directory, name, log = self._logs[topic, partition]
        with self.cleaning.paused(log.folder), self._mutex:
            new_name = partition_folder_name(topic, partition, "delete", uuid.uuid4().hex)
            log.move_away(new_name)
            self._logs.pop((topic, partition))
            self.cleaning.uncleanable.pop(log.folder, None)
            directory.note_cleaned(name, None)
            self._remove_later(directory, new_name, self.settings.topic_defaults.file_delete_delay_ms)

    def _remove_later(self, directory: LogDirectory, name: str, delay_ms: int) -> None:
        path = self._storage.join(directory.path, name)

        def remove() -> None:
            _log.info("%s: removed", path)
            self._storage.remove_folder(path)

        self._scheduler.schedule("delete-logs", remove, max(delay_ms, 1))

    # ---- settings ----

    def config_of(self, topic: str) -> LogConfig:
        """Settings of a topic's logs."""
        return self.settings.topic_defaults.with_changes(**self._topics.get(topic, {}))

    def configure(self, topic: str, **changes: Any) -> LogConfig:
        """Change settings of a topic; they count from the next operation of its logs on.

        Parameters
        ----------
        topic : str
            Whose logs need not be there yet.
        **changes
            By Kafka's names with underscores; None goes back to the default.

        Returns
        -------
        LogConfig
            All settings of the topic.
        """
        check_topic(topic)
        with self._mutex:
            merged = {**self._topics.get(topic, {}), **changes}
            kept = {name: value for name, value in merged.items() if value is not None}
            config = self.settings.topic_defaults.with_changes(**kept)
            self._topics[topic] = kept
            logs = [log for (name, _), (_, _, log) in self._logs.items() if name == topic]
        for log in logs:
            if log.config.compact and not config.compact:
                with self.cleaning.paused(log.folder):
                    log.update_config(config)
            else:
                log.update_config(config)
        return config

    # ---- in the background ----

    def _start(self) -> None:
        settings = self.settings
        checkpoint = self._checkpoint
        for name, work, period_ms, delay_ms in (
            ("log-retention", self.retain, settings.log_retention_check_interval_ms, None),
            (
                "recovery-point-checkpoint",
                functools.partial(checkpoint, FileKind.RECOVERY_POINTS),
                settings.log_flush_offset_checkpoint_interval_ms,
                None,
            ),
            (
                "log-start-offset-checkpoint",
                functools.partial(checkpoint, FileKind.LOG_STARTS),
                settings.log_flush_start_offset_checkpoint_interval_ms,
                None,
            ),
            (
                "highwatermark-checkpoint",
                functools.partial(checkpoint, FileKind.HIGH_WATERMARKS),
                settings.replica_high_watermark_checkpoint_interval_ms,
                0,
            ),
            (
                "producer-expiration",
                self._expire_producers,
                settings.producer_id_expiration_check_interval_ms,
                0,
            ),
            ("log-flusher", self._flush_old, _flush_interval(settings, self._topics, self.config_of), None),
        ):
            if 0 < period_ms < _FOR_EVER_MS:
                first = settings.log_initial_task_delay_ms if delay_ms is None else period_ms
                self._tasks.append(self._scheduler.schedule(name, self._guarded(work), first, period_ms))
        if settings.log_cleaner_enable:
            self.cleaning.start()

    def _guarded(self, work: Callable[[], object]) -> Callable[[], None]:
        def task() -> None:
            if not self._ending:
                work()

        return task

    def _each(self, work: Callable[[EmbeddedLog], object]) -> None:
        for directory, _, log in self.places():
            try:
                work(log)
            except ClosedError:
                continue
            except StorageError as error:
                self._fail(directory, error)

    def retain(self) -> int:
        """Apply retention now, but to compacted logs, whose retention is the cleaner's; segments that went."""
        gone = 0

        def work(log: EmbeddedLog) -> None:
            nonlocal gone
            if not log.config.compact:
                gone += apply_retention(log)

        self._each(work)
        return gone

    def _checkpoint(self, kind: FileKind) -> None:
        for directory in list(self.directories.online):
            try:
                directory.checkpoint(kind)
            except StorageError as error:
                self._fail(directory, error)

    def _expire_producers(self) -> None:
        self._each(lambda log: log.expire_producers())

    def _flush_old(self) -> None:
        now_ms = self._clock.now_ms()
        self._each(
            lambda log: log.flush(force_active=False) if now_ms - log.last_flush_ms >= log.config.flush_ms else None
        )

    def _fail(self, directory: LogDirectory, error: StorageError) -> None:
        """A log directory is left alone from now on."""
        with self._mutex:
            if not self.directories.take_offline(directory, error):
                return
            gone = [key for key, place in self._logs.items() if place[0] is directory]
            logs = [self._logs.pop(key)[2] for key in gone]
        for log in logs:
            try:
                log.close_handles()
            except PylogsegError as another:
                _log.info("%s: %s", log.folder, another)
        try:
            directory.close()
        except PylogsegError as another:
            _log.info("%s: %s", directory.path, another)

    # ---- the end ----

    def _check_open(self) -> None:
        if self._ending:
            raise ClosedError("the log manager is closed")

    def close(self) -> None:
        """Flush and close every log in order, write the checkpoints and the marker; closing again does nothing.

        Raises
        ------
        StorageError
            The first that came; what could be closed in order is.
        """
        with self._mutex:
            if self._ending:
                return
            self._ending = True
        for task in self._tasks:
            task.cancel()
        self.cleaning.stop()
        errors: list[PylogsegError] = []
        places = self.places()
        if places:
            with ThreadPoolExecutor(2 * max(len(self.directories.online), 1), "pylogseg-close") as pool:
                for future in [pool.submit(log.close) for _, _, log in places]:
                    try:
                        future.result()
                    except PylogsegError as error:
                        errors.append(error)
        self._logs.clear()
        if self._owns_scheduler:
            self._scheduler.shutdown()
        errors += self.directories.close()
        if errors:
            raise errors[0]

    def __enter__(self) -> LogManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:
                raise
            _log.exception("the logs cannot all be closed in order")

    def __repr__(self) -> str:
        return f"LogManager({len(self)} logs in {', '.join(each.path for each in self.directories.online)})"


def _flush_interval(settings: BrokerSettings, topics: Mapping[str, Any], config_of: Callable[[str], LogConfig]) -> int:
    """How often to look for logs that wait to be flushed: as often as the one that waits least."""
    return min([settings.topic_defaults.flush_ms, *(config_of(topic).flush_ms for topic in topics)])
