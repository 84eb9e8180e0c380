"""Tests of lakehouse/audit_times.py. `audit` of tables without offsets: by the hour, and said to be weaker."""

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.damaged_logs import change_byte
from helpers.foreign_tables import parquet, records
from helpers.pickled_executor import Pickled
from helpers.shell import expect
from helpers.shell import pylogseg as run
from helpers.shell import rows as rows_of

import pylogseg
from pylogseg.errors import RequestError

HOUR = 3_600_000
NONE = {"offset": ""}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two partitions, 600 records of ten hours each, many of them equal."""
    root = tmp_path_factory.mktemp("log")
    for number in range(2):
        with pylogseg.open_log(root / f"orders-{number}", segment_bytes=6000) as log:
            for first in range(0, 600, 100):
                times = pa.array([n * HOUR // 60 for n in range(first, first + 100)], pa.timestamp("ms", "UTC"))
                values = pa.array([b"%d" % (n % 3) * 20 for n in range(first, first + 100)])
                log.append(pa.table({"timestamp": times, "value": values}))
    return root


@pytest.fixture
def rows(data):
    return records(data).drop_columns("offset").sort_by("timestamp")


def hours(found):
    return [(each.name, of.kind, of.since_ms // HOUR, of.rows, of.records) for each in found.partitions
            for of in each.times]  # fmt: skip


def test_each_topic_of_a_kafka(request, tmp_path):
    """Whatever the order of rows; not only what is compared by offsets is right."""
    examples = request.config.rootpath / "examples" / "data"
    rows = records(examples).drop_columns("offset")
    table = parquet(tmp_path / "t", [rows.sort_by([("value", "ascending")])], row_group_size=300)
    for how in ({}, {"executor": Pickled()}, {"jobs": 2}):
        found = pylogseg.audit(examples, table, columns=NONE, **how)
        assert (found.is_right, found.is_whole, hours(found)) == (True, True, [])
        assert sum(each.present for each in found.partitions) == found.rows == rows.num_rows
    assert found.compared == ["key", "value", "timestamp"]


def test_an_empty_table_lacks_everything(data, rows):
    found = pylogseg.audit(data, rows.slice(0, 0), columns=NONE)
    assert [each.lost for each in found.partitions] == [600, 600]


def test_dead_letters_are_counted(data, rows, tmp_path):
    letters = rows.slice(0, 5)
    parquet(tmp_path / "t~dlq", [letters.append_column("offset", pa.array(range(5)))])
    found = pylogseg.audit(data, parquet(tmp_path / "t", [rows.slice(5)]), columns=NONE)
    assert (found.is_right, found.is_whole, found.rows, found.dead_letters) == (True, True, 1200, 5)


def test_a_damaged_end_is_not_looked_at(data, rows, tmp_path):
    """What lies behind it is not double."""
    copy = shutil.copytree(data, tmp_path / "data")
    change_byte(max((copy / "orders-0").glob("*.log")), -5, 0xFF)
    found = pylogseg.audit(copy, parquet(tmp_path / "t", [rows]), columns=NONE)
    assert (found.is_right, found.is_whole) == (True, False)


def test_what_differs_is_named_by_the_hour(data, rows, tmp_path):
    is_first = pc.equal(rows["partition"], 0)
    first, second = rows.filter(is_first), rows.filter(pc.invert(is_first))
    lost = pa.concat_tables([first.slice(0, 70), first.slice(73)])  # of the hour 1
    changed = second.set_column(1, "value", pa.array([b"x", *second["value"].to_pylist()[1:]]))
    again = second.slice(245, 2)  # of the hour 4
    found = pylogseg.audit(data, parquet(tmp_path / "t", [lost, changed, again]), columns=NONE)
    assert hours(found) == [
        ("orders-0", "lost", 1, 57, 60),
        ("orders-1", "changed", 0, 60, 60),
        ("orders-1", "double", 4, 62, 60),
    ]
    assert [(each.lost, each.double, each.changed) for each in found.partitions] == [(3, 0, 0), (0, 2, 1)]
    assert not found.is_right
    done = expect(run("audit", data, tmp_path / "t", "--columns", "offset="), 1)
    assert "  lost    1970-01-01T01:00Z       an hour: 57 rows of 60 records" in done.text.splitlines()
    assert done.text.splitlines()[-2] == (
        "compared: key, value, timestamp hour by hour, without offsets, which is weaker"
    )
    one = rows_of(run("audit", data, tmp_path / "t", "--columns", "offset=", "--json"), "partition")[0]
    assert one["times"] == [{"kind": "lost", "since": HOUR, "until": 2 * HOUR, "rows": 57, "records": 60}]


def test_a_table_without_partitions(data, rows, tmp_path):
    """All partitions of the topic are one multiset; the last hour may be incomplete."""
    bare = rows.select(["value", "timestamp"]).rename_columns(["value", "when"])
    how = {"columns": {**NONE, "timestamp": "when"}}
    assert pylogseg.audit(data, parquet(tmp_path / "t", [bare]), **how).is_right
    part = parquet(tmp_path / "u", [bare.slice(0, 1000)])
    found = pylogseg.audit(data, part, **how)
    (only,) = found.partitions
    assert (only.name, found.is_right, only.missing["notYet"], only.present) == ("orders", True, 200, 1000)
    assert hours(pylogseg.audit(data, part, complete=True, **how)) == [
        ("orders", "lost", 8, 40, 120),
        ("orders", "lost", 9, 0, 120),
    ]


def test_what_is_selected(request, tmp_path):
    """Other topics of the table are left out; one that it has no row of is lost."""
    examples = request.config.rootpath / "examples" / "data"
    rows = records(examples, ["codec-gzip", "txn-a"]).drop_columns("offset")
    table = parquet(tmp_path / "t", [rows])
    found = pylogseg.audit(examples, table, "txn-a-0", columns=NONE)
    assert [(each.name, each.present) for each in found.partitions] == [("txn-a-0", 48)]
    assert (found.is_right, found.other_rows) == (True, 505 + 4)
    found = pylogseg.audit(examples, table, "txn-a", columns={**NONE, "partition": ""})
    assert [(each.name, each.present) for each in found.partitions] == [("txn-a", 52)]
    assert (found.is_right, found.other_rows) == (True, 505)
    found = pylogseg.audit(examples, table, ["codec-zstd", "codec-gzip"], columns=NONE)
    assert [(each.name, each.lost) for each in found.partitions] == [("codec-gzip-0", 0), ("codec-zstd-0", 505)]
    table = parquet(tmp_path / "u", [rows.slice(0, 0)])
    assert pylogseg.audit(examples, table, "codec-gzip", columns=NONE).partitions[0].lost == 505


def test_what_the_log_has_no_longer(data, rows, tmp_path):
    """Rows that retention took, and those that damage hides, are not wrong."""
    table = parquet(tmp_path / "t", [rows.filter(pc.equal(rows["partition"], 0))])
    log = shutil.copytree(data / "orders-0", tmp_path / "log" / "orders-0")
    names = sorted(log.glob("*.log"))
    for path in log.glob(f"{names[0].stem}.*"):
        path.unlink()
    found = pylogseg.audit(log, table, columns=NONE)
    assert (found.is_right, found.is_whole) == (True, True)
    assert found.partitions[0].unchecked["belowLogStart"] == int(names[1].stem)
    whole = names[2].read_bytes()
    names[2].write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    found = pylogseg.audit(log, table, columns=NONE)
    assert (found.is_right, found.is_whole) == (True, False)
    assert found.partitions[0].unchecked["notLookedAt"] > 0


def test_what_cannot_be_asked(data, rows, tmp_path):
    table = parquet(tmp_path / "t", [rows])
    for how in ({"quick": True}, {"offset": (1, 5)}, {"decoding": "value"}):
        with pytest.raises(RequestError, match="has no offsets"):
            pylogseg.audit(data, table, columns=NONE, **how)
    with pytest.raises(RequestError, match="no column when for the timestamp"):
        pylogseg.audit(data, table, columns={**NONE, "timestamp": "when"})
    with pytest.raises(RequestError, match="not times"):
        pylogseg.audit(data, table, columns={**NONE, "timestamp": "topic"})
    with pytest.raises(RequestError, match="nothing to compare"):
        pylogseg.audit(data, table, columns={**NONE, "key": "", "value": ""})
    with pytest.raises(RequestError, match="or that there is none, and what the times are"):
        pylogseg.audit(data, table)
