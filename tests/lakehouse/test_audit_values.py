"""Tests of lakehouse/audit_values.py. `audit` of tables that have values decoded: what changed is named with its
column.
"""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.foreign_tables import WRITERS, parquet
from helpers.pickled_executor import Pickled
from helpers.shell import pylogseg as run
from helpers.shell import rows as rows_of
from helpers.typed_logs import write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse.audit_values import Slots, common_type, hash_values, in_type

SECRET = (1, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_orders(tmp_path_factory.mktemp("orders"), 300)


@pytest.fixture
def typed(data):
    return {"decoding": "value", "registry": data / "schemas"}


@pytest.fixture
def rows(data, typed):
    """As a sink writes them: only what decodes, with the value as a struct."""
    found = pylogseg.read_arrow(data, "orders", **typed, on_undecoded="skip").read_all()
    return found.select(["topic", "partition", "offset", "key", "value"])


def ranges(found):
    return [(of.kind, of.reason, of.first_offset, of.last_offset) for each in found.partitions for of in each.ranges]


def with_values(rows, change):
    """The same rows with other values."""
    values = [change(offset, value) for offset, value in zip(rows["offset"].to_pylist(), rows["value"].to_pylist(),
                                                             strict=True)]  # fmt: skip
    return rows.set_column(4, "value", pa.array(values, rows.schema.field("value").type))


def broken(rows):
    def change(offset, value):
        if offset in (7, 8):
            return {**value, "who": "somebody else"}
        return {**value, "who": None, "id": -1} if offset == 21 else value

    return with_values(rows, change)


WRONG = [("changed", "value.who", 7, 8), ("changed", "value.id, value.who", 21, 21)]
BAD = [("lost", "", offset, offset) for offset in (13, 113, 213)]


@pytest.mark.parametrize("format", WRITERS)
def test_what_changed_is_named_with_its_column(data, typed, rows, tmp_path, format):
    rows = rows.set_column(4, "value", rows["value"].combine_chunks().cast(_narrow(rows.schema.field("value").type)))
    table = WRITERS[format](tmp_path / "t", [rows.slice(0, 100), rows.slice(100)])
    found = pylogseg.audit(data, table, **typed)
    assert ranges(found) == BAD
    assert found.compared == ["key", "value.id", "value.who", "value.state", "value.much"]
    table = WRITERS[format](tmp_path / "u", [broken(rows)])
    for executor in (None, Pickled()):
        found = pylogseg.audit(data, table, **typed, executor=executor)
        assert sorted(ranges(found)) == sorted([*BAD, *WRONG])
        assert found.partitions[0].changed == 3
        assert found.partitions[0].present == rows.num_rows


def _narrow(kind):
    """Types that all formats have; decimals of 50 digits are text in tables."""
    return pa.struct([pa.field(f.name, pa.string() if pa.types.is_decimal(f.type) else f.type) for f in kind])


def test_fields_as_columns_of_the_table(data, typed, rows, tmp_path):
    """As Redpanda and Connect lay them out; a field that the table does not have is not compared."""
    flat = pa.table({"offset": rows["offset"], "partition": rows["partition"],
                     **{name: pc.struct_field(broken(rows)["value"].combine_chunks(), name) for name in ("id", "who")},
                     "more": rows["offset"]})  # fmt: skip
    found = pylogseg.audit(data, parquet(tmp_path / "t", [flat]), "orders", **typed)
    assert sorted(ranges(found)) == sorted([*BAD, *WRONG])
    assert found.compared == ["value.id", "value.who"]
    with pytest.raises(RequestError, match="no column for the decoded value"):
        pylogseg.audit(data, parquet(tmp_path / "u", [flat.select(["offset", "partition"])]), "orders", **typed)


def test_tables_of_lake_and_their_dead_letters(data, typed, tmp_path):
    pylogseg.lake(data, f"delta:{tmp_path}/t", **typed)
    found = pylogseg.audit(data, f"delta:{tmp_path}/t", **typed)
    (only,) = found.partitions
    assert (found.is_right, only.present, only.missing["deadLetters"]) == (True, 297, 3)
    from deltalake import DeltaTable

    DeltaTable(tmp_path / "t").optimize.compact()
    value = "named_struct('id', value.id, 'who', 'x', 'state', value.state, 'much', value.much)"
    DeltaTable(tmp_path / "t").update({"value": value}, predicate="offset = 42")
    done = run("audit", data, f"delta:{tmp_path}/t", "--value-as", "schema", "--registry", data / "schemas")
    assert done.code == 1
    assert "  changed 42                      1 offset: value.who" in done.text.splitlines()
    assert done.text.splitlines()[-2] == "compared: offsets, key, value.id, value.who, value.state, value.much"
    done = run("audit", data, f"delta:{tmp_path}/t", "--value-as", "schema", "--registry", data / "schemas", "--json")
    assert rows_of(done, "partition")[0]["ranges"][0]["reason"] == "value.who"
    assert run("audit", data, f"delta:{tmp_path}/t", "--registry", data / "schemas").code == 2


def test_a_column_that_came_later_is_not_compared(data, typed, rows, tmp_path):
    """In older files it is null, and a default where the record is read by the newest schema."""
    kind = rows.schema.field("value").type
    old = pa.struct([field for field in kind if field.name != "who"])
    first = rows.slice(0, 100).set_column(4, "value", rows["value"].combine_chunks().slice(0, 100).cast(old))
    table = parquet(tmp_path / "t", [rows.slice(100)])
    found = pylogseg.audit(data, parquet_more(table, first), **typed)
    assert ranges(found) == BAD
    assert "value.who" not in found.compared
    assert [(each.kind, each.is_wrong) for each in found.findings] == [("note", False)]


def parquet_more(folder, rows):
    import pyarrow.parquet as pq

    pq.write_table(rows, folder / "part-9.parquet")
    return folder


# ---- hashes ----


def hashes(array):
    out = np.zeros(len(array), np.uint64)
    hash_values(SECRET, array, out)
    return out.tolist()


NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
SAME = [
    (pa.array([1, None, -3], pa.int64()), pa.int32()),
    (pa.array([1.5, None, float("nan")], pa.float64()), pa.float32()),
    (pa.array(["a", None, ""]), pa.large_string()),
    (pa.array([b"a", None, b""]), pa.large_binary()),
    (pa.array([NOW, None, NOW], pa.timestamp("us", "UTC")), pa.timestamp("ns", "UTC")),
    (pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]), pa.decimal128(20, 2)),
    (pa.array([True, None, False]), pa.bool_()),
    (pa.array([datetime.date(2026, 1, 2), None, datetime.date(1969, 1, 2)]), pa.date64()),
    (pa.array([[1, None], None, []], pa.list_(pa.int64())), pa.large_list(pa.int64())),
    (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.int32())),
    (pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": ""}]), pa.struct([("a", pa.int32()), ("b", pa.string())])),
]


@pytest.mark.parametrize(("array", "kind"), SAME, ids=str)
def test_hashes_are_of_values_not_of_types(array, kind):
    """Another type of the class, a slice, a cast to the table's type: the same. Null, empty and others differ."""
    found = hashes(array)
    assert len({*found}) == 3 if not pa.types.is_timestamp(array.type) else found[0] == found[2] != found[1]
    assert hashes(array.cast(kind)) == found
    twice = pa.concat_arrays([array.slice(1), array])
    assert hashes(twice.slice(2)) == found
    assert hashes(twice.slice(1, 3)) == [found[2], found[0], found[1]]
    assert common_type(array.type, kind) == kind
    assert hashes(in_type(array, kind)) == found
    assert common_type(array.type, pa.null()) is None


def test_columns_that_differ_are_told_apart():
    slots = Slots(["key", "value.a", "value."])
    one, other = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    for place, (a, b) in enumerate([(5, 5), (7, 8), (1, 2)]):
        slots.put(place, np.array([a], np.uint64), one)
        slots.put(place, np.array([b], np.uint64), other)
    assert slots.which(one ^ other).tolist() == [0b110]
    assert slots.name_columns(0b110) == "value.a, value"
    assert slots.name_columns(0) == ""
