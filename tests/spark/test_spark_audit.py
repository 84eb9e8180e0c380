"""Tests of spark/jobs.py. `jobs.audit`: the same lines as of threads, of a table with many partitions that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.foreign_tables import delta, records

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.spark import jobs

pytest.importorskip("deltalake")
pytestmark = pytest.mark.spark


def test_lines_are_those_of_threads(spark: Any, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    examples = request.config.rootpath / "examples" / "data"
    rows = records(examples)
    table = delta(tmp_path / "t", [rows.slice(3), rows.slice(100, 50), rows.slice(0, 3)])
    gone = sorted(table.glob("*.parquet"))[0]
    for quick in (False, True):
        expected = pylogseg.audit(examples, table, quick=quick)
        found = jobs.audit(spark, examples, str(table), quick=quick).collect()
        lines = [*expected.partitions, *expected.findings, expected]
        assert [json.loads(row.detail) for row in found] == [to_row(line) for line in lines]
        names = [each.name for each in expected.partitions]
        assert [row.name for row in found if row.type == "partition"] == names
        for row in found:
            detail = json.loads(row.detail)
            if row.type != "finding":
                assert (row.right, row.whole) == (detail["right"], detail["whole"])
                assert [row[name] for name in ("rows", "double", "missing")] == [
                    detail[name] for name in ("rows", "double", "missing")
                ]
    gone.write_bytes(b"PAR1 no more")
    (finding,) = jobs.audit(spark, examples, str(table)).filter("type = 'finding'").collect()
    assert (finding.right, finding.whole, finding.name) == (True, False, str(gone))
    with pytest.raises(RequestError, match="no such TABLE"):
        jobs.audit(spark, examples, str(tmp_path / "none"))


def test_tables_in_memory_travel(spark: Any, request: pytest.FixtureRequest) -> None:
    examples = request.config.rootpath / "examples" / "data"
    rows = records(examples, "codec-gzip")
    found = jobs.audit(spark, examples, pa.concat_tables([rows, rows.slice(0, 5)]), "codec-gzip")
    assert found.filter("not right").select("type", "double").collect() == [("partition", 5), ("summary", 5)]
