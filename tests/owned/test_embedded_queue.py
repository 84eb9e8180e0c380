"""Tests of _native/_reads.pyx, owned/log.py, owned/producer.py and owned/slices.py. An open log as a queue: following
it, idempotent producers, transactions, sockets, forks, kills.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import wait_for

from pylogseg import EmbeddedLog, encode, open_log, read, scan
from pylogseg.errors import (
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RequestError,
    StorageError,
    TransactionStateError,
)
from pylogseg.owned.slices import SliceReader
from pylogseg.reading.state import Reading
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "order_queue.py"
NOW = 1_700_000_000_000


def values(count: int, first: int = 0) -> list[tuple[None, bytes, bytes]]:
    """Records to append."""
    return [(None, b"k", b"value %d" % i) for i in range(first, first + count)]


def read_values(log: EmbeddedLog, **options: Any) -> list[bytes | None]:
    return [record.value for record in log.read(**options)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def log(data: Path) -> Iterator[EmbeddedLog]:
    with open_log(data / "orders-0", segment_bytes=10_000) as log:
        yield log


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """Run work beside the test; its result or its error comes into the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


# ---- following ----


def test_a_close_ends_who_follows_wherever_that_is(tmp_path: Path) -> None:
    for turn in range(20):
        log = open_log(tmp_path / f"orders-{turn}", segment_bytes=2000)
        log.append(values(50))
        followers = [in_thread(lambda log=log: sum(1 for _ in log.follow())) for _ in range(3)]
        log.append(values(50))
        log.close()
        for thread, results in followers:
            thread.join(60)
            assert isinstance(results[0], int), results
            assert 0 <= results[0] <= 100


def test_follow_gives_what_comes(log: EmbeddedLog) -> None:
    log.append(values(3))
    seen: list[bytes | None] = []
    thread, _ = in_thread(lambda: seen.extend(record.value for record in log.follow(1)))
    wait_for(lambda: len(seen) == 2)
    assert thread.is_alive()  # it waits for the next one
    got: list[bytes | None] = []

    def collect() -> None:
        for record in log.follow():
            got.append(record.value)
            if len(got) == 103:
                return

    follower, results = in_thread(collect)
    for first in range(3, 103, 10):
        log.append(values(10, first))
        time.sleep(0.001)
    follower.join(60)
    assert results == [None]
    assert got == [value for _, _, value in values(103)]
    wait_for(lambda: len(seen) == 102)  # a log that is closed ends those who follow it, wherever they are
    log.close()
    thread.join(60)
    assert not thread.is_alive()
    assert seen == got[1:]


def test_records_that_came_after_a_slice_was_planned_are_not_passed_over(log: EmbeddedLog) -> None:
    log.append(values(3))
    log.append(values(3, 3))
    # A fetch reads up to the end of the log now; the range ends where it was when the follower looked.
    reader = SliceReader(log.engine, 0, 3, Reading().start())
    assert [len(chunk.columns) for chunk in reader] == [3]
    assert reader.position == 3


def test_follow_with_a_timeout(log: EmbeddedLog) -> None:
    log.append(values(3))
    assert [record.offset for record in log.follow(1, timeout=0)] == [1, 2]
    begun = time.monotonic()
    assert list(log.follow(log.high_watermark, timeout=0.05)) == []
    assert time.monotonic() - begun >= 0.05
    follower = log.follow(timeout=0)
    assert len(list(follower)) == len(list(follower)) == 3
    assert sum(len(chunk.columns) for chunk in log.follow(timeout=0).chunks()) == 3
    assert [record.key for record in log.follow(timeout=0, columns=["value"])] == [None] * 3
    with pytest.raises(RequestError, match="timeout"):
        log.follow(timeout=-1)


def test_follow_says_what_it_missed(log: EmbeddedLog) -> None:
    for first in range(0, 100, 10):
        log.append(values(10, first))
    log.increment_log_start(50)
    for offset in (49, 101):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset}: the log has 50 to 100"):
            next(iter(log.follow(offset)))
    follower = iter(log.follow())
    assert next(follower).offset == 50
    log.truncate_to(60)
    with pytest.raises(OffsetOutOfRangeError):
        list(follower)


