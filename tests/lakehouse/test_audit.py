"""Tests of lakehouse/audit.py, lakehouse/audit_partition.py, lakehouse/audit_result.py, lakehouse/audit_runs.py and
lakehouse/foreign.py. `audit`: tables that are broken by hand, in each way that sinks break them; all is named, and
nothing else.
"""

import random
import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.damaged_logs import change_byte
from helpers.depth import some_of
from helpers.foreign_tables import WRITERS, parquet, records, with_damaged_end

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.lakehouse import audit as auditing
from pylogseg.lakehouse import audit_runs, foreign
from pylogseg.lakehouse.audit_result import REASONS, STRANGE, UNCHECKED

LOST, CHANGED, DOUBLE = "lost", "changed", "double"


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    """Write a table in each format."""
    return lambda *parts: WRITERS[request.param](tmp_path / "table", parts)


def wrong(found, name=None):
    """What is wrong with the partitions: name, kind or reason, first and last offset of each range."""
    return [
        (each.name, of.reason or of.kind, of.first_offset, of.last_offset)
        for each in found.partitions
        for of in each.ranges
    ]


def without(table, *offsets):
    return table.filter(pc.invert(pc.is_in(table["offset"], pa.array(offsets, pa.int64()))))


def with_value(table, row, value, column="value"):
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(
        table.schema.get_field_index(column), table.schema.field(column), pa.array(values, pa.binary())
    )


def check_sums(found):
    """Each offset of a log counts once: present, missing, or with a row that is no record."""
    for each in found.partitions:
        in_range = sum(each.foreign[name] for name in ("aborted", "control", "absent"))
        counted = each.present + sum(each.missing.values()) + in_range + sum(each.unchecked.values())
        assert counted == each.end_offset, each


def test_each_topic_of_a_kafka_is_right(examples, tmp_path):
    """Codecs, transactions, compaction, retention, deleted records, all magics, Kafka's own topics."""
    table = parquet(tmp_path / "t", [records(examples)])
    found = pylogseg.audit(examples, table)
    assert found.is_right
    assert found.is_whole
    assert wrong(found) == []
    assert len(found.partitions) == len({(row["topic"], row["partition"]) for row in records(examples).to_pylist()})
    check_sums(found)
    missing = {each.name: {k: v for k, v in each.missing.items() if v} for each in found.partitions}
    assert missing["txn-a-0"] == {"aborted": 67, "control": 28, "notYet": 5}
    assert missing["cmp-txn-0"] == {"control": 124, "compacted": 1101}
    assert missing["ret-bytes-0"] == {"belowLogStart": 288}
    assert missing["codec-zstd-0"] == {}


def test_nothing_wrong_is_named_in_each_format(examples, written):
    rows = records(examples, ["codec-gzip", "txn-a"])
    found = pylogseg.audit(examples, written(rows.slice(0, 200), rows.slice(200)))
    assert found.is_right
    assert [each.name for each in found.partitions] == ["codec-gzip-0", "txn-a-0", "txn-a-1"]
    assert found.rows == rows.num_rows == sum(each.present for each in found.partitions)
    check_sums(found)


def test_each_break_is_named_and_nothing_else(examples, written):
    """A lost record, a double one, two changed ones, one of them from null to empty."""
    rows = records(examples, "codec-gzip")
    null = rows["value"].to_pylist().index(None)
    broken = with_value(with_value(without(rows, 100, 101, 250), 5, b"other"), null, b"")
    found = pylogseg.audit(examples, written(broken, rows.slice(400, 3)))
    (only,) = found.partitions
    where = sorted([(CHANGED, 5, 5), (CHANGED, null, null), (LOST, 100, 101), (LOST, 250, 250), (DOUBLE, 400, 402)])
    assert sorted(of[1:] for of in wrong(found)) == where
    assert (only.double, only.changed, only.lost) == (3, 2, 3)
    assert only.present == rows.num_rows - 3
    assert [of.rows for of in only.double_files] == [3]
    assert not found.is_right
    assert found.is_whole
    check_sums(found)


