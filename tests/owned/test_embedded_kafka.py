"""Tests of owned/producer.py. What `open_log` leaves, a real Kafka opens: the same state, the same answers, the same
files afterwards.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

from helpers.embedded_logs import SETTINGS, fill, operations
from helpers.kafka_storage import Kafka
from replay import replay

from pylogseg import EmbeddedLog, open_log


def left_by(data: Path, close: Callable[[EmbeddedLog], None]) -> tuple[Path, dict[str, int]]:
    log = open_log(data / "orders-0", **SETTINGS)
    fill(log)
    points = {"log_start": log.log_start_offset}
    close(log)
    if (data / ".kafka_cleanshutdown").exists():
        points["recovery_point"] = log.log_end_offset
    return data / "orders-0", points


def test_kafka_opens_what_was_closed_and_what_was_left(kafka: Kafka, tmp_path: Path) -> None:
    for name, close in (("closed", EmbeddedLog.close), ("left", EmbeddedLog.close_handles)):
        folder, points = left_by(tmp_path / name, close)
        rows = operations(folder, points, clean=name == "closed")
        answers, _ = kafka.replay(rows)
        ours = io.StringIO()
        replay(json.loads(json.dumps(rows)), tmp_path / f"{name} again", ours)
        own = [json.loads(line) for line in ours.getvalue().splitlines()]
        assert [row for row in answers if "error" in row] == []
        for theirs, mine in zip(answers, own, strict=True):
            assert theirs == mine
        opened = next(row for row in answers if row["op"] == "open")["state"]
        with open_log(tmp_path / name / "orders-0", **SETTINGS) as log:
            assert [opened["start"], opened["end"]] == [log.log_start_offset, log.log_end_offset]
            assert {row["id"]: row["epoch"] for row in opened["producers"]} == {11: 0, 12: 0}
            assert len(list(log.read())) == sum(1 for _ in log.read(control=True)) - 9
