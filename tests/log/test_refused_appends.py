"""Tests of log/append.py. What is refused leaves nothing behind, and what is accepted can be opened again, after a
crash too.
"""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.mutations import sealed
from reference.batch import Record
from reference.build import batch_v2, legacy, message

import pylogseg
from pylogseg._native import _keymap
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.log.append import LAST_START

NOW = 1_700_000_000_000


def good(base, count=1, size=200):
    return batch_v2([Record(base + i, NOW, b"k", b"v" * size) for i in range(count)], leader_epoch=0)


def with_delta(data, delta):
    return sealed(data[:23] + struct.pack(">i", delta) + data[27:])


def control(base, kind):
    return batch_v2(
        [Record(base, NOW, struct.pack(">hh", 0, kind), b"\0" * 6)],
        control=True,
        producer_id=1,
        producer_epoch=0,
        leader_epoch=0,
    )


def gzipped(body):
    data = good(0)
    data = data[:21] + struct.pack(">h", 1) + data[23:61] + gzip.compress(body)
    return sealed(data)


def files(folder):
    return b"".join(path.read_bytes() for path in sorted(Path(folder).glob("*.log")))


def crash(folder):
    """What a killed process leaves: neither the marker nor checkpoints of the latest state."""
    for path in Path(folder).parent.iterdir():
        if path.is_file() and path.name != ".lock":
            path.unlink()


REFUSED = {
    "a last offset below the first": with_delta(good(5), -1),
    "a last offset far below the first": with_delta(good(5), -2),
    "two batches, the second one ends below": good(5) + good(3),
    "a second batch without a header": good(5) + sealed(good(6)[:50]),
    "an unknown control record far ahead": control(2**50, 27756),
    "a wrapper that cannot be opened": message(Record(6, NOW, None, b"garbage"), 1, 1),
    "a wrapper with an offset below 0": legacy([Record(at, NOW, b"k", b"v") for at in (-2, 6)], 0, codec="gzip"),
    "a message that runs past its end": sealed(message(Record(6, NOW, b"k", b"v" * 50), 1)[:-20]),
    "batches too far from one another": message(Record(5, NOW, b"a", b"b"), 1) + good(2**40),
    "the highest offset": good(2**63 - 1),
    "offsets beyond the highest": with_delta(good(2**63 - 5), 10),
}


@pytest.mark.parametrize("settings", [{}, {"index_interval_bytes": 100}, {"segment_bytes": 1000}], ids=str)
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_refused_append_of_a_follower_leaves_nothing(tmp_path, data, settings):
    folder = tmp_path / "t-0"
    log = pylogseg.open_log(folder, **settings)
    for i in range(5):
        log.engine.append_as_follower(good(i), 0)
    log.flush()
    before = files(folder)
    with pytest.raises(PylogsegError):
        log.engine.append_as_follower(data, 0)
    assert (files(folder), log.log_end_offset) == (before, 5)
    assert log.append([(NOW, b"a", b"b")]).first_offset == 5
    log.close_handles()
    log.close()
    crash(tmp_path)
    with pylogseg.open_log(folder, **settings) as again:
        assert [record.offset for record in again.read()] == [0, 1, 2, 3, 4, 5]
        assert again.report.recovered_segments


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_that_the_log_starts_in_is_accepted(tmp_path, magic):
    """A new replica of a log whose records were deleted up to there fetches all of it."""
    log = pylogseg.open_log(tmp_path / "t-0")
    log.engine.truncate_fully(6)
    records = [Record(base, NOW, b"k", b"v") for base in (5, 6, 7)]
    log.engine.append_as_follower(legacy(records, magic, codec="gzip"), 0)
    assert (log.log_start_offset, log.log_end_offset) == (6, 8)
    log.engine.append_as_follower(good(8), 0)
    log.close_handles()
    log.close()
    for _ in range(2):
        with pylogseg.open_log(tmp_path / "t-0") as again:
            assert [record.offset for record in again.read()] == [6, 7, 8]
            assert again.log_start_offset == 6


