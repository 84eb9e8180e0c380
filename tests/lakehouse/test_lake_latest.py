"""Tests of lakehouse/latest.py. Tables with the latest record of each key (`latest=True`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import lake_tables
from helpers.depth import IS_DEEP
from helpers.lake_tables import latest_rows, name_of, plain, rows_of
from helpers.shell import pylogseg as shell
from helpers.typed_logs import write_keyed_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.sinks import sink_of

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


def test_rows_are_the_latest_of_each_key(tmp_path: Path, kind: str) -> None:
    """After each of some runs: keys that change, come and go, in two partitions, over days; none without a key."""
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    before = 0
    for seed in range(5):
        write_keyed_orders(data, 150, seed)
        (done,) = pylogseg.lake(data, table, latest=True, commit_bytes=3_000 if seed % 2 else 1 << 20)
        rows = plain(rows_of(table))
        assert rows == latest_rows(data)
        assert len(rows) == before + done.records - done.replaced
        assert done.replaced > 0 or seed == 0
        before = len(rows)
    assert pylogseg.lake(data, table, latest=True)[0].commits == 0
    assert lake_tables.only_live(kind, table)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_polars_finds_the_rows_that_the_library_finds(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    """And duckdb does: ``python tests/soak lake-readers``."""
    pl = pytest.importorskip("polars")
    folder = tmp_path_factory.mktemp("plain")  # polars finds no Delta table in a folder whose name a URL escapes
    data, table = folder / "data", name_of(kind, folder / "out", "orders")
    for seed in range(2):
        write_keyed_orders(data, 100, seed)
        pylogseg.lake(data, table, latest=True)
    theirs = lake_tables.catalog_of(folder / "out").load_table(("kafka", "orders")) if kind == "iceberg" else None
    scan = pl.scan_delta(table.removeprefix("delta:")) if theirs is None else pl.scan_iceberg(theirs)
    columns = ["partition", "offset", "key", "value"]
    found = scan.select(columns).sort("partition", "offset").collect().rows()
    assert found == [tuple(row[name] for name in columns) for row in latest_rows(data)]


def test_what_does_not_decode_leaves_the_table_too(tmp_path: Path, kind: str) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    how = {"decoding": "value", "registry": data / "schemas", "latest": True}
    for seed in range(3):
        write_keyed_orders(data, 100, seed, typed=True)
        pylogseg.lake(data, table, **how)
    newest = latest_rows(data)
    dead = {(row["partition"], row["offset"]) for row in rows_of(f"{table}~dlq").to_pylist()}
    good = [row for row in newest if row["value"] != b"what?"]
    assert len(good) < len(newest)
    assert {(row["partition"], row["offset"]) for row in newest if row["value"] == b"what?"} <= dead
    assert [row["offset"] for row in plain(rows_of(table))] == [row["offset"] for row in good]


def test_an_audit_of_one_is_refused(tmp_path: Path, kind: str) -> None:
    """It would call each record lost that another one replaced."""
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    for seed in range(2):
        write_keyed_orders(data, 20, seed)
        pylogseg.lake(data, table, latest=True)
        pylogseg.lake(data, f"{table}_all")
    done = shell("audit", data, table)
    assert (done.code, "lake keeps only the latest record of each key in it" in done.err) == (2, True), done.err
    assert shell("audit", data, f"{table}_all").code == 0


def test_two_kinds_of_tables_and_typed_keys_are_refused(tmp_path: Path, kind: str) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_keyed_orders(data, 20, 1)
    pylogseg.lake(data, table, latest=True)
    with pytest.raises(RequestError, match="it has the latest record of each key, and all records are asked for"):
        pylogseg.lake(data, table)
    pylogseg.lake(data, f"{table}_all")
    with pytest.raises(RequestError, match="it has all records, and the latest record of each key are asked for"):
        pylogseg.lake(data, f"{table}_all", latest=True)
    with pytest.raises(RequestError, match="decode only the value"):
        pylogseg.lake(data, table, latest=True, decoding=["key", "value"])
    done = shell("lake", data, table, "--latest", "--key-as", "schema")
    assert (done.code, "decode only the value" in done.err) == (2, True)


def test_another_run_that_comes_first_wins(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    sink = type(sink_of(TableName.parse(table)))
    real = sink.commit

    def late(self: Any, *given: Any) -> None:
        monkeypatch.setattr(sink, "commit", real)
        assert pylogseg.lake(data, table, latest=True)[0].records > 0
        real(self, *given)

    for seed in range(2):
        write_keyed_orders(data, 100, seed)
        monkeypatch.setattr(sink, "commit", late)
        assert pylogseg.lake(data, table, latest=True)[0].records == 0
        assert plain(rows_of(table)) == latest_rows(data)


def test_a_compaction_in_between_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that another engine has replaced meanwhile are not brought back."""
    from deltalake import DeltaTable

    data, table = tmp_path / "data", name_of("delta", tmp_path / "out", "orders")
    for seed in range(2):
        write_keyed_orders(data, 100, seed)
        pylogseg.lake(data, table, latest=True)
    write_keyed_orders(data, 100, 2)
    sink = type(sink_of(TableName.parse(table)))
    real = sink.commit

    def late(self: Any, *given: Any) -> None:
        monkeypatch.setattr(sink, "commit", real)
        DeltaTable(table.removeprefix("delta:")).optimize.compact()
        real(self, *given)

    monkeypatch.setattr(sink, "commit", late)
    pylogseg.lake(data, table, latest=True)
    assert plain(rows_of(table)) == latest_rows(data)


def test_a_run_that_is_killed_anywhere_is_ended_by_the_next(tmp_path: Path, kind: str) -> None:
    data, places, count = tmp_path / "data", 50 if IS_DEEP else 3, 150 if IS_DEEP else 40
    write_keyed_orders(data, count, 1)
    write_keyed_orders(data, count, 2)
    words = [kind, data, tmp_path / "out" / "tables", "latest", places]
    done = subprocess.run(
        [sys.executable, lake_tables.__file__, *map(str, words)], capture_output=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])},
    )  # fmt: skip
    assert (done.returncode, f"{places} of" in done.stdout) == (0, True), done.stderr[-3000:]
