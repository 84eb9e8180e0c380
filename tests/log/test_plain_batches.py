"""Tests of _native/_cleaning.pyx, log/cleaner_filter.py and log/plain_batches.py. Cleanings by the passes over plain
batches give what the general way gives: the same files, counts and errors.
"""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.depth import draws
from helpers.descriptions import described
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg import _codec
from pylogseg._native import _cleaning
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CleaningAbortedError, PylogsegError, UncleanableError
from pylogseg.format.batches import BATCH_DTYPE
from pylogseg.log import cleaner, plain_batches
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_filter import CleanerStats
from pylogseg.log.cleaner_range import Cleanable, cleanable
from pylogseg.log.log import Log
from pylogseg.log.offset_map import SLOT_BYTES, OffsetMap
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
RETENTION_MS = 1000

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d" * 40, b"e" * 200]) | st.binary(max_size=1)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "value": st.none() | st.binary(max_size=30) | st.just(b"v" * 150),
            "headers": st.just([]) | st.just([("h", b"x" * 70), ("", None)]),
            "delta": st.sampled_from([1, 1, 1, 2, 300]),
            "later": st.sampled_from([0, 1, -1, 200, 10**7, 3 * 10**9]),
        }
    ),
    min_size=1,
    max_size=12,
)
KINDS = ("plain", "plain", "plain", "producer", "append", "compressed", "transaction", "old")
BATCHES = st.lists(st.tuples(RECORDS, st.sampled_from(KINDS), st.integers(0, 2)), min_size=1, max_size=12)
#: Between cleanings: what is appended, how long it takes.
ROUNDS = st.lists(st.tuples(BATCHES, st.sampled_from([0, 1, RETENTION_MS])), min_size=1, max_size=3)
LIMITS = st.sampled_from([(1 << 20, 1 << 18, 1 << 20, 1 << 14), (700, 150, 500, 2), (4000, 64, 4000, 3)])


def opened(storage, clock, folder="t-0"):
    config = LogConfig.of(
        cleanup_policy="compact",
        segment_bytes=4600,
        segment_index_bytes=240,
        index_interval_bytes=60,
        delete_retention_ms=RETENTION_MS,
    )
    return Log.open(Environment(storage, clock, ManualScheduler(clock)), folder, config, Start(True))


