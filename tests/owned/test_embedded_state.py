"""Tests of owned/log.py. An open log against a list: appends, producers, transactions, deletions, restarts and crashes
in any order.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylogseg import EmbeddedLog, open_log
from pylogseg.errors import TransactionStateError
from pylogseg.testing.clock import ManualClock, ManualScheduler

NOW = 1_700_000_000_000
CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
PRODUCERS = st.integers(0, 2)


@dataclass
class Entry:
    """A record of the log, as the model has it; a marker has no value."""

    value: bytes | None
    timestamp: int
    producer: int = -1
    fate: str = "plain"  # plain, open, committed, aborted, marker


class LogMachine(RuleBasedStateMachine):
    """Offsets of the model are places in its list: nothing is compacted and nothing truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="pylogseg-"))
        self.clock = ManualClock(NOW)
        self.entries: list[Entry] = []
        self.start = 0
        self.sequences = dict.fromkeys(range(3), 0)
        self.begun: set[int] = set()
        self.last: dict[int, tuple[int, list[tuple[int, None, bytes]], int]] = {}
        self.flushed = 0

    @initialize(segment=st.integers(300, 3000), interval=st.integers(0, 500))
    def begin(self, segment: int, interval: int) -> None:
        self.settings = {"segment_bytes": segment, "index_interval_bytes": interval, "max_message_bytes": 300}
        self.open()

    def open(self) -> None:
        scheduler = ManualScheduler(self.clock)
        self.log: EmbeddedLog = open_log(
            self.folder / "orders-0",
            clock=self.clock,
            scheduler=scheduler,
            producer_id_expiration_ms=2**62,
            **self.settings,
        )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.folder)

    def records(self, count: int) -> list[tuple[int, None, bytes]]:
        self.clock.set_ms(self.clock.now_ms() + 1)
        first = len(self.entries)
        return [(self.clock.now_ms(), None, b"%d" % (first + i) * ((first + i) % 5 + 1)) for i in range(count)]

    # ---- what changes the log ----

    @rule(count=st.integers(0, 40), codec=CODECS)
    def append(self, count: int, codec: str) -> None:
        records = self.records(count)
        done = self.log.append(records, compression=codec)
        assert (done.first_offset, done.last_offset) == (
            (len(self.entries), len(self.entries) + count - 1) if count else (-1, -1)
        )
        self.entries += [Entry(value, timestamp) for timestamp, _, value in records]

    @rule(number=PRODUCERS, count=st.integers(1, 6), codec=CODECS)
    def produce(self, number: int, count: int, codec: str) -> None:
        producer, records = self.log.producer(number), self.records(count)
        hangs = producer.has_open_transaction and number not in self.begun
        try:
            done = producer.append(records, compression=codec)
        except TransactionStateError:
            assert hangs
            return
        assert not hangs
        assert (done.first_offset, done.is_duplicate) == (len(self.entries), False)
        fate = "open" if number in self.begun else "plain"
        self.last[number] = (self.sequences[number], records, done.first_offset)
        self.sequences[number] += count
        self.entries += [Entry(value, timestamp, number, fate) for timestamp, _, value in records]

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.last)))
        sequence, records, offset = self.last[number]
        if number in self.begun or self.log.producer(number).has_open_transaction:
            return
        done = self.log.producer(number).append(records, sequence=sequence)
        assert (done.is_duplicate, done.first_offset) == (True, offset)

    @rule(number=PRODUCERS)
    def begin_transaction(self, number: int) -> None:
        producer = self.log.producer(number)
        if number in self.begun or producer.has_open_transaction:
            return
        producer.begin()
        self.begun.add(number)
        self.last.pop(number, None)

    @rule(number=PRODUCERS, commits=st.booleans())
    def end_transaction(self, number: int, commits: bool) -> None:
        producer = self.log.producer(number)
        has_records = any(entry.producer == number and entry.fate == "open" for entry in self.entries)
        assert producer.has_open_transaction == has_records
        if number not in self.begun and not has_records:
            return
        if commits:
            producer.commit()
        else:
            producer.abort()
        self.begun.discard(number)
        self.last.pop(number, None)
        if has_records:
            for entry in self.entries:
                if entry.producer == number and entry.fate == "open":
                    entry.fate = "committed" if commits else "aborted"
            self.entries.append(Entry(None, self.clock.now_ms(), number, "marker"))

    @rule()
    def roll(self) -> None:
        if self.log.engine.active.size:
            self.log.engine.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == len(self.entries)

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        offset = self.start + int((len(self.entries) - self.start) * share / 3)
        assert self.log.increment_log_start(offset) == (offset > self.start)
        self.start = max(self.start, offset)
        self.log.apply_retention()

    @rule(in_order=st.booleans())
    def restart(self, in_order: bool) -> None:
        if in_order:
            self.log.close()
        else:
            self.log.close_handles()
        self.begun.clear()
        self.open()
        assert bool(self.log.report.recovered_segments) == (not in_order)
        assert self.log.report.cut_bytes == 0
        for number in set(self.sequences) - set(
            self.log.engine.producers.active
        ):  # as for a broker, a crash takes those
            assert all(entry.producer != number for entry in self.entries[self.start :])
            assert not in_order or not self.sequences[number]
            self.sequences[number] = 0
            self.last.pop(number, None)

    # ---- what is read ----

    @rule(data=st.data(), committed=st.booleans())
    def read(self, data: st.DataObject, committed: bool) -> None:
        first = data.draw(st.integers(0, len(self.entries)))
        end = data.draw(st.integers(first, len(self.entries)))
        isolation_level = "read_committed" if committed else "read_uncommitted"
        want = [
            (offset, entry.value)
            for offset, entry in enumerate(self.entries)
            if max(first, self.start) <= offset < min(end, self.stable() if committed else end)
            and entry.fate != "marker"
            and not (committed and entry.fate == "aborted")
        ]
        found = self.log.read(offset=(first, end), isolation_level=isolation_level)  # type: ignore[arg-type]
        assert [(record.offset, record.value) for record in found] == want
        if first >= self.start and end == len(self.entries):
            found_again = self.log.follow(first, timeout=0, isolation_level=isolation_level)  # type: ignore[arg-type]
            assert [(record.offset, record.value) for record in found_again] == want

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.integers(NOW, self.clock.now_ms() + 1))
        want = [
            offset
            for offset, entry in enumerate(self.entries)
            if offset >= self.start and entry.fate != "marker" and entry.timestamp >= timestamp
        ]
        assert [record.offset for record in self.log.read(timestamp=timestamp)] == want

    def stable(self) -> int:
        undecided = [offset for offset, entry in enumerate(self.entries) if entry.fate == "open"]
        return undecided[0] if undecided else len(self.entries)

    @invariant()
    def offsets(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (
            self.start,
            len(self.entries),
            len(self.entries),
        )
        # Of a transaction that begins below the start the place is that of a batch, which may begin there too.
        assert log.last_stable_offset == self.stable() or self.stable() < self.start >= log.last_stable_offset
        for number, count in self.sequences.items():
            if number in log.engine.producers.active:
                assert log.producer(number).next_sequence == count


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=max(settings.default.max_examples // 20, 8), stateful_step_count=40)