def test_aborted_records_of_a_sink_that_reads_uncommitted(examples, written):
    rows = records(examples, "txn-a", "read_uncommitted")
    found = pylogseg.audit(examples, written(rows))
    assert not found.is_right
    by_name = {each.name: each for each in found.partitions}
    assert by_name["txn-a-0"].foreign["aborted"] == 67
    assert by_name["txn-a-0"].missing["aborted"] == 0
    # The records of an open transaction may be committed yet.
    assert by_name["txn-a-0"].present == 48 + 5
    assert {of[1] for of in wrong(found)} == {"aborted"}
    check_sums(found)


def test_rows_that_the_log_does_not_have(examples, written):
    """Behind its end, of another partition, and those that the cleaner or retention took, which may be right."""
    rows = records(examples, ["codec-gzip", "ret-bytes", "cmp-short"])
    like = rows.slice(0, 1)
    more = [
        ("codec-gzip", 0, 505),
        ("codec-gzip", 3, 0),
        ("ret-bytes", 0, 100),
        ("cmp-short", 0, 3),
        ("ret-bytes", 0, 100),
    ]
    rows_more = [
        like.set_column(2, "topic", pa.array([topic]))
        .set_column(3, "partition", pa.array([number], pa.int32()))
        .set_column(4, "offset", pa.array([offset], pa.int64()))
        for topic, number, offset in more
    ]
    assert 3 not in rows.filter(pc.equal(rows["topic"], "cmp-short"))["offset"].to_pylist()
    found = pylogseg.audit(examples, written(rows, pa.concat_tables(rows_more)))
    assert wrong(found) == [
        ("codec-gzip-0", "beyondEnd", 505, 505),
        ("codec-gzip-3", "noPartition", 0, 0),
        ("ret-bytes-0", DOUBLE, 100, 100),
    ]
    by_name = {each.name: each for each in found.partitions}
    assert by_name["cmp-short-0"].unchecked == {"belowLogStart": 0, "compacted": 1, "notLookedAt": 0}
    assert by_name["ret-bytes-0"].unchecked["belowLogStart"] == 1


def test_another_incarnation_of_the_topic(examples, written):
    """A topic that was deleted and made again has other records at the same offsets, and may end earlier."""
    rows = records(examples, "codec-gzip")
    old = rows.set_column(1, "value", pa.array([b"of old"] * rows.num_rows, pa.binary()))
    beyond = old.slice(0, 20).set_column(4, "offset", pa.array(range(505, 525), pa.int64()))
    found = pylogseg.audit(examples, written(old, beyond))
    assert found.partitions[0].changed == rows.num_rows
    assert wrong(found) == [("codec-gzip-0", CHANGED, 0, rows.num_rows - 1), ("codec-gzip-0", "beyondEnd", 505, 524)]


def test_what_the_table_does_not_have_yet(examples, tmp_path):
    rows = records(examples, "codec-gzip").slice(0, 300)
    table = parquet(tmp_path / "t", [rows])
    found = pylogseg.audit(examples, table)
    assert found.is_right
    assert found.partitions[0].missing["notYet"] == 205
    assert wrong(pylogseg.audit(examples, table, complete=True)) == [("codec-gzip-0", LOST, 300, 504)]
    # A range: what lies outside is not looked at, and up to its end all has to be there.
    assert pylogseg.audit(examples, table, offset=(10, 300)).partitions[0].rows == 290
    assert wrong(pylogseg.audit(examples, table, offset=(10, 302))) == [("codec-gzip-0", LOST, 300, 301)]
    assert pylogseg.audit(examples, parquet(tmp_path / "u", [rows.slice(100)]), offset=(100, None)).is_right
    with pytest.raises(RequestError, match="absolute offsets"):
        pylogseg.audit(examples, table, offset=(-5, None))


def test_a_partition_without_a_row_is_lost(examples, tmp_path):
    rows = records(examples, "txn-a")
    table = parquet(tmp_path / "t", [rows.filter(pc.equal(rows["partition"], 1))])
    found = pylogseg.audit(examples, table)
    assert [(each.name, each.lost) for each in found.partitions] == [("txn-a-0", 48), ("txn-a-1", 0)]


