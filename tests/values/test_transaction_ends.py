"""Tests of values/internal/producers.py and values/internal/transaction_ends.py. Transactions that are open at the end
of a log: each is ended as its coordinator says, whatever that has of them.

Each case is a pair of moments. The logs of partitions, and that of the coordinator, are cut out of one true history.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pylogseg.values.internal.producers import LastMarker, ProducerRow
from pylogseg.values.internal.transaction_ends import (
    HELD,
    STATES,
    CoordinatorLog,
    EndPlan,
    decide_end,
    noted_transactions,
    planned_ends,
)

PLACE, OTHER = ("orders", 0), ("orders", 1)
EPOCH = 5
DECIDED_MS = 1000
(EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, FENCE) = range(8)
_ENDS = {PREPARE_COMMIT: "commit", PREPARE_ABORT: "abort", COMPLETE_COMMIT: "commit", COMPLETE_ABORT: "abort",
         FENCE: "abort"}  # fmt: skip


def row(status: int, epoch: int, version: int, *places: tuple[str, int], ms: int = DECIDED_MS, **more: Any) -> Any:
    """A record of the coordinator's log, as the table of its type has it."""
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    fields = {
        "transactionalId": "app",
        "producerId": 7,
        "producerEpoch": epoch,
        "previousProducerId": -1,
        "nextProducerId": -1,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": status,
        "transactionPartitions": [{"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()],
        "transactionStartTimestampMs": ms - 10,
        "transactionLastUpdateTimestampMs": ms,
        "clientTransactionVersion": version,
        "internalPartition": 3,
        "recordOffset": 0,
        "valueVersion": 1,
    }
    return {**fields, **more}


def wanted(status: int | None, epoch: str, listed: bool, version: int, marker: bool) -> str:
    """What has to become of the open transaction, by the rule and not by the code.

    The open one has epoch 5. `epoch` says how that of the coordinator's transaction compares to it.
    """
    if status is None or status in (EMPTY, DEAD):
        return "abort"
    if epoch != "same" or not listed:
        return "abort"
    if marker and version < 2:  # the one that the coordinator knows has its marker: the open one came later
        return "abort"
    return "leave" if status == ONGOING else _ENDS[status]


CASES = list(
    itertools.product(
        [None, *range(8)], ["same", "older", "newer"], [True, False], [1, 2], [True, False], [True, False]
    )
)


@pytest.mark.parametrize("status", [None, *range(8)], ids=["absent", *STATES])
def test_all_states(status: int | None) -> None:
    count = 0
    for state, compared, listed, version, marker, from_start in CASES:
        if state != status:
            continue
        count += 1
        data_epoch = EPOCH + {"same": 0, "older": -2, "newer": 2}[compared]
        is_raised = version == 2 and status not in (ONGOING, EMPTY, DEAD)
        places = [PLACE, OTHER] if listed else [OTHER]
        rows = []
        if from_start and status in _ENDS:
            rows.append(row(ONGOING, data_epoch, version, *places, ms=DECIDED_MS - 10))
        if status is not None:
            rows.append(row(status, data_epoch + is_raised, version, *places))
        noted = noted_transactions(rows) if rows else None
        last = LastMarker(EPOCH, DECIDED_MS + 1, True) if marker else LastMarker(EPOCH, DECIDED_MS - 100, True)
        producer = ProducerRow(7, EPOCH, first_txn_offset=10, coordinator_epoch=0, marker=last)
        end = decide_end(producer, PLACE, noted)
        what = STATES[status] if status is not None else "absent", compared, listed, version, marker, from_start
        expected = wanted(status, compared, listed, version, marker)
        if version == 1 and status in (PREPARE_ABORT, COMPLETE_ABORT, FENCE):
            expected = "abort"  # a fence raises the epoch, also with version 1
        assert end.action == expected, (what, end)
        assert end.epoch >= EPOCH, what  # a marker of an older epoch is refused
        assert (end.why == HELD) == (end.action == "leave"), what
        assert end.transactional_id == (None if status is None else "app")
        if end.action == "commit":
            assert end.epoch == EPOCH + (version == 2), what
    assert count == len(CASES) / 9


def a_plan(rows: list[Any], facts: dict[Any, list[ProducerRow]], here: Any = (PLACE, OTHER), **how: Any) -> EndPlan:
    current = {rows[-1]["transactionalId"]: {**rows[-1]}} if rows else {}
    noted = {7: noted_transactions(rows)} if rows else {}
    return planned_ends(CoordinatorLog(current, noted), facts, here, **how)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT, FENCE], ids=STATES.__getitem__)
