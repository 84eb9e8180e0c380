"""The tables of a report as CSV files, one for each kind of row."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pylogseg.env.beside import whole
from pylogseg.format.columns import to_json
from pylogseg.reporting.facts import Facts

#: Columns that come before those of a row which belongs to a partition.
_OWNER = ("name", "disk", "state")
_MARKS = ("=", "+", "-", "@", "\t", "\r")


def write_csv_tables(facts: Facts, folder: Path) -> list[Path]:
    """Write a CSV file for each kind of row, all or none; a kind without rows has no file."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with contextlib.ExitStack() as stack:
        for name, rows in tables(facts).items():
            listed = list(rows)
            if not listed:
                continue
            columns = list(dict.fromkeys(column for row in listed for column in row))
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(row.get(column)) for column in columns] for row in listed)
            written.append(folder / f"{name}.csv")
            file = stack.enter_context(whole(written[-1]))
            file.write(text.getvalue().encode())
            file.flush()
    return written


def tables(facts: Facts) -> dict[str, Iterable[Mapping[str, Any]]]:
    of: dict[str, Any] = to_json(facts)
    parts = of["partitions"]
    return {
        "findings": [_flat(row) for row in of["findings"]],
        "disks": [_flat(row) for row in of["disks"]],
        "topics": [_flat(row) for row in of["topics"]],
        "partitions": [_flat(row) for row in parts],
        "segments": _add_owner(parts, "segments"),
        "series": [{**_owner(part), **row} for part in parts for row in _buckets(part["series"])],
        "topic-series": [
            {"topic": topic["name"], **row} for topic in of["topics"] for row in _buckets(topic["series"])
        ],
        "hours": _buckets(of["growth"]["hours"]),
        "days": _buckets(of["growth"]["days"]),
        "codecs": [{**_owner(part), **row} for part in parts if part["sample"] for row in part["sample"]["codecs"]],
        "keys": [
            {**_owner(part), "most": most, **row}
            for part in parts
            if part["sample"]
            for most, rows in (("records", "keysByRecords"), ("bytes", "keysByBytes"), ("largest", "largest"))
            for row in part["sample"][rows]
        ],
        "missing": [{**_owner(part), **row} for part in parts if part["missing"] for row in part["missing"]["ranges"]],
        "producers": _add_owner(parts, "producers"),
        "aborted": [{**_owner(part), **row} for part in parts for row in part["transactions"]["aborted"]],
        "epochs": _add_owner(parts, "leaderEpochs"),
        "cleaning": [{**_owner(part), **_flat(part["cleaning"], deep=True)} for part in parts if part["cleaning"]],
        "groups": [_flat(row) for row in of["groups"]],
        "group-offsets": [_flat(row) for row in of["groupOffsets"]],
        "replicas": [_flat(row) for row in of["replicas"]],
        "topic-settings": [_flat(row) for row in of["topicSettings"]],
        "transactions": [{**row, "partitions": " ".join(row["partitions"])} for row in of["transactions"]],
        **_since(of["since"] or {}),
        "open-transactions": [_flat(row) for row in of["openTransactions"]],
    }


def _since(changes: Mapping[str, Any]) -> dict[str, Iterable[Mapping[str, Any]]]:
    names = ("partitions", "findings", "groups", "settings", "replicas")
    return {f"since-{name}": [_flat(row) for row in changes.get(name, ())] for name in names}


def _owner(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"partition" if name == "name" else name: part[name] for name in _OWNER}


def _add_owner(parts: Iterable[Mapping[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    for part in parts:
        for row in part[name]:
            own = _owner(part)
            yield {**own, **{("segmentState" if key == "state" else key): value for key, value in _flat(row).items()}}


def _buckets(series: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for start, records, size in zip(series["starts"], series["records"], series["bytes"], strict=True):
        yield {"start": start, "stepMs": series["stepMs"], "records": records, "bytes": size}


def _flat(row: Mapping[str, Any], deep: bool = False) -> dict[str, Any]:
    """Return the plain values of a row; lists of words joined, and with `deep` the values of its structures too."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if name == "commands":
            cells[name] = "; ".join(part["text"] for part in value)
        elif isinstance(value, list):
            if all(not isinstance(item, (dict, list)) for item in value):
                cells[name] = " ".join(map(str, value))
        elif isinstance(value, dict):
            if deep:
                cells.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            cells[name] = value
    return cells


def _cell(value: Any) -> Any:
    """Return a value for a cell: text that a spreadsheet would take for a formula begins with an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_MARKS) else value
