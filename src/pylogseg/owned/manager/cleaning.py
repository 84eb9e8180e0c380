"""Compaction of many logs: choice of the dirtiest log, cleaner threads, checkpoints."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from pylogseg.errors import CleaningAbortedError, ClosedError, PylogsegError, StorageError
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_filter import CleanerStats
from pylogseg.log.cleaner_range import Cleanable, cleanable, dirtiness, needs_cleaning_at
from pylogseg.log.directory import LogDirectory
from pylogseg.log.offset_map import OffsetMap
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.reading.state import Throttle

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_LONGEST_WAIT_SECONDS = 0.1  # of a throttled cleaning, before it checks whether to abort

#: A log, its log directory and the name of its folder.
CleaningPlace = tuple[LogDirectory, str, EmbeddedLog]


class Candidate(NamedTuple):
    """A log that may be cleaned, and how dirty it is."""

    place: CleaningPlace
    what: Cleanable
    ratio: float
    urgent: bool


class Cleaned(NamedTuple):
    """Result of one cleaning."""

    folder: str
    next_dirty: int
    stats: CleanerStats
    seconds: float


class Progress(NamedTuple):
    """Progress of a running cleaning."""

    folder: str  #: Of the log.
    done_bytes: int  #: Bytes read so far, and in total: the dirty section is read twice.
    total_bytes: int
    stats: CleanerStats  #: Counts so far; they keep changing.
    seconds: float  #: Seconds since it began.


class _Running(NamedTuple):
    stats: CleanerStats
    total_bytes: int
    started: float


class Cleaning:
    """Compacts many logs, one at a time in each thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        places: Callable[[], Iterable[CleaningPlace]],
        failed: Callable[[LogDirectory, PylogsegError], None],
    ) -> None:
        self._settings, self._places, self._failed = settings, places, failed
        self._mutex = threading.Condition()
        self._busy: dict[str, _Running | None] = {}
        self._unwanted: Counter[str] = Counter()
        #: Folders of logs whose cleaning failed, and why: skipped until they are opened again.
        self.uncleanable: dict[str, str] = {}
        self._local = threading.local()  # the log that a thread is cleaning
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        rate = settings.log_cleaner_io_max_bytes_per_second
        self._rate = None if rate == float("inf") else Throttle(rate)

    # ---- threads ----

    def start(self) -> None:
        """Start as many threads as configured."""
        for number in range(self._settings.log_cleaner_threads):
            thread = threading.Thread(target=self._run, name=f"pylogseg-cleaner-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads; abort a running cleaning."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        cleaner = self.new_cleaner()
        while not self._stop.is_set():
            try:
                done = self.clean_dirtiest(cleaner)
                self.retain()
            except Exception:
                _log.exception("a cleaner thread continues after")
                done = None
            if done is None:
                self._stop.wait(self._settings.log_cleaner_backoff_ms / 1000)

    def new_cleaner(self) -> Cleaner:
        """Create a cleaner with one thread's share of the memory; all share the rate limit."""
        offsets = OffsetMap(self._settings.cleaner_thread_bytes, self._settings.log_cleaner_io_buffer_load_factor)
        return Cleaner(offsets, throttle=self._spend, check=self._check)

    def _spend(self, size: int) -> None:
        if self._rate is not None:
            self._rate.spend(size, self._wait)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check()
            self._stop.wait(min(left, _LONGEST_WAIT_SECONDS))

    def _check(self) -> None:
        if self._stop.is_set():
            raise CleaningAbortedError("the cleaner is being stopped")
        if self._unwanted:
            folder = getattr(self._local, "folder", None)
            with self._mutex:
                if folder in self._unwanted:
                    raise CleaningAbortedError(f"{folder}: another operation needs the log")

    def progress(self) -> list[Progress]:
        now = time.perf_counter()
        with self._mutex:
            running = [(folder, run) for folder, run in self._busy.items() if run is not None]
        return [
            Progress(folder, stats.map_bytes_read + stats.bytes_read, total, stats, now - started)
            for folder, (stats, total, started) in running
        ]

    # ---- one log at a time ----

    def candidates(self) -> list[Candidate]:
        """Return the logs that may be cleaned now, the dirtiest first."""
        candidates = []
        for place in self._places():
            log = place[2]
            with self._mutex:
                if not log.config.compact or log.folder in self._busy or log.folder in self.uncleanable:
                    continue
            candidate = self._attempt(place, self._look)
            if candidate is not None and (candidate.urgent or candidate.ratio > log.config.min_cleanable_dirty_ratio):
                candidates.append(candidate)
        return sorted(candidates, key=lambda candidate: -candidate.ratio)

    def _look(self, place: CleaningPlace) -> Candidate:
        directory, name, log = place
        now_ms = log.engine.clock.now_ms()
        engine = log.engine
        what = cleanable(engine, directory.cleaned_to(name), now_ms)
        if what.reset_checkpoint:
            directory.note_cleaned(name, what.first_dirty)
        how = dirtiness(engine, what)
        return Candidate(place, what, how.ratio, how.cleanable_bytes > 0 and needs_cleaning_at(engine, what, now_ms))

    def clean_dirtiest(self, cleaner: Cleaner) -> Cleaned | None:
        """Clean the dirtiest log; return None if none needs it."""
        for candidate in self.candidates():
            done = self._attempt(candidate.place, lambda place: self._clean(cleaner, place))
            if done is not None:
                return done
        return None

    def _clean(self, cleaner: Cleaner, place: CleaningPlace) -> Cleaned | None:
        directory, name, log = place
        with self._take_log(log.folder) as taken:
            if not taken:
                return None
            what = self._look(place).what  # another thread may just have cleaned it
            how = dirtiness(log.engine, what)
            running = _Running(CleanerStats(), how.total_bytes + how.cleanable_bytes, time.perf_counter())
            self._busy[log.folder] = running
            next_dirty, stats = cleaner.clean(log.engine, what, running.stats)
            directory.note_cleaned(name, next_dirty)
        done = Cleaned(log.folder, next_dirty, stats, time.perf_counter() - running.started)
        _log.info("%s: cleaned up to %d in %.1f s: %s", done.folder, next_dirty, done.seconds, stats)
        return done

    def retain(self) -> int:
        """Apply retention to the compacted logs; return the number of deleted segments."""
        count = 0
        for place in self._places():
            if place[2].config.compact and place[2].folder not in self.uncleanable:
                count += self._attempt(place, self._retain) or 0
        return count

    def _retain(self, place: CleaningPlace) -> int:
        with self._take_log(place[2].folder) as taken:
            return place[2].apply_retention() if taken else 0

    def _attempt(self, place: CleaningPlace, work: Callable[[CleaningPlace], _Result]) -> _Result | None:
        """Work on a log; return None if that fails, after noting it for the log or its directory."""
        try:
            return work(place)
        except CleaningAbortedError as error:
            _log.info("%s", error)
        except ClosedError:
            pass  # closed meanwhile
        except StorageError as error:
            self._failed(place[0], error)
        except Exception as error:
            _log.error("%s: not compacted until it is opened again: %s", place[2].folder, error)
            with self._mutex:
                self.uncleanable[place[2].folder] = str(error)
        return None

    # ---- reservation of logs ----

    @contextlib.contextmanager
    def _take_log(self, folder: str) -> Iterator[bool]:
        """Reserve a log during a ``with``; yield False if it is already reserved."""
        with self._mutex:
            if folder in self._busy or folder in self._unwanted:
                free = False
            else:
                self._busy[folder], free = None, True
        try:
            self._local.folder = folder if free else None
            yield free
        finally:
            self._local.folder = None
            if free:
                with self._mutex:
                    del self._busy[folder]
                    self._mutex.notify_all()

    @contextlib.contextmanager
    def pause_cleaner(self, folder: str) -> Iterator[None]:
        """Keep the cleaner from a log during a ``with``, after aborting a running cleaning of it.

        Several threads may do so at the same time, and one thread more than once.
        """
        with self._mutex:
            self._unwanted[folder] += 1
        try:
            with self._mutex:
                self._mutex.wait_for(lambda: folder not in self._busy)
            yield
        finally:
            with self._mutex:
                self._unwanted[folder] -= 1
                if not self._unwanted[folder]:
                    del self._unwanted[folder]
