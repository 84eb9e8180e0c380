"""Tests of lakehouse/audit_columns.py and lakehouse/foreign.py. `audit` of tables whose columns have other types or
names, rows of any size, and topics with ambiguous names.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import parquet, records
from helpers.lake_tables import name_of, rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell
from helpers.typed_logs import write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.audit_columns import find_columns
from pylogseg.lakehouse.foreign import open_table, read_rows

TOPIC = "codec-gzip"


@pytest.fixture(scope="module")
def rows(examples: Path) -> pa.Table:
    return records(examples, TOPIC)


def with_type(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    column = rows[name]
    made = column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    return rows.set_column(rows.schema.get_field_index(name), name, made)


KINDS = (pa.float64(), pa.decimal128(19, 0), pa.decimal256(40, 0), pa.string(), pa.large_string(), pa.uint64(),
         pa.dictionary(pa.int32(), pa.string()))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("column", ["offset", "partition"])
def test_whole_numbers_of_other_types(
    examples: Path, rows: pa.Table, tmp_path: Path, column: str, kind: pa.DataType
) -> None:
    table = parquet(tmp_path / "t", [with_type(rows, column, kind)])
    found = pylogseg.audit(examples, table)
    assert (found.is_right, found.is_whole, found.partitions[0].present) == (True, True, rows.num_rows)
    lost = parquet(tmp_path / "lost", [with_type(rows, column, kind).slice(0, 300)])
    assert pylogseg.audit(examples, lost, complete=True).partitions[0].lost == rows.num_rows - 300
    quick = pylogseg.audit(examples, table, quick=True)
    assert quick.is_right
    assert quick.is_whole == (column == "partition" or "string" not in str(kind))  # text has no order of numbers


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (2.0**53, pa.float64(), "may be another whole number"),
        (-(2.0**60), pa.float64(), "may be another whole number"),
        (float("inf"), pa.float64(), "may be another whole number"),
        (1.5, pa.float64(), "not a whole number"),
        ("7a", pa.string(), "not a whole number"),
        ("", pa.string(), "not a whole number"),
        (Decimal(2**70), pa.decimal128(30, 0), "not a whole number"),
    ],
)
def test_what_is_no_whole_number_is_refused(
    examples: Path, rows: pa.Table, tmp_path: Path, value: Any, kind: pa.DataType, says: str
) -> None:
    offsets = pa.array([value], kind)
    first = rows.slice(0, 1).set_column(rows.schema.get_field_index("offset"), "offset", offsets)
    table = parquet(tmp_path / "t", [pa.concat_tables([with_type(rows, "offset", kind), first])])
    done = shell("audit", examples, TOPIC, table)
    assert (done.code, done.out) == (2, b"")
    assert says in done.err
    assert "part-0.parquet" in done.err


def test_a_float_that_is_no_number_is_no_offset(examples: Path, rows: pa.Table, tmp_path: Path) -> None:
    """As a null is: pandas has no other one in a column of floats."""
    offsets = pc.if_else(pc.equal(rows["offset"], 7), float("nan"), rows["offset"].cast(pa.float64()))
    made = rows.set_column(rows.schema.get_field_index("offset"), "offset", offsets)
    found = pylogseg.audit(examples, parquet(tmp_path / "t", [made]))
    assert [(each.kind, each.rows) for each in found.findings] == [("unread", 1)]


def test_names_in_capital_letters(examples: Path, rows: pa.Table, tmp_path: Path) -> None:
    capitals = rows.rename_columns([name.upper() for name in rows.column_names])
    found = pylogseg.audit(examples, parquet(tmp_path / "t", [capitals]))
    assert (found.is_right, found.columns.compared) == (True, ("key", "value"))
    nested = pa.table({"Kafka": pa.StructArray.from_arrays(
        [rows[name].combine_chunks() for name in ("partition", "offset")], ["Partition", "OFFSET"]
    ), "KEY_RAW": rows["key"]})  # fmt: skip
    assert pylogseg.audit(examples, parquet(tmp_path / "n", [nested]), TOPIC).columns.preset == "aiven"
    twice = capitals.append_column("Offset", capitals["OFFSET"])
    with pytest.raises(RequestError, match="no column of offsets that is known"):
        pylogseg.audit(examples, parquet(tmp_path / "w", [twice]))
    named = pylogseg.audit(examples, tmp_path / "w", columns={"offset": "Offset"}, preset="kafka")
    assert named.columns.get("offset").path == ("Offset",)
    exact = capitals.append_column("offset", rows["offset"])
    assert pylogseg.audit(examples, parquet(tmp_path / "e", [exact])).columns.get("offset").path == ("offset",)


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_large_rows_are_read_few_at_a_time(tmp_path: Path, use_dictionary: bool) -> None:
    """Also where a dictionary has one value for all of them, so that the file tells nothing of their size."""
    values = [bytes(1 << 20)] * 200
    made = pa.table({"topic": ["t"] * 200, "partition": [0] * 200, "offset": range(200), "value": values})
    with pq.ParquetWriter(tmp_path / "t.parquet", made.schema, use_dictionary=use_dictionary) as file:
        for first in range(0, 200, 100):
            file.write_table(made.slice(first, 100))
    table = open_table(tmp_path / "t.parquet")
    columns = find_columns(table.schema, table.name, {})
    count = 0
    for batch in read_rows(table.files[0], columns, (0, 1), 0):
        count += batch.rows
        assert batch.columns["value"].nbytes <= 40 << 20
    assert count == 200


def test_values_in_a_dictionary_are_compared(examples: Path, rows: pa.Table, tmp_path: Path) -> None:
    again = pa.concat_tables([rows.slice(0, 1)] * 100)
    table = parquet(tmp_path / "t", [pa.concat_tables([rows, again])], use_dictionary=["key", "value"])
    found = pylogseg.audit(examples, table)
    assert (found.partitions[0].changed, found.partitions[0].double) == (0, 100)
    other = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array([b"x"] * rows.num_rows))
    table = parquet(tmp_path / "o", [other], use_dictionary=["value"])
    assert pylogseg.audit(examples, table).partitions[0].changed == rows.num_rows


def test_table_and_topic_in_the_order_of_the_shell(examples: Path, rows: pa.Table, tmp_path: Path) -> None:
    table = parquet(tmp_path / "t", [rows])
    for given in ((table, TOPIC), (TOPIC, table), (TOPIC, str(table)), (TOPIC, rows), ([TOPIC], table)):
        if isinstance(given[0], list):
            given = (str(table), given[0])
        assert pylogseg.audit(examples, *given).is_right
    other = name_of("delta", tmp_path / "out", "t")
    assert pylogseg.lake(examples, TOPIC, other)[0].records == rows.num_rows
    assert pylogseg.lake(examples, other, TOPIC)[0].records == 0


def test_dead_letters_are_no_rows_of_the_table(tmp_path: Path, kind: str) -> None:
    data, table = write_orders(tmp_path / "data", 200), name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(data, table, decoding="value", registry=data / "schemas")
    done = expect(shell("audit", data, "orders", table), 0)
    assert done.text.count("198 rows and 2 dead letters") == 2
    assert to_row(pylogseg.audit(data, table))["deadLetters"] == 2


def test_a_topic_is_a_topic(tmp_path: Path, kind: str) -> None:
    """`a-0` is a topic here, and partition 0 of the topic `a`."""
    data = tmp_path / "data"
    for folder in ("a-0", "a-1", "a-0-0"):
        with pylogseg.open_log(data / folder) as log:
            log.append([{"key": b"k", "value": folder.encode()}])
    pylogseg.lake(data, name_of(kind, tmp_path / "out", "{topic}"))
    for topic, count in (("a", 2), ("a-0", 1)):
        table = name_of(kind, tmp_path / "out", topic)
        assert rows_of(table).num_rows == count
        for options in ((), ("--quick",)):
            done = expect(shell("audit", data, "--topic", topic, table, *options), 0)
        found = pylogseg.audit(data, table, topic)
        assert (found.is_right, found.other_rows, len(found.partitions)) == (True, 0, count)
    done = shell("audit", data, "a-0", name_of(kind, tmp_path / "out", "a-0"))
    assert (done.code, done.out) == (2, b"")
    assert "write --topic a-0, or --topic a --partition 0" in done.err
    assert shell("lake", data, "--topic", "a-0", name_of(kind, tmp_path / "other", "only")).code == 0
    assert rows_of(name_of(kind, tmp_path / "other", "only"))["topic"].to_pylist() == ["a-0"]
    (done,) = pylogseg.lake(data, name_of(kind, tmp_path / "more", "{topic}"), "a-0")
    assert (done.topic, done.records) == ("a-0", 1)
