"""Tests of reading/scan.py. A reader as a stream of Arrow, decoded ahead by several threads: the rows of one thread, in
order; bounded memory.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.checks import begun_since

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.reading import scan as scanning

COUNT, TASK_BYTES = 20_000, 64 << 10
COLUMNS = ["partition", "offset", "timestamp", "key", "value"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("streams")
    for partition in range(2):
        settings: Any = {"segment_bytes": 1 << 20, "index_interval_bytes": 4096, "retention_ms": -1}
        with pylogseg.open_log(root / f"orders-{partition}", **settings) as opened:
            for first in range(0, COUNT, 50):
                opened.append([(1000 * n, b"%d" % (n % 7), b"%d " % n * 40) for n in range(first, first + 50)])
    return root


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "TASK_BYTES", TASK_BYTES)


def stream(path: Path, **how: Any) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(pylogseg.read(path, columns=COLUMNS, **how))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"offset": (77, 19_901)},
        {"limit": 12_345},
        {"limit": 0},
        {"timestamp": (3_000_000, 5_000_000)},
        {"filter": (pc.field("key") == b"3") & (pc.field("offset") > 1000)},
        {"isolation_level": "read_committed", "check_crc": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("jobs", [2, 3, None])
def test_the_rows_of_one_thread(log: Path, small_tasks: None, how: Any, jobs: int | None) -> None:
    alone = stream(log, **how).read_all()
    assert stream(log, jobs=jobs, **how).read_all().equals(alone)
    whole = pylogseg.read(log, columns=COLUMNS, jobs=jobs, **how)
    assert sum(len(chunk.columns) for chunk in whole.chunks()) == alone.num_rows
    assert pa.table(whole).equals(pa.table(whole)), "each stream begins anew"


def test_memory_is_bounded_by_tasks(log: Path, small_tasks: None) -> None:
    size = sum(file.stat().st_size for file in log.glob("*/*.log"))
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for batch in stream(log, jobs=3):
        time.sleep(0.001)  # the threads are ahead as far as they may
        most, count = max(most, pa.total_allocated_bytes() - before), count + batch.num_rows
    assert count == 2 * COUNT
    assert most < 3 * (2 * 3 + 2) * TASK_BYTES < size / 5


def test_threads_begin_after_the_first_task_and_end_with_the_stream(log: Path, small_tasks: None) -> None:
    before = threading.enumerate()
    reader = stream(log, jobs=3)
    reader.read_next_batch()
    assert not begun_since(before)
    while not begun_since(before):
        reader.read_next_batch()
    assert len(begun_since(before)) <= 2, "the caller's thread is one of the three"
    del reader
    assert not begun_since(before)


def test_damage_is_the_callers_choice(log: Path, small_tasks: None, tmp_path: Path) -> None:
    for file in (log / "orders-0").iterdir():
        if file.is_file():
            (tmp_path / "orders-0").mkdir(exist_ok=True)
            (tmp_path / "orders-0" / file.name).write_bytes(file.read_bytes())
    damaged = max((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(damaged.read_bytes())
    batches = pylogseg.scan(data).batches
    data[int(batches.position[len(batches) // 2]) + 100] ^= 0xFF
    damaged.write_bytes(data)
    with pytest.raises(pa.ArrowException, match="CRC mismatch"):  # as the interface of C hands errors on
        stream(tmp_path, jobs=3).read_all()
    for on_corrupt in ("skip", "stop"):
        alone = pylogseg.read(tmp_path, columns=COLUMNS, on_corrupt=on_corrupt)
        ahead = pylogseg.read(tmp_path, columns=COLUMNS, on_corrupt=on_corrupt, jobs=3)
        for _ in range(2):  # gaps are those of the last stream
            assert pa.table(ahead).equals(pa.table(alone))
            assert ahead.gaps == alone.gaps
            assert len(ahead.gaps) == 1


def test_what_it_refuses(log: Path) -> None:
    with pytest.raises(RequestError, match="jobs must be 1 or more, or None for one per processor, not 0"):
        pylogseg.read(log, jobs=0)
    with pytest.raises(RequestError, match="jobs= and latest= cannot be combined"):
        pylogseg.read(log, jobs=2, latest=True)
