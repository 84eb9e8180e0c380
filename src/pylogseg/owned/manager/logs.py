"""The open logs of some log directories: loading, removal, and failing directories."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Generic, TypeVar

from pylogseg._native import _lookup
from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock
from pylogseg.env.garbage import pause_collection
from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import ClosedError, CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import TopicPartition, parse_partition_folder, partition_folder_name
from pylogseg.log.directory import LogDirectory
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.manager.cleaning import Cleaning, CleaningPlace
from pylogseg.owned.manager.directories import Directories
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.owned.opening import Owner, open_in

_log = logging.getLogger(__name__)

_CLEAN_THREADS = 2


class OpenLogs:
    """All logs of some log directories."""

    def __init__(
        self,
        settings: BrokerSettings,
        storage: Storage,
        clock: Clock,
        scheduler: Scheduler,
        config_of: Callable[[str], LogConfig],
    ) -> None:
        self._settings, self._storage, self._clock, self._scheduler = settings, storage, clock, scheduler
        self._config_of = config_of
        self.mutex = threading.RLock()  #: Guards what follows.
        self.current: dict[TopicPartition, CleaningPlace] = {}
        self.futures: dict[TopicPartition, CleaningPlace] = {}
        self.ending = False
        self.directories = Directories(storage, settings.log_dirs)
        self.cleaning = Cleaning(settings, self.places, self.fail)

    def places(self) -> list[CleaningPlace]:
        """Return all open partitions, each with its directory and the name of its folder."""
        with self.mutex:
            return [place for place in self.current.values() if not place[2].is_closed]

    def choices(self) -> list[LogDirectory]:
        """Return the log directories that a new log may go to, the one with the fewest first."""
        counts = Counter(place[0].path for place in [*self.current.values(), *self.futures.values()])
        return sorted(self.directories.online, key=lambda each: counts[each.path])

    # ---- loading ----

    def load(self) -> None:
        """Open all logs; see `LogManager`."""
        work = []
        for directory in list(self.directories.online):
            try:
                contents = self.directories.contents(directory)
                directory.keep_only([*contents.live, *contents.future])
            except StorageError as error:
                self.fail(directory, error)
                continue
            work += [(directory, name) for name in (*contents.live, *contents.future, *contents.stray)]
            for name in contents.deleted:
                self.remove_later(directory, name)
        _check_once(work)
        started = time.perf_counter()
        threads = self._settings.num_recovery_threads_per_data_dir * max(len(self.directories.online), 1)
        is_local = isinstance(self._storage, LocalStorage)
        is_clean = all(directory.was_clean for directory in self.directories.online)
        if is_clean and is_local and _has_lock():  # the work holds it, so more threads would only wait for it
            threads = min(threads, _CLEAN_THREADS)
        loading = Loading(work, self._load_one, self._path_of if is_local else None)
        with pause_collection() if is_clean else contextlib.nullcontext():
            loading.run(threads)
        if not self.directories.online:
            reasons = "; ".join(self.directories.failed.values())
            raise StorageError(", ".join(self._settings.log_dirs), "load", f"no log directory can be used: {reasons}")
        _log.info("%d logs loaded in %.1f s", len(self.current), time.perf_counter() - started)

    def _path_of(self, place: tuple[LogDirectory, str]) -> str:
        return self._storage.join(place[0].path, place[1])

    def _load_one(self, place: tuple[LogDirectory, str]) -> None:
        directory, name = place
        if directory not in self.directories.online:
            return  # another log of it failed
        try:
            log = self.open(directory, name)
            folder = parse_partition_folder(name)
            if folder is not None and folder.state == "stray":
                _log.warning("%s: a stray log, offsets %d to %d", log.folder, log.log_start_offset, log.log_end_offset)
                log.close()
        except (StorageError, CorruptionError) as error:
            self.fail(directory, error)

    def open(self, directory: LogDirectory, name: str, topic_id: str | None = None) -> EmbeddedLog:
        """Open the log of a folder; create that if it is missing."""
        folder = parse_partition_folder(name)
        assert folder is not None
        log = open_in(
            LogDirectory.open_shared(self._storage, directory.path),
            name,
            self._config_of(folder.topic),
            self._clock,
            self._scheduler,
            Owner(None, topic_id, self._settings.producer_id_expiration_ms, tasks=False),
        )
        log.engine.state.undisturbed = functools.partial(self.cleaning.pause_cleaner, log.folder)
        log.ownership.on_failure = functools.partial(self._fail_soon, directory)
        with self.mutex:
            if directory not in self.directories.online:
                log.close_handles()
                raise StorageError(log.folder, "open", f"its log directory went offline: {directory.path}")
            self.cleaning.uncleanable.pop(log.folder, None)
            where = {"": self.current, "future": self.futures}.get(folder.state)
            if where is not None:
                where[folder.topic, folder.partition] = (directory, name, log)
        return log

    # ---- removing ----

    def drop_future(self, topic: str, partition: int) -> None:
        """Delete the unfinished copy of a move to another log directory, if there is one."""
        place = self.futures.get((topic, partition))
        if place is not None:
            self.remove_later(place[0], self.rename_away(*place[1:], "delete"))

    def rename_away(self, name: str, log: EmbeddedLog, state: str) -> str:
        """Close a log and rename its folder for a state; return the folder's new name."""
        folder = parse_partition_folder(name)
        assert folder is not None
        new_name = partition_folder_name(folder.topic, folder.partition, state, uuid.uuid4().hex)
        log.ownership.move_away(new_name)
        (self.futures if folder.state else self.current).pop((folder.topic, folder.partition))
        self.cleaning.uncleanable.pop(log.folder, None)
        return new_name

    def remove_later(self, directory: LogDirectory, name: str) -> None:
        """Remove a folder after ``file.delete.delay.ms``."""
        path = self._storage.join(directory.path, name)

        def remove() -> None:
            if directory in self.directories.online:
                _log.info("%s: removed", path)
                self._storage.remove_folder(path)

        delay_ms = max(self._settings.topic_defaults.file_delete_delay_ms, 1)
        self._scheduler.schedule("delete-logs", self._guard_task(remove), delay_ms)

    # ---- failing ----

    def _guard_task(self, work: Callable[[], object]) -> Callable[[], None]:
        def task() -> None:
            if not self.ending:
                work()

        return task

    def _fail_soon(self, directory: LogDirectory, error: StorageError) -> None:
        """Call `fail` from another thread, since this one may hold the lock of a log."""
        with contextlib.suppress(ClosedError):
            self._scheduler.schedule("log-dir-failure", self._guard_task(lambda: self.fail(directory, error)), 1)

    def fail(self, directory: LogDirectory, error: PylogsegError) -> None:
        """Take a log directory offline, with its logs."""
        with self.mutex:
            if not self.directories.take_offline(directory, error):
                return
            logs = []
            for where in (self.current, self.futures):
                gone = [key for key, place in where.items() if place[0] is directory]
                logs += [where.pop(key)[2] for key in gone]
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

    def close(self) -> list[PylogsegError]:
        """Close all logs cleanly; return the errors."""
        errors: list[PylogsegError] = []
        threads = self._settings.num_recovery_threads_per_data_dir * max(len(self.directories.online), 1)
        with ThreadPoolExecutor(threads, "pylogseg-close") as pool:
            places = [*self.current.values(), *self.futures.values()]
            for future in [pool.submit(log.close) for _, _, log in places]:
                try:
                    future.result()
                except PylogsegError as error:
                    errors.append(error)
        self._forget()
        return errors

    def abandon(self) -> None:
        """Close all files without writing anything."""
        for _, _, log in [*self.current.values(), *self.futures.values()]:
            log.close_handles()
        self._forget()

    def _forget(self) -> None:
        self.current.clear()
        self.futures.clear()


