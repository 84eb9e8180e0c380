"""Tests of errors.py, log/metrics.py, log/retention.py, owned/batches.py and owned/opening.py. `open_log`: records in
and out, the log directory around them, what a restart finds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from helpers.checks import begun_since, wait_for

import pylogseg
from pylogseg import EmbeddedLog, open_log
from pylogseg.errors import (
    ClosedError,
    CorruptionError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    RequestError,
    StorageError,
)
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.log.recovery_report import ActionKind
from pylogseg.testing.clock import ManualClock, ManualScheduler

MARKER = ".kafka_cleanshutdown"
POINTS, STARTS, MARKS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


def values(count: int, first: int = 0) -> list[tuple[int, bytes, bytes]]:
    """Records to append."""
    return [(1_700_000_000_000 + i, b"k%d" % (i % 7), b"value %d" % i) for i in range(first, first + count)]


def read_values(log: EmbeddedLog, *args: object, **options: object) -> list[bytes | None]:
    return [record.value for record in log.read(*args, **options)]  # type: ignore[arg-type]


def checkpoint(folder: Path, name: str) -> dict[tuple[str, int], int]:
    return parse_offset_checkpoint((folder / name).read_bytes())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory that is not there yet."""
    return tmp_path / "disk" / "data"


@pytest.fixture
def log(data: Path) -> Iterator[EmbeddedLog]:
    with open_log(data / "orders-0", segment_bytes=10_000, index_interval_bytes=100) as log:
        yield log


# ---- records in ----


def test_append_gives_offsets(log: EmbeddedLog) -> None:
    done = log.append(values(3))
    assert (done.first_offset, done.last_offset, done.max_timestamp) == (0, 2, 1_700_000_000_002)
    assert log.append(values(1)).first_offset == 3
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 4, 4)


def test_append_takes_all_that_encode_takes(log: EmbeddedLog, tmp_path: Path) -> None:
    log.append([{"value": "text", "headers": {"a": b"1"}}])
    log.append(iter([(None, None, b"generated")]))
    log.append(pa.table({"key": [b"k", None], "value": [b"arrow 1", b"arrow 2"]}))
    log.append(polars.DataFrame({"value": [b"polars"]}))
    log.append(next(iter(log.read(offset=2).chunks())).columns)
    log.append_batch(pylogseg.encode([(5, b"k", b"a batch")], compression="lz4"))
    log.append(list(pylogseg.read(Path(__file__).parents[2] / "examples" / "data", "codec-none-1", limit=1)))
    assert read_values(log)[:9] == [
        *(b"text", b"generated", b"arrow 1", b"arrow 2", b"polars", b"arrow 1", b"arrow 2", b"polars", b"a batch")
    ]
    assert log.log_end_offset == 10
    assert next(iter(log.read())).headers == (("a", b"1"),)


