"""The ends of transactions that are open at the end of a log, by their coordinator's log.

The logs of a point of an archive, or of a copy of a running broker, end at different moments, and so
`__transaction_state` may have less than the partitions, or more. A coordinator that starts on such logs believes its
own: it sends a marker again, over a later transaction that it does not know, or ends nothing of what it has forgotten,
and the next transaction of the same producer commits it. So each transaction that is open, and not the one that the
coordinator goes on with, is ended before: as the coordinator decided, or else by an abort, since no record shows that
anybody committed it.

Which transaction is open? With version 2 each has an epoch of its own. With version 1 the markers tell: the open one
began after the last marker in its partition, and was decided after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pylogseg.format.names import TopicPartition
from pylogseg.values.internal.producers import ProducerRow

StateRow = dict[str, Any]
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
          "PrepareEpochFence")  # fmt: skip
_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT, _FENCE = 1, 2, 3, 4, 5, 7
_PREPARED, _COMPLETE = (_PREPARE_COMMIT, _PREPARE_ABORT, _FENCE), (_COMPLETE_COMMIT, _COMPLETE_ABORT)
#: From this version of transactions on each end raises the epoch.
_RAISES_EPOCH = 2
_LAST_EPOCH = 2**15 - 1
#: Why a transaction is left open.
HELD = "its coordinator goes on with it"


@dataclass
class NotedTransaction:
    """A transaction in the log of its coordinator."""

    transactional_id: str
    producer_id: int
    epochs: tuple[int, ...]  #: That its batches may have.
    status: int
    version: int
    places: set[TopicPartition]
    is_listed: bool = True  #: True if `places` are all of them: a record of a complete one may have none.
    marker_epoch: int = -1
    started_ms: int = -1
    decided_ms: int = -1  #: When its end was decided; -1 if that is open.
    updated_ms: int = -1

    @property
    def commits(self) -> bool:
        """True if it ends with a commit."""
        return self.status in (_PREPARE_COMMIT, _COMPLETE_COMMIT)

    def has(self, place: TopicPartition) -> bool:
        """Check whether a partition may be part of it."""
        return place in self.places or not self.is_listed


class OpenEnd(NamedTuple):
    """The end of a transaction that is open at the end of a log."""

    action: Literal["leave", "commit", "abort"]
    epoch: int  #: Of the marker.
    time_ms: int  #: Of the marker: when the coordinator last heard of it, so that a second restore writes the same.
    why: str
    transactional_id: str | None = None


class StateRecord(NamedTuple):
    """A record that `__transaction_state` lacks."""

    transactional_id: str
    partition: int
    version: int
    fields: StateRow
    why: str


def noted_transactions(rows: Iterable[StateRow]) -> list[NotedTransaction]:
    """Return the transactions in the records of one transactional id, in the order of their offsets.

    A record of the state Empty counts as one without partitions.
    """
    done: list[NotedTransaction] = []
    stage = 0
    for row in rows:
        status = row["transactionStatus"]
        following = 1 if status == _ONGOING else 2 if status in _PREPARED else 3 if status in _COMPLETE else 0
        places = {(part["topic"], n) for part in row["transactionPartitions"] or () for n in part["partitionIds"]}
        if stage == 0 or following < stage or following == stage == 3:
            done.append(_begin_note(row, status, places))
        else:
            _go_on(done[-1], row, status, places)
        stage = following
    return done


def _begin_note(row: StateRow, status: int, places: set[TopicPartition]) -> NotedTransaction:
    producer, epoch, version = row["producerId"], row["producerEpoch"], row["clientTransactionVersion"]
    epochs: tuple[int, ...] = (epoch,)
    if status in (*_PREPARED, *_COMPLETE):
        is_commit = status in (_PREPARE_COMMIT, _COMPLETE_COMMIT)
        epochs = (epoch - 1,) if version >= _RAISES_EPOCH else (epoch,) if is_commit else (epoch, epoch - 1)
    previous = row["previousProducerId"]
    if status in _COMPLETE and epoch == 0 and previous >= 0 and previous != producer:  # its id had no epoch left
        producer, epochs, epoch = previous, (_LAST_EPOCH - 2, _LAST_EPOCH - 1, _LAST_EPOCH), _LAST_EPOCH
    started = NotedTransaction(
        row["transactionalId"],
        producer,
        epochs,
        status,
        version,
        places,
        bool(places) or status not in _COMPLETE,
        epoch,
    )
    started.started_ms = row["transactionStartTimestampMs"]
    _decide(started, row, status)
    return started


def _go_on(noted: NotedTransaction, row: StateRow, status: int, places: set[TopicPartition]) -> None:
    noted.places |= places
    noted.version = max(noted.version, row["clientTransactionVersion"])
    if status in _PREPARED or noted.status == _ONGOING:
        noted.marker_epoch = row["producerEpoch"]
    noted.status = status
    _decide(noted, row, status)


def _decide(noted: NotedTransaction, row: StateRow, status: int) -> None:
    noted.updated_ms = max(noted.updated_ms, row["transactionLastUpdateTimestampMs"])
    if status != _ONGOING and noted.decided_ms < 0:
        noted.decided_ms = row["transactionLastUpdateTimestampMs"]


# ---- one open transaction ----


def decide_end(
    producer: ProducerRow, place: TopicPartition, noted: Sequence[NotedTransaction] | None, lacks: str = ""
) -> OpenEnd:
    """Decide how a producer's open transaction at the end of a partition's log ends.

    `noted` is what its coordinator has of the producer's id, in order, and None if no transactional id has it. `lacks`
    says why the coordinator's log may not be all here: then an absent producer proves nothing.
    """
    time_ms = max([note.updated_ms for note in noted or ()], default=max(0, producer.last_timestamp))
    if noted is None:
        if lacks:
            return OpenEnd("leave", producer.epoch, time_ms, lacks)
        return OpenEnd("abort", producer.epoch, time_ms, "no transactional id has its producer")
    name = noted[-1].transactional_id if noted else None
    of_epoch = [note for note in noted if producer.epoch in note.epochs]
    here = [note for note in of_epoch if note.has(place)]
    ours = next((note for note in here if not _is_over(note, producer)), None)
    if ours is None:
        newest = max((max(note.epochs) for note in noted), default=-1)
        if here:
            why = f"its coordinator knows an earlier transaction only, in state {STATES[here[-1].status]}"
        elif any(note.status for note in of_epoch):
            why = "its coordinator does not hold the partition in this transaction"
        elif newest > producer.epoch:
            why = f"its coordinator has gone on to epoch {newest}, and does not say how epoch {producer.epoch} ended"
        else:
            why = f"its coordinator knows of no transaction of epoch {producer.epoch}"
        return OpenEnd("abort", producer.epoch, time_ms, why, name)
    state = STATES[ours.status]
    if ours.status == _ONGOING:
        return OpenEnd("leave", producer.epoch, time_ms, HELD, name)
    action: Literal["commit", "abort"] = "commit" if ours.commits else "abort"
    epoch = max(ours.marker_epoch, producer.epoch)
    return OpenEnd(action, epoch, max(0, ours.decided_ms), f"its coordinator says {state}", name)


def _is_over(noted: NotedTransaction, producer: ProducerRow) -> bool:
    """Check whether a partition has a transaction's marker already, so that the open one came later."""
    marker = producer.marker
    if marker is None or noted.version >= _RAISES_EPOCH:
        return marker is not None and marker.epoch > max(noted.epochs)
    if noted.status == _ONGOING:
        return marker.time_ms > noted.started_ms >= 0
    return marker.time_ms >= noted.decided_ms