def test_an_empty_table_lacks_everything(examples, written):
    """It does not say of which topic: that has to be named, unless the source has one only."""
    table = written(records(examples, "codec-gzip").slice(0, 0))
    for quick in (False, True):
        with pytest.raises(RequestError, match="or no row, and the source has"):
            pylogseg.audit(examples, table, quick=quick)
        for source, topic in ((examples, "codec-gzip"), (examples / "codec-gzip-0", None)):
            assert pylogseg.audit(source, table, topic, quick=quick).partitions[0].lost == 505


def test_dead_letters_are_a_part_of_the_table(examples, tmp_path):
    rows = records(examples, "codec-gzip")
    dead = [row["offset"] for row in rows.slice(20, 3).to_pylist()]
    table = parquet(tmp_path / "t", [without(rows, *dead)])
    parquet(tmp_path / "t~dlq", [rows.slice(20, 3), rows.slice(30, 1)])
    found = pylogseg.audit(examples, table)
    (only,) = found.partitions
    assert only.missing["deadLetters"] == 3
    assert wrong(found) == [("codec-gzip-0", DOUBLE, 30, 30)]
    check_sums(found)
    shutil.move(tmp_path / "t~dlq", tmp_path / "elsewhere")
    assert pylogseg.audit(examples, table).partitions[0].lost == 3
    assert pylogseg.audit(examples, table, dead_letters=tmp_path / "elsewhere").partitions[0].lost == 0


def test_dead_letters_that_are_ahead_of_the_table(examples, tmp_path):
    """They are committed first: what is between is not there yet, and not lost."""
    rows = records(examples, "codec-gzip")
    table = parquet(tmp_path / "t", [rows.slice(0, 300)])
    parquet(tmp_path / "t~dlq", [pa.concat_tables([rows.slice(350, 1), rows.slice(400, 1)])])
    for quick in (False, True):
        found = pylogseg.audit(examples, table, quick=quick)
        assert (found.is_right, found.partitions[0].missing["notYet"]) == (True, 203)
        assert pylogseg.audit(examples, table, quick=quick, complete=True).partitions[0].lost == 203
    parquet(tmp_path / "u", [without(rows.slice(0, 300), 7)])
    (tmp_path / "t~dlq").rename(tmp_path / "u~dlq")
    for quick in (False, True):
        assert pylogseg.audit(examples, tmp_path / "u", quick=quick).partitions[0].lost == 1


def test_damage_of_the_log_is_no_loss(examples, tmp_path):
    """What cannot be read of the log is neither lost nor foreign; the audit is not whole."""
    rows = records(examples, "codec-none", partition=1)
    log = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    change_byte(max(log.glob("*.log"), key=lambda path: path.stat().st_size), bits=255)
    for part in (rows, without(rows, *range(0, 500, 7))):
        found = pylogseg.audit(log, parquet(tmp_path / f"t{part.num_rows}", [part]))
        (only,) = found.partitions
        assert not found.is_whole
        assert only.unchecked["notLookedAt"] > 0
        assert only.foreign == dict.fromkeys(STRANGE, 0)
        check_sums(found)
        hidden = [of for of in only.ranges if of.kind == "notLookedAt"]
        assert sum(of.records for of in hidden) == only.unchecked["notLookedAt"] + only.missing["notLookedAt"]
        lost = {n for of in only.ranges if of.kind == LOST for n in range(of.first_offset, of.last_offset + 1)}
        unseen = {n for of in hidden for n in range(of.first_offset, of.last_offset + 1)}
        assert lost == {*range(0, 505)} - {*part["offset"].to_pylist()} - unseen
        assert found.is_right == (not lost)


