"""Tests of spark/typed.py and values/forms.py. Typed columns in Spark: by options of the source, by `read_segments`, in
a stream, and of any binary column.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.spark_logs import needs_sources
from helpers.typed_logs import ORDER, bad, order, write_orders

import pylogseg
import pylogseg.spark
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.spark import functions
from pylogseg.spark._compat import VERSION
from pylogseg.spark.options import parse
from pylogseg.values.decoding import decode_column
from pylogseg.values.forms import for_spark, in_form

pytestmark = needs_sources
COUNT = 500


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("typed"), COUNT)


def load(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("pylogseg").options(decoding="value", **options).load(str(path))


def test_source(spark: Any, shop: Path) -> None:
    """The rows of `read_arrow`, nested, with what does not decode beside them."""
    found = load(spark, shop, subscribe="orders", columns="partition,offset,value")
    assert found.columns == ["partition", "offset", "value", "valueRaw", "valueError"]
    assert found.schema["value"].dataType.fieldNames()[:2] == ["id", "client"]
    expected = pylogseg.read_arrow(shop, "orders", columns=["partition", "offset", "value"], decoding="value")
    rows = {(r["partition"], r["offset"]): r for r in expected.read_all().to_pylist()}
    for row in found.collect():
        mine = rows[row.partition, row.offset]
        assert (row.value and row.value.id) == (mine["value"] and mine["value"]["id"])
        assert (row.value and [line.sku for line in row.value.lines]) == (
            mine["value"] and [line["sku"] for line in mine["value"]["lines"]]
        )
        assert (row.valueError, row.valueRaw and bytes(row.valueRaw)) == (mine["valueError"], mine["valueRaw"])
    assert found.count() == len(rows)
    found.createOrReplaceTempView("typed_orders")
    query = "select sum(value.id) as ids, count(valueError) as bad from typed_orders where value is not null or true"
    (row,) = spark.sql(query).collect()
    assert (row.ids, row.bad) == (sum(r["value"]["id"] for r in rows.values() if r["value"]), 8)


def test_every_type(spark: Any, shop: Path) -> None:
    rows = load(spark, shop, subscribe="types").orderBy("offset").collect()
    expected = pylogseg.read_arrow(shop, "types", decoding="value", columns=["value"]).read_all()["value"].to_pylist()
    assert len(rows) == len(expected) == 8
    for row, mine in zip(rows, expected, strict=True):
        for name in ("yes", "i", "l", "d", "s", "e", "dec", "day", "unknown_logical"):
            assert repr(row.value[name]) == repr(mine[name]), name  # NaN among them
        assert bytes(row.value.fx) == mine["fx"]
        assert row.value.m == dict(mine["m"])


def test_choices(spark: Any, root: Path, tmp_path: Path) -> None:
    where = str(root / "schemas")
    good = load(spark, root, subscribe="orders", registry=where, onUndecoded="skip")
    assert good.count() == COUNT - sum(map(bad, range(COUNT)))
    strict = load(spark, root, subscribe="orders", registry=where, onUndecoded="raise")
    with pytest.raises(Exception, match=r"orders-0, the value of offset 13.*onUndecoded=raw keeps"):
        strict.select("value").collect()
    slim = {**ORDER, "fields": ORDER["fields"][:1]}  # type: ignore[index]
    by_text = pylogseg.spark.read_segments(
        spark, root, ["value"], subscribe="orders", decoding="value", registry=where, schema=json.dumps(slim)
    )
    assert by_text.selectExpr("max(value.id)").first()[0] == COUNT - 1
    assert by_text.columns == ["value", "valueRaw", "valueError"]
    for wrong in ({"schema": "7"}, {"decoding": "offset"}, {"decoding": "value", "onUndecoded": "no"}):
        with pytest.raises(RequestError):
            parse(wrong)


def test_stream(spark: Any, root: Path, tmp_path: Path) -> None:
    """A schema that a registry got after the stream began decodes too."""
    copy = shutil.copytree(root, tmp_path / "copy")
    options = {"subscribe": "orders", "startingOffsets": "earliest", "registry": str(copy / "schemas"), "schema": "7"}
    stream = spark.readStream.format("pylogseg").options(decoding="value", **options).load(str(copy))
    query = stream.writeStream.format("memory").queryName("typed_stream").start()
    try:
        query.processAllAvailable()
        slim = {**ORDER, "fields": ORDER["fields"][:2]}  # type: ignore[index]
        (copy / "schemas" / "8.avsc").write_text(json.dumps({**slim, "fields": [*slim["fields"], ORDER["fields"][2]]}))  # type: ignore[index]
        with pylogseg.open_log(copy / "orders-0") as log:
            log.append([{"value": b"\0\0\0\0\x08" + order(1000)[5:-1]}])
        query.processAllAvailable()
        found = spark.sql("select max(value.id) as last, count(valueError) as bad from typed_stream").first()
        assert (found.last, found.bad) == (1000, sum(map(bad, range(COUNT))))
    finally:
        query.stop()


@pytest.mark.skipif(VERSION < (4, 1), reason="Arrow UDFs: Spark 4.1 on")
def test_binary_columns(spark: Any, root: Path) -> None:
    values = [order(n) for n in range(20)]
    frame = spark.createDataFrame([(value, value[5:]) for value in values], "framed binary, bare binary")
    file = root / "schemas" / "7.avsc"
    made = frame.select(
        functions.from_schema("framed", file).alias("a"), functions.from_schema("bare", file, frame="plain").alias("b")
    )
    assert made.schema["a"].dataType.simpleString().startswith("struct<id:bigint,who:string,state:string")
    rows = made.collect()
    assert [(row.a.id, row.b.id, row.a == row.b) for row in rows] == [(n, n, True) for n in range(20)]
    broken = spark.createDataFrame([(b"what?",), (None,)], "framed binary")
    assert [row[0] for row in broken.select(functions.from_schema("framed", file, on_undecoded="null")).collect()] == [
        None,
        None,
    ]
    with pytest.raises(Exception, match="no frame"):
        broken.select(functions.from_schema("framed", file)).collect()


#: Values that are none of schema 7, by what they are.
OTHERS = {
    "of another schema": b"\0\0\0\0\x08\1",
    "of an unknown schema": b"\0\0\0\0\x09\2",
    "no frame": b"what?",
    "empty": b"",
    "null": None,
    "cut": b"\0\0\0",
    "of Glue, badly compressed": b"\3\5" + bytes(16) + b"no zlib",
}


@pytest.fixture(scope="module")
def several(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry whose schemas 7 and 8 cannot be read as each other."""
    shop = shutil.copytree(root / "schemas", tmp_path_factory.mktemp("several") / "schemas")
    (shop / "8.avsc").write_text('"boolean"')
    (shop / "10.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    return shop


def test_values_are_routed_by_the_ids_of_their_schemas(several: Path) -> None:
    values = pa.array([order(1), *OTHERS.values(), order(2)], pa.binary())
    made = decode_column(values, 7, several, ids=7).to_pylist()
    assert [row and row["id"] for row in made] == [1, *[None] * len(OTHERS), 2]
    assert decode_column(values, 8, several, ids=[8]).to_pylist() == [None, True, *[None] * len(OTHERS)]
    text = pa.array([b'\0\0\0\0\x0a{"a": 5}', *OTHERS.values()], pa.binary())
    assert decode_column(text, 10, several, ids=10).to_pylist() == [{"a": 5}, *[None] * len(OTHERS)]
    for what, value in OTHERS.items():
        both = pa.array([order(1), value], pa.binary())
        if value is not None:
            with pytest.raises(CorruptionError, match=r"value 1 of the column.*ids=\[\.\.\.\] decodes"):
                decode_column(both, 7, several)
        assert decode_column(both, 7, several, on_undecoded="null").null_count == 1, what
    with pytest.raises(CorruptionError, match="value 1 of the column"):  # one of its own
        decode_column(pa.array([order(1), order(2)[:-1]], pa.binary()), 7, several, ids=7)
    with pytest.raises(RequestError, match="ids go with frames"):
        decode_column(values, 7, several, ids=7, frame="plain")


@pytest.mark.skipif(VERSION < (4, 1), reason="Arrow UDFs: Spark 4.1 on")
def test_routing_behind_a_filter(spark: Any, several: Path) -> None:
    """Spark would merge the filters, and run the function on rows that the first one leaves out."""
    values = [order(1), *OTHERS.values(), order(2)]
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    ids = functions.confluent("value", on_undecoded="null")
    of_7 = frame.select("value", ids.alias("c")).where("c.schemaId = 7")
    for how in ({}, {"ids": 7}):
        typed = of_7.select(functions.from_schema("value", 7, several, **how).alias("v")).select("v.*")
        by_value = of_7.where(functions.from_schema("value", 7, several, **how)["id"] > 0).selectExpr("value")
        for found in (typed.where("id > 0"), typed.groupBy("id").count().orderBy("id"), typed.distinct()):
            assert sorted(row.id for row in found.collect()) == [1, 2]
        assert sorted(bytes(row.value) for row in by_value.collect()) == sorted([order(1), order(2)])
    with pytest.raises(Exception, match=r"ids=\[\.\.\.\] decodes values of these schemas only"):
        frame.select(functions.from_schema("value", 7, several).alias("v")).where("v.id > 0").collect()
    both = frame.select(
        functions.from_schema("value", 7, several, ids=7).alias("order"),
        functions.from_schema("value", 8, several, ids=8).alias("flag"),
    ).where("order is not null or flag is not null")
    rows = both.collect()
    assert sorted(row.order.id for row in rows if row.order) == [1, 2]
    assert [row.flag for row in rows if not row.order] == [True]


def test_types_of_spark() -> None:
    kinds = {
        pa.dictionary(pa.int32(), pa.string()): pa.string(),
        pa.decimal256(50, 2): pa.string(),
        pa.binary(3): pa.binary(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.time32("ms"): pa.int32(),
        pa.time64("us"): pa.int64(),
        pa.timestamp("ns", "UTC"): pa.timestamp("us", "UTC"),
        pa.timestamp("ms"): pa.timestamp("us"),
        pa.duration("ns"): pa.duration("us"),
        pa.int16(): pa.int16(),
    }
    nested = pa.struct([("l", pa.list_(pa.struct([("m", pa.map_(pa.string(), kind))]))) for kind in kinds])
    made = in_form(nested, for_spark)
    assert [field.type.value_type.field(0).type.item_type for field in made] == list(kinds.values())
