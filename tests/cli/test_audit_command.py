"""Tests of cli/audit.py. `pylogseg audit`: what it prints, and its exit codes."""

import shutil

from helpers.damaged_logs import change_byte
from helpers.foreign_tables import parquet, records
from helpers.shell import expect, pylogseg, rows


def test_right(examples, tmp_path):
    table = parquet(tmp_path / "t", [records(examples, ["codec-gzip", "txn-a"])])
    done = expect(pylogseg("audit", examples, table), 0)
    assert done.text.splitlines() == [
        "codec-gzip-0: each record once (505 rows)",
        "txn-a-0: each record once (48 rows)",
        "  not in the table: 67 aborted, 28 control records, 5 not yet",
        "txn-a-1: each record once (4 rows)",
        "  not in the table: 4 aborted, 4 control records, 1 not yet",
        f"{table} (parquet): 3 partitions, 557 rows in 1 file: each record once",
    ]
    assert len(pylogseg("audit", examples, table, "--quiet").text.splitlines()) == 1


def test_wrong(examples, tmp_path):
    found = records(examples, "codec-gzip")
    table = parquet(tmp_path / "t", [found.slice(0, 100), found.slice(102), found.slice(7, 2)])
    done = expect(pylogseg("audit", examples, table), 1)
    assert done.text.splitlines() == [
        "codec-gzip-0: 2 double, 2 lost (505 rows)",
        "  double  7-8                     2 offsets",
        "  lost    100-101                 2 offsets",
        "  2 rows of part-0.parquet again in part-2.parquet",
        f"{table} (parquet): 1 partition, 505 rows in 3 files: 2 double, 2 lost",
    ]
    done = expect(pylogseg("audit", examples, table, "--json", "--max-ranges", 1), 1)
    (only,), (total,) = rows(done, "partition"), rows(done, "summary")
    assert (only["double"], only["missing"]["lost"], only["rangesNotListed"]) == (2, 2, 1)
    assert only["ranges"] == [{"kind": "double", "first": 7, "last": 8, "records": 2}]
    assert (total["right"], total["whole"], total["double"], total["files"]) == (False, True, 2, 3)
    assert pylogseg("audit", examples, table, "-o", "9:100").code == 0


def test_not_looked_at(examples, tmp_path):
    """Damage of the log alone is code 2; what is wrong besides is code 1."""
    log = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    found = records(log)
    change_byte(max(log.glob("*.log")), bits=255)
    done = pylogseg("audit", log, parquet(tmp_path / "t", [found]))
    assert done.code == 2
    assert "codec-none-1: no fault in the parts that could be compared" in done.text
    assert "CRC mismatch" in done.err
    assert pylogseg("audit", log, parquet(tmp_path / "u", [found.slice(1)])).code == 1


def test_usage(examples, tmp_path):
    assert "Missing argument 'TABLE'" in pylogseg("audit", examples).err
    expect(pylogseg("audit", examples, tmp_path / "none"), 2, "no such TABLE")
    table = parquet(tmp_path / "t", [records(examples, "codec-gzip").rename_columns(["a", "b", "c", "d", "e", "f"])])
    expect(pylogseg("audit", examples, "codec-gzip", table), 2, "--columns offset=meta.offset")
    columns = ("-c", "offset=e", "-c", "partition=d", "-c", "value=b")
    assert (
        pylogseg("audit", examples, "codec-gzip", table, *columns).text.splitlines()[-2] == "compared: offsets, value"
    )
