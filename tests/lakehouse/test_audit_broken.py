"""Tests of lakehouse/audit.py. `audit` of tables that real tools have broken, in all ways at once: all is named, and
nothing else.
"""

import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import WRITERS, add_twice, catalog, delta, ducklake, iceberg, parquet, records
from helpers.lake_tables import has_format

import pylogseg

TOPIC = "txn-a"


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
    add_twice(tmp_path, rows.slice(300))
    made = catalog(tmp_path)
    table = made.load_table("kafka.orders")
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


def test_ducklake_by_duckdb(examples, tmp_path):
    """Rows in files and in the catalog, deleted, updated, merged, flushed, written again and expired by DuckDB."""
    if not has_format("ducklake"):
        pytest.skip("duckdb's extension ducklake is not here")
    import duckdb

    rows, table = records(examples, "codec-gzip"), f"ducklake:{tmp_path}/t.ducklake/orders"
    made = duckdb.connect()
    made.load_extension("ducklake")
    made.register("rows", rows)
    attach = f"attach 'ducklake:{tmp_path}/t.ducklake' as l (data_path '{tmp_path}/files/', data_inlining_row_limit 10)"
    lost, changed, double = {*range(505)}, set(), set()

    def audited(*statements):
        made.execute(attach)
        for statement in statements:
            made.execute(statement)
        ((count,),) = made.execute("select count(*) from l.orders").fetchall()
        made.execute("detach l")
        found = pylogseg.audit(examples, table, "codec-gzip", complete=True)
        assert [listed(found, kind) for kind in ("lost", "changed", "double")] == [lost, changed, double], statements
        assert (found.rows, found.findings, found.is_whole) == (count, [], True), statements
        assert pylogseg.audit(examples, table, "codec-gzip", quick=True).rows == count

    parts = ((0, 100), (100, 300), (300, 505))
    insert = 'insert into l.orders from (from rows where "offset" >= {} and "offset" < {})'.format
    lost -= {*range(505)}
    audited("create table l.orders as from rows limit 0", *(insert(*part) for part in parts))
    lost |= {*range(10, 20), 150}
    audited('delete from l.orders where "offset" >= 10 and "offset" < 20 or "offset" = 150')
    audited("call ducklake_merge_adjacent_files('l')")
    changed |= {5, 250}
    audited("update l.orders set value = 'x'::blob where \"offset\" in (5, 250)")
    lost -= {*range(10, 16)}
    audited(insert(10, 13), insert(13, 16))
    double |= {12, 13}
    audited(insert(12, 14))
    audited("call ducklake_flush_inlined_data('l')")
    audited("call ducklake_rewrite_data_files('l', delete_threshold => 0.0)")
    audited('alter table l.orders rename column "offset" to position', "alter table l.orders add column more int",
            'alter table l.orders rename column position to "offset"')  # fmt: skip
    audited("call ducklake_expire_snapshots('l', older_than => now())",
            "call ducklake_cleanup_old_files('l', cleanup_all => true)")  # fmt: skip
    made.close()


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


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_has_lost_rows(examples, tmp_path, kind):
    """Its rows are lost, and but for Parquet the table counts them nevertheless."""
    rows = records(examples, "codec-gzip")
    table = WRITERS[kind](tmp_path / "t", [rows.slice(0, 300), rows.slice(300)])
    path = next(path for path in tmp_path.rglob("*.parquet") if pq.read_metadata(path).num_rows == 205)
    kept = pq.read_table(path, partitioning=None).sort_by("offset")
    pq.write_table(kept.slice(0, 200), path)
    for how in ({"complete": True}, {"complete": True, "quick": True}):
        found = pylogseg.audit(examples, table, "codec-gzip", **how)
        assert ranges(found) == [("codec-gzip-0", "lost", 500, 504)]
        texts = [] if kind == "parquet" else ["the table says 205 rows, the file has 200: engines count wrong"]
        assert [each.text for each in found.findings if each.kind == "bounds"] == texts


@pytest.mark.parametrize("kind", ["delta", "iceberg", "ducklake"])
def test_a_file_with_other_offsets_than_the_table_says(examples, tmp_path, kind):
    """Queries with a filter do not look into it."""
    rows = records(examples, "codec-gzip")
    table = WRITERS[kind](tmp_path / "t", [rows.slice(0, 300), rows.slice(300)])
    path = next(path for path in tmp_path.rglob("*.parquet") if pq.read_metadata(path).num_rows == 205)
    kept = pq.read_table(path, partitioning=None)
    offset = kept.column("offset").to_numpy().copy()
    offset[0] = 299
    place = kept.schema.get_field_index("offset")
    pq.write_table(kept.set_column(place, kept.schema.field(place), pa.array(offset)), path)
    for quick in (False, True):
        found = pylogseg.audit(examples, table, "codec-gzip", quick=quick)
        text = "the table says offset is 300 to 504, the file has 299 to 504: queries that filter by it"
        assert [(each.kind, each.text[: len(text)]) for each in found.findings] == [("bounds", text)]
        assert not found.is_right


def twice_in_delta(folder, rows):
    """List a file by its path, and by its URL, as a clone does."""
    table = delta(folder / "t", [rows.slice(0, 300), rows.slice(300)])
    log = table / "_delta_log" / "00000000000000000001.json"
    again = [json.loads(line) for line in log.read_text().splitlines() if '"add"' in line]
    for action in again:
        action["add"]["path"] = (table / action["add"]["path"]).as_uri()
    (table / "_delta_log" / "00000000000000000002.json").write_text("\n".join(map(json.dumps, again)))
    return table


def twice_in_ducklake(folder, rows):
    duckdb = pytest.importorskip("duckdb")
    table = ducklake(folder / "t", [rows.slice(0, 300), rows.slice(300)])
    with duckdb.connect(table) as made:
        made.execute("insert into ducklake_data_file by name select * replace (2 as data_file_id, 3 as begin_snapshot) "
                     "from ducklake_data_file where data_file_id = 1")  # fmt: skip
    return table


def twice_in_iceberg(folder, rows):
    table = iceberg(folder, [rows.slice(0, 300)])
    add_twice(folder, rows.slice(300))
    return table


def twice_in_a_dataset(folder, rows):
    parquet(folder / "t", [rows.slice(0, 300), rows.slice(300)])
    return ds.dataset([folder / "t" / f"part-{number}.parquet" for number in (0, 1, 1)])


@pytest.mark.parametrize("listed", [twice_in_delta, twice_in_ducklake, twice_in_iceberg, twice_in_a_dataset])
def test_a_file_that_is_listed_twice(examples, tmp_path, listed):
    table = listed(tmp_path, records(examples, "codec-gzip"))
    found = pylogseg.audit(examples, table)
    assert ranges(found) == [("codec-gzip-0", "double", 300, 504)]
    assert [each.kind for each in found.findings] == ["twice"]
    assert [each.kind for each in pylogseg.audit(examples, table, quick=True).findings] == ["twice"]


def test_what_lake_writes_repeats_no_commit(tmp_path):
    """Not the version of the epoch either, which stays the same from commit to commit."""
    log = tmp_path / "data" / "orders-0"
    for _ in range(3):
        with pylogseg.open_log(log) as opened:
            opened.append(pa.table({"value": [b"x"] * 10}))
        pylogseg.lake(tmp_path / "data", f"delta:{tmp_path}/t", to_end=True)
    found = pylogseg.audit(tmp_path / "data", tmp_path / "t")
    assert (found.is_right, found.rows, found.files, found.findings) == (True, 30, 3, [])
