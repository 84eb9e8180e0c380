"""Tests of log/log.py and log/retention.py. The engine beside a real Kafka: the golden operation lists give the same
answers, states and files.
"""

import io
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import compare
import fuzz
import pytest
from helpers.depth import some_of
from random_lists import random_lists
from replay import replay

import pylogseg
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES

REPLAY = Path(__file__).parents[1] / "kafka" / "replay.py"
SCENARIOS = [
    "append-and-roll", "append-as-given", "appended-by-a-follower", "clean-compressed", "clean-grouping",
    "clean-keeps-the-last-batch-of-a-producer", "clean-legacy", "clean-overwritten-keys", "clean-then-delete",
    "clean-tombstones", "clean-transactions", "clean-with-a-small-offset-map", "cleanable-bounds",
    "codecs-as-given", "codecs-by-the-broker", "delete-records", "flush-policy", "idempotent-producers",
    "leader-epochs", "legacy-formats", "preallocated", "raft-control-batches", "read-committed",
    "recover-after-crash", "recover-after-crash-with-recovery-point", "recover-bad-crc-at-the-end",
    "recover-bad-crc-in-the-middle", "recover-clean-shutdown", "recover-corrupt-epochs",
    "recover-corrupt-snapshot", "recover-empty-epochs", "recover-garbage-tail", "recover-huge-length",
    "recover-index-of-odd-size", "recover-index-of-zeros", "recover-leftover-files", "recover-log-start-inside",
    "recover-log-start-past-the-end", "recover-missing-first-segment", "recover-missing-indexes",
    "recover-missing-indexes-clean", "recover-missing-snapshots", "recover-orphan-index",
    "recover-overflowed-segment", "recover-swap-beside-the-original", "recover-swap-complete",
    "recover-swap-index-only", "recover-swap-with-a-higher-cleaned", "recover-swap-with-a-lower-cleaned",
    "recover-swap-without-index", "recover-time-index-backwards", "recover-torn-tail-1", "recover-torn-tail-30",
    "recover-torn-tail-62", "recover-torn-tail-80", "recover-txn-index-corrupt", "recover-unknown-magic",
    "recover-zero-tail", "refused-batches", "retention-by-modification-time", "retention-by-size",
    "retention-by-time", "roll-on-offset-overflow", "roll-rules", "timestamps", "transactions", "truncation",
]  # fmt: skip


def test_every_scenario_is_listed(golden):
    assert {folder.name for folder in (golden / "replay").iterdir()} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_kafka(golden, tmp_path, name, request):
    folder = golden / "replay" / name
    operations = [json.loads(line) for line in (folder / "ops.jsonl").read_text(encoding="utf-8").splitlines()]
    if name in fuzz.RECODED or any(operation.get("compare") == "content" for operation in operations):
        request.getfixturevalue("kafka")  # files are compared by what Kafka reads in them
    random.seed(0)
    with (tmp_path / "out.jsonl").open("w", encoding="utf-8") as out:
        replay(operations, tmp_path / "work", out)
    assert compare.compare(folder, tmp_path, recoded=name in fuzz.RECODED) == []


