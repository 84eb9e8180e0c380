"""Tests of _native/_lookup.pyx, log/batch_headers.py, log/offsets.py, log/read_result.py, log/reads.py and
log/segment_lookup.py. Look-ups in an open log, by offset, by many offsets and by time, against a walk over everything.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depth import some_of

from pylogseg import encode
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import ClosedError, CorruptionError, StorageError
from pylogseg.log import segment_lookup
from pylogseg.log.log import Log
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.reads import fetch_batches, offset_for_time
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler

NOW = 1_700_000_000_000


def filled(folder: Path, chance: random.Random) -> tuple[Log, list[tuple[int, int, int]], list[tuple[int, int]]]:
    """A log; offsets and size of its batches; offset and timestamp of its records."""
    clock = ManualClock(NOW)
    config = LogConfig.of(
        segment_bytes=chance.choice([2000, 1 << 20]),
        index_interval_bytes=chance.choice([0, 300, 4096]),
        message_timestamp_type=chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
    )
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(folder), config)
    batches, records = [], []
    offset = 0
    for _ in range(150):
        offset += chance.choice([0, 0, 0, 7])  # a compacted log has gaps
        clock.set_ms(clock.now_ms() + 5)
        times = [clock.now_ms() + chance.randrange(-50, 50) for _ in range(chance.randrange(1, 6))]
        stamped = config.message_timestamp_type == "LogAppendTime"
        more: dict[str, Any] = {"timestamp_type": "append", "append_time_ms": clock.now_ms()} if stamped else {}
        codec = chance.choice(["none", "none", "lz4", "gzip"])
        headers = chance.choice([[], [("h", b"x")]])
        data = encode(
            [{"timestamp": time, "key": b"k", "value": b"v" * 20, "headers": headers} for time in times],
            compression=codec,
            base_offset=offset,
            leader_epoch=0,
            **more,
        )
        log.append_as_follower(data, 0)
        batches.append((offset, offset + len(times) - 1, len(data)))
        records += [(offset + i, clock.now_ms() if stamped else time) for i, time in enumerate(times)]
        offset += len(times)
    return log, batches, records


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_offsets(tmp_path: Path, seed: int) -> None:
    log, batches, _ = filled(tmp_path / "t-0", random.Random(seed))
    wanted = np.random.default_rng(seed).permutation(np.arange(-3, log.log_end_offset + 3))
    found = log.locate_many(wanted)
    for row, offset in enumerate(wanted.tolist()):
        expected = next((b for b in batches if b[1] >= offset), None) if offset >= 0 else None
        if expected is None:
            assert (found.segment[row], found.position[row], found.offset[row]) == (-1, -1, -1)
            continue
        assert (found.offset[row], found.size[row]) == (expected[0], expected[2])
        fetched = log.fetch(offset, 1)
        assert (fetched.start.offset, fetched.start.segment, fetched.start.position) == (
            found.offset[row],
            found.segment[row],
            found.position[row],
        )
    assert len(log.locate_many([]).position) == 0


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_times(tmp_path: Path, seed: int) -> None:
    log, _, records = filled(tmp_path / "t-0", random.Random(seed))
    segments = log.segments.base_offsets
    for timestamp in range(NOW - 60, NOW + 820, 3):
        # The first segment whose greatest timestamp is not below; in it, the first record that is not older.
        expected = None
        for base, end in zip(segments, [*segments[1:], log.log_end_offset], strict=True):
            inside = [(offset, time) for offset, time in records if base <= offset < end]
            if inside and max(time for _, time in inside) >= timestamp:
                expected = next((time, offset, 0) for offset, time in inside if time >= timestamp)
                break
        assert log.offset_for_time(timestamp) == expected, timestamp


def _opened_again(folder: Path, chance: random.Random) -> Log:
    """A log whose files were there when it was opened: its batches are read by one compiled call each."""
    log, _, _ = filled(folder, chance)
    log.close()
    clock = ManualClock(NOW)
    environment = Environment(LocalStorage(), clock, ManualScheduler(clock))
    return Log.open(environment, str(folder), log.config, Start(clean=True))


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_one_call_reads_as_many_do(tmp_path: Path, seed: int) -> None:
    log = _opened_again(tmp_path / "t-0", random.Random(seed))
    end, counted = log.offsets.end, Counter[str]()
    for offset in range(log.log_end_offset):
        for most, min_one, placed in itertools.product((1, 100, 400, 1 << 20), (True, False), (True, False)):
            fetched = log._reads.fetch(offset, most, min_one, placed)
            how: dict[str, Any] = {"min_one": min_one, "aborted": False, "placed": placed}
            assert fetched is None or fetched == fetch_batches(log.segments, log.offsets, offset, most, end, **how)
            assert fetched is None or [type(part) for part in fetched[:2]] == [OffsetMetadata, memoryview]
            counted["fetch"] += fetched is not None
    for timestamp in range(NOW - 60, NOW + 820, 3):
        found = log._reads.offset_for_time(timestamp)
        assert found in (None, offset_for_time(log.segments, log.offsets, log.epochs, timestamp))
        assert log.offset_for_time(timestamp) == offset_for_time(log.segments, log.offsets, log.epochs, timestamp)
        counted["time"] += found is not None
    assert min(counted["fetch"], counted["time"]) > 20, counted
    for odd in (-1, end.offset, end.offset + 1, 2**63 - 1, 2**70, -(2**70)):
        assert log._reads.fetch(odd, 1, True, False) is None
        assert log._reads.offset_for_time(-1 - abs(odd)) is None
    log.close()
    with pytest.raises(ClosedError):
        log.fetch(0, 1)


def test_what_changes_below_one_call(tmp_path: Path) -> None:
    """Files that are cut, damaged, given up or closed between calls: the answer is that of a log read otherwise."""
    log = _opened_again(tmp_path / "t-0", random.Random(1))
    first = log.segments.first
    assert first is not None
    assert log.fetch(0, 1).data
    assert log._reads.fetch(0, 1, True, False) is not None
    assert first.log.release_idle()  # type: ignore[attr-defined]
    assert log._reads.fetch(0, 1, True, False) is None  # nobody has opened it again
    assert log.fetch(0, 1).data
    assert log._reads.fetch(0, 1, True, False) is not None
    assert first.offset_index.file.release_idle()  # type: ignore[attr-defined]
    assert log._reads.fetch(0, 1, True, False) is not None
    last = log.log_end_offset - 1
    log.truncate_to(last)
    assert log._reads.fetch(last, 1, True, False) is None
    with Path(first.path).open("r+b") as file:
        file.truncate(30)
    with pytest.raises(StorageError, match="cut to 30 bytes by another program"):
        log.fetch(1, 1)
    log.close_handles()


class _AllMapped:
    """A file that says of all of it that this process wrote it."""

    copied_below = 0

    def __init__(self, file: Any, data: bytes) -> None:
        self.path, self.size = file.path, file.size
        self._data = memoryview(data)

    def view(self, position: int, size: int) -> memoryview:
        return self._data[position : position + size]


class _Copied(_AllMapped):
    """The same of a file that was all found on the disk; it counts what is read."""

    def __init__(self, file: Any, data: bytes) -> None:
        super().__init__(file, data)
        self.size = self.copied_below = len(data)
        self.looks: list[int] = []

    def view(self, position: int, size: int) -> memoryview:
        view = super().view(position, size)
        self.looks.append(len(view))
        return view

    def by_descriptor(self, search: Any, *more: Any) -> None:
        """There is none."""


@pytest.mark.parametrize("first_bytes", [20, 300, 1 << 14])
def test_what_was_found_on_the_disk_is_looked_at_as_what_was_written(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_bytes: int
) -> None:
    """The same places by headers, by copies of a few bytes and by a map of all, whatever the format and the codec."""
    monkeypatch.setattr(segment_lookup, "_FIRST_BYTES", first_bytes)
    looked = 0
    for name in ("legacy-0", "mixed-0", "cmp-short-0", "codec-zstd-0", "txn-a-0"):
        shutil.copytree(examples / name, tmp_path / name)
        clock = ManualClock(NOW)
        log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(tmp_path / name), LogConfig())
        for segment in log.segments.from_offset(0):
            file, path, index, base = segment.log, segment.path, segment.offset_index, segment.base_offset
            assert file.copied_below == file.size
            whole: Any = _AllMapped(file, Path(path).read_bytes())
            copied: Any = _Copied(file, Path(path).read_bytes())
            for offset in range(base - 2, segment.next_offset() + 3):
                wanted, copy, found = (
                    segment_lookup.find_batch(each, path, index, base, offset) for each in (whole, copied, file)
                )
                assert (wanted and wanted[:3]) == (found and found[:3]), (name, base, offset)
                assert (wanted and wanted[:3]) == (copy and copy[:3]), (name, base, offset)
                if found is not None:
                    looked += 1
                    assert found.data(file, 5000) == Path(path).read_bytes()[found.position :][:5000]
                    at = segment_lookup.opening_at(file, path, found.position)
                    assert at is not None
                    assert at[1:3] == found[1:3]
        log.close()
    assert looked > 1000


@pytest.mark.parametrize("seed", some_of(range(20), 5))
def test_damage_is_met_by_copies_as_by_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The same answers, or the same errors, with bytes that were changed, cut off, or replaced by zeros."""
    chance = random.Random(seed)
    monkeypatch.setattr(segment_lookup, "_FIRST_BYTES", chance.choice([61, 100, 500]))
    log, _, _ = filled(tmp_path / "t-0", chance)
    for segment in log.segments.from_offset(0)[:3]:
        good = Path(segment.path).read_bytes()
        index, base = segment.offset_index, segment.base_offset
        for _ in range(15):
            data = bytearray(good)
            for _ in range(chance.randrange(3)):
                at = chance.randrange(len(data))
                size = chance.choice([1, 4, 100])
                data[at : at + size] = chance.randbytes(size) if chance.random() < 0.5 else bytes(size)
            cut = bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
            whole: Any = _AllMapped(segment.log, cut)
            whole.size = len(cut)
            part: Any = _Copied(segment.log, cut)
            (tmp_path / "cut").write_bytes(cut)
            real = LocalStorage().open_log(str(tmp_path / "cut"))
            for offset in range(base - 1, segment.next_offset() + 2, chance.choice([1, 5])):
                wanted_bytes = chance.choice([0, 1, 700, 1 << 20])
                wanted = segment_lookup.find_batch(whole, segment.path, index, base, offset)
                found = segment_lookup.find_batch(part, segment.path, index, base, offset, wanted_bytes)
                assert (wanted and wanted[:3]) == (found and found[:3]), (base, offset)
                by_headers = segment_lookup.find_batch(real, segment.path, index, base, offset, wanted_bytes)
                assert (wanted and wanted[:3]) == (by_headers and by_headers[:3]), (base, offset)
                for located, file in ((found, part), (by_headers, real)):
                    if located is not None:
                        assert len(located.data(file, located.size) or b"") == located.size
                        assert located.data(file, 2000) == cut[located.position :][:2000]
            real.close()


