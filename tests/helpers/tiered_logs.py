"""Logs of several segments and leaders, to be uploaded."""

from __future__ import annotations

from pathlib import Path

import pylogseg
from pylogseg.format.batches import scan


def write_log(folder: Path, epochs: int = 3, per_epoch: int = 400, *, segment_bytes: int = 16384) -> Path:
    """Write a log with one leader after another; returns its folder. An offset always has the same record."""
    for epoch in range(epochs):
        settings = {"segment_bytes": segment_bytes, "index_interval_bytes": 512}
        with pylogseg.open_log(folder, leader_epoch=epoch, **settings) as log:
            for start in range(log.log_end_offset, log.log_end_offset + per_epoch, 10):
                records = [(b"k%d" % n, b"value %d " % n * 5, 1000 * n) for n in range(start, start + 10)]
                log.append([{"key": k, "value": v, "timestamp": t} for k, v, t in records])
    return folder


def follow(leader: Path, folder: Path, *, segment_bytes: int, end: int = 1 << 62) -> Path:
    """Copy the batches of a log below an offset into another one, with other bounds of segments."""
    (part,) = pylogseg.open_dir(leader).partitions
    with pylogseg.open_log(folder, segment_bytes=segment_bytes, index_interval_bytes=512) as log:
        for segment in part.segments:
            data = Path(segment.path).read_bytes()
            rows = scan(data).batches
            for row in range(len(rows)):
                if rows.base_offset[row] < end:
                    place = int(rows.position[row])
                    batch = data[place : place + int(rows.size[row])]
                    log.engine.append_as_follower(batch, int(rows.leader_epoch[row]))
    return folder
