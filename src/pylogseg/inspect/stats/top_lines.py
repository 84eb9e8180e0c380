"""Heaviest keys and largest records, as tables and as JSON: `stats --top-keys` and `--largest`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pylogseg.disk.disk import Segment
from pylogseg.format.escape import printable_line
from pylogseg.format.moments import time_text
from pylogseg.format.outcome import TextTable
from pylogseg.format.text import payload_text
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.groups import StatsGroup
from pylogseg.inspect.stats.sketch import Heaviest
from pylogseg.inspect.stats.tops import TopRecord, Tops

#: Characters of a key in a table.
_SHOWN = 60


def tops_row(group: StatsGroup, limit_bytes: int) -> dict[str, Any]:
    """Return the heaviest keys and largest records as plain values for JSON."""
    tops = group.stats.tops
    if tops is None:
        return {}
    row: dict[str, Any] = {}
    if tops.key_count:
        for name, unit, by in (
            ("topKeysByRecords", "records", tops.by_records),
            ("topKeysByBytes", "size", tops.by_bytes),
        ):
            row[name] = [{"key": _key(record), unit: weight} for record, weight in tops.keys(by, limit_bytes)]
            row[f"{name}Missed"] = by.missed
    if tops.record_count:
        row["largest"] = [
            {
                "partition": _name(segment),
                "offset": offset,
                "size": size,
                "keyBytes": None if record is None else record.key_bytes,
                "valueBytes": None if record is None else record.value_bytes,
                "timestamp": None if record is None else record.timestamp,
                "key": _key(record),
            }
            for segment, offset, size, record in tops.largest(limit_bytes)
        ]
    return row


def top_lines(groups: Sequence[StatsGroup], limit_bytes: int) -> Iterator[str | TextTable]:
    """Yield tables of the keys and records, if they were counted."""
    tops_of = [(group.name, group.stats.tops) for group in groups if group.stats.tops is not None]
    if not tops_of:
        return
    if tops_of[0][1].key_count:
        yield from _key_lines("RECORDS", [(name, tops, tops.by_records) for name, tops in tops_of], limit_bytes)
        yield from _key_lines("SIZE", [(name, tops, tops.by_bytes) for name, tops in tops_of], limit_bytes)
    if tops_of[0][1].record_count:
        yield from _largest_lines([row for _, tops in tops_of for row in tops.largest(limit_bytes)])


def _key_lines(unit: str, found: list[tuple[str, Tops, Heaviest]], limit_bytes: int) -> Iterator[str | TextTable]:
    several = len(found) > 1
    show = size_text if unit == "SIZE" else str
    table = [
        (*([name] if several else []), _show(record), show(weight), f"{100 * weight / max(by.total, 1):.1f} %")
        for name, tops, by in found
        for record, weight in tops.keys(by, limit_bytes)
    ]
    yield ""
    yield TextTable([*(["NAME"] if several else []), f"TOP KEY BY {unit}", unit, "SHARE"], table, [unit, "SHARE"])
    for name, _, by in found:
        if by.missed:
            yield (f"{name}: too many keys to count exactly: each count may be up to {show(by.missed)} too low")


def _largest_lines(found: list[tuple[Segment, int, int, TopRecord | None]]) -> Iterator[str | TextTable]:
    yield ""
    table = [
        (
            _name(segment),
            offset,
            size_text(size),
            *((record.key_bytes, record.value_bytes, time_text(record.timestamp)) if record else (None,) * 3),
            _show(record),
        )
        for segment, offset, size, record in found
    ]
    heads = ["PARTITION", "LARGEST", "SIZE", "KEY BYTES", "VALUE BYTES", "TIME", "KEY"]
    yield TextTable(heads, table, ["LARGEST", "SIZE", "KEY BYTES", "VALUE BYTES"])


def _name(segment: Segment) -> str:
    return f"{segment.topic}-{segment.partition}" if segment.topic else segment.path


def _key(record: TopRecord | None) -> str | None:
    return None if record is None else payload_text(record.key)


def _show(record: TopRecord | None) -> str | None:
    return "(deleted meanwhile)" if record is None else shown_key(record.key, record.key_bytes)


def shown_key(key: bytes | None, size: int | None) -> str | None:
    """Return a key as in a table: cut off, with its size, if it is long."""
    text = payload_text(key)
    if text is None:
        return None
    text = printable_line(text) or "(empty)"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({size} bytes)"
