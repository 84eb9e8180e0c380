"""Tests of tables/sql/typed.py. Typed columns in `pylogseg sql`: the tables of topics by the schemas of a registry."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import duckdb_version
from helpers.shell import Done, expect, pylogseg
from helpers.typed_logs import bad, write_orders

import pylogseg as package

pytest.importorskip("duckdb")

COUNT = 1500


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("typed"), COUNT)


def asked(path: Path, query: str, *options: object, code: int = 0) -> Done:
    done = expect(pylogseg("sql", path, query, "--output", "json", "--value-as", "schema", *options), code)
    return done


def ours(root: Path, query: str, *options: object, code: int = 0) -> list[dict[str, Any]]:
    return asked(root, query, "--registry", root / "schemas", *options, code=code).rows


def test_the_rows_of_read_arrow(shop: Path) -> None:
    done = asked(shop, "select partition, offset, value.id as id, valueError as why from orders", code=1)
    table = package.read_arrow(shop, "orders", decoding="value").read_all()
    expected = [
        (row["partition"], row["offset"], row["value"] and row["value"]["id"], row["valueError"])
        for row in table.to_pylist()
    ]
    assert [tuple(row.values()) for row in done.rows] == expected
    assert done.err == "pylogseg: 8 payloads could not be decoded\n"


def test_nested_and_every_type(shop: Path) -> None:
    done = asked(shop, "select value from types")
    assert len(done.rows) == 8
    assert done.rows[0]["value"]["fx"] == "base64:" + base64.b64encode(b"\0\0\xff").decode()
    lines = asked(shop, "select unnest(value.lines).sku as sku from orders where partition = 1").rows
    assert lines
    assert all(row["sku"].startswith("sku") for row in lines if row["sku"])


def test_pruned(root: Path) -> None:
    query = "select value.id from orders where value.state = 'SENT' and value.id between 1 and 99 and offset < 100"
    (row,) = asked(root, query, "--registry", root / "schemas", "--explain").rows
    assert row["segments"] < row["allSegments"]
    # Before 2.0 duckdb asks for what only the filter needs, too.
    assert row["columns"] == (["value"] if duckdb_version() >= 2 else ["offset", "value"])
    assert "value.id" in row["filter"]
    found = ours(root, query, code=1)  # 13 is read, and does not decode
    assert [row["id"] for row in found] == [n for n in range(1, 100) if n % 2 and not bad(n)]
    # Behind a filter on the log alone nothing else is decoded.
    assert ours(root, "select value.id as id from orders where offset in (20, 30)") == [{"id": 20}, {"id": 30}]


def test_wide_decimals_are_numbers(root: Path) -> None:
    assert ours(root, "select value.much as much from orders where offset between 2 and 3") == [
        {"much": None},
        {"much": 0.03},
    ]


def test_what_does_not_decode(root: Path) -> None:
    count = sum(map(bad, range(COUNT)))
    raw = ours(
        root, "select count(*) as n, min(valueRaw::varchar) as raw from orders where valueError is not null", code=1
    )
    assert raw == [{"n": count, "raw": "what?"}]
    assert ours(root, "select count(*) as n from orders", "--on-undecoded", "skip", code=1) == [{"n": COUNT - count}]
    done = asked(
        root, "select max(value.id) from orders", "--on-undecoded", "raise", "--registry", root / "schemas", code=1
    )
    assert "orders-0, the value of offset 13" in done.err
    assert "--on-undecoded raw keeps" in done.err


def test_a_limit_asks_for_no_more(root: Path) -> None:
    """What does not decode counts where it may be among the rows that were asked for."""
    assert len(ours(root, "select value.id from orders limit 1")) == 1
    assert len(ours(root, "select value.id from orders limit 13")) == 13
    assert len(ours(root, "select value.id from orders limit 14", code=1)) == 14  # 13 is among them
    assert len(ours(root, "select * from (select value from orders where offset > 13) limit 3")) == 3
    assert ours(root, "select value.id as id from orders where value.id = 150 limit 1") == [{"id": 150}]
    bad_ones = ours(root, "select valueError from orders where valueError is not null limit 2", code=1)
    assert len(bad_ones) == 2
    for more in ("limit 1 offset 20", "order by offset limit 1"):  # for these more was read, or all
        assert len(ours(root, f"select value.id from orders {more}", code=1)) == 1
    assert ours(root, "select count(value.id) as n from orders limit 1", code=1) == [
        {"n": COUNT - sum(map(bad, range(COUNT)))}
    ]


def test_schemas(shop: Path, root: Path) -> None:
    done = asked(shop, "select count(*) as n from customers where value.name is not null", "--key-as", "schema")
    assert "the keys of customers stay bytes: no schema is known for customers-key: give --schema" in done.err
    assert done.rows[0]["n"] > 0
    assert asked(shop, "select * from __cluster_metadata limit 1").err == ""
    old = asked(shop, "select count(value.x) as n from old", "--schema", "old-value:1")
    assert old.rows == [{"n": 3}]
    assert asked(shop, "from old", "--schema", "nobody-value", code=2).err.count("there is no schema") == 1
    assert pylogseg("sql", shop, "from old", "--schema", "13").code == 2
    assert pylogseg("sql", root, "from orders", "--on-undecoded", "skip").code == 2
    # Without a word, values are bytes; `records` has those of all topics, and stays so.
    assert asked(shop, "select value::varchar as v from records where topic = 'old' limit 1").rows[0]["v"]
