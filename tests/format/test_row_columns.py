"""Tests of format/columns.py. Tests of format/columns.py: a kind of row is declared once, and each declared column can
be read.
"""

from __future__ import annotations

import enum
import importlib
import json
import pkgutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pylogseg
from pylogseg.errors import CorruptionError
from pylogseg.format.columns import SPREAD, TableColumn, declare_columns, get_columns, line_type, spark_ddl, to_row

BANDS = ("archive", "disk", "inspect", "lakehouse", "log", "offline", "walker")


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    first_offset: int
    colour: Colour = Colour.RED


@declare_columns(
    line_type("log"),
    TableColumn("log", "string", "its name", source="name"),
    TableColumn(SPREAD, "map<string, int64>", "counts", source="counts"),
    TableColumn("nextOffset", "int64", "after the last one"),
    TableColumn("points", "list<struct>", "of the log", fields=get_columns(Point)),
    TableColumn("error", "string", "why it ended"),
    TableColumn("gaps", "list<string>", "of the log", is_optional=True),
)
@dataclass
class Log:
    name: str
    counts: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0
    points: list[Point] = field(default_factory=list)
    error: Exception | None = None
    gaps: list[str] = field(default_factory=list)


@declare_columns(line_type("sum"), TableColumn("state", "string", "a word", source="state.value"), with_fields=True)
@dataclass
class Sum:
    all_records: int
    state: Colour


@dataclass
class LargerSum(Sum):
    point: Point | None = None


def test_a_row_has_the_declared_columns_in_their_order() -> None:
    error = CorruptionError("file", 3, "bad")
    row = to_row(Log("a", {"b": 1, "c": 2}, 9, [Point(4)], error))
    assert json.dumps(row) == json.dumps(
        {"type": "log", "log": "a", "b": 1, "c": 2, "nextOffset": 9, "points": [{"firstOffset": 4, "colour": "red"}],
         "error": str(error)}
    )  # fmt: skip
    assert to_row(Log("a", gaps=["g"]))["gaps"] == ["g"]


def test_fields_follow_the_declared_columns() -> None:
    assert list(to_row(Sum(3, Colour.RED)).items()) == [("type", "sum"), ("allRecords", 3), ("state", "red")]
    assert to_row(LargerSum(3, Colour.RED, Point(1)))["point"] == {"firstOffset": 1, "colour": "red"}


def test_spark_gets_the_types() -> None:
    columns = (line_type("x"), TableColumn("sizes", "list<int64>", "of files"))
    assert spark_ddl(columns) == "`type` string, `sizes` array<bigint>"


def declared() -> list[type]:
    kinds = []
    for band in BANDS:
        package = importlib.import_module(f"pylogseg.{band}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            kinds += [kind for kind in vars(module).values() if "__columns__" in getattr(kind, "__dict__", ())]
    return list(dict.fromkeys(kinds))


def readable(kind: Any, source: str) -> bool:
    name = source.partition(".")[0]
    return hasattr(kind, name) or any(name in vars(base).get("__annotations__", ()) for base in kind.__mro__)


def test_each_declared_column_has_a_meaning_and_can_be_read() -> None:
    kinds = declared()
    assert len(kinds) > 15
    assert pylogseg.Gap in kinds
    for kind in kinds:
        columns, _ = kind.__columns__  # type: ignore[attr-defined]
        names = [column.name for column in columns]
        assert len(set(names)) == len(names), kind
        for column in columns:
            assert column.meaning, (kind, column.name)
            source = column.source or "".join(f"_{c.lower()}" if c.isupper() else c for c in column.name)
            assert callable(source) or readable(kind, source), (kind, column.name)
