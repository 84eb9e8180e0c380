"""Tests of reporting/cleaning.py and reporting/facts.py. What a report says that retention and compaction would free,
against dry runs of `retain` and `compact`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.golden_brokers import BROKERS

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.reporting.cleaning import LogShape, RetainedPiece, count_deletable
from pylogseg.reporting.facts import Facts, PartitionFact

#: In the golden data, times of records; the newest are of 2026.
_LATER_MS = 1_800_000_000_000
_DAY_MS = 86_400_000


def by_name(facts: Facts) -> dict[str, PartitionFact]:
    return {each.name: each for each in facts.partitions if each.cleaning is not None}


@pytest.mark.parametrize("name", BROKERS)
@pytest.mark.parametrize(
    "config",
    [{"retention.ms": "1000"}, {"retention.ms": "-1", "retention.bytes": "20000"}, {"retention.ms": str(2 * 10**12)}],
    ids=["time", "size", "nothing"],
)
def test_retention(golden: Path, name: str, config: dict[str, str]) -> None:
    path = golden / name / "data1"
    config = {**config, "cleanup.policy": "delete"}
    facts = by_name(pylogseg.report(path, config=config, now_ms=_LATER_MS).facts)
    results = pylogseg.offline.retain(path, config=config, now_ms=_LATER_MS, dry_run=True, force=True)
    compared = 0
    for result in results.partitions:
        if result.numbers:
            cleaning = facts[result.name].cleaning
            assert cleaning is not None
            assert cleaning.policy == "delete"
            assert cleaning.retention_now.segments == result.numbers["segmentsDeleted"], result.name
            assert cleaning.retention_now.bytes == result.bytes_before - result.bytes_after, result.name
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("name", [name for name in BROKERS if "compact" in name])
def test_dirty_ratio(golden: Path, name: str) -> None:
    """A log is compacted with the ratio that the report says as the least one, and not with a higher one."""
    path = golden / name / "data1"
    config = {"cleanup.policy": "compact"}
    facts = by_name(pylogseg.report(path, full=True, now_ms=_LATER_MS, config=config).facts)
    seen = 0
    for part in facts.values():
        cleaning = part.cleaning
        if cleaning is None or cleaning.dirty_ratio is None or part.topic == "__cluster_metadata":
            continue
        ratio = cleaning.dirty_ratio
        bars = (
            [(ratio - 0.0001, "done"), (ratio + 0.0001, "unchanged")] if cleaning.dirty_bytes else [(0.0, "unchanged")]
        )
        for bar, state in bars:
            if 0 <= bar <= 1:
                (result,) = pylogseg.offline.compact(
                    part.path, min_dirty_ratio=bar, now_ms=_LATER_MS, dry_run=True, config=config
                ).partitions
                assert result.state == state, (part.name, bar)
                seen += 1
    assert seen > 1


@pytest.mark.parametrize("name", ["broker-4.3/compact-0-before", "broker-4.3/compact-2-before"])
def test_estimate_of_compaction(golden: Path, name: str) -> None:
    """The estimate by the number of keys is near what a dry run removes; without all keys there is none."""
    path, config = golden / name / "data1", {"cleanup.policy": "compact"}
    facts = by_name(pylogseg.report(path, full=True, now_ms=_LATER_MS, config=config).facts)
    results = pylogseg.offline.compact(path, dry_run=True, now_ms=_LATER_MS, config=config).partitions
    compared = 0
    for result in (each for each in results if each.state == "done"):
        freed = facts[result.name].cleaning.compaction_now
        removed = result.bytes_before - result.bytes_after
        assert freed.is_estimate
        assert freed.bytes is not None
        assert abs(freed.bytes - removed) < 0.5 * removed, result.name
        compared += 1
    assert compared > 3


GIVEN = {
    "nothing": ({}, ("compact", None), "cleaner"),
    "policy": ({"cleanup.policy": "delete"}, ("delete", "delete"), "set"),
    "time": ({"retention.ms": "1000"}, ("compact", None), "cleaner"),
    "both": ({"cleanup.policy": "delete", "retention.ms": "1000"}, ("delete", "delete"), "set"),
}


@pytest.mark.parametrize("given", GIVEN)
def test_what_is_assumed(examples: Path, given: str) -> None:
    """Settings that nobody said are not known, but for topics that the cleaner's checkpoint names; no sum has them."""
    config, policies, source = GIVEN[given]
    found = pylogseg.report(examples, ["cmp-short", "codec-none"], config=config, now_ms=_LATER_MS, full=True).facts
    cleaned, plain = found.partitions
    assert cleaned.cleaning is not None
    assert plain.cleaning is not None
    assert (cleaned.cleaning.policy, plain.cleaning.policy) == policies == tuple(t.policy for t in found.topics)
    assert plain.cleaning.assumed_policy == "delete"
    sources = {each["name"]: each["source"] for each in cleaned.cleaning.settings}
    assert sources["cleanup.policy"] == source
    assert sources["retention.ms"] == ("set" if "retention.ms" in config else "assumed")
    is_known = given == "both"
    assert plain.cleaning.retention_now.is_assumed == (not is_known)
    assert plain.cleaning.retention_now.bytes == plain.size
    assert found.topics[1].freed_now == (plain.size if is_known else None)
    week = round(plain.growth.bytes_per_day * 7)
    assert plain.cleaning.size_in_a_week == (0 if is_known else plain.size) + week