@pytest.mark.parametrize("body", [b"\0", b"", b"\x80", b"\x02\0", bytes(3)], ids=repr)
@pytest.mark.parametrize("way", ["append", "append_as_leader", "append_many", "append_as_follower"])
def test_compressed_bodies_of_a_byte(tmp_path, body, way):
    with pylogseg.open_log(tmp_path / "t-0") as log:
        log.append([(NOW, b"a", b"b")])
        before = files(log.folder)
        if way == "append_many":
            (error,) = log.engine.append_many(gzipped(body), 0).errors.values()
            assert isinstance(error, RequestError)
        elif way == "append_as_follower":  # a replica takes what its leader has: its CRC is good
            with pytest.raises(RequestError):
                log.engine.append_as_follower(gzipped(body), 0)  # its offset 0 is taken
        elif way == "append_as_leader":
            with pytest.raises(RequestError):
                log.engine.append_as_leader(gzipped(body), 0)
        else:
            with pytest.raises(RequestError):
                log.append(gzipped(body))
        assert files(log.folder) == before
        assert log.append([(NOW, b"a", b"b")]).first_offset == 1


@pytest.mark.parametrize("room", [12, 16, 24, 36])
def test_an_index_without_room_refuses_nothing(tmp_path, room):
    settings = {"segment_index_bytes": room, "index_interval_bytes": 0}
    log = pylogseg.open_log(tmp_path / "t-0", **settings)
    for i in range(3):
        log.engine.append_as_follower(good(16 * i, 2) + good(16 * i + 2, 2) + good(16 * i + 4, 6), 0)
        log.engine.append_many([good(0, 2)] * 3, 0)
    wanted = files(log.folder), log.log_end_offset
    log.close_handles()
    log.close()
    crash(tmp_path)
    with pylogseg.open_log(tmp_path / "t-0", **settings) as again:
        assert (files(again.folder), again.log_end_offset) == wanted
        assert len(list(again.read())) == 48


@pytest.mark.parametrize("size", [4, 8, 11])
def test_an_index_without_any_room_is_refused_early(tmp_path, size):
    with pytest.raises(RequestError, match=r"segment\.index\.bytes"):
        pylogseg.open_log(tmp_path / "t-0", segment_index_bytes=size)
    assert not (tmp_path / "t-0").exists()
    pylogseg.open_log(tmp_path / "t-0", segment_index_bytes=12).close()


@pytest.mark.parametrize("last", [LAST_START - 1, LAST_START, 2**63 - 3, 2**63 - 2])
def test_the_end_of_the_offsets(tmp_path, last):
    with pylogseg.open_log(tmp_path / "t-0") as log:
        log.engine.append_as_follower(good(last), 0)
        assert log.log_end_offset == last + 1
        if last < LAST_START:
            assert log.append([(NOW, b"a", b"b")]).first_offset == last + 1
        for _ in range(2):
            with pytest.raises(RequestError, match="no offsets left"):
                log.append([(NOW, b"a", b"b")])
        (error,) = log.engine.append_many(good(0), 0).errors.values()
        assert "no offsets left" in str(error)
        assert len(list(log.read())) == 1 + (last < LAST_START)
    with pylogseg.open_log(tmp_path / "t-0") as again:
        assert len(list(again.read())) == 1 + (last < LAST_START)


def test_a_full_table_of_keys_is_no_fault():
    full = np.full(24 * 2, 7, np.uint8)
    keys = np.zeros(1, np.int64), np.full(1, 3, np.int32), np.zeros(1, np.int64), (b"abc",)
    assert _keymap.put(full, (1, 2), 0, 2, 0, *keys, 0) == (0, 0)
    with pytest.raises(ValueError, match="full"):
        _keymap.rehash(np.full(24, 9, np.uint8), full[:24].copy())
