"""Tables of lakehouses that runs of Spark and of threads write in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import lake_tables
from helpers.lake_tables import log_rows, name_of, plain, rows_of
from helpers.typed_logs import append_later_orders, write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.spark import jobs

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_runs_of_threads_and_of_spark_go_on_after_each_other(spark: Any, tmp_path: Path, kind: str) -> None:
    data, table = write_orders(tmp_path / "data", 300), name_of(kind, tmp_path / "out", "orders")
    how = {"decoding": "value", "registry": data / "schemas", "schema": 7}
    assert pylogseg.lake(data, table, **how)[0].records == 297
    append_later_orders(data, 200)
    (row,) = jobs.lake(spark, data, table, "orders", commit_bytes=2_000, file_bytes=1_000, **how).collect()
    assert (row.topic, row.records, row.deadLetters, row.commits > 1) == ("orders", 200, 0, True)
    assert [each.asDict() for each in row.partitions] == [
        {"partition": 0, "firstOffset": 0, "nextOffset": 500, "waiting": 0}
    ]
    assert jobs.lake(spark, data, table, **how).first().commits == 0
    append_later_orders(data, 10)
    assert pylogseg.lake(data, table, **how)[0].records == 10
    lake_tables.check(data, table)
    assert pylogseg.audit(data, table).is_right
    append_later_orders(data, 1)
    with pytest.raises(RequestError, match="on Spark"):
        jobs.lake(spark, data, f"{table}_latest", latest=True)
    with pytest.raises(RequestError, match="and rows have binary"):
        jobs.lake(spark, data, table)


def test_rows_that_spark_wrote_are_those_of_the_log(spark: Any, golden: Path, tmp_path: Path) -> None:
    data = golden / "broker-4.3" / "txn" / "data0"
    done = jobs.lake(spark, data, name_of("delta", tmp_path / "out", "{topic}")).collect()
    for row in done:
        assert plain(rows_of(row.table)) == log_rows(data, row.topic)
    assert sum(row.records for row in done) > 0
