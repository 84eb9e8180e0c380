"""Tests of spark/moments.py. Damaged logs and values at the ends of their types on Spark: a sample of the sweeps in
plain Python.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.depth import some_of
from helpers.extreme_times import TIMES, held, write_log
from helpers.extreme_values import CASES, SCHEMA_IDS, write_records, write_topics
from helpers.harmed_batches import RANGES, files_of, harms, put
from helpers.harmed_batches import write_log as write_batches
from helpers.spark_logs import needs_sources
from helpers.ways_of_reading import by_records

import pylogseg
import pylogseg.spark
from pylogseg.spark import jobs

pytestmark = needs_sources


def load(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("pylogseg").options(**options).load(str(path))


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_damaged_log_has_the_rows_of_python_or_is_an_error(spark: Any, tmp_path: Path, on_corrupt: str) -> None:
    files = files_of(write_batches(tmp_path / "sound" / "t-0"))
    for number, harm in enumerate(some_of(harms(files), 3)):
        offsets = RANGES[number % len(RANGES)]
        folder = put(harm.files, tmp_path / "log" / "t-0")
        whole = by_records(folder, offsets, on_corrupt)
        bounds = {"startingOffsets": offsets[0], "endingOffsets": offsets[1]}
        options = {name: f'{{"t":{{"0":{bound}}}}}' for name, bound in bounds.items() if bound is not None}
        rows = load(
            spark, folder.parent, columns="offset,key,value", onCorrupt=on_corrupt, rangeBytes="2000", **options
        )
        if whole.rows is None:
            with pytest.raises(Exception, match="orrupt"):
                rows.collect()
        else:
            found = [(row.offset, bytes(row.key), bytes(row.value)) for row in rows.orderBy("offset").collect()]
            assert found == whole.rows, harm.name


def test_far_times_are_null_and_named(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Listings ended with an overflow."""
    log = write_log(tmp_path / "log" / "orders-0")
    rows = load(spark, log)
    micros = rows.orderBy("offset").selectExpr("unix_micros(timestamp) as us").collect()
    assert [row.us for row in micros] == [held(time) for time in TIMES]
    logging.getLogger("pylogseg.spark").addHandler(caplog.handler)
    try:
        (row,) = jobs.stats(spark, log).collect()
    finally:
        logging.getLogger("pylogseg.spark").removeHandler(caplog.handler)
    assert row.largestTimestamp is None
    assert "largestTimestamp, 9223372036854775807 ms, is of no year from 1 to 9999" in caplog.text
    assert pylogseg.spark.segments(spark, log).count() == 1


def test_names_of_headers_are_restored(spark: Any, tmp_path: Path) -> None:
    log = write_records(tmp_path / "log")
    rows = load(spark, log, includeHeaders="true").orderBy("partition", "offset").coalesce(1)
    rows.write.format("pylogseg").mode("append").save(str(tmp_path / "out"))
    for folder in sorted(log.iterdir()):
        records = [[(r.offset, r.key, r.value, r.headers) for r in pylogseg.read(path)]
                   for path in (folder, tmp_path / "out" / folder.name)]  # fmt: skip
        assert records[0] == records[1]


@pytest.mark.parametrize("topic", CASES)
def test_values_are_those_of_python(spark: Any, tmp_path: Path, topic: str) -> None:
    """In what Spark has for their types; what does not decode has its reason."""
    log = write_topics(tmp_path / "log")
    schema = str(SCHEMA_IDS[topic])
    options = {"subscribe": topic, "decoding": "value", "registry": str(log / "schemas"), "schema": schema}
    rows = load(spark, log, **options).orderBy("offset").selectExpr("to_json(value) as text", "valueError").collect()
    how: Any = {"decoding": "value", "registry": log / "schemas", "schema": SCHEMA_IDS[topic]}
    table: pa.Table = pylogseg.read_arrow(log, topic, **how).read_all()
    assert [row.valueError for row in rows] == table.column("valueError").to_pylist()
    assert [row.text is None for row in rows] == [case.text is None for case in CASES[topic]]
    for row, case in zip(rows, CASES[topic], strict=True):
        if case.text is not None and case.field in ("id", "u", "f", "w", "s", "d38"):
            assert f'"{case.field}":{case.text}' in row.text