def test_many_places_by_headers_as_one_by_one(tmp_path: Path) -> None:
    """And a file that another program has cut is an error, not the end of the log."""
    log, batches, _ = filled(tmp_path / "t-0", random.Random(5))
    log.close()
    clock = ManualClock(NOW)
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(tmp_path / "t-0"), LogConfig())
    offsets = np.arange(-2, log.log_end_offset + 3)
    found = log.locate_many(offsets)
    for row, offset in enumerate(offsets.tolist()):
        expected = next((b for b in batches if b[1] >= offset), None) if offset >= 0 else None
        assert found.offset[row] == (-1 if expected is None else expected[0])
        assert expected is None or found.size[row] == expected[2]
    last = log.segments.active
    assert last is not None
    with Path(last.path).open("r+b") as file:
        file.truncate(last.size - 10)
    with pytest.raises(StorageError, match="cut"):
        log.fetch(log.log_end_offset - 1, 1)
    with Path(last.path).open("r+b") as file:
        file.truncate(0)
    for look in (lambda: log.fetch(log.log_end_offset - 1, 1), lambda: log.locate_many(offsets)):
        with pytest.raises(StorageError, match="cut"):
            look()


def test_a_batch_that_went_is_looked_for_again(tmp_path: Path) -> None:
    """Between the look at its header and the copy, the log was truncated and another batch lies there."""
    log, _, _ = filled(tmp_path / "t-0", random.Random(5))
    log.close()
    clock = ManualClock(NOW)
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(tmp_path / "t-0"), LogConfig())
    segment = log.segments.active
    assert segment is not None
    found = segment.find(log.log_end_offset - 1)
    assert found is not None
    log.truncate_to(found.offset)
    assert found.data(segment.log, found.size) is None
    value = b"x" * 300
    log.append_as_follower(encode([(NOW, None, value)], base_offset=log.log_end_offset, leader_epoch=1), 1)
    assert found.data(segment.log, found.size) is None
    assert log.fetch(found.offset, 1 << 20).data.tobytes().endswith(value + b"\x00")


