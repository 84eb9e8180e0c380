"""Tests of log/append_analysis.py, log/append_record_checks.py and log/producer_state.py. Appends of the golden
replays, validated against the state that Kafka had before each of them.

What stands for the log here is as small as it can be: the log end offset and the settings come from the replay, the
leader epochs and producers live on from append to append, and are set anew from Kafka's state behind any other
operation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.memory_files import MemoryFiles
from helpers.old_leader import old_leader, raft_leader
from helpers.validating import lead
from reference.batch import Record
from reference.build import batch_v2, end_marker

from pylogseg.errors import CorruptionError, PylogsegError, TooLargeError
from pylogseg.log.append_validation import Prepared, Rules, Terms, follower
from pylogseg.log.leader_epochs import LeaderEpochs
from pylogseg.log.producer_state import CachedBatch, Origin, ProducerState, Txn
from pylogseg.log.producers import Producers

CODECS = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LONG_MAX = 2**63 - 1
#: Operations that write nothing to a segment but what was appended.
HARMLESS = {
    *("create", "append", "config", "advance", "roll", "flush", "flush_to", "snapshot", "high_watermark", "epoch"),
    *("end_offset_for_epoch", "lookup", "read", "expire_producers", "close", "cleanable", "capture", "set_mtime"),
}

#: What Kafka's encoder says of descriptions that never become an append.
NOT_ENCODED = {
    "Cannot write transactional messages without a valid producer ID",
    "Invalid negative sequence number used",
    "Invalid negative producer epoch",
}


def described(batches: list[dict[str, Any]]) -> str:
    """The bytes, as hex, of the descriptions of refused appends: all of magic 2."""
    return b"".join(map(one_described, batches)).hex()


def one_described(spec: dict[str, Any]) -> bytes:
    offset = base = spec.get("base_offset", 0)
    if "control" in spec:
        names = ("producer_id", "producer_epoch", "timestamp", "coordinator_epoch", "leader_epoch")
        fields = {name: spec[name] for name in names if name in spec}
        return end_marker(base, commit=spec["control"] == "commit", **fields)
    records = []
    for row in spec["records"]:
        offset = row.get("offset", offset)
        key, value = (None if row[name] is None else row[name].encode() for name in ("key", "value"))
        records.append(Record(offset, row["timestamp"], key, value))
        offset += 1
    names = ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "transactional")
    fields = {name: spec[name] for name in names if name in spec}
    return batch_v2(records, base_offset=base, codec=spec.get("compression", "none"), **fields)


def rules_of(config: dict[str, Any]) -> Rules:
    codec = str(config.get("compression.type", "producer"))
    level = config.get(f"compression.{codec}.level")
    return Rules(
        int(config.get("max.message.bytes", 1048588)),
        CODECS[codec],
        config.get("message.timestamp.type") == "LogAppendTime",
        "compact" in str(config.get("cleanup.policy", "delete")),
        int(config.get("message.timestamp.before.max.ms", LONG_MAX)),
        int(config.get("message.timestamp.after.max.ms", 3_600_000)),
        None if level is None else int(level),
    )


class SmallLog:
    """The parts of an append that this test is about, in their order."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.epochs = LeaderEpochs(MemoryFiles(), "epochs", lambda name, task: task())
        self.producers = Producers(MemoryFiles(), "t-0")
        self.written: list[bytes] = []
        self.recompressed = False

    def take(self, state: dict[str, Any]) -> None:
        """Begin from a state of Kafka's."""
        files = MemoryFiles()
        self.epochs = LeaderEpochs(files, "epochs", lambda name, task: task())
        for epoch, offset in state["epochs"]:
            self.epochs.assign(epoch, offset)
        self.producers = Producers(files, "t-0")
        for row in state["producers"]:
            first = row.get("txn_first_offset", -1)
            producer = ProducerState(row["id"], row["epoch"], row["coordinator_epoch"], row["last_timestamp"], first)
            for _, last_sequence, first_offset, last_offset, timestamp in row["batches"]:
                producer.batches.append(CachedBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
            self.producers.active[row["id"]] = producer
            if first >= 0:
                self.producers._open[first] = Txn(row["id"], first)

    def append(self, op: dict[str, Any], state: dict[str, Any], *, fast: bool) -> dict[str, Any]:
        rules, now = rules_of(self.config), state["now"]
        magic, is_raft = op.get("record_version", 2), op.get("origin") == "raft_leader"
        origin = Origin.REPLICATION if is_raft else Origin(op.get("origin", "client"))
        version = op.get("transaction_version", 0) if "record_version" not in op else -1
        data, where = bytes.fromhex(op["hex"]), {"next_offset": state["end"], "leader_epoch": op.get("epoch", 0)}
        if op.get("as") == "follower":
            origin, version = Origin.REPLICATION, -1
            done = follower(data, **where)
        elif is_raft:
            done = raft_leader(data, size_limit=rules.size_limit, **where)
        elif magic < 2:
            done = old_leader(data, rules, Terms(now_ms=now, origin=origin, **where), magic)
        else:
            done = lead(data, rules, careful=not fast, now_ms=now, origin=origin, **where)
        if done.valid_bytes == 0:
            return self.answer(done, state)
        for batch in done.batches:
            if batch.magic == 2:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            elif len(self.epochs):
                self.epochs.clear()
        if len(done.records) > int(self.config.get("segment.bytes", 1 << 30)):
            raise TooLargeError("larger than a segment")
        checked = self.producers.check(done.batches, done.records, origin, transaction_version=version)
        if checked.duplicate:
            found = checked.duplicate
            repeated = {"first_offset": found.first_offset, "last_offset": found.last_offset}
            return self.answer(done, state) | repeated | {"log_append_time": found.timestamp}
        self.written.append(bytes(done.records))
        self.recompressed |= any(batch.codec for batch in done.batches) and bytes(done.records[61:]) not in data
        for append in checked.appends:
            self.producers.update(append)
        for completed in checked.completed:
            self.producers.complete(completed)
        return self.answer(done, state)

    @staticmethod
    def answer(done: Prepared, state: dict[str, Any]) -> dict[str, Any]:
        return {
            "first_offset": done.first_offset,
            "last_offset": done.last_offset,
            "max_timestamp": done.max_timestamp,
            "log_append_time": done.append_time_ms,
            "valid_bytes": done.valid_bytes,
            "log_start": state["start"],
        }

    def state(self) -> dict[str, Any]:
        rows = []
        for producer_id, producer in sorted(self.producers.active.items()):
            row: dict[str, Any] = {
                "id": producer_id,
                "epoch": producer.producer_epoch,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "batches": [
                    [b.first_sequence, b.last_sequence, b.first_offset, b.last_offset, b.timestamp]
                    for b in producer.batches
                ],
            }
            if producer.has_open_txn:
                row["txn_first_offset"] = producer.first_txn_offset
            rows.append(row)
        return {"epochs": [list(entry) for entry in self.epochs.entries], "producers": rows}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def run(ops: list[dict[str, Any]], expected: list[dict[str, Any]], *, fast: bool) -> tuple[SmallLog, list[str], int]:
    """Validate all appends of a replay; return the differences and the number of appends."""
    log, differences, count = SmallLog(), [], 0
    before: dict[str, Any] = {}
    stale = True
    for op, want in zip(ops, expected, strict=True):
        if op["op"] in ("create", "config") and "error" not in want:
            log.config = op.get("config", {})
        if op["op"] == "append" and want.get("message", "") not in NOT_ENCODED and before:
            if "hex" not in op:
                op["hex"] = want["resolved"]["hex"] if "resolved" in want else described(op["batches"])
            if stale:
                log.take(before)
            stale = False
            count += 1
            differences += [f"line {want['line']}: {text}" for text in differences_of(log, op, before, want, fast)]
        else:
            stale = True
        before = want.get("state", {})
    return log, differences, count


def differences_of(
    log: SmallLog, op: dict[str, Any], before: dict[str, Any], want: dict[str, Any], fast: bool
) -> list[str]:
    found = []
    try:
        got: Any = log.append(op, before, fast=fast)
    except (PylogsegError, CorruptionError) as error:
        if want.get("kind") != error.kind:
            found.append(f"got {error.kind} ({error}), Kafka {want.get('kind')} {want.get('message', '')}")
    else:
        answer = want.get("result", {})
        if got != answer:
            found.append(f"got {got}, Kafka {answer or want['message']}")
    state = log.state()
    for part, value in state.items():
        if value != want["state"][part]:
            found.append(f"{part}: got {value}, Kafka {want['state'][part]}")
    return found


def replays(golden: Path) -> list[Path]:
    return sorted(path for path in (golden / "replay").iterdir() if path.is_dir())


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "careful"])
def test_answers_and_states(golden: Path, fast: bool) -> None:
    """With `fast`, the fast validation sees batches first; without, the careful one validates all."""
    total = 0
    for replay in replays(golden):
        ops, expected = lines(replay / "ops.jsonl"), lines(replay / "expected.jsonl")
        _, differences, count = run(ops, expected, fast=fast)
        assert not differences, f"{replay.name}: " + "\n".join(differences)
        total += count
    assert total > 1000


def test_bytes(golden: Path) -> None:
    """Where nothing but appends touched the log, it holds exactly what was prepared; codecs may write other bytes."""
    compared = 0
    for replay in replays(golden):
        ops, expected = lines(replay / "ops.jsonl"), lines(replay / "expected.jsonl")
        if not {op["op"] for op in ops} <= HARMLESS:
            continue
        log, _, _ = run(ops, expected, fast=True)
        if log.recompressed:
            continue
        final = b"".join(path.read_bytes() for path in sorted((replay / "final").rglob("*.log")))
        assert b"".join(log.written) == final, replay.name
        compared += 1
    assert compared >= 5
