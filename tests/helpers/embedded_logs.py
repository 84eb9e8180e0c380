"""A log of `open_log` that holds all kinds of batches, and the replay that asks a real Kafka about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pylogseg import EmbeddedLog, encode

NOW = 1_700_000_000_000
SETTINGS = {"segment_bytes": 4000, "index_interval_bytes": 200, "segment_index_bytes": 800}


def fill(log: EmbeddedLog) -> None:
    """Records of all codecs, two producers, transactions of all endings, deleted records."""
    first, second = log.producer(11), log.producer(12)
    for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = [(NOW + 100 * i + j, b"key %d" % j, b"value" * (j % 9), {"n": b"%d" % j}) for j in range(60)]
        log.append(records, compression=codec, batch_bytes=900)
        first.append(records[:7], batch_bytes=300)
        with second.transaction():
            second.append(records[7:20], compression=codec)
            log.append(records[:3])
        second.begin()
        second.append(records[20:22])
        if i < 4:
            second.abort()
    log.append([(None, None, None)] * 3)
    log.increment_log_start(40)


def operations(folder: Path, points: dict[str, int], *, clean: bool) -> list[dict[str, Any]]:
    """A replay that puts the files of a partition into place, opens them, and asks for everything."""
    settings = {name.replace("_", "."): value for name, value in SETTINGS.items()}
    rows: list[dict[str, Any]] = [
        {"op": "create", "topic": "orders", "partition": 0, "now": NOW + 10_000, "config": settings},
        {"op": "crash"},
    ]
    files = sorted(folder.iterdir())
    rows += [
        {"op": "file", "action": "delete", "name": f"{0:020}.log"},
        {"op": "file", "action": "delete", "name": "leader-epoch-checkpoint"},
        *({"op": "file", "action": "write", "name": path.name, "hex": path.read_bytes().hex()} for path in files),
        {"op": "open", "clean": clean, **points},
        {"op": "high_watermark", "offset": 10**6},
    ]
    for isolation in ("high_watermark", "txn_committed"):
        rows += [
            {"op": "read", "offset": offset, "max_bytes": 900, "isolation": isolation} for offset in range(40, 400, 9)
        ]
    rows += [{"op": "lookup", "timestamp": NOW + at} for at in range(0, 500, 40)]
    rows += [
        {"op": "append", "hex": encode([(NOW, None, b"one more")]).hex()},
        {"op": "flush"},
        {"op": "close"},
        {"op": "capture"},
    ]
    return rows
