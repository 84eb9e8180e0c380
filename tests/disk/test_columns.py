"""Tests of disk/columns.py. The columns of tables are declared once: what the doors print has their names."""

from __future__ import annotations

from pathlib import Path

from helpers.shell import pylogseg

from pylogseg.disk import columns
from pylogseg.format.columns import TableColumn


def names(table: tuple[TableColumn, ...]) -> list[str]:
    return [column.name for column in table]


def test_each_name_has_one_type() -> None:
    types: dict[str, str] = {}
    for table in (*columns.TABLES.values(), columns.LISTED_SEGMENTS, columns.STATS, columns.EXPORTED, columns.HOURS):
        assert len(set(names(table))) == len(table)
        for column in table:
            assert types.setdefault(column.name, column.type) == column.type
            assert column.meaning


def test_lists_have_the_declared_columns(examples: Path) -> None:
    rare = {"missingSegments", "error"}  # only where there are any
    for words, table in (((), columns.PARTITIONS), (("-l",), columns.SEGMENTS)):
        rows = pylogseg("ls", examples, *words, "--json").rows
        assert rows
        for row in rows:
            assert [*row] == [name for name in names(table) if name in row or name not in rare]


def test_stats_have_the_declared_columns(examples: Path) -> None:
    whole = names(columns.STATS)
    of_logs = {"dirtyRatio", "missingOffsets", "missingRanges", "missingRangesNotListed"}
    for words in ((), ("--by", "topic"), ("--since", "0", "--by", "partition")):
        rows = pylogseg("stats", examples, *words, "--json").rows
        assert rows
        for row in rows:
            assert [*row] == [name for name in whole if "--since" not in words or name not in of_logs]
            for column in columns.STATS:
                found = row.get(column.name)
                inner = found.values() if column.type.startswith("map") and column.fields else [found]
                inner = found if column.type == "list<struct>" and found else inner
                assert all([*each] == names(column.fields) for each in inner if each and column.fields)


def test_dump_has_the_declared_columns(examples: Path) -> None:
    path = next(examples.glob("txn-a-0/*.log"))
    rows = [row for row in pylogseg("dump", path, "--json").rows if row["type"] == "batch"]
    declared = {*names(columns.BATCHES)} - {"topic", "partition", "segment", "problem"}
    assert rows
    assert all(declared <= {*row} for row in rows)


def test_reports_have_the_declared_columns(examples: Path, tmp_path: Path) -> None:
    done = pylogseg("report", examples, "--json")
    own = {"name", "read", "batches", "records", "codecs", "damage", "isGone", "merged", "modifiedMs"}
    segments = [row for part in done.rows[0]["partitions"] for row in part["segments"]]
    assert segments
    assert all({*row} - own <= {*names(columns.SEGMENTS)} for row in segments)
