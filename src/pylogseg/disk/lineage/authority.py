"""The authoritative replica of a partition, and the records that other replicas prove or can give.

The rules are the controller's. With the cluster's metadata, the leader is an in-sync replica, then an eligible one
(KIP-966), then the last known leader. Among the remaining replicas (without metadata among all), the one with the
highest leader epoch has followed the newest leader. If several have it, the longest log counts: by its end, then by its
beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from pylogseg.disk.lineage.chains import Lineage, divergence

_NO_END = 2**63 - 1


class Replica(NamedTuple):
    """The history of a replica, with the facts about it in the other files of its disk.

    A `high_watermark` behind the end of the log: records are missing, or a leader elected without them cut them off.
    """

    lineage: Lineage
    high_watermark: int = 0
    node_id: int | None = None
    lost_tail: bool = False  # a damaged batch ends it, and there was more behind
    #: Up to where other files of its disk prove that its log went, committed or not; 0 if none does.
    reached: int = 0


class Rule(Enum):
    """Why a replica is the authoritative one."""

    NAMED = "named"  #: The caller said so.
    ISR = "isr"  #: In sync, by the metadata of the cluster.
    ELR = "elr"  #: Eligible leader replica.
    LAST_KNOWN_ELR = "lastKnownElr"
    EPOCH = "epoch"  #: It has the highest leader epoch of all.
    LENGTH = "length"  #: Of those with this epoch, it is the longest.
    ONLY = "only"  #: There is no other.


class Known(NamedTuple):
    """A partition in the metadata of the cluster: ids of brokers, and the epoch of the leader."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class Choice(NamedTuple):
    """The authoritative replica."""

    replica: int  #: Its place in the list.
    rule: Rule
    is_outdated: bool = False  #: The metadata is older than the disks, and did not count.
    #: Brokers that were in sync or eligible, if none of them has a replica here: theirs may have what was committed.
    absent: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()  #: Brokers that had all that was committed; empty if it is not known.
    leader_epoch: int = -1  #: By the metadata, if it counts; the newest one may have no records.


class Alarm(NamedTuple):
    """Records that were committed on a replica and are not in the log."""

    replica: int
    first_offset: int  #: From where on it differs, or the log ends.
    high_watermark: int  #: Up to where they were committed.
    epoch: int  #: Of its record at the first offset.
    log_epoch: int  #: Of the log there; the last one if the log ends.
    known_by: int  #: The replica that knew it: this one, or one that has lost what it knew.


class Lost(NamedTuple):
    """Records that files of a replica prove, and that no replica has any more."""

    replica: int
    first_offset: int
    end_offset: int
    epoch: int  #: That they were written in.
    log_epoch: int  #: Of the log there; the last one if it ends before.
    is_committed: bool  #: False: that is not known.
    is_behind: bool  #: The log goes on with them; it has something else there, or ends elsewhere, if not.


class Authority(NamedTuple):
    """The log of a partition: the history of the authoritative replica, and its continuation on other replicas."""

    lineage: Lineage
    committed: int  # the highest high watermark that is proved for this history
    alarms: list[Alarm]  # of committed records that would be lost
    extended_by: int | None = None  # the replica that has what lies behind the end
    lost: Sequence[Lost] = ()


def choose(replicas: Sequence[Replica], known: Known | None = None, named: int | None = None) -> Choice:
    """Choose the authoritative replica of at least one; the first of several that are alike.

    The metadata does not count if a replica has a higher leader epoch: then the disks are newer.
    """
    every = range(len(replicas))
    if named is not None:
        return Choice(named, Rule.NAMED)
    newest = max(replica.lineage.last_epoch for replica in replicas)
    is_outdated = known is not None and newest > known.leader_epoch
    if known is not None and not is_outdated:
        for rule, ids in ((Rule.ISR, known.isr), (Rule.ELR, known.elr), (Rule.LAST_KNOWN_ELR, known.last_known_elr)):
            among = [number for number in every if replicas[number].node_id in ids]
            if among:
                absent = (*known.isr, *known.elr) if rule is Rule.LAST_KNOWN_ELR else ()
                in_sync = () if absent else (*known.isr, *known.elr)
                best = _best(replicas, among, known.leader)
                return Choice(best, rule, False, absent, in_sync, known.leader_epoch)
    absent = () if known is None or is_outdated else (*known.isr, *known.elr)
    with_newest = [replica for replica in replicas if replica.lineage.last_epoch == newest]
    rule = Rule.ONLY if len(replicas) == 1 else Rule.EPOCH if len(with_newest) == 1 else Rule.LENGTH
    return Choice(_best(replicas, every), rule, is_outdated, absent)


def _best(replicas: Sequence[Replica], among: Sequence[int], leader: int | None = None) -> int:
    def worth(number: int) -> tuple[int, int, bool, int]:
        lineage, node_id = replicas[number].lineage, replicas[number].node_id
        start = lineage.epochs[0].start_offset if lineage.epochs else lineage.start
        return lineage.last_epoch, lineage.end, leader is not None and node_id == leader, -start

    return max(among, key=worth)