def test_a_marker_is_not_sent_again(status: int, version: int) -> None:
    """Where the marker lies already, and a later transaction is open, that is aborted, and the coordinator is done."""
    raised = EPOCH + (version == 2)
    rows = [row(ONGOING, EPOCH, version, PLACE), row(status, raised, version, PLACE)]
    last = LastMarker(raised, DECIDED_MS + 1, status == PREPARE_COMMIT)
    open_one = ProducerRow(7, raised, first_txn_offset=4, coordinator_epoch=0, marker=last)
    plan = a_plan(rows, {PLACE: [open_one]})
    ((_, end),) = plan.ends[PLACE]
    assert end.action == "abort"
    (record,) = plan.records
    assert record.fields["transactionStatus"] == (COMPLETE_COMMIT if status == PREPARE_COMMIT else COMPLETE_ABORT)
    assert record.fields["transactionPartitions"] == []
    assert record.fields["producerEpoch"] == raised
    assert record.partition == 3


def test_what_was_decided_is_written_where_it_lacks_and_left_to_the_coordinator_elsewhere() -> None:
    rows = [row(ONGOING, EPOCH, 2, PLACE, OTHER), row(PREPARE_COMMIT, EPOCH + 1, 2, PLACE, OTHER)]
    open_one = ProducerRow(7, EPOCH, first_txn_offset=4)
    plan = a_plan(rows, {PLACE: [open_one]}, here=[PLACE])
    ((_, end),) = plan.ends[PLACE]
    assert (end.action, end.epoch) == ("commit", EPOCH + 1)
    (record,) = plan.records
    assert record.fields["transactionStatus"] == PREPARE_COMMIT
    assert record.fields["transactionPartitions"] == [{"topic": "orders", "partitionIds": [1]}]
    assert not a_plan(rows, {}, here=[("other", 0)]).records  # nothing of it is here


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT], ids=STATES.__getitem__)
def test_the_next_epoch_is_above_that_of_the_partitions(status: int) -> None:
    """The partitions went on for three transactions: else a broker refuses the id's markers, or its first batch."""
    rows = [row(status, EPOCH, 2)]
    later = ProducerRow(7, EPOCH + 3, first_txn_offset=4, marker=LastMarker(EPOCH + 3, 2000, True))
    plan = a_plan(rows, {PLACE: [later]})
    assert plan.ends[PLACE][0][1].action == "abort"
    (record,) = plan.records
    assert (record.fields["producerEpoch"], record.fields["transactionStatus"]) == (EPOCH + 3, status)
    assert not a_plan(rows, {PLACE: [ProducerRow(7, EPOCH, coordinator_epoch=0)]}).records


def test_partitions_that_went_on_show_how_it_ended() -> None:
    """The coordinator has it as ongoing; one partition has its commit marker, the other one still its records."""
    rows = [row(ONGOING, EPOCH, 2, PLACE, OTHER)]
    ended = ProducerRow(7, EPOCH + 1, coordinator_epoch=0, marker=LastMarker(EPOCH + 1, 2000, True))
    open_one = ProducerRow(7, EPOCH, first_txn_offset=4)
    plan = a_plan(rows, {PLACE: [open_one], OTHER: [ended]})
    assert [end.action for _, end in plan.ends[PLACE]] == ["commit"]
    (record,) = plan.records
    assert (record.fields["transactionStatus"], record.fields["producerEpoch"]) == (COMPLETE_COMMIT, EPOCH + 1)
    aborted = ProducerRow(7, EPOCH + 1, coordinator_epoch=0, marker=LastMarker(EPOCH + 1, 2000, False))
    plan = a_plan(rows, {PLACE: [open_one], OTHER: [aborted]})
    assert [end.action for _, end in plan.ends[PLACE]] == ["abort"]


