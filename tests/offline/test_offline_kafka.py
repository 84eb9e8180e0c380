"""Tests of offline/rewriting.py. A real Kafka reads what redact, recode and repair leave, and opens it without changing
a byte of it.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import some_of
from helpers.embedded_logs import operations
from helpers.kafka_storage import Kafka
from helpers.offline_logs import NOW, SETTINGS, log_dir
from replay import replay

from pylogseg import offline
from pylogseg.env.storage import LocalStorage

CONFIG = {name.replace("_", "."): str(value) for name, value in SETTINGS.items()}
KEYS = {b"a", b"b"}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("redact", {"keys": KEYS}),
    ("recode", {"compression": "zstd", "magic_2": True, "merge_bytes": 500}),
    ("recode", {"compression": "none"}),
    ("repair", {"keep_behind": True}),
]


def said(kafka: Kafka, folder: Path) -> list[tuple[Any, ...]]:
    """What Kafka reads: records, and what their batches say of them."""
    rows = kafka.decode(*sorted(folder.glob("*.log")))
    assert [row for row in rows if row.get("trailing_bytes") or row.get("error")] == []
    fields = ("producer_id", "producer_epoch", "transactional", "control", "leader_epoch")
    return [
        (*(record.get(name) for name in ("offset", "timestamp", "key", "value", "headers")), *map(row.get, fields))
        for row in rows
        for record in row.get("records", [])
    ]


@pytest.mark.parametrize("case", some_of(range(len(CASES)), 3))
def test_kafka_reads_and_opens_it(kafka: Kafka, tmp_path: Path, case: int) -> None:
    command, own = CASES[case]
    log_dir(case + 1, LocalStorage(), folder=str(tmp_path / "logs"), batches=40)
    folder = tmp_path / "logs" / "t-0"
    first = folder / f"{0:020}.log"
    before = said(kafka, folder)
    if command == "repair":
        data = bytearray(first.read_bytes())
        size = 12 + int.from_bytes(data[8:12], "big")
        data[size + 8 : size + 12] = b"\x7f\xff\xff\x00"
        first.write_bytes(bytes(data))
    (result,) = getattr(offline, command)(str(tmp_path / "logs"), config=CONFIG, now_ms=NOW, **own)
    assert result.state == "done"
    after = said(kafka, folder)
    if command == "redact":
        gone = {key.hex() for key in KEYS}
        expected = [row for row in before if row[2] not in gone or row[8]]
        assert after[: len(expected)] == expected
        # Of a last batch of magic 0 or 1 one record stays, without key and value.
        assert [row[:4:2] for row in after[len(expected) :]] in ([], [(before[-1][0], None)])
        assert len(after) < len(before)
    elif command == "recode":
        assert after == before
    else:
        lost = [row for row in before if row not in after]
        assert lost
        assert after == [row for row in before if row not in lost]
        gap = range(result.rows[0]["firstOffset"], result.rows[0]["nextOffset"])
        assert {row[0] for row in lost} <= set(gap)
    sizes = [[int(path.stem), path.stat().st_size] for path in sorted(folder.glob("*.log"))]
    for clean in (True, False):
        points = {"recovery_point": result.log_end, "log_start": 0} if clean else {"log_start": 0}
        rows = [
            row
            for row in operations(folder, points, clean=clean)
            if row["op"] != "read" or row["offset"] <= result.log_end
        ]
        answers, _ = kafka.replay(rows)
        ours = io.StringIO()
        replay(json.loads(json.dumps(rows)), tmp_path / f"again {clean}", ours)
        assert [row for row in answers if "error" in row] == []
        assert answers == [json.loads(line) for line in ours.getvalue().splitlines()]
        opened = next(row for row in answers if row["op"] == "open")["state"]
        assert opened["segments"] == sizes
        assert opened["end"] == result.log_end