@pytest.fixture(scope="module", params=[300, 70_000, 900_000], ids="batches of {}".format)
def five_megabytes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log of batches of one size."""
    clock = ManualClock(NOW)
    config = LogConfig.of(index_interval_bytes=4096, segment_bytes=1 << 30)
    folder = tmp_path_factory.mktemp("sizes") / "t-0"
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(folder), config)
    for i in range(5_000_000 // request.param):
        log.append_as_follower(encode([(NOW, b"", bytes(request.param - 90))], base_offset=i, leader_epoch=0), 0)
    return log


@pytest.mark.parametrize("max_bytes", [1, 1 << 16, 1 << 18, 3 << 20])
def test_a_fetch_of_what_was_found_on_the_disk_copies_little_more_than_it_gives(
    five_megabytes: Log, max_bytes: int
) -> None:
    segment = five_megabytes.segments.from_offset(0)[0]
    data = Path(segment.path).read_bytes()
    file: Any = _Copied(segment.log, data)
    for offset in (0, 1, 2, segment.next_offset() // 2, segment.next_offset() - 1):
        file.looks.clear()
        found = segment_lookup.find_batch(file, segment.path, segment.offset_index, 0, offset, max_bytes)
        assert found is not None
        assert found.offset == offset
        given = found.data(file, min(max(found.size, max_bytes), len(data) - found.position))
        assert given == data[found.position :][: max(found.size, max_bytes)]
        assert sum(file.looks) <= len(given) + (80 << 10)
        assert len(file.looks) <= 3


@pytest.mark.parametrize("timestamp", [-3, NOW + 9])
@pytest.mark.parametrize(
    ("at", "byte", "expected"),
    [
        (58, 0x53, 1),  # far too many records: a broker finds what is there before it misses one
        (61, 0x7F, None),  # the size of the first record: it finds none
    ],
)
def test_times_in_a_damaged_batch(tmp_path: Path, timestamp: int, at: int, byte: int, expected: int | None) -> None:
    folder, clock = str(tmp_path / "t-0"), ManualClock(NOW)
    environment = Environment(LocalStorage(), clock, ManualScheduler(clock))
    log = Log.open(environment, folder, LogConfig.of())
    log.append_as_leader(encode([(NOW, None, b"a"), (NOW + 9, None, b"b"), (NOW + 9, None, b"c")]), 0)
    log.close()
    with open(log.segments.active.path, "r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))
    log = Log.open(environment, folder, LogConfig.of(), Start(clean=True, recovery_point=3))
    if expected is None:
        with pytest.raises(CorruptionError, match=r"00\.log: at position 0: "):
            log.offset_for_time(timestamp)
    else:
        assert log.offset_for_time(timestamp) == (NOW + 9, expected, 0)


def _reads() -> int:
    """System calls so far by which this process read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscr:")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count reads")
@pytest.mark.parametrize(("value_bytes", "most"), [(200, 4), (16_000, 2)])
def test_a_read_at_an_offset_is_few_reads_of_the_system(tmp_path: Path, value_bytes: int, most: int) -> None:
    """What follows a header is read with it: a small batch with its neighbours, another with the next header."""
    clock = ManualClock(NOW)
    environment = Environment(LocalStorage(), clock, ManualScheduler(clock))
    log = Log.open(environment, str(tmp_path / "t-0"), LogConfig())
    for i in range(600):
        log.append_as_leader(encode([(NOW, None, bytes([i % 256]) * value_bytes)]), 0)
    log.close()
    log = Log.open(environment, str(tmp_path / "t-0"), LogConfig(), Start(clean=True))
    offsets = random.Random(5).choices(range(50, 550), k=200)
    log.fetch(offsets[0], 1)
    before = _reads()
    found = [log.fetch(offset, 1).data for offset in offsets]
    assert _reads() - before <= most * len(offsets) + 5  # the count is read too
    assert [data[80] for data in found] == [offset % 256 for offset in offsets]
    log.close()