@pytest.mark.parametrize("harm", ["crc", "torn"])
@pytest.mark.parametrize("snapshots", [False, True])
def test_rows_behind_a_damaged_end_are_not_foreign(examples, tmp_path, small_parts, harm, snapshots):
    """Whether or not a snapshot says where the log ended."""
    rows = records(examples, "codec-none", partition=1)
    log = with_damaged_end(examples, tmp_path, harm, snapshots=snapshots)
    for jobs in (1, 2):
        found = pylogseg.audit(log, rows, jobs=jobs)
        (only,) = found.partitions
        assert (found.is_right, found.is_whole, only.unchecked["notLookedAt"]) == (True, False, 5)
        assert [gap.first_offset for gap in only.gaps] == [500]


def test_a_segment_that_is_missing_is_not_looked_at(tmp_path):
    """In a log that no cleaner touched, each offset has a record: somebody has taken some out."""
    log = a_log(tmp_path / "log" / "orders-0", 3000)
    rows = records(log)
    segments = sorted(log.glob("*.log"))
    first, end = (int(path.stem) for path in segments[1:3])
    for path in log.glob(f"{segments[1].stem}.*"):
        path.unlink()
    kept = rows.filter(pc.invert(pc.and_(pc.greater_equal(rows["offset"], first), pc.less(rows["offset"], end))))
    found = pylogseg.audit(log, parquet(tmp_path / "t", [kept]))
    assert found.is_right
    assert not found.is_whole
    assert wrong(found) == [("orders-0", "notLookedAt", first, end - 1)]
    check_sums(found)


def test_a_file_that_is_not_there(examples, written, tmp_path):
    rows = records(examples, "codec-gzip")
    table = written(rows.slice(0, 300), rows.slice(300))
    for count in (205, 300):
        gone = next(path for path in sorted(tmp_path.rglob("*.parquet")) if pq.read_metadata(path).num_rows == count)
        whole = gone.read_bytes()
        gone.write_bytes(b"PAR1 no more")
        found = pylogseg.audit(examples, table)
        assert [each.kind for each in found.findings] == ["unread"]
        assert (found.is_right, found.is_whole) == (True, False)  # rows that nobody could look at are not lost
        assert str(gone) in found.findings[0].file
        assert sum(each.missing["notLookedAt"] for each in found.partitions) in (0, count)  # 0: they may not be yet
        assert pylogseg.audit(examples, table, quick=True).is_right
        gone.write_bytes(whole)


def a_log(folder, count):
    with pylogseg.open_log(folder, segment_bytes=30_000, index_interval_bytes=1000, retention_ms=-1) as log:
        for start in range(0, count, 50):
            numbers = range(start, start + 50)
            keys = pa.array([b"%d" % (n % 7) if n % 5 else None for n in numbers], pa.binary())
            log.append(pa.table({"key": keys, "value": pa.array([b"%d " % n * 10 for n in numbers])}))
    return folder


@pytest.fixture
def small_parts(monkeypatch):
    """Many pieces of a file, runs of a piece, and parts of a log."""
    monkeypatch.setattr(auditing, "PART_BYTES", 4_000)
    monkeypatch.setattr(auditing, "_PIECE_BYTES", 2_000)
    monkeypatch.setattr(foreign, "batch_rows", lambda *_: 37)


