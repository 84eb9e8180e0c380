"""How far groups are behind, in records and in time, the worst first.

Time is the age of the first record that a group has not read: by the partition's newest record, which says how much
there is to catch up with, and by the report's clock, which says how long it waits. What is not known is in no figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pylogseg.format.escape import printable
from pylogseg.reporting.facts import Command, GroupFact, GroupOffsetFact
from pylogseg.values.internal.cluster_state import ClusterState
from pylogseg.values.internal.lag import ABOVE_END, Unread

#: Places in partitions that are looked at for the time of the first unread record, those with the largest lag first.
MOST_LOOKED_UP = 1000
#: Bytes that are read for that: a look-up without an index reads a segment up to the place.
MOST_BYTES = 256 << 20
_STALE = "of a topic that was deleted since"
_PENDING = "the offset is pending in a transaction"
_Row = Mapping[str, Any]
_Place = tuple[str, int, int]


def offset_facts(rows: Sequence[_Row], state: ClusterState, now_ms: int) -> tuple[list[GroupOffsetFact], str]:
    """Return the offsets of groups, those that wait longest first; and what was not looked at, empty if all was."""
    places = _places(rows)
    unread: dict[_Place, Unread] = {}
    left_bytes = MOST_BYTES
    for place in places[:MOST_LOOKED_UP]:
        if left_bytes <= 0:
            break
        read: list[int] = []
        unread[place] = state.first_unread(*place, read)
        left_bytes -= sum(read)
    newest = {key: state.newest_timestamp(*key) for key in {place[:2] for place in unread}}
    facts = [_fact(row, unread, newest, now_ms) for row in rows]
    facts.sort(key=_rank)
    left = len(places) - len(unread)
    note = f"lag in time of {left:,} of {len(places):,} places: those with the least lag in records" if left else ""
    return facts, note


def _places(rows: Iterable[_Row]) -> list[_Place]:
    """Return the places that groups have to read from, those with the largest lag first."""
    lags = {_place(row): row["lag"] for row in rows if not row["stale"] and (row["lag"] or 0) > 0}
    return sorted(lags, key=lambda place: -lags[place])


def _place(row: _Row) -> _Place:
    return row["topic"], row["partition"], row["offset"]


def _fact(
    row: _Row, unread: Mapping[_Place, Unread], newest: Mapping[tuple[str, int], int | None], now_ms: int
) -> GroupOffsetFact:
    fact = GroupOffsetFact(
        group=printable(row["group"]),
        topic=printable(row["topic"]) if row["topic"] is not None else row["topicId"],
        partition=row["partition"],
        offset=row["offset"],
        end_offset=row["endOffset"],
        lag=row["lag"],
        commit_timestamp=row["commitTime"],
        stale=bool(row["stale"]),
    )
    if row["stale"] or row["offset"] is None or row["lag"] is None or row["lag"] < 0:
        return replace(fact, why_not_known=_why(row))
    if not row["lag"]:
        return replace(fact, lag_ms=0, age_ms=0)
    found = unread.get(_place(row), Unread(None, "not looked at: others have a larger lag"))
    last = newest.get((row["topic"], row["partition"]))
    if found.why:
        return replace(fact, first_unread_timestamp=found.timestamp, why_not_known=printable(found.why))
    if found.timestamp is None:  # markers alone
        return replace(fact, lag_ms=0, age_ms=0)
    return replace(
        fact,
        first_unread_timestamp=found.timestamp,
        lag_ms=None if last is None else max(0, last - found.timestamp),
        age_ms=max(0, now_ms - found.timestamp),
    )


def _why(row: _Row) -> str:
    if row["stale"]:
        return _STALE
    if row["offset"] is None:
        return _PENDING
    return "the partition is not on these disks" if row["lag"] is None else ABOVE_END


def _rank(fact: GroupOffsetFact) -> tuple[Any, ...]:
    """The oldest unread record first, then the largest lag."""
    waits = fact.first_unread_timestamp is not None
    return not waits, fact.first_unread_timestamp or 0, -(fact.lag or 0), fact.group, fact.topic, fact.partition


@dataclass
class _LagSum:
    """Sums over the offsets of a group."""

    lag: int | None = None
    lag_ms: int | None = None
    age_ms: int | None = None
    not_known: int = 0

    def add(self, fact: GroupOffsetFact) -> None:
        is_counted = not fact.stale and fact.lag is not None and fact.lag >= 0
        if is_counted:
            self.lag = (self.lag or 0) + (fact.lag or 0)
        self.not_known += bool(fact.why_not_known)
        if not fact.why_not_known:
            self.lag_ms = _largest(self.lag_ms, fact.lag_ms)
            self.age_ms = _largest(self.age_ms, fact.age_ms)


def _largest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def group_facts(
    rows: Sequence[_Row], offsets: Sequence[GroupOffsetFact], commands: Mapping[str, tuple[Command, ...]]
) -> list[GroupFact]:
    """Return groups in the order of the offsets that wait longest; those without come last."""
    sums: dict[str, _LagSum] = defaultdict(_LagSum)
    for fact in offsets:
        sums[fact.group].add(fact)
    place = {name: at for at, name in enumerate(sums)}
    facts = []
    for row in rows:
        name = printable(row["group"])
        of = sums.get(name, _LagSum())
        facts.append(
            GroupFact(
                group=name,
                type=row["type"],
                state=row["state"],
                protocol_type=row["protocolType"] or None,
                members=row["members"],
                offsets=row["offsets"],
                lag=of.lag,
                commands=commands[row["group"]],
                lag_ms=of.lag_ms,
                age_ms=of.age_ms,
                not_known=of.not_known,
            )
        )
    return sorted(facts, key=lambda fact: (place.get(fact.group, len(place)), fact.group))