@pytest.mark.parametrize("name", [name for name in BROKERS if "compact" in name])
def test_no_more_than_there_is(golden: Path, name: str) -> None:
    """In a week, with bytes that come, nothing frees more than lies there now."""
    config = {"cleanup.policy": "compact,delete", "retention.ms": str(40 * 7 * _DAY_MS)}
    facts = pylogseg.report(golden / name / "data1", full=True, config=config).facts
    freed = [(each.cleaning.retention_in_a_week, each.cleaning.compaction_in_a_week, each.size)
             for each in facts.partitions if each.cleaning]  # fmt: skip
    assert all((by_time.bytes or 0) + (by_key.bytes or 0) <= size for by_time, by_key, size in freed)
    assert sum(by_key.bytes or 0 for _, by_key, _ in freed) > 0


def shape(**changes: Any) -> LogShape:
    pieces = [RetainedPiece(0, 1000, 0), RetainedPiece(100, 1000, _DAY_MS), RetainedPiece(200, 500, 2 * _DAY_MS)]
    return LogShape(pieces, 0, 250, None, 250, None, 0.0)._replace(**changes)


def test_rules() -> None:
    config = LogConfig(retention_ms=_DAY_MS)
    now = 2 * _DAY_MS
    assert count_deletable(shape(), config, now) == (1, 1000)
    assert count_deletable(shape(), config, now + 1) == (2, 2000)
    assert count_deletable(shape(), config, now + _DAY_MS + 1) == (3, 2500)
    assert count_deletable(shape(), LogConfig(retention_ms=-1, retention_bytes=1500), now) == (1, 1000)
    # Bytes that come push older ones out.
    assert count_deletable(shape(), LogConfig(retention_ms=-1, retention_bytes=1500), now, 500) == (1, 1000)
    assert count_deletable(shape(), LogConfig(retention_ms=-1, retention_bytes=1500), now, 1000) == (2, 2000)
    # Not above the high watermark, and always below the log's start.
    assert count_deletable(shape(high_watermark=150), config, now + _DAY_MS + 1) == (1, 1000)
    assert count_deletable(shape(log_start=100), LogConfig(retention_ms=-1), now) == (1, 1000)
    assert count_deletable(shape(log_start=100), LogConfig(cleanup_policy="compact"), now) == (1, 1000)


def test_in_a_week(tmp_path: Path) -> None:
    """A log that grows by a known rate: what retention leaves a week later."""
    now = 1_700_000_000_000
    with pylogseg.open_log(tmp_path / "kafka" / "t-0", segment_bytes=4096) as log:
        for hour in range(100):
            log.append([(now - (100 - hour) * 3_600_000, b"k", b"v" * 1000)])
    report = pylogseg.report(tmp_path / "kafka" / "t-0", now_ms=now, full=True)
    (part,) = report.facts.partitions
    growth = part.growth
    assert growth.last_week_bytes == part.size
    assert abs(growth.bytes_per_day - part.size * 24 / 100) < 1
    assert sum(growth.hours.bytes) == sum(growth.days.bytes) == part.size
    assert len(growth.hours.starts) == 100
    assert growth.last_day_bytes < growth.last_week_bytes