def append(log, records, kind, number):
    base, producer = log.log_end_offset, {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
    how = {
        "append": {"timestamp_type": "append", "append_time_ms": NOW + number},
        "compressed": {"compression": ["lz4", "gzip", "snappy"][number]},
        "producer": producer,
        "transaction": {**producer, "transactional": True},
    }.get(kind, {})
    rows, offset = [], base
    for record in records:
        timestamp = NOW + record["later"]
        rows.append({name: record[name] for name in ("key", "value", "headers")})
        rows[-1].update(offset=offset, timestamp=timestamp)
        offset += record["delta"]
    if kind == "old":
        how = {"magic": 1, "leader_epoch": -1}
        rows = [{**row, "headers": []} for row in rows]
    batch = pylogseg.encode(rows, batch_bytes=2**31 - 1, **{"leader_epoch": 0, **how})
    log.append_as_follower(batch, 0)
    if kind == "transaction":
        marker = {"control": ["abort", "commit"][len(records) % 2], "base_offset": log.log_end_offset}
        marker.update(timestamp=NOW, producer_id=number, producer_epoch=0, leader_epoch=0)
        log.append_as_follower(described([marker]), 0)
    log.update_high_watermark(log.log_end_offset)


class Seen:
    """What the passes did, if they are used."""

    def __init__(self, limits=None, is_general=False):
        self.counts, self._limits, self._is_general = Counter(), limits, is_general

    def __enter__(self):
        self._stack = ExitStack()
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        names = "_CALL_BYTES", "_PIECE_BYTES", "_OUT_BYTES", "_OUT_BATCHES"
        for name, value in zip(names, self._limits or (), strict=False):
            patch.setattr(plain_batches, name, value)
        steps = cleaner.steps

        def counted(segment, position, plain, **how):
            def tried(position):
                size, made = (0, None) if self._is_general else plain(position)
                self.counts[type(made).__name__] += size
                return size, made

            for step in steps(segment, position, tried, **how):
                self.counts["windows"] += not isinstance(step, tuple) or hasattr(step, "batches")
                yield step

        patch.setattr(cleaner, "steps", counted)
        return self

    def __exit__(self, *error):
        self._stack.close()


def files_of(storage, folder="t-0"):
    names = [entry.name for entry in storage.list_folder(folder)]
    # What a cleaning had written before it failed goes with the next load; pieces are not windows.
    return {name: storage.read_all(f"{folder}/{name}") for name in names if not name.endswith(".cleaned")}


def cleaned(storage, rounds, slots, load, seen, folder="t-0"):
    """Append and clean in turn; the files, the counts, and where each next cleaning begins."""
    clock, found, at = ManualClock(NOW), [], 0
    log = opened(storage, clock, folder)
    with seen:
        for batches, wait in rounds:
            for records, kind, number in batches:
                append(log, records, kind, number)
            log.scheduler.advance(wait)
            what, stats = cleanable(log, at, clock.now_ms()), CleanerStats()
            if what.first_dirty < what.first_uncleanable:
                try:
                    at, _ = Cleaner(OffsetMap(slots * SLOT_BYTES, load)).clean(log, what, stats)
                except UncleanableError as error:  # of magic 0 and 1, which have no empty batches
                    found.append(str(error).rpartition("/")[2])
                    break
            found.append((at, stats))
    log.close()
    return found, files_of(storage, folder)


@given(rounds=ROUNDS, slots=st.sampled_from([1, 2, 3, 9, 1000, 5000]), load=st.sampled_from([0.5, 1.0]), limits=LIMITS)
@settings(deadline=None, max_examples=draws(150))
def test_the_passes_give_what_the_general_way_gives(rounds, slots, load, limits):
    general, passes = Seen(is_general=True), Seen(limits)
    assert cleaned(MemoryStorage(), rounds, slots, load, general) == cleaned(
        MemoryStorage(), rounds, slots, load, passes
    )
    assert general.counts["PlainKeys"] == general.counts["PlainBatches"] == 0


@given(rounds=ROUNDS, limits=LIMITS)
@settings(deadline=None, max_examples=25)
def test_the_same_with_files(rounds, limits):
    with TemporaryDirectory() as folder:
        for i in range(2):
            Path(folder, str(i)).mkdir()
        found = [
            cleaned(LocalStorage(), rounds, 1000, 1.0, Seen(limits, i == 0), f"{folder}/{i}/t-0") for i in range(2)
        ]
    assert found[0] == found[1]


PLAIN = [{"key": b"%d" % (i % 7), "value": b"v" * 20, "headers": [], "delta": 1, "later": i} for i in range(30)]


@pytest.mark.parametrize("limits", [None, (700, 150, 700, 9)])
def test_plain_batches_go_through_the_passes(limits):
    batches = [(PLAIN[i : i + 5], "producer" if i % 2 else "plain", 1) for i in range(25)]
    seen = Seen(limits)
    (_, stats), _ = cleaned(MemoryStorage(), [(batches, 0)], 1000, 1.0, seen)[0][0], None
    assert seen.counts["PlainKeys"] == stats.map_bytes_read > 0
    assert seen.counts["PlainBatches"] == stats.bytes_read > 0
    assert seen.counts["windows"] == 0
    assert 0 < stats.messages_written < stats.messages_read


def test_what_is_not_plain_is_looked_at_in_windows():
    seen = Seen()
    batches = [(PLAIN[:5], kind, 1) for kind in ("compressed", "transaction", "old") for _ in range(9)]
    (_, stats), *_ = cleaned(MemoryStorage(), [(batches, 0)], 1000, 1.0, seen)[0]
    assert seen.counts["PlainKeys"] == seen.counts["PlainBatches"] == 0
    assert stats.messages_read > 0


def test_a_file_that_is_cut_meanwhile_ends_a_cleaning(tmp_path, monkeypatch):
    log, put = opened(LocalStorage(), ManualClock(NOW), str(tmp_path / "t-0")), _cleaning.put_plain
    append(log, PLAIN, "plain", 0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    (segment, *_) = log.segments

    def cutting(*arguments):
        found = put(*arguments)
        segment.log.truncate(segment.size - 1)
        return found

    monkeypatch.setattr("pylogseg.log.offset_map._cleaning", SimpleNamespace(put_plain=cutting))
    with pytest.raises(CleaningAbortedError, match="cut while it was cleaned"):
        Cleaner(OffsetMap(1000 * SLOT_BYTES)).clean(log, Cleanable(0, log.log_end_offset, False))
    log.close()


HARM = st.tuples(st.integers(0, 5), st.integers(16, 600), st.integers(0, 255), st.booleans())


@given(
    batches=BATCHES.filter(lambda batches: all(kind not in ("transaction", "old") for _, kind, _ in batches)), harm=HARM
)
@settings(deadline=None, max_examples=draws(300))
def test_harmed_batches_end_both_ways_alike(batches, harm):
    """One byte of a batch is another one, under a CRC that holds or not."""
    storage, clock = MemoryStorage(), ManualClock(NOW)
    log = opened(storage, clock)
    for records, kind, number in batches:
        append(log, records, kind, number)
    log.roll()
    end = log.log_end_offset
    segments = list(log.segments)
    segment = segments[min(harm[0], len(segments) - 2)]
    (window, *_) = segment.windows()
    row = harm[0] % len(window.batches)
    first, size = int(window.batches.position[row]), int(window.batches.size[row])
    path = segment.log.path
    log.close()
    node = storage.state.folders[storage._folder("t-0", "list")][path.split("/")[-1]]
    data = storage.state.files[node]
    data[first + (harm[1] if harm[1] < size else harm[1] % size)] ^= harm[2]
    if harm[3]:
        data[first + 17 : first + 21] = _codec.crc32c(bytes(data[first + 21 : first + size])).to_bytes(4, "big")

    def outcome(seen, crc):
        copy = MemoryStorage(storage.state)
        log, stats = opened(copy, ManualClock(NOW)), CleanerStats()
        log.update_high_watermark(end)
        try:
            with seen:
                at, _ = Cleaner(OffsetMap(1000 * SLOT_BYTES), crc=crc).clean(log, Cleanable(0, end, False), stats)
        except PylogsegError as error:
            what = str(error).split(":")[0]  # a number of a record counts those of its window
            return type(error), "" if what.startswith("record") else what
        except (OverflowError, ValueError) as error:
            return type(error)
        finally:
            log.close()
        return at, stats, files_of(copy)

    for crc in (True, False):
        assert outcome(Seen(is_general=True), crc) == outcome(Seen((4000, 200, 4000, 100)), crc)


def test_impossible_arguments_are_refused():
    memory, table, none = np.zeros(100, np.uint8), np.zeros(240, np.uint8), np.zeros(0, np.uint8)
    for size, piece in ((0, 1), (10, 0)):
        with pytest.raises(ValueError, match="pieces of"):
            _cleaning.Pass(np.zeros(size, np.uint8), piece)
    passing = _cleaning.Pass(memory, 10)
    with pytest.raises(ValueError, match="limit"):
        _cleaning.put_plain(-1, 100, 0, passing, table, (1, 2), 0, 11, 0, none, 0, -1)
    assert _cleaning.put_plain(-1, 100, 100, passing, table, (1, 2), 0, 10, 0, none, 0, -1) == (0, 0, -1, 0, -1, False)
    long, rows = np.zeros(1, np.int64), np.empty(1, BATCH_DTYPE)
    rule = (table, (1, 2), 9, none, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="length"):
        _cleaning.filter_plain(-1, 100, 0, passing, *rule, long, long[:0], rows, memory)
    for room, out in ((rows[:0], memory), (rows, none)):
        assert _cleaning.filter_plain(-1, 100, 0, passing, *rule, long, long, room, out) == (0,) * 6


def test_a_table_with_more_keys_than_it_is_said_to_have_is_refused():
    batch = pylogseg.encode([(NOW, b"key", b"")], leader_epoch=0)
    memory = np.frombuffer(bytes(batch), np.uint8).copy()
    passing, full, none = _cleaning.Pass(memory, 100), np.full(24, 9, np.uint8), np.zeros(0, np.uint8)
    with pytest.raises(ValueError, match="more keys"):
        _cleaning.put_plain(-1, len(memory), 0, passing, full, (1, 2), 0, 1, 0, none, 0, -1)
