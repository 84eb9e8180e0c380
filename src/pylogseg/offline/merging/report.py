"""The report of a merge on a partition: the chosen log and why, the sources of its offsets, the losses."""

from __future__ import annotations

from pylogseg.disk.lineage.authority import Alarm, Lost, Rule
from pylogseg.format.columns import to_row
from pylogseg.offline.merging.partition import Plan
from pylogseg.offline.result import PartitionResult
from pylogseg.walker.gaps import offsets_text

_FEW = 5
_WHY = {
    Rule.NAMED: "it was named",
    Rule.ISR: "it was in sync",
    Rule.ELR: "it was an eligible leader replica",
    Rule.LAST_KNOWN_ELR: "it was last known as an eligible leader replica",
    Rule.EPOCH: "it has the highest leader epoch",
    Rule.LENGTH: "it is the longest of those with the highest leader epoch",
    Rule.ONLY: "there is no other",
}


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
    for number, replica in enumerate(plan.replicas):
        result.rows.append(
            {
                "type": "replica",
                "logDirectory": replica.log_dir,
                "nodeId": replica.node_id,
                "older": replica.is_older,
                "authoritative": number == plan.choice.replica,
                "rule": plan.choice.rule.value if number == plan.choice.replica else None,
                "logStart": replica.log_start,
                "logEnd": replica.end,
                "highWatermark": replica.replica.high_watermark,
                "epochs": [list(entry) for entry in replica.epochs],
                "damaged": len(replica.gaps),
            }
        )
        result.rows += [{"type": "gap", **to_row(gap)} for gap in replica.gaps]
    result.rows += [
        {"type": "piece", "logDirectory": plan.replicas[number].log_dir, "firstOffset": first, "nextOffset": end}
        for number, first, end in plan.pieces
    ]
    result.rows += [{"type": "missing", "firstOffset": first, "nextOffset": end} for first, end in plan.missing]
    result.rows += [
        {
            "type": "alarm",
            "logDirectory": plan.replicas[alarm.replica].log_dir,
            "firstOffset": alarm.first_offset,
            "highWatermark": alarm.high_watermark,
            "epoch": alarm.epoch,
            "otherLogDirectory": plan.chosen.log_dir,
            "otherEpoch": alarm.log_epoch,
        }
        for alarm in plan.verdict.alarms
    ]
    result.rows += [
        {
            "type": "lost",
            "logDirectory": plan.replicas[lost.replica].log_dir,
            "firstOffset": lost.first_offset,
            "nextOffset": lost.end_offset,
            "epoch": lost.epoch,
            "committed": lost.is_committed or None,
        }
        for lost in plan.verdict.lost
    ]


def _add_notes(plan: Plan, result: PartitionResult) -> None:
    notes = [f"the log is that of {plan.chosen.log_dir}: {_WHY[plan.choice.rule]}"]
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