# ---- all of a log directory ----


@dataclass
class CoordinatorLog:
    """The transactions in `__transaction_state`."""

    current: dict[str, StateRow] = field(default_factory=dict)  #: The last record of each transactional id.
    noted: dict[int, list[NotedTransaction]] = field(default_factory=dict)  #: Of the producers that were asked for.
    lacks: str = ""  #: Why there may be more.


Facts = Mapping[TopicPartition, Sequence[ProducerRow]]


@dataclass
class EndPlan:
    """The records to append to the partitions of a log directory, and to `__transaction_state`."""

    ends: dict[TopicPartition, list[tuple[ProducerRow, OpenEnd]]] = field(default_factory=dict)
    records: list[StateRecord] = field(default_factory=list)


def planned_ends(
    coordinator: CoordinatorLog, facts: Facts, here: Collection[TopicPartition], *, aborts: bool = False
) -> EndPlan:
    """Decide about all open transactions, and make the records that their coordinator needs.

    `facts` has the producers of transactions by partition, `here` the partitions that the directory has: others get
    their markers from the coordinator. With `aborts`, what the coordinator goes on with is aborted too. The facts that
    partitions show of a transaction go into `coordinator`.
    """
    markers = {
        (row.producer_id, row.marker.epoch): row.marker.commits
        for rows in facts.values()
        for row in rows
        if row.marker is not None
    }
    ended = {name for name, row in coordinator.current.items() if _has_ended(row, facts, markers, coordinator, aborts)}
    plan, reached = EndPlan(), dict[int, int]()
    for place, rows in facts.items():
        for row in rows:
            reached[row.producer_id] = max(reached.get(row.producer_id, -1), row.epoch)
            if row.first_txn_offset < 0:
                continue
            end = decide_end(row, place, coordinator.noted.get(row.producer_id), coordinator.lacks)
            if end.action == "abort" and _is_version_2(coordinator, row):
                commits = markers.get((row.producer_id, row.epoch + 1))
                if commits:
                    end = end._replace(
                        action="commit", epoch=row.epoch + 1, why="another partition has the marker of its commit"
                    )
            if end.action == "leave" and aborts:
                end = end._replace(action="abort", why="as was asked for")
            reached[row.producer_id] = max(reached[row.producer_id], end.epoch)
            plan.ends.setdefault(place, []).append((row, end))
    for name, state in sorted(coordinator.current.items()):
        record = _find_completion(state, reached.get(state["producerId"], -1), here, is_over=name in ended)
        if record is not None:
            plan.records.append(record)
    return plan