def test_batches_that_decompress_to_much_are_cleaned(kafka, tmp_path, monkeypatch):
    """In parts of down to one batch; and one becomes more than a reader takes."""
    sizes = [40_000] * 12 + [DECOMPRESSED_LIMIT_BYTES // 4]
    create = {"cleanup.policy": "compact", "segment.bytes": 100_000, "index.interval.bytes": 120}
    operations = [{"op": "create", "config": create, "now": 1_700_000_000_000}]
    for i, (size, codec) in enumerate(zip(sizes, ["zstd", "gzip", "lz4", "snappy"] * 4, strict=False)):
        records = [(1_700_000_000_000, b"key %d" % (7 * i % 20 + j), b"%d" % i + b"." * size) for j in range(5)]
        batch = pylogseg.encode(records, base_offset=5 * i, leader_epoch=0, compression=codec, batch_bytes=2**31 - 1)
        operations.append({"op": "append", "hex": batch.hex(), "as": "follower"})
    operations += [{"op": "high_watermark", "offset": "end"}, {"op": "roll"}, {"op": "clean", "compare": "content"}]
    operations.append({"op": "capture", "keep": "final", "compare": "content"})
    fuzz.on_kafka([("much", operations)], tmp_path)
    monkeypatch.setattr("pylogseg.format.compression.ARENA_BYTES", 300_000)
    fuzz.on_ours(tmp_path / "much")
    monkeypatch.undo()
    assert fuzz.compared([tmp_path / "much"]) == {"much": []}


def test_producers_after_retention_took_all_their_records(kafka, tmp_path):
    """In memory they stay; the next opening has forgotten those of whom nothing is left, with the snapshot."""
    old, now = 1_700_000_000_000 - 60_000, 1_700_000_000_000

    def idempotent(producer, sequence, timestamp):
        rows = [{"timestamp": timestamp, "key": "k", "value": "v"}] * 3
        batch = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "records": rows}
        return {"op": "append", "batches": [batch]}

    operations = [
        {"op": "create", "config": {"retention.ms": "1000", "segment.bytes": "16384"}, "now": now},
        *(idempotent(producer, 0, old) for producer in (1, 2)),
        {"op": "append", "batches": [{"records": [{"timestamp": old, "key": "k", "value": "v"}]}]},
        {"op": "high_watermark", "offset": "end"},
        {"op": "retention"},
        {"op": "capture"},
        idempotent(2, 3, now),  # known still: the sequence goes on
        {"op": "close"},
        {"op": "capture"},
        {"op": "open", "clean": True, "recovery_point": 10, "log_start": 7},
        idempotent(2, 6, now),
        {"op": "high_watermark", "offset": "end"},
        {"op": "advance", "ms": 120_000},
        {"op": "retention"},
        {"op": "close"},
        {"op": "open", "clean": True, "recovery_point": 13, "log_start": 13},
        idempotent(2, 9, now + 120_000),  # forgotten: any sequence begins again
        {"op": "capture", "keep": "final"},
    ]
    fuzz.on_kafka([("retention", operations)], tmp_path)
    fuzz.on_ours(tmp_path / "retention")
    assert fuzz.compared([tmp_path / "retention"]) == {"retention": []}
    lines = (tmp_path / "retention" / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if "error" in json.loads(line)]
    states = [json.loads(line).get("state") or {} for line in lines]
    known = [len(state.get("producers", [])) for state in states]
    assert known == [0, 1, 2, 2, 2, 2, 2, 2, 0, 0, 2, 2, 2, 2, 2, 0, 0, 1, 1]


def test_producers_whose_ids_share_a_bucket_of_a_map(kafka, tmp_path):
    """Of one append, and of one segment that a load reads, Kafka lists the one that came later first."""

    def batches(first, producers):
        rows = [{"timestamp": 1_700_000_000_000, "key": "k", "value": "v"}]
        return [
            {"base_offset": first + at, "leader_epoch": 0, "producer_id": producer, "producer_epoch": 0,
             "base_sequence": 0, "records": rows}
            for at, producer in enumerate(producers)
        ]  # fmt: skip

    ids = [1, 17, 33, 49, 5, 21, 65, 4_294_967_297]
    operations = [
        {"op": "create"},
        {"op": "append", "as": "follower", "batches": batches(0, ids)},
        {"op": "snapshot"},
        {"op": "capture"},
        {"op": "append", "as": "follower", "batches": batches(8, [97, 81, *range(200, 240), 113])},
        {"op": "close"},
        {"op": "capture"},
        *({"op": "file", "action": "delete", "name": f"{at:020}.snapshot"} for at in (8, 51)),
        {"op": "open", "clean": False},
        {"op": "capture", "keep": "final"},
    ]
    fuzz.on_kafka([("buckets", operations)], tmp_path)
    fuzz.on_ours(tmp_path / "buckets")
    assert fuzz.compared([tmp_path / "buckets"]) == {"buckets": []}


