"""The report of a merge on a partition: the chosen log and why, the sources of its offsets, the losses."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

from pylogseg.disk.lineage.authority import Alarm, Lost, Rule
from pylogseg.format.columns import TableColumn, get_columns, line_type, to_row
from pylogseg.offline.merging.partition import Plan
from pylogseg.offline.merging.replica import ReplicaScan
from pylogseg.offline.result import PartitionResult
from pylogseg.walker.gaps import Gap, offsets_text

_FEW = 5
_WHY = {
    Rule.NAMED: "it was named",
    Rule.ISR: "it was in sync",
    Rule.ELR: "it was an eligible leader replica",
    Rule.LAST_KNOWN_ELR: "it was last known as an eligible leader replica",
    Rule.EPOCH: "it has the highest leader epoch",
    Rule.LENGTH: "it is the longest one with the highest leader epoch",
    Rule.ONLY: "there is no other",
}


class _Detail(NamedTuple):
    plan: Plan
    replica: int  #: Its number.
    part: Any  #: The replica as it was read, or something that concerns it.

    @property
    def side(self) -> ReplicaScan:
        return self.plan.replicas[self.replica]

    @property
    def rule(self) -> str | None:
        """Why its log is the authoritative one; None if it is not."""
        return self.plan.choice.rule.value if self.replica == self.plan.choice.replica else None


_LOG_DIRECTORY = TableColumn("logDirectory", "string", "of the replica", source="side.log_dir")
_FIRST_OFFSET = TableColumn("firstOffset", "int64", "the first one", source="part.first_offset")
_NEXT_OFFSET = TableColumn("nextOffset", "int64", "after the last one", source="part.end_offset")

#: Details of a merge, as lines of ``--json``: a replica and its damaged ranges.
REPLICA = (
    line_type("replica"),
    _LOG_DIRECTORY,
    TableColumn("nodeId", "int32", "its broker", source="part.node_id"),
    TableColumn("older", "string", "why it does not count as in sync", source="part.is_older"),
    TableColumn("authoritative", "bool", "its log is the one that counts", source=lambda row: row.rule is not None),
    TableColumn("rule", "string", "the rule, such as named or isr; null for the other replicas"),
    TableColumn("logStart", "int64", "its log start offset", source="part.log_start"),
    TableColumn("logEnd", "int64", "after its last good batch", source="part.end"),
    TableColumn("highWatermark", "int64", "that it knew", source="part.replica.high_watermark"),
    TableColumn(
        "epochs",
        "list<list<int64>>",
        "leader epochs, each with its first offset",
        source=lambda row: [list(entry) for entry in row.part.epochs],
    ),
    TableColumn("damaged", "int32", "damaged ranges, which follow as lines", source=lambda row: len(row.part.gaps)),
)
GAP = (line_type("gap"), *get_columns(Gap))
#: Offsets that come from a replica.
PIECE = (line_type("piece"), _LOG_DIRECTORY, _FIRST_OFFSET, _NEXT_OFFSET)
#: Offsets that no replica has.
MISSING = (
    line_type("missing"),
    _FIRST_OFFSET._replace(source=itemgetter(0)),
    _NEXT_OFFSET._replace(source=itemgetter(1)),
)
#: Records that a replica knew as committed, and that are not in the log.
ALARM = (
    line_type("alarm"),
    _LOG_DIRECTORY,
    _FIRST_OFFSET,
    TableColumn("highWatermark", "int64", "after the last committed one", source="part.high_watermark"),
    TableColumn("epoch", "int32", "leader epoch of the first record", source="part.epoch"),
    TableColumn("otherLogDirectory", "string", "of the authoritative replica", source="plan.chosen.log_dir"),
    TableColumn("otherEpoch", "int32", "leader epoch of its log there", source="part.log_epoch"),
)
#: Records that a replica had, and that no disk has any more.
LOST = (
    line_type("lost"),
    _LOG_DIRECTORY,
    _FIRST_OFFSET,
    _NEXT_OFFSET,
    TableColumn("epoch", "int32", "leader epoch of the records", source="part.epoch"),
    TableColumn("committed", "bool", "null if unknown", source=lambda row: row.part.is_committed or None),
)


def describe(plan: Plan, name: str, result: PartitionResult) -> None:
    """Fill in the result of a partition that is not written yet; an alarm leaves it."""
    result.log_start, result.log_end = plan.chosen.log_start, plan.lineage.end
    beside = [lost for lost in plan.verdict.lost if not lost.is_behind]
    missing = sum(end - first for first, end in plan.missing) + sum(
        each.end_offset - each.first_offset for each in beside
    )
    others = sum(
        max(piece.end_offset - max(piece.first_offset, plan.chosen.log_start), 0)
        for piece in plan.pieces
        if piece.replica != plan.choice.replica
    )
    damaged = sum(len(replica.gaps) for replica in plan.replicas)
    result.numbers = {
        "committed": plan.committed, "offsetsFromOthers": others, "offsetsMissing": missing, "damagedRanges": damaged,
    }  # fmt: skip
    if plan.choice.absent and not missing:
        result.unknown.add("offsetsMissing")
    _add_rows(plan, result)
    _add_notes(plan, result)
    differing = [number for number, trust in enumerate(plan.trusts) if trust.differs_at is not None]
    if plan.is_disputed and differing:
        reason = "; ".join(_difference_text(plan, number) for number in differing)
        result.skip(reason, _choose_text(plan, name, differing), not_done=True)
    elif plan.is_disputed:
        texts = [_alarm_text(plan, alarm) for alarm in plan.verdict.alarms]
        reason = "; ".join([*texts, *(_lost_text(plan, lost) for lost in beside)])
        sides = [alarm.replica for alarm in plan.verdict.alarms]
        result.skip(reason, _choose_text(plan, name, sides), not_done=True)
    elif missing or plan.choice.absent:
        result.not_done = True


def _choose_text(plan: Plan, name: str, others: list[int]) -> str:
    sides = [plan.replicas[number].log_dir for number in dict.fromkeys([plan.choice.replica, *others])]
    return "look at both, and say which one counts: " + ", or ".join(f"--take {name}={side}" for side in sides)


def _difference_text(plan: Plan, number: int) -> str:
    offset = plan.trusts[number].differs_at
    assert offset is not None
    epoch = plan.chosen.lineage.epoch_at(offset)
    return (
        f"{plan.replicas[number].log_dir} and {plan.chosen.log_dir} have different batches at offset {offset}, both of "
        f"leader epoch {epoch}: they are not replicas of one partition, or one was changed"
    )


def _add_rows(plan: Plan, result: PartitionResult) -> None:
    rows = result.rows
    for number, replica in enumerate(plan.replicas):
        rows.append(to_row(_Detail(plan, number, replica), REPLICA))
        rows += [to_row(gap, GAP) for gap in replica.gaps]
    rows += [to_row(_Detail(plan, piece.replica, piece), PIECE) for piece in plan.pieces]
    rows += [to_row(offsets, MISSING) for offsets in plan.missing]
    rows += [to_row(_Detail(plan, alarm.replica, alarm), ALARM) for alarm in plan.verdict.alarms]
    rows += [to_row(_Detail(plan, lost.replica, lost), LOST) for lost in plan.verdict.lost]


def _add_notes(plan: Plan, result: PartitionResult) -> None:
    notes = [f"the log comes from {plan.chosen.log_dir}: {_WHY[plan.choice.rule]}"]
    if plan.choice.is_outdated:
        notes.append("the metadata of the cluster is older than the disks, and does not count")
    notes += [
        f"{replica.log_dir} does not count as in sync: {replica.is_older}"
        for replica in plan.replicas
        if replica.is_older
    ]
    if plan.choice.absent:
        older = {replica.node_id for replica in plan.replicas if replica.is_older}
        lacking = [node for node in dict.fromkeys(plan.choice.absent) if node not in older]
        ids = ", ".join(map(str, lacking))
        where = (
            f"no disk of broker {ids} is here with a replica of it, and no other" if lacking else "no disk that is here"
        )
        notes.append(f"{where} was in sync: committed records may be missing")
    for number, trust in enumerate(plan.trusts):
        if trust.differs_at is not None and plan.choice.rule is Rule.NAMED:
            notes.append(f"nothing comes from there: {_difference_text(plan, number)}")
        elif trust.differs_at is None and not trust.is_shown:
            notes.append(
                f"nothing comes from {plan.replicas[number].folder}: neither a topic id nor a batch that both have "
                "shows that it is a replica of the same partition"
            )
    pieces = [piece for piece in plan.pieces if piece.replica != plan.choice.replica]
    notes += [
        f"{offsets_text(first, end)} come from {plan.replicas[number].log_dir}" for number, first, end in pieces[:_FEW]
    ]
    if len(pieces) > _FEW:
        notes.append(f"{len(pieces) - _FEW:,} more ranges come from others: the rows of --json have all of them")
    for replica in plan.replicas:
        notes += [f"damaged: {gap}" for gap in replica.gaps[:_FEW]]
        if len(replica.gaps) > _FEW:
            notes.append(f"{len(replica.gaps) - _FEW:,} more damaged ranges in {replica.folder}")
        notes += replica.notes
    if plan.missing:
        text = ", ".join(offsets_text(first, end) for first, end in plan.missing[:_FEW])
        more = f" and {len(plan.missing) - _FEW:,} more ranges" if len(plan.missing) > _FEW else ""
        notes.append(f"{text}{more} are missing: no replica of this history has them")
    notes += [
        f"{offsets_text(cut.first_offset, cut.next_offset)} were cut out on purpose by `{cut.command}`: {cut.reason}"
        for cut in plan.cuts[:_FEW]
    ]
    notes += [_lost_text(plan, lost) for lost in plan.verdict.lost]
    if plan.choice.rule is Rule.NAMED:
        notes += [f"not in the log: {_alarm_text(plan, alarm)}" for alarm in plan.verdict.alarms]
    result.notes += notes


def _lost_text(plan: Plan, lost: Lost) -> str:
    side, offsets = plan.replicas[lost.replica], offsets_text(lost.first_offset, lost.end_offset)
    if not lost.is_committed:
        return (
            f"{side.log_dir} had {offsets}, as its {side.reached.source} says: no disk has them any more, and whether "
            "they were committed is not known"
        )
    known = f"{side.log_dir} knew {offsets} as committed, with leader epoch {lost.epoch}: no disk has them any more"
    if lost.is_behind:
        return known
    return f"{known}, and the log of {plan.chosen.log_dir} has leader epoch {lost.log_epoch} there"


def _alarm_text(plan: Plan, alarm: Alarm) -> str:
    side, chosen = plan.replicas[alarm.replica], plan.chosen
    where = (
        f"the log of {chosen.log_dir} ends at {plan.verdict.lineage.end}"
        if alarm.first_offset >= plan.verdict.lineage.end
        else f"{chosen.log_dir} has leader epoch {alarm.log_epoch} there"
    )
    offsets = offsets_text(alarm.first_offset, alarm.high_watermark)
    known = f"{side.log_dir} knew {offsets} as committed"
    if alarm.known_by != alarm.replica:
        known = f"{side.log_dir} has {offsets}, which {plan.replicas[alarm.known_by].log_dir} knew as committed"
    return f"{known}, with leader epoch {alarm.epoch}, and {where}"
