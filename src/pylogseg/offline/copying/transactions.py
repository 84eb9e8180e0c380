"""The open transactions of a copy of a running broker: ended as the coordinators' log says, which was copied last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pylogseg.disk.listing import open_dir
from pylogseg.env.storage import Storage
from pylogseg.errors import PylogsegError
from pylogseg.format.names import TopicPartition
from pylogseg.log.directory import partition_of
from pylogseg.log.state import Start
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.offline.ending_transactions import LogFolder, apply_ends, end_line, transactional_producers
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.transaction_ends import EndPlan, planned_ends
from pylogseg.values.internal.transactions import TOPIC, coordinator_count, coordinator_log

_FEW = 20


class UnfinishedCopy(NamedTuple):
    """A partition that was copied, and where it lies until the copy gets its name."""

    row: PartitionCopy
    folder: str
    log_start: int


def end_transactions(
    storage: Storage, copies: Iterable[UnfinishedCopy], log_dirs: Sequence[str], doubts: list[str]
) -> list[str]:
    """End open transactions in a copy with `__transaction_state`; return a line for each, and for each record there.

    `log_dirs` are the log directories that were copied. `doubts` gets what no broker would load.
    """
    by_place = {partition_of(copy.row.name): copy for copy in copies}
    coordinators = [copy.folder for place, copy in by_place.items() if place[0] == TOPIC]
    if not coordinators:
        return []
    facts = {
        place: transactional_producers(copy.folder, doubts, name=copy.row.name, crc=False)
        for place, copy in by_place.items()
    }
    ids = {row.producer_id for rows in facts.values() for row in rows if row.first_txn_offset >= 0}
    found = coordinator_log(open_dir(coordinators), CutOff(), ids, coordinator_count(open_dir(list(log_dirs))))
    plan = planned_ends(found, facts, by_place)
    lines: list[str] = []
    for place, copy in by_place.items():
        records = [record for record in plan.records if (TOPIC, record.partition) == place]
        lines += _apply_plan(storage, place, copy, EndPlan({place: plan.ends.get(place, [])}, records))
    return lines if len(lines) <= _FEW else [*lines[:_FEW], f"and {len(lines) - _FEW:,} more ends of transactions"]


def _apply_plan(storage: Storage, place: TopicPartition, copy: UnfinishedCopy, plan: EndPlan) -> list[str]:
    row = copy.row
    to: Mapping[TopicPartition, LogFolder] = {
        place: LogFolder(copy.folder, Start(True, copy.log_start, row.log_end, row.log_end))
    }
    try:
        row.log_end += apply_ends(storage, to, plan).get(place, 0)
    except PylogsegError as error:
        row.is_damaged = True
        return [f"{row.name}: its open transactions were not ended: {error}"]
    row.bytes = sum(entry.size for entry in storage.list_folder(copy.folder) if entry.name.endswith(".log"))
    ended = [end_line(row.name, *each) for each in plan.ends[place] if each[1].action != "leave"]
    return ended + [f"{row.name}: {each.transactional_id} gets a record of state {each.why}" for each in plan.records]