def test_follow_committed_records(log: EmbeddedLog) -> None:
    producer = log.producer(1)
    producer.begin()
    producer.append(values(2))
    log.append(values(2, 2))
    assert list(log.follow(timeout=0, isolation_level="read_committed")) == []
    first, results = in_thread(lambda: next(iter(log.follow(isolation_level="read_committed"))).value)
    assert [r.value for r in log.follow(timeout=0)] == [value for _, _, value in values(4)]
    producer.abort()
    first.join(60)
    assert results == [b"value 2"]


def test_follow_ends_with_the_disk() -> None:
    storage = FaultyStorage(MemoryStorage())
    log = open_log("/data/orders-0", storage=storage)
    log.append(values(1))
    follower, results = in_thread(lambda: list(log.follow()))
    wait_for(lambda: log.ownership._waiters.count == 1)
    storage.fail_at = storage.count + 1
    with pytest.raises(StorageError):
        log.append(values(1))
    follower.join(60)
    assert isinstance(results[0], StorageError)
    with pytest.raises(StorageError):
        log.close()
    log.close()


# ---- producers ----


def test_duplicates_are_answers(log: EmbeddedLog) -> None:
    producer = log.producer(7)
    first = producer.append(values(3))
    assert (first.first_offset, first.last_offset, first.is_duplicate) == (0, 2, False)
    assert producer.next_sequence == 3
    again = producer.append(values(3), sequence=0)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (0, 2, True)
    assert log.log_end_offset == 3
    assert log.metrics().duplicates == 1
    producer.append(values(1, 3), sequence=3)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 5, the last one is 3"):
        producer.append(values(1), sequence=5)
    with pytest.raises(RequestError, match="expected a sequence between"):
        producer.append(values(1), sequence=-1)
    assert producer.next_sequence == 4
    assert log.producer(7) is producer
    assert repr(producer) == "Producer(7, epoch 0, next sequence 4)"
    assert producer.append([]).first_offset == -1


