"""Tests of lakehouse/delta.py and lakehouse/stores.py. Tables whose files are objects of a store. A real store with
kills: ``python tests/soak lake-store``.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from deltalake import DeltaTable
from helpers.lake_tables import latest_rows, log_rows, plain
from helpers.shell import pylogseg as shell
from helpers.typed_logs import append_later_orders, write_keyed_orders, write_orders

import pylogseg
from pylogseg.errors import RequestError, StorageError
from pylogseg.lakehouse.delta import DeltaSink

pytest.importorskip("pyiceberg")


def rows_at(url: str) -> list[dict[str, object]]:
    found = DeltaTable(url).to_pyarrow_table()
    return plain(found.sort_by([("partition", "ascending"), ("offset", "ascending")]))


def test_a_table_of_delta_by_its_url(tmp_path: Path) -> None:
    """Files go where deltalake puts them, and are found there again; what killed runs left is removed."""
    data, url = write_orders(tmp_path / "data", 100), (tmp_path / "out" / "orders").as_uri()
    (tmp_path / "out" / "orders").mkdir(parents=True)
    for count in (0, 50):
        append_later_orders(data, count)
        (done,) = pylogseg.lake(data, f"delta:{url}", commit_bytes=1_000, file_bytes=500)
        assert done.commits > (count > 0)
        assert rows_at(url) == log_rows(data, "orders")
    (file, *_) = (tmp_path / "out" / "orders").glob("date=*/*.parquet")
    left = file.with_name(f"{file.name.partition('.')[0]}.0.{0:020d}.{'0' * 32}-000000.parquet")
    left.write_bytes(b"a killed run")
    (done,) = pylogseg.lake(data, f"delta:{url}", clean=True)
    assert [Path(each).name for each in done.removed] == [left.name]
    assert rows_at(url) == log_rows(data, "orders")
    assert pylogseg.audit(data, str(tmp_path / "out" / "orders")).is_right


def test_the_latest_records_and_dead_letters(tmp_path: Path) -> None:
    for name in ("latest", "typed", "typed~dlq"):
        (tmp_path / name).mkdir()
    for seed in range(2):
        write_keyed_orders(tmp_path / "keyed", 100, seed)
        pylogseg.lake(tmp_path / "keyed", f"delta:{(tmp_path / 'latest').as_uri()}", latest=True)
    assert rows_at((tmp_path / "latest").as_uri()) == latest_rows(tmp_path / "keyed")
    data = write_orders(tmp_path / "data", 200)
    how = {"decoding": "value", "registry": data / "schemas"}
    (done,) = pylogseg.lake(data, f"delta:{(tmp_path / 'typed').as_uri()}", **how)
    assert (done.records, done.dead_letters) == (198, 2)


def test_a_store_goes_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    store = DeltaSink(tmp_path.as_uri(), {}).store
    assert list(pickle.loads(pickle.dumps(store)).walk("")) == ["file"]
    with pytest.raises(StorageError, match=r"file://.*: none.* open"):
        store.open_file("none")


def test_options_and_places_that_do_not_go_together(tmp_path: Path) -> None:
    data = write_orders(tmp_path / "data", 10)
    with pytest.raises(RequestError, match="in an object store there may be Delta"):
        pylogseg.lake(data, "iceberg:s3://lake/kafka.orders")
    with pytest.raises(RequestError, match="in an object store there may be Delta"):
        pylogseg.lake(data, "ducklake:s3://lake/file/orders")
    with pytest.raises(RequestError, match=r"options are for the store of Delta .* the catalog of iceberg:"):
        pylogseg.lake(data, f"iceberg:{tmp_path}/out/kafka.orders", table_options={"uri": "x"})
    done = shell("lake", data, "delta:s3://lake/orders", "--table-option", "uri")
    assert (done.code, "invalid option 'uri': expected KEY=VALUE" in done.err) == (2, True)
