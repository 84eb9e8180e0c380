"""What many points cost: `python asv_benchmarks/many_points.py [POINTS] [SEGMENTS] [CHANGED]`.

A week of `--every 60s` over 10,000 segments in 1,000 partitions by default, of which none changes; CHANGED partitions
get a segment before each point. It prints bytes of points and lists, and what the commands that read them take.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from measure import run_pylogseg

from pylogseg.disk.tier.point import (
    MARK,
    SUFFIXES,
    ArchivedFile,
    ArchivedPartition,
    ArchivedSegment,
    Point,
    SeenDisk,
    seal,
)
from pylogseg.disk.tier.points import archive_store, mark_text, new_id, read_point, write_point
from pylogseg.format.uuids import format_uuid

_PARTITIONS, _MINUTE_MS, _FIRST_MS = 1000, 60_000, 1_780_000_000_000
_EMPTY = ArchivedFile(0, hashlib.sha256(b"").hexdigest())


def _segment(of: str, number: int, at: int) -> ArchivedSegment:
    digest = hashlib.sha256(f"{of} {number} {at}".encode()).digest()
    return ArchivedSegment(at, at + 1, 1 << 30, format_uuid(digest[:16]), _EMPTY, _EMPTY, _EMPTY)


def _partition(number: int, segments: int) -> ArchivedPartition:
    topic = f"topic-{number // 20:03d}"
    inside = tuple(_segment(topic, number, at) for at in range(segments))
    topic_id = format_uuid(hashlib.sha256(topic.encode()).digest()[:16])
    ends = 0, segments, segments
    return ArchivedPartition(topic, topic_id, number % 20, *ends, "watermark", 0, ((0, 0),), inside)


def _grown(partition: ArchivedPartition) -> ArchivedPartition:
    end = partition.end_offset
    inside = *partition.segments, _segment(partition.topic, partition.partition, end)
    return replace(partition, segments=inside, end_offset=end + 1, last_stable_offset=end + 1)


def _put(folder: Path, partition: ArchivedPartition, *segments: ArchivedSegment) -> None:
    for segment in segments:
        path = folder / partition.stem(segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        for suffix in SUFFIXES:
            Path(f"{path}{suffix}").touch()


def _repeat(folder: Path, point: Point, time_ms: int) -> None:
    """Write the point of disks that did not change: as the one before but for its id, time and SHA-256."""
    members = json.loads((folder / point.name.key).read_bytes())
    name = new_id(time_ms)
    members.update(id=name, timeMs=time_ms)
    del members["sha256"]
    (folder / "points" / f"{name}.json").write_text(seal(json.dumps(members, separators=(",", ":"))))


def _timed(*command: object) -> str:
    used = run_pylogseg(*command)
    return f"{used.wall:.1f} s ({used.processors:.1f} s of processors), {used.peak_mib:.0f} MiB"


def main(points: int = 7 * 24 * 60, segments: int = 10_000, changed: int = 0) -> None:
    """Write points, and print what they cost."""
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), archive_store(name)
        store.put(MARK, mark_text("a cluster").encode())
        disk = SeenDisk("/data/kafka", 1, "a cluster", "", "running")
        parts = [_partition(number, segments // _PARTITIONS) for number in range(_PARTITIONS)]
        for each in parts:
            _put(folder, each, *each.segments)
        known, began = frozenset[str](), time.process_time()
        point: Point | None = None
        for at in range(points):
            for number in range(changed):
                place = number * (_PARTITIONS // changed)
                parts[place] = _grown(parts[place])
                _put(folder, parts[place], parts[place].segments[-1])
            time_ms = _FIRST_MS + at * _MINUTE_MS
            if point is not None and not changed:
                _repeat(folder, point, time_ms)
                continue
            point = Point(new_id(time_ms), time_ms, "pylogseg", "a cluster", (disk,), tuple(parts))
            write_point(store, point, known)
            known = read_point(store, point.id).lists
        spent = time.process_time() - began
        print(f"{points:,} points of {segments:,} segments, {changed} partitions changed before each")
        for kind in ("points", "lists"):
            sizes = [path.stat().st_size for path in (folder / kind).iterdir()]
            print(f"{kind}: {len(sizes):,} objects, {sum(sizes) / 1e6:,.1f} MB")
        print(f"to write and read one: {1000 * spent / points:.0f} ms of CPU")
        print(f"archive points: {_timed('archive', 'points', folder)}")
        print(f"verify: {_timed('verify', folder)}")
        print(f"prune --keep-last 100: {_timed('archive', 'prune', folder, '--keep-last', 100)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
