"""Tests of spark/worker.py. A report whose segments the workers read is that of one machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg.spark import jobs

_NOW_MS = 1_800_000_000_000


def comparable(report: pylogseg.Report) -> dict[str, Any]:
    """The facts, without what depends on the time, the free space, and the order of keys with the same weight."""
    found = report.to_dict()
    found |= {"tookMs": 0, "command": ""}
    for disk in found["disks"]:
        disk |= {"freeBytes": 0, "fullInDays": 0}
    for part in found["partitions"]:
        for name in ("keysByRecords", "keysByBytes", "largest") if part["sample"] else ():
            rows = part["sample"][name]
            part["sample"][name] = sorted((row["records"] or 0, row["bytes"] or 0) for row in rows)
    return found


@pytest.mark.parametrize("full", [False, True])
def test_same_as_on_one_machine(spark: Any, examples: Path, tmp_path: Path, full: bool) -> None:
    disk = shutil.copytree(examples, tmp_path / "data")
    log = max(disk.rglob("*.log"), key=lambda path: path.stat().st_size)
    change_byte(log, bits=0xFF)
    got = jobs.report(spark, disk, full=full, now_ms=_NOW_MS)
    alone = pylogseg.report(disk, full=full, now_ms=_NOW_MS)
    assert comparable(got) == comparable(alone)
    assert got.has_damage
    got.write(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_names(spark: Any, examples: Path) -> None:
    found = jobs.report(spark, examples, ["codec-*"], sample=1, now_ms=_NOW_MS).facts
    assert {each.topic for each in found.partitions} == {
        "codec-gzip", "codec-lz4", "codec-none", "codec-snappy", "codec-zstd",
    }  # fmt: skip
    assert all(each.sample is not None and len(each.sample.payloads) == 1 for each in found.partitions)
