"""Tests of reporting/commands.py, reporting/gather.py, reporting/scanning.py and reporting/series.py. What a report
says of segments with too many headers to read them all, and of times in bounded memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pylogseg
from pylogseg.format.columns import to_row
from pylogseg.reporting import gather
from pylogseg.reporting.commands import line
from pylogseg.reporting.series import DAY_MS, HOUR_MS, MOST_BUCKETS, SECOND_MS, STEPS_MS, Growth, Series

_START_MS = 1_700_000_000_000


@pytest.fixture
def many_batches(tmp_path: Path) -> Path:
    """A partition of two segments with thousands of batches of uneven sizes; the second one has every tenth record."""
    folder = tmp_path / "kafka" / "t-0"
    with pylogseg.open_log(folder, index_interval_bytes=512) as log:
        for part in range(2):
            for i in range(3000):
                value = b"v" * (20 + (i % 7) * 30)
                log.append([(_START_MS + (part * 3000 + i) * 1000, b"k%d" % (i % 50), value)])
            if not part:
                log.engine.roll()
    return folder


def test_sampled_headers(many_batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_LEAST_HEADERS", 100)
    monkeypatch.setattr(gather, "_MOST_HEADERS", 100)
    monkeypatch.setattr(gather, "_SAMPLED_BYTES", 1 << 14)
    monkeypatch.setattr(gather, "_LEAST_SAMPLED", 1 << 14)
    full = pylogseg.report(many_batches, full=True).facts
    found = pylogseg.report(many_batches).facts
    (part,), (whole,) = found.partitions, full.partitions
    assert found.scope.segments_with_some_headers == 2
    assert found.scope.headers < 2200  # of 6000
    assert part.read == "some"
    assert [each.read for each in part.segments] == ["some", "some"]
    # What indexes say is exact, what is counted is near.
    assert (part.log_end_offset, part.size) == (6000, whole.size)
    assert whole.records == 6000
    assert abs((part.records or 0) - 6000) < 300
    assert part.series.is_estimate
    assert abs(sum(part.series.bytes) - part.size) < part.size * 0.01
    near = np.interp(whole.series.starts, part.series.starts, np.cumsum(part.series.records))
    assert np.abs(near - np.cumsum(whole.series.records)).max() < 600
    # Nothing is claimed about offsets between the headers.
    assert part.missing is not None
    assert not part.missing.is_all
    assert (part.missing.markers, part.missing.not_explained) == (None, 0)
    assert part.sample is not None
    assert not part.sample.is_all
    assert part.sample.records < 1000
    assert found.damage == 0
    assert any("estimates" in each for each in found.scope.checked)
    assert any("unread headers in the middle of" in each for each in found.scope.not_checked)


def test_wrong_index_is_not_trusted(many_batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places come from the offset index; where no batch lies there, the segment is read by all its headers."""
    monkeypatch.setattr(gather, "_LEAST_HEADERS", 100)
    monkeypatch.setattr(gather, "_MOST_HEADERS", 100)
    for path in many_batches.glob("*.index"):
        data = bytearray(path.read_bytes())
        data[7::8] = bytes(byte ^ 1 for byte in data[7::8])  # of every position
        path.write_bytes(data)
    (part,) = pylogseg.report(many_batches).facts.partitions
    assert part.records == 6000
    assert {each.read for each in part.segments} <= {"headers", "all"}
    for path in many_batches.glob("*.index"):
        path.unlink()
    (part,) = pylogseg.report(many_batches).facts.partitions
    assert part.records == 6000


def test_times_are_bounded() -> None:
    times = Series()
    ones = np.ones(1000, np.int64)
    for day in range(400):
        times.add(_START_MS + day * DAY_MS + np.arange(1000) * SECOND_MS, ones, 2 * ones)
    assert len(times.starts) <= MOST_BUCKETS
    assert sum(times.records) == 400_000
    assert sum(times.bytes) == 800_000
    assert times.step_ms in STEPS_MS
    times.add(np.array([-1, -1]), np.array([3, 4]), np.array([0, 0]))
    assert times.untimed == 7


def test_times_merge() -> None:
    """In whatever order parts are merged, the buckets are the same."""
    rng = np.random.default_rng(7)
    parts = [_START_MS + rng.integers(0, 10 ** int(power), 500) for power in (3, 5, 8, 10)]
    ones = np.ones(500, np.int64)
    whole = Series()
    whole.add(np.concatenate(parts), np.ones(2000, np.int64), np.ones(2000, np.int64))
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        merged = Series()
        for number in order:
            one = Series()
            one.add(parts[number], ones, ones)
            merged.merge(one)
        assert to_row(merged) == to_row(whole)


def test_growth() -> None:
    now = _START_MS
    ages = np.array([0, 30 * 60_000, 2 * HOUR_MS, 2 * DAY_MS, 8 * DAY_MS, 100 * DAY_MS, -HOUR_MS])
    sizes = np.array([1, 10, 100, 1000, 10_000, 100_000, 7])
    grown = Growth(now)
    grown.add(now - ages, np.ones(7, np.int64), sizes)
    assert (grown.last_hour_bytes, grown.last_day_bytes, grown.last_week_bytes) == (11, 111, 1111)
    assert grown.bytes_per_day == round(1111 / 7, 1)
    assert sum(grown.hours.bytes) == 1111
    assert sum(grown.days.bytes) == 11_111
    # What is younger than a week grows by what is there.
    young = Growth(now)
    young.add(np.array([now - 2 * DAY_MS]), np.ones(1, np.int64), np.array([1000]))
    assert young.bytes_per_day == 500


def test_quoting() -> None:
    assert line("pylogseg", "ls", "/data/a b-0") == "pylogseg ls '/data/a b-0'"
    assert line("ls", "$(reboot)-0") == "ls '$(reboot)-0'"
    assert line("ls", "a\nb") == "ls $'a\\x0ab'"
    assert line("ls", "a\u202eb'") == "ls $'a\\xe2\\x80\\xaeb\\x27'"


def test_only_the_largest_are_sampled(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many partitions; the others are counted by their headers, and the verdict says what was read."""
    monkeypatch.setattr(gather, "MOST_SAMPLED", 2)
    found = pylogseg.report(examples).facts
    sampled = {each.name for each in found.partitions if each.sample is not None and each.magics == (2,)}
    assert sampled == {each.name for each in sorted(found.partitions, key=lambda each: -each.size)[:2]}
    assert found.partitions
    assert all(each.records is not None for each in found.partitions)
    decoded = sum(each.sample is not None for each in found.partitions)  # those of legacy formats are read whole
    assert 2 <= found.scope.partitions_sampled == decoded < len(found.partitions)
    assert any(each.startswith(f"values of {decoded} partitions were sampled, of ") for each in found.scope.checked)
    assert any(each.startswith("any record of ") for each in found.scope.not_checked)
    assert f"{found.scope.records_decoded:,} records were read, the rest was not" in found.verdict


def test_alike_partitions_are_not_all_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more partitions of one size than are sampled, the first ones are."""
    monkeypatch.setattr(gather, "MOST_SAMPLED", 2)
    for number in range(4):
        with pylogseg.open_log(tmp_path / "kafka" / f"t-{number}") as log:
            log.append([(_START_MS, b"k", b"v")])
    found = pylogseg.report(tmp_path / "kafka").facts
    assert [each.name for each in found.partitions if each.sample is not None] == ["t-0", "t-1"]
    assert found.scope.partitions_sampled == 2
    assert any(each.startswith("values of 2 partitions were sampled, of 4: 2 records") for each in found.scope.checked)
