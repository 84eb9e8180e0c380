"""Tests of server/writing/transactions.py. The state machine of transactions against a model, and against rules that
Kafka states (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers.depth import draws
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.server.writing.transactions import (
    LAST_EPOCH,
    MOST_TIMEOUT_MS,
    NOBODY,
    ProducerIdAndEpoch,
    Transaction,
    TransactionEnd,
    TransactionState,
    check_timeout,
)

PLACES = [("a", 0), ("a", 1), ("b", 0)]


def code_of(work: Any) -> int:
    try:
        work()
    except KafkaError as error:
        return error.code
    return codes.NONE


class Model(RuleBasedStateMachine):
    """Clients that take each other's place, and a log of what is written for them.

    The model knows who the current client is, what it has added since its last end, and whether markers are missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms, self.timeout_ms = 0, 1000
        self.ids = itertools.count(100)
        self.machine = Transaction("t", ProducerIdAndEpoch(next(self.ids), -1), self.timeout_ms)
        self.current = NOBODY
        self.fenced: list[ProducerIdAndEpoch] = []
        self.added: set[tuple[str, int]] | None = None
        self.began_ms = 0
        self.prepared: TransactionEnd | None = None
        self.written: list[TransactionEnd] = []

    def _new_id(self) -> int:
        return next(self.ids)

    def _fence(self) -> None:
        if self.current != NOBODY:
            self.fenced.append(self.current)
        self.current = NOBODY

    def _write(self) -> None:
        """Write the markers that a transaction needs."""
        assert self.prepared is not None
        assert set(self.prepared.places) == (self.added or set())
        assert self.machine.ending() == self.prepared, "a restart writes the same markers"
        self.written.append(self.prepared)
        self.machine.complete(self.now_ms)
        self.added, self.prepared = None, None

    @rule(goes_on=st.booleans())
    def init(self, goes_on: bool) -> None:
        given = self.current if goes_on else NOBODY
        if self.prepared is not None:
            assert code_of(lambda: self.machine.init(self.now_ms, self.timeout_ms, given, self._new_id)) == (
                codes.CONCURRENT_TRANSACTIONS
            )
            return
        before = self.machine.producer
        ending = self.machine.init(self.now_ms, self.timeout_ms, given, self._new_id)
        assert (ending is not None) == (self.added is not None)
        if ending is not None:
            assert not ending.commits
            assert ending.producer == ProducerIdAndEpoch(before.id, before.epoch + 1)
            self.prepared = ending
            self._write()
            assert self.machine.init(self.now_ms, self.timeout_ms, NOBODY, self._new_id) is None
        self._fence()
        self.current = self.machine.producer
        assert self.current != before

    @precondition(lambda self: self.current != NOBODY)
    @rule(places=st.sets(st.sampled_from(PLACES), min_size=1))
    def add(self, places: set[tuple[str, int]]) -> None:
        found = code_of(lambda: self.machine.add(self.now_ms, self.current, places))
        if self.prepared is not None:
            assert found == codes.CONCURRENT_TRANSACTIONS
            return
        assert found == codes.NONE
        if self.added is None:
            self.added, self.began_ms = set(), self.now_ms
        self.added |= places

    @precondition(lambda self: self.current != NOBODY and self.prepared is None)
    @rule(commits=st.booleans(), version=st.sampled_from([0, 2]), delayed=st.booleans())
    def end(self, commits: bool, version: int, delayed: bool) -> None:
        before = self.current

        def end() -> TransactionEnd | None:
            return self.machine.end(
                self.now_ms, before, commits=commits, version=version, new_id=self._new_id
            )  # fmt: skip

        if self.added is None:
            finished = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
            if version < 2:
                expected = codes.NONE if self.machine.state is finished else codes.INVALID_TXN_STATE
                assert code_of(end) == expected
                return
            if commits:
                assert code_of(end) == codes.INVALID_TXN_STATE
                return
        ending = end()
        assert ending is not None
        assert (ending.commits, ending.version) == (commits, version)
        assert ending.producer == (before if version < 2 else ProducerIdAndEpoch(before.id, before.epoch + 1))
        self.prepared = ending
        assert code_of(end) == codes.CONCURRENT_TRANSACTIONS
        if not delayed:
            self._write()
            if version >= 2:
                assert end() is None, "it may be asked again, since its answer may have been lost"
        if version >= 2:
            self.fenced.append(before)
            self.current = self.machine.producer if self.prepared is None else self.machine.following
            assert self.current.id != before.id or self.current.epoch == before.epoch + 1

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def write(self) -> None:
        self._write()

    @rule(ms=st.integers(1, 2000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        late = self.added is not None and self.prepared is None and self.now_ms >= self.began_ms + self.timeout_ms
        assert (self.machine.next_time() <= self.now_ms) == late
        before, ending = self.machine.producer, self.machine.expire(self.now_ms)
        assert (ending is not None) == late
        if ending is not None:
            assert (ending.commits, ending.producer) == (False, ProducerIdAndEpoch(before.id, before.epoch + 1))
            self.prepared = ending
            self._fence()

    @precondition(lambda self: bool(self.fenced))
    @rule(data=st.data())
    def a_fenced_client_does_nothing(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.fenced))
        fences = {codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_ID_MAPPING}
        before = (self.machine.state, set(self.machine.places), self.machine.producer)
        assert code_of(lambda: self.machine.add(self.now_ms, old, PLACES)) in fences
        if old != self.machine.previous:
            for version in (0, 2):
                assert code_of(
                    lambda version=version: self.machine.end(  # type: ignore[misc]
                        self.now_ms, old, commits=True, version=version, new_id=self._new_id
                    )
                ) in fences  # fmt: skip
        assert before == (self.machine.state, self.machine.places, self.machine.producer)

    @invariant()
    def nothing_is_written_twice(self) -> None:
        """Each pair of id and epoch ends one transaction at most with version 2, and markers never go back."""
        by_id: dict[int, int] = {}
        for each in self.written:
            last = by_id.get(each.producer.id, -1)
            assert each.producer.epoch > last if each.version >= 2 else each.producer.epoch >= last
            by_id[each.producer.id] = each.producer.epoch


TestTransactions = Model.TestCase
TestTransactions.settings = settings(max_examples=draws(150), stateful_step_count=40, deadline=None)


def test_epochs_that_are_used_up() -> None:
    """A new producer id begins before the epochs end; the last epoch is for a fence."""
    found = Transaction("t", ProducerIdAndEpoch(1, LAST_EPOCH - 2), 1000)
    assert found.init(0, 1000, NOBODY, lambda: 2) is None
    assert found.producer == ProducerIdAndEpoch(1, LAST_EPOCH - 1)
    found.add(0, found.producer, [("a", 0)])
    fence = found.init(0, 1000, NOBODY, lambda: 2)
    assert fence is not None
    assert fence.producer == ProducerIdAndEpoch(1, LAST_EPOCH)
    found.complete(0)
    assert found.init(0, 1000, NOBODY, lambda: 2) is None
    assert found.producer == ProducerIdAndEpoch(2, 0)


def test_an_end_that_uses_up_the_epochs() -> None:
    found = Transaction("t", ProducerIdAndEpoch(1, LAST_EPOCH - 1), 1000)
    found.add(0, found.producer, [("a", 0)])
    ending = found.end(0, found.producer, commits=True, version=2, new_id=lambda: 2)
    assert ending is not None
    assert (ending.producer, found.following) == (ProducerIdAndEpoch(1, LAST_EPOCH), ProducerIdAndEpoch(2, 0))
    found.complete(0)
    assert found.producer == ProducerIdAndEpoch(2, 0)
    assert found.end(0, ProducerIdAndEpoch(1, LAST_EPOCH - 1), commits=True, version=2, new_id=lambda: 3) is None


def test_an_answer_that_was_lost() -> None:
    """A client may ask again with the epoch from before; one that came later may not be pushed out by that."""
    found = Transaction("t", ProducerIdAndEpoch(1, -1), 1000)
    found.init(0, 1000, NOBODY, lambda: 9)
    first = found.producer
    found.init(0, 1000, first, lambda: 9)
    assert found.producer == ProducerIdAndEpoch(1, 1)
    found.init(0, 1000, first, lambda: 9)
    assert found.producer == ProducerIdAndEpoch(1, 1)
    found.init(0, 1000, NOBODY, lambda: 9)
    assert code_of(lambda: found.init(0, 1000, first, lambda: 9)) == codes.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, MOST_TIMEOUT_MS + 1])
def test_timeouts_that_are_not_allowed(timeout_ms: int) -> None:
    assert code_of(lambda: check_timeout(timeout_ms)) == codes.INVALID_TRANSACTION_TIMEOUT
    assert code_of(lambda: check_timeout(MOST_TIMEOUT_MS)) == codes.NONE
