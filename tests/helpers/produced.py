"""Logs as brokers leave them, made batch by batch: transactions side by side, cleaned batches, retention, holes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pylogseg
from pylogseg.format.builder import columns_to_encode, rebuild
from pylogseg.format.control_batches import marker_batch
from pylogseg.format.files.checkpoint import encode_offset_checkpoint

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000


class MadeLog:
    """A log in the making; offsets are those of the next batch."""

    def __init__(self, start: int = 0) -> None:
        self.end, self.data = start, bytearray()
        self.open: dict[int, int] = {}

    def records(self, count: int, codec: str = "none", producer: int = -1, kept: Sequence[int] | None = None) -> None:
        """Append a batch; with `kept` a cleaning has left only these of its records; -1 is no producer."""
        rows = [
            (
                TIME + self.end + i,
                b"k%d" % (i % 3) if i % 4 else None,
                b"v%d" % (self.end + i),
                {"h": b"x"} if i % 2 else {},
            )
            for i in range(count)
        ]
        more: dict[str, Any] = {}
        if producer >= 0:
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            self.open.setdefault(producer, self.end)
        data = pylogseg.encode(rows, base_offset=self.end, compression=codec, batch_bytes=1 << 20, **more)
        if kept is not None:
            table = pylogseg.scan(data).batches
            columns, _ = pylogseg.decode(table, data)
            some = columns.take(np.array(sorted(kept), np.intp))
            table.rows["count"] = len(some)
            data, _ = rebuild(columns_to_encode(some), table)
        self.data += data
        self.end += count

    def marker(self, producer: int, *, commits: bool) -> None:
        """End a transaction."""
        self.open.pop(producer, None)
        kind: Any = "commit" if commits else "abort"
        self.data += marker_batch(kind, base_offset=self.end, timestamp_ms=TIME, producer_id=producer, producer_epoch=0)
        self.end += 1

    def hole(self, count: int) -> None:
        """Leave offsets out, as a cleaning does."""
        self.end += count

    def write(self, folder: Path, name: str = "t-0", log_start: int = 0) -> Path:
        """Write it as the partition of a log directory; return the directory. It does not end in a hole."""
        if self.data and int(pylogseg.scan(self.data).batches.last_offset[-1]) + 1 < self.end:
            self.records(1)
        (folder / name).mkdir(parents=True)
        first = int(pylogseg.scan(self.data).batches.base_offset[0]) if self.data else self.end
        (folder / name / f"{first:020d}.log").write_bytes(self.data)
        topic, _, number = name.rpartition("-")
        starts = encode_offset_checkpoint({(topic, int(number)): log_start})
        (folder / "log-start-offset-checkpoint").write_bytes(starts)
        cleaned = encode_offset_checkpoint({(topic, int(number)): self.end})
        (folder / "cleaner-offset-checkpoint").write_bytes(cleaned)
        return folder


def play(log: MadeLog, operations: Sequence[tuple[Any, ...]]) -> None:
    """Carry out drawn operations; ends of transactions that are not open are left out."""
    for kind, *values in operations:
        if kind == "records":
            log.records(*values)
        elif kind == "hole":
            log.hole(*values)
        elif values[0] in log.open:
            log.marker(values[0], commits=values[1])
