"""Tests of lakehouse/audit_columns.py, lakehouse/foreign.py, lakehouse/foreign_delta.py, lakehouse/foreign_ducklake.py,
lakehouse/foreign_iceberg.py, lakehouse/opened_delta.py and lakehouse/opened_iceberg.py. What each format says of its
tables, and what it does not: snapshots, deletes, partition values, repetitions.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.foreign_tables import WRITERS, add_twice, catalog, delta, iceberg, parquet, records
from helpers.pickled_executor import Pickled

import pylogseg
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.audit_columns import PRESETS, parse_columns
from pylogseg.lakehouse.foreign import open_table

TOPIC = "codec-gzip"
MAPPING = "delta.columnMapping."
KEPT = Path(__file__).parent / "ducklake"


@pytest.fixture(scope="module")
def rows(examples):
    return records(examples, TOPIC)


def ranges(found):
    return [(of.kind, of.first_offset, of.last_offset) for each in found.partitions for of in each.ranges]


def redpanda(rows):
    """Lay rows out as Redpanda does."""
    fields = ["partition", "offset", "timestamp", "key"]
    struct = pa.StructArray.from_arrays([rows[name].combine_chunks() for name in fields], fields)
    return pa.table({"redpanda": struct, "value": rows["value"]})


# ---- Delta ----


def test_a_delta_commit_that_was_made_twice(examples, rows, tmp_path):
    """A repeated version of an application is accepted, and the rows are double."""
    from deltalake import CommitProperties, Transaction

    def version(number):
        return CommitProperties(app_transactions=[Transaction("sink", number)])

    table = delta(tmp_path / "t", [rows.slice(0, 300)], commit_properties=version(1))
    delta(table, [rows.slice(300), rows.slice(300)], commit_properties=version(2))
    found = pylogseg.audit(examples, table)
    assert ranges(found) == [("double", 300, 504)]
    assert [pair.origins for pair in found.partitions[0].double_files] == [("version 1", "version 2")]
    assert [each.kind for each in found.findings] == ["repeated"]
    assert "commits 1 and 2 are both version 2 of the application sink" in found.findings[0].text


def test_delta_columns_that_are_only_in_paths(examples, rows, tmp_path):
    table = delta(tmp_path / "t", [rows], partition_by=["topic", "partition"])
    assert "topic" not in pq.read_schema(next(table.rglob("*.parquet"))).names
    found = pylogseg.audit(examples, table)
    assert found.is_right
    assert found.partitions[0].present == rows.num_rows


def test_delta_after_deletes_and_compactions(examples, rows, tmp_path):
    from deltalake import DeltaTable

    table = delta(tmp_path / "t", [rows.slice(0, 300), rows.slice(300)])
    DeltaTable(table).optimize.compact()
    assert pylogseg.audit(examples, table).is_right
    DeltaTable(table).delete("offset = 7 or offset = 301")
    found = pylogseg.audit(examples, table)
    assert ranges(found) == [("lost", 7, 7), ("lost", 301, 301)]
    assert found.version == "version 3"


@pytest.mark.parametrize("mode", ["name", "id"])
def test_delta_columns_that_are_mapped(examples, rows, tmp_path, mode):
    """Files have other names, also of fields; with `id`, only the numbers are those of the table."""
    fields = ["topic", "partition", "offset"]
    struct = pa.StructArray.from_arrays([rows[name].combine_chunks() for name in fields], fields)
    table = delta(tmp_path / "t", [pa.table({"kafka": struct, "key": rows["key"], "value": rows["value"]})])
    number = iter(range(1, 7))

    def mapped(field):
        here = next(number)
        field["metadata"] = {MAPPING + "id": here, MAPPING + "physicalName": f"col-{here}"}
        for inner in field["type"]["fields"] if isinstance(field["type"], dict) else ():
            mapped(inner)

    log = table / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    about = next(action["metaData"] for action in actions if "metaData" in action)
    columns = json.loads(about["schemaString"])
    for field in columns["fields"]:
        mapped(field)
    about.update(schemaString=json.dumps(columns), configuration={MAPPING + "mode": mode, MAPPING + "maxColumnId": "6"})
    next(each for each in actions if "protocol" in each)["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("\n".join(map(json.dumps, actions)))

    def in_file(here, kind):
        return pa.field(
            f"col-{here}" if mode == "name" else f"_x{here}", kind, metadata={"PARQUET:field_id": str(here)}
        )

    path = next(table.glob("*.parquet"))
    struct, *others = (column.combine_chunks() for column in pq.read_table(path).columns)
    inner = [in_file(here, part.type) for here, part in enumerate(struct.flatten(), 2)]
    struct = pa.StructArray.from_arrays(struct.flatten(), fields=inner)
    named = [in_file(1, struct.type), *(in_file(here, part.type) for here, part in enumerate(others, 5))]
    pq.write_table(pa.table([struct, *others], schema=pa.schema(named)), path)
    for quick in (False, True):
        columns = {name: f"kafka.{name}" for name in fields} | {"key": "key", "value": "value"}
        found = pylogseg.audit(examples, table, columns=columns, quick=quick)
        assert (found.is_right, found.is_whole, found.partitions[0].present) == (True, True, 505)


# ---- Iceberg ----


def test_iceberg_files_that_filters_do_not_find(examples, rows, tmp_path):
    """`add_files` leaves the partition value null where the column is nested, and the rows are gone for filters."""
    from pyiceberg.transforms import HourTransform

    made = catalog(tmp_path)
    nested = redpanda(rows)
    table = made.create_table("kafka.orders", schema=nested.schema)
    with table.update_spec() as spec:
        spec.add_field("redpanda.timestamp", HourTransform(), "hour")
    table.append(nested.slice(0, 300))
    folder = tmp_path / "warehouse" / "kafka" / "orders"
    assert pylogseg.audit(examples, folder, TOPIC).findings == []
    pq.write_table(nested.slice(300), tmp_path / "added.parquet")
    table.add_files([f"{tmp_path}/added.parquet"])
    found = pylogseg.audit(examples, folder, TOPIC)
    assert ranges(found) == []
    assert not found.is_right
    assert [(each.kind, each.rows) for each in found.findings] == [("hidden", 205)]
    assert "its partition value hour is null, its rows have 2023-11-14-22" in found.findings[0].text
    # What is said is so: a query with a filter does not find them.
    least = pc.min(rows.slice(300)["timestamp"]).as_py()
    assert table.scan(f"redpanda.timestamp >= '{least.isoformat()}'").to_arrow().num_rows < 205
    made.close()


def test_iceberg_partition_values_that_are_null(examples, rows, tmp_path):
    """Of a transform that keeps no order, null is what can be told from the rows; of one that is void, it is right."""
    from pyiceberg.transforms import BucketTransform

    made = catalog(tmp_path)
    nested = redpanda(rows)
    table = made.create_table("kafka.orders", schema=nested.schema)
    with table.update_spec() as spec:
        spec.add_field("redpanda.offset", BucketTransform(4), "bucket")
    pq.write_table(nested, tmp_path / "added.parquet")
    table.append(nested.slice(0, 0))
    folder = tmp_path / "warehouse" / "kafka" / "orders"
    table.append(nested.slice(0, 5))
    assert pylogseg.audit(examples, folder, TOPIC).findings == []
    table.add_files([f"{tmp_path}/added.parquet"])
    found = pylogseg.audit(examples, folder, TOPIC)
    assert [(each.kind, each.rows) for each in found.findings] == [("hidden", 505)]
    assert "its partition value bucket is null, its rows have values" in found.findings[0].text
    made.close()


def test_two_metadata_files_that_are_the_newest(examples, rows, tmp_path):
    """Of two writers at once, the loser leaves one, and what it has is no state of the table."""
    folder = iceberg(tmp_path, [rows.slice(0, 300), rows.slice(300)])
    newest = max((folder / "metadata").glob("*.metadata.json"))
    shutil.copy(newest, newest.with_name(f"{newest.name[:5]}-loser.metadata.json"))
    with pytest.raises(RequestError, match="are both the newest metadata"):
        pylogseg.audit(examples, folder)
    assert pylogseg.audit(examples, newest).is_right


def test_an_iceberg_file_that_is_listed_twice(examples, rows, tmp_path):
    folder = iceberg(tmp_path, [rows.slice(0, 300)])
    snapshots = add_twice(tmp_path, rows.slice(300))
    found = pylogseg.audit(examples, folder)
    assert ranges(found) == [("double", 300, 504)]
    assert [list(pair.origins) for pair in found.partitions[0].double_files] == [snapshots]
    assert [each.kind for each in found.findings] == ["twice"]


def test_iceberg_columns_with_other_names_than_in_their_files(examples, rows, tmp_path):
    iceberg(tmp_path, [rows.slice(0, 300)])
    made = catalog(tmp_path)
    table = made.load_table("kafka.orders")
    with table.update_schema() as schema:
        schema.rename_column("offset", "position")
        schema.rename_column("value", "offset")
    table.append(rows.slice(300).rename_columns(["key", "offset", "topic", "partition", "position", "timestamp"]))
    made.close()
    columns = {"offset": "position", "value": "offset"}
    found = pylogseg.audit(examples, tmp_path / "warehouse" / "kafka" / "orders", columns=columns)
    assert found.is_right
    assert found.partitions[0].present == rows.num_rows


def test_an_iceberg_table_by_its_catalog(examples, rows, tmp_path, monkeypatch):
    iceberg(tmp_path, [rows])
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db")
    from pyiceberg import catalog as catalogs
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    # The catalog that wrote it is called otherwise, and tables belong to catalogs by name.
    with pytest.raises(RequestError, match=r"iceberg:prod:kafka.orders: .*does not exist"):
        open_table("iceberg:prod:kafka.orders")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    assert pylogseg.audit(examples, "iceberg:tests:kafka.orders").is_right
    with pytest.raises(RequestError, match=r"expected .*iceberg:\[CATALOG:\]NAMESPACE"):
        open_table("iceberg:orders")


# ---- DuckLake ----


@pytest.fixture
def ducklake(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    shutil.copytree(KEPT, tmp_path / "lake")
    made = duckdb.connect(tmp_path / "lake" / "catalog.ducklake")
    made.execute((KEPT / "catalog.sql").read_text(encoding="utf-8"))
    made.close()
    return tmp_path / "lake" / "catalog.ducklake"


def test_ducklake(examples, ducklake):
    """Rows in files and in the catalog, and deletes in both."""
    found = pylogseg.audit(examples, ducklake)
    double = [("double", 500, 501), ("lost", 502, 502), ("double", 503, 504)]
    assert ranges(found) == [("lost", 7, 7), ("lost", 10, 200), ("lost", 310, 310), *double]
    assert found.version == "snapshot 6"
    assert [pair.origins for pair in found.partitions[0].double_files] == [("snapshot 2", "snapshot 3")]
    assert to_row(pylogseg.audit(examples, f"ducklake:{ducklake}/orders"))["rows"] == found.rows
    with pytest.raises(RequestError, match=r"name one table, .*it has main.orders"):
        open_table(f"ducklake:{ducklake}/other")


# ---- Parquet, and any ----


@pytest.mark.parametrize("kind", [*WRITERS, "table", "dataset"])
def test_a_table_of_each_kind_travels(examples, rows, tmp_path, kind):
    """What opens its files is sent to other processes; its catalog is not."""
    broken = [rows.slice(0, 300), rows.slice(295)]
    if kind in WRITERS:
        table = WRITERS[kind](tmp_path / "t", broken)
    else:
        table = pa.concat_tables(broken)
        table = table if kind == "table" else ds.dataset(parquet(tmp_path / "t", broken))
    here, there = (pylogseg.audit(examples, table, TOPIC, executor=executor) for executor in (None, Pickled()))
    assert to_row(there) == to_row(here)
    assert [to_row(each) for each in there.partitions] == [to_row(each) for each in here.partitions]
    assert ranges(there) == [("double", 295, 299)]


def test_a_dataset_of_pyarrow(examples, rows, tmp_path):
    ds.write_dataset(rows, tmp_path / "t", format="parquet", partitioning=["partition"], partitioning_flavor="hive")
    assert pylogseg.audit(examples, tmp_path / "t").is_right
    found = pylogseg.audit(examples, ds.dataset(tmp_path / "t", partitioning="hive"))
    assert found.is_right
    assert found.partitions[0].present == rows.num_rows


def test_tables_of_arrow_in_memory(examples, rows, tmp_path, monkeypatch):
    """A table, a frame of polars, datasets in memory and of other files; rows of each part are named."""
    polars = pytest.importorskip("polars")
    nested = redpanda(rows)
    for number in (0, 1):
        ds.write_dataset(rows.slice(300 * number, 300 - 95 * number), tmp_path / "ipc", format="feather",
                         basename_template=f"{number}-{{i}}.feather", existing_data_behavior="overwrite_or_ignore",
                         partitioning=["partition"], partitioning_flavor="hive")  # fmt: skip
    ipc = ds.dataset(tmp_path / "ipc", format="feather", partitioning="hive")
    for table in (rows, polars.from_arrow(rows), ds.dataset(rows), ipc, rows.to_reader(100), nested, ds.dataset([ipc])):
        found = pylogseg.audit(examples, table, TOPIC)
        assert found.is_right, found
        assert found.partitions[0].present == rows.num_rows
    monkeypatch.setattr("pylogseg.lakehouse.foreign._PART_ROWS", 300)
    found = pylogseg.audit(examples, pa.concat_tables([rows, rows.slice(0, 5)]), jobs=2)
    assert ranges(found) == [("double", 0, 4)]
    assert [pair.files for pair in found.partitions[0].double_files] == [("rows 0 to 299", "rows 300 to 509")]
    next((tmp_path / "ipc").rglob("1-*.feather")).write_bytes(b"ARROW1 no more")
    found = pylogseg.audit(examples, ipc, TOPIC)
    assert [each.kind for each in found.findings] == ["unread"]
    assert not found.is_whole


KINDS = [
    pa.large_binary(),
    pa.binary_view(),
    pa.dictionary(pa.int32(), pa.binary()),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_of_each_type(examples, rows, tmp_path, kind):
    cast = rows.set_column(1, "value", rows["value"].combine_chunks().cast(kind) if "dict" not in str(kind) else
                           rows["value"].combine_chunks().dictionary_encode())  # fmt: skip
    try:
        written = parquet(tmp_path / "t", [cast])
    except pa.ArrowNotImplementedError as error:  # views, by older versions
        pytest.skip(str(error))
    assert pylogseg.audit(examples, written).is_right


def test_text_is_compared_by_its_bytes(tmp_path):
    with pylogseg.open_log(tmp_path / "log" / "t-0") as log:
        log.append(pa.table({"key": ["a", None, "ä"], "value": ["", "x" * 100, None]}))
    text = pa.table({"offset": [0, 1, 2], "key": ["a", None, "ä"], "value": ["", "x" * 100, None]})
    assert pylogseg.audit(tmp_path / "log", parquet(tmp_path / "t", [text])).is_right
    other = text.set_column(1, "key", pa.array(["a", "", "a"]))
    assert ranges(pylogseg.audit(tmp_path / "log", parquet(tmp_path / "u", [other]))) == [("changed", 1, 2)]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(examples, rows, tmp_path, preset):
    """A table with the columns of each preset is found to be one."""
    wanted = PRESETS[preset]
    made: dict[str, dict[str, pa.Array]] = {}
    for role, name in wanted.items():
        column, _, field = name.partition(".")
        made.setdefault(column, {})[field] = rows[role].combine_chunks()
    table = pa.table({
        column: pa.StructArray.from_arrays(list(fields.values()), list(fields)) if "" not in fields else fields[""]
        for column, fields in made.items()
    })  # fmt: skip
    found = pylogseg.audit(examples, parquet(tmp_path / "t", [table]), TOPIC)
    assert found.columns.preset == preset
    assert {column.role for column in found.columns.columns} == set(wanted)
    assert found.is_right
    assert found.partitions[0].present == rows.num_rows


@pytest.mark.parametrize("nested", [False, True])
def test_a_sink_that_writes_no_tombstones(examples, rows, tmp_path, nested):
    """Connect's Iceberg sink ignores null values; what else is missing is lost, and such a row is not wrong."""
    fields = ["topic", "partition", "offset"]
    arrays = [rows[name].combine_chunks() for name in fields]
    flat = pa.table(arrays, [f"_kafka_metadata_{name}" for name in fields])
    made = pa.table({"_kafka_metadata": pa.StructArray.from_arrays(arrays, fields)}) if nested else flat
    nulls = [row for row, value in enumerate(rows["value"].to_pylist()) if value is None]
    kept = made.take([row for row in range(rows.num_rows) if row not in (*nulls[1:], 17)])
    found = pylogseg.audit(examples, parquet(tmp_path / "t", [kept]))
    assert ranges(found) == [("lost", 17, 17)]
    assert found.partitions[0].missing["tombstone"] == len(nulls) - 1 == 1