@pytest.mark.parametrize("seed", some_of(range(12), 5))
def test_any_table_against_a_slow_reader(tmp_path, small_parts, seed):
    """Rows of two partitions in any order and any files, broken at random; what is wrong is what sets say."""
    draw = random.Random(seed)
    for number in range(2):
        a_log(tmp_path / "log" / f"orders-{number}", 1500)
    rows = records(tmp_path / "log").to_pylist()
    truth = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    table = []
    for row in rows:
        chance = draw.random()
        if chance < 0.01:
            continue
        times = 1 + (chance > 0.97) + (chance > 0.99)
        for _ in range(times):
            table.append(
                {**row, "value": draw.choice([b"other", None, row["value"] + b"."])} if draw.random() < 0.02 else row
            )
    table += [{**rows[0], "offset": draw.choice([1500, 1501, 1777])} for _ in range(draw.randrange(3))]
    if seed % 3:
        draw.shuffle(table)
    cuts = sorted(draw.sample(range(len(table)), 5))
    schema = records(tmp_path / "log").schema
    parts = [pa.Table.from_pylist(table[a:b], schema) for a, b in zip([0, *cuts], [*cuts, len(table)], strict=True)]
    folder = parquet(tmp_path / "t", [part for part in parts if part.num_rows], row_group_size=draw.choice([50, 999]))

    found = pylogseg.audit(tmp_path / "log", folder, jobs=1 + seed % 2, complete=True)

    seen = Counter((row["partition"], row["offset"]) for row in table)
    for number, each in enumerate(found.partitions):
        of = {offset for partition, offset in seen if partition == number}
        logged = {offset for partition, offset in truth if partition == number}
        other = {
            row["offset"]
            for row in table
            if row["partition"] == number
            and row["offset"] in logged
            and (row["key"], row["value"]) != truth[number, row["offset"]]
        }
        double = {offset for offset in of if seen[number, offset] > 1}
        assert listed(each, LOST) == logged - of
        assert listed(each, CHANGED) == other
        assert listed(each, DOUBLE) == double
        assert listed(each, "foreign") == of - logged
        assert each.rows == sum(count for (partition, _), count in seen.items() if partition == number)
        assert each.double == each.rows - len(of)
        assert sum(pair.rows for pair in each.double_files) <= each.double
        assert (each.changed, each.lost, each.present) == (len(other), len(logged - of), len(of & logged))


def listed(partition, kind):
    return {n for of in partition.ranges if of.kind == kind for n in range(of.first_offset, of.last_offset + 1)}


def test_parts_and_threads_change_nothing(examples, tmp_path, small_parts):
    rows = records(examples, ["codec-gzip", "txn-a", "cmp-txn", "ret-bytes"])
    order = np.random.default_rng(1).permutation(rows.num_rows)
    table = parquet(tmp_path / "t", [rows.take(order), rows.take(order[:100])], row_group_size=500)
    one, four = (pylogseg.audit(examples, table, jobs=jobs) for jobs in (1, 4))
    assert [to_row(each) for each in one.partitions] == [to_row(each) for each in four.partitions]
    assert to_row(one) == to_row(four)
    assert to_row(one)["double"] == 100
    check_sums(one)


def test_temporary_files_are_removed(examples, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    run = audit_runs.Spilling.run
    monkeypatch.setattr(audit_runs.Spilling, "run", lambda *a: (seen.append(a[0].folder), run(*a))[1])
    pylogseg.audit(examples, parquet(tmp_path / "t", [records(examples, "txn-a")]))
    assert seen
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_reasons_are_those_of_the_documents():
    """Names in JSON are public."""
    assert {*REASONS, *STRANGE, *UNCHECKED} == {
        *(
            "aborted",
            "control",
            "compacted",
            "belowLogStart",
            "deadLetters",
            "tombstone",
            "notYet",
            "notLookedAt",
            "lost",
        ),
        *("beyondEnd", "absent", "noPartition"),
    }


def test_damage_anywhere_is_not_looked_at(examples, tmp_path):
    """Nor is the table wrong for it: in a closed segment, in the active one, in its last batch."""
    source = shutil.copytree(examples / "codec-none-1", tmp_path / "data" / "codec-none-1")
    parquet(tmp_path / "table", [records(examples, "codec-none")])
    assert pylogseg.audit(tmp_path / "data", tmp_path / "table", "codec-none").is_whole
    logs = sorted(source.glob("*.log"))
    bases = [*(int(log.stem) for log in logs), 505]
    for log, first, end in ((logs[0], *bases[:2]), (logs[-1], *bases[-2:])):
        for at in (20, log.stat().st_size // 2, log.stat().st_size - 5):
            whole = log.read_bytes()
            log.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            found = pylogseg.audit(tmp_path / "data", tmp_path / "table", "codec-none")
            assert (found.is_right, found.is_whole) == (True, False), at
            assert all(first <= of.first_offset <= of.last_offset < end for of in found.partitions[0].ranges), at
            log.write_bytes(whole)
