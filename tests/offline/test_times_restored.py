"""Tests of offline/restoring/from_table.py, offline/restoring/partition.py and offline/restoring/tables.py. Timestamps
as far away as their type has them come back from an export, and through all that rewrites a log.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.extreme_times import TIMES, UNFIT, write_log
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import NullTimestampWarning, RequestError
from pylogseg.offline.restoring.partition import PartitionWriter, RestoreOptions

KINDS = {"2, producer": (2, False), "2, broker": (2, True), "1, producer": (1, False), "1, broker": (1, True)}


@pytest.fixture(params=KINDS)
def log(request, tmp_path):
    magic, by_broker = KINDS[request.param]
    return write_log(tmp_path / "ü logs" / "orders-0", magic=magic, by_broker=by_broker)


def records(log):
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in pylogseg.read(log)]


def known(record):
    """A record; without the type of a timestamp where it has none."""
    return record if record[1] != -1 else (*record[:2], None, *record[3:])


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("layout", [[], ["--by-date"]], ids=["by log", "by date"])
def test_an_export_is_restored_as_it_was(log, tmp_path, form, layout):
    """All times that were too far became one, or the restore refused a negative one without its place."""
    out, target = tmp_path / "out", tmp_path / "restored"
    target.mkdir()
    for _ in range(1 + bool(layout)):  # the second run of a table by date changes nothing, and says the same
        done = shell("export", log, "orders", "--out", out, "--to", form, *layout)
        expect(done, 1, "offset 0: its timestamp, -9223372036854775808 ms", f"{len(UNFIT)} records in all")
    if layout:
        assert sum(len(pq.read_table(f)) if form == "parquet" else 1 for f in out.rglob(f"*.{form}"))
        return
    assert shell("restore", out, target, "--committed").code == 0
    assert [known(record) for record in records(target)] == [known(record) for record in records(log)]
    done = shell("diff", log, target, "--json")
    assert [row["offset"] for row in done.rows if row["type"] == "change"] == [], done.text


def test_one_file_of_several_logs_is_restored_too(tmp_path):
    log = write_log(tmp_path / "logs" / "orders-0")
    write_log(tmp_path / "logs" / "orders-1", (0, 5, -1))
    assert shell("export", log, "orders", "--out", tmp_path / "all.parquet", "--columns", COLUMNS).code == 1
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.column("timestampMs").drop_null().to_pylist() == list(UNFIT)
    assert table.filter(table.column("timestampMs").is_valid()).column("timestamp").null_count == len(UNFIT)
    (tmp_path / "to").mkdir()
    assert shell("restore", tmp_path / "all.parquet", tmp_path / "to", "--committed").code == 0
    assert shell("diff", log, tmp_path / "to").code == 0


COLUMNS = "topic,partition,offset,timestamp,timestampType,key,value,headers"


def test_a_file_without_far_times_has_no_other_columns(tmp_path):
    log = write_log(tmp_path / "logs" / "orders-0", tuple(time for time in TIMES if time not in UNFIT))
    done = shell("export", log, "orders", "--out", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    (file,) = (tmp_path / "out").rglob("*.parquet")
    assert "timestampMs" not in pq.read_schema(file).names


def test_a_null_time_is_refused_by_file_partition_and_offset(tmp_path):
    """It became a record without a timestamp."""
    log = write_log(tmp_path / "logs" / "orders-0")
    shell("export", log, "orders", "--out", tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.parquet")
    pq.write_table(pq.ParquetFile(file).read().drop_columns(["timestampMs"]), file)
    (tmp_path / "to").mkdir()
    done = shell("restore", tmp_path / "out", tmp_path / "to", "--committed")
    assert done.code != 0
    assert f"{file.name}: orders-0, offset 0: its timestamp is null" in done.err
    assert not (tmp_path / "to" / "orders-0").exists()


def test_what_writes_partitions_of_rows_refuses_a_null_time(tmp_path):
    """Spark's writer made a record without a timestamp of it; readers give null for one that does not fit."""
    rows = pylogseg.read_arrow(write_log(tmp_path / "logs" / "orders-0"), columns=["offset", "timestamp", "value"])
    with pytest.warns(NullTimestampWarning):
        batch = rows.read_all().combine_chunks().to_batches()[0]
    writer = PartitionWriter(LocalStorage(), str(tmp_path), "orders", 0, RestoreOptions())
    with pytest.raises(RequestError, match="orders-0, offset 0: its timestamp is null"):
        writer.write(batch)
    with pytest.raises(RequestError, match="orders-0, row 1 of 2: its timestamp is null"):
        writer.write(pa.record_batch({"timestamp": pa.array([5, None]), "value": pa.array([b"a", b"b"])}))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_has_all_times_exactly(log, tmp_path, form):
    done = shell("export", log, "orders", "--out", tmp_path / f"out.{form}")
    assert (done.code, done.err) == (0, "")
    text = (tmp_path / f"out.{form}").read_text()
    assert all(str(time) in text for time in TIMES)


@pytest.mark.parametrize(
    "words",
    ["recode {} orders --compression gzip", "redact {} orders --key k3 --force", "compact {} orders --force"],
)
def test_what_rewrites_a_log_keeps_all_times(log, words):
    """A negative time that is not -1 could not be written again."""
    before = records(log)
    command, *arguments = words.split()
    expect(shell(command, *(log if each == "{}" else each for each in arguments)), 0)
    gone = {b"k3"} if command == "redact" else set()
    kept = [(*record[:2], *record[2:]) for record in before if record[3] not in gone]
    assert [record for record in records(log) if record[3] not in gone] == kept


@pytest.mark.parametrize("words", [["copy"], ["merge", "--into"]], ids=lambda words: words[0])
def test_what_copies_a_log_keeps_all_times(log, tmp_path, words):
    assert shell(words[0], log, *words[1:], tmp_path / "to").code == 0
    assert records(tmp_path / "to") == records(log)


def test_what_lists_a_log_has_the_greatest_time(log):
    for words in ("ls", "stats"):
        (row, *_) = shell(words, log, "orders", "--json").rows
        assert 2**63 - 1 in row.values(), words
    assert [row["timestamp"] for row in shell("cat", log, "orders").rows] == list(TIMES)
