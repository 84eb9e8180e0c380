"""`stats --top-keys` and `--largest`: print heaviest keys and largest records, as tables or JSON."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.streams import say
from pylogseg.disk.disk import Segment
from pylogseg.format.escape import printable_line
from pylogseg.format.moments import time_text
from pylogseg.format.text import payload_text
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.groups import StatsGroup
from pylogseg.inspect.stats.sketch import Heaviest
from pylogseg.inspect.stats.tops import TopRecord, Tops

#: Characters of a key in a table.
_SHOWN = 60


def tops_row(group: StatsGroup, limit_bytes: int) -> dict[str, Any]:
    """Return what was found as plain values for JSON."""
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


def print_tops(groups: list[StatsGroup], limit_bytes: int) -> None:
    """Print tables of what was found, if requested."""
    found = [(group.name, group.stats.tops) for group in groups if group.stats.tops is not None]
    if not found:
        return
    if found[0][1].key_count:
        _print_keys("RECORDS", [(name, tops, tops.by_records) for name, tops in found], limit_bytes)
        _print_keys("SIZE", [(name, tops, tops.by_bytes) for name, tops in found], limit_bytes)
    if found[0][1].record_count:
        _print_largest([row for _, tops in found for row in tops.largest(limit_bytes)])


def _print_keys(unit: str, found: list[tuple[str, Tops, Heaviest]], limit_bytes: int) -> None:
    several = len(found) > 1
    show = size_text if unit == "SIZE" else str
    table = [
        (*([name] if several else []), _shown(record), show(weight), f"{100 * weight / max(by.total, 1):.1f} %")
        for name, tops, by in found
        for record, weight in tops.keys(by, limit_bytes)
    ]
    click.echo()
    common.print_table([*(["NAME"] if several else []), f"TOP KEY BY {unit}", unit, "SHARE"], table, [unit, "SHARE"])
    for name, _, by in found:
        if by.missed:
            say(f"{name}: too many keys to count exactly: each count may be up to {show(by.missed)} too low")


def _print_largest(found: list[tuple[Segment, int, int, TopRecord | None]]) -> None:
    click.echo()
    table = [
        (
            _name(segment),
            offset,
            size_text(size),
            *((record.key_bytes, record.value_bytes, time_text(record.timestamp)) if record else (None,) * 3),
            _shown(record),
        )
        for segment, offset, size, record in found
    ]
    heads = ["PARTITION", "LARGEST", "SIZE", "KEY BYTES", "VALUE BYTES", "TIME", "KEY"]
    common.print_table(heads, table, ["LARGEST", "SIZE", "KEY BYTES", "VALUE BYTES"])


def _name(segment: Segment) -> str:
    return f"{segment.topic}-{segment.partition}" if segment.topic else segment.path


def _key(record: TopRecord | None) -> str | None:
    return None if record is None else payload_text(record.key)


def _shown(record: TopRecord | None) -> str | None:
    return "(deleted meanwhile)" if record is None else shown_key(record.key, record.key_bytes)


def shown_key(key: bytes | None, size: int | None) -> str | None:
    """Return a key as in a table: cut off, with its size, if it is long."""
    text = payload_text(key)
    if text is None:
        return None
    text = printable_line(text) or "(empty)"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({size} bytes)"