def _has_lock() -> bool:
    """Return whether the interpreter has a global lock."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _check_once(work: Iterable[tuple[LogDirectory, str]]) -> None:
    """Refuse a duplicate partition."""
    seen: dict[tuple[str, int, str], LogDirectory] = {}
    for directory, name in work:
        folder = parse_partition_folder(name)
        if folder is None or folder.state == "stray":
            continue
        other = seen.setdefault((folder.topic, folder.partition, folder.state), directory)
        if other is not directory:
            raise RequestError(
                f"{folder.topic}-{folder.partition} lies in both {other.path} and {directory.path}: a move between "
                "them was interrupted after the copy was complete; compare both and remove one"
            )


_Item = TypeVar("_Item")
_AHEAD_THREADS = 2
_MOST_AHEAD = 256  # folders, so that what was read is still cached when its turn comes
_WAIT_SECONDS = 0.002


class Loading(Generic[_Item]):
    """One pass over the items to load, by several threads: an error ends it.

    Files in the folder of an item are read ahead, by threads that do not hold the interpreter's lock.
    """

    def __init__(
        self, items: Iterable[_Item], load: Callable[[_Item], None], folder_of: Callable[[_Item], str] | None
    ) -> None:
        self._todo = deque(items)
        self._lookup = deque(self._todo if folder_of is not None else ())
        self._load, self._folder_of = load, folder_of

    def run(self, threads: int) -> None:
        """Load all items."""
        with ThreadPoolExecutor(threads + _AHEAD_THREADS, "pylogseg-load") as pool:
            try:
                ahead = [pool.submit(self._read_ahead) for _ in range(_AHEAD_THREADS if self._lookup else 0)]
                for future in as_completed([pool.submit(self._load_some) for _ in range(threads)] + ahead):
                    future.result()
            finally:
                self._todo.clear()

    def _load_some(self) -> None:
        while (item := _next(self._todo)) is not None:
            self._load(item)

    def _read_ahead(self) -> None:
        assert self._folder_of is not None
        while self._todo:
            lead = len(self._todo) - len(self._lookup)
            if lead > _MOST_AHEAD:
                time.sleep(_WAIT_SECONDS)
                continue
            item = _next(self._lookup)
            if item is None:
                return
            if lead >= 0:  # else its turn has already come
                _lookup.read_ahead(os.fsencode(self._folder_of(item)))


def _next(items: deque[_Item]) -> _Item | None:
    try:
        return items.popleft()
    except IndexError:
        return None
