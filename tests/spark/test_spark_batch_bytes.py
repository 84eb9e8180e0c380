"""Tests of reading/arrow/sizes.py, spark/frames.py, spark/source.py and spark/stream.py. Arrow batches of tasks are
bounded in bytes, whichever way rows leave a task, and whatever they compress to.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.typed_logs import write_orders

import pylogseg
from pylogseg.reading.arrow.batches import decoder
from pylogseg.reading.arrow.sizes import BATCH_BYTES
from pylogseg.spark import frames, jobs
from pylogseg.spark.options import parse
from pylogseg.spark.source import PylogsegSource
from pylogseg.spark.stream import SegmentStreamReader

Door = Callable[[Path, dict[str, str]], Iterator[pa.RecordBatch]]


def _of_tasks(spark: Any, tasks: Any, work: Any, schema: Any) -> Iterator[pa.RecordBatch]:
    """Do in this process what `map_tasks` has Spark do."""
    return (batch for task in tasks for batch in work(task))


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frames, jobs):
        monkeypatch.setattr(module, "map_tasks", _of_tasks)
        monkeypatch.setattr(module._compat, "cores_of", lambda spark: 1)


def source(path: Path, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    made = PylogsegSource({"path": str(path), **options})
    reader = made.reader(made.schema())
    return (batch for part in reader.partitions() for batch in reader.read(part))


def stream(path: Path, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    made = PylogsegSource({"path": str(path), "startingOffsets": "earliest", **options})
    reader = made.streamReader(made.schema())
    assert isinstance(reader, SegmentStreamReader)
    begin, end = reader.initialOffset(), reader.latestOffset()
    return (batch for part in reader.partitions(begin, end) for batch in reader.read(part))


def read_segments(path: Path, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = frames.read_segments(None, path, **options)
    return found


def grep(path: Path, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = jobs.grep(None, path, b"", **options)
    return found


def decoding(path: Path, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    more = {"decoding": "value", "registry": str(path / "schemas"), "schema": "7"}
    return source(path, {**options, **more})


DOORS: list[Door] = [source, stream, read_segments, grep, decoding]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small records in many batches, some with large values and one whose value is larger than a batch may be."""
    root = write_orders(tmp_path_factory.mktemp("bytes") / "data", 1_000)
    with pylogseg.open_log(root / "orders-0") as log:
        values = [b"what?" + bytes(size) for size in [9_000] * 30 + [400_000] + [10] * 300]
        log.append(pa.table({"value": pa.array(values, pa.binary())}), batch_bytes=1 << 20)
    return root


def rows(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.mark.parametrize("size", ["3k", "20k", "1m"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_batch_has_no_more_bytes(data: Path, door: Door, size: str) -> None:
    options, most = {"subscribe": "orders"}, parse({"batchBytes": size}).batch_bytes
    whole = list(door(data, options))
    found = list(door(data, {**options, "batchBytes": size}))
    assert rows(found) == rows(whole)
    assert all(batch.nbytes <= most or batch.num_rows == 1 for batch in found)
    assert size == "1m" or max(batch.nbytes for batch in whole) > most
    # Not cut to shreds either: no two neighbours would be one batch that is small enough to be merged.
    sizes = [batch.nbytes for batch in found]
    assert not any(a + b < most // 4 for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("records", [1, 15])
def test_decode_batches_bounds_them_too(records: int) -> None:
    """Raw batches that become a hundred times as large."""
    values = pa.array([bytes(1_500_000 + number) for number in range(records)], pa.binary())
    raw = pylogseg.encode(pa.table({"value": values}), compression="zstd", batch_bytes=1)
    table = pa.record_batch({"value": pa.array([bytes(raw)] * 4, pa.binary())})
    found = list(decoder()(iter([table])))
    assert max(batch.nbytes for batch in found) <= BATCH_BYTES
    assert sum(batch.num_rows for batch in found) == 4 * records


_TASK = """
import re, sys
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task
options = parse({"path": sys.argv[1]})
(task,) = plan([sys.argv[1]], options, cores=2)
print(sum(batch.num_rows for batch in read_task(task, options, ("offset", "value"))))
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux: /proc/self/status")
def test_a_worker_needs_little_memory_for_what_compresses_well(tmp_path: Path) -> None:
    """Values of 100 kB that zstd makes 30 times smaller, in one segment without indexes: one task."""
    random, count = np.random.default_rng(1), 4_000
    name = tmp_path / "big-0" / "00000000000000000000.log"
    name.parent.mkdir()
    with name.open("wb") as file:
        for first in range(0, count, 200):
            values = pa.array([(random.bytes(3_300) * 31)[:100_000] for _ in range(200)], pa.binary())
            table = pa.table({"offset": pa.array(range(first, first + 200)), "value": values})
            file.write(pylogseg.encode(table, compression="zstd", batch_bytes=1 << 20, leader_epoch=0))
    done = subprocess.run([sys.executable, "-c", _TASK, tmp_path], capture_output=True, text=True, check=True)
    found, most_kb = map(int, done.stdout.split())
    assert found == count
    assert most_kb >> 10 < 512
