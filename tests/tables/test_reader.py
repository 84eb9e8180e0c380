"""Tests of tables/explaining.py, tables/reader.py, tables/short_forms.py and tables/sql/connection.py. The reader: each
exit gives the same records, narrower questions leave the first one as it is, a plan says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.typed_logs import bad, write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.tables.reader import Reader

OFFSET, ID = pc.field("offset"), pc.field("value", "id")


def keys(reader: Reader) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in reader]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True))


QUESTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "offsets": {"offset": (5, 60)},
    "from the end": {"offset": -7},
    "times": {"timestamp": (1_700_000_000_000, 1_700_000_040_000)},
    "a filter": {"filter": (OFFSET > 40) & (OFFSET < 90)},
    "committed": {"isolation_level": "read_committed"},
    "control records": {"control": True},
    "a filter and times": {"filter": OFFSET > 40, "timestamp": (1_700_000_000_000, None)},
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_exit_gives_the_same_records(examples: Path, question: str) -> None:
    reader = pylogseg.read(examples, ["txn-*", "codec-none", "legacy"], **QUESTIONS[question])
    records = keys(reader)
    assert records
    exits = {
        "chunks": [(c.topic, c.partition, offset) for c in reader.chunks() for offset in c.columns.offset.tolist()],
        "batches": rows(reader.batches().read_all()),
        "to_arrow": rows(reader.to_arrow()),
        "to_pandas": [*reader.to_pandas()[["topic", "partition", "offset"]].itertuples(index=False, name=None)],
        "to_polars": reader.to_polars().select("topic", "partition", "offset").rows(),
        "lazy": reader.lazy().select("topic", "partition", "offset").collect().rows(),
        "dataset": rows(reader.dataset().to_table()),
        "to_duckdb": reader.to_duckdb("log").sql('select topic, partition, "offset" from log').fetchall(),
        "stream": rows(pa.table(reader)),
    }
    for name, found in exits.items():
        assert [(topic, number, offset) for topic, number, offset in found] == records, name
    assert reader.count() == len(records)
    assert sum(part.end_offset - part.first_offset for task in reader.plan() for part in task) >= len(records)


def test_latest_and_a_limit(examples: Path) -> None:
    reader = pylogseg.read(examples, "cmp-short-0", latest=True)
    assert reader.count() == len(keys(reader)) == reader.to_arrow().num_rows > 0
    some = reader.limit(5)
    assert keys(some) == keys(reader)[:5] == rows(some.to_arrow())
    assert some.count() == some.limit(9).count() == 5
    for refused in (reader, some, pylogseg.read(examples, limit=3)):
        with pytest.raises(RequestError, match=r"use batches\(\)"):
            refused.dataset()
    with pytest.raises(RequestError, match="limit must not be negative"):
        reader.limit(-1)


def test_a_narrower_question_is_a_new_one(examples: Path) -> None:
    whole = pylogseg.read(examples)
    before = whole.count()
    narrow = whole.where(topic="txn-a").where(offset=(10, 20)).where(OFFSET != 12).where(OFFSET != 13)
    narrow = narrow.where(partition=0).select("offset", "value")
    assert [record.offset for record in narrow] == [10, 11, *range(14, 18)]
    assert narrow.to_arrow().column_names == ["offset", "value"]
    assert all(record.key is None for record in narrow)
    assert whole.count() == before
    assert whole.columns is None
    for wrong, text in (({"topic": "none"}, "none"), ({"partition": 77}, "77"), ({"offset": (9, 3)}, "ends before")):
        with pytest.raises(RequestError, match=text):
            whole.where(**wrong)
    with pytest.raises(RequestError, match="no column"):
        whole.where(pc.field("nothing") == 1)
    with pytest.raises(RequestError, match="nothing"):
        whole.select("nothing")
    with pytest.raises(RequestError, match="no column"):
        whole.select()


def test_a_filter_on_columns_that_are_not_selected(examples: Path) -> None:
    whole = pylogseg.read(examples, "txn-a").where(pc.field("value") == b"committed")
    expected = [(record.partition, record.offset) for record in whole]
    assert 0 < len(expected) < 129
    reader = whole.select("partition", "offset")
    exits = {
        "records": [(record.partition, record.offset) for record in reader],
        "to_arrow": list(zip(*(column.to_pylist() for column in reader.to_arrow().columns), strict=True)),
        "dataset": list(zip(*(column.to_pylist() for column in reader.dataset().to_table().columns), strict=True)),
        "lazy": reader.lazy().collect().rows(),
        "to_duckdb": reader.to_duckdb("log").sql("from log").fetchall(),
    }
    for name, found in exits.items():
        assert found == expected, name
    assert reader.count() == reader.dataset().count_rows() == len(expected)
    assert reader.select("offset").where(OFFSET >= 100).where(pc.field("partition") == 0).count() == sum(
        offset >= 100 for number, offset in expected if number == 0
    )


def test_ranges_only_become_narrower(examples: Path) -> None:
    reader = pylogseg.read(examples, "codec-none-1", offset=(100, 200))
    assert [r.offset for r in reader.where(offset=(150, 300))] == list(range(150, 200))
    assert [r.offset for r in reader.where(offset=120).where(offset=(None, 123))] == [120, 121, 122]
    assert keys(reader.where(offset=(300, 400))) == []
    with pytest.raises(RequestError, match="counts from the end"):
        reader.where(offset=-3)
    times = [record.timestamp for record in reader]
    middle = sorted(times)[50]
    since = reader.where(timestamp=(middle, None))
    assert sorted(r.timestamp for r in since) == sorted(time for time in times if time >= middle)
    assert keys(since.where(timestamp=(None, middle))) == []
    assert keys(since.where(timestamp=(0, None))) == keys(since)


def test_each_reader_has_gaps_of_its_own(damaged: Path) -> None:
    reader = pylogseg.read(damaged, on_corrupt="skip")
    other = reader.select("offset")
    assert keys(reader)
    assert len(reader.gaps) == 1
    assert other.gaps == []
    assert other.to_arrow().num_rows
    assert other.gaps == reader.gaps


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    batches = [bytes(pylogseg.encode([(1, b"k", b"v" * 50)], base_offset=i)) for i in range(5)]
    spoilt = bytearray(batches[2])
    spoilt[-1] ^= 255
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join([*batches[:2], bytes(spoilt), *batches[3:]]))
    return folder


def test_decoded(tmp_path: Path) -> None:
    root = write_orders(tmp_path, 40)
    orders = pylogseg.read(root, "orders").decode(registry=root / "schemas")
    whole = orders.to_arrow().to_pylist()
    assert [record.offset for record in orders] == [row["offset"] for row in whole]
    for record, row in zip(orders, whole, strict=True):
        assert record.value == (row["value"] if row["valueRaw"] is None else row["valueRaw"])
    assert sum(isinstance(record.value, bytes) for record in orders) == sum(map(bad, range(40)))
    one = orders.where(ID == 7)
    assert [record.offset for record in one] == one.to_arrow().column("offset").to_pylist() == [7]
    assert one.to_polars().rows() == one.lazy().select(one.to_polars().columns).collect().rows()
    assert one.count() == 1
    assert orders.to_duckdb("orders").sql("select count(*) from orders where value.id = 7").fetchall() == [(1,)]
    skipped = pylogseg.read(root, "orders").decode(registry=root / "schemas", on_undecoded="skip")
    assert len(keys(skipped)) == 40 - sum(map(bad, range(40)))
    with pytest.raises(RequestError, match="views"):
        orders.batches(views=True)


def test_a_quiet_hour_has_the_columns_of_others(tmp_path: Path) -> None:
    root = write_orders(tmp_path, 5)
    orders = pylogseg.read(root, "orders").decode(registry=root / "schemas")
    quiet = orders.where(timestamp=(2**42, None))
    assert quiet.to_arrow() == orders.to_arrow().slice(0, 0)
    assert quiet.lazy().collect().is_empty()


def test_a_plan_says_why(examples: Path) -> None:
    reader = pylogseg.read(examples, "txn-a", offset=(0, 100))
    reasons = {row.path.rsplit("/", 1)[1]: row.reason for row in reader.explain().segments if row.partition == 0}
    assert list(reasons.values()) == ["", "", "", "no offset of the range"]
    filtered = reader.where(OFFSET > 50).explain()
    assert filtered.segments[0].reason == "the filter leaves out the segment"
    assert [row.reason for row in filtered.segments if row.partition == 1] == ["the filter leaves out the segment"]
    late = reader.where(timestamp=(2**42, None)).explain()
    assert {row.reason for row in late.segments} <= {"no offset of the range", "no timestamp of the range"}
    assert late.read_bytes == 0
    behind = pylogseg.read(examples, "txn-a", offset=(10**6, None)).explain()
    assert {row.reason for row in behind.segments} == {"no offset of the range"}
    other = reader.where(pc.field("partition") == 1).explain()
    assert "the filter leaves out the partition" in {row.reason for row in other.segments}
    assert str(other).splitlines()[-1] == other.summary


def test_a_log_that_this_program_writes(tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "own-0") as log:
        log.append([(1, b"k", b"v")] * 5)
        reader = log.read()
        assert reader.count() == reader.to_arrow().num_rows == len(reader.to_polars()) == 5
        for exit in (reader.dataset, reader.plan, reader.explain, reader.lazy, reader.decode):
            with pytest.raises(RequestError, match="this program writes"):
                exit()


def test_a_connection_of_the_users(examples: Path) -> None:
    connection = duckdb.connect()
    connection.execute("create table own as select 1 as a")
    assert pylogseg.read(examples, "txn-a").to_duckdb("log", connection) is connection
    assert connection.sql("select count(*) from log, own").fetchall() == [(129,)]
    assert isinstance(pylogseg.read(examples, "txn-a").to_polars(), polars.DataFrame)
