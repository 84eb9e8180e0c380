"""The end of open transactions in restored logs, as the backup's own `__transaction_state` says."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import open_dir
from pylogseg.env.storage import Storage
from pylogseg.format.names import FileKind, TopicPartition
from pylogseg.log.directory import partition_of
from pylogseg.offline.ending_transactions import LogFolder, apply_ends, transactional_producers
from pylogseg.offline.restoring.adopting import Arrival, rename_ids, renamed_back
from pylogseg.offline.restoring.source import Arrivals, RestoreSource
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.tables.reader import read
from pylogseg.transfer.checkpoints import all_entries, note_entries
from pylogseg.transfer.staging import WrittenPart
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.producers import ProducerRow
from pylogseg.values.internal.transaction_ends import CoordinatorLog, EndPlan, OpenEnd, planned_ends
from pylogseg.values.internal.transactions import TOPIC, abort_command, coordinator_count, coordinator_log


class OpenTransactions:
    """Decides about the transactions that are open in restored logs, and ends them in the staging folder."""

    def __init__(self, storage: Storage, given: RestoreSource, arrivals: Arrivals, *, aborts: bool) -> None:
        self._storage, self._given, self._arrivals, self._aborts = storage, given, arrivals, aborts

    def end(self, written: Sequence[WrittenPart], result: Result) -> list[WrittenPart]:
        """End open transactions, and return the parts with their new ends; the result names each transaction."""
        parts = {(part.topic, part.partition): part for part in written if part.name in self._arrivals}
        facts = {place: part.producers for place, part in parts.items() if part.producers}
        staged = [part.folder for place, part in parts.items() if place[0] == TOPIC]
        if not (staged or any(row.first_txn_offset >= 0 for rows in facts.values() for row in rows)):
            return list(written)
        others = {
            partition_of(each.name): transactional_producers(each.path, each.doubts)
            for each in result
            if staged and each.state == "unchanged" and each.name in self._arrivals
        }
        here = {*parts, *others}
        plan = self._plan_ends({**facts, **others}, here, staged)
        folders = {place: LogFolder(part.folder, part.start) for place, part in parts.items()}
        grown = apply_ends(self._storage, folders, plan)
        results = {partition_of(each.name): each for each in result if each.state != "skipped"}
        for place in parts:
            _note(results[place], plan.ends.get(place, ()), self._arrivals[results[place].name])
        for record in plan.records:
            place = TOPIC, record.partition
            if place in parts:
                row = {"type": "transactionState", "partition": results[place].name, "why": record.why}
                results[place].rows.append({**row, "transactionalId": record.transactional_id})
        self._note_checkpoints([parts[place] for place in grown], grown)
        return [self._grown(part, grown.get((part.topic, part.partition), 0)) for part in written]

    def _grown(self, part: WrittenPart, count: int) -> WrittenPart:
        if not count:
            return part
        sizes = [each.size for each in self._storage.list_folder(part.folder) if each.name.endswith(FileKind.LOG.value)]
        return part._replace(end_offset=part.end_offset + count, segments=len(sizes), size_bytes=sum(sizes))

    def is_pending(self, path: str, name: str, doubts: list[str]) -> bool:
        """Check whether a log that is there has an open transaction that a restore would end."""
        rows = [row for row in transactional_producers(path, doubts) if row.first_txn_offset >= 0]
        if not rows:
            return False
        place = partition_of(name)
        plan = self._plan_ends({place: rows}, {place}, ())
        return any(end.action != "leave" for _, end in plan.ends.get(place, ()))

    def _plan_ends(
        self, facts: Mapping[TopicPartition, Sequence[ProducerRow]], here: Collection[TopicPartition], staged: Any
    ) -> EndPlan:
        """Decide by the ids that producers had in the cluster that they come from."""
        at_home = {place: [self._at_home(place, row) for row in rows] for place, rows in facts.items()}
        ids = {row.producer_id for rows in at_home.values() for row in rows if row.first_txn_offset >= 0}
        plan = planned_ends(self._coordinator(ids, staged), at_home, here, aborts=self._aborts)
        plan.ends = {
            place: [(self._as_it_is(place, row), end) for row, end in ends] for place, ends in plan.ends.items()
        }
        return plan

    def _arrival(self, place: TopicPartition) -> Arrival:
        return self._arrivals.get(f"{place[0]}-{place[1]}", Arrival())

    def _at_home(self, place: TopicPartition, row: ProducerRow) -> ProducerRow:
        return renamed_back(row) if self._arrival(place).is_foreign else row

    def _as_it_is(self, place: TopicPartition, row: ProducerRow) -> ProducerRow:
        arrival = self._arrival(place)
        if arrival.is_foreign:
            row.producer_id = int(rename_ids(np.array([row.producer_id], np.int64), arrival.origin)[0])
        return row

    def _coordinator(self, producer_ids: Collection[int], staged: Sequence[str]) -> CoordinatorLog:
        """Read `__transaction_state`: the restored one, or else the source's."""
        source = self._given.coordinators()
        if staged:
            count = None if source is None else coordinator_count(source[0])
            return coordinator_log(open_dir(list(staged)), CutOff(), producer_ids, count)
        if source is None:
            return CoordinatorLog(lacks=f"{TOPIC} is not here")
        return coordinator_log(*source, producer_ids, coordinator_count(source[0]))

    def _note_checkpoints(self, parts: Iterable[WrittenPart], grown: Mapping[TopicPartition, int]) -> None:
        """Raise the checkpoints of logs that grew to their new ends."""
        by_folder: dict[str, dict[str, dict[str, int]]] = {}
        for part in parts:
            above, entries = os.path.dirname(part.folder), {}
            end = part.end_offset + grown[part.topic, part.partition]
            for kind, offset in all_entries(self._storage, above).get((part.topic, part.partition), {}).items():
                entries[kind] = end if offset == part.end_offset else offset
            by_folder.setdefault(above, {})[part.name] = entries
        for above, said in by_folder.items():
            note_entries(self._storage, above, said)


def is_added_by_restore(part: Partition, below: int) -> bool:
    """Check whether a restore added the records of `__transaction_state` from an offset on.

    Each has the time of the record that it stands for, where a coordinator's has its own.
    """
    disk = Disk((), (part,), is_named=True)
    before = coordinator_log(disk, CutOff(ends={part.name: below}), ()).current
    after = coordinator_log(disk, CutOff(), ()).current
    changed = [(before.get(name), row) for name, row in after.items() if row["recordOffset"] >= below]
    count = sum(1 for _ in read(part, offset=(below, None)))
    return count == len(changed) and all(
        old is not None
        and old["transactionLastUpdateTimestampMs"] == row["transactionLastUpdateTimestampMs"] == row["recordTimestamp"]
        for old, row in changed
    )


def _note(result: PartitionResult, ends: Sequence[tuple[ProducerRow, OpenEnd]], arrival: Arrival) -> None:
    topic, partition = partition_of(result.name)
    actions = [end.action for _, end in ends]
    for number, action in (("Open", "leave"), ("Aborted", "abort"), ("Committed", "commit")):
        if action in actions or number == "Open":
            result.numbers[f"transactions{number}"] = actions.count(action)  # type: ignore[arg-type]
    kinds = {"leave": "openTransaction", "abort": "abortedTransaction", "commit": "committedTransaction"}
    result.rows += [
        {
            "type": kinds[end.action],
            "partition": result.name,
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "startOffset": producer.first_txn_offset,
            "transactionalId": end.transactional_id,
            "why": end.why,
            "abortCommand": abort_command(topic, partition, producer) if end.action == "leave" else None,
        }
        for producer, end in ends
    ]
