"""Tests of disk/lineage/chains.py and disk/lineage/parts.py. Lineage against random histories of leaders, truncations
and uploads, and against the examples of Kafka's code.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from helpers.histories import History
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.disk.lineage.chains import Divergence, Lineage, add_epochs, divergence, epoch_runs
from pylogseg.disk.lineage.parts import LeftKind, LogRange, Piece, assemble, lineage_of
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.files.checkpoint import EpochEntry

seeds = st.integers(0, 2**32 - 1)


def epochs(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


def played(seed: int, steps: int = 40) -> History:
    history = History(random.Random(seed))
    for _ in range(steps):
        history.step()
    return history


def is_within(part: LogRange, lineage: Lineage) -> bool:
    """As Kafka's `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`: whether all of a part belongs to a lineage."""
    within = divergence(part.lineage, lineage)
    return within.epoch is not None and part.end_offset <= min(within.offset, lineage.end)


def first_difference(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)


@given(seeds)
def test_two_logs_part_where_their_records_do(seed: int) -> None:
    logs = played(seed).replicas
    for one in logs:
        for other in logs:
            found = divergence(one.lineage, other.lineage)
            truth = first_difference(one.records, other.records)
            if max(one.start, other.start) < truth:
                assert found.offset == truth, (one.lineage, other.lineage)
            else:  # where they are the same, one of them has nothing any more
                assert found.offset <= max(one.start, other.start, truth)


@given(seeds)
def test_parts_give_what_the_leader_has(seed: int) -> None:
    history = played(seed)
    led, uploads = history.led, history.uploads
    parts = [upload.part for upload in uploads]
    made = assemble(parts, led.lineage)
    position = led.start
    covered = sorted([(p.first_offset, p.end_offset) for p in made.pieces] + made.holes)
    for first, end in covered:
        assert first == position < end
        position = end
    assert position == led.end
    for number, first, end in made.pieces:
        low = parts[number].first_offset
        assert uploads[number].records[first - low : end - low] == [n for n, _ in led.records[first:end]]
    for first, end in made.holes:
        for offset in range(first, end):
            for part, upload in zip(parts, uploads, strict=True):
                if part.first_offset <= offset < part.end_offset:
                    assert upload.records[offset - part.first_offset] != led.records[offset][0]
    told = [(left.part, offset) for left in made.left for offset in range(left.first_offset, left.end_offset)]
    used = [(p.part, offset) for p in made.pieces for offset in range(p.first_offset, p.end_offset)]
    every = [(number, o) for number, part in enumerate(parts) for o in range(part.first_offset, part.end_offset)]
    assert sorted(told + used) == every  # nothing of a part goes in silence


@given(seeds)
def test_the_lineage_of_parts_alone(seed: int) -> None:
    history = played(seed)
    parts = [upload.part for upload in history.uploads]
    if not parts:
        return
    newest = max(range(len(parts)), key=lambda i: (parts[i].lineage.last_epoch, parts[i].end_offset))
    found = lineage_of(parts)
    assert found.last_epoch == parts[newest].lineage.last_epoch
    assert is_within(parts[newest], found)
    assert assemble(parts, found).pieces[-1].end_offset == found.end


def is_within_as_the_broker_says(part: LogRange, lineage: Lineage) -> bool:
    """The rules of `isRemoteSegmentWithinLeaderEpochs`, one after the other."""
    inside = part.lineage
    own = [e for e in inside.epochs if e.start_offset < part.end_offset]
    own = [e for i, e in enumerate(own) if i + 1 == len(own) or own[i + 1].start_offset > part.first_offset]
    own = [EpochEntry(e.epoch, max(e.start_offset, part.first_offset)) for e in own]
    theirs = dict(lineage.epochs)
    if not own or not theirs or not min(theirs) <= own[-1].epoch <= max(theirs):
        return False
    first = next((e.epoch for e in own if e.epoch >= min(theirs)), None)
    if first is None or first not in theirs:
        return False
    for number, (epoch, offset) in enumerate(own):
        if epoch < first:
            continue
        if epoch not in theirs or (epoch == first and epoch != min(theirs) and offset < theirs[epoch]):
            return False
        higher = min((e for e in theirs if e > epoch), default=None)
        if epoch == own[-1].epoch:
            if higher is not None and part.end_offset > theirs[higher]:
                return False
        elif higher is None or (higher, theirs[higher]) != tuple(own[number + 1]):
            return False
    return part.end_offset <= lineage.end


@given(seeds)
def test_within_as_the_broker_says(seed: int) -> None:
    history = played(seed, 60)
    for replica in history.replicas:
        for upload in history.uploads:
            if upload.part.end_offset <= replica.start:
                continue
            ours, theirs = (
                is_within(upload.part, replica.lineage),
                is_within_as_the_broker_says(upload.part, replica.lineage),
            )
            assert ours == theirs, (upload.part, replica.lineage)


def test_segments_of_two_leaders_overlap() -> None:
    """The example in the comments of the broker's code."""
    one, two = LogRange(5, 51, epochs((5, 10), (7, 15))), LogRange(14, 151, epochs((5, 14), (7, 15), (9, 100)))
    after = Lineage.of([(7, 51), (9, 100)], 51, 151)
    before = Lineage.of([(5, 10), (7, 15), (9, 100)], 5, 151)
    assert is_within(two, after)
    assert assemble([one, two], after).pieces == [Piece(1, 51, 151)]
    made = assemble([one, two], before)
    assert made.pieces == [Piece(0, 5, 51), Piece(1, 51, 151)]
    assert [(left[:3], left.kind) for left in made.left] == [((1, 14, 51), LeftKind.COPY)]


