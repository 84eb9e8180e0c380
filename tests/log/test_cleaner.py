"""Tests of log/cleaner.py, log/cleaner_range.py and log/cleaner_transactions.py. Cleanings of random logs against what
compaction promises; the same files as Kafka's are in test_log_replay.py.
"""

import dataclasses
import json

import pytest
from crash.images import crash_images
from helpers import handmade
from helpers.descriptions import described
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CleaningAbortedError, CorruptionError, RequestError
from pylogseg.format.compression import ARENA_BYTES
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, decode
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable, dirtiness, needs_cleaning_at
from pylogseg.log.log import Log
from pylogseg.log.offset_map import SLOT_BYTES, OffsetMap
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.memory import MemoryStorage

RECORDS = st.lists(
    st.tuples(st.sampled_from([None, b"", b"a", b"b", b"c", b"long" * 9]), st.none() | st.binary(max_size=30)),
    min_size=1,
    max_size=9,
)
BATCHES = st.lists(st.tuples(RECORDS, st.sampled_from(["none", "lz4", "gzip"])), min_size=1, max_size=14)
NOW = 1_700_000_000_000


def taken(name, value):
    try:
        LogConfig(**{name: value})
    except RequestError:
        return False
    return True


def new_log(storage=None, folder="t-0", clean=True, **settings):
    clock = ManualClock(NOW)
    config = LogConfig.of(cleanup_policy="compact", segment_index_bytes=100, index_interval_bytes=60, **settings)
    return Log.open(
        Environment(storage or MemoryStorage(), clock, ManualScheduler(clock)), folder, config, Start(clean)
    )


def append(log, records, compression="none", **fields):
    batch = pylogseg.encode(
        [(NOW + i, key, value) for i, (key, value) in enumerate(records)],
        base_offset=log.log_end_offset,
        leader_epoch=0,
        compression=compression,
        **fields,
    )
    log.append_as_follower(batch, 0)  # which takes records without a key
    log.update_high_watermark(log.log_end_offset)


def end_transaction(log, how, **producer):
    marker = {"control": how, "base_offset": log.log_end_offset, "timestamp": NOW, "leader_epoch": 0, **producer}
    log.append_as_follower(described([marker]), 0)
    log.update_high_watermark(log.log_end_offset)


def contents(log):
    """(offset, key, value) of all records, and the last offset of the last batch."""
    out, last = [], -1
    for segment in log.segments:
        for window in segment.windows():
            columns, damage = decode(window.batches, window.buffer, window.file_position)
            assert not damage
            out += [(int(columns.offset[i]), columns.key(i), columns.value(i)) for i in range(len(columns))]
            last = int(window.batches.last_offset[-1])
    return out, last


def clean(log, slots=1000, **arguments):
    offsets = OffsetMap(slots * SLOT_BYTES, 1.0)
    return Cleaner(offsets, **arguments).clean(log, cleanable(log, 0, log.clock.now_ms()))


@given(batches=BATCHES, segment_bytes=st.integers(900, 2000), slots=st.sampled_from([1, 2, 1000]))
@settings(deadline=None)
def test_the_last_value_of_each_key_survives(batches, segment_bytes, slots):
    log = new_log(segment_bytes=segment_bytes)
    for records, compression in batches:
        append(log, records, compression)
    before, last = contents(log)
    head = log.active.base_offset
    next_dirty, _ = clean(log, slots)
    after, last_after = contents(log)
    assert last_after == last
    assert after == [record for record in before if record in after]  # nothing new, offsets and order kept
    newest = {key: offset for offset, key, _ in before if key is not None and offset < next_dirty}
    for offset, key, value in before:
        if offset >= next_dirty:
            assert (offset, key, value) in after
        elif key is not None:
            assert ((offset, key, value) in after) == (newest[key] == offset)
        else:
            assert (offset, key, value) not in after
    assert next_dirty <= head
    if slots == 1000:
        assert next_dirty == head
    clean(log)
    again = contents(log)
    clean(log)
    assert contents(log) == again


def test_tombstones_go_when_their_time_is_over():
    log = new_log(delete_retention_ms=1000)
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None)])
    log.roll()
    log.scheduler.advance(1)
    clean(log)
    assert contents(log)[0] == [(1, b"b", b"1"), (2, b"a", None)]
    log.scheduler.advance(999)
    clean(log)
    assert len(contents(log)[0]) == 2
    log.scheduler.advance(1)
    clean(log)
    assert contents(log) == ([(1, b"b", b"1")], 2)  # the batch that ends the round stays, empty


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_last_batch_of_a_producer_stays_without_records(compression):
    """It says where the producer stands, as long as the log knows it: then it goes, too."""
    log = new_log()
    append(log, [(b"a", b"1")], compression, **PRODUCER, base_sequence=4)
    append(log, [(b"a", b"2")], compression, **PRODUCER, base_sequence=5)
    append(log, [(b"a", b"3")])
    log.roll()
    clean(log)

    def batches():
        rows = [row for segment in log.segments for window in segment.windows() for row in window.batches]
        return [(int(row.base_offset), int(row.producer_id), int(row.base_sequence), int(row.count)) for row in rows]

    assert batches() == [(1, 7, 5, 0), (2, -1, -1, 1)]
    log.scheduler.advance(24 * 3600 * 1000 + 1)
    log.expire_producers()
    clean(log)
    assert batches() == [(2, -1, -1, 1)]


