#!/usr/bin/env python3
"""The same clients on a real broker and on `pylogseg serve`, over the same files.

    serves.py GOLDEN [SCENARIO]...

GOLDEN is a folder of unpacked data directories (`tests/golden`, folder `broker-4.3`). A broker starts on a copy of each
scenario and stops; it starts again, and `pylogseg serve` serves a copy of the same files. Then confluent-kafka,
kafka-python, aiokafka and Kafka's own tools read both: records with all their fields, ends, look-ups by time, groups,
settings, producers. A line for each client and question; what differs is printed. At the end the files are compared
with what they were.
Exit code 0 if all is equal.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka

import pylogseg

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from one_broker import Broker  # noqa: E402  (a neighbour, which is no package)

SCENARIOS = ["txn", "compact-3-cleaned", "retention", "codecs"]
ISOLATIONS = ("read_uncommitted", "read_committed")
PATIENCE_S = 180.0
SETTLE_S = 5.0
#: Classes of Kafka's tools, with their arguments. {topic} is a topic, {group} a group of the copy.
TOOLS = {
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "get-offsets earliest": "org.apache.kafka.tools.GetOffsetShell --time earliest",
    "get-offsets max": "org.apache.kafka.tools.GetOffsetShell --time max-timestamp",
    "get-offsets time": "org.apache.kafka.tools.GetOffsetShell --time 1700000500000",
    "topics list": "org.apache.kafka.tools.TopicCommand --list",
    "topics describe": "org.apache.kafka.tools.TopicCommand --describe",
    "configs": "org.apache.kafka.tools.ConfigCommand --describe --entity-type topics --all",
    "groups list": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --list",
    "groups describe": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --describe --all-groups",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand --describe",
    "producers": "org.apache.kafka.tools.TransactionsCommand describe-producers --topic {topic} --partition 0",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer --topic {topic} --partition 0"
    " --offset earliest --timeout-ms 30000 --formatter-property print.offset=true"
    " --formatter-property print.timestamp=true",
    "console-consumer committed": "org.apache.kafka.tools.consumer.ConsoleConsumer --topic {topic} --from-beginning"
    " --timeout-ms 30000 --isolation-level read_committed --formatter-property print.offset=true",
    "console-consumer, new protocol": "org.apache.kafka.tools.consumer.ConsoleConsumer --topic {topic} --from-beginning"
    " --timeout-ms 30000 --command-property group.protocol=consumer --formatter-property print.offset=true",
    "perf-test": "org.apache.kafka.tools.ConsumerPerformance --topic {topic} --num-records 10 --timeout 60000"
    " --hide-header",
}


# ---- clients: each gives what it has seen, to be compared ----


def partitions_of(bootstrap: str) -> dict[str, list[int]]:
    """Topics and partitions, by kafka-python."""
    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return {topic: sorted(client.partitions_for_topic(topic) or ()) for topic in sorted(client.topics())}
    finally:
        client.close()


def row_of(record: Any) -> tuple[Any, ...]:
    """All that kafka-python says of a record."""
    stamp = record.timestamp, record.timestamp_type
    return record.partition, record.offset, *stamp, record.key, record.value, record.headers, record.leader_epoch


def kafka_python(bootstrap: str, topic: str, numbers: list[int], isolation: str) -> Any:
    """Records, ends and times."""
    client = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, isolation_level=isolation
    )
    try:
        mine = [kafka.TopicPartition(topic, number) for number in numbers]
        client.assign(mine)
        ends = client.end_offsets(mine)
        rows: list[Any] = []
        until = time.monotonic() + PATIENCE_S

        def behind() -> list[Any]:
            places = [(each, client.position(each, timeout_ms=500)) for each in mine]
            return [(each, at) for each, at in places if at is None or at < ends[each]]

        while left := behind():
            if time.monotonic() > until:
                return "stalled", left
            for records in client.poll(500).values():
                rows += [row_of(record) for record in records]
        times = {}
        for moment in sorted({row[2] for row in rows[:: len(rows) // 5 + 1] if row[2] is not None and row[2] >= 0}):
            found = client.offsets_for_times(dict.fromkeys(mine, moment))
            times[moment] = {each.partition: at and tuple(at)[:2] for each, at in found.items()}
        return ends, client.beginning_offsets(mine), sorted(rows, key=lambda row: row[:2]), times
    finally:
        client.close()


def confluent(bootstrap: str, topic: str, numbers: list[int], isolation: str) -> Any:
    """Records, and the ends that librdkafka knows."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "assigned", "auto.offset.reset": "earliest",
                "isolation.level": isolation, "enable.auto.commit": False, "enable.partition.eof": True,
                "log_level": 2}  # fmt: skip
    client = confluent_kafka.Consumer(settings)
    try:
        mine = [confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for number in numbers]
        client.assign(mine)
        rows, ends, until = [], set(), time.monotonic() + PATIENCE_S
        while len(ends) < len(numbers):
            if time.monotonic() > until:
                return "stalled", sorted(ends)
            message = client.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                rows.append((message.partition(), message.offset(), message.timestamp(), message.key(), message.value(),
                             message.headers(), message.leader_epoch()))  # fmt: skip
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ends.add(message.partition())
            else:
                return "error", str(error)
        marks = {each.partition: client.get_watermark_offsets(each) for each in mine}
        return sorted(rows, key=lambda row: row[:2]), marks
    finally:
        client.close()


