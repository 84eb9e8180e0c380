"""Tests of tables/rows.py. Timestamps that a column cannot hold: null and named, never another time; and all doors give
the same rows.
"""

import datetime
import json
import shutil
import struct
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.extreme_times import TIMES, UNFIT, held, write_log
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import NullTimestampWarning

field = pc.field("timestamp")
KINDS = [(2, False), (2, True), (1, False), (1, True)]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def log(request, tmp_path_factory):
    magic, by_broker = request.param
    root = tmp_path_factory.mktemp("extreme ü")
    return write_log(root / "orders-0", magic=magic, by_broker=by_broker)


def micros(table):
    return table.column("timestamp").cast(pa.int64()).to_pylist()


DOORS = {
    "read_arrow": lambda log, **how: pylogseg.read_arrow(log, **how).read_all(),
    "read_arrow of two jobs": lambda log, **how: pylogseg.read_arrow(log, jobs=2, **how).read_all(),
    "read_arrow, views": lambda log, **how: pylogseg.read_arrow(log, views=True, **how).read_all(),
    "reader": lambda log, **how: pa.RecordBatchReader.from_stream(pylogseg.read(log, **how)).read_all(),
    "dataset": lambda log: pylogseg.dataset(log).to_table(),
    "dataset, head": lambda log: pylogseg.dataset(log).head(100),
    "dataset, one thread": lambda log: pylogseg.dataset(log).to_table(use_threads=False),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_time_is_exact_or_null_and_there_is_one_warning(log, door):
    """All times beyond the range became one and the same, the last of the range, without a word."""
    with pytest.warns(NullTimestampWarning, match="offset 0: its timestamp, -9223372036854775808 ms") as noted:
        table = DOORS[door](log)
    assert micros(table) == [held(time) for time in TIMES]
    assert len(noted) == 1
    assert f"{len(UNFIT)} records in all" in str(noted[0].message)


def test_records_without_times_and_columns_without_them_are_not_named(tmp_path):
    old = write_log(tmp_path / "old" / "orders-0", magic=0)
    far = write_log(tmp_path / "far" / "orders-0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert micros(pylogseg.read_arrow(old).read_all()) == [-1000] * len(TIMES)
        assert pylogseg.read_arrow(far, columns=["offset", "value"]).read_all().num_rows == len(TIMES)
        assert [record.timestamp for record in pylogseg.read(far)] == list(TIMES)


@pytest.mark.parametrize("until", [None, -1, 5, 2**62, 2**63 - 1])
@pytest.mark.filterwarnings("ignore::pylogseg.errors.NullTimestampWarning")
@pytest.mark.filterwarnings("ignore:.*is milliseconds.*")
def test_a_range_of_times_is_exact_in_all_doors(tmp_path, until):
    """With more than one job, a range of times was compared with times that had been cut."""
    log = write_log(tmp_path / "orders-0")
    for since in (None, *(time for time in TIMES if until is None or time < until)):
        wanted = [n for n, t in enumerate(TIMES) if (since is None or t >= since) and (until is None or t < until)]
        for name in ("read_arrow", "read_arrow of two jobs", "reader"):
            found = DOORS[name](log, timestamp=(since, until))
            assert found.column("offset").to_pylist() == wanted, (name, since)
        assert [record.offset for record in pylogseg.read(log, timestamp=(since, until))] == wanted, since


def at(ms):
    return pa.scalar(ms * 1000, pa.timestamp("us", "UTC"))


FILTERS = [
    field.is_null(), field.is_valid(), ~field.is_valid(),
    field > at(5), field < at(5), ~(field < at(5)), field <= at(-1),
    field == at(-1), (field > at(5)) | field.is_null(), field.is_null() & (pc.field("offset") > 5), field != at(0),
    pc.coalesce(field, at(99)) > at(50), field > at(2**48), field < at(-(2**45)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FILTERS)))
@pytest.mark.filterwarnings("ignore::pylogseg.errors.NullTimestampWarning")
def test_a_filter_leaves_out_no_segment_with_a_null_that_matches(tmp_path, number):
    """A segment whose greatest time is known was left out, or could not be compared, by a filter on nulls."""
    filter = FILTERS[number]
    folder = tmp_path / "orders-0"
    with pylogseg.open_log(folder, segment_bytes=400, message_timestamp_after_max_ms=2**63 - 1) as made:
        for n, time in enumerate(time for time in TIMES if time >= -1):
            made.append([(time, b"k", b"%d" % n * 100)])
    table = pylogseg.read_arrow(tmp_path).read_all()
    assert len(list(folder.glob("*.log"))) > 5
    wanted = table.filter(filter).column("offset").to_pylist()
    assert pylogseg.dataset(tmp_path).to_table(filter=filter).column("offset").to_pylist() == wanted
    assert pylogseg.read_arrow(tmp_path, filter=filter).read_all().column("offset").to_pylist() == wanted
    assert [record.offset for record in pylogseg.read(tmp_path, filter=filter)] == wanted


def test_polars_scans_the_same_rows(log):
    polars = pytest.importorskip("polars")
    with pytest.warns(NullTimestampWarning):
        found = pylogseg.scan_polars(log).filter(polars.col("timestamp").is_null()).collect()
    assert found["offset"].to_list() == [n for n, time in enumerate(TIMES) if time in UNFIT]


def test_sql_names_them_and_ends_with_1(log):
    """Exit code 0 and no word, and `max` was a time that no record has."""
    pytest.importorskip("duckdb")
    done = shell("sql", log, "--output", "json", "select count(*) n, count(timestamp) held from orders")
    assert json.loads(done.out) == {"n": len(TIMES), "held": len(TIMES) - len(UNFIT)}
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "offset 0: its timestamp, -9223372036854775808 ms" in done.err


def test_the_tables_about_a_disk_have_negative_times_and_no_other_for_far_ones(log):
    """A negative time counted as none, and one that is too far was cut."""
    batches = pylogseg.dataset(log, of="batches")
    with pytest.warns(NullTimestampWarning, match="offset 0: maxTimestamp, -9223372036854775808 ms") as noted:
        times = batches.to_table(columns=["maxTimestamp"]).column(0).cast(pa.int64()).to_pylist()
    assert len(noted) == 1
    assert times == [None if time == -1 else held(time) for time in TIMES]
    early = pa.scalar(datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc), pa.timestamp("us", "UTC"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullTimestampWarning)
        assert batches.count_rows(filter=pc.field("maxTimestamp") == early) == 1


ABOUT_A_DISK = {
    "batches": ("maxTimestamp", -(2**63)), "segments": ("largestTimestamp", 2**63 - 1),
    "partitions": ("newestTimestamp", 2**63 - 1), "indexes": ("timestamp", 2**63 - 1),
}  # fmt: skip


@pytest.mark.parametrize("table", ABOUT_A_DISK)
def test_sql_names_the_times_that_tables_about_a_disk_cannot_hold(log, tmp_path, table):
    """They were null with exit code 0 and no word."""
    pytest.importorskip("duckdb")
    column, time = ABOUT_A_DISK[table]
    copy = shutil.copytree(log, tmp_path / "log")
    assert shell("reindex", copy).code == 0
    if table == "indexes":  # of times, which Kafka writes for a sealed segment or every few kB
        entry = struct.pack(">qi", time, len(TIMES) - 1)
        (copy / "orders-0" / f"{0:020}.timeindex").write_bytes(entry)
    done = shell("sql", copy, "--output", "json", f'select count(*) n, count("{column}") held from {table}')
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert f"{column}, {time} ms, does not fit" in done.err
    assert shell("sql", copy, f"select count(*) from {table}").code == 0


def test_counts_by_hour_take_all_records_and_name_those_without_an_hour(log):
    """A time near the lower end of the range ended the command with an error of Arrow."""
    done = shell("stats", log, "--by", "hour", "--json")
    assert sum(row["records"] for row in done.rows if row.get("records")) == len(TIMES)
    expect(done, 1, "offset 0: its timestamp, -9223372036854775808 ms")
