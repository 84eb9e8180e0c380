"""Tests of log/record_limit.py. ``max.decompressed.message.bytes``, Kafka 4.4's limit for a record of a compressed
batch: compaction refuses it.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import shell
from helpers.shell import expect
from replay import replay

import pylogseg

NOW = 1_700_000_000_000


def operations(magic: int, codec: str, limits: list[int]) -> Iterator[dict[str, Any]]:
    """Batches of three records, the first with a value of 200 bytes; a cleaning with each limit."""
    settings = {"cleanup.policy": "compact", "segment.bytes": 100_000}
    yield {"op": "create", "config": settings, "topic": "t", "partition": 0, "now": NOW}
    for i in range(3):
        records = [
            {"timestamp": NOW + i, "key": f"k{j}", "value": "x" * (50 if j else 200),
             "headers": [] if magic < 2 else [["h", "v"]]} for j in range(3)
        ]  # fmt: skip
        batch = {"magic": magic, "compression": codec, "records": records}
        yield {"op": "append", "batches": [batch], "as": "leader", "epoch": 0, "record_version": magic}
    yield from [{"op": "roll"}, {"op": "high_watermark", "offset": "end"}]
    for limit in limits:
        yield {"op": "config", "config": {**settings, "max.decompressed.message.bytes": limit}}
        yield {"op": "clean", "first_dirty": 0}


def write(folder: Path, codec: str) -> Path:
    """The same batches as `operations` makes."""
    with pylogseg.open_log(
        folder, cleanup_policy="compact", compression_type="uncompressed" if codec == "none" else codec
    ) as log:
        for i in range(3):
            rows = [(NOW + i, b"k%d" % j, b"x" * (50 if j else 200), [("h", b"v")]) for j in range(3)]
            log.append(rows)
        log.engine.roll()
    return folder


def run(command: str, folder: Path, limit: int, *more: str) -> shell.Done:
    given = ["--config", f"max.decompressed.message.bytes={limit}", "--config", "cleanup.policy=compact"]
    done = shell.pylogseg(command, folder, *given, *more)
    assert "Traceback" not in done.err
    return done


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4"])
def test_compaction(tmp_path: Path, codec: str) -> None:
    """One byte decides, where a Kafka 4.4.0 says 213 in its refusal; the log stays as it was."""
    folder = write(tmp_path / "orders-0", codec)
    before = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    done = expect(run("compact", folder, 212), 1)
    said = done.text + done.err
    assert "record 0 of the batch at position 0, offsets 0 to 2, has 213 bytes" in said
    assert "max.decompressed.message.bytes is 212" in said
    assert {path.name: path.read_bytes() for path in folder.glob("*.log")} == before
    assert run("compact", folder, 213).code == 0
    assert [record.offset for record in pylogseg.read(folder)] == [6, 7, 8]


def test_without_compression(tmp_path: Path) -> None:
    """What is not compressed is not limited."""
    folder = write(tmp_path / "orders-0", "none")
    assert run("compact", folder, 10).code == 0
    assert [record.offset for record in pylogseg.read(folder)] == [6, 7, 8]


@pytest.mark.parametrize(("before", "after"), [("zstd", "gzip"), ("none", "zstd"), ("gzip", "none")])
def test_recode(tmp_path: Path, before: str, after: str) -> None:
    """Neither is such a record taken out of a batch, nor put into one that a broker could not clean."""
    folder = write(tmp_path / "orders-0", before)
    refused = expect(run("recode", folder, 212, "--compression", after), 1)
    assert "has 213 bytes" in refused.text + refused.err
    assert run("recode", folder, 213, "--compression", after).code == 0


@pytest.mark.skipif(os.environ.get("KAFKA_VERSION", "4.3.0") < "4.4", reason="Kafka has it since 4.4")
@pytest.mark.parametrize(("magic", "codec"), [(2, "zstd"), (2, "gzip"), (2, "none"), (1, "gzip"), (0, "gzip")])
def test_as_kafka(kafka: Any, tmp_path: Path, magic: int, codec: str) -> None:
    """Each limit around the size of the largest record has the outcome that it has in Kafka."""
    list_of_all = list(operations(magic, codec, [100, *range(205, 235)]))
    expected, _ = kafka.replay(list_of_all)
    out = io.StringIO()
    replay(list_of_all, tmp_path, out)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    outcome = [(row["op"], row.get("kind")) for row in expected]
    assert [(row["op"], row.get("kind")) for row in found] == outcome
    assert {kind for op, kind in outcome if op == "clean"} == ({None} if codec == "none" else {None, "invalid_record"})
