#!/usr/bin/env python3
"""Records of a tier: read where they lie, and by consumers through the broker's remote fetch.

    tier_rates.py --plugin DIR [--of plain|sealed] [--records N] [--rounds N]

DIR has the jars of Aiven's plugin (README.md). A broker uploads a topic in plain chunks of 4 MiB and, restarted with
other settings, one by zstd and AES; local retention deletes what was uploaded. The same records are then read in turn
by `read_arrow` of the tier, by Kafka's own consumer-perf-test and by librdkafka, which get them from the broker. The
best round of each counts: by the clock, and by the processors' time of all that takes part (Linux; that of Java has
its start). The broker has a chunk cache that reads 16 MiB ahead and is smaller than the topic, and consumers may fetch
8 MiB at once. Some minutes on an idle machine. Needs confluent-kafka and cryptography.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from aiven_plugin import broker_lines, in_folder, key_lines, make_keys
from tiers import broker, server

import pylogseg
from pylogseg.reading.seek import end_offset

_FETCH_BYTES = 8 << 20
_WAIT_S = 300
_CACHE = "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache"


def fill(folder: Path, topic: str, records: int) -> None:
    """Records of 100 bytes that zstd makes half as large, in batches of 16 KiB."""
    admin = AdminClient({"bootstrap.servers": server(folder)})
    settings = {"remote.storage.enable": "true", "segment.bytes": str(32 << 20), "local.retention.ms": "1000"}
    for made in admin.create_topics([NewTopic(topic, 1, 1, config=settings)]).values():
        made.result(60)
    chance = random.Random(1)
    some = [chance.randbytes(50).hex().encode() for _ in range(100_000)]
    producer = Producer({"bootstrap.servers": server(folder), "linger.ms": 50, "batch.size": 16384})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, some[number % len(some)])
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_WAIT_S):
        sys.exit("records were not taken")


def only_in_tier(folder: Path, topic: str, records: int, url: str, ring: Path) -> None:
    """Wait until all records are in the tier, and none on the disk: local retention rolls the active segment too."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        local = [int(path.stem) for path in (folder / "data0" / f"{topic}-0").glob("*.log")]
        if local == [records]:
            (part,) = pylogseg.open_tier(url, ring).topics[topic]
            if end_offset(part.segments) == records:
                return
        time.sleep(0.5)
    sys.exit(f"segments of {topic} are still on the disk")


def by_tier(url: str, ring: Path, topic: str, count: int) -> float:
    """Read all of the tier as Arrow; records in a second, with the listing."""
    start = time.perf_counter()
    found = sum(batch.num_rows for batch in pylogseg.read_arrow(pylogseg.open_tier(url, ring), topic))
    if found != count:
        sys.exit(f"{found} records in the tier, not {count}")
    return count / (time.perf_counter() - start)


def by_java(folder: Path, topic: str, count: int) -> float:
    """Kafka's consumer-perf-test; the rate that it prints for fetching, without its start and the group's."""
    jars = os.environ.get("KAFKA_JARS") or Path(
        os.environ.get("ORACLE_HOME") or Path.home() / ".cache" / "pylogseg-oracle", "kafka-4.3.0"
    )
    words = ["java", "-Xms512m", "-Xmx512m", "-cp", f"{jars}/*", "org.apache.kafka.tools.ConsumerPerformance",
             "--bootstrap-server", server(folder), "--topic", topic, "--num-records", str(count), "--timeout", "60000",
             "--fetch-size", str(_FETCH_BYTES)]  # fmt: skip
    done = subprocess.run(words, check=True, capture_output=True, encoding="utf-8")
    head, row = [line.split(", ") for line in done.stdout.strip().splitlines()[-2:]]
    found = dict(zip(head, row, strict=True))
    if int(found["data.consumed.in.nMsg"]) < count:
        sys.exit(done.stdout)
    return float(found["fetch.nMsg.sec"])


def by_librdkafka(folder: Path, topic: str, count: int) -> float:
    """A consumer of librdkafka, in Python, by lists of 10,000 messages."""
    consumer = Consumer({"bootstrap.servers": server(folder), "group.id": "rates", "enable.auto.commit": False,
                         "fetch.message.max.bytes": _FETCH_BYTES, "queued.max.messages.kbytes": 1 << 18,
                         "queued.min.messages": 1_000_000})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    start, found = time.perf_counter(), 0
    while found < count and time.perf_counter() - start < _WAIT_S:
        found += sum(message.error() is None for message in consumer.consume(10_000, 1.0))
    seconds = time.perf_counter() - start
    consumer.close()
    if found < count:
        sys.exit(f"librdkafka got {found} records, not {count}")
    return found / seconds


def processor_seconds(folder: Path) -> float:
    """What this process, its children that ended, and the broker took of the processors."""
    fields = Path(f"/proc/{(folder / 'run' / 'pid').read_text().strip()}/stat").read_text().rpartition(")")[2].split()
    of_broker = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(os.times()[:4]) + of_broker


def measure(plugin: Path, scratch: Path, of: list[str], records: int, rounds: int) -> None:
    """Upload, read in turn, print."""
    place, ring, folder = in_folder(scratch / "tier"), make_keys(scratch / "keys", "k"), scratch / "broker"
    more = {"rlmm.config.remote.log.metadata.topic.replication.factor": 1, "log.index.size.max.bytes": 10 << 20}
    cache = ["chunk.size=4194304", f"fetch.chunk.cache.class={_CACHE}", f"fetch.chunk.cache.size={48 << 20}",
             f"fetch.chunk.cache.prefetch.max.size={16 << 20}"]  # fmt: skip
    os.environ["BROKER_OPTIONS"] = "-Xms2g -Xmx2g -XX:+UseG1GC"
    try:
        for topic in of:
            lines = [] if topic == "plain" else ["compression.enabled=true", *key_lines(ring, "k")]
            broker("stop", folder)
            broker("start", folder, *broker_lines(plugin, place, [*cache, *lines], more))
            fill(folder, topic, records)
            only_in_tier(folder, topic, records, place.url, ring)
        for topic in of:
            ways: dict[str, Callable[[], float]] = {
                "tier": partial(by_tier, place.url, ring, topic, records),
                "Java": partial(by_java, folder, topic, records),
                "librdkafka": partial(by_librdkafka, folder, topic, records),
            }
            rates, costs = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, float("inf"))
            for _ in range(rounds):
                for name, way in ways.items():
                    before = processor_seconds(folder)
                    rates[name] = max(rates[name], way())
                    costs[name] = min(costs[name], processor_seconds(folder) - before)
            print(f"{'plain' if topic == 'plain' else 'zstd and AES'}, {records:,} records of 100 bytes:")
            for name in ways:
                faster, cheaper = rates["tier"] / rates[name], costs[name] / costs["tier"]
                print(
                    f"  {name}: {rates[name] / 1e6:.2f} M records/s, {costs[name]:.2f} s of processors;"
                    f" the tier is {faster:.1f} times as fast, for 1/{cheaper:.1f} of the processors",
                    flush=True,
                )
    finally:
        broker("kill", folder)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plugin", type=Path, required=True, help="the folder with the jars of the plugin")
    parser.add_argument("--of", choices=("plain", "sealed"), nargs="+", default=["plain", "sealed"])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="tier-rates-"))
    try:
        measure(options.plugin.resolve(), scratch, options.of, options.records, options.rounds)
    finally:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
