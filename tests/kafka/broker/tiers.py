#!/usr/bin/env python3
"""Tiered storage with real brokers: what is read from it, checked, and restored.

    tiers.py GOLDEN [--keep DIR] [--seed N]

GOLDEN is the folder of the unpacked golden data. First a fresh broker opens what `pylogseg restore` made of the golden
tier that Aiven's plugin encrypted. Then a broker uploads segments by Kafka's own LocalTieredStorage (test jars from
Maven), with transactions, while local retention deletes what was uploaded; it is killed; what its consumers got, with
both isolations, has to be what the disk and its tier together give, `verify` has to find nothing, and a new broker has
to serve the same from what was restored, without a warning. A minute or two; exit code 0 if all is well.
Needs confluent-kafka.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import pylogseg

HERE = Path(__file__).resolve().parent
ISOLATIONS = ("read_uncommitted", "read_committed")
#: Maven Central has no test jars of 4.4: those of 4.3, whatever the broker is.
JARS = ("kafka-storage:4.3.0:jar:test", "kafka-clients:4.3.0:jar:test", "kafka-clients:4.3.0:jar")

Rows = list[tuple[Any, ...]]


def broker(command: str, folder: Path, *lines: str) -> str:
    """Run broker.sh; a broker has one log directory. Returns what it prints."""
    more = [f"log.dirs={folder / 'data0'}", *lines] if command == "start" else list(lines)
    done = subprocess.run(
        ["bash", HERE / "broker.sh", command, folder, *more], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    )
    return done.stdout


def server(folder: Path) -> str:
    """Where a broker listens."""
    return f"127.0.0.1:{(folder / 'run' / 'port').read_text().strip()}"


def make_topic(folder: Path, partitions: int, **settings: str) -> None:
    """Make the topic."""
    admin = AdminClient({"bootstrap.servers": server(folder)})
    for made in admin.create_topics([NewTopic("orders", partitions, 1, config=settings)]).values():
        made.result(30)


def consumed(folder: Path, isolation: str) -> Rows:
    """What a consumer gets."""
    rows = []
    for line in broker("consume", folder, "orders", "--isolation", isolation).splitlines():
        row = json.loads(line)
        rows.append((row["partition"], row["offset"], row["timestamp"], row["key"], row["value"]))
    return sorted(rows)


def read(disk: pylogseg.Disk, isolation: Any) -> Rows:
    """What pylogseg reads, in the words of the consumer."""

    def shown(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    records = pylogseg.read(disk, "orders", isolation_level=isolation)
    return sorted((r.partition, r.offset, r.timestamp, shown(r.key), shown(r.value)) for r in records)


def check(what: str, found: Rows, wanted: Rows) -> None:
    """Compare rows, and say how many there are."""
    print(f"{what}: {len(found)} records", flush=True)
    if found != wanted or not found:
        different = next((pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]), None)
        sys.exit(f"{what}: {len(found)} records, not {len(wanted)}; first difference {different}")


def check_words(folder: Path) -> None:
    """A broker must not complain about the partitions."""
    log = (folder / "run" / "server.log").read_text(encoding="utf-8")
    words = [line for line in log.splitlines() if re.search(r"\b(WARN|ERROR)\b", line) and "orders-" in line]
    if words:
        sys.exit("the broker complains:\n" + "\n".join(words[:5]))


def shell(*words: object) -> str:
    """Run a command of the shell, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-m", "pylogseg", *map(str, words)], check=False, capture_output=True, encoding="utf-8"
    )
    print(f"$ pylogseg {' '.join(map(str, words))}\n{done.stdout}", end="", flush=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def serve_restored(folder: Path, partitions: int, wanted: dict[str, Rows], *words: object) -> None:
    """Make a new cluster, restore into it, and compare what its consumers get."""
    broker("start", folder)
    try:
        make_topic(folder, partitions)
        broker("stop", folder)
        shell("restore", *words[:1], folder / "data0", "orders", "--overwrite", *words[1:])
        broker("start", folder)
        for isolation in ISOLATIONS:
            check(f"restored, {isolation}", consumed(folder, isolation), wanted[isolation])
        check_words(folder)
        broker("stop", folder)
    finally:
        broker("kill", folder)


def from_golden(golden: Path, scratch: Path) -> None:
    """A broker opens what was made of encrypted objects."""
    folder = golden / "tier" / "aiven-zstd-aesgcm"
    url, keys = f"aiven+file://{folder}", folder / "private.pem"
    disk = pylogseg.open_tier(url, keys)
    serve_restored(scratch / "golden", 2, {i: read(disk, i) for i in ISOLATIONS}, url, "--keys", keys)


def jars(scratch: Path) -> str:
    """The test jars with LocalTieredStorage."""
    target = scratch / "jars"
    for jar in JARS:
        subprocess.run(
            ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
             f"-Dartifact=org.apache.kafka:{jar}", f"-DoutputDirectory={target}"], check=True, cwd=scratch
        )  # fmt: skip
    whole = target / "kafka-clients-4.3.0.jar"
    with zipfile.ZipFile(whole) as jar:  # what the storage uses of it, and 4.4 has in another package
        jar.extractall(target / "moved", [name for name in jar.namelist() if "/utils/LogContext" in name])
    whole.unlink()
    return ":".join([f"{target / 'moved'}/", *map(str, sorted(target.glob("*.jar")))])


