"""`LogManager`: all logs of several log directories, with a broker's background tasks."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.scheduler import Scheduler, ThreadScheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import ClosedError, OffsetOutOfRangeError, PylogsegError, RequestError, StorageError
from pylogseg.format.batches import scan
from pylogseg.format.names import TopicPartition, check_topic, partition_folder_name
from pylogseg.log.directory import LogDirectory
from pylogseg.log.identity import topic_id_of
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.manager.background import Background
from pylogseg.owned.manager.cleaning import CleaningPlace
from pylogseg.owned.manager.logs import OpenLogs
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.owned.manager.topics import TopicSettings
from pylogseg.owned.opening import local_storage

_log = logging.getLogger(__name__)
_MOST_NAMED = 20


class LogManager:
    """All logs of some log directories, of which this process is the only writer.

    Opening it takes the locks and loads every log, several at a time; logs that were not closed cleanly are recovered.
    In the background it applies retention, compacts, flushes, expires producers and writes checkpoints. A log directory
    that fails is taken offline; the others continue.

    Parameters
    ----------
    settings : BrokerSettings, path or sequence of path
        Log directories, defaults of topics, intervals; with the log directories alone, all else is as by default.
    topics : mapping of str to mapping, optional
        Settings of topics that differ from the defaults, by Kafka's names with underscores. They override the cluster's
        metadata, if the log directories have it.
    storage, clock, scheduler : optional
        Its environment; by default this machine's.

    Raises
    ------
    StorageError
        If another process has the lock of a log directory, or none can be used.
    RequestError
        For invalid settings, and if a partition lies in two log directories.
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
        settings: BrokerSettings | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        topics: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        if not isinstance(settings, BrokerSettings):
            settings = BrokerSettings(cast("tuple[str, ...]", settings))
        self.settings = settings
        self._storage = local_storage() if storage is None else storage
        self._clock = SystemClock() if clock is None else clock
        self._owns_scheduler = scheduler is None
        self._topics = TopicSettings(settings, topics or {})
        self._moving: set[TopicPartition] = set()
        self._warned: set[str] = set()
        self._scheduler = ThreadScheduler("pylogseg-manager") if scheduler is None else scheduler
        self._open = OpenLogs(settings, self._storage, self._clock, self._scheduler, self.config_of)
        self.directories, self.cleaning = self._open.directories, self._open.cleaning
        self._background = Background(
            settings, self._scheduler, self._clock, self.places, lambda: self.directories.online, self._open.fail
        )
        try:
            if isinstance(self._storage, LocalStorage):
                online = [directory.path for directory in self.directories.online]
                self._topics.read_metadata(online, [meta.node_id for meta in self.directories.meta.values()])
            self._open.load()
        except BaseException:
            self._open.ending = True
            self._open.abandon()
            self._end()
            raise
        self._warn(self.unknown_topics)
        self._background.start(self._flush_interval())
        if settings.log_cleaner_enable:
            self.cleaning.start()

    # ---- logs ----

    def __iter__(self) -> Iterator[TopicPartition]:
        with self._open.mutex:
            return iter(sorted(self._open.current))

    def __len__(self) -> int:
        return len(self._open.current)

    def __contains__(self, key: object) -> bool:
        return key in self._open.current

    def __getitem__(self, key: TopicPartition) -> EmbeddedLog:
        with self._open.mutex:
            return self._open.current[key][2]

    def places(self) -> list[CleaningPlace]:
        """Return all open logs, each with its directory and the name of its folder."""
        return self._open.places()

    def log(
        self, topic: str, partition: int = 0, *, topic_id: str | None = None, log_dir: str | None = None
    ) -> EmbeddedLog:
        """Return the log of a partition; create it if it is missing.

        Parameters
        ----------
        topic : str
            A valid topic name.
        partition : int
            Its number.
        topic_id : str, optional
            For a new log: the topic's id in a Kafka cluster.
        log_dir : str, optional
            Where to create a new log, by path or ``directory.id``; by default where the fewest logs are.

        Raises
        ------
        StorageError
            If it cannot be created. While a log directory is offline no log is created unless `log_dir` is given: the
            partition may lie in the directory that failed.
        """
        check_topic(topic)
        with self._open.mutex:
            self._check_open()
            if (topic, partition) in self._open.current:
                return self._open_existing(topic, partition)[2]
            if self.directories.failed and log_dir is None:
                failed = ", ".join(self.directories.failed)
                raise StorageError(
                    f"{topic}-{partition}", "make", f"it may lie in a log directory that is offline: {failed}"
                )
            name = partition_folder_name(topic, partition)
            for directory in self._open.choices() if log_dir is None else [self.directories.find(log_dir)]:
                try:
                    log = self._open.open(directory, name, topic_id)
                except StorageError as error:
                    self._open.fail(directory, error)
                else:
                    self._warn([topic])
                    return log
            raise StorageError(name, "make", "no log directory can be used")

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: rename its folder at once, and remove it after ``file.delete.delay.ms``."""
        directory, name = self._take_away(topic, partition, "delete")
        self._open.remove_later(directory, name)

    def set_aside(self, topic: str, partition: int) -> str:
        """Close a partition and keep its folder, with a name that ends in ``-stray``.

        Returns
        -------
        str
            Path of the folder. To use the partition again, rename it back.
        """
        directory, name = self._take_away(topic, partition, "stray")
        return self._storage.join(directory.path, name)

    def _take_away(self, topic: str, partition: int, state: str) -> tuple[LogDirectory, str]:
        log = self._place(topic, partition)[2]
        with log.engine.state.undisturbed(), self._open.mutex:
            directory, name, log = self._place(topic, partition)
            self._open.drop_future(topic, partition)
            return directory, self._open.rename_away(name, log, state)

    def _place(self, topic: str, partition: int) -> CleaningPlace:
        with self._open.mutex:
            self._check_open()
            if (topic, partition) not in self._open.current:
                raise RequestError(f"{topic}-{partition}: no such partition")
            return self._open_existing(topic, partition)

    def _open_existing(self, topic: str, partition: int) -> CleaningPlace:
        """Return an existing partition, opened again if its own `close` closed it."""
        directory, name, log = self._open.current[topic, partition]
        return directory, name, self._open.open(directory, name) if log.is_closed else log

    def move(
        self, topic: str, partition: int, log_dir: str, *, progress: Callable[[int, int], object] | None = None
    ) -> EmbeddedLog:
        """Move a partition to another log directory while it is in use.

        It is copied into a folder whose name ends in ``-future``. When the copy is complete, appends wait for a moment,
        the copy takes the partition's place, and the original is deleted as by `delete`. The next move reuses what an
        interrupted one has copied, even after a restart.

        Parameters
        ----------
        topic, partition
            The partition.
        log_dir : str
            Path or ``directory.id`` of the log directory.
        progress : callable, optional
            Called with the offset copied to, and the end of the log. An error from it ends the move.

        Returns
        -------
        EmbeddedLog
            The partition's log from now on; the previous object is closed.
        """
        with self._open.mutex:
            directory, name, log = self._place(topic, partition)
            target = self.directories.find(log_dir)
            if target is directory:
                return log
            if (topic, partition) in self._moving:
                raise RequestError(f"{topic}-{partition}: a move is already running")
            self._moving.add((topic, partition))
        try:
            with self._open.mutex:
                future = self._open.futures.get((topic, partition))
                if future is not None and future[0] is not target:
                    self._open.drop_future(topic, partition)
                    future = None
                if future is None:
                    new_name = partition_folder_name(topic, partition, "future", uuid.uuid4().hex)
                    self._open.open(target, new_name, topic_id_of(self._storage, log.folder))
                    future = self._open.futures[topic, partition]
            mover = Mover(log, future[2], progress)
            mover.copy()
            with log.engine.state.undisturbed(), self._open.mutex, log.engine.state.lock:
                if self._place(topic, partition)[2] is not log:
                    raise RequestError(f"{topic}-{partition}: it was deleted and recreated during the move")
                mover.finish()
                self._open.futures.pop((topic, partition))
                target.note_cleaned(name, directory.cleaned_to(name))
                future[2].ownership.rename(name)
                self._open.remove_later(directory, self._open.rename_away(name, log, "delete"))
                return self._open.open(target, name)
        finally:
            self._moving.discard((topic, partition))

    # ---- settings ----

    def config_of(self, topic: str) -> LogConfig:
        """Return settings of a topic's logs."""
        return self._topics.of(topic)

    @property
    def unknown_topics(self) -> dict[str, str]:
        """Topics with unknown settings, and why.

        A broker's topics have their settings in the cluster's metadata. A topic that is missing there, or whose
        metadata cannot be read, may be compacted or kept forever, so nothing of it is deleted. Setting
        ``cleanup_policy``, ``retention_ms`` or ``retention_bytes`` for the topic makes it a known one.
        """
        with self._open.mutex:
            topics = sorted({topic for topic, _ in self._open.current})
        return {topic: why for topic in topics if (why := self._topics.why_unknown(topic))}

    def _warn(self, topics: Iterable[str]) -> None:
        """Warn about each unknown topic once."""
        unknown = {topic: why for topic in topics if (why := self._topics.why_unknown(topic))}
        new = [topic for topic in unknown if topic not in self._warned]
        self._warned.update(new)
        if new:
            more = f" and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
            _log.warning(
                "%s%s: neither retained nor compacted, since the settings are unknown (%s): pass them as "
                "topics={name: {...}}, or see LogManager.unknown_topics",
                ", ".join(new[:_MOST_NAMED]),
                more,
                unknown[new[0]],
            )

    def configure(self, topic: str, **changes: Any) -> LogConfig:
        """Change settings of a topic, from the next operation of its logs on.

        Parameters
        ----------
        topic : str
            Its logs need not exist yet.
        **changes
            By Kafka's names with underscores; None goes back to the default.

        Returns
        -------
        LogConfig
            All settings of the topic.
        """
        check_topic(topic)
        with self._open.mutex:
            merged = {**self._topics.said.get(topic, {}), **changes}
            kept = {name: value for name, value in merged.items() if value is not None}
            config = self._topics.after(kept, topic)
            self._topics.said[topic] = kept
            self._background.flush_every(self._flush_interval())
            logs = [log for (name, _), (_, _, log) in self._open.current.items() if name == topic]
        for log in logs:
            stops = log.config.compact and not config.compact
            with log.engine.state.undisturbed() if stops else contextlib.nullcontext():
                log.ownership.update_config(config)
        return config

    # ---- in the background ----

    def retain(self) -> int:
        """Apply retention now, except to compacted logs, which the cleaner does; return how many segments went."""
        return self._background.retain()

    def checkpoint(self) -> None:
        """Write the checkpoints of all log directories now."""
        self._background.checkpoint()

    def _flush_interval(self) -> int:
        """Return how often to look for logs to flush: the shortest `flush.ms` of all."""
        intervals = [self.config_of(topic).flush_ms for topic in self._topics.said]
        intervals += [log.config.flush_ms for _, _, log in self.places()]
        return min([self.settings.topic_defaults.flush_ms, *intervals])

    # ---- the end ----

    def _check_open(self) -> None:
        if self._open.ending:
            raise ClosedError("the log manager is closed")

    def close(self) -> None:
        """Flush and close every log cleanly, write the checkpoints and the marker; closing again does nothing.

        Raises
        ------
        StorageError
            The first error; every other log was still closed cleanly.
        """
        with self._open.mutex:
            if self._open.ending:
                return
            self._open.ending = True
        self._background.stop()
        self.cleaning.stop()
        errors = self._open.close()
        errors += self._end()
        if errors:
            raise errors[0]

    def _end(self) -> list[PylogsegError]:
        """Release the locks, when nothing runs any more that needs them; return the errors."""
        if self._owns_scheduler:
            self._scheduler.shutdown()
        return self.directories.close()

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
            _log.exception("not all logs can be closed cleanly")

    def __repr__(self) -> str:
        return f"LogManager({len(self)} logs in {', '.join(directory.path for directory in self.directories.online)})"


