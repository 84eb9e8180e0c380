"""Tests of lakehouse/iceberg.py and lakehouse/layouts.py. Tables with the columns of Redpanda's Iceberg topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake_tables import catalog_of, log_rows, plain
from helpers.shell import pylogseg as shell
from helpers.typed_logs import append_later_orders, write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse.layouts import nest_values

pytest.importorskip("pyiceberg")


def read(out: Path, name: str = "orders") -> pa.Table:
    """The rows of a table in the order of offsets, with the columns of the struct as columns."""
    return catalog_of(out).load_table(("kafka", name)).scan().to_arrow().flatten().sort_by("redpanda.offset")


def test_columns_and_partitions_are_redpandas(tmp_path: Path) -> None:
    """As `src/v/datalake/table_definition.h` of redpanda has them; `audit` takes the table for one of Redpanda's."""
    with pylogseg.open_log(tmp_path / "data" / "orders-0") as log:
        log.append(
            [(2_000_000 * n, b"%d" % n, None if n == 5 else b"v%d" % n, [("h", b"1")] * (n % 3)) for n in range(9)]
        )
    table = f"iceberg:{tmp_path}/out/kafka.orders"
    done = shell("lake", tmp_path / "data", table, "--layout", "redpanda", "--json")
    assert (done.code, done.rows[0]["files"]) == (0, 5), done.err
    theirs = catalog_of(tmp_path / "out").load_table(("kafka", "orders"))
    assert str(theirs.schema().as_struct()) == (
        "struct<1: redpanda: optional struct<3: partition: optional int, 4: offset: optional long, 5: timestamp: "
        "optional timestamptz, 6: headers: optional list<struct<10: key: optional string, 11: value: optional binary>>,"
        " 7: key: optional binary, 8: timestamp_type: optional int>, 2: value: optional binary>"
    )
    spec = theirs.spec().fields[0]
    assert (spec.name, str(spec.transform), spec.source_id) == ("redpanda.timestamp_hour", "hour", 5)
    rows = read(tmp_path / "out")
    renamed = {"redpanda.timestamp_type": "timestampType"}
    flat = rows.rename_columns([renamed.get(name, name.removeprefix("redpanda.")) for name in rows.column_names])
    expected = log_rows(tmp_path / "data", "orders")
    assert [{"topic": "orders", **row} for row in plain(flat)] == expected
    found = theirs.scan(row_filter="redpanda.timestamp >= '1970-01-01T02:00:00+00:00'").to_arrow()
    assert len(found) == sum(row["timestamp"] >= 7_200_000_000 for row in expected)
    audit = pylogseg.audit(tmp_path / "data", table, "orders")
    assert (audit.is_right, audit.partitions[0].present, audit.findings) == (True, 9, [])
    assert pylogseg.lake(tmp_path / "data", table, layout="redpanda")[0].commits == 0


@pytest.mark.parametrize("layout", ["flat", "redpanda"])
def test_decoded_values_are_compared_beside_dead_letters(tmp_path: Path, layout: Any) -> None:
    """In Redpanda's layout their fields are columns; new ones come with the commit of their rows."""
    data, table = write_orders(tmp_path / "data", 200), f"iceberg:{tmp_path}/out/kafka.orders"
    how = {"decoding": "value", "registry": data / "schemas"}
    pylogseg.lake(data, table, layout=layout, **how)
    append_later_orders(data, 20)
    (done,) = pylogseg.lake(data, table, layout=layout, schema=8, commit_bytes=1_000, **how)
    assert (done.records, done.dead_letters) == (20, 0)
    audit = pylogseg.audit(data, table, "orders", schema=8, **how)
    assert (audit.is_right, audit.partitions[0].present, audit.partitions[0].missing["deadLetters"]) == (True, 218, 2)
    if layout == "redpanda":
        values = pylogseg.read_arrow(data, "orders", schema=8, **how).read_all().column("value").drop_null().to_pylist()
        rows = read(tmp_path / "out").select(["id", "who", "note"]).to_pylist()
        assert rows == [{name: row[name] for name in ("id", "who", "note")} for row in values]
        dead = read(tmp_path / "out", "orders~dlq")
        assert dead.column("value").to_pylist() == [b"what?"] * 2
        assert dead.column_names[-1] == "error"


def test_a_killed_run_between_dead_letters_and_rows_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run finds the offsets of dead letters in the struct."""
    from pylogseg.lakehouse.iceberg import IcebergSink

    data, table = write_orders(tmp_path / "data", 200), f"iceberg:{tmp_path}/out/kafka.orders"
    how = {"decoding": "value", "registry": data / "schemas", "layout": "redpanda"}
    real = IcebergSink.commit

    def only_letters(self: Any, *given: Any) -> None:
        if not self.name.endswith("~dlq"):
            raise TimeoutError("killed")
        real(self, *given)

    monkeypatch.setattr(IcebergSink, "commit", only_letters)
    with pytest.raises(pylogseg.errors.StorageError, match="killed"):
        pylogseg.lake(data, table, **how)
    monkeypatch.setattr(IcebergSink, "commit", real)
    assert pylogseg.lake(data, table, **how)[0].records == 198
    offsets = [read(tmp_path / "out", name).column("redpanda.offset").to_pylist() for name in ("orders", "orders~dlq")]
    assert sorted(offsets[0] + offsets[1]) == list(range(200))


def test_what_does_not_go_with_the_layout_is_refused(tmp_path: Path) -> None:
    data, table = write_orders(tmp_path / "data", 20), f"iceberg:{tmp_path}/out/kafka.orders"
    with pytest.raises(RequestError, match="the layout redpanda is for tables of Iceberg"):
        pylogseg.lake(data, f"delta:{tmp_path}/delta", layout="redpanda")
    with pytest.raises(RequestError, match="the latest records need layout 'flat'"):
        pylogseg.lake(data, table, layout="redpanda", latest=True)
    with pytest.raises(RequestError, match="keys are bytes in the layout redpanda"):
        pylogseg.lake(data, table, layout="redpanda", decoding="key", registry=data / "schemas")
    with pytest.raises(RequestError, match="layout"):
        pylogseg.lake(data, table, layout="redpandas")
    pylogseg.lake(data, table)
    write_orders(data, 1)
    with pytest.raises(RequestError, match=r"not partitioned by hour of redpanda\.timestamp alone"):
        pylogseg.lake(data, table, layout="redpanda")
    rows = pa.RecordBatch.from_pylist([{"value": {"redpanda": 1}, **dict.fromkeys(
        ("partition", "offset", "timestamp", "headers", "key", "timestampType"), 1)}])  # fmt: skip
    with pytest.raises(RequestError, match="the value has a field redpanda"):
        nest_values(rows)
