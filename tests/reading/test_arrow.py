"""Tests of reading/arrow/columns.py, reading/column_names.py, reading/options.py and reading/state.py. Arrow: the
schema of Spark's source, the same values as the records, views without copies, other readers.
"""

import datetime
import inspect
from typing import get_args

import duckdb
import polars
import pyarrow as pa
import pytest

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.options import options_of
from pylogseg.reading.state import IsolationLevel, OnCorrupt, Reading, ReadingKeywords
from pylogseg.tables.reader import ReadKeywords


def rows_of(table):
    return table.to_pylist()


def as_row(record):
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(
        milliseconds=record.timestamp
    )
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": moment,
        "timestampType": record.timestamp_type,
        "headers": headers or None,
    }


def test_schema():
    assert arrow.schema().names == list(DEFAULT_COLUMNS)
    assert all(field.nullable for field in arrow.schema())
    assert arrow.schema().field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert arrow.schema(["value"], views=True).field("value").type == pa.binary_view()
    with pytest.raises(RequestError, match=r"unknown column .valeu."):
        arrow.schema(["valeu"])
    with pytest.raises(RequestError, match="named twice"):
        arrow.schema(["key", "key"])


@pytest.mark.parametrize("views", [False, True])
def test_the_same_as_records(examples, views):
    table = pylogseg.read_arrow(examples, views=views).read_all()
    table.validate(full=True)
    assert rows_of(table) == [as_row(record) for record in pylogseg.read(examples)]


@pytest.mark.parametrize("views", [False, True])
def test_codecs_folder(golden, views):
    paths = sorted((golden / "broker-4.3" / "codecs").glob("data[01]"))
    table = pylogseg.read_arrow(paths, views=views).read_all()
    table.validate(full=True)
    count = 0
    for row, record in zip(rows_of(table), pylogseg.read(paths), strict=True):
        assert row == as_row(record)
        count += 1
    assert count > 1000


def test_views_point_into_the_map(examples):
    path = sorted((examples / "codec-none-1").glob("*.log"))[0]
    batch = pylogseg.read_arrow(path, columns=["value"], views=True).read_next_batch()
    assert batch.column(0).buffers()[2].size == path.stat().st_size


def test_batch_columns(examples):
    wanted = ["offset", *BATCH_COLUMNS]
    rows = rows_of(pylogseg.read_arrow(examples, "txn-a-0", columns=wanted, control=True).read_all())
    assert {row["producerId"] for row in rows} != {-1}
    assert any(row["isControl"] for row in rows)
    assert all(row["sequence"] == -1 for row in rows if row["isControl"])
    data = [row for row in rows if not row["isControl"]]
    assert {(row["isTransactional"], row["producerId"] >= 0) for row in data} == {(True, True), (False, True)}
    first = data[0]
    assert (first["sequence"], first["batchOffset"], first["position"]) == (0, 0, 0)
    assert first["segment"].endswith(".log")


def test_polars_and_duckdb(examples):
    expected = sum(1 for _ in pylogseg.read(examples, "codec-zstd-0"))
    reader = pylogseg.read(examples, "codec-zstd-0")
    assert polars.from_arrow(pa.table(reader)).height == expected
    assert polars.DataFrame(pylogseg.read(examples, "codec-zstd-0", columns=["offset", "value"])).shape == (expected, 2)
    stream = pylogseg.read_arrow(examples, "codec-zstd-0")  # noqa: F841  (duckdb finds it by its name)
    assert duckdb.sql('select count(*), max("offset") from stream').limit(1).fetchall()[0][0] == expected


def test_a_damaged_batch_ends_the_stream_with_the_error(examples, tmp_path):
    data = bytearray(sorted((examples / "codec-none-1").glob("*.log"))[0].read_bytes())
    data[80] ^= 1
    (tmp_path / "00000000000000000000.log").write_bytes(bytes(data))
    with pytest.raises(pylogseg.CorruptionError, match="CRC mismatch"):
        pylogseg.read_arrow(tmp_path / "00000000000000000000.log").read_all()


def test_nothing_to_read(examples):
    table = pylogseg.read_arrow(examples, "txn-a-0", offset=10**9).read_all()
    assert (table.num_rows, table.schema) == (0, arrow.schema())


def test_a_reader_as_a_data_frame(examples):
    pytest.importorskip("pandas")
    reader = pylogseg.read(examples, "codec-zstd-0", limit=5)
    assert reader.to_pandas().equals(pylogseg.read_arrow(examples, "codec-zstd-0", limit=5).read_all().to_pandas())
    assert list(reader.to_pandas()["offset"]) == [record.offset for record in reader]


def test_read_arrow_takes_what_read_takes() -> None:
    """The short forms hand the keywords of `read` on: all but one, which is of memory that Arrow does not use."""
    own, keywords = inspect.signature(pylogseg.read).parameters, ReadKeywords.__annotations__
    shared = inspect.signature(pylogseg.read_arrow).parameters
    assert {*own} == {*keywords, "path", "topic", "partition", "offset", "timestamp", "limit", "reuse_buffers"}
    for name in {*own} & {*shared}:
        assert own[name] == shared[name], name
    for name, values in {"isolation_level": IsolationLevel, "on_corrupt": OnCorrupt}.items():
        assert options_of(Reading)[name][1].words == get_args(values)
    assert {*ReadingKeywords.__annotations__} == {*options_of(Reading)}
