"""Tests of lakehouse/audit_quick.py, lakehouse/audit_result.py and lakehouse/contents.py. `audit --quick`: what counts
and statistics tell, and that no row is read for it.
"""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import WRITERS, parquet, records, with_damaged_end
from helpers.lake_tables import name_of
from helpers.pickled_executor import Pickled
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse import audit as auditing
from pylogseg.lakehouse.audit_result import STRANGE
from pylogseg.lakehouse.contents import CONTENTS


@pytest.fixture(autouse=True)
def no_rows(monkeypatch):
    """No row of a table is read."""
    monkeypatch.setattr(auditing, "Spilling", None)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)


def quick(*given, **how):
    return pylogseg.audit(*given, quick=True, **how)


def wrong(found):
    return [
        (each.name, of.reason or of.kind, of.first_offset, of.last_offset, of.records)
        for each in found.partitions
        for of in each.ranges
    ]


def test_each_topic_of_a_kafka_counts_as_its_table(examples, tmp_path):
    """Transactions, compaction, retention; a file for each partition, as statistics need it."""
    rows = records(examples)
    by = {}
    for row, key in enumerate(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)):
        by.setdefault(key, []).append(row)
    table = parquet(tmp_path / "t", [rows.take(of) for of in by.values()], row_group_size=100)
    for executor in (None, Pickled()):
        found = quick(examples, table, executor=executor)
        assert (found.is_right, found.is_whole, found.is_quick, wrong(found)) == (True, True, True, [])
        assert sum(each.present for each in found.partitions) == found.rows == rows.num_rows
        assert len(found.partitions) == len(by)


@pytest.mark.parametrize("format", WRITERS)
def test_what_is_lost_and_double(examples, tmp_path, format):
    """A hole between files, one in a file, a file again, rows that are not there yet."""
    rows = records(examples, "codec-gzip")
    parts = [rows.slice(0, 100), pa.concat_tables([rows.slice(120, 30), rows.slice(153, 47)]), rows.slice(200, 50),
             rows.slice(210, 20), rows.slice(250, 150)]  # fmt: skip
    table = WRITERS[format](tmp_path / "t", parts)
    found = quick(examples, table)
    name = "codec-gzip-0"
    assert wrong(found) == [(name, "lost", 100, 119, 20), (name, "lost", 120, 199, 3), (name, "double", 200, 249, 20)]
    (only,) = found.partitions
    assert (only.double, only.lost, only.missing["notYet"], only.rows) == (20, 23, 105, 397)
    assert wrong(quick(examples, table, complete=True))[-1] == (name, "lost", 400, 504, 105)


def test_many_partitions_in_a_row_group_of_lake(examples, tmp_path):
    """The footer of a file says of each partition which offsets it has; a file of another writer does not."""
    data = tmp_path / "data"
    for name in ("txn-a-0", "txn-a-1"):
        shutil.copytree(examples / name, data / name)
    for kind in ("delta", "iceberg"):
        table = name_of(kind, tmp_path / kind, "txn")
        pylogseg.lake(data, table, to_end=True)
        (path,) = (tmp_path / kind).rglob("*.parquet")
        assert pq.read_metadata(path).num_row_groups == 1
        found = quick(data, table)
        assert (found.is_right, found.is_whole, wrong(found)) == (True, True, [])
        assert [(each.name, each.present) for each in found.partitions] == [("txn-a-0", 48), ("txn-a-1", 4)]
    rows = pq.read_table(path, partitioning=None)
    again = parquet(tmp_path / "again", [rows, rows.slice(50)])
    found = quick(data, again)
    assert [(each.name, each.rows, each.is_right) for each in found.partitions] == [
        ("txn-a-0", 48, True), ("txn-a-1", 6, False)
    ]  # fmt: skip
    for bad in (rows.slice(1), rows.replace_schema_metadata({CONTENTS: "[[]]"}), rows.replace_schema_metadata({})):
        found = quick(data, parquet(tmp_path / f"bad{bad.num_rows}{len(bad.schema.metadata or ())}", [bad]))
        assert (found.is_whole, [each.rows for each in found.findings]) == (False, [bad.num_rows])
    assert not quick(data, table, columns={"offset": "timestampType"}).is_whole


