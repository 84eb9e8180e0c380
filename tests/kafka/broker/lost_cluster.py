#!/usr/bin/env python3
"""The drill of `docs/lost-cluster.md`, with real brokers.

    lost_cluster.py [--keep DIR]

A broker gets topics, and groups that read a part of them; it is killed while they do. The commands of the page run one
after the other, with a second broker in the place of the new cluster. Then consumers of the same groups start there:
in each partition they have to get exactly the records from the group's last offset on. Half a minute; exit code 0 if
all is well. Needs kafka-python.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

# A neighbour, which is no package:
from one_broker import HERE, Broker

PAGE = HERE.parents[2] / "docs" / "lost-cluster.md"
TOPICS = {"orders": 3, "payments": 1}
GROUPS = {"billing": 150, "audit": 40}
_RECORDS = 200

Committed = dict[TopicPartition, int]


def fill(server: str) -> dict[str, Committed]:
    """Topics with records, and groups that read some; returns the last offsets that they committed."""
    admin = KafkaAdminClient(bootstrap_servers=server)
    admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    producer = KafkaProducer(bootstrap_servers=server)
    for name, count in TOPICS.items():
        for i in range(count * _RECORDS):
            producer.send(name, b"%d" % i, partition=i % count)
    producer.flush()
    found = {}
    for group, wanted in GROUPS.items():
        consumer = KafkaConsumer(
            *TOPICS, bootstrap_servers=server, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        count = 0
        while count < wanted:
            count += sum(map(len, consumer.poll(timeout_ms=500, max_records=10).values()))
            consumer.commit()
        consumer.poll(timeout_ms=500, max_records=7)  # read, and not committed
        found[group] = {at: consumer.committed(at) or 0 for at in consumer.assignment()}
    return found  # members, and producer, are there when the broker is killed


def shims(folder: Path, new: Path) -> None:
    """Put Kafka's scripts, as the page calls them, into a folder."""
    classes = subprocess.run(
        ["bash", HERE.parent / "kafka.sh", "tools"], check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()
    java = f"exec java -XX:TieredStopAtLevel=1 -cp '{classes}' org.apache.kafka.tools"
    texts = {
        "kafka-topics.sh": f'{java}.TopicCommand "$@"',
        "kafka-consumer-groups.sh": f'{java}.consumer.group.ConsumerGroupCommand "$@"',
        "kafka-server-start.sh": f"exec bash '{HERE / 'broker.sh'}' start '{new}' log.dirs='{new / 'data0'}'",
        "kafka-server-stop.sh": f"exec bash '{HERE / 'broker.sh'}' stop '{new}'",
        "pylogseg": f"exec '{sys.executable}' -m pylogseg \"$@\"",
    }
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def run_page(root: Path, old: Path, new: Path, server: str) -> None:
    """Run the commands of the page; each has to end well."""
    shims(root / "bin", new)
    words = {"/mnt/old": str(old / "data0"), "/data/new": str(new / "data0"), "HOST:PORT": server}
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            for word, place in words.items():
                line = line.replace(word, place)
            script = f'export PATH="{root / "bin"}:$PATH"; {line}'
            done = subprocess.run(
                ["bash", "-c", script], cwd=root, capture_output=True, encoding="utf-8", check=False, timeout=120
            )
            print(f"$ {line}\n{done.stdout}", end="", flush=True)
            if done.returncode:
                sys.exit(f"exit code {done.returncode}: {done.stderr[-3000:]}")


def read_on(server: str, group: str, committed: Committed) -> list[str]:
    """Start a consumer of a group; what it reads has to be what comes behind its offsets. Returns what is wrong."""
    consumer = KafkaConsumer(
        *TOPICS, bootstrap_servers=server, group_id=group, auto_offset_reset="none", enable_auto_commit=False
    )
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {at: [] for at in committed}
    wanted = {
        at: [(n, b"%d" % (n * TOPICS[at.topic] + at.partition)) for n in range(offset, _RECORDS)]
        for at, offset in committed.items()
    }
    end = time.monotonic() + 60
    while time.monotonic() < end and sum(map(len, found.values())) < sum(map(len, wanted.values())):
        for at, records in consumer.poll(timeout_ms=500).items():
            found[at] += [(record.offset, record.value) for record in records]
    consumer.close(autocommit=False)
    print(f"{group}: read on from {sum(committed.values())}: {sum(map(len, found.values()))} records", flush=True)
    return [f"{group}, {at}: {found[at][:2]}, not {wanted[at][:2]}" for at in committed if found[at] != wanted[at]]


def main() -> int:
    """Run the drill; exit code 1 if a consumer does not go on where it stood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the brokers' folders there")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lost-cluster-", dir=options.keep))
    old, new = root / "old", root / "new"
    first, second = Broker(old), Broker(new)
    try:
        # A restore without high watermarks ends with exit code 1, so the broker writes them before it is killed.
        first("start", f"log.dirs={old / 'data0'}", "replica.high.watermark.checkpoint.interval.ms=100")
        committed = fill(first.address)
        first("kill")
        second("start", f"log.dirs={new / 'data0'}")
        run_page(root, old, new, second.address)
        wrong = [line for group, offsets in committed.items() for line in read_on(second.address, group, offsets)]
        print("\n".join(wrong) or "all groups went on where they stood")
        return 1 if wrong else 0
    finally:
        first("kill")
        second("kill")
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
