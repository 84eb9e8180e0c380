"""A log that is written down while it is worked with: what was appended, what was dropped, what was promised.

The operations are those of a log directory's owner: after a flush, a truncation and a deletion of records the
checkpoints follow, as those of a broker do, so a crash in between finds the older ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError
from pylogseg.format.control_batches import marker_batch
from pylogseg.log.log import Appended, Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import Start
from pylogseg.reading.arrow.encode import encode
from pylogseg.testing.clock import ManualClock, ManualScheduler

FOLDER = "/d/t-0"
NOW_MS = 1_700_000_000_000
#: Times of batches that were never dropped.
FOR_EVER = 2**62
#: Tiny bounds, so that every workload meets rolls, full indexes and index entries.
TINY = LogConfig.of(
    segment_bytes=700,
    segment_index_bytes=48,
    index_interval_bytes=200,
    file_delete_delay_ms=1000,
    max_message_bytes=500,
)


class Producer(NamedTuple):
    """Who appends, and the sequence of its first record."""

    producer_id: int
    epoch: int
    sequence: int
    transactional: bool = False


class Written(NamedTuple):
    """A batch that was handed to the log.

    Attributes
    ----------
    data : bytes
        As it lies in the log.
    base, last : int
        Offsets.
    timestamp : int
        Greatest of its records, milliseconds.
    epoch : int
        Leader epoch.
    born, died : int
        When it was appended and when its truncation began, counted in operations of the witness.
    producer : Producer or None
    marker : {"commit", "abort"} or None
    """

    data: bytes
    base: int
    last: int
    timestamp: int
    epoch: int
    born: int
    died: int = FOR_EVER
    producer: Producer | None = None
    marker: Literal["commit", "abort"] | None = None


class Promise(NamedTuple):
    """What holds from one moment on until the next promise.

    Attributes
    ----------
    flushed : tuple of int
        Numbers of the batches that no crash may take away.
    log_start : int
        The checkpoint of the log's start.
    last_start : int
        The highest start that the log may have: higher where a deletion of records is under way.
    recovery_point : int
        The highest checkpoint of it that there can be now.
    clean : bool
        Whether the log was closed in order, and not opened since.
    now : int
        Operations of the witness so far.
    times : bool
        Whether each record can be found by its time: not if a log was truncated that had been opened after an orderly
        stop. Kafka does not look then for the greatest time that is left, and so the engine does not.
    """

    flushed: tuple[int, ...] = ()
    log_start: int = 0
    last_start: int = 0
    recovery_point: int = 0
    clean: bool = False
    now: int = 0
    times: bool = True


class Witness:
    """One log and the list of what was done to it.

    Parameters
    ----------
    storage : Storage
    note : callable
        Called with each new `Promise`, before what breaks an old one and after what brings a new one.
    config : LogConfig
    folder : str
    written : list of Written
        What lies in the folder already, all of it durable.
    """

    def __init__(
        self,
        storage: Storage,
        note: Callable[[Promise], object] = lambda promise: None,
        config: LogConfig = TINY,
        folder: str = FOLDER,
        written: list[Written] | None = None,
    ) -> None:
        self.storage, self.config, self.folder, self._note = storage, config, folder, note
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.history: list[Written] = list(written or ())
        self.live: list[int] = list(range(len(self.history)))
        self.promise = Promise(tuple(self.live))
        self.high_watermark = 0
        self._numbers = itertools.count()
        self.epoch = 0
        self.log: Log | None = None
        self._opened_clean = False

    def promised(self, **changes: object) -> None:
        """Note what holds from here on."""
        self.promise = self.promise._replace(**changes)  # type: ignore[arg-type]
        self._note(self.promise)

    def _tick(self, **changes: object) -> int:
        now = self.promise.now + 1
        self.promised(now=now, **changes)
        return now

    @property
    def opened(self) -> Log:
        """The log, which is open."""
        assert self.log is not None, "the log is closed"
        return self.log

    # ---- operations ----

    def open(self) -> Log:
        """Open the folder with the checkpoints as they are; the mark of a clean stop goes first."""
        clean = self._opened_clean = self.promise.clean
        self._tick(clean=False)
        self.log = Log.open(
            Environment(self.storage, self.clock, self.scheduler),
            self.folder,
            self.config,
            Start(clean, self.promise.log_start, self.promise.recovery_point),
        )
        self.log.update_high_watermark(self.high_watermark)
        return self.log

    def append(self, size: int = 60, count: int = 1, producer: Producer | None = None) -> Appended:
        """Append one batch of records that are like no others."""
        base, timestamp = self.opened.log_end_offset, self.clock.now_ms()
        number = next(self._numbers)
        rows = [(timestamp + i, b"%d.%d" % (number, i), b"%d " % number * (size // 4)) for i in range(count)]
        who = producer or Producer(-1, -1, -1)
        data = encode(
            rows,
            base_offset=base,
            leader_epoch=self.epoch,
            batch_bytes=1 << 20,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=who.sequence,
            transactional=who.transactional,
        )
        return self._append(
            Written(bytes(data), base, base + count - 1, timestamp + count - 1, 0, 0, producer=producer)
        )

    def end_txn(self, kind: Literal["commit", "abort"], producer: Producer) -> Appended:
        """Append the marker that ends a transaction."""
        base, timestamp = self.opened.log_end_offset, self.clock.now_ms()
        data = marker_batch(
            kind,
            base_offset=base,
            timestamp_ms=timestamp,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            leader_epoch=self.epoch,
        )
        return self._append(Written(bytes(data), base, base, timestamp, 0, 0, producer=producer, marker=kind))

    def _append(self, batch: Written) -> Appended:
        self.clock.set_ms(self.clock.now_ms() + 10)
        self.history.append(batch._replace(epoch=self.epoch, born=self._tick()))
        origin = Origin.CLIENT if batch.marker is None else Origin.COORDINATOR
        try:
            done = self.opened.append_as_leader(as_sent(batch.data), self.epoch, origin=origin)
        except RequestError:  # refused, so it was never there
            self.history[-1] = self.history[-1]._replace(died=self.promise.now)
            raise
        self.live.append(len(self.history) - 1)
        self._note_own_flush()
        return done

    def _note_own_flush(self) -> None:
        """The log flushes by itself too: after so many messages, and behind a roll."""
        if self.opened.recovery_point > self.promise.recovery_point:
            self._flushed(self.opened.recovery_point)

    def flush(self, offset: int | None = None) -> None:
        """Flush all, or what lies below an offset."""
        if offset is None:
            self.opened.flush()
        else:
            self.opened.flush_to(offset)
        self._flushed(self.opened.recovery_point)

    def _flushed(self, point: int) -> None:
        below = tuple(n for n in self.live if self.history[n].last < point and self._readable(n))
        self._tick(flushed=below, recovery_point=point)

    def _readable(self, number: int) -> bool:
        return self.history[number].last >= self.opened.log_start_offset

    def roll(self) -> None:
        """Begin a segment."""
        self._tick()
        self.opened.roll()
        self._note_own_flush()

    def truncate(self, offset: int) -> None:
        """Drop the end; the recovery point's checkpoint follows when that is done."""
        self._drop(lambda batch: batch.last >= offset, times=self.promise.times and not self._opened_clean)
        self.opened.truncate_to(offset)
        self._after_truncation()

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and go on at an offset."""
        self._drop(lambda batch: True, last_start=offset)
        self.opened.truncate_fully(offset)
        self._after_truncation()

    def _drop(self, goes: Callable[[Written], bool], **changes: object) -> None:
        dropped = {n for n in self.live if goes(self.history[n])}
        now = self._tick(flushed=tuple(n for n in self.promise.flushed if n not in dropped), **changes)
        for number in dropped:
            self.history[number] = self.history[number]._replace(died=now)
        self.live = [n for n in self.live if n not in dropped]

    def _after_truncation(self) -> None:
        point = min(self.promise.recovery_point, self.opened.recovery_point)
        start = self.opened.log_start_offset
        self._tick(recovery_point=point, log_start=start, last_start=start)
        self.high_watermark = min(self.high_watermark, self.opened.log_end_offset)

    def replicate(self, offset: int | None = None) -> None:
        """Move the high watermark."""
        wanted = self.opened.log_end_offset if offset is None else offset
        self.high_watermark = self.opened.update_high_watermark(wanted)

    def delete_records(self, offset: int) -> None:
        """Move the log's start; its checkpoint follows when that is done."""
        self.replicate()
        kept = tuple(n for n in self.promise.flushed if self.history[n].last >= offset)
        self._tick(flushed=kept, last_start=offset)
        self.opened.increment_log_start(offset)
        self._tick(log_start=self.opened.log_start_offset)

    def close(self) -> None:
        """Stop in order: flush, close, and then the mark of a clean stop."""
        self.flush()
        self.opened.close()
        self._tick(clean=True)
        self.log = None

    def crash(self) -> None:
        """Let go of everything, as a process does that is killed: the disk loses nothing."""
        self.opened.close_handles()
        self.scheduler.shutdown()
        self.scheduler = ManualScheduler(self.clock)
        self.log = None

    def advance(self, ms: int) -> None:
        """Let time go by, and do what is due: files whose deletion was delayed."""
        self._tick()
        self.scheduler.advance(ms)


def as_sent(batch: bytes) -> bytes:
    """A batch as its producer sends it: the base offset, which no check sum covers, is 0."""
    return bytes(8) + batch[8:]
