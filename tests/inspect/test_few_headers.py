"""Tests of format/batch_head.py, inspect/stats/few_headers.py, inspect/stats/listing.py and
inspect/stats/listing_windows.py. The list of a disk without numpy: the rows that windows of batches give, also where
something is odd.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.depth import some_of

import pylogseg
from pylogseg.disk.disk import Partition
from pylogseg.inspect.stats import few_headers
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listing import PartitionRow
from pylogseg.inspect.stats.listing_windows import windows_row


def shown(row: PartitionRow) -> tuple[object, ...]:
    return (*vars(row).values(), str(row.error))


def rows_of(folder: Path) -> Iterator[tuple[Partition, tuple[object, ...], tuple[object, ...]]]:
    for partition in pylogseg.open_dir(folder).partitions:
        by_headers, by_windows = shown(partition_row(partition)), shown(windows_row(partition))
        # Two errors of one file are not equal, but say the same.
        yield partition, *((*row[:4], *row[5:]) for row in (by_headers, by_windows))


def test_real_logs(golden: Path, examples: Path) -> None:
    folders = {path.parent for path in golden.rglob("*.log")}
    seen = 0
    for folder in [*sorted(folders), examples]:
        if folder != examples and not all(
            len(path.stem) == 20 and path.stem.isdigit() for path in folder.glob("*.log")
        ):
            continue  # single files of other tests
        for partition, by_headers, by_windows in rows_of(folder):
            assert by_headers == by_windows, partition.path
            seen += 1
    assert seen > 50


def test_the_examples_need_no_windows(examples: Path) -> None:
    for partition in pylogseg.open_dir(examples).partitions:
        few_headers._ends(partition.segments)
    command = "import sys; from pylogseg.cli import shell; shell(['ls', sys.argv[1]], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{command}; print('numpy' in sys.modules, file=sys.stderr)", str(examples)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr.split() == ["False"]


@pytest.mark.parametrize("seed", some_of(range(12), 3))
def test_damage(examples: Path, tmp_path: Path, seed: int) -> None:
    """Bytes that differ, files that end too soon or have room for more, indexes of others, missing files."""
    chance = random.Random(seed)
    folder = shutil.copytree(examples, tmp_path / "d")
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".log", ".index", ".timeindex"))
    whole = {path: path.read_bytes() for path in files}
    for path in files:
        data = bytearray(whole[path])
        how = chance.randrange(8)
        if how == 0:
            for _ in range(chance.randrange(1, 4) if data else 0):
                most = chance.choice([len(data), min(70, len(data))])
                data[chance.randrange(most)] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[chance.randrange(len(data) + 1) :]
        elif how == 2:
            data += bytes(chance.choice([1, 8, 12, 61, 5000]))
        elif how == 3 and path.suffix != ".log":
            data = bytearray(whole[chance.choice([each for each in files if each.suffix == path.suffix])])
        elif how == 4 and chance.randrange(4) == 0:
            path.unlink()
            continue
        path.write_bytes(data)
    for partition, by_headers, by_windows in rows_of(folder):
        assert by_headers == by_windows, (seed, partition.path)


def test_names_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{7:020d}.log").touch()
    (tmp_path / "t-1").mkdir()
    (tmp_path / "t-1" / f"{7:020d}.index").touch()
    for _, by_headers, by_windows in rows_of(tmp_path):
        assert by_headers == by_windows
