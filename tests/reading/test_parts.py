"""Tests of reading/log_reader.py, reading/logs.py and reading/ranges.py. Parts of a log that several threads read:
together, in any order, they have its records and its gaps, each once.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import pylogseg
from pylogseg.reading import removed_segments
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.reading.state import SKIPPING, Reading
from pylogseg.walker.gaps import Gap, GapKind, add_gaps

RECORDS = 1000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment of 200 batches, of which the index names every other one."""
    folder = tmp_path_factory.mktemp("parts") / "t-0"
    with pylogseg.open_log(folder, index_interval_bytes=500) as opened:
        for batch in range(RECORDS // 5):
            values = random.Random(batch).randbytes(200)
            opened.append([(1_000_000 + batch, b"k%d" % i, values[i * 40 : i * 40 + 40]) for i in range(5)])
    return folder


def harmed(data: bytes, draw: random.Random) -> bytes:
    """Damage in one place or several, from a bit to a run over many batches; bytes that are gone."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        at = draw.randrange(len(found))
        for place in range(at, min(len(found), at + draw.choice([1, 1, 8, 300, 3000]))):
            found[place] = draw.choice([0, draw.randrange(256)])
    if draw.random() < 0.2:
        at = draw.randrange(len(found))
        del found[at : at + draw.randrange(2000)]
    return bytes(found)


def read_by(parts: list[LogReader]) -> tuple[list[int], list[Gap]]:
    offsets = [offset for part in parts for chunk in part.chunks() for offset in chunk.columns.offset.tolist()]
    return offsets, [gap for part in parts for gap in part.gaps]


def test_parts_have_each_record_and_each_gap_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = log.glob("*.log")
    sound, shared = path.read_bytes(), 0
    monkeypatch.setattr("pylogseg.reading.state._log.disabled", True)
    for seed in range(12):
        draw = random.Random(seed)
        path.write_bytes(harmed(sound, draw))
        (files,) = logs_of(pylogseg.open_dir(log))
        first, end = draw.choice([0, 0, draw.randrange(RECORDS)]), draw.choice([2**63, 2**63, draw.randrange(RECORDS)])
        reader = LogReader(files, first, end, state=SKIPPING.start())
        whole = read_by(reader.parts())
        for target in (600, 3000, 20000):
            parts = reader.parts(target)
            assert sum(part.size for part in parts) <= files.segments[0].size
            backwards = [part.apart() for part in reversed(parts)]
            assert read_by(parts) == whole, (seed, target)
            read_by(backwards)
            assert [gap for part in reversed(backwards) for gap in part.gaps] == whole[1]
            alone = [replace(part, state=replace(part.state, gaps=[], continues=False)) for part in parts]
            shared += len(read_by(alone)[1]) > len(whole[1])
    path.write_bytes(sound)
    assert shared > 2, "no damage lies over a cut: nothing shows who reports it"


def test_a_segment_that_cannot_be_opened_is_said_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_segments, "_PAUSE_SECONDS", 0)
    (files,) = logs_of(pylogseg.open_dir(log))
    state = Reading(skip_unreadable=True).start()
    assert len(LogReader(files, 0, 2**63, state=state).parts(3000)) > 10
    segment = replace(files.segments[0], path=f"{files.path}/{7:020d}.log")
    reader = LogReader(files._replace(segments=[segment]), 0, 2**63, state=state)
    offsets, gaps = read_by(reader.parts(3000))
    noted: list[Gap] = []
    add_gaps(noted, random.Random(1).sample(gaps, len(gaps)))
    assert (offsets, noted) == ([], read_by([reader])[1])
    assert [gap.kind for gap in noted] == [GapKind.UNREADABLE]
