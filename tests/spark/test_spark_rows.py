"""Tests of offline/restoring/rows.py, spark/restoring.py and spark/write_options.py. Rows of many partitions in one
task, without a JVM: who gets which row, in which order, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import RequestError
from pylogseg.offline.restoring import rows as module
from pylogseg.offline.restoring.rows import write_rows
from pylogseg.reading.arrow.functions import kafka_partition
from pylogseg.spark.write_options import check_row_columns, parse_write
from pylogseg.tables.short_forms import read_arrow
from pylogseg.transfer.staging import Staging

ASSIGN = {"offsets": "assign"}


def put(root: Path, tables: list[pa.RecordBatch], **options: Any) -> dict[str, list[Any]]:
    """The values of each partition that was written."""
    staging = Staging(str(root))
    staging.begin()
    staging.commit(write_rows(tables, staging, "0", parse_write({"path": str(root), **options})))
    got = read_arrow(str(root), columns=["topic", "partition", "value"]).read_all().to_pylist()
    found: dict[str, list[Any]] = {}
    for row in got:
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(int(row["value"]))
    return found


@given(rows=st.lists(st.tuples(st.sampled_from(["a", "b-c"]), st.integers(0, 3)), min_size=1, max_size=200))
def test_every_row_goes_to_its_partition_in_order(
    rows: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("rows")
    table = pa.RecordBatch.from_pydict({
        "topic": [topic for topic, _ in rows],
        "partition": pa.array([number for _, number in rows], pa.int32()),
        "value": [b"%d" % i for i in range(len(rows))],
        "other": [None] * len(rows),
    })  # fmt: skip
    expected: dict[str, list[int]] = {}
    for i, (topic, number) in enumerate(rows):
        expected.setdefault(f"{topic}-{number}", []).append(i)
    third = len(rows) // 3
    assert put(root, [table[:third], table[third:]], **ASSIGN) == expected


def test_partitions_of_keys(tmp_path: Path) -> None:
    keys = [b"k%d" % i if i % 5 else None for i in range(100)]
    given_numbers = [7 if i == 50 else None for i in range(100)]
    table = pa.RecordBatch.from_pydict({
        "key": keys,
        "value": [b"%d" % i for i in range(100)],
        "partition": pa.array(given_numbers, pa.int32()),
    })  # fmt: skip
    got = put(tmp_path, [table], topic="t", partitions=4, **ASSIGN)
    where = {value: name for name, values in got.items() for value in values}
    for i, number in enumerate(kafka_partition(pa.array(keys), 4).to_pylist()):
        if number is not None:
            assert where[i] == f"t-{number}"
    assert where[50] == "t-7"
    without_key = [sum(value % 5 == 0 and value != 50 for value in got[f"t-{n}"]) for n in range(4)]
    assert max(without_key) - min(without_key) <= 1


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITING_BYTES", 10_000)
    values = [b"%d" % i for i in range(5000)]
    numbers = pa.array(np.arange(5000) % 50, pa.int32())
    table = pa.RecordBatch.from_pydict({"value": values, "partition": numbers})
    tables = [table[i : i + 500] for i in range(0, 5000, 500)]
    got = put(tmp_path, tables, topic="t", **ASSIGN)
    assert {name: len(found) for name, found in got.items()} == {f"t-{n}": 100 for n in range(50)}
    assert all(found == sorted(found) for found in got.values())


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"topic": ["t", None]}, {}, "a topic is null"),
        ({"partition": pa.array([0, -3], pa.int32())}, {"topic": "t"}, "partition -3 is negative"),
        ({"partition": pa.array([0, None], pa.int32())}, {"topic": "t"}, "a partition is null"),
        ({"topic": ["t", "a/b"], "partition": pa.array([0, 0], pa.int32())}, {}, "a/b"),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, table: dict[str, Any], options: dict[str, Any], message: str) -> None:
    staging = Staging(str(tmp_path))
    staging.begin()
    rows = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], **table})
    with pytest.raises(RequestError, match=message):
        write_rows([rows], staging, "0", parse_write({"path": str(tmp_path), **ASSIGN, **options}))


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({}, "no path"),
        ({"path": "s3://bucket/x"}, "object stores do not have"),
        ({"path": "/x", "ofsets": "keep"}, "Did you mean 'offsets'"),
        ({"path": "/x", "foo": "1"}, "there are: topic, partitions"),
        ({"path": "/x", "segmentBytes": "1x"}, "segmentBytes='1x': must be a size"),
        ({"path": "/x", "topic": "a/b"}, "a/b"),
        ({"path": "/x", "topicIds": "[]"}, "must be JSON like"),
        ({"path": "/x", "partitions": "-1"}, "partitions='-1'"),
    ],
)
def test_options_that_are_refused(given_options: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_write(given_options)


def test_options() -> None:
    options = parse_write({"PATH": "file:///x", "SegmentBytes": "1m", "COMPRESSION": "ZSTD", "topicids": {"t": "i"}})
    assert (options.root, options.restore.segment_bytes, options.restore.compression) == ("/x", 1 << 20, "zstd")
    assert options.restore.topic_ids == {"t": "i"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"key": "binary"}, "no column value"),
        ({"value": "int"}, "column value must be binary or string, not int"),
        ({"value": "binary"}, "no topic"),
        ({"value": "binary", "topic": "string"}, "no partition"),
        ({"value": "binary", "topic": "string", "partition": "int"}, "no column offset to keep"),
    ],
)
def test_columns_that_are_missing(names: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        check_row_columns(names, parse_write({"path": "/x"}))