def test_version_1_tells_transactions_apart_by_their_markers() -> None:
    """One epoch, four transactions that end in turn; the partition ends inside each of them, or behind its marker."""
    rows = []
    for number in range(4):
        status = PREPARE_ABORT if number % 2 else PREPARE_COMMIT
        rows += [
            row(ONGOING, EPOCH, 1, PLACE, ms=100 * number + 10),
            row(status, EPOCH, 1, PLACE, ms=100 * number + 50),
        ]
        complete = COMPLETE_ABORT if number % 2 else COMPLETE_COMMIT
        rows.append(row(complete, EPOCH, 1, PLACE, ms=100 * number + 50))
    noted = noted_transactions(rows)
    assert len(noted) == 4
    for number in range(5):
        last = None if number == 0 else LastMarker(EPOCH, 100 * number - 45, number % 2 == 1)
        end = decide_end(ProducerRow(7, EPOCH, first_txn_offset=9, marker=last), PLACE, noted)
        assert end.action == ("abort" if number % 2 or number == 4 else "commit"), number


def test_an_ongoing_one_that_ended_is_not_the_one_that_is_open() -> None:
    rows = [row(ONGOING, EPOCH, 1, PLACE, ms=100)]
    later = ProducerRow(7, EPOCH, first_txn_offset=9, marker=LastMarker(EPOCH, 200, True))
    plan = a_plan(rows, {PLACE: [later]})
    assert plan.ends[PLACE][0][1].action == "abort"
    assert plan.records[0].fields["transactionStatus"] == COMPLETE_ABORT
    same = ProducerRow(7, EPOCH, first_txn_offset=9, marker=LastMarker(EPOCH, 50, True))
    rows = [row(ONGOING, EPOCH, 1, PLACE, ms=100)]
    plan = a_plan(rows, {PLACE: [same]})
    assert (plan.ends[PLACE][0][1].action, plan.records) == ("leave", [])


def test_a_producer_without_an_epoch_left() -> None:
    """The coordinator has a new producer for the id; what the old one left open is ended by the old one's records."""
    rows = [row(ONGOING, 32766, 2, PLACE), row(PREPARE_COMMIT, 32767, 2, PLACE, nextProducerId=8)]
    plan = a_plan(rows, {PLACE: [ProducerRow(7, 32766, first_txn_offset=1)]})
    assert plan.ends[PLACE][0][1].action == "commit"
    fields = plan.records[0].fields
    assert (fields["producerId"], fields["previousProducerId"], fields["producerEpoch"]) == (8, 7, 0)
    (noted,) = noted_transactions([row(COMPLETE_COMMIT, 0, 2, PLACE, producerId=8, previousProducerId=7)])
    assert decide_end(ProducerRow(7, 32766, first_txn_offset=1), PLACE, [noted]).action == "commit"


def test_what_is_not_known_is_left() -> None:
    open_one = ProducerRow(7, EPOCH, first_txn_offset=4)
    end = decide_end(open_one, PLACE, None, "__transaction_state-7 is not here")
    assert (end.action, end.why) == ("leave", "__transaction_state-7 is not here")
    asked = planned_ends(CoordinatorLog(lacks="it is not here"), {PLACE: [open_one]}, [PLACE], aborts=True)
    assert [end.action for _, end in asked.ends[PLACE]] == ["abort"]


@pytest.mark.parametrize("version", [1, 2])
def test_aborted_as_was_asked_for(version: int) -> None:
    """What the coordinator goes on with is aborted too, and the coordinator knows."""
    rows = [row(ONGOING, EPOCH, version, PLACE, OTHER)]
    plan = a_plan(rows, {PLACE: [ProducerRow(7, EPOCH, first_txn_offset=4)]}, aborts=True)
    assert [end.action for _, end in plan.ends[PLACE]] == ["abort"]
    (record,) = plan.records
    assert record.fields["transactionStatus"] == COMPLETE_ABORT
    assert record.fields["producerEpoch"] == EPOCH + (version == 2)
