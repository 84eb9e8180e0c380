"""Kafka's own topics: columns of what brokers write, groups of a large topic, a large metadata log, the decoder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import in_turn
from rows import Row
from sections import Bench, millions, rate, real_dump

import pylogseg
from pylogseg import encode, scan
from pylogseg.format.messages.framing import encode_coordinator, encode_framed
from pylogseg.values.internal.image import Image
from pylogseg.values.internal.message_arrays import typed_records

TOPIC = "__consumer_offsets"
_UUID = "ad2WYTurTD2u9Tkxi8WdpQ"
_PIECE = 1 << 18
_DUMP_BYTES = 16 << 20


def commits(count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Commits of 400 groups of 50 partitions each: 20,000 keys."""
    for i in range(count):
        group, partition = divmod(i, 50)
        key = {"group": f"group-{group}", "topic": f"topic-{group % 40}", "partition": partition}
        value = {"offset": i, "leaderEpoch": 3, "commitTimestamp": 1_700_000_000_000 + i, "topicId": _UUID}
        yield encode_coordinator("OffsetCommit", key, 4, value)


def metadata(count: int) -> Iterator[tuple[None, bytes]]:
    """Topics with 50 partitions, then changes of their leaders and ISR."""
    topics = 20
    for topic in range(topics):
        topic_id = f"{topic:021d}A"
        yield None, encode_framed("TopicRecord", 0, {"name": f"topic-{topic}", "topicId": topic_id})
        for partition in range(50):
            fields = {
                "partitionId": partition,
                "topicId": topic_id,
                "replicas": [1, 2, 3],
                "isr": [1, 2, 3],
                "leader": 1,
            }
            empty = {"removingReplicas": [], "addingReplicas": [], "directories": [_UUID] * 3}
            yield None, encode_framed("PartitionRecord", 2, fields | empty)
    for i in range(count - 51 * topics):
        fields = {"partitionId": i % 50, "topicId": f"{i // 50 % topics:021d}A", "isr": [1, 2], "leader": i % 2 + 1}
        yield None, encode_framed("PartitionChangeRecord", 2, fields)


def written(folder: Path, count: int, records: list[tuple[bytes | None, bytes | None]]) -> Path:
    """A log of so many records, these over and over; made once."""
    path = folder / f"{0:020d}.log"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for first in range(0, count, _PIECE):
                size = min(_PIECE, count - first)
                some = list(islice(cycle(records), first % len(records), first % len(records) + size))
                offset = np.arange(first, first + size)
                columns = {
                    name: pa.array([pair[i] for pair in some], pa.binary()) for i, name in enumerate(("key", "value"))
                }
                moment = pa.array((1_700_000_000_000 + offset) * 1000, pa.timestamp("us", "UTC"))
                file.write(encode(pa.table({**columns, "offset": offset, "timestamp": moment})))
    return path


def to_columns(path: Path) -> int:
    """Decode all records of a topic's segment into columns, and let go of each chunk."""
    reader = pylogseg.read(path.parent, reuse_buffers=True)
    return sum(table.num_rows for chunk in reader.chunks() for table in typed_records(TOPIC, [chunk]).tables.values())


def cluster_state(bench: Bench) -> list[Row]:
    """What brokers write about themselves."""
    log = written(bench.folder / f"state-{bench.records}" / f"{TOPIC}-0", bench.records, list(commits(20_000)))
    changes = min(bench.records, 1_000_000)
    cluster = written(bench.folder / f"state-{changes}m" / "__cluster_metadata-0", changes, list(metadata(changes)))
    best = in_turn({"columns": bench.timed(lambda: to_columns(log))}, bench.rounds)
    sides = {
        "groups": bench.timed(lambda: pylogseg.cluster_state(log.parent).table("group_offsets")),
        "cluster": bench.timed(lambda: Image.read(str(cluster.parent)).partitions),
    }
    best |= in_turn(sides, 2, warm=False)
    gigabytes = log.stat().st_size / 1e9
    return [
        Row(f"{TOPIC} to columns", rate(bench.records, best["columns"]), "M records/s", "", None, 8, "short texts"),
        Row(f"offsets of groups, a topic of {gigabytes:.2f} GB", 1000 * best["groups"], "ms", "", None, 3000,
            "the map of keys, two passes"),
        Row(f"state of a metadata log of {changes:,} records", 1000 * best["cluster"], "ms", "", None, 2000,
            "the last change of each partition and field"),
        _decoder(bench, log),
    ]  # fmt: skip


def _decoder(bench: Bench, log: Path) -> Row:
    """The dump with the decoder of offsets, less the start, against Kafka's."""
    style = ["--style", "kafka"]
    limit, few = (["--offsets-decoder", "--max-bytes", str(size)] for size in (_DUMP_BYTES, 20_000))
    count = int(scan(log.read_bytes()[:_DUMP_BYTES], crc=False).batches.count.sum())
    command = [sys.executable, "-m", "pylogseg", "dump", *style, "--files", str(log)]
    sides = {
        "all": lambda: bench.clock.of_process([*command, *limit]),
        "start": lambda: bench.clock.of_process([*command, *few]),
    }
    best = in_turn(sides, 2, warm=False)
    theirs = real_dump(bench, str(log), limit, few) if bench.kafka is not None else None
    return Row("dump with the decoder of offsets, less the start", rate(count, best["all"] - best["start"]),
               "M records/s", "kafka-dump-log.sh, less the start", millions(count, theirs), 10,
               "joining texts")  # fmt: skip