def aio(bootstrap: str, topic: str, numbers: list[int], isolation: str) -> Any:
    """Records and ends."""

    async def read() -> Any:
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
        )
        await client.start()
        try:
            mine = [aiokafka.TopicPartition(topic, number) for number in numbers]
            client.assign(mine)
            ends = await client.end_offsets(mine)
            rows: list[Any] = []
            quiet = 0
            while quiet < 3:  # with read_committed no position tells that the end is reached
                found = await client.getmany(timeout_ms=300)
                quiet = 0 if found else quiet + 1
                for records in found.values():
                    rows += [(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
            return ends, sorted(rows, key=lambda row: row[:2])
        finally:
            await client.stop()

    try:
        return asyncio.run(read())
    except aiokafka.errors.KafkaError as error:
        return type(error).__name__


def in_group(bootstrap: str, topic: str, numbers: list[int], isolation: str) -> Any:
    """Two turns of a group of librdkafka: the second goes on where the first has committed."""
    seen = []
    group = f"group-{topic}-{isolation}"
    for _ in range(2):
        client = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2,
             "isolation.level": isolation, "enable.auto.commit": False, "enable.partition.eof": True}
        )  # fmt: skip
        try:
            client.subscribe([topic])
            rows, ends, until = [], set(), time.monotonic() + PATIENCE_S
            while len(ends) < len(numbers):
                if time.monotonic() > until:
                    return "stalled", len(rows)
                message = client.poll(0.5)
                if message is None:
                    continue
                if message.error() is None:
                    rows.append((message.partition(), message.offset()))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends.add(message.partition())
                else:
                    return "error", str(message.error())
            seen.append(sorted(rows))
            if rows:
                client.commit(asynchronous=False)
        finally:
            client.close()
    return seen


CLIENTS: dict[str, Callable[[str, str, list[int], str], Any]] = {
    "kafka-python": kafka_python, "confluent-kafka": confluent, "aiokafka": aio, "confluent-kafka, a group": in_group,
}  # fmt: skip


# ---- Kafka's tools ----


