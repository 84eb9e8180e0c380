"""Tests of tables/dataset.py and values/roles.py. Typed columns in a dataset: the rows of `read_arrow`, whatever is
pruned, filtered before or after, or sent away.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.typed_logs import ORDER, bad, write_orders

import pylogseg
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.tables import dataset as classes
from pylogseg.values.decoding import Decoding

COUNT = 3000
COLUMNS = ["partition", "offset", "value", "valueRaw", "valueError"]
ID, OFFSET = pc.field("value", "id"), pc.field("offset")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("typed")
    write_orders(root, COUNT)
    return write_orders(root, 100, 1)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "TASK_BYTES", 5_000)
    monkeypatch.setattr(classes, "ALONE_BYTES", 20_000)
    monkeypatch.setattr(classes, "FRAGMENT_BYTES", 20_000)
    monkeypatch.setattr(classes, "processors", lambda: 3)


def orders(root: Path, **how: Any) -> Any:
    return pylogseg.dataset(root, "orders", decoding="value", registry=root / "schemas", **how)


def expected(root: Path, columns: list[str], **how: Any) -> pa.Table:
    names = [name for name in columns if name not in ("valueRaw", "valueError")]
    return pylogseg.read_arrow(
        root, "orders", decoding="value", registry=root / "schemas", columns=names, **how
    ).read_all()


def test_rows_and_types(root: Path) -> None:
    table = expected(root, COLUMNS)
    found = orders(root)
    assert found.to_table(columns=COLUMNS).equals(table)
    assert found.undecoded == sum(map(bad, range(COUNT))) + 1
    assert found.schema.field("value").type == table.schema.field("value").type
    assert found.schema.names.index("valueError") == found.schema.names.index("value") + 2
    one = orders(root, columns=["value", "offset"])
    assert one.schema.names == ["value", "valueRaw", "valueError", "offset"]
    assert one.head(3).num_rows == 3


@pytest.mark.parametrize(
    "filter",
    [
        OFFSET == 1999,
        (OFFSET >= 10) & (OFFSET < 20),
        ID == 2500,
        (ID > 100) & (ID < 1300) & (pc.field("partition") == 0),
        pc.field("value", "who").is_null(),
        pc.field("valueError").is_valid(),
        pc.field("value").is_null() & (pc.field("timestamp") < pa.scalar(10**9, pa.timestamp("us", "UTC"))),
        pc.field("value", "state").isin(["SENT"]) | (OFFSET < 3),
    ],
    ids=str,
)
def test_filters(root: Path, filter: Any) -> None:
    whole = expected(root, [*COLUMNS, "timestamp"]).filter(filter)
    assert 0 < whole.num_rows < COUNT
    for columns in (COLUMNS, ["offset"], ["valueError", "value"]):
        assert orders(root).to_table(columns=columns, filter=filter).equals(whole.select(columns))
    assert orders(root).count_rows(filter) == whole.num_rows
    fragments = orders(root).get_fragments(filter)
    parts = [pickle.loads(pickle.dumps(part)).to_table(columns=COLUMNS, filter=filter) for part in fragments]
    assert pa.concat_tables(parts).equals(whole.select(COLUMNS))


@pytest.mark.parametrize("jobs", [1, 3])
def test_filters_of_read_arrow(root: Path, jobs: int) -> None:
    """They are about the typed columns, and threads decode."""
    columns = ["offset", "value", "valueRaw", "valueError"]
    whole = expected(root, columns)
    for filter in (None, ID == 2500, (ID > 5) & (OFFSET < 50), pc.field("valueError").is_valid()):
        found = expected(root, columns, filter=filter, jobs=jobs)
        assert found.equals(whole if filter is None else whole.filter(filter))
    assert expected(root, ["value"], filter=OFFSET == 20, jobs=jobs, limit=1).num_rows == 1


def test_only_what_is_left_is_decoded(root: Path) -> None:
    """A filter on the log leaves out segments; values are decoded behind it."""
    found = orders(root, on_undecoded="raise")
    some = (OFFSET >= 14) & (OFFSET < 100) & (pc.field("partition") == 0)  # 13 and 113 do not decode
    assert found.to_table(columns=["value"], filter=some).num_rows == 86
    assert found.planned(some & (ID > 5)).segments < found.planned().segments
    with pytest.raises(CorruptionError, match=r"orders-0, the value of offset 13"):
        found.to_table(columns=["value"])
    assert found.to_table(columns=["offset"]).num_rows == COUNT + 100  # nothing is decoded for it


def test_skip_is_the_same_for_all_columns(root: Path) -> None:
    found, good = orders(root, on_undecoded="skip"), COUNT + 100 - 31
    assert found.count_rows() == good
    for columns in (["offset"], ["value"], []):
        assert found.to_table(columns=columns).num_rows == good
    assert found.count_rows(OFFSET == 13) == 0
    assert "valueError" not in found.schema.names


def test_pickled(root: Path) -> None:
    found = orders(root)
    again = pickle.loads(pickle.dumps(found))
    assert again.to_table(columns=COLUMNS).equals(found.to_table(columns=COLUMNS))


def test_choices(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(str(ORDER).replace("'", '"').replace("None", "null"))
    by_file = pylogseg.dataset(root, "orders-1", decoding=Decoding(schema=file))
    assert by_file.to_table(columns=["value"]).num_rows == 100
    for wrong in (
        {"schema": 7},
        {"on_undecoded": "skip"},
        {"decoding": "value", "of": "segments"},
        {"decoding": "offset"},
    ):
        with pytest.raises(RequestError):
            pylogseg.dataset(root, "orders", **wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="no schema is known for orders-value"):
        pylogseg.dataset(root, "orders", decoding="value")


def test_engines(root: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    table = expected(root, COLUMNS)
    sure = table.filter((ID > 200) & (pc.field("value", "state").isin(["NEW"])))
    narrow = pylogseg.dataset(
        root, "orders", decoding=Decoding(registry=root / "schemas"), columns=["partition", "offset", "value"]
    )
    assert narrow.schema.field("value").type.field("much").type == pa.decimal256(50, 2)
    frame = pylogseg.scan_polars(root, "orders", decoding="value", registry=root / "schemas")
    value = polars.col("value").struct
    found = frame.filter((value.field("id") > 200) & (value.field("state") == "NEW")).select("offset").collect()
    assert found["offset"].to_list() == sure["offset"].to_pylist()
    slim = {**ORDER, "fields": ORDER["fields"][:2]}  # type: ignore[index]
    text = str(slim).replace("'", '"')
    here = pylogseg.dataset(root, "orders", decoding="value", registry=root / "schemas", schema=text)
    query = (
        "select count(*), sum(value.id), count(value.who) from here where value.id >= 1000 and value.who is not null"
    )
    whole = [row["value"] for row in table.to_pylist() if row["value"]]
    ids = [row["id"] for row in whole if row["id"] >= 1000 and row["who"] is not None]
    connection = duckdb.connect()
    connection.register("here", here)
    assert connection.sql(query).fetchall() == [(len(ids), sum(ids), len(ids))]
