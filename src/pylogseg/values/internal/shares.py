"""Where share groups stand, from ``__share_group_state``: snapshots and the updates behind them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.errors import CorruptionError
from pylogseg.format.messages.framing import decode_coordinator
from pylogseg.reading.state import LENIENT
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.image import Image
from pylogseg.values.internal.keyed_log import KeyedLog, newest_replicas
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.offsets import PartitionEnds
from pylogseg.values.internal.state_columns import SHARE_OFFSETS, state_table

TOPIC = "__share_group_state"
_SNAPSHOT, _UPDATE = 0, 1
_STATES = {0: "available", 2: "acknowledged", 4: "archived"}
_Row = dict[str, Any]


class DeliverySpan(NamedTuple):
    """Records of one delivery state; the last offset is included."""

    first: int
    last: int
    state: int
    deliveries: int


def combine(old: list[DeliverySpan], new: list[DeliverySpan], start_offset: int) -> list[DeliverySpan]:
    """Lay new states of records over old ones, as the share coordinator does.

    Where two overlap, the one with more deliveries wins, then the one with the higher state. Offsets below the start
    are cut off, and neighbours with the same state and count are joined.
    """
    spans = sorted(span for span in (*old, *new) if start_offset <= span.last >= span.first)
    edges = sorted({max(span.first, start_offset) for span in spans} | {span.last + 1 for span in spans})
    merged: list[DeliverySpan] = []
    here: list[tuple[int, int, DeliverySpan]] = []  # a heap of what began, the best first
    begun = 0
    for first, end in itertools.pairwise(edges):
        while begun < len(spans) and spans[begun].first <= first:
            heapq.heappush(here, (-spans[begun].deliveries, -spans[begun].state, spans[begun]))
            begun += 1
        while here and here[0][2].last < first:
            heapq.heappop(here)
        if not here:
            continue
        best = here[0][2]
        before = merged[-1] if merged else None
        if before is not None and before.last + 1 == first and before[2:] == best[2:]:
            merged[-1] = before._replace(last=end - 1)
        else:
            merged.append(DeliverySpan(first, end - 1, best.state, best.deliveries))
    return merged


def _spans(fields: _Row) -> list[DeliverySpan]:
    return [
        DeliverySpan(batch["firstOffset"], batch["lastOffset"], batch["deliveryState"], batch["deliveryCount"])
        for batch in fields["stateBatches"]
    ]


def _merge(state: _Row | None, fields: _Row) -> _Row:
    """Apply an update; one without a snapshot before it begins a state of its own."""
    if state is None:
        return fields | {"spans": combine([], _spans(fields), fields["startOffset"]), "stateEpoch": -1}
    merged = state.copy()
    for name in ("startOffset", "leaderEpoch", "deliveryCompleteCount"):
        if fields[name] != -1:
            merged[name] = fields[name]
    merged["snapshotEpoch"] = fields["snapshotEpoch"]
    merged["spans"] = combine(state["spans"], _spans(fields), merged["startOffset"])
    return merged


def share_states(disk: Disk, cut_off: CutOff, notes: Notes) -> dict[tuple[str, str, int], _Row]:
    """Return the state of each share-partition by group, topic id and partition."""
    states: dict[tuple[str, str, int], _Row] = {}
    for log in newest_replicas(disk, TOPIC, notes):
        for key, number, fields in _records(KeyedLog(log, cut_off, notes), notes):
            at = key["groupId"], key["topicId"], key["partition"]
            if fields is None:
                states.pop(at, None)
            elif number == _SNAPSHOT:
                states[at] = fields | {"spans": combine([], _spans(fields), fields["startOffset"])}
            else:
                states[at] = _merge(states.get(at), fields)
    return states


def _records(keyed: KeyedLog, notes: Notes) -> Iterator[tuple[_Row, int, _Row | None]]:
    state = LENIENT.start()
    for columns, segment in keyed.read(state):
        for i, offset in enumerate(columns.offset.tolist()):
            try:
                key, value = decode_coordinator(TOPIC, columns.key(i) or b"", columns.value(i), segment.path, offset)
            except CorruptionError as error:
                notes.add_damage(str(error))
                continue
            if key.fields is None or (value.fields is None and value.version >= 0):
                notes.add_left_out(
                    f"{segment.path}: offset {offset} has unknown type {key.number} or version {value.version}"
                )
            else:
                yield key.fields, key.number, value.fields
    keyed.note_gaps(state)


def share_table(disk: Disk, cut_off: CutOff, image: Image | None, ends: PartitionEnds, notes: Notes) -> pa.Table:
    """Return a row for each share-partition; its lag counts records above the start that are not finished."""
    rows = []
    topics = image.topics if image else {}
    for (group, topic_id, partition), state in share_states(disk, cut_off, notes).items():
        topic, start = topics.get(topic_id), state["startOffset"]
        end = ends.of(topic, partition).end if topic is not None else None
        delivered = state["deliveryCompleteCount"]
        has_ends = end is not None and start >= 0 and delivered >= 0
        rows.append(
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "startOffset": None if start < 0 else start,
                "leaderEpoch": state["leaderEpoch"],
                "stateEpoch": state["stateEpoch"],
                "snapshotEpoch": state["snapshotEpoch"],
                "endOffset": end,
                "delivered": None if delivered < 0 else delivered,
                "lag": end - start - delivered if has_ends and end is not None else None,
                "batches": [
                    {"firstOffset": s.first, "lastOffset": s.last, "state": _STATES.get(s.state, str(s.state)),
                     "deliveryCount": s.deliveries}
                    for s in state["spans"]
                ],
                "topicId": topic_id,
            }
        )  # fmt: skip
    rows.sort(key=lambda row: (row["group"], row["topic"] or row["topicId"], row["partition"]))
    return state_table(rows, SHARE_OFFSETS)