def test_what_records_lack(data: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with open_log(data / "orders-0", clock=clock, scheduler=ManualScheduler(clock)) as log:
        log.append([(None, None, None)])
        (record,) = log.read()
    assert (record.timestamp, record.key, record.value) == (1_700_000_000_000, None, None)


def test_no_records_are_no_append(log: EmbeddedLog) -> None:
    assert log.append([]).first_offset == -1
    assert log.append(pa.table({"value": pa.array([], pa.binary())})).first_offset == -1
    assert log.metrics().appends == 0


@pytest.mark.parametrize("limit", [200, 1000, 5000])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_no_larger_than_the_log_takes(data: Path, limit: int, codec: str) -> None:
    noise = np.random.default_rng(7)
    records = [(i, None, noise.bytes(50)) for i in range(300)]
    with open_log(data / "orders-0", max_message_bytes=limit, message_timestamp_after_max_ms=2**62) as log:
        assert log.append(records, compression=codec).last_offset == 299
        assert read_values(log) == [record[2] for record in records]
        sizes = [int(size) for chunk in log.read().chunks() for size in chunk.columns.batches.size]
        assert len(sizes) > 1
        assert max(sizes) <= limit


def test_compression_type(data: Path) -> None:
    with open_log(data / "orders-0", compression_type="zstd") as log:
        log.append(values(500))
        assert [int(c) for chunk in log.read().chunks() for c in chunk.columns.batches.codec] == [4]


def test_a_refused_batch_is_named(data: Path) -> None:
    records: list[tuple[int, bytes | None, bytes]] = [*values(300)]
    records[250] = (1_700_000_000_000, None, b"no key")
    with open_log(data / "orders-0", cleanup_policy="compact", max_message_bytes=1000) as log:
        with pytest.raises(
            InvalidRecordError, match=r"records (\d+) to \d+: .*1 of \d+ batches were refused"
        ) as caught:
            log.append(records)
        assert [number for number, _ in caught.value.record_errors] == [250]
        first, last = map(int, re.findall(r"records (\d+) to (\d+):", str(caught.value))[0])
        assert first <= 250 <= last
        assert read_values(log) == [value for _, _, value in values(300)[:first] + values(300)[last + 1 :]]
        found = log.metrics()
        assert (found.refusals, found.records) == (1, log.log_end_offset)
        with pytest.raises(InvalidRecordError) as caught:
            log.append(records[249:252])
        assert [number for number, _ in caught.value.record_errors] == [1]
        assert "batches" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("text", "got a text"),
        ([("a",)], "record 0: a tuple of 1 item"),
        ([(1, 2, 3)], "record 0: keys, values and header values are bytes, text or None, not int"),
        (b"a batch", "append takes records, not bytes: append_batch takes an encoded batch"),
        (5, "records are a list of tuples .*, not int"),
    ],
)
def test_wrong_records(log: EmbeddedLog, wrong: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        log.append(wrong)
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (b"no batch", "the 8 bytes hold no whole batch"),
        ([(None, b"k", b"v")], "append_batch takes the bytes of a batch, not list: see append"),
        ("text", "not str"),
    ],
)
def test_what_is_no_batch(log: EmbeddedLog, wrong: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        log.append_batch(wrong)
    assert log.log_end_offset == 0


def test_a_batch_stays_as_it_is(log: EmbeddedLog) -> None:
    log.append(values(3))
    batch = pylogseg.encode(values(2), compression="lz4")
    before = bytes(batch)
    assert log.append_batch(memoryview(batch)).first_offset == 3
    assert bytes(batch) == before
    assert read_values(log) == [value for _, _, value in values(3) + values(2)]


# ---- records out ----


def test_read_is_bounded_by_the_moment_of_the_call(log: EmbeddedLog) -> None:
    log.append(values(10))
    reader = log.read()
    log.append(values(10))
    assert len(list(reader)) == 10
    assert len(list(reader)) == 10  # from the start again
    assert len(list(log.read())) == 20


def test_read_over_segments(log: EmbeddedLog) -> None:
    for first in range(0, 3000, 100):
        log.append(values(100, first))
    assert len(list(log.engine.segments)) > 5
    want = [value for _, _, value in values(3000)]
    assert read_values(log) == want
    assert read_values(log, offset=(1111, 2222)) == want[1111:2222]
    assert read_values(log, (2990, None), limit=3) == want[2990:2993]
    assert read_values(log, timestamp=(1_700_000_000_500, 1_700_000_000_510)) == want[500:510]
    assert read_values(log, timestamp=1_700_000_009_999) == []
    assert read_values(log, offset=5000) == []
    segments = {chunk.segment.name for chunk in log.read().chunks()}
    assert segments == {os.path.basename(segment.path) for segment in log.engine.segments}


def test_columns_and_arrow(log: EmbeddedLog) -> None:
    log.append(values(50))
    assert sum(len(chunk.columns) for chunk in log.read().chunks()) == 50
    frame = polars.DataFrame(log.read(columns=["topic", "partition", "offset", "value", "segment"]))
    assert frame.height == 50
    assert frame.row(7) == ("orders", 0, 7, b"value 7", "00000000000000000000.log")
    with pytest.raises(RequestError, match="unknown column 'nothing'"):
        log.read(columns=["nothing"])


def test_columns_outlive_the_log(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.append(values(5))
        (chunk,) = log.read().chunks()
    assert chunk.columns.value(4) == b"value 4"


def test_records_that_are_deleted(log: EmbeddedLog) -> None:
    for first in range(0, 2000, 100):
        log.append(values(100, first))
    reader = iter(log.read())
    assert next(reader).offset == 0
    log.increment_log_start(1500)
    assert next(iter(log.read())).offset == 1500
    with pytest.raises(OffsetOutOfRangeError, match="1500"):
        list(reader)


def test_truncated_records_are_not_read(log: EmbeddedLog) -> None:
    log.append(values(10))
    log.append(values(10))
    log.truncate_to(10)
    assert log.high_watermark == 10
    log.append([(None, None, b"other")])
    assert read_values(log, offset=9) == [b"value 9", b"other"]


@pytest.mark.parametrize("where", ["middle", "length", "end", "first"])
def test_damage_is_told(data: Path, where: str) -> None:
    """Bits that change under an open log are no end of it."""
    with open_log(data / "orders-0", segment_bytes=2000) as log:
        for first in range(0, 100, 10):
            log.append(values(10, first))
        log.engine.roll()
        log.append(values(10, 100))
        segment = next(iter(log.engine.segments)) if where != "end" else list(log.engine.segments)[-1]
        batch = segment.place_of(5) if where != "end" else segment.place_of(100)
        assert batch is not None
        at = {"middle": batch.position + 70, "length": batch.position + 9, "end": 9, "first": 8}[where]
        with open(segment.path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0x7F]))
        with pytest.raises(CorruptionError, match="pylogseg verify") as caught:
            list(log.read())
        assert caught.value.path == segment.path
        assert len(list(log.read(offset=80 if where != "end" else 0, limit=20))) == 20


