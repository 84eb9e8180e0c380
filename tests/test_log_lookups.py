"""Look-ups in an open log, by offset, by many offsets and by time, against a walk over everything."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pylogseg import encode
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.log.log import Log
from pylogseg.testing.clock import ManualClock, ManualScheduler

NOW = 1_700_000_000_000


def filled(folder: Path, chance: random.Random) -> tuple[Log, list[tuple[int, int, int]], list[tuple[int, int]]]:
    """A log; offsets and size of its batches; offset and timestamp of its records."""
    clock = ManualClock(NOW)
    config = LogConfig.of(
        segment_bytes=chance.choice([2000, 1 << 20]),
        index_interval_bytes=chance.choice([0, 300, 4096]),
        message_timestamp_type=chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
    )
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(folder), config)
    batches, records = [], []
    offset = 0
    for _ in range(150):
        offset += chance.choice([0, 0, 0, 7])  # a compacted log has gaps
        clock.set_ms(clock.now_ms() + 5)
        times = [clock.now_ms() + chance.randrange(-50, 50) for _ in range(chance.randrange(1, 6))]
        stamped = config.message_timestamp_type == "LogAppendTime"
        more: dict[str, Any] = {"timestamp_type": "append", "append_time_ms": clock.now_ms()} if stamped else {}
        codec = chance.choice(["none", "none", "lz4", "gzip"])
        headers = chance.choice([[], [("h", b"x")]])
        data = encode(
            [{"timestamp": time, "key": b"k", "value": b"v" * 20, "headers": headers} for time in times],
            compression=codec,
            base_offset=offset,
            leader_epoch=0,
            **more,
        )
        log.append_as_follower(data, 0)
        batches.append((offset, offset + len(times) - 1, len(data)))
        records += [(offset + i, clock.now_ms() if stamped else time) for i, time in enumerate(times)]
        offset += len(times)
    return log, batches, records


@pytest.mark.parametrize("seed", range(12))
def test_offsets(tmp_path: Path, seed: int) -> None:
    log, batches, _ = filled(tmp_path / "t-0", random.Random(seed))
    wanted = np.random.default_rng(seed).permutation(np.arange(-3, log.log_end_offset + 3))
    found = log.locate_many(wanted)
    for row, offset in enumerate(wanted.tolist()):
        expected = next((b for b in batches if b[1] >= offset), None) if offset >= 0 else None
        if expected is None:
            assert (found.segment[row], found.position[row], found.offset[row]) == (-1, -1, -1)
            continue
        assert (found.offset[row], found.size[row]) == (expected[0], expected[2])
        fetched = log.fetch(offset, 1)
        assert (fetched.start.offset, fetched.start.segment, fetched.start.position) == (
            found.offset[row],
            found.segment[row],
            found.position[row],
        )
    assert len(log.locate_many([]).position) == 0


@pytest.mark.parametrize("seed", range(12))
def test_times(tmp_path: Path, seed: int) -> None:
    log, _, records = filled(tmp_path / "t-0", random.Random(seed))
    segments = log.segments.base_offsets
    for timestamp in range(NOW - 60, NOW + 820, 3):
        # The first segment whose greatest timestamp is not below; in it, the first record that is not older.
        expected = None
        for base, end in zip(segments, [*segments[1:], log.log_end_offset], strict=True):
            inside = [(offset, time) for offset, time in records if base <= offset < end]
            if inside and max(time for _, time in inside) >= timestamp:
                expected = next((time, offset, 0) for offset, time in inside if time >= timestamp)
                break
        assert log.offset_for_time(timestamp) == expected, timestamp
