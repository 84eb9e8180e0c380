"""Tests of reading/ranges.py. A log that is wrong, read in all ways: they have the same rows, or each of them says that
it is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP, some_of
from helpers.harmed_batches import RANGES, RECORDS, WIDTH, Files, Harm, files_of, harms, put, write_log
from helpers.ways_of_reading import Offsets, Result, by_records, use_small_pieces, ways

import pylogseg

PARTS = 8
WINDOWS = (0, 400, 700, 1500)
Case = tuple[Harm, Offsets, bool]


@pytest.fixture(scope="module", params=["producer", "zstd"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return files_of(write_log(tmp_path_factory.mktemp("sound") / "t-0", request.param))


def cases(files: Files, part: int) -> Iterator[Case]:
    """Yield harms with ranges of offsets, of files with indexes and without: in a deep run all of them together."""
    for number, harm in list(enumerate(some_of(harms(files), 72)))[part::PARTS]:
        for offsets in RANGES if IS_DEEP else (RANGES[number // PARTS % len(RANGES)],):
            for has_index in (True, False) if IS_DEEP else (number % 3 > 0,):
                yield harm, offsets, has_index


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_ways_agree(
    sound: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_corrupt: str, part: int
) -> None:
    """Ranges, threads, columns, mapped files, tasks of tables and parts of commands have the rows of one reading."""
    folder, wrong = tmp_path / "t-0", []
    truth = by_records(put(sound, folder), (None, None), "raise").rows
    assert truth is not None
    use_small_pieces(monkeypatch, WINDOWS[part % len(WINDOWS)])
    for harm, offsets, has_index in cases(sound, part):
        put({name: data for name, data in harm.files.items() if has_index or name.endswith(".log")}, folder)
        whole = by_records(folder, offsets, on_corrupt)
        label = f"{harm.name}, {offsets}, {'with' if has_index else 'without'} index"
        wrong += [f"{label}: {text}" for text in false(whole, harm, truth, offsets, on_corrupt)]
        for way in ways(folder, offsets, on_corrupt):
            result = way.read()
            if result != whole.of(*way.columns):
                wrong.append(f"{label}: {way.name}: {told(result)}, and in one go {told(whole)}")
    assert not wrong, "\n".join(wrong)


def told(result: Result) -> str:
    rows = "an error" if result.rows is None else f"{len(result.rows)} rows"
    return f"{rows}{', with a loss' if result.has_loss else ''}"


def false(result: Result, harm: Harm, truth: list[tuple[object, ...]], offsets: Offsets, on_corrupt: str) -> list[str]:
    """Return what is wrong with a result, by what was in the log."""
    first, end = (0 if offsets[0] is None else offsets[0]), (len(truth) if offsets[1] is None else offsets[1])
    want = truth[first:end]
    if result.rows is None or harm.is_hidden or result.rows == want:
        return []
    if on_corrupt == "raise":
        return [f"{len(result.rows)} of {len(want)} rows, and no error"]
    odd = [row for row in result.rows if row not in want]
    return [] if result.has_loss and not odd else [f"{told(result)}, of another log {odd}"]


@pytest.mark.parametrize("name", ["000.log, batch 6: last offset delta 15", "130.log, batch 1: last offset delta 400"])
def test_a_batch_that_claims_more_offsets_than_it_has_costs_itself_alone(
    sound: Files, tmp_path: Path, name: str
) -> None:
    """Its check sum is right; the batches behind it contradict it."""
    (harm,) = (harm for harm in harms(sound) if harm.name == name)
    reader = pylogseg.read(put(harm.files, tmp_path / "t-0"), on_corrupt="skip")
    lost = set(range(RECORDS)) - {record.offset for record in reader}
    (gap,) = reader.gaps
    assert lost == set(range(gap.first_offset, gap.next_offset or 0))
    assert len(lost) == WIDTH
    assert "is too high" in gap.reason
