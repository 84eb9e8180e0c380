"""Tests of spark/executor.py. Tables of lakehouses that runs of Spark and of threads write in turn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import lake_tables
from helpers.lake_tables import log_rows, name_of, plain, rows_of
from helpers.typed_logs import append_later_orders, write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse.lake import LakeTable
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


def test_a_stream_is_the_clock_of_a_table(spark: Any, tmp_path: Path) -> None:
    """Each batch brings the table up to date, whatever the shell wrote in between and whatever Spark knows of it."""
    data, table = write_orders(tmp_path / "data", 100), name_of("delta", tmp_path / "out", "orders")
    how = {"decoding": "value", "registry": data / "schemas", "schema": 7}
    done: list[LakeTable] = []
    write = jobs.lake_batches(data, table, "orders", on_done=done.append, **how)

    clock = spark.readStream.format("text").load(str(data / "schemas"))
    query = clock.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert (done[-1].records, done[-1].dead_letters) == (99, 1)
    append_later_orders(data, 20)
    write(spark.range(1), 1)
    append_later_orders(data, 20)
    assert pylogseg.lake(data, table, **how)[0].records == 20
    write(spark.range(1), 1)
    assert [each.records for each in done] == [99, 20, 0]
    lake_tables.check(data, table)
    assert pylogseg.audit(data, table).is_right


def test_what_a_batch_cannot_write_ends_the_query(spark: Any, tmp_path: Path, caplog: Any) -> None:
    data = write_orders(tmp_path / "data", 100)
    how = {"decoding": "value", "registry": data / "schemas"}
    with pytest.raises(RequestError, match="expected delta:FOLDER"):
        jobs.lake_batches(data, "orders", "orders")(spark.range(1), 0)
    jobs.lake_batches(data, name_of("delta", tmp_path / "out", "orders"), "orders", **how)(spark.range(1), 0)
    assert "1 records do not decode" in caplog.text


def test_the_shell_follows_on_spark(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, table = write_orders(tmp_path / "data", 100), name_of("delta", tmp_path / "out", "orders")
    rounds = []

    def later(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        append_later_orders(data, 10)

    # The module's own name for it: other threads of the process sleep, too, and one of them took the interrupt.
    monkeypatch.setattr("pylogseg.cli.lake.time", SimpleNamespace(sleep=later))
    command("lake", data, "orders", table, "--follow", "--every", "7s")
    assert rounds == [7.0] * 3
    assert plain(rows_of(table)) == log_rows(data, "orders")
    assert len(rows_of(table)) == 120


def test_rows_that_spark_wrote_are_those_of_the_log(spark: Any, golden: Path, tmp_path: Path) -> None:
    data = golden / "broker-4.3" / "txn" / "data0"
    done = jobs.lake(spark, data, name_of("delta", tmp_path / "out", "{topic}")).collect()
    for row in done:
        assert plain(rows_of(row.table)) == log_rows(data, row.topic)
    assert sum(row.records for row in done) > 0
