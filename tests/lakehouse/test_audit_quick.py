"""`audit --quick`: what counts and statistics tell, and that no row is read for it."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import WRITERS, parquet, records
from helpers.pickled_executor import Pickled
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse import audit as auditing


@pytest.fixture(scope="module")
def examples(request):
    return request.config.rootpath / "examples" / "data"


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
    found = quick(examples, WRITERS[format](tmp_path / "t", parts))
    name = "codec-gzip-0"
    assert wrong(found) == [(name, "lost", 100, 119, 20), (name, "lost", 120, 199, 3), (name, "double", 200, 249, 20)]
    (only,) = found.partitions
    assert (only.double, only.lost, only.missing["notYet"], only.rows) == (20, 23, 105, 397)
    whole = quick(examples, tmp_path / "t" if format != "iceberg" else _only(tmp_path), complete=True)
    assert wrong(whole)[-1] == (name, "lost", 400, 504, 105)


def _only(folder):
    return folder / "t" / "warehouse" / "kafka" / "orders"


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
    done = run("audit", log, table, "--quick")
    assert done.code == 0
    assert "codec-none-1: counts as in the log (505 rows)" in done.text
    assert done.text.splitlines()[-1] == (
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
