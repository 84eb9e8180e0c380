"""Tests of log/leader_epochs.py. Leader epochs against a plain model, Kafka's own cases, and when
the file is written.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.memory_files import MemoryFiles
from hypothesis import given
from hypothesis import strategies as st
from reference import epochs as model

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.log.leader_epochs import LeaderEpochs

PATH = "t-0/leader-epoch-checkpoint"
Pairs = list[tuple[int, int]]


class Later:
    """Keeps what is scheduled until it is run."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def __call__(self, name: str, task: Callable[[], None]) -> None:
        assert name.startswith("leader-epoch-cache-flush")
        self.tasks.append(task)

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


def epochs_of(*pairs: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(MemoryFiles(), PATH, Later())
    for pair in pairs:
        found.assign(*pair)
    return found


def pairs_of(epochs: LeaderEpochs) -> Pairs:
    return [tuple(entry) for entry in epochs.entries]


small = st.integers(0, 12)
steps = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start", "clear", "reopen"]), small, st.integers(-1, 12)), max_size=30
)


@given(steps)
def test_like_the_model(todo: list[tuple[str, int, int]]) -> None:
    files, later = MemoryFiles(), Later()
    epochs = LeaderEpochs(files, PATH, later)
    pairs: Pairs = []
    for step, first, second in todo:
        if step == "assign" and second >= 0:
            before = pairs
            pairs = model.assign(pairs, first, second)
            assert epochs.assign(first, second) == (pairs is not before)
        elif step == "end":
            pairs = model.truncate_from_end(pairs, second)
            epochs.truncate_from_end(second)
        elif step == "start" and second >= 0:
            pairs = model.truncate_from_start(pairs, second)
            epochs.truncate_from_start(second)
        elif step == "clear":
            pairs = []
            epochs.clear()
        elif step == "reopen":
            later.run()
            epochs = LeaderEpochs(files, PATH, later)
        assert pairs_of(epochs) == pairs
        assert epochs.latest_epoch == (pairs[-1][0] if pairs else -1)
        for number in range(-1, 14):
            assert epochs.end_offset_for(number, 99) == model.end_offset_for(pairs, number, 99)
            assert epochs.epoch_for_offset(number) == model.epoch_for_offset(pairs, number)


@pytest.mark.parametrize(
    ("pairs", "asked", "answer"),
    [
        ([(5, 11), (6, 12), (7, 13)], 4, (4, 11)),
        ([(2, 6), (3, 8), (4, 11)], -1, (-1, -1)),
        ([(2, 6), (3, 8), (4, 11)], 5, (-1, -1)),
        ([(2, 6), (3, 8), (4, 11)], 4, (4, 99)),
        ([(0, 10), (2, 13), (4, 17)], 1, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, (2, 17)),
        ([], 0, (-1, -1)),
    ],
)
def test_end_offsets(pairs: Pairs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs_of(*pairs).end_offset_for(asked, 99) == answer


@pytest.mark.parametrize(
    ("where", "offset", "left"),
    [
        ("end", 8, [(2, 6)]),
        ("end", 9, [(2, 6), (3, 8)]),
        ("end", -1, [(2, 6), (3, 8), (4, 11)]),
        ("start", 8, [(3, 8), (4, 11)]),
        ("start", 9, [(3, 9), (4, 11)]),
        ("start", 1, [(2, 6), (3, 8), (4, 11)]),
        ("start", 6, [(2, 6), (3, 8), (4, 11)]),
        ("start", 11, [(4, 11)]),
        ("start", 15, [(4, 15)]),
    ],
)
def test_truncations(where: str, offset: int, left: Pairs) -> None:
    epochs = epochs_of((2, 6), (3, 8), (4, 11))
    getattr(epochs, f"truncate_from_{where}")(offset)
    assert pairs_of(epochs) == left


def test_assignments() -> None:
    assert pairs_of(epochs_of((2, 10), (2, 11))) == [(2, 10)]
    assert pairs_of(epochs_of((2, 6), (3, 6))) == [(3, 6)]
    assert pairs_of(epochs_of((2, 6), (3, 7), (1, 8))) == [(1, 8)]
    for pair in ((-1, 5), (3, -1)):
        with pytest.raises(RequestError, match="leader epoch"):
            epochs_of(pair)


def test_when_it_writes() -> None:
    files, later = MemoryFiles(), Later()
    epochs = LeaderEpochs(files, PATH, later)
    assert files.done == [("plain", PATH)]
    assert files.files[PATH] == b""
    epochs.assign(1, 5)
    epochs.assign(1, 9)  # no news
    assert files.files[PATH] == b"0\n1\n1 5\n"
    assert files.done[1:] == [("whole", PATH)]
    epochs.assign(2, 20)
    epochs.truncate_from_end(15)
    assert len(parse_leader_epochs(files.files[PATH])) == 2, "the file follows in the background"
    epochs.truncate_from_start(5)
    assert len(later.tasks) == 2, "the first entry is dropped and put back"
    epochs.truncate_from_end(15)
    assert len(later.tasks) == 2
    later.run()
    assert files.files[PATH] == b"0\n1\n1 5\n"
    epochs.clear(flush=False)
    assert files.files[PATH] == b"0\n1\n1 5\n"
    epochs.clear()
    assert files.files[PATH] == b"0\n0\n"


def test_loads_as_it_assigns() -> None:
    thinned = LeaderEpochs(MemoryFiles({PATH: b"0\n3\n3 8\n2 6\n4 9\n"}), PATH, Later())
    assert pairs_of(thinned) == [(2, 6), (4, 9)]
    with pytest.raises(CorruptionError):
        LeaderEpochs(MemoryFiles({PATH: b"0\n1\nx y\n"}), PATH, Later())
    with pytest.raises(RequestError):
        LeaderEpochs(MemoryFiles({PATH: b"0\n1\n-1 5\n"}), PATH, Later())
