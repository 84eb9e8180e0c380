"""Tests of cli/repair.py and offline/repairing/command.py. Tests of offline/repairing/command.py: `repair` counts each
offset that is gone, and no other.
"""

import random
import shutil
from pathlib import Path

import pytest

import pylogseg
from pylogseg import offline
from pylogseg.format.batches import scan

SEGMENT_BYTES = 500


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of one partition in four segments, closed in order."""
    folder = tmp_path_factory.mktemp("intact") / "disk"
    with pylogseg.open_log(folder / "orders-0", segment_bytes=SEGMENT_BYTES) as log:
        for number in range(12):
            log.append([(None, b"key", b"value of some length") for _ in range(1 + number % 3)])
    return folder


def offsets_of(folder: Path) -> set[int]:
    return {record.offset for record in pylogseg.read(folder)}


def damage(folder: Path, chance: random.Random) -> None:
    """Change one to three bytes of batches, most of them in headers."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        path = chance.choice(sorted(folder.glob("orders-0/*.log")))
        data = bytearray(path.read_bytes())
        row = chance.choice(scan(path.read_bytes()).batches.rows)
        at = int(row["position"]) + chance.randrange(61 if chance.random() < 0.7 else int(row["size"]))
        data[at] = chance.choice((0, 255, data[at] ^ 1 << chance.randrange(8)))
        path.write_bytes(data)


@pytest.mark.parametrize("keep_behind", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_counts_are_what_is_gone(intact: Path, tmp_path: Path, seed: int, keep_behind: bool) -> None:
    folder = shutil.copytree(intact, tmp_path / "disk")
    damage(folder, random.Random(seed))
    (result,) = offline.repair(folder, keep_behind=keep_behind)
    assert result.state in ("done", "unchanged"), result.reason
    gone = offsets_of(intact) - offsets_of(folder)
    assert result.numbers["offsetsMissing"] == len(gone), (result.rows, [str(each) for each in result.report.actions])
