"""Tests of lakehouse/layouts.py. Timestamps as far away as their type has them in tables of each format: exact, or null
and named.
"""

import pyarrow as pa
import pytest
from helpers.extreme_times import GO_ZERO, TIMES, UNFIT, YEAR_9999, held, write_log
from helpers.lake_tables import catalog_of, has_format, name_of, rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg

#: What tables whose files are described by Python's times can hold.
OF_CALENDAR = [time for time in TIMES if GO_ZERO <= time <= YEAR_9999]
KINDS = [kind for kind in ("delta", "iceberg", "ducklake") if has_format(kind)]
LAYOUTS = {"flat": [], "redpanda": ["--layout", "redpanda"], "latest": ["--latest"]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_far_time_does_not_keep_a_topic_out_of_a_table(tmp_path, kind, layout):
    """Each run ended with an overflow that named no record, or the time became another one without a word."""
    if layout == "redpanda" and kind != "iceberg":
        pytest.skip("Redpanda writes to Iceberg only")
    log = write_log(tmp_path / "ü logs" / "orders-0")
    table = name_of(kind, tmp_path, "orders")
    done = expect(shell("lake", log, "orders", table, "--to-end", *LAYOUTS[layout]), 1)
    assert done.err.count("no timestamp: ") == 1
    assert "offset 0: its timestamp, -9223372036854775808 ms" in done.err
    if layout == "redpanda":
        place, _, name = table.partition(":")[2].rpartition("/")
        struct = catalog_of(place).load_table(tuple(name.split(".", 1))).scan().to_arrow().column("redpanda")
        rows = pa.Table.from_batches(pa.RecordBatch.from_struct_array(each) for each in struct.chunks).sort_by("offset")
    else:
        rows = rows_of(table)
    assert rows.column("offset").to_pylist() == list(range(len(TIMES)))
    assert rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == [
        held(time) if kind != "iceberg" or time in OF_CALENDAR else None for time in TIMES
    ]
    again = shell("lake", log, "orders", table, "--to-end", *LAYOUTS[layout])
    assert (again.code, again.err) == (0, "")


def test_the_result_in_python_has_one_problem_for_all(tmp_path):
    log = write_log(tmp_path / "orders-0")
    (done,) = pylogseg.lake(log, f"delta:{tmp_path}/table", to_end=True)
    (problem,) = done.problems
    assert f"{len(UNFIT)} records in all" in problem
    assert done.records == len(TIMES)


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_finds_each_record_once(tmp_path, kind):
    log = write_log(tmp_path / "logs" / "orders-0")
    table = name_of(kind, tmp_path, "orders")
    shell("lake", log, "orders", table, "--to-end")
    expect(shell("audit", log, "orders", table), 0, out="each record once")


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_without_offsets_calls_no_record_double_changed_or_lost(tmp_path, kind):
    """Records whose times had become one were called double, and those whose rows have no time would be lost."""
    log = write_log(tmp_path / "logs" / "orders-0")
    table = name_of(kind, tmp_path, "orders")
    shell("lake", log, "orders", table, "--to-end")
    done = shell("audit", log, "orders", table, "--columns", "offset=", "--columns", "timestamp=timestamp")
    assert done.code == 2
    assert "rows without a time" in done.text + done.err
    assert not {"double", "changed", "lost"} & {*done.text.replace(":", " ").split()}
