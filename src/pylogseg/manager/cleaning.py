"""Which log is compacted next, by whom, and what is kept of it between two cleanings."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pylogseg.embedded.log import EmbeddedLog
from pylogseg.errors import CleaningAborted, PylogsegError, StorageError
from pylogseg.log.cleanable import Cleanable, cleanable, dirtiness, needs_cleaning_at
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.directory import LogDirectory
from pylogseg.log.filtering import CleanerStats
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.retention import apply_retention
from pylogseg.manager.settings import BrokerSettings
from pylogseg.reading.partition import Throttle

_log = logging.getLogger(__name__)

#: A log with the directory that it lies in, and the name of its folder.
Place = tuple[LogDirectory, str, EmbeddedLog]


class Candidate(NamedTuple):
    """A log that may be cleaned, and how much it needs it."""

    place: Place
    what: Cleanable
    ratio: float
    urgent: bool


class Cleaned(NamedTuple):
    """What became of one cleaning."""

    folder: str
    next_dirty: int
    stats: CleanerStats
    seconds: float


class Cleaning:
    """Compaction of many logs, one at a time in each thread.

    Parameters
    ----------
    settings : BrokerSettings
        The ``log.cleaner.*`` ones count.
    places : callable
        Gives all logs that are open.
    failed : callable
        Told of a log directory that cannot be used any more, with the error.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        places: Callable[[], Iterable[Place]],
        failed: Callable[[LogDirectory, StorageError], None],
    ) -> None:
        self._settings, self._places, self._failed = settings, places, failed
        self._mutex = threading.Condition()
        self._busy: set[str] = set()
        self._unwanted: set[str] = set()
        self.uncleanable: dict[str, str] = {}
        self._local = threading.local()  # the log that a thread is at
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    # ---- threads ----

    def start(self) -> None:
        """Start the threads of the setting."""
        for number in range(self._settings.log_cleaner_threads):
            thread = threading.Thread(target=self._run, name=f"pylogseg-cleaner-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads; a cleaning that runs is given up."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        cleaner = self.new_cleaner()
        while not self._stop.is_set():
            try:
                done = self.clean_filthiest(cleaner)
                self.retain()
            except Exception:
                _log.exception("a cleaner thread goes on after")
                done = None
            if done is None:
                self._stop.wait(self._settings.log_cleaner_backoff_ms / 1000)

    def new_cleaner(self) -> Cleaner:
        """A cleaner with one thread's share of the memory and of the rate."""
        threads = max(self._settings.log_cleaner_threads, 1)
        memory = min(self._settings.log_cleaner_dedupe_buffer_size // threads, 2**31 - 1)
        rate = self._settings.log_cleaner_io_max_bytes_per_second / threads
        offsets = OffsetMap(memory, self._settings.log_cleaner_io_buffer_load_factor)
        return Cleaner(offsets, throttle=self._throttle(rate), check=self._check)

    def _throttle(self, rate: float) -> Callable[[int], None]:
        if rate == float("inf"):
            return lambda size: None
        throttle = Throttle(rate)

        def wait(seconds: float) -> None:
            self._stop.wait(seconds)

        return lambda size: throttle.spend(size, wait)

    def _check(self) -> None:
        if self._stop.is_set():
            raise CleaningAborted("the cleaner is being stopped")
        if self._unwanted:
            with self._mutex:
                if getattr(self._local, "folder", None) in self._unwanted:
                    raise CleaningAborted(f"{self._local.folder}: the log is needed for something else")

    # ---- one log after the other ----

    def candidates(self) -> list[Candidate]:
        """The logs that may be cleaned now, those that need it most first."""
        found = []
        for place in self._places():
            directory, name, log = place
            with self._mutex:
                if not log.config.compact or log.folder in self._busy or log.folder in self.uncleanable:
                    continue
            try:
                now_ms = log.clock.now_ms()
                what = cleanable(log, directory.cleaned_to(name), now_ms)
                if what.reset_checkpoint:
                    directory.note_cleaned(name, what.first_dirty)
                how = dirtiness(log, what)
                urgent = how.cleanable_bytes > 0 and needs_cleaning_at(log, what, now_ms)
            except StorageError as error:
                self._failed(directory, error)
                continue
            except PylogsegError as error:
                self._give_up(log, error)
                continue
            if urgent or how.ratio > log.config.min_cleanable_dirty_ratio:
                found.append(Candidate(place, what, how.ratio, urgent))
        return sorted(found, key=lambda candidate: -candidate.ratio)

    def clean_filthiest(self, cleaner: Cleaner) -> Cleaned | None:
        """Clean the log that needs it most; None if none does."""
        for candidate in self.candidates():
            directory, name, log = candidate.place
            if not self._take(log.folder):
                continue
            started = time.perf_counter()
            self._local.folder = log.folder
            try:
                next_dirty, stats = cleaner.clean(log, candidate.what)
                directory.note_cleaned(name, next_dirty)
                done = Cleaned(log.folder, next_dirty, stats, time.perf_counter() - started)
                _log.info("%s: cleaned up to %d: %s", *done[:3])
                return done
            except CleaningAborted as error:
                _log.info("%s", error)
            except StorageError as error:
                self._failed(directory, error)
            except Exception as error:
                self._give_up(log, error)
            finally:
                self._local.folder = None
                self._give_back(log.folder)
        return None

    def retain(self) -> int:
        """Apply retention to the logs that are compacted; segments that went."""
        count = 0
        for directory, _, log in self._places():
            if log.config.compact and log.folder not in self.uncleanable and self._take(log.folder):
                try:
                    count += apply_retention(log)
                except StorageError as error:
                    self._failed(directory, error)
                finally:
                    self._give_back(log.folder)
        return count

    def _give_up(self, log: EmbeddedLog, error: Exception) -> None:
        _log.error("%s: it is not compacted until it is opened again: %s", log.folder, error)
        with self._mutex:
            self.uncleanable[log.folder] = str(error)

    # ---- who has a log ----

    def _take(self, folder: str) -> bool:
        with self._mutex:
            if folder in self._busy or folder in self._unwanted:
                return False
            self._busy.add(folder)
            return True

    def _give_back(self, folder: str) -> None:
        with self._mutex:
            self._busy.discard(folder)
            self._mutex.notify_all()

    def paused(self, folder: str) -> _Pause:
        """Keep the cleaner from a log for the time of a ``with``; a cleaning of it that runs is given up first."""
        return _Pause(self._mutex, self._busy, self._unwanted, folder)


class _Pause:
    def __init__(self, mutex: threading.Condition, busy: set[str], unwanted: set[str], folder: str) -> None:
        self._mutex, self._busy, self._unwanted, self._folder = mutex, busy, unwanted, folder

    def __enter__(self) -> None:
        with self._mutex:
            self._mutex.wait_for(lambda: self._folder not in self._unwanted)
            self._unwanted.add(self._folder)
            self._mutex.wait_for(lambda: self._folder not in self._busy)

    def __exit__(self, *error: object) -> None:
        with self._mutex:
            self._unwanted.discard(self._folder)
            self._mutex.notify_all()