def test_a_lost_branch_is_named() -> None:
    lost = LogRange(30, 60, epochs((4, 0), (5, 40)))
    log = Lineage.of([(4, 0), (6, 45)], 0, 70)
    made = assemble([lost], log)
    assert made.pieces == [Piece(0, 30, 40)]
    assert made.holes == [(0, 30), (40, 70)]
    (left,) = made.left
    assert left[:4] == (0, 40, 60, LeftKind.BRANCH)
    assert left.reason == "at offset 40 it has leader epoch 5; the log has epoch 4, from offset 0 on"


def test_another_epoch_below_a_common_one() -> None:
    """A part gives nothing where it has another leader epoch than the log: so the broker looks it up."""
    other, own = LogRange(0, 27, epochs((1, 3), (5, 6))), LogRange(3, 20, epochs((0, 3), (5, 6)))
    log = Lineage.of([(0, 3), (5, 6)], 3, 27)
    made = assemble([other, own], log)
    assert made.pieces == [Piece(1, 3, 20), Piece(0, 20, 27)]
    assert [(left[:3], left.kind) for left in made.left] == [
        ((0, 0, 3), LeftKind.OUTSIDE), ((0, 3, 6), LeftKind.BRANCH), ((0, 6, 20), LeftKind.COPY)
    ]  # fmt: skip
    assert made.left[1].reason == "at offset 3 it has leader epoch 1; the log has epoch 0, from offset 3 on"
    assert assemble([other], log).holes == [(3, 6)]


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (Lineage.of([(0, 0)], 0, 10), Lineage.of([(0, 0)], 0, 7), Divergence(7, 0)),
        (Lineage.of([(0, 0), (2, 8)], 0, 20), Lineage.of([(0, 0), (1, 5), (2, 8)], 0, 9), Divergence(9, 2)),
        (Lineage.of([(0, 0), (2, 5)], 0, 5), Lineage.of([(0, 0)], 0, 9), Divergence(5, 0)),  # led, wrote nothing
        (Lineage.of([], 0, 5), Lineage.of([], 0, 9), Divergence(5, -1)),  # older than leader epochs
        (Lineage.of([], 0, 5), Lineage.of([(3, 2)], 0, 9), Divergence(2, -1)),
        (Lineage.of([(1, 0)], 0, 5), Lineage.of([(3, 5)], 5, 9), Divergence(5, None)),
        (Lineage.of([(1, 0)], 0, 5), Lineage.of([(3, 0)], 0, 9), Divergence(0, None)),
    ],
)
def test_divergence(a: Lineage, b: Lineage, found: Divergence) -> None:
    assert divergence(a, b) == divergence(b, a) == found


def test_epochs_without_records_go() -> None:
    log = Lineage.of([(3, 10), (1, 0), (2, 10), (9, 40)], 0, 30)
    assert log.epochs == epochs((1, 0), (3, 10))
    assert log.ends() == {1: 10, 3: 30}
    assert [log.epoch_at(offset) for offset in (0, 9, 10)] == [1, 1, 3]
    assert log.shorten(10) == Lineage(epochs((1, 0)), 0, 10)


def test_the_lowest_rank_is_taken() -> None:
    chain = epochs((0, 0))
    parts = [LogRange(0, 10, chain, 1), LogRange(3, 5, chain, 0), LogRange(20, 30, chain, 0), LogRange(0, 30, chain, 2)]
    made = assemble(parts, Lineage(chain, 0, 30))
    assert made.pieces == [Piece(0, 0, 3), Piece(1, 3, 5), Piece(0, 5, 10), Piece(3, 10, 20), Piece(2, 20, 30)]


def test_a_part_that_knows_the_epoch_is_taken_first() -> None:
    """As a broker, which finds a segment by the epoch of an offset: what lost that epoch from its list has others."""
    lineage = Lineage.of(epochs((2, 19), (4, 33), (5, 47)), 19, 50)
    parts = [LogRange(0, 33, epochs((0, 0), (2, 14))), LogRange(19, 50, epochs((4, 33), (5, 47)))]
    assert assemble(parts, lineage).pieces == [Piece(0, 19, 33), Piece(1, 33, 50)]
    assert assemble(parts[1:], lineage).pieces == [Piece(0, 19, 50)]


@given(st.lists(st.integers(-1, 5)), st.data())
def test_epochs_of_batches_are_those_that_no_later_batch_contradicts(leaders: list[int], data: st.DataObject) -> None:
    rows = np.zeros(len(leaders), BATCH_DTYPE)
    rows["magic"], rows["leader_epoch"], rows["base_offset"] = 2, leaders, np.arange(len(leaders))
    cut = data.draw(st.integers(0, len(leaders)))
    found: list[EpochEntry] = []
    for part in (rows[:cut], rows[cut:]):
        add_epochs(found, epoch_runs(BatchTable(part)))
    known = [(offset, epoch) for offset, epoch in enumerate(leaders) if epoch >= 0]
    lowest = [(min(epoch for _, epoch in known[at:]), offset) for at, (offset, _) in enumerate(known)]
    assert found == [pair for at, pair in enumerate(lowest) if not at or pair[0] > lowest[at - 1][0]]