def _is_version_2(coordinator: CoordinatorLog, row: ProducerRow) -> bool:
    versions = [note.version for note in coordinator.noted.get(row.producer_id, ()) if note.status]
    return min(versions, default=0) >= _RAISES_EPOCH


def _has_ended(
    row: StateRow, facts: Facts, markers: Mapping[tuple[int, int], bool], coordinator: CoordinatorLog, aborts: bool
) -> bool:
    """Check whether partitions show the end of a transaction that is ongoing for its coordinator; note which it was."""
    if row["transactionStatus"] != _ONGOING:
        return False
    producer, epoch, started = row["producerId"], row["producerEpoch"], row["transactionStartTimestampMs"]
    places = {(part["topic"], n) for part in row["transactionPartitions"] or () for n in part["partitionIds"]}
    mine = [(place, entry) for place, rows in facts.items() for entry in rows if entry.producer_id == producer]
    raises = row["clientTransactionVersion"] >= _RAISES_EPOCH
    # In version 1 the last marker may end a later transaction: it shows that this one ended, and not how.
    ends = [
        entry.marker.time_ms
        for place, entry in mine
        if not raises and entry.marker is not None and place in places
        if entry.marker.epoch == epoch and entry.marker.time_ms > started >= 0
    ]
    is_over = bool(aborts or ends or any(entry.epoch > epoch for _, entry in mine))
    commits = is_over and raises and markers.get((producer, epoch + 1), False)
    if not is_over:
        return False
    for noted in coordinator.noted.get(producer, [])[-1:]:
        if noted.status == _ONGOING:
            noted.status = _COMPLETE_COMMIT if commits else _COMPLETE_ABORT
            noted.marker_epoch = epoch + raises
            noted.decided_ms = max([started, noted.updated_ms, *ends])
    row["transactionStatus"] = _PREPARE_COMMIT if commits else _PREPARE_ABORT
    row["producerEpoch"] = epoch + raises
    return True


def _find_completion(
    row: StateRow, reached: int, here: Collection[TopicPartition], *, is_over: bool
) -> StateRecord | None:
    """Return the record after which a coordinator sends no marker again, and hands out a greater epoch than it did."""
    status, listed = row["transactionStatus"], list(row["transactionPartitions"] or ())
    fields = {name: value for name, value in row.items() if not name.startswith(("record", "internal"))}
    version, name, why = fields.pop("valueVersion"), fields.pop("transactionalId"), ""
    if status in _PREPARED:
        rest = [(part["topic"], [n for n in part["partitionIds"] if (part["topic"], n) not in here]) for part in listed]
        left = [{"topic": topic, "partitionIds": numbers} for topic, numbers in rest if numbers]
        if left and left == listed and not is_over:
            return None  # none of its partitions is here
        commits = status == _PREPARE_COMMIT
        if left:
            fields["transactionStatus"] = _PREPARE_COMMIT if commits else _PREPARE_ABORT
            why = "the partitions that are here have its markers"
        else:
            fields["transactionStatus"] = _COMPLETE_COMMIT if commits else _COMPLETE_ABORT
            why = "all of its partitions have its markers"
            if row["nextProducerId"] >= 0 and not is_over:  # its id had no epoch left
                fields |= {"producerId": row["nextProducerId"], "previousProducerId": row["producerId"],
                           "nextProducerId": -1, "producerEpoch": 0}  # fmt: skip
                reached = -1
        fields["transactionPartitions"] = left
    if reached > fields["producerEpoch"]:
        why = why or f"partitions have epoch {reached} of its producer, and it had {fields['producerEpoch']}"
        fields["producerEpoch"] = reached
    if not why or STATES[status] == "Dead":
        return None
    return StateRecord(name, row["internalPartition"], version, fields, f"{STATES[fields['transactionStatus']]}: {why}")