_STEP_BYTES = 4 << 20
_ANY_EPOCH = 2**31 - 1


class Mover:
    """Copies the batches of a log into another one, as they are."""

    def __init__(
        self, source: EmbeddedLog, target: EmbeddedLog, progress: Callable[[int, int], object] | None = None
    ) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._cuts = source.engine.state.cuts
        if not self._fits():
            self._start_over()

    def copy(self) -> None:
        """Copy until little is left, while the source may grow."""
        while self._step() >= _STEP_BYTES // 2:
            pass

    def finish(self) -> None:
        """Copy the rest, while nobody appends, and flush everything.

        Raises RequestError if the log ends after its last batch, as after a truncation into the middle of one.
        """
        source, target = self._source, self._target
        while self._step():
            pass
        if target.log_end_offset != source.log_end_offset:
            raise RequestError(
                f"{source.folder}: the log ends at {source.log_end_offset}, its last batch at {target.log_end_offset}: "
                "append a record, then move the log"
            )
        target.increment_log_start(source.log_start_offset)
        target.ownership.leader_epoch = source.leader_epoch
        target.flush()

    def _fits(self) -> bool:
        """Return whether the target is a beginning of the source, by a comparison of its last batch."""
        source, target = self._source, self._target
        end = target.log_end_offset
        if end == target.log_start_offset or not source.log_start_offset < end <= source.log_end_offset:
            return end == source.log_start_offset
        last = [bytes(log.engine.fetch(end - 1, 1).data) for log in (source, target)]
        return last[0] == last[1]

    def _start_over(self) -> None:
        self._cuts = self._source.engine.state.cuts
        self._target.engine.truncate_fully(self._source.log_start_offset)

    def _step(self) -> int:
        """Copy some batches; return how many bytes."""
        source, target = self._source, self._target
        if self._cuts != source.engine.state.cuts:  # copied records may have been truncated and replaced
            self._start_over()
        try:
            data = source.engine.fetch(target.log_end_offset, _STEP_BYTES).data
        except OffsetOutOfRangeError:  # retention was faster
            self._start_over()
            return _STEP_BYTES
        size = int(scan(data, crc=False).batches.size.sum())
        if size:
            target.engine.append_as_follower(data[:size], _ANY_EPOCH)
        if self._progress is not None:
            self._progress(target.log_end_offset, source.log_end_offset)
        return size
