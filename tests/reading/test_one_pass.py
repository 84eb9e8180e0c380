"""Tests of reading/partition.py. A range of a segment is decoded once, whatever lies before and behind it in its
windows; damage there is found.
"""

import numpy as np
import pytest
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg.errors import CorruptionError
from pylogseg.format.files.index import OffsetIndex
from pylogseg.reading import partition as module

BATCH, COUNT = 10, 1000


@pytest.fixture
def log(tmp_path):
    with pylogseg.open_log(tmp_path / "orders-0", index_interval_bytes=1) as log:
        for first in range(0, COUNT, BATCH):
            log.append([(n, b"k", b"%d" % n) for n in range(first, first + BATCH)])
    return tmp_path / "orders-0"


@pytest.fixture
def twice(monkeypatch):
    """What is decoded in a second pass: record numbers."""
    found = []
    real = module.decode_slices

    def noted(batches, *arguments, **options):
        found.extend(batches.base_offset.tolist())
        return real(batches, *arguments, **options)

    monkeypatch.setattr(module, "decode_slices", noted)
    return found


@pytest.mark.parametrize(
    "offsets", [(0, 10), (0, 500), (500, 510), (505, 735), (990, 1000), (999, 1000), (0, 1000), (500, 501)]
)
@pytest.mark.parametrize("has_index", [True, False])
def test_once(log, twice, offsets, has_index):
    if not has_index:
        next(log.glob("*.index")).unlink()
    found = [record.offset for record in pylogseg.read(log, offset=offsets)]
    assert found == list(range(*offsets))
    assert twice == []


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_length_that_swallows_the_range(log, on_corrupt):
    """The batch before a range is checked: if it is damaged, the next one may lie in its bytes."""
    path = next(log.glob("*.log"))
    index = OffsetIndex(next(log.glob("*.index")).read_bytes(), 0)
    row = int(np.searchsorted(index.offsets, 509))
    position, third = int(index.positions[row]), int(index.positions[row + 2])
    data = bytearray(path.read_bytes())
    data[position + 8 : position + 12] = (third - position - 12).to_bytes(4, "big")
    path.write_bytes(data)
    reader = pylogseg.read(log, offset=(510, 530), on_corrupt=on_corrupt)
    assert [record.offset for record in reader] == list(range(510, 530))


@pytest.mark.parametrize("row", [49, 51, 53, 54])
def test_a_check_sum_that_does_not_hold(log, row):
    """Damage counts inside of the range and only there."""
    path = next(log.glob("*.log"))
    positions = [0, *OffsetIndex(next(log.glob("*.index")).read_bytes(), 0).positions.tolist()]
    change_byte(path, positions[row + 1] - 1)
    reader = pylogseg.read(log, offset=(500, 540))
    if row in (51, 53):
        with pytest.raises(CorruptionError):
            list(reader)
    else:
        assert [record.offset for record in reader] == list(range(500, 540))
