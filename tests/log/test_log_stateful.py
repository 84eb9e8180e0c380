"""Tests of log/flushing.py, log/log.py, log/offsets.py, log/rolling.py, log/state.py and log/truncation.py. Anything a
log can be asked, in any order, against a list of batches; crashes take what they may and no more.
"""

from __future__ import annotations

import logging
import random

from crash.images import crash_images
from crash.judge import judge, judge_batches, judge_look_ups
from crash.promises import FOLDER, NOW_MS, TINY, Producer, Promise, Witness, Written
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylogseg.errors import OffsetOutOfRangeError, OutOfOrderSequenceError
from pylogseg.format.batches import scan
from pylogseg.testing.memory import MemoryStorage

places = st.floats(0, 1, allow_nan=False)


class LogMachine(RuleBasedStateMachine):
    """A log with tiny segments, and the list of what is in it; sequences by producer in a dict."""

    @initialize(
        preallocate=st.booleans(), flush_messages=st.sampled_from([1, 3, 2**62]), interval=st.sampled_from([0, 200])
    )
    def begin(self, preallocate: bool, flush_messages: int, interval: int) -> None:
        logging.disable(logging.CRITICAL)
        self.config = TINY.with_changes(
            preallocate=preallocate, flush_messages=flush_messages, index_interval_bytes=interval
        )
        self.sequences: dict[int, int] = {}
        self.producer_epoch = 0
        self.transactions: set[int] = set()
        storage = MemoryStorage()
        storage.make_folder(FOLDER)
        self.take(MemoryStorage(storage.state), [])

    def teardown(self) -> None:
        logging.disable(logging.NOTSET)

    def take(self, storage: MemoryStorage, written: list[Written], promise: Promise | None = None) -> None:
        """Begin to use a disk on which this lies, all of it durable."""
        self.storage = storage
        self.work = Witness(storage, storage.mark, self.config, written=written)
        self.work.clock.set_ms(max((batch.timestamp for batch in written), default=NOW_MS) + 10)
        if promise is not None:
            self.work.promise = promise._replace(flushed=tuple(self.work.live), clean=False, now=0)
        self.work.promised()
        start = self.work.open().log_start_offset
        self.work.promised(log_start=start, last_start=start)

    @property
    def there(self) -> list[Written]:
        """The batches that can be read."""
        start = self.work.opened.log_start_offset
        return [batch for n in self.work.live if (batch := self.work.history[n]).last >= start]

    def offset(self, place: float) -> int:
        log = self.work.opened
        return log.log_start_offset + int(place * (log.log_end_offset - log.log_start_offset))

    # ---- what is done ----

    @rule(size=st.sampled_from([8, 60, 250]), count=st.integers(1, 2))
    def append(self, size: int, count: int) -> None:
        end = self.work.opened.log_end_offset
        done = self.work.append(size // count, count)
        assert (done.first_offset, done.last_offset, done.is_duplicate) == (end, end + count - 1, False)

    @rule(producer_id=st.integers(1, 2), count=st.integers(1, 3))
    def produce(self, producer_id: int, count: int) -> None:
        self._produce(Producer(producer_id, self.producer_epoch, self.sequences.get(producer_id, 0)), count)

    def _produce(self, producer: Producer, count: int) -> bool:
        try:
            self.work.append(20, count, producer)
        except OutOfOrderSequenceError:  # its records are gone, and it is forgotten
            self.bump()
            return False
        self.sequences[producer.producer_id] = producer.sequence + count
        return True

    def bump(self) -> None:
        """All producers begin again in a new epoch, as they do when a log has lost what they wrote."""
        self.producer_epoch += 1
        self.sequences.clear()

    @rule(producer_id=st.integers(11, 12))
    def begin_transaction(self, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        if self._produce(Producer(producer_id, self.producer_epoch, sequence, True), 1):
            self.transactions.add(producer_id)

    @precondition(lambda self: self.transactions)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        producer_id = self.transactions.pop()
        self.work.end_txn("commit" if commit else "abort", Producer(producer_id, self.producer_epoch, 0, True))

    @rule()
    def flush(self) -> None:
        self.work.flush()
        assert self.work.opened.recovery_point == self.work.opened.log_end_offset

    @precondition(lambda self: self.work.opened.active.size)
    @rule()
    def roll(self) -> None:
        self.work.roll()

    @rule()
    def replicate(self) -> None:
        self.work.replicate()

    @precondition(lambda self: not self.transactions)
    @rule(place=places)
    def truncate(self, place: float) -> None:
        self.work.truncate(self.offset(place))
        self.work.epoch += 1
        self.bump()

    @precondition(lambda self: not self.transactions)
    @rule(ahead=st.integers(0, 3))
    def truncate_fully(self, ahead: int) -> None:
        self.work.truncate_fully(self.work.opened.log_end_offset + ahead)
        self.work.epoch += 1
        self.bump()

    @rule(place=places)
    def delete_records(self, place: float) -> None:
        self.work.delete_records(self.offset(place))

    @rule()
    def wait(self) -> None:
        self.work.advance(5000)

    @rule()
    def close_and_open(self) -> None:
        end = self.work.opened.log_end_offset
        self.work.close()
        self.work.open()
        # A truncation inside of a batch leaves an end that no record has, which only the process knows.
        log = self.work.opened
        last = self.there[-1].last + 1 if self.there else 0
        assert log.log_end_offset in (end, max(last, log.log_start_offset, log.active.base_offset))

    @rule(seed=st.integers(0, 2**32))
    def crash_and_open(self, seed: int) -> None:
        images = [image for image in crash_images(self.storage.trace, 3, seed) if image.marks]
        if not images:
            return
        image = random.Random(seed).choice(images)
        promise = image.marks[-1]
        assert isinstance(promise, Promise)
        history = self.work.history
        disk = image.open()
        there = judge(disk, promise, history, self.config, recovery_point=promise.recovery_point)
        self.work.crash()
        self.take(MemoryStorage(disk.state), [history[n]._replace(born=0, died=2**62) for n in there], promise)
        self.work.epoch = max((batch.epoch for batch in history), default=0) + 1
        self.transactions.clear()
        self.bump()
        self.producer_epoch += 1

    # ---- what is asked ----

    @rule(
        place=places,
        max_bytes=st.sampled_from([1, 150, 2000]),
        isolation=st.sampled_from(["log_end", "high_watermark"]),
    )
    def fetch(self, place: float, max_bytes: int, isolation: str) -> None:
        log, offset = self.work.opened, self.offset(place)
        fetched = log.fetch(offset, max_bytes, isolation)  # type: ignore[arg-type]
        limit = log.log_end_offset if isolation == "log_end" else log.high_watermark
        expected = b"".join(batch.data for batch in self.there if batch.last >= offset and batch.last < limit)
        assert expected.startswith(bytes(fetched.data)) or bytes(fetched.data).startswith(expected[:max_bytes])
        first = next((batch for batch in self.there if batch.last >= offset), None)
        if first is not None and first.last < limit:
            assert len(fetched.data) >= len(first.data)

    @rule()
    def fetch_outside(self) -> None:
        log = self.work.opened
        for offset in (log.log_start_offset - 1, log.log_end_offset + 1):
            try:
                log.fetch(offset)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(f"offset {offset} was given")

    @rule()
    def look_up(self) -> None:
        work, live = self.work, {id(batch) for batch in self.there}
        there = [n for n in work.live if id(work.history[n]) in live]
        judge_batches(work.opened, there, work.history, work.promise._replace(flushed=()))
        judge_look_ups(work.opened, there, work.history, work.promise)

    @invariant()
    def the_same(self) -> None:
        if not hasattr(self, "work"):
            return
        log = self.work.opened
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            data = log.fetch(offset, 300).data
            rows = scan(data, crc=True).batches
            if not len(rows):
                break
            found += [
                bytes(data[position : position + size])
                for position, size in zip(rows.position.tolist(), rows.size.tolist(), strict=True)
            ]
            offset = int(rows.last_offset[-1]) + 1
        assert found == [batch.data for batch in self.there]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=max(settings().max_examples // 10, 10), stateful_step_count=25)