def tool(classpath: str, bootstrap: str, words: str) -> list[str]:
    """What a tool prints, without what has to differ: addresses, times of a run, the names of consoles' groups."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, *words.split()]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap], capture_output=True, encoding="utf-8", timeout=900, check=False
    )
    text = done.stdout if done.returncode == 0 else f"{done.stdout}\nexit {done.returncode}\n{done.stderr[-500:]}"
    text = re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "ADDRESS", text)
    text = re.sub(r"Configs: .*", "", text)  # those of the broker's own file are not on the disk
    text = re.sub(r"console-consumer-\d+|perf-consumer-\d+", "CONSOLE", text)
    return sorted(re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip())


#: What differs by design, in lines of tools; docs/serve.md says why.
_EXPECTED: dict[str, Callable[[str], bool]] = {
    "perf-test": lambda line: True,  # rates; that it ends is the question
    "log-dirs": lambda line: True,  # paths differ
    # The groups of this program have committed to the broker, which writes that down in a topic of its own.
    **dict.fromkeys(
        (
            "get-offsets",
            "get-offsets earliest",
            "get-offsets max",
            "get-offsets time",
            "topics list",
            "topics describe",
        ),
        lambda line: "__consumer_offsets" in line,
    ),
}


def compare(what: str, theirs: Any, ours: Any) -> bool:
    """Print a line, and what differs."""
    same = bool(theirs == ours)
    size = f", {len(ours)} answers" if isinstance(ours, (list, dict)) else ""
    print(f"  {what}: {'equal' if same else 'DIFFERENT'}{size}", flush=True)
    if not same:
        if all(isinstance(lines, list) and all(isinstance(each, str) for each in lines) for lines in (theirs, ours)):
            theirs, ours = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
        else:
            theirs, ours = parted(theirs, ours)
        print(f"    kafka:    {str(theirs)[:600]}\n    pylogseg: {str(ours)[:600]}", flush=True)
    return same


def parted(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """The first parts that differ, of values that may be large."""
    if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)) and len(theirs) == len(ours):
        return next(parted(one, other) for one, other in zip(theirs, ours, strict=True) if one != other)
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        key = next(key for key in theirs if theirs[key] != ours[key])
        found = parted(theirs[key], ours[key])
        return (key, found[0]), (key, found[1])
    return theirs, ours


def digest(folders: list[Path]) -> str:
    """One number for all files below some folders, with their names and times."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        found.update(f"{path} {path.stat().st_mtime_ns}".encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def scenario(name: str, source: Path, folder: Path, classpath: str) -> int:
    """Compare one set of directories; how many answers differ."""
    broker = Broker(folder)
    for directory in sorted(source.glob("data?")):
        shutil.copytree(directory, folder / directory.name)
    broker.start()
    time.sleep(SETTLE_S)  # it ends the transactions that nobody else will end, and so changes the files
    broker("stop")
    directories = [folder / "served" / path.name for path in sorted(folder.glob("data?"))]
    for directory in directories:
        shutil.copytree(folder / directory.name, directory)
    before = digest(directories)
    broker.start()
    wrong = 0
    try:
        theirs = broker.address
        with pylogseg.serve(*directories, group_offsets=name == "txn") as server:
            ours = server.bootstrap_servers
            print(name, flush=True)
            topics = partitions_of(ours)
            wrong += not compare("topics", {t: n for t, n in partitions_of(theirs).items() if t in topics}, topics)
            chosen = [topic for topic in topics if not topic.startswith("__")]
            for client, read in CLIENTS.items():
                answers: list[dict[Any, Any]] = [{}, {}]
                for topic in chosen[:3] if "group" in client else chosen:
                    for isolation in ISOLATIONS:
                        for into, address in zip(answers, (theirs, ours), strict=True):
                            into[topic, isolation] = read(address, topic, topics[topic], isolation)
                wrong += not compare(client, *answers)
            for what, words in TOOLS.items() if name in ("txn", "codecs") else ():
                given = words.format(topic=chosen[0])
                with ThreadPoolExecutor(2) as pool:  # one wait for both: consoles end when nothing has come for a while
                    found = list(pool.map(tool, repeat(classpath), (theirs, ours), repeat(given)))
                skip = _EXPECTED.get(what, lambda line: False)
                wrong += not compare(what, *([line for line in lines if not skip(line)] for lines in found))
    finally:
        broker("stop")
    wrong += not compare("the files, before and after", before, digest(directories))
    return wrong


def main(arguments: list[str]) -> int:
    """Compare all scenarios."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    golden, *names = arguments
    script = HERE.parent / "kafka.sh"
    classpath = subprocess.run([script, "tools"], check=True, capture_output=True, encoding="utf-8").stdout.strip()
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-serves-"))
    wrong = 0
    try:
        for name in names or SCENARIOS:
            wrong += scenario(name, Path(golden, name).resolve(), folder / name, classpath)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("all equal" if not wrong else f"{wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
