"""`audit` of tables that real tools have broken, in all ways at once: all is named, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import catalog, delta, iceberg, records

import pylogseg

TOPIC = "txn-a"


@pytest.fixture(scope="module")
def examples(request):
    return request.config.rootpath / "examples" / "data"


def ranges(found):
    return sorted((each.name, of.reason or of.kind, of.first_offset, of.last_offset)
                  for each in found.partitions for of in each.ranges)  # fmt: skip


def test_delta_by_deltalake(examples, tmp_path):
    """A sink that reads uncommitted and retries a commit; deleted, updated, compacted and put in order by others."""
    from deltalake import CommitProperties, DeltaTable, Transaction

    rows = records(examples, TOPIC, "read_uncommitted", partition=0)
    committed = records(examples, TOPIC, partition=0)
    last = CommitProperties(app_transactions=[Transaction("sink", 2)])
    table = delta(tmp_path / "t", [rows.slice(0, 60)], configuration={"delta.enableDeletionVectors": "false"})
    for _ in range(2):
        delta(table, [rows.slice(60)], commit_properties=last)
    first, other = committed["offset"].to_pylist()[:2]
    DeltaTable(table).delete(f"offset = {first}")
    DeltaTable(table).update({"value": "X'78'"}, predicate=f"offset = {other}")
    found = pylogseg.audit(examples, table, f"{TOPIC}-0")
    (only,) = found.partitions
    double = {*rows["offset"].to_pylist()[60:]}
    assert (only.lost, only.changed, only.double, only.foreign["aborted"]) == (1, 1, rows.num_rows - 60, 67)
    assert {kind for _, kind, _, _ in ranges(found)} == {"lost", "changed", "double", "aborted"}
    assert listed(found, "lost") == {first}
    assert listed(found, "changed") == {other}
    assert listed(found, "double") == double
    assert {each.kind for each in found.findings} == {"repeated"}
    # Another engine's compaction, and its order, change files, and no row: what is told is the same.
    before = ranges(found)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).optimize.z_order(["value"])
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = pylogseg.audit(examples, table, f"{TOPIC}-0")
    assert ranges(found) == before
    assert found.partitions[0].rows == only.rows


def listed(found, kind):
    return {n for each in found.partitions for of in each.ranges if kind in (of.kind, of.reason)
            for n in range(of.first_offset, of.last_offset + 1)}  # fmt: skip


def test_iceberg_by_pyiceberg(examples, tmp_path):
    """A file added twice, deleted rows, and all written again by another job."""
    rows = records(examples, "codec-gzip")
    folder = iceberg(tmp_path, [rows.slice(0, 300)])
    made = catalog(tmp_path)
    table = made.load_table("kafka.orders")
    pq.write_table(rows.slice(300), tmp_path / "added.parquet")
    for _ in range(2):
        table.add_files([f"file://{tmp_path}/added.parquet"], check_duplicate_files=False)
    table.delete("offset = 11 or offset = 12")
    wrong = [("codec-gzip-0", "double", 300, 504), ("codec-gzip-0", "lost", 11, 12)]
    found = pylogseg.audit(examples, folder)
    assert ranges(found) == wrong
    assert {each.kind for each in found.findings} == {"twice"}
    table.overwrite(table.scan().to_arrow())
    made.close()
    found = pylogseg.audit(examples, folder)
    assert ranges(found) == wrong
    assert found.findings == []


def test_a_topic_that_was_made_again(tmp_path):
    """The table goes on behind the end of the new log; what both have is changed."""
    log = tmp_path / "orders-0"
    for incarnation, count in ((b"old", 50), (b"new", 30)):
        for path in [*log.glob("*")] if log.exists() else []:
            path.unlink()
        with pylogseg.open_log(log) as opened:
            opened.append(pa.table({"value": pa.array([b"%d of %s" % (n, incarnation) for n in range(count)])}))
        if incarnation == b"old":
            table = delta(tmp_path / "t", [records(log)])
    found = pylogseg.audit(log, table)
    assert ranges(found) == [("orders-0", "beyondEnd", 30, 49), ("orders-0", "changed", 0, 29)]
