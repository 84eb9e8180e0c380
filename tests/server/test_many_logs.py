"""Tests of server/overlays.py. Directories of many logs, as a broker leaves them that was not stopped."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP
from helpers.kafka_clients import PATIENCE_S, RawClient

import pylogseg

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
COUNT = 60
#: Partitions of a topic.
EACH = 500 if IS_DEEP else 150
MOST_BYTES_EACH = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory of a process is in Linux's /proc")
def test_the_indexes_of_open_logs_take_no_memory(tmp_path: Path) -> None:
    """They are 10 MiB each when a log is recovered, of which nearly nothing is written to."""
    for number in range(COUNT):
        shutil.copytree(DATA / "levels-0", tmp_path / f"orders-{number}")
    with pylogseg.serve(tmp_path) as server, RawClient(server.bootstrap_servers) as client:
        before = resident()
        rows = [{"partitionIndex": number, "timestamp": -1} for number in range(COUNT)]
        answer = client.ask(2, 8, {"replicaId": -1, "topics": [{"name": "orders", "partitions": rows}]})
        found = answer["topics"][0]["partitions"]
        assert {(each["errorCode"], each["offset"]) for each in found} == {(0, 350)}
        assert resident() - before < COUNT * MOST_BYTES_EACH


@pytest.mark.long
def test_many_partitions(tmp_path: Path) -> None:
    """A client reads them all at once, a thousand in a deep run: half in formats 0 and 1, half compacted with gaps."""
    kinds = {"old": "legacy-0", "compacted": "cmp-txn-0"}
    wanted = {}
    for topic, source in kinds.items():
        for number in range(EACH):
            shutil.copytree(DATA / source, tmp_path / f"{topic}-{number}")
        wanted[topic] = [record.offset for record in pylogseg.read(DATA / source)]
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')  # so that none is recovered
    points = [f"{topic}-{number}".rpartition("-")[::2] for topic in kinds for number in range(EACH)]
    lines = [f"{topic} {number} {wanted[topic][-1] + 1}" for topic, number in points]
    (tmp_path / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    found: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    with pylogseg.serve(tmp_path) as server:
        client = confluent_kafka.Consumer(
            {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.partition.eof": True,
             "isolation.level": "read_uncommitted", "log_level": 2}
        )  # fmt: skip
        client.assign([confluent_kafka.TopicPartition(topic, int(number), 0) for topic, number in points])
        ends, until = set(), time.monotonic() + PATIENCE_S
        while len(ends) < 2 * EACH:
            assert time.monotonic() < until, f"{len(ends)} ends"
            for message in client.consume(10_000, 0.2):
                where = message.topic(), message.partition()
                if message.error() is None:
                    until = time.monotonic() + PATIENCE_S
                    found[where] += 1
                    sums[where] += message.offset()
                else:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    ends.add(where)
        client.close()
    for topic, offsets in wanted.items():
        for number in range(EACH):
            assert (found[topic, number], sums[topic, number]) == (len(offsets), sum(offsets)), (topic, number)