def test_producers_go_on_after_a_restart(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.producer(7).append(values(100), batch_bytes=200)
        log.producer(8).append(values(5))
        size = log.engine.segments.size
    for close in (EmbeddedLog.close, EmbeddedLog.close_handles, EmbeddedLog.close):
        log = open_log(data / "orders-0")
        producer = log.producer(7)
        assert (producer.next_sequence, producer.epoch) == (100, 0)
        assert log.producer(8).append(values(5), sequence=0).is_duplicate
        assert log.engine.segments.size == size
        close(log)


def test_a_producer_that_was_forgotten_goes_on(log: EmbeddedLog) -> None:
    producer = log.producer(7)
    producer.append([(1_000_000, None, b"old")])  # it is the record's time that counts
    assert producer.next_sequence == 1
    log.engine.producers.expire(log.engine.clock.now_ms())
    assert 7 not in log.engine.producers.active
    assert producer.next_sequence == 1
    assert producer.append(values(1)).first_offset == 1


@pytest.mark.parametrize("batch_bytes", [1, 10_000])
def test_sequences_wrap(log: EmbeddedLog, batch_bytes: int) -> None:
    """From 2^31 - 1 they go on at 0, between batches and inside of one."""
    producer = log.producer(7)
    producer.append(values(1), sequence=2**31 - 3)
    producer.append(values(5), batch_bytes=batch_bytes)
    assert producer.next_sequence == 3
    assert producer.append(values(5), sequence=2**31 - 2, batch_bytes=batch_bytes).is_duplicate
    assert producer.append(values(1)).first_offset == 6


def test_producer_wants_records(log: EmbeddedLog) -> None:
    with pytest.raises(RequestError, match=r"EmbeddedLog\.append_batch"):
        log.producer(1).append(encode(values(1)))
    for wrong in (-1, 2**63):
        with pytest.raises(RequestError, match="producer id"):
            log.producer(wrong)


def test_two_threads_share_a_producer(log: EmbeddedLog) -> None:
    producer = log.producer(1)
    threads = [in_thread(lambda: [producer.append(values(3)) for _ in range(50)]) for _ in range(3)]
    for thread, _ in threads:
        thread.join(60)
    assert all(not done.is_duplicate for _, results in threads for done in results[0])
    assert producer.next_sequence == 450 == log.log_end_offset


# ---- transactions ----


def test_transactions(log: EmbeddedLog) -> None:
    producer = log.producer(1)
    log.append([(None, None, b"plain")])
    with producer.transaction():
        producer.append([(None, None, b"a")])
        producer.append([(None, None, b"b")])
        assert log.last_stable_offset == 1
        assert log.open_transactions() == {1: 1}
        assert producer.has_open_transaction
    with contextlib.suppress(KeyError), producer.transaction():
        producer.append([{"value": b"never"}])
        raise KeyError
    producer.append([(None, None, b"c")])
    assert read_values(log, isolation_level="read_committed") == [b"plain", b"a", b"b", b"c"]
    assert read_values(log) == [b"plain", b"a", b"b", b"never", b"c"]
    assert [record.offset for record in log.read(control=True)] == list(range(7))
    assert log.open_transactions() == {}
    assert log.last_stable_offset == log.high_watermark == 7


def test_transactions_over_segments(data: Path) -> None:
    """Aborted ones are found wherever a reader begins, in the order of the log."""
    random_ = random.Random(5)
    with open_log(data / "orders-0", segment_bytes=700, index_interval_bytes=0) as log:
        want: list[tuple[int, bytes]] = []
        for i in range(100):
            producer, commits = log.producer(random_.randrange(3)), random_.random() < 0.5
            kept = []
            producer.begin()
            for j in range(random_.randrange(4)):
                value = b"%d.%d" % (i, j)
                kept.append((producer.append([(None, None, value)]).first_offset, value))
                log.append([(None, None, b"between")])
                kept.append((log.log_end_offset - 1, b"between"))
            if commits:
                producer.commit()
            else:
                producer.abort()
                kept = kept[1::2]
            want += kept
        assert len(list(log.engine.segments)) > 20
        assert [(r.offset, r.value) for r in log.read(isolation_level="read_committed")] == want
        for first in range(0, log.high_watermark, 37):
            some = [(r.offset, r.value) for r in log.read(offset=(first, first + 50), isolation_level="read_committed")]
            assert some == [(offset, value) for offset, value in want if first <= offset < first + 50]
    from_files = read(data / "orders-0", isolation_level="read_committed")
    assert [(r.offset, r.value) for r in from_files] == want


def test_wrong_use_of_transactions(log: EmbeddedLog) -> None:
    producer = log.producer(1)
    for end in (producer.commit, producer.abort):
        with pytest.raises(TransactionStateError, match="no transaction"):
            end()
    producer.begin()
    with pytest.raises(TransactionStateError, match=r"commit\(\) or abort\(\) it first"):
        producer.begin()
    producer.commit()  # of nothing
    assert log.log_end_offset == 0


def test_a_transaction_that_a_crash_left(data: Path) -> None:
    log = open_log(data / "orders-0")
    producer = log.producer(1)
    producer.begin()
    producer.append(values(2))
    log.close_handles()
    with open_log(data / "orders-0") as log:
        log.append(values(1, 2))
        assert read_values(log, isolation_level="read_committed") == []
        producer = log.producer(1)
        with pytest.raises(TransactionStateError, match="since offset 0"):
            producer.begin()
        with pytest.raises(TransactionStateError):
            producer.append(values(1))
        for number in log.open_transactions():
            log.producer(number).abort()
        assert read_values(log, isolation_level="read_committed") == [b"value 2"]
        with producer.transaction():
            producer.append(values(1, 3))
        assert read_values(log, isolation_level="read_committed") == [b"value 2", b"value 3"]


# ---- sockets ----


def receive(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_send_to(data: Path, timeout: float | None) -> None:
    with open_log(data / "orders-0", segment_bytes=300_000) as log:
        for first in range(0, 40_000, 1000):
            log.append(values(1000, first), batch_bytes=5000)
        ours, theirs = socket.socketpair()
        ours.settimeout(timeout)
        receiver, results = in_thread(lambda: receive(theirs))
        offset, calls = 0, 0
        while offset < log.high_watermark:
            sent = log.send_to(ours, offset, 200_000)
            assert 0 < sent.bytes <= 200_000
            assert sent.aborted is None
            offset, calls = sent.next_offset, calls + 1
        assert log.send_to(ours, offset) == (0, offset, None)
        ours.close()
        receiver.join(60)
        files = b"".join(Path(segment.path).read_bytes() for segment in log.engine.segments)
        assert results == [files]
        assert calls >= 5
        assert scan(results[0]).batches.last_offset[-1] == 39_999


def test_send_to_sends_whole_batches(log: EmbeddedLog) -> None:
    producer = log.producer(1)
    producer.begin()
    for first in range(0, 100, 10):
        log.append(values(10, first))
    producer.append(values(1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        one = log.send_to(ours, 15, 1)
        assert one.next_offset == 20
        batches = scan(theirs.recv(1 << 16)).batches
        assert (len(batches), batches.base_offset[0], batches.size[0]) == (1, 10, one.bytes)
        assert log.send_to(ours, 0, one.bytes * 5 // 2).next_offset == 20
        committed = log.send_to(ours, 0, isolation_level="read_committed")
        assert (committed.next_offset, committed.aborted) == (100, [])
        producer.abort()
        assert log.send_to(ours, 100, isolation_level="read_committed").aborted == [(1, 100)]
        ours.setblocking(False)
        with pytest.raises(RequestError, match="non-blocking sockets are not supported"):
            log.send_to(ours, 0)
        with pytest.raises(OffsetOutOfRangeError):
            log.send_to(theirs, 1000)


def test_send_to_a_peer_that_does_not_read(data: Path) -> None:
    with open_log(data / "orders-0") as log:
        log.append([(None, None, bytes(1000)) for _ in range(5000)])
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(0.05)
            with pytest.raises(TimeoutError):
                log.send_to(ours, 0, 10 << 20)
        with pytest.raises(OSError, match=r"."):
            log.send_to(ours, 0)
        log.append(values(1))  # a socket's error is none of the disk


def test_send_to_does_not_go_past_tls(log: EmbeddedLog) -> None:
    """`sendfile` would send plain bytes below the encryption."""
    log.append(values(10))
    context = [ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
    for one in context:
        one.check_hostname, one.verify_mode, one.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
        try:
            one.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
        except ssl.SSLError:
            pytest.skip("no cipher without certificates")
    ours, theirs = socket.socketpair()

    def receive_and_part() -> bytes:
        with context[1].wrap_socket(theirs) as decrypted:
            found = receive(decrypted)
            decrypted.unwrap()
            return found

    peer, results = in_thread(receive_and_part)
    with context[0].wrap_socket(ours, server_side=True) as encrypted:
        sent = log.send_to(encrypted, 0)
        encrypted.unwrap()  # an end without a word is an error to some versions of OpenSSL
    peer.join(60)
    assert results == [Path(log.engine.active.path).read_bytes()]
    assert len(results[0]) == sent.bytes


# ---- forks and kills ----


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_keeps_away(data: Path) -> None:
    program = f"""
import os, sys, pylogseg
from pylogseg.errors import ClosedError, StorageError
log = pylogseg.open_log({str(data / "orders-0")!r})
log.append([(None, None, b"parent")])
child = os.fork()
if not child:
    try:
        log.append([(None, None, b"child")])
    except ClosedError:
        try:
            pylogseg.open_log({str(data / "orders-1")!r})
        except StorageError as error:
            log.close()
            os._exit(0 if f"process {{os.getppid()}} has the lock" in str(error) or sys.platform != "linux" else 3)
    os._exit(4)
assert os.waitpid(child, 0)[1] == 0
log.append([(None, None, b"parent again")])
log.close()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with open_log(data / "orders-0") as log:
        assert log.report.actions == []
        assert read_values(log) == [b"parent", b"parent again"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_the_example_survives_kills(tmp_path: Path) -> None:
    """Killed again and again, the queue loses no order, doubles none, and hands out results in order."""
    lines: list[str] = []
    orders = tmp_path / "orders.txt"
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "data"), str(orders)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    choose = random.Random(3)
    cut_short = turns = 0
    while cut_short < 4:
        assert (turns := turns + 1) <= 40
        lines += [f"order {i} {'x' * (i % 50)}" for i in range(len(lines), len(lines) + 1000)]
        orders.write_text("".join(f"{line}\n" for line in lines))
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert run.stdout is not None
        assert run.stdout.readline()  # it is at work
        time.sleep(choose.random() * 0.05)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=60)
        cut_short += run.returncode == -signal.SIGKILL  # or it was ready: a machine may let us wait
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with open_log(tmp_path / "data" / "results-0") as results, open_log(tmp_path / "data" / "orders-0") as log:
        assert [(record.value or b"").decode() for record in log.read()] == lines
        assert [(record.value or b"").decode() for record in results.read()] == [line.upper() for line in lines]