def test_a_value_that_a_sink_has_decoded_is_not_compared(examples, rows, tmp_path):
    """Aiven's column of raw values is null for all that could be decoded; so may one of Redpanda's be a field."""
    struct = pa.StructArray.from_arrays([rows[name].combine_chunks() for name in ("partition", "offset")],
                                        ["partition", "offset"])  # fmt: skip
    nulls = pa.nulls(rows.num_rows, pa.binary())
    aiven = pa.table({"kafka": struct, "key_raw": rows["key"], "value_raw": nulls})
    found = pylogseg.audit(examples, parquet(tmp_path / "a", [aiven]), TOPIC)
    assert (found.columns.preset, found.columns.compared, found.is_right) == ("aiven", ("key",), True)
    decoded = redpanda(rows).set_column(1, "value", nulls).append_column("amount", pa.array([1] * rows.num_rows))
    found = pylogseg.audit(examples, parquet(tmp_path / "r", [decoded]), TOPIC)
    assert (found.columns.typed, found.columns.compared, found.is_right) == (("value",), ("key",), True)
    bytes_only = parquet(tmp_path / "k", [redpanda(rows).set_column(1, "value", nulls)])
    assert not pylogseg.audit(examples, bytes_only, TOPIC).is_right


def test_columns_that_are_said(examples, rows, tmp_path):
    strange = rows.rename_columns(["k", "v", "topic", "p", "meta.offset", "timestamp"])
    table = parquet(tmp_path / "t", [strange])
    with pytest.raises(RequestError, match=r"no column of offsets .*its columns: k, v, topic, p, meta.offset"):
        pylogseg.audit(examples, table)
    columns = parse_columns(["offset=meta.offset", "partition=p", "key=k", "value="])
    found = pylogseg.audit(examples, table, TOPIC, columns=columns)
    assert found.is_right
    assert found.columns.compared == ("key",)
    with pytest.raises(RequestError, match=r"no column for the partition, and 2 are selected"):
        pylogseg.audit(examples, table, "txn-a", columns={"offset": "meta.offset", "topic": ""})
    with pytest.raises(RequestError, match="no column q for the partition"):
        pylogseg.audit(examples, table, columns={"offset": "meta.offset", "partition": "q"})
    with pytest.raises(RequestError, match="not whole numbers"):
        pylogseg.audit(examples, table, columns={"offset": "timestamp"})
    with pytest.raises(RequestError, match="expected ROLE=COLUMN"):
        parse_columns(["headers=h"])


