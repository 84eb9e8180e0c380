"""The files that all clients read: golden partitions of many kinds, adopted by one broker, with some of its own.

`corpus(golden)` makes them once and keeps them in the cache of `kafka.sh`; a minute.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent / "broker"))

from one_broker import Broker  # noqa: E402  (a neighbour, which is no package)

CACHE = Path(os.environ.get("ORACLE_HOME") or Path.home() / ".cache" / "pylogseg-oracle")
#: The broker that begins it: compacted topics, cleaned twice. The small one begins with nothing.
BASE = "compact-3-cleaned"
#: Topics of other golden brokers, with the numbers of their partitions.
ADOPTED = {
    "codecs": {**{f"codec-{name}": 2 for name in ("none", "gzip", "snappy", "lz4", "zstd")}, "mixed": 1, "levels": 1,
               "timestamps": 1, "large": 2, "append-time-zstd": 2, "empty": 1, "Name.with_dots-and-2": 12},
    "txn": {"txn-a": 3, "txn-b": 2, "txn-zstd": 1, "groups-in": 2},
    "retention": {"del-records": 2, "ret-bytes": 1},
}  # fmt: skip
#: Those of a recording that is kept in the repository.
SMALL = {
    "codecs": {"codec-zstd": 1, "codec-lz4": 1, "timestamps": 1, "Name.with_dots-and-2": 12},
    "compact-3-cleaned": {"cmp-short": 1},
    "txn": {"txn-a": 3, "groups-in": 2},
    "retention": {"del-records": 1},
}
#: Formats 0 and 1 come from no broker of today.
LEGACY = ROOT / "examples" / "data" / "legacy-0"
MANY, MANY_SMALL = 500, 20
#: Records of the topic `epochs` that each start of the broker adds, in a new leader epoch.
EACH_EPOCH = 10
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
               "cleaner-offset-checkpoint")  # fmt: skip


def corpus(golden: Path, *, small: bool = False) -> Path:
    """Return the folder with `data0` and `data1`, which nobody changes; `golden` is the folder `broker-4.3`.

    Each version of Kafka has its own: a broker does not start on the disks of a newer one.
    """
    text = Path(__file__).read_bytes() + bytes([small]) + os.environ.get("KAFKA_VERSION", "4.3.0").encode()
    folder = CACHE / f"clients-{hashlib.sha256(text).hexdigest()[:12]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="clients.", dir=CACHE))
        try:
            make(golden, scratch, small=small)
            shutil.rmtree(scratch / "run")
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def make(golden: Path, folder: Path, *, small: bool) -> None:
    """Let a broker make the topics and write its own, then put the golden partitions in their places."""
    adopted, many = (SMALL, MANY_SMALL) if small else (ADOPTED, MANY)
    for data in ("data0", "data1") if not small else ():
        shutil.copytree(golden / BASE / data, folder / data)
    broker = Broker(folder)
    for turn in range(3):
        broker.start()
        bootstrap = broker.address
        if turn == 0:
            create(bootstrap, adopted, many)
        produce(bootstrap, turn, many)
        broker("stop")
    for scenario, topics in adopted.items():
        for topic, count in topics.items():
            for number in range(count):
                (found,) = (golden / scenario).glob(f"data?/{topic}-{number}")
                adopt(folder, found)
    adopt(folder, LEGACY)
    for data in ("data0", "data1"):
        (folder / data / ".kafka_cleanshutdown").unlink()
    broker.start()  # it recovers what it adopted, and writes its checkpoints
    broker("stop")


def create(bootstrap: str, adopted: dict[str, dict[str, int]], many: int) -> None:
    """Create the topics."""
    counts = {topic: count for topics in adopted.values() for topic, count in topics.items()}
    counts.update(legacy=1, epochs=1, many=many)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [confluent_kafka.admin.NewTopic(topic, num_partitions=count) for topic, count in counts.items()]
    for future in admin.create_topics(new, operation_timeout=60).values():
        future.result(60)


def produce(bootstrap: str, turn: int, many: int) -> None:
    """Add records to `epochs`; at the first turn to `many` too, and a commit, so that the broker makes its topic."""
    client = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(EACH_EPOCH):
        client.produce("epochs", f"turn {turn}, record {number}".encode(), partition=0)
    if turn == 0:
        for number in range(many):
            client.produce("many", f"record of partition {number}".encode(), partition=number)
    if client.flush(60):
        sys.exit("the broker did not take the records")
    committing = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "of-the-corpus", "log_level": 0})
    place = confluent_kafka.TopicPartition("epochs", 0, 5, "half")
    for left in reversed(range(60)):
        try:
            committing.commit(offsets=[place], asynchronous=False)
            break
        except confluent_kafka.KafkaException:  # the coordinator is on its way
            if not left:
                raise
            time.sleep(1)
    committing.close()


def adopt(folder: Path, partition: Path) -> None:
    """Put a partition's files in the place of the new one, whose id stays."""
    (place,) = folder.glob(f"data?/{partition.name}")
    of_topic = (place / "partition.metadata").read_bytes()
    shutil.rmtree(place)
    shutil.copytree(partition, place)
    (place / "partition.metadata").write_bytes(of_topic)
    topic, _, number = partition.name.rpartition("-")
    for name in CHECKPOINTS:
        rows = [row for row in lines(place.parent / name) if row[:2] != [topic, number]]
        if name == "log-start-offset-checkpoint":
            rows += [row for row in lines(partition.parent / name) if row[:2] == [topic, number]]
        text = "\n".join(["0", str(len(rows)), *map(" ".join, rows)])
        (place.parent / name).write_text(text + "\n")


def lines(checkpoint: Path) -> list[list[str]]:
    """Topic, partition and offset of each line of a checkpoint."""
    return [line.split(" ") for line in checkpoint.read_text().splitlines()[2:]] if checkpoint.exists() else []
