"""Tests of env/executor.py, spark/executor.py and spark/worker.py. The shell on Spark: what each command says and
writes is what it says and writes with threads.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import hurt
from helpers.every_job import READING, WRITING, partitions, told, words, written
from helpers.foreign_tables import broken
from helpers.shell import Done
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg.env.executor import Advance, Workload
from pylogseg.spark.executor import SparkExecutor, cut_in_order


@pytest.fixture
def on_spark(command: Any) -> Any:
    def done(*given: object) -> Done:
        found = command(*given)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Done(found.exit_code, found.stdout_bytes, found.stderr)

    return done


@pytest.fixture
def places(examples: Path, tmp_path: Path) -> dict[str, Path]:
    whole = tmp_path / "whole"
    for name in ("codec-none-1", "codec-gzip-0", "txn-a-0", "txn-a-1", "timestamps-0"):
        shutil.copytree(examples / name, whole / name)
    table = broken(tmp_path / "table", whole)
    return {"DIR": hurt(whole, tmp_path / "damaged"), "OTHER": whole, "TABLE": table}


def test_what_reads(on_spark: Any, places: dict[str, Path]) -> None:
    for text in READING:
        given = words(text, **places)
        assert told(on_spark(*given)) == told(run(*given)), text


def test_what_writes(on_spark: Any, places: dict[str, Path], tmp_path: Path) -> None:
    for number, text in enumerate(WRITING):
        one, other = tmp_path / str(number) / "one" / "out", tmp_path / str(number) / "other" / "out"
        for each in (one, other):
            each.mkdir(parents=True)
        there, here = on_spark(*words(text, **places, OUT=one)), run(*words(text, **places, OUT=other))
        if "--into" in text:
            assert (there.code, partitions(there, one)) == (here.code, partitions(here, other)), text
        else:
            assert told(there, one) == told(here, other), text
        assert written(one) == written(other), text


def test_errors_come_back_as_they_were(spark: Any, tmp_path: Path) -> None:
    """Those of the package, in their place; one of the storage after another try."""

    def work(item: int, advance: Advance) -> int:
        if item == 2:
            raise pylogseg.CorruptionError("a.log", 7, "torn", 3)
        marker = tmp_path / str(item)
        if not marker.exists():
            marker.touch()
            raise pylogseg.StorageError(str(marker), "read", "it was away")
        return item * item

    found = SparkExecutor(spark).map(work, [0, 1, 2, 3])
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(pylogseg.CorruptionError) as caught:
        next(found)
    assert (caught.value.path, caught.value.position, caught.value.offset) == ("a.log", 7, 3)


def test_output_in_order_and_a_bar(spark: Any) -> None:
    """Large output comes in parts; the bar is full at the end or before."""

    def work(item: int, emit: Any, advance: Advance) -> int:
        for number in range(item):
            emit(b"%d-%d " % (item, number) + bytes(700_000))
        return item

    done: list[int] = []
    items = [3, 0, 5, 1]
    found = list(SparkExecutor(spark).stream(work, items, Workload(sizes=[100 << 20] * 4, on_bytes=done.append)))
    pieces = [each if isinstance(each, int) else each.split(b" ")[0].decode() for each in found]
    assert pieces == [each for item in items for each in [*(f"{item}-{n}" for n in range(item)), item]]
    assert sum(done) <= 400 << 20
    assert cut_in_order([], 4) == []