def tier_lines(scratch: Path, tier: Path) -> list[str]:
    """Settings of a broker that uploads to a tier."""
    return [
        "remote.log.storage.system.enable=true",
        "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        f"remote.log.storage.manager.class.path={jars(scratch)}",
        f"rsm.config.dir={tier}",
        "remote.log.metadata.manager.listener.name=PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor=1",
        "rlmm.config.remote.log.metadata.topic.num.partitions=2",
        "remote.log.manager.task.interval.ms=500",
        "log.retention.check.interval.ms=500",
    ]


def fill(folder: Path, chance: random.Random) -> None:
    """Records in transactions and outside of them."""
    plain = Producer({"bootstrap.servers": server(folder), "linger.ms": 5})
    for number in range(4):
        careful = Producer({"bootstrap.servers": server(folder), "transactional.id": f"t{number}"})
        careful.init_transactions(30)
        for _ in range(5):
            careful.begin_transaction()
            for n in range(chance.randrange(1, 60)):
                careful.produce("orders", b"in a transaction %d" % n, b"t%d" % n, partition=chance.randrange(2))
            careful.flush(30)
            (careful.abort_transaction if chance.random() < 0.4 else careful.commit_transaction)(30)
            for n in range(chance.randrange(50, 200)):
                plain.produce("orders", b"%d " % n + chance.randbytes(40).hex().encode(), b"k%d" % n,
                              partition=chance.randrange(2))  # fmt: skip
            plain.flush(30)


def uploaded(tier: Path) -> Iterator[Path]:
    """Segments that were uploaded."""
    return tier.rglob("*.log")


def live(scratch: Path, chance: random.Random) -> None:
    """A broker with a tier, killed; its disk and its tier are read, checked and restored."""
    folder, tier = scratch / "live", scratch / "tier"
    lines = tier_lines(scratch, tier)
    broker("start", folder, *lines)
    try:
        settings = {"remote.storage.enable": "true", "internal.segment.bytes": "16384", "local.retention.ms": "1000"}
        make_topic(folder, 2, **settings)
        fill(folder, chance)
        end = time.monotonic() + 60
        local = folder / "data0" / "orders-0"
        while (local / f"{0:020d}.log").exists() or sum(1 for _ in uploaded(tier)) < 10:
            if time.monotonic() > end:
                sys.exit(f"{sum(1 for _ in uploaded(tier))} segments were uploaded, and local ones are still there")
            time.sleep(0.5)
        fill(folder, chance)
        wanted = {isolation: consumed(folder, isolation) for isolation in ISOLATIONS}
    finally:
        broker("kill", folder)
    url = f"localtier+file://{tier}"
    disk = pylogseg.open_dir(folder / "data0", tier=url)
    segments = [segment for part in disk.topics["orders"] for segment in part.segments]
    print(f"{sum(1 for _ in uploaded(tier))} segments in the tier, {len(segments)} in the log", flush=True)
    for isolation in ISOLATIONS:
        check(f"disk and tier, {isolation}", read(disk, isolation), wanted[isolation])
    shell("verify", folder / "data0", "orders", "--tier", url, "--remote-metadata", folder / "data0")
    shell("verify", url, "--remote-metadata", folder / "data0")
    serve_restored(scratch / "new", 2, wanted, folder / "data0", "--tier", url)


def main() -> int:
    """Run both parts; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("golden", type=Path)
    parser.add_argument("--keep", type=Path, help="work here, and leave everything behind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    scratch = options.keep or Path(tempfile.mkdtemp(prefix="tiers-"))
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        from_golden(options.golden, scratch)
        live(scratch, random.Random(options.seed))
    finally:
        if options.keep is None:
            shutil.rmtree(scratch)
    print("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