def test_retention_when_asked(data: Path) -> None:
    with open_log(data / "orders-0", segment_bytes=1000, retention_bytes=3000, retention_ms=-1) as log:
        for first in range(0, 300, 10):
            log.append(values(10, first))
        assert log.engine.segments.size > 5000
        assert log.apply_retention() > 0
        assert log.log_start_offset > 0
        assert 2000 <= log.engine.segments.size <= 4000
        assert read_values(log)[0] == b"value %d" % log.log_start_offset


# ---- the log directory ----


def test_nothing_of_ours_lies_there(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.append(values(1))
        assert {path.name for path in data.iterdir()} >= {".lock", "orders-0"}
    assert {path.name for path in data.iterdir()} == {MARKER, POINTS, MARKS, "orders-0"}
    assert {path.suffix or path.name for path in (data / "orders-0").iterdir()} == {
        *(".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
    }
    assert (data / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":-1}'


def test_restart_after_a_close(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.append(values(100))
    with open_log(data / "orders-0") as log:
        assert log.report.actions == []
        assert not (data / MARKER).exists()
        assert len(list(log.read())) == 100
        assert log.append(values(1)).first_offset == 100
    assert checkpoint(data, POINTS) == {("orders", 0): 101}


class Late(ManualScheduler):
    """A scheduler whose tasks have not begun when it is stopped."""

    def schedule(self, name: str, task: Any, delay_ms: int = 0, period_ms: int | None = None) -> Any:
        return super().schedule(name, task, max(delay_ms, 1), period_ms)


def test_a_close_writes_the_leader_epochs(data: Path) -> None:
    """A log start that moved just before is no reason for a repair, and no offsets are called missing."""
    clock = ManualClock(1_700_000_000_000)
    with open_log(data / "orders-0", clock=clock, scheduler=Late(clock), segment_bytes=1000) as log:
        log.append(values(100), batch_bytes=200)
        log.increment_log_start(50)
    assert (data / "orders-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 50\n"
    with open_log(data / "orders-0") as log:
        assert log.log_start_offset == 50
        assert not [action for action in log.report.actions if action.kind is ActionKind.EPOCHS]


def test_restart_without_the_marker(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.append(values(100))
    (data / MARKER).unlink()
    with (data / "orders-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"torn")
    with open_log(data / "orders-0") as log:
        assert log.report.recovered_segments == 1
        assert (log.report.cut_bytes, log.metrics().cut_bytes) == (4, 4)
        assert log.metrics().load_seconds > 0
        assert len(list(log.read())) == 100


def test_a_crash_is_noticed(data: Path) -> None:
    log = open_log(data / "orders-0")
    log.append(values(100))
    log.close_handles()
    assert not (data / MARKER).exists()
    with open_log(data / "orders-0") as log:
        assert log.report.recovered_segments == 1
        assert len(list(log.read())) == 100
    assert (data / MARKER).exists()


def test_partitions_share_a_directory(data: Path) -> None:
    with open_log(data / "orders-0") as first:
        second = open_log(str(data) + "/../data/orders-1")
        with pytest.raises(RequestError, match=r"orders-0: this process has the log open already.*close it first"):
            open_log(data / "orders-0")
        first.append(values(1))
        second.append(values(2))
        second.close()
        assert not (data / MARKER).exists()
        with open_log(data / "orders-1") as again:  # closed in order, though the directory is open
            assert again.report.actions == []
            assert again.log_end_offset == 2
    assert (data / MARKER).exists()
    assert checkpoint(data, MARKS) == {("orders", 0): 1, ("orders", 1): 2}


def test_no_marker_while_a_partition_is_not_known_to_be_clean(data: Path) -> None:
    for name in ("orders-0", "orders-1"):
        open_log(data / name).close()
    (data / MARKER).unlink()
    open_log(data / "orders-0").close()
    assert not (data / MARKER).exists()
    with open_log(data / "orders-0") as log, open_log(data / "orders-1"):
        assert log.report.recovered_segments == 1
    assert (data / MARKER).exists()
    open_log(data / "orders-0").close()  # orders-1 was under the marker
    assert (data / MARKER).exists()
    with open_log(data / "orders-0"):
        open_log(data / "orders-1").close_handles()
    assert not (data / MARKER).exists()


@pytest.mark.parametrize("garbage", [b"\xff" * 5, b"\xff" * 17, b"\0" * 17], ids=len)
def test_garbage_under_the_marker_is_told(data: Path, garbage: bytes) -> None:
    """A broker overlooks it and appends behind it; the report says where it is, and the remedy works."""
    with open_log(data / "orders-0") as log:
        log.append(values(2))
        size = log.engine.active.size
    path = data / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + garbage)
    with open_log(data / "orders-0") as log:
        (told,) = log.report.actions
        assert (told.kind.value, told.is_damage, told.position) == ("garbage", True, size)
        assert f"bytes {size} to {size + len(garbage)}" in str(told)
        assert MARKER in told.remedy
    (data / MARKER).unlink()
    with open_log(data / "orders-0") as log:
        assert log.report.cut_bytes == len(garbage)
        log.append(values(1, 2))
        assert len(read_values(log)) == 3


def test_checkpoints_keep_other_partitions(data: Path) -> None:
    data.mkdir(parents=True)
    others = {("other", 3): 17, ("orders", 1): 4}
    for name in (POINTS, STARTS, MARKS):
        (data / name).write_bytes(encode_offset_checkpoint(others))
    (data / "meta.properties").write_text("version=1\n")
    with open_log(data / "orders-0", segment_bytes=1000) as log:
        for first in range(0, 100, 10):
            log.append(values(10, first))
        log.increment_log_start(15)
    assert checkpoint(data, POINTS) == {**others, ("orders", 0): 100}
    assert checkpoint(data, STARTS) == {**others, ("orders", 0): 15}
    assert checkpoint(data, MARKS) == {**others, ("orders", 0): 100}
    assert (data / "meta.properties").read_text() == "version=1\n"
    with open_log(data / "orders-0") as log:
        assert log.log_start_offset == 15
        log.delete()
    assert checkpoint(data, STARTS) == others
    assert not (data / "orders-0").exists()


def test_a_checkpoint_that_cannot_be_read(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_log(data / "orders-0").close()
    (data / POINTS).write_text("nonsense")
    with open_log(data / "orders-0") as log:
        log.append(values(1))
    assert "recovery-point-offset-checkpoint" in caplog.text
    assert checkpoint(data, POINTS) == {("orders", 0): 1}


def test_names_and_settings_are_checked(tmp_path: Path) -> None:
    for name in ("orders", "orders-x", "orders-01", "-1", "a b-1", "orders-1.0123456789abcdef0123456789abcdef-delete"):
        with pytest.raises(RequestError, match="is not a valid partition folder") as caught:
            open_log(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
    with pytest.raises(RequestError, match=r"unknown log setting 'segment\.byte'. Did you mean 'segment\.bytes'\?"):
        open_log(tmp_path / "orders-0", segment_byte=1)
    with pytest.raises(RequestError, match=r"segment\.bytes='x'"):
        open_log(tmp_path / "orders-0", **{"segment.bytes": "x"})
    with pytest.raises(RequestError, match="leader_epoch"):
        open_log(tmp_path / "orders-0", leader_epoch=-1)
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_opened_lets_go(data: Path) -> None:
    (data / "orders-0").mkdir(parents=True)
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("nonsense")
    before = threading.enumerate()
    with pytest.raises(CorruptionError, match="leader-epoch-checkpoint"):
        open_log(data / "orders-0")
    assert not (data / ".lock").exists()
    assert not (data / MARKER).exists()
    assert not begun_since(before)
    (data.parent / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/\.lock: cannot lock: Not a directory"):
        open_log(data.parent / "file" / "topic-0")


def test_topic_id(data: Path) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    open_log(data / "orders-0", topic_id=topic_id).close()
    assert topic_id in (data / "orders-0" / "partition.metadata").read_text()
    open_log(data / "orders-0").close()
    with pytest.raises(RequestError, match="topic id"):
        open_log(data / "orders-0", topic_id="AAAAAAAAAAAAAAAAAAAAAg")


# ---- one writer ----

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1] + "/.lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what Java's FileChannel.tryLock does
print("locked", flush=True)
sys.stdin.read()
"""

WRITER = """
import sys, pylogseg
log = pylogseg.open_log(sys.argv[1] + "/orders-1")
log.append([(1, None, b"mine")])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
@pytest.mark.parametrize("program", [HOLDER, WRITER], ids=["broker", "writer"])
def test_another_process_has_the_lock(data: Path, program: str) -> None:
    data.mkdir(parents=True)
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(StorageError, match=r"data/\.lock: cannot lock: .*has the lock.*stop it first"):
            open_log(data / "orders-0")
        assert not (data / "orders-0").exists()
        other.kill()
    with open_log(data / "orders-1") as log:  # the lock ends with its owner
        assert read_values(log) == ([b"mine"] if program is WRITER else [])


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_we_have_the_lock(data: Path) -> None:
    def attempt() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", HOLDER, str(data)], input="", capture_output=True, text=True)

    with open_log(data / "orders-0"):
        with open_log(data / "orders-1"):
            assert attempt().returncode == 1
        assert attempt().returncode == 1  # held until the last one goes
    assert attempt().returncode == 0


# ---- the end ----


def test_a_closed_log(data: Path) -> None:
    before = threading.enumerate()
    log = open_log(data / "orders-0")
    log.append(values(1))
    log.close()
    log.close()
    for use in (lambda: log.append(values(1)), log.read, lambda: log.engine.fetch(0), log.flush, log.engine.roll):
        with pytest.raises(ClosedError, match="orders-0: the log is closed"):
            use()
    assert "closed" in repr(log)
    assert not begun_since(before)


def test_an_error_in_the_block_is_the_one_that_is_seen(data: Path) -> None:
    with pytest.raises(KeyError), open_log(data / "orders-0"):
        raise KeyError
    assert (data / MARKER).exists()  # closed in order all the same


def test_an_interrupt_leaves_no_half_append(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ctrl-C comes between the writing of a batch and the new end of the log, nothing may follow it."""
    log = open_log(data / "orders-0")
    log.append(values(3))

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log.engine.epochs, "is_current", interrupt)  # before the batch is written
        with pytest.raises(KeyboardInterrupt):
            log.append(values(1))
    log.append(values(1, 3))
    with monkeypatch.context() as patch:
        patch.setattr(log.engine.active, "append_run", _then(log.engine.active.append_run, interrupt))
        with pytest.raises(KeyboardInterrupt):
            log.append(values(1, 4))
    with pytest.raises(StorageError, match="KeyboardInterrupt interrupted an append"):
        log.append(values(1, 4))
    with pytest.raises(StorageError):
        log.close()
    with open_log(data / "orders-0") as log:
        assert log.report.recovered_segments == 1
        assert read_values(log) == [value for _, _, value in values(5)]  # it was written, and not acknowledged


def _then(first: Callable[..., object], second: Callable[[], object]) -> Callable[..., object]:
    def both(*arguments: object) -> object:
        first(*arguments)
        return second()

    return both


def test_the_loggers_tell(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pylogseg")
    open_log(data / "orders-0").close_handles()
    open_log(data / "orders-0").close()
    said = [record.getMessage().replace(str(data), "") for record in caplog.records if "owned" in record.name]
    assert said[1::2] == ["/orders-0: closed, but not cleanly", "/orders-0: closed"]
    assert said[2].startswith("/orders-0: opened in ")
    assert said[2].endswith(" s, offsets 0 to 0, 0 repairs")


def test_a_cut_of_what_was_flushed_is_logged_as_a_loss(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_log(data / "orders-0") as log:
        log.append(values(3))
    (data / MARKER).unlink()
    file = data / "orders-0" / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[:-3])
    with caplog.at_level("WARNING", "pylogseg"), open_log(data / "orders-0") as log:
        (cut,) = [action for action in log.report.actions if action.kind is ActionKind.CUT]
    assert cut.is_damage
    assert "the recovery point says 3" in cut.reason
    assert str(cut) in [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_flush_by_time_and_checkpoints_in_the_background(data: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    scheduler = ManualScheduler(clock)
    log = open_log(data / "orders-0", clock=clock, scheduler=scheduler, flush_ms=1000)
    log.append(values(10))
    assert log.recovery_point == 0
    scheduler.advance(1000)
    assert (log.recovery_point, log.metrics().flushes) == (10, 1)
    scheduler.advance(1000)
    assert log.metrics().flushes == 1  # nothing came
    log.ownership.update_config(log.config.with_changes(flush_ms=10))
    log.append(values(10))
    scheduler.advance(10)
    assert log.recovery_point == 20
    scheduler.advance(5000)
    assert checkpoint(data, MARKS) == {("orders", 0): 20}
    assert not (data / POINTS).exists()
    scheduler.advance(60_000)
    assert checkpoint(data, POINTS) == {("orders", 0): 20}
    log.close()
    assert len(scheduler) == 0


def test_flush_by_time_with_a_real_thread(data: Path) -> None:
    with open_log(data / "orders-0", flush_ms=5) as log:
        log.append(values(10))
        wait_for(lambda: log.recovery_point == 10)


def test_metrics(log: EmbeddedLog) -> None:
    for first in range(0, 1000, 100):
        log.append(values(100, first))
    log.flush()
    list(log.read())
    found = log.metrics()
    assert (found.appends, found.records, found.duplicates, found.refusals) == (10, 1000, 0, 0)
    assert found.bytes == found.size_bytes == log.engine.segments.size
    assert found.segments == found.rolls + 1 == len(list(log.engine.segments))
    assert found.flushes >= 1
    assert found.flush_seconds >= found.longest_flush_seconds > 0
    assert found.append_seconds > 0
    assert found.roll_seconds > 0
    assert found.fetches > 0
    log.append(values(1))
    assert found.appends == 10  # a copy


def test_threads(data: Path) -> None:
    """Four writers and two readers: every append keeps its records together, readers see whole appends in order."""
    writers, rounds, count = 4, 60, 5
    failures: list[BaseException] = []
    with open_log(data / "orders-0", segment_bytes=3000, index_interval_bytes=50, file_delete_delay_ms=0) as log:

        def write(number: int) -> None:
            for i in range(rounds):
                done = log.append([(None, b"%d" % number, b"%d" % (i * count + j)) for j in range(count)])
                assert done.last_offset - done.first_offset == count - 1

        def read() -> None:
            offset = 0
            while offset < writers * rounds * count:
                for record in log.read(offset=offset):
                    assert record.offset == offset
                    offset += 1

        def guarded(work: object, *args: object) -> None:
            try:
                work(*args)  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(write, number)) for number in range(writers)]
        threads += [threading.Thread(target=guarded, args=(read,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        records = list(log.read())
        for number in range(writers):
            mine = [int(record.value or b"") for record in records if record.key == b"%d" % number]
            assert mine == list(range(rounds * count))