def test_an_index_of_times_with_little_room(kafka, tmp_path):
    """It takes no entry where no time is later, so it has room for as many batches as the index of offsets."""
    rows = [{"timestamp": 1_700_000_000_000, "key": f"key-{i}", "value": "v" * 60} for i in range(5)]
    config = {"segment.index.bytes": 40, "index.interval.bytes": 50, "segment.bytes": 4000}
    operations = [
        {"op": "create", "config": config, "now": 1_700_000_000_000},
        {"op": "append", "batches": [{"magic": 1, "compression": "none", "records": rows}], "record_version": 1},
        {"op": "roll"},
        {"op": "capture"},
        {"op": "capture", "keep": "final"},
    ]
    fuzz.on_kafka([("room", operations)], tmp_path)
    fuzz.on_ours(tmp_path / "room")
    assert fuzz.compared([tmp_path / "room"]) == {"room": []}
    row = json.loads((tmp_path / "room" / "expected.jsonl").read_text(encoding="utf-8").splitlines()[3])
    assert row["result"]["00000000000000000000.index"]["size"] == 32  # more than the 2 that fit the other


def test_random_lists(kafka, tmp_path):
    """`fuzz.py` takes fresh ones, as many as one likes."""
    seed = 970_288
    lists = list(random_lists(seed, some_of(range(20), 7)))
    fuzz.on_kafka(lists, tmp_path)
    folders = [tmp_path / name for name, _ in lists]
    for folder in folders:
        fuzz.on_ours(folder)
    found = fuzz.compared(folders)
    unknown = {
        folder.name: found[folder.name][:5]
        for folder in folders
        if found[folder.name] and fuzz.known_difference(folder, found[folder.name]) is None
    }
    assert not unknown, f"see them again: tests/kafka/fuzz.py --seed {seed} --lists 20 --keep DIR"


def test_a_difference_is_seen(golden, tmp_path):
    folder = golden / "replay" / "append-and-roll"
    shutil.copytree(folder, tmp_path / "got")
    answers = tmp_path / "got" / "expected.jsonl"
    answers.chmod(0o644)
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    rows[3]["result"]["last_offset"] += 1
    rows[5]["state"]["end"] += 1
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log = next((tmp_path / "got" / "final").glob("*.log"))
    log.chmod(0o644)
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    found = compare.compare(folder, tmp_path / "got")
    assert [text.partition(":")[0] for text in found] == [
        "line 4 append.last_offset",
        "line 6 append state.end",
        f"final/{log.name}",
    ]


def test_from_the_command_line(golden, tmp_path):
    folder = golden / "replay" / "append-and-roll"
    command = [sys.executable, REPLAY, folder / "ops.jsonl", tmp_path / "work"]
    done = subprocess.run([*command, tmp_path / "out.jsonl"], check=True, capture_output=True, text=True)
    assert done.stdout == ""
    assert compare.compare(folder, tmp_path) == []
    usage = subprocess.run(command[:2], check=False, capture_output=True, text=True)
    assert usage.returncode == 2
    assert "OPS.jsonl" in usage.stderr


FIELDS_THAT_NOBODY_READS = [
    {"op": "read", "offset": 0, "isolation_level": "txn_committed"},
    {"op": "append", "batches": [{"records": [], "compresion": "gzip"}]},
    {"op": "append", "batches": [{"records": [{"time": 5}]}]},
    {"op": "reed", "offset": 0},
]


@pytest.mark.parametrize("op", FIELDS_THAT_NOBODY_READS)
def test_our_replay_refuses_what_it_does_not_read(tmp_path, op):
    with pytest.raises(LookupError):
        replay([{"op": "create"}, op], tmp_path, io.StringIO())


def test_the_oracle_refuses_the_same(kafka):
    folder = kafka.scratch / "refused"
    for number, op in enumerate(FIELDS_THAT_NOBODY_READS):
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jsonl").write_text("\n".join(map(json.dumps, [{"op": "create"}, op])), encoding="utf-8")
        done = kafka.run("replay", folder / f"{number}.jsonl", folder / str(number))
        assert done.returncode != 0
        assert "unknown" in done.stderr
