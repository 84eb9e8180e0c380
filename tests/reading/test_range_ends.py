"""Tests of reading/offset_range.py and reading/ranges.py. Ends of ranges: order, fractions of milliseconds, and what is
no number.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.shell import pylogseg, run

import pylogseg as package
from pylogseg import encode
from pylogseg.cli.common import parse_moment
from pylogseg.errors import RequestError

START = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
START_MS = int(START.timestamp() * 1000)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten records, one in each millisecond."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "d" / "t-0"
    folder.mkdir(parents=True)
    records = [(START_MS + i, b"k%d" % i, b"v") for i in range(10)]
    (folder / f"{0:020}.log").write_bytes(b"".join(encode([r], base_offset=i) for i, r in enumerate(records)))
    return tmp_path / "d"


@pytest.mark.parametrize("name", ["cat d", "grep v d", "latest d", "export d -O lake", "stats d", "cat d -F"])
@pytest.mark.parametrize("range_", ["--since 1000 --until 999", "--since 1h --until 2h"])
def test_a_range_of_times_that_ends_before_it_begins_is_refused(log: Path, name: str, range_: str) -> None:
    done = run(f"{name} {range_}")
    assert (done.code, done.out) == (2, b"")
    assert "ends before it begins" in done.err or "--follow has no end" in done.err
    assert not Path("lake").exists()


def test_such_a_range_is_refused_in_python_too(log: Path) -> None:
    with pytest.raises(RequestError, match="ends before it begins"):
        package.read("d", timestamp=(START_MS + 1, START_MS))
    with pytest.raises(RequestError, match="ends before it begins"):
        package.read_arrow("d", timestamp=(START + datetime.timedelta(1), START))
    assert list(package.read("d", timestamp=(START_MS, START_MS))) == []


@pytest.mark.parametrize("argument", ["offset", "timestamp", "limit", "partition"])
@pytest.mark.parametrize("value", [True, False, 1.0])
def test_a_truth_value_is_no_number(log: Path, argument: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{argument} must be a whole number, not {value}"):
        list(package.read("d", **{argument: value}))
    if argument in ("offset", "timestamp"):
        with pytest.raises(RequestError, match="whole number"):
            package.read("d", **{argument: (0, value)})


AFTER = START + datetime.timedelta(microseconds=4500)  # between the records of offsets 4 and 5


def offsets(done: Any) -> list[int]:
    return [row["offset"] for row in done.rows]


def test_a_fraction_of_a_millisecond_is_between_two_records(log: Path) -> None:
    text = AFTER.isoformat()
    first, second = list(range(5)), list(range(5, 10))
    assert offsets(run(f"cat d --until {text}")) == first
    assert offsets(run(f"cat d --since {text}")) == second
    assert [r.offset for r in package.read("d", timestamp=(None, AFTER))] == first
    assert [r.offset for r in package.read("d", timestamp=AFTER)] == second
    table = package.dataset("d")
    at = pa.scalar(AFTER)
    for wanted, condition in ((first, pc.field("timestamp") < at), (second, pc.field("timestamp") >= at)):
        assert table.to_table(filter=condition)["offset"].to_pylist() == wanted
        assert [r.offset for r in package.read("d", filter=condition)] == wanted
    for wanted, sign in ((first, "<"), (second, ">="), (first, "<="), (second, ">")):
        query = f"select \"offset\" from t where timestamp {sign} timestamptz '{text}' order by 1"
        assert offsets(pylogseg("sql", "d", query, "-O", "json")) == wanted
    assert parse_moment(text) == START_MS + 5
    assert parse_moment(text, rounds_down=True) == START_MS + 4
    assert parse_moment("1969-12-31T23:59:59.9995Z") == 0
    assert parse_moment(START.isoformat()) == START_MS