LARGEST = 2**63 - 1
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(LogConfig) if taken(field.name, LARGEST)])
def test_the_largest_value_of_a_long_setting(name):
    """Sums with the clock, or with a position, do not wrap as in Kafka: tombstones that shall stay for ever, do."""
    log = new_log(**{name: LARGEST})
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"b", None)], "lz4")
    append(log, [(b"c", b"1")], **PRODUCER, base_sequence=0, transactional=True)
    end_transaction(log, "commit", **PRODUCER)
    log.roll()
    append(log, [(b"d", b"1")])
    wanted = {b"a": None, b"b": None, b"c": b"1", b"d": b"1"}
    for _ in range(3):
        log.scheduler.advance(10)
        if log.active.base_offset:
            clean(log)
        assert {key: value for _, key, value in contents(log)[0] if key in wanted} == wanted
        log.apply_retention()
    log.flush()
    log.close()


@given(batches=BATCHES, slots=st.sampled_from([1, 2, 3, 1000]), arena_bytes=st.sampled_from([30, 100, 300]))
@settings(deadline=None)
def test_what_decompresses_to_much_is_cleaned_in_parts(batches, slots, arena_bytes):
    left = []
    for most in (ARENA_BYTES, arena_bytes):
        storage = MemoryStorage()
        log = new_log(storage, segment_bytes=2000)
        for i, (records, codec) in enumerate(batches):
            # The last batch of a producer stays without records; transactions have their own way through a cleaning.
            producer = {"producer_id": i, "producer_epoch": 0}
            append(log, records, codec, **producer, base_sequence=0, transactional=i % 2 == 0)
            if i % 2 == 0:
                end_transaction(log, ["abort", "commit"][i // 2 % 2], **producer)
        log.roll()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pylogseg.format.compression.ARENA_BYTES", most)
            found = clean(log, slots)
        log.close()
        left.append((found, {each.name: storage.read_all(f"t-0/{each.name}") for each in storage.list_folder("t-0")}))
    assert left[0] == left[1]


def test_a_batch_that_decompresses_to_more_than_a_reader_takes_is_no_damage(monkeypatch):
    monkeypatch.setattr("pylogseg.log.cleaner_filter.REWRITE_LIMIT_BYTES", 100)
    log = new_log()
    append(log, [(b"a", b"." * 200)], "zstd")
    log.roll()
    with pytest.raises(CorruptionError, match="more than 100 bytes, the limit"):
        clean(log)
    monkeypatch.setattr("pylogseg.log.cleaner_filter.REWRITE_LIMIT_BYTES", DECOMPRESSED_LIMIT_BYTES + 1000)
    append(log, [(b"a", b"." * DECOMPRESSED_LIMIT_BYTES)], "zstd")
    log.roll()
    assert clean(log)[1].messages_written == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RECORDS),
        st.tuples(st.sampled_from(["read", "clean", "roll", "wait"]), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(before=BATCHES, steps=STEPS)
@settings(deadline=None)
def test_who_reaches_the_end_in_time_sees_every_tombstone(before, steps):
    """A reader applies what it reads, while cleanings go on; it is slow, but less so than `delete.retention.ms`."""
    log = new_log(segment_bytes=900, delete_retention_ms=1000)
    for records, compression in before:
        append(log, records, compression)
    state, truth, position, waited = {}, {}, 0, 0

    def read_on():
        nonlocal position
        found = log.fetch(position, 1).data
        batches = pylogseg.scan(found).batches
        if len(batches):
            columns = decode(batches, found)[0]
            for i in range(len(columns)):
                if columns.offset[i] >= position:
                    state[columns.key(i)] = columns.value(i)
            position = int(batches.last_offset[-1]) + 1

    for what, how in [*steps, ("roll", 1), ("clean", 1)]:
        if what == "append":
            append(log, how)
        elif what == "wait" and waited + 150 * how < 1000:
            waited += 150 * how
            log.scheduler.advance(150 * how)
        elif what == "clean":
            clean(log)
        elif what == "roll":
            log.roll()
        else:
            for _ in range(how):
                read_on()
    while position < log.log_end_offset:
        read_on()
    for records in [*(records for records, _ in before), *(how for what, how in steps if what == "append")]:
        truth.update(records)
    known = lambda each: {key: value for key, value in each.items() if key is not None and value is not None}  # noqa: E731
    assert known(state) == known(truth)


def test_damage_leaves_the_log_alone(tmp_path):
    log = new_log(LocalStorage(), str(tmp_path / "t-0"))
    append(log, [(b"a", b"1")], "lz4")
    append(log, [(b"a", b"2")], "lz4")
    log.roll()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70:80] = b"\xff" * 10
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        clean(log)
    assert caught.value.position == 0
    assert "00000000000000000000.log" in caught.value.path
    assert path.read_bytes() == data
    assert [segment.suffix for segment in log.segments] == ["", ""]


def test_a_bad_crc_gets_no_good_one(tmp_path):
    """A value that a disk changed would be written anew under a CRC that holds."""
    log = new_log(LocalStorage(), str(tmp_path / "t-0"))
    append(log, [(b"a", b"one"), (b"b", b"two")])
    append(log, [(b"a", b"three")])
    log.roll()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    good = path.read_bytes()
    at = good.index(b"two")
    path.write_bytes(good[:at] + b"twO" + good[at + 3 :])
    with pytest.raises(CorruptionError, match="the CRC of the batch does not match"):
        clean(log)
    assert path.read_bytes() != good
    clean(log, crc=False)  # as a broker's cleaner
    assert contents(log)[0] == [(1, b"b", b"twO"), (2, b"a", b"three")]


def test_a_record_beyond_its_batch_is_damage(tmp_path):
    """The CRC is right, and the header has a last offset below those of the records."""
    log = new_log(LocalStorage(), str(tmp_path / "t-0"))
    rows = b"".join(handmade.record(i, i, b"%d" % i, b"value") for i in range(3))
    log.append_as_follower(handmade.batch(rows, 3, codec=0, last=1, timestamp=NOW), 0)
    append(log, [(b"0", b"later")])
    log.roll()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    before = path.read_bytes()
    with pytest.raises(CorruptionError, match="a record has offset 2, and its batch the offsets 0 to 1") as caught:
        clean(log)
    assert (caught.value.position, caught.value.offset) == (0, 0)
    assert path.read_bytes() == before


def test_checked_and_throttled():
    log = new_log(segment_bytes=300)
    for _ in range(20):
        append(log, [(b"a", b"1" * 50)])
    sizes = []
    _, stats = clean(log, throttle=sizes.append)
    assert sum(sizes) == stats.map_bytes_read + stats.bytes_read + stats.bytes_written

    def stop():
        raise CleaningAbortedError("enough")

    before = contents(log)
    append(log, [(b"a", b"2")])
    with pytest.raises(CleaningAbortedError):
        clean(log, check=stop)
    assert contents(log)[0][: len(before[0])] == before[0]


def test_a_crash_leaves_old_segments_or_new_ones():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=200)
    for i in range(6):
        append(log, [(b"%d" % (i % 2), b"%d" % i * 20), (b"%d" % i, b"stays")])
    log.roll()
    log.close()
    storage = MemoryStorage(storage.state)
    log = new_log(storage, segment_bytes=2000)  # several of them become one
    log.update_high_watermark(log.log_end_offset)
    before = contents(log)
    count = len(log.segments)
    clean(log)
    after = contents(log)
    assert 1 < len(log.segments) < count
    assert len(after[0]) < len(before[0])
    log.scheduler.advance(60_000)  # what was replaced is removed
    for image in crash_images(storage.trace, 300, seed=3):
        found = new_log(image.open(), segment_bytes=2000, clean=False)
        records, last = contents(found)
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets)), image.description
        assert set(after[0]) <= set(records) <= set(before[0]), image.description
        assert (last, found.log_end_offset) == (after[1], log.log_end_offset), image.description


def test_what_may_be_cleaned():
    log = new_log(segment_bytes=300, min_compaction_lag_ms=10, max_compaction_lag_ms=1000)
    for _ in range(4):
        append(log, [(b"a", b"1" * 100)])
        log.scheduler.advance(5)
    found = cleanable(log, None, log.clock.now_ms())
    bases = [segment.base_offset for segment in log.segments]
    assert found.first_dirty == 0
    assert bases[0] < found.first_uncleanable <= bases[-1]
    assert cleanable(log, 99, log.clock.now_ms()).reset_checkpoint
    assert not needs_cleaning_at(log, found, log.clock.now_ms())
    assert needs_cleaning_at(log, found, log.clock.now_ms() + 2000)
    how = dirtiness(log, found)
    assert how.clean_bytes == 0
    assert how.ratio == 1
    assert json.dumps(how) == json.dumps([0, how.total_bytes, found.first_uncleanable])
