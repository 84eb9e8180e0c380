"""Tests of env/executor.py and env/handover.py. Threads: order, bounded memory, errors, and the end of it all."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from helpers.checks import begun_since

from pylogseg.env.executor import Advance, Cancelled, Threads, Workload


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_results_in_order(jobs: int) -> None:
    def work(item: int, advance: Advance) -> int:
        time.sleep(0.001 * (item % 3))
        advance(item)
        return item * item

    done: list[int] = []
    assert list(Threads(jobs).map(work, range(50), Workload(on_bytes=done.append))) == [n * n for n in range(50)]
    assert sum(done) == sum(range(50))


@pytest.mark.parametrize("jobs", [1, 3])
def test_items_are_taken_as_they_are_needed(jobs: int) -> None:
    taken = itertools.count()
    results = Threads(jobs).map(lambda item, advance: item, (next(taken) for _ in range(1000)))
    for _ in range(5):
        next(results)
    results.close()
    assert next(taken) <= 5 + 2 * jobs + 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_first_error_in_order_is_raised(jobs: int) -> None:
    def work(item: int, advance: Advance) -> int:
        if item >= 5:
            raise ValueError(item)
        return item

    results = Threads(jobs).map(work, range(100))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="5"):
        next(results)


def test_running_jobs_end_when_the_caller_stops() -> None:
    ended: list[str] = []
    begun = threading.Event()
    before = threading.enumerate()

    def work(item: int, advance: Advance) -> int:
        if item == 0:
            assert begun.wait(60)
            return 0
        begun.set()
        try:
            while True:
                advance(1)
                time.sleep(0.001)
        except Cancelled:
            ended.append("cancelled")
            raise

    results = Threads(2).map(work, range(100))
    assert next(results) == 0
    results.close()
    assert ended
    assert not begun_since(before)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_streams_in_order(jobs: int) -> None:
    def work(item: int, emit: Callable[[bytes], None], advance: Advance) -> int:
        for n in range(item):
            emit(b"%d.%d" % (item, n))
            advance(1)
        return item

    expected: list[bytes | int] = []
    for item in range(20):
        expected += [b"%d.%d" % (item, n) for n in range(item)]
        expected.append(item)
    assert list(Threads(jobs, pieces_ahead=3).stream(work, range(20))) == expected


def test_a_stream_waits_for_its_turn() -> None:
    """A job that is ahead holds a few pieces, not all."""
    given: dict[int, int] = {0: 0, 1: 0}

    def work(item: int, emit: Callable[[bytes], None], advance: Advance) -> int:
        for _ in range(1000):
            emit(b"x")
            given[item] += 1
        return item

    results = Threads(2, pieces_ahead=4).stream(work, range(2))
    assert next(results) == b"x"
    time.sleep(0.2)
    assert given[0] <= 6
    assert given[1] <= 5
    assert sum(1 for _ in results) == 2 * 1000 - 1 + 2


def test_an_error_in_a_stream_comes_behind_its_pieces() -> None:
    def work(item: int, emit: Callable[[bytes], None], advance: Advance) -> int:
        emit(b"piece")
        raise ValueError(item)

    results = Threads(2).stream(work, range(4))
    assert next(results) == b"piece"
    with pytest.raises(ValueError, match="0"):
        next(results)


def test_streams_end_when_the_caller_stops() -> None:
    before = threading.enumerate()

    def work(item: int, emit: Callable[[bytes], None], advance: Advance) -> int:
        while True:
            emit(b"x")

    results = Threads(3, pieces_ahead=2).stream(work, itertools.count())
    assert next(results) == b"x"
    results.close()
    assert not begun_since(before)


def test_a_job_that_is_done_at_once_has_room_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's thread alone takes the pieces, so it must not be the one that waits for room."""
    submit = ThreadPoolExecutor.submit

    def submit_slowly(pool: ThreadPoolExecutor, *given: Any) -> Future[Any]:
        job = submit(pool, *given)
        wait([job], 0.3)  # as where the system lets the other threads go first
        return job

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_slowly)

    def work(item: int, emit: Callable[[bytes], None], advance: Advance) -> int:
        for _ in range(4):
            emit(b"x")
        return item

    found: list[Any] = []
    threads = Threads(2, pieces_ahead=4)
    run = threading.Thread(target=lambda: found.extend(threads.stream(work, range(3))), daemon=True)
    run.start()
    run.join(60)
    assert found == [item for number in range(3) for item in [b"x"] * 4 + [number]]


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_things_of_items_in_order(jobs: int) -> None:
    def work(item: int) -> Iterator[tuple[int, int]]:
        for part in range(item % 4):
            time.sleep(0.0005 * (item % 3))
            yield item, part

    found = list(Threads(jobs).flat(work, range(60)))
    assert found == [(item, part) for item in range(60) for part in range(item % 4)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_caller_works_too(jobs: int) -> None:
    """As many threads as jobs, the caller's among them, and items that are taken as they are needed."""
    taken, threads, before = itertools.count(), set(), threading.enumerate()

    def work(item: int) -> Iterator[int]:
        threads.add(threading.current_thread().name)
        time.sleep(0.002)
        yield item

    found = Threads(jobs).flat(work, (next(taken) for _ in range(1000)))
    assert next(found) == 0
    assert not begun_since(before), "the first item needs no other thread"
    assert [next(found) for _ in range(39)] == list(range(1, 40))
    assert (jobs > 1) <= len(begun_since(before)) <= jobs - 1
    found.close()  # type: ignore[attr-defined]
    assert not begun_since(before)
    assert threading.current_thread().name in threads
    assert len(threads) <= jobs
    assert next(taken) <= 40 + 2 * jobs


def test_the_caller_goes_on_behind_what_it_waits_for() -> None:
    """While another thread is at the next item, the caller does those behind it."""
    begun, behind, others = threading.Event(), threading.Event(), threading.get_ident()

    def work(item: int) -> Iterator[int]:
        if threading.get_ident() != others:
            begun.set()
            assert behind.wait(60)
        elif item:
            assert begun.wait(60)
            behind.set()
        else:
            yield -1
            assert begun.wait(0) is False
        yield item

    assert list(Threads(2).flat(work, range(30))) == [-1, *range(30)]
    assert begun.is_set()


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_an_error_comes_where_its_things_would(jobs: int) -> None:
    def work(item: int) -> Iterator[int]:
        yield item
        if item >= 7:
            raise ValueError(item)

    found = Threads(jobs).flat(work, range(100))
    assert list(itertools.islice(found, 8)) == list(range(8))
    with pytest.raises(ValueError, match="7"):
        list(found)
