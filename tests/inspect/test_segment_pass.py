"""Tests of inspect/segment_pass.py, inspect/stats/segment.py, inspect/verify/segment.py and
inspect/verify/segment_report.py. `verify`, `stats` and `report` in one pass over a segment: what each says alone, and
each record decoded once.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depth import some_of

from pylogseg import encode, open_dir
from pylogseg.disk.disk import Segment
from pylogseg.errors import RequestError
from pylogseg.inspect import segment_pass
from pylogseg.inspect.segment_pass import visit
from pylogseg.inspect.stats.segment import SegmentCount, Times, segment_stats
from pylogseg.inspect.stats.tops import Tops
from pylogseg.inspect.verify.findings import Level
from pylogseg.inspect.verify.segment import SegmentCheck, verify_segment


def plain(found: Any) -> Any:
    """Values that can be compared: arrays as lists, segments as paths."""
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, Segment):
        return found.path
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    return plain(vars(found)) if is_dataclass(found) else found


def segments_under(folder: Path) -> Iterator[Segment]:
    for inside in sorted({path.parent for path in folder.rglob("0*.log")}):
        try:
            disk = open_dir(inside)
        except RequestError:  # its name is not that of a partition
            disk = open_dir(sorted(inside.glob("0*.log")))
        yield from (segment for part in disk.partitions for segment in part.segments)
        yield from disk.loose


def damaged(golden: Path, folder: Path) -> None:
    """Copies of segments, some batches of which are damaged, swapped or doubled, and some ends cut off."""
    rng = random.Random(5)
    logs = [path for path in sorted(golden.rglob("*.log")) if 200 < path.stat().st_size < 100_000]
    for i, path in enumerate(rng.sample(logs, min(len(logs), 60))):
        inside = folder / str(i) / path.parent.name
        shutil.copytree(
            path.parent, inside, ignore=lambda _, names, stem=path.stem: [n for n in names if stem not in n]
        )
        data, parts, at = bytearray(path.read_bytes()), [], 0
        while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")) > 13:
            parts.append(bytes(data[at : at + 12 + size]))
            at += 12 + size
        if i % 4 == 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif i % 4 == 1:
            rng.shuffle(parts)
            data = bytearray(b"".join(parts))
        elif i % 4 == 2:
            data += rng.choice(parts) if parts else b""
        else:
            data = data[: rng.randrange(len(data))]
        (inside / path.name).write_bytes(data)


def in_one_pass(segment: Segment, level: Level, times: Times | None) -> tuple[Any, Any]:
    check = SegmentCheck(segment, level)
    count = SegmentCount(segment, times=times, tops=Tops(3, 3))
    visit(segment, [check, count])
    return check.report(), count.stats


@pytest.mark.parametrize("source", ["broker-4.3", "old", "damaged"])
def test_both_say_what_each_says_alone(source: str, golden: Path, tmp_path: Path) -> None:
    if source == "damaged":
        damaged(golden, tmp_path)
    seen = 0
    for segment in some_of(segments_under(tmp_path if source == "damaged" else golden / source), 40):
        seen += 1
        for level in (Level.CRC, Level.INDEXES):
            report, stats = in_one_pass(segment, level, None)
            assert asdict(report) == asdict(verify_segment(segment, level))
            assert plain(stats) == plain(segment_stats(segment, tops=Tops(3, 3)))
    assert seen >= 40


def test_a_range_of_time_is_that_of_the_counts_alone(golden: Path) -> None:
    seen = 0
    for segment in some_of(segments_under(golden / "broker-4.3"), 100):
        alone = segment_stats(segment)
        if alone.least_timestamp is None or alone.largest_timestamp in (None, alone.least_timestamp) or alone.gaps:
            continue
        seen += 1
        middle = (alone.least_timestamp + (alone.largest_timestamp or 0)) // 2
        for times in (Times(middle, None, (alone.first_offset + alone.end_offset) // 2), Times(None, middle)):
            report, stats = in_one_pass(segment, Level.INDEXES, times)
            assert asdict(report) == asdict(verify_segment(segment))
            assert plain(stats) == plain(segment_stats(segment, times=times, tops=Tops(3, 3)))
    assert seen >= 15


def test_records_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "orders-0"
    inside.mkdir()
    codecs = ("none", "gzip", "zstd")
    data = [encode([(1000 + i, b"key", b"value" * 20)], base_offset=i, compression=codecs[i % 3]) for i in range(30)]
    (inside / f"{0:020d}.log").write_bytes(b"".join(data))
    (segment,) = segments_under(tmp_path)
    real, decoded = segment_pass.decode_slices, []

    def noted(batches: Any, *arguments: Any, **options: Any) -> Any:
        decoded.extend(batches.position.tolist())
        return real(batches, *arguments, **options)

    monkeypatch.setattr(segment_pass, "decode_slices", noted)
    report, stats = in_one_pass(segment, Level.INDEXES, None)
    assert report.records == stats.records == 30
    assert len(decoded) == len(set(decoded)) == 30
    decoded.clear()
    in_one_pass(segment, Level.INDEXES, Times(1010, None))  # other batches than those that are checked
    assert len(decoded) == 50
