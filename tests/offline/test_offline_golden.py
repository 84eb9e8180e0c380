"""Tests of offline/compacting.py. `compact`, `retain` and `delete-records` in the place of a broker's cleaner and
retention: Kafka's own files.

The golden lists are replayed up to each cleaning or deletion; there the log is closed, the command is run on its log
directory, and the log is opened again. What Kafka says of every later state and file has to be so here too.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from replay import Replay, kind_of

from pylogseg import offline
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.format.names import FileKind
from pylogseg.offline.result import PartitionResult, Result

Row = dict[str, Any]
SCENARIOS = [
    "clean-compressed", "clean-grouping", "clean-keeps-the-last-batch-of-a-producer", "clean-legacy",
    "clean-overwritten-keys", "clean-then-delete", "clean-tombstones", "clean-transactions",
    "clean-with-a-small-offset-map", "retention-by-modification-time", "retention-by-size", "retention-by-time",
    "delete-records", "leader-epochs",
]  # fmt: skip
KEY = ("t", 0)


class OfflineReplay(Replay):
    """Replays with the commands instead of the engine's own cleaning and deletion."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.mkdir()
        (root / "meta.properties").write_text("version=1\nnode.id=1\n")

    def _write(self, kind: FileKind, offset: int | None) -> None:
        entries = {} if offset is None else {KEY: offset}
        (self.root / kind.value).write_bytes(encode_offset_checkpoint(entries))

    def _read(self, kind: FileKind, default: int = 0) -> int:
        path = self.root / kind.value
        return parse_offset_checkpoint(path.read_bytes()).get(KEY, default) if path.exists() else default

    def _by(self, command: Any, **own: Any) -> PartitionResult:
        """Close the log as a broker that stops, run a command on it, open it as a broker that starts."""
        log = self.open_log
        log.flush()
        log.close()
        now_ms = self.clock.now_ms()
        self.scheduler.advance(self.config.file_delete_delay_ms)  # what waits for its removal
        self.clock.set_ms(now_ms)
        self._write(FileKind.RECOVERY_POINTS, log.recovery_point)
        self._write(FileKind.LOG_STARTS, log.log_start_offset)
        self._write(FileKind.HIGH_WATERMARKS, log.high_watermark)
        self._write(FileKind.CLEANER_OFFSETS, self.last_clean)
        (self.root / FileKind.CLEAN_SHUTDOWN.value).write_bytes(b'{"version":0,"brokerEpoch":1}')
        result: Result = command(self.folder, now_ms=now_ms, config=self.config.to_properties(), **own)
        assert result.is_closed_clean, [part_result.reason for part_result in result]
        self._open({"log_start": self._read(FileKind.LOG_STARTS)}, clean=True)
        self.open_log.update_high_watermark(self._read(FileKind.HIGH_WATERMARKS))
        (part_result,) = result
        if part_result.error is not None:
            raise part_result.error
        return part_result

    def do_clean(self, op: Row) -> Row:
        """All cleanings that there are to do."""
        if "first_dirty" in op:
            self.last_clean = op["first_dirty"]
        self._by(offline.compact, map_bytes=op.get("offset_map_bytes", 1 << 20))
        cleaned = self._read(FileKind.CLEANER_OFFSETS, -1)
        self.last_clean = None if cleaned < 0 else cleaned
        return {}

    def do_retention(self, op: Row) -> Row:
        """Retention by the settings."""
        return {"deleted": self._by(offline.retain, force=True).numbers["segmentsDeleted"]}

    def do_log_start(self, op: Row) -> Row:
        """Deletion of records, and of the segments that are left without any."""
        return {"moved": self._by(offline.delete_records, offsets=op["offset"]).state == "done"}

    def do_truncate(self, op: Row) -> Row:
        """A truncation, and the cleaner's checkpoint behind it."""
        return {"truncated": self._by(offline.truncate, to=op["offset"]).state == "done"}


def is_compared(name: str, file: Row, active: str, is_closed: bool) -> bool:
    """Whether a file has to be as Kafka's: not what each stop writes, nor what comes into being with its first use."""
    if name.endswith(("index", "timeindex")):
        # Those of the active segment are as long as they were made until the log is closed.
        return file["size"] > 0 and (is_closed or not name.startswith(active))
    return name.endswith((".log", ".txnindex"))


def comparable(row: Row) -> Row:
    """What the log is like, and what its files are; without what an orderly stop in between changes."""
    state = row.get("state")
    is_loose = row.get("compare") == "content"  # our codecs may have written other bytes
    found: Row = {}
    if state is not None:
        found = {name: state[name] for name in ("start", "end")}
        found["segments"] = [base for base, _ in state["segments"]] if is_loose else state["segments"]
        # An epoch without a record goes with the next load, in a broker too.
        found["epochs"] = [[epoch, start] for epoch, start in state["epochs"] if start < state["end"]]
    if row["op"] == "capture":
        active = max(name for name in row["result"] if name.endswith(".log"))[:-4]
        names = {name: file for name, file in row["result"].items() if is_compared(name, file, active, state is None)}
        found["files"] = sorted(names) if is_loose else names
    return found


def goes_ahead(op: str, want: Row, was_ahead: bool) -> bool:
    """Whether a command has done what Kafka will do in its next rounds: other cleanings, or deletion of segments."""
    if op == "clean":
        return want.get("kind") is None and want["result"]["next_dirty"] < want["result"]["first_uncleanable"]
    return op == "log_start" or (was_ahead and op != "retention")


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_kafka(golden: Path, tmp_path: Path, name: str) -> None:
    """Every later state and file is Kafka's."""
    folder = golden / "replay" / name
    lines = [(folder / file).read_text(encoding="utf-8").splitlines() for file in ("ops.jsonl", "expected.jsonl")]
    operations, expected = ([json.loads(line) for line in each] for each in lines)
    random.seed(0)
    replay = OfflineReplay(tmp_path / "log-dir")
    compared = 0
    is_loose = any(op.get("compare") == "content" for op in operations)
    is_ahead = False
    for op, want in zip(operations, expected, strict=True):
        got: Row = {"op": op["op"], "compare": "content" if is_loose else None}
        want = {**want, "compare": got["compare"]}
        try:
            got["result"] = replay.run(op)
        except Exception as error:
            got["kind"] = kind_of(error)
        if replay.log is not None:
            got["state"] = replay.state()
        if op["op"] == "log_start":
            assert got.get("kind") == want.get("kind")
        is_ahead = goes_ahead(op["op"], want, is_ahead)
        if not is_ahead:
            assert comparable(got) == comparable(want), f"line {want['line']}: {op['op']}"
            compared += op["op"] in ("clean", "retention", "truncate")
    assert compared > 0