def judge(replicas: Sequence[Replica], choice: Choice) -> Authority:
    """Find the log, its committed part, and the records of other replicas that contradict it.

    Another replica continues the authoritative one if both have the same history up to its end, and the other goes on
    in the same epoch. It counts up to its high watermark, or wholly if the authoritative replica has lost its tail. A
    whole in-sync replica has all committed records: then records of an out-of-sync replica do not count.
    """
    lineage, extended_by = replicas[choice.replica].lineage, None
    for number, replica in enumerate(replicas):
        if choice.rule is Rule.NAMED and not replicas[choice.replica].lost_tail:
            break  # what was named is meant as it is
        longer = _extend_lineage(replicas[choice.replica], replica, choice)
        if longer is not None and longer.end > lineage.end:
            lineage, extended_by = longer, number
    committed, alarms = 0, []
    for number, replica in enumerate(replicas):
        reached = divergence(lineage, _as_noted(replica))
        if reached.epoch is not None:
            committed = max(committed, min(replica.high_watermark, reached.offset))
        same = divergence(lineage, replica.lineage)
        known_by = max(range(len(replicas)), key=lambda other: (_known_of(replica, replicas[other]), other == number))
        lost_up_to = _known_of(replica, replicas[known_by])
        if same.offset < lost_up_to and number != choice.replica:
            epoch, log_epoch = replica.lineage.epoch_at(same.offset), lineage.epoch_at(min(same.offset, lineage.end))
            alarms.append(Alarm(number, same.offset, lost_up_to, epoch, log_epoch, known_by))
    return Authority(lineage, committed, alarms, extended_by, _find_losses(replicas, choice, lineage))


def _as_noted(replica: Replica, end: int | None = None) -> Lineage:
    """The history of a replica as far as its broker knew it committed, or to another end: it may have lost that."""
    end = replica.high_watermark if end is None else end
    return replica.lineage._replace(end=max(replica.lineage.end, end))


def _find_losses(replicas: Sequence[Replica], choice: Choice, lineage: Lineage) -> list[Lost]:
    """Find committed records behind the end of the log, records that continue it, and records that no replica has.

    If an in-sync replica is whole, it has all committed records: further records of another replica do not count.
    """
    is_whole = choice.rule is Rule.NAMED or (bool(choice.in_sync) and not replicas[choice.replica].lost_tail)
    claims = [(True, replica.high_watermark, number) for number, replica in enumerate(replicas)]
    claims += [(False, replicas[n].reached, n) for n in range(len(replicas)) if n == choice.replica or not is_whole]
    losses: list[Lost] = []
    named: dict[int, int] = {}  # up to where, by epoch
    for is_committed, end, number in sorted(claims, reverse=True):
        noted = _as_noted(replicas[number], end)
        here = [divergence(noted, history) for history in (lineage, *(other.lineage for other in replicas))]
        first = max([lineage.start, *(fork.offset for fork in here if fork.epoch is not None)])
        is_behind = here[0].epoch is not None and here[0].offset >= lineage.end
        epoch = noted.epoch_at(first)
        first = max(first, named.get(epoch, first))
        if first < end and (is_committed or (is_behind and epoch == lineage.last_epoch)):
            named[epoch] = end
            log_epoch = lineage.epoch_at(min(first, lineage.end))
            losses.append(Lost(number, first, end, epoch, log_epoch, is_committed, is_behind))
    return losses


def _known_of(replica: Replica, other: Replica) -> int:
    """Return the end of a replica's proved records: by its high watermark, or by a replica's that lost its tail."""
    if other is replica:
        return min(replica.high_watermark, replica.lineage.end)
    same = divergence(replica.lineage, _as_noted(other))
    has_lost = other.high_watermark > other.lineage.end and same.epoch == other.lineage.last_epoch >= 0
    return min(same.offset, other.high_watermark) if has_lost else 0


def _extend_lineage(chosen: Replica, other: Replica, choice: Choice) -> Lineage | None:
    """Return the chosen replica's history, continued by another replica's; None if no replica continues it."""
    lineage = chosen.lineage
    if other.lineage.end <= lineage.end:
        return None
    is_outside = bool(choice.in_sync) and other.node_id not in choice.in_sync
    if is_outside and not chosen.lost_tail:
        return None
    # A leader that has written nothing yet, or whose records are gone, may have begun without what the other one has.
    is_whole = chosen.lost_tail and not (is_outside and choice.leader_epoch > lineage.last_epoch)
    limit = other.lineage.end if is_whole else max(other.high_watermark, chosen.high_watermark)
    if choice.rule is Rule.NAMED:
        limit = chosen.high_watermark
    same = divergence(lineage._replace(end=_NO_END), other.lineage)
    if same.epoch != lineage.last_epoch or same.offset < lineage.end:
        return None
    longer = other.lineage.shorten(limit)
    if longer.end <= lineage.end:
        return None
    behind = tuple(entry for entry in longer.epochs if entry.epoch > lineage.last_epoch)
    return Lineage((*lineage.epochs, *behind), lineage.start, longer.end)