def test_a_table_without_topics(examples, rows, tmp_path):
    table = parquet(tmp_path / "t", [rows.drop_columns(["topic"])])
    assert pylogseg.audit(examples, table, TOPIC).is_right
    with pytest.raises(RequestError, match=r"no column for the topic, or no row, .*has \d+ .*name the one"):
        pylogseg.audit(examples, table)


def test_typed_values_are_said_not_to_be_compared(examples, rows, tmp_path):
    typed = rows.set_column(1, "value", pa.array([{"a": 1}] * rows.num_rows))
    found = pylogseg.audit(examples, parquet(tmp_path / "t", [typed]))
    assert found.is_right
    assert found.columns.typed == ("value",)
    assert found.columns.compared == ("key",)


def test_rows_of_other_topics(examples, tmp_path):
    table = parquet(tmp_path / "t", [records(examples, ["codec-gzip", "txn-a"])])
    found = pylogseg.audit(examples, table, "txn-a-0")
    assert [each.name for each in found.partitions] == ["txn-a-0"]
    assert found.other_rows == 505 + 4


def test_rows_without_an_offset(examples, rows, tmp_path):
    table = parquet(tmp_path / "t", [rows, rows.slice(0, 3).set_column(4, "offset", pa.nulls(3, pa.int64()))])
    found = pylogseg.audit(examples, table)
    assert ranges(found) == []
    assert not found.is_whole
    assert [(each.kind, each.rows) for each in found.findings] == [("unread", 3)]


def test_what_is_no_table(tmp_path):
    with pytest.raises(RequestError, match="no such TABLE"):
        open_table(tmp_path / "none")
    with pytest.raises(RequestError, match=r"neither _delta_log nor metadata, nor \.parquet files"):
        open_table(tmp_path)
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(StorageError, match="cannot read as Parquet"):
        open_table(tmp_path)
    with pytest.raises(RequestError, match="say which format it has"):
        open_table("s3://bucket/table")
    with pytest.raises(RequestError, match="not int"):
        open_table(3)
