"""How far groups are behind, in records and in time, the worst first.

Time is the age of the first record that a group has not read: by the partition's newest record, the amount to catch up
with; and by the report's clock, the waiting time. No figure counts a lag that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pylogseg.format.escape import printable
from pylogseg.reporting.facts import Command
from pylogseg.values.internal.cluster_state import ClusterState
from pylogseg.values.internal.lag import ABOVE_END, Unread

#: Places in partitions that are looked at for the time of the first unread record, those with the largest lag first.
MOST_LOOKED_UP = 1000
#: Bytes that are read for that: a look-up without an index reads a segment up to the place.
MOST_BYTES = 256 << 20
_STALE = "of a topic that was deleted since"
_PENDING = "the offset is pending in a transaction"
_Row = dict[str, Any]
_Place = tuple[str, int, int]


def offset_rows(rows: Sequence[_Row], state: ClusterState, now_ms: int) -> tuple[list[_Row], str]:
    """Return the offsets of groups, the longest waiting first; and the number left out, empty if there are none."""
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
    offsets = sorted((_with_lag_in_time(row, unread, newest, now_ms) for row in rows), key=_rank)
    left = len(places) - len(unread)
    note = f"lag in time of {left:,} of {len(places):,} places: those with the least lag in records" if left else ""
    return offsets, note


def _places(rows: Iterable[_Row]) -> list[_Place]:
    """Return the positions from which groups will read on, the largest lag first."""
    lags = {_place(row): row["lag"] for row in rows if not row["stale"] and (row["lag"] or 0) > 0}
    return sorted(lags, key=lambda place: -lags[place])


def _place(row: _Row) -> _Place:
    return row["topic"], row["partition"], row["offset"]


def _with_lag_in_time(
    row: _Row, unread: Mapping[_Place, Unread], newest: Mapping[tuple[str, int], int | None], now_ms: int
) -> _Row:
    """Return an offset with the time of the first unread record, the lag by it, and the reason if there are none.

    `lagMs` is from that record to the partition's newest one, `ageMs` to the time of the report.
    """
    first = lag_ms = age_ms = None
    why = ""
    if row["stale"] or row["offset"] is None or row["lag"] is None or row["lag"] < 0:
        why = _why(row)
    elif not row["lag"]:
        lag_ms = age_ms = 0
    else:
        place = unread.get(_place(row), Unread(None, "not looked at: others have a larger lag"))
        first, why = place.timestamp, printable(place.why)
        last = newest.get((row["topic"], row["partition"]))
        if not why and first is None:  # markers alone
            lag_ms = age_ms = 0
        elif not why and first is not None:
            lag_ms, age_ms = None if last is None else max(0, last - first), max(0, now_ms - first)
    return {
        "group": printable(row["group"]),
        "topic": printable(row["topic"]) if row["topic"] is not None else row["topicId"],
        "partition": row["partition"],
        "offset": row["offset"],
        "endOffset": row["endOffset"],
        "lag": row["lag"],
        "commitTimestamp": row["commitTime"],
        "stale": bool(row["stale"]),
        "firstUnreadTimestamp": first,
        "lagMs": lag_ms,
        "ageMs": age_ms,
        "whyNotKnown": why,
    }


def _why(row: _Row) -> str:
    if row["stale"]:
        return _STALE
    if row["offset"] is None:
        return _PENDING
    return "the partition is not on these disks" if row["lag"] is None else ABOVE_END


def _rank(row: _Row) -> tuple[Any, ...]:
    """The oldest unread record first, then the largest lag."""
    first = row["firstUnreadTimestamp"]
    return first is None, first or 0, -(row["lag"] or 0), row["group"], row["topic"], row["partition"]


def group_rows(
    rows: Sequence[_Row], offsets: Sequence[_Row], commands: Mapping[str, tuple[Command, ...]]
) -> list[_Row]:
    """Return groups in the order of the offsets that wait longest; groups without offsets come last."""
    by_group: dict[str, list[_Row]] = {}
    for row in offsets:
        by_group.setdefault(row["group"], []).append(row)
    place = {name: at for at, name in enumerate(by_group)}
    groups = []
    for row in rows:
        name = printable(row["group"])
        held = by_group.get(name, [])
        timed = [entry for entry in held if not entry["whyNotKnown"]]
        lags = [entry["lag"] for entry in held if not entry["stale"] and (entry["lag"] or 0) >= 0]
        groups.append(
            {
                "group": name,
                "type": row["type"],
                "state": row["state"],
                "protocolType": row["protocolType"] or None,
                "members": row["members"],
                "offsets": row["offsets"],
                "lag": _of_known(sum, lags),
                "commands": list(commands[row["group"]]),
                "lagMs": _of_known(max, [entry["lagMs"] for entry in timed]),
                "ageMs": _of_known(max, [entry["ageMs"] for entry in timed]),
                "notKnown": len(held) - len(timed),
            }
        )
    return sorted(groups, key=lambda row: (place.get(row["group"], len(place)), row["group"]))


def _of_known(choose: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    figures = [value for value in values if value is not None]
    return choose(figures) if figures else None
