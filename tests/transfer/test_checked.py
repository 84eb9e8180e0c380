"""Tests of transfer/checked.py. Tests of transfer/checked.py: gaps are named in their places, and appends are cut where
a log can take them.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg.env.filesystem import FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable, joined_rows, scan
from pylogseg.transfer.checked import batches_of_runs, checked_windows, cut_pieces, good_end, piece_bytes, refuse_gap
from pylogseg.walker.gaps import Gap

BATCHES, RECORDS = 40, 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment of 40 batches with 5 records each."""
    with pylogseg.open_log(tmp_path / "t-0") as log:
        for number in range(BATCHES):
            log.append([(1000 + number, b"key", b"v" * number)] * RECORDS)
    return tmp_path / "t-0" / f"{0:020}.log"


def rows_of(path: Path) -> BatchTable:
    return scan(path.read_bytes()).batches


def opened(path: Path) -> FileView:
    return LocalFiles().open(str(path), sealed=True)


def harm(path: Path, row: int) -> int:
    """Change a byte of a batch; return its position."""
    position = int(rows_of(path).position[row])
    change_byte(path, position + 70)
    return position


def test_each_gap_is_named_between_the_windows_around_it(path: Path) -> None:
    first, second = harm(path, 3), harm(path, 20)
    places: list[int] = []

    def note(gap: Gap) -> None:
        places.append(-gap.position)

    with opened(path) as view:
        for window in checked_windows(view, 0, note, is_last=False):
            places += window.batches.position.tolist()
    assert [abs(place) for place in places] == rows_of(path).position.tolist()
    assert [place for place in places if place < 0] == [-first, -second]


def test_the_caller_ends_at_a_gap_or_refuses_it(path: Path) -> None:
    position = harm(path, 7)
    with opened(path) as view:
        windows = list(checked_windows(view, 0, lambda gap: True, is_last=False))
        with pytest.raises(CorruptionError, match=f"position {position}"):
            list(checked_windows(view, 0, refuse_gap, is_last=False))
    assert sum(len(window.batches) for window in windows) == 7


def test_the_good_end_is_behind_damage_and_before_a_torn_batch(path: Path) -> None:
    position, size = harm(path, 30), path.stat().st_size
    with open(path, "ab") as file:
        file.write(path.read_bytes()[:40])
    damage: list[Gap] = []
    with opened(path) as view:
        assert good_end(view, 0, damage.append) == (size, BATCHES * RECORDS)
    assert [gap.position for gap in damage] == [position]


def test_a_run_that_is_not_whole_any_more_is_an_error(path: Path) -> None:
    rows = rows_of(path)
    runs = [(int(rows.position[2]), int(rows.position[9])), (int(rows.position[30]), path.stat().st_size)]
    with opened(path) as view:
        kept = list(batches_of_runs(view, runs))
    data = path.read_bytes()
    assert b"".join(each.data for each in kept) == b"".join(data[start:end] for start, end in runs)
    assert np.array_equal(joined_rows([each.batches.rows for each in kept])["position"],
                          np.append(rows.position[2:9], rows.position[30:]))  # fmt: skip
    shorter = path.with_name("shorter.log")
    shutil.copy(path, shorter)
    with open(shorter, "r+b") as file:
        file.truncate(int(rows.position[35]) + 20)
    with opened(shorter) as view, pytest.raises(StorageError, match=f"position {rows.position[35]} "):
        list(batches_of_runs(view, runs))


@pytest.mark.parametrize("most_bytes", [1, 100, 1000, 1 << 20])
def test_pieces_are_all_batches_and_end_where_they_have_to(path: Path, most_bytes: int) -> None:
    rows, data = rows_of(path), path.read_bytes()
    rows.rows["attributes"][[4, 11]] |= 1 << 5  # markers
    rows.rows["last_offset"][25:] += 2**31
    rows.rows["base_offset"][25:] += 2**31
    chosen = BatchTable(np.delete(rows.rows, 17))
    pieces = list(cut_pieces(chosen, most_bytes))
    assert np.array_equal(joined_rows([piece.rows for piece in pieces]), chosen.rows)
    assert b"".join(piece_bytes(piece, data, 0) for piece in pieces) == b"".join(
        data[start : start + size] for start, size in zip(chosen.position, chosen.size, strict=True)
    )
    for piece, after in pairwise(pieces):
        assert not piece.is_control[:-1].any()
        assert int(piece.last_offset[-1]) - int(piece.base_offset[0]) < 2**31
        size = int(piece.size.sum())
        assert size <= most_bytes or len(piece) == 1
        is_cut = piece.is_control[-1] or piece.position[-1] + piece.size[-1] != after.position[0]
        is_far = int(after.last_offset[0]) - int(piece.base_offset[0]) >= 2**31
        assert is_cut or is_far or size + int(after.size[0]) > most_bytes
