"""Tests of spark/functions.py. The functions in Spark: what they give is what the Arrow functions give, by Arrow UDFs
and by pandas UDFs.
"""

from __future__ import annotations

from typing import Any

import pytest

import pylogseg
from pylogseg import _codec
from pylogseg.errors import RequestError
from pylogseg.spark import functions
from pylogseg.spark._compat import VERSION

RAW = bytes(pylogseg.encode([(1, b"a", b"1", [("h", b"x")]), (2, None, b"2")], compression="lz4"))
ROWS = [(RAW, b"21", 64, "x"), (None, None, None, None)]


class WithoutArrow:
    """`pyspark.sql.functions` as it was before Spark 4.1."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name == "arrow_udf":
            raise AttributeError(name)
        return getattr(self._module, name)


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, "raw binary, key binary, number bigint, kept string").coalesce(1)


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_functions(frame: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylogseg.spark import functions as f

    if kind == "pandas":
        monkeypatch.setattr(f, "sql", WithoutArrow(f.sql))
    elif not hasattr(f.sql, "arrow_udf"):
        pytest.skip("Arrow UDFs: Spark 4.1 on")
    records = f.to_records("raw")
    got, nulls = frame.select(
        f.crc32c("key").alias("crc"),
        f.murmur2("key"),
        f.kafka_partition("kept", 5),
        f.encode_varint("number").alias("varint"),
        f.decode_varint(f.encode_varint("number")),
        f.decode_uvarint(f.encode_uvarint("number")),
        f.confluent(f.to_confluent("key", 3)).alias("framed"),
        records.alias("records"),
        f.headers_map(records[0]["headers"]).alias("headers"),
        f.to_records(f.from_records(records, compression="zstd")).alias("again"),
    ).collect()
    assert got.crc == _codec.crc32c(b"21")
    assert got["murmur2(key)"] == -973932308
    assert got.varint == b"\x80\x01"
    assert (got[4], got[5]) == (64, 64)
    assert got.framed.asDict() == {"schemaId": 3, "payload": b"21"}
    assert [record.value for record in got.records] == [b"1", b"2"]
    assert got.headers == {"h": b"x"}
    assert got.again == got.records
    assert all(value is None or value == (None, None) for value in nulls)


def test_decode_and_encode(frame: Any) -> None:
    from pylogseg.spark import functions as f

    rows = f.decode_batches(frame, "raw", keep=["kept", "number"])
    assert [(row.kept, row.number, row.key, row.value, row.offset) for row in rows.collect()] == [
        ("x", 64, b"a", b"1", 0),
        ("x", 64, None, b"2", 1),
    ]
    (batch,) = f.encode_batches(rows, compression="lz4").collect()
    assert (bytes(batch.batch), batch.records, batch.lastOffset) == (RAW, 2, 1)


def test_damage_names_the_value(spark: Any) -> None:
    from pylogseg.spark import functions as f

    bad = spark.createDataFrame([(RAW,), (RAW[:-1],)], "raw binary").coalesce(1)
    assert f.decode_batches(bad, "raw", on_undecoded="skip").count() == 2
    with pytest.raises(Exception, match="value 1 of the column: at position 0: no whole batch begins here"):
        f.decode_batches(bad, "raw").count()


@pytest.mark.skipif(VERSION < (4, 1), reason="Arrow UDFs: Spark 4.1 on")
def test_in_sql(spark):
    assert "klog_confluent_or_null" in functions.register(spark, "klog_")
    found = spark.sql(
        "SELECT klog_crc32c(k) AS crc, klog_kafka_partition(k, n) AS p, klog_kafka_partition(k, 5) AS q, "
        "klog_confluent_or_null(k).schemaId AS id FROM VALUES (CAST('foobar' AS BINARY), 12), (NULL, 3), "
        "(X'000000000701', 7) AS t(k, n)"
    )
    keys = spark.createDataFrame([(b"foobar", 12), (None, 3), (b"\0\0\0\0\7\1", 7)], "k binary, n int")
    crc, five = keys.select(functions.crc32c("k"), functions.kafka_partition("k", 5)).toPandas().to_numpy().T.tolist()
    rows = found.collect()
    assert [row.crc for row in rows if row.crc is not None] == [int(value) for value in crc if value == value]
    assert [row.q for row in rows if row.q is not None] == [int(value) for value in five if value == value]
    assert [row.p for row in rows][:2] == [6, None]
    assert [row.id for row in rows] == [None, None, 7]


def test_words_for_errors(spark):
    for function in (functions.decode_varint, functions.decode_uvarint, functions.confluent, functions.to_records):
        with pytest.raises(RequestError, match="on_undecoded='ignore': must be one of 'raise', 'null'"):
            function("k", "ignore")