@pytest.mark.parametrize("harm", ["crc", "torn"])
def test_a_damaged_end_is_not_looked_at(examples, tmp_path, harm):
    """Rows behind it are neither foreign nor double."""
    rows = records(examples, "codec-none", partition=1)
    log = with_damaged_end(examples, tmp_path, harm)
    for parts in ([rows], [rows.slice(0, 400), rows.slice(400)], [rows.slice(at + 505, 1) for at in range(-3, 0)]):
        found = quick(log, parquet(tmp_path / f"t{len(parts)}", parts))
        (only,) = found.partitions
        assert (only.foreign, only.double, only.is_whole) == (dict.fromkeys(STRANGE, 0), 0, False)


def test_a_row_behind_the_end_beside_a_lost_one(examples, tmp_path):
    """The counts are the same, and the bounds tell."""
    rows = records(examples, "codec-gzip")
    beyond = rows.slice(0, 1).set_column(4, "offset", pa.array([505], pa.int64()))
    found = quick(examples, parquet(tmp_path / "t", [pa.concat_tables([rows.slice(0, 7), rows.slice(8), beyond])]))
    name = "codec-gzip-0"
    assert wrong(found) == [(name, "beyondEnd", 505, 505, 1), (name, "lost", 0, 504, 1)]


def test_a_single_file_is_a_log(examples, tmp_path):
    segment = max((examples / "codec-none-1").glob("*.log"))
    rows = records(segment)
    found = quick(segment, parquet(tmp_path / "t", [rows.slice(0, 50), rows.slice(51)]))
    first = int(segment.stem) + 50
    assert wrong(found) == [("codec-none-1", "lost", first, first, 1)]
    assert found.rows == rows.num_rows - 1


def test_rows_that_the_log_does_not_have(examples, tmp_path):
    rows = records(examples, "txn-a", "read_uncommitted", partition=0)
    like = rows.slice(0, 1)
    beyond = like.set_column(4, "offset", pa.array([900], pa.int64()))
    other = like.set_column(3, "partition", pa.array([7], pa.int32()))
    found = quick(examples / "txn-a-0", parquet(tmp_path / "t", [rows, beyond, other]))
    first, last = rows["offset"][0].as_py(), rows["offset"][-1].as_py()
    assert wrong(found) == [
        ("txn-a-0", "aborted", first, last, 67),
        ("txn-a-0", "beyondEnd", 900, 900, 1),
        ("txn-a-7", "noPartition", first, first, 1),
    ]


def test_what_statistics_do_not_tell_is_not_looked_at(examples, tmp_path):
    """Several partitions in a row group, no statistics, a damaged log: exit code 2."""
    rows = records(examples, ["codec-gzip", "txn-a"])
    found = quick(examples, parquet(tmp_path / "t", [rows]))
    assert [(each.kind, each.rows) for each in found.findings] == [("unread", rows.num_rows)]
    assert not found.is_whole
    one = records(examples, "codec-none", partition=1)
    bare = parquet(tmp_path / "u", [one], write_statistics=False)
    assert run("audit", examples, "codec-none-1", bare, "--quick").code == 2
    table = parquet(tmp_path / "v", [one])
    log = shutil.copytree(examples / "codec-none-1", tmp_path / "log" / "codec-none-1")
    done = expect(run("audit", log, table, "--quick"), 0, out="codec-none-1: counts as in the log (505 rows)")
    assert done.text.splitlines()[-2] == (
        "compared: counts of rows by ranges of offsets; single offsets, keys and values were not looked at"
    )
    segment = max(log.glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[16 + len(data) // 2 :] = bytes(len(data) - 16 - len(data) // 2)
    segment.write_bytes(data)
    assert run("audit", log, table, "--quick").code == 2
    with pytest.raises(RequestError, match="whole files"):
        quick(examples, table, offset=(1, 5))
    with pytest.raises(RequestError, match="files of Parquet"):
        quick(examples, one)
