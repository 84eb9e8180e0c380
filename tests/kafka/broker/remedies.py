#!/usr/bin/env python3
"""The urgencies and remedies of `verify`, tried on a real broker.

    PYTHONPATH=src:tests remedies.py [--keep DIR] [CASE...]

Each case harms the two log directories of a stopped broker. `verify` has to name the harm, with the urgency and the
remedy that the case expects. A broker starts on the harmed directories: the urgency has to be true. Then a fresh copy
of them is mended as the remedy says, word by word; `verify` has to find no damage there, and a broker has to serve all
records. One broker at a time; half a minute for each case, all of them if none is named. A line for each case, in the
end a table. Exit code 0 if all is as expected. Needs confluent-kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import admin
from helpers.golden import GOLDEN, unpack

from pylogseg import _codec
from pylogseg.inspect.verify.findings import NO_START

HERE = Path(__file__).resolve().parent
TOPIC, PARTITIONS, RECORDS = "orders", 4, 120
#: How long a broker may need; one that is not there by then does not come.
LEAST_S = 45.0
#: What a broker may do: it serves all records; it serves fewer; it ends; it does not come up, and does not end.
SERVES, FEWER, ENDS, WAITS = "serves all", "serves fewer", "ends", "waits"
Rows = dict[str, list[tuple[int, bytes | None]]]


# ---- the broker ----


class Broker:
    """broker.sh on a folder."""

    patience_s = LEAST_S

    def __init__(self, folder: Path, *, is_old: bool = True) -> None:
        self.folder, self.is_old = folder, is_old

    def call(self, word: str, *arguments: object, timeout: float = 900.0) -> subprocess.CompletedProcess[str]:
        command = ["bash", HERE / "broker.sh", word, self.folder, *arguments]
        return subprocess.run(
            list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
            errors="replace", check=False, timeout=timeout, env={**os.environ, "NO_FORMAT": "1" if self.is_old else ""},
        )  # fmt: skip

    def start(self, *settings: str) -> str:
        """Start it; return SERVES, ENDS or WAITS."""
        try:
            done = self.call("start", *settings, timeout=self.patience_s)
        except subprocess.TimeoutExpired:
            return WAITS
        return ENDS if done.returncode else SERVES

    def stop(self, word: str = "stop") -> None:
        done = self.call(word)
        if done.returncode:
            sys.exit(f"broker.sh {word}: {done.stderr[-2000:]}")

    @property
    def server(self) -> str:
        return f"127.0.0.1:{(self.folder / 'run' / 'port').read_text().strip()}"

    def last_words(self) -> str:
        """The first exception that it names, or the first line at the level of an error."""
        log = self.folder / "run" / "server.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        firsts = (next((line for line in lines if re.search(word, line)), "") for word in (r"Exception: ", "ERROR"))
        return next(filter(None, firsts), "").replace(str(self.folder), "")[:300]

    def rows(self, expected: Rows) -> Rows:
        """Return what it serves of the partitions that are expected, once it leads them or time is over."""
        asked = [confluent_kafka.TopicPartition(*_place(name), 0) for name in expected]
        settings = {"bootstrap.servers": self.server, "group.id": "remedies", "enable.auto.commit": False,
                    "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0}  # fmt: skip
        consumer = confluent_kafka.Consumer(settings)
        until = time.monotonic() + self.patience_s / 3
        try:
            while time.monotonic() < until and not self._leads(consumer, asked):
                time.sleep(0.5)
            consumer.assign(asked)
            found: Rows = {name: [] for name in expected}
            ended: set[str] = set()
            until = time.monotonic() + self.patience_s / 3
            while time.monotonic() < until and len(ended) < len(asked):
                message = consumer.poll(0.5)
                if message is None:
                    continue
                if message.error() is None:
                    found[f"{message.topic()}-{message.partition()}"].append((message.offset(), message.value()))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(f"{message.topic()}-{message.partition()}")
            return found
        finally:
            consumer.close()

    @staticmethod
    def _leads(consumer: confluent_kafka.Consumer, asked: list[confluent_kafka.TopicPartition]) -> bool:
        topics = consumer.list_topics(timeout=20).topics
        parts = [topics[each.topic].partitions.get(each.partition) if each.topic in topics else None for each in asked]
        return all(part is not None and part.leader >= 0 and part.error is None for part in parts)


def _place(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def make_base(folder: Path) -> Rows:
    """Let a broker write the directories that are harmed, and stop it in order."""
    broker, began = Broker(folder, is_old=False), time.monotonic()
    Broker.patience_s = 600.0
    settings = ["log.retention.check.interval.ms=86400000", "log.dir.failure.timeout.ms=3000"]
    if broker.start(*settings) != SERVES:
        sys.exit("the first broker did not start")
    Broker.patience_s = max(LEAST_S, 4 * (time.monotonic() - began))
    client = admin.AdminClient({"bootstrap.servers": broker.server})
    config = {"internal.segment.bytes": "3000", "index.interval.bytes": "400", "segment.bytes": "1048576"}
    new = confluent_kafka.admin.NewTopic(TOPIC, PARTITIONS, 1, config=config)
    client.create_topics([new])[TOPIC].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.server, "linger.ms": 0, "batch.num.messages": 2})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"v%d " % number + b"x" * 90, b"k%d" % number, partition=number % PARTITIONS)
        if number % 8 == 7:
            producer.flush(60)
    assert producer.flush(60) == 0
    rows = broker.rows({f"{TOPIC}-{number}": [] for number in range(PARTITIONS)})
    broker.stop()
    assert sum(map(len, rows.values())) == RECORDS, {name: len(each) for name, each in rows.items()}
    return rows


# ---- the disks, and what is done to them ----


class Disk:
    """The two log directories of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first, self.second = folder / "data0", folder / "data1"
        self.metadata = self.first / "__cluster_metadata-0"

    def partition(self, log_dir: Path | None = None) -> Path:
        """The first partition of the topic in a log directory; of the second one, without the cluster's metadata."""
        return min((log_dir or self.second).glob(f"{TOPIC}-*"))

    def snapshots(self) -> list[Path]:
        return sorted(self.metadata.glob("*.checkpoint"))


Change = Callable[[Disk], object]


class Case(NamedTuple):
    """A harm, what `verify` says of it, what a broker does, and the remedy.

    Attributes
    ----------
    kind, urgency : str
        Of a finding that `verify` has to have; an empty kind: it has no damage.
    words : str
        What the remedy of that finding has to say.
    outcome : str
        SERVES, FEWER, ENDS or WAITS.
    mend : callable or None
        Does what the remedy says; gets the harmed disk, and one without harm.
    """

    kind: str
    urgency: str
    words: str
    harm: Change
    outcome: str
    mend: Callable[[Disk, Disk], object] | None
    settings: tuple[str, ...] = ()
    golden: str = ""  #: In place of the base.


def text(path: Path, words: str | bytes) -> None:
    """Write a file anew."""
    path.unlink(missing_ok=True)
    path.write_bytes(words.encode() if isinstance(words, str) else words)


def change(path: Path, pattern: str, words: str) -> None:
    """Replace a pattern in a text."""
    before = path.read_text()
    after = re.sub(pattern, words, before)
    assert after != before, path
    text(path, after)


def again(name: Callable[[Disk], Path]) -> Callable[[Disk, Disk], object]:
    """Take a file from the disk without harm: a backup, another node, or what an operator writes by hand."""

    def mend(disk: Disk, whole: Disk) -> None:
        path = name(whole)
        text(disk.folder / path.relative_to(whole.folder), path.read_bytes())

    return mend


def delete(name: Callable[[Disk], Path]) -> Callable[[Disk, Disk], object]:
    return lambda disk, whole: name(disk).unlink()


def meta(disk: Disk) -> Path:
    return disk.second / "meta.properties"


def first_meta(disk: Disk) -> Path:
    return disk.first / "meta.properties"


def epochs(disk: Disk) -> Path:
    return disk.partition() / "leader-epoch-checkpoint"


def topic_id(disk: Disk) -> Path:
    return disk.partition() / "partition.metadata"


def quorum(disk: Disk) -> Path:
    return disk.metadata / "quorum-state"


def bootstrap(disk: Disk) -> Path:
    return disk.first / "bootstrap.checkpoint"


def snapshot(disk: Disk) -> Path:
    return disk.snapshots()[-1]


def first_snapshot(disk: Disk) -> Path:
    return disk.metadata / f"{0:020}-{0:010}.checkpoint"


def time_index(disk: Disk) -> Path:
    return min(disk.partition().glob("*.timeindex"))


def checkpoint(name: str) -> Callable[[Disk], Path]:
    return lambda disk: disk.second / f"{name}-checkpoint"


def reindex(what: str) -> Callable[[Disk, Disk], object]:
    return lambda disk, whole: shell("reindex", disk.second, disk.partition().name, "--only", what)


def watermarks(disk: Disk) -> Path:
    return disk.second / "replication-offset-checkpoint"


def start_and_stop(disk: Disk, whole: Disk) -> None:
    """Let a broker find the high watermarks anew."""
    broker = Broker(disk.folder)
    if broker.start() == SERVES:
        time.sleep(2)
        broker.stop()


def delete_and_start(name: Callable[[Disk], Path]) -> Callable[[Disk, Disk], object]:
    def mend(disk: Disk, whole: Disk) -> None:
        name(disk).unlink()
        start_and_stop(disk, whole)

    return mend


def set_aside(disk: Disk) -> None:
    """Let a broker set a folder aside, for want of its topic id."""
    topic_id(disk).unlink()
    start_and_stop(disk, disk)


def put_back(disk: Disk, whole: Disk) -> None:
    """As the remedy of a folder that was set aside says."""
    (stray,) = disk.second.glob(f"{TOPIC}-*-stray")
    name = stray.name.partition(".")[0]
    live = next(folder for folder in (disk.first, disk.second) if (folder / name).exists())
    command = [sys.executable, "-m", "pylogseg", "restore", disk.second, live, stray.name]
    subprocess.run(command, check=True, capture_output=True)


def in_1970(disk: Disk) -> None:
    data = time_index(disk).read_bytes()
    text(time_index(disk), data[:-12] + (5).to_bytes(8, "big") + data[-4:])


def copy_partition(disk: Disk) -> None:
    part = disk.partition(disk.first)
    shutil.copytree(part, disk.second / part.name)


def folder_for_file(disk: Disk) -> None:
    path = epochs(disk)
    path.unlink()
    path.mkdir()


def move_folder(disk: Disk, whole: Disk) -> None:
    shutil.move(epochs(disk), disk.folder / "away")
    shell("reindex", disk.second, disk.partition().name)


def small_segments_in_metadata(disk: Disk) -> None:
    """Write a segment.bytes below the least one that 4.x takes, as brokers before it took."""
    for path in [*disk.metadata.glob("*.log"), *disk.snapshots()]:
        data, position = bytearray(path.read_bytes()), 0
        while position + 61 <= len(data):
            end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            if end <= position + 12:
                break
            data[position:end] = data[position:end].replace(b"1048576", b"0006000")
            data[position + 17 : position + 21] = _codec.crc32c(data[position + 21 : end]).to_bytes(4, "big")
            position = end
        text(path, bytes(data))


def flip(disk: Disk) -> None:
    data = bytearray(snapshot(disk).read_bytes())
    data[len(data) // 2] ^= 1
    text(snapshot(disk), bytes(data))


def logs(disk: Disk) -> list[Path]:
    return sorted(disk.partition().glob("*.log"))


def batches(path: Path) -> list[bytes]:
    """The batches of a segment."""
    data, found = path.read_bytes(), []
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def from_replica(disk: Disk, whole: Disk) -> None:
    """Take the partition as another replica has it."""
    shutil.rmtree(disk.partition())
    shutil.copytree(whole.partition(), disk.second / whole.partition().name)


def data_as_marker(disk: Disk) -> None:
    """Make control records of a producer of what is data, behind a right CRC, and let a broker recover the log."""
    path = logs(disk)[0]
    first, *others = batches(path)
    flagged = bytearray(first[:21] + (0x30).to_bytes(2, "big") + first[23:])
    flagged[43:57] = (5).to_bytes(8, "big") + bytes(2) + b"\xff" * 4
    flagged[17:21] = _codec.crc32c(flagged[21:]).to_bytes(4, "big")
    text(path, b"".join([bytes(flagged), *others]))
    crash(disk)


def crash(disk: Disk) -> None:
    """Let the log directory be one that was not closed, and of which nothing was noted as flushed."""
    (disk.second / ".kafka_cleanshutdown").unlink()
    checkpoint("recovery-point-offset")(disk).unlink()


def lose_segment(disk: Disk) -> None:
    for path in disk.partition().glob(f"{logs(disk)[1].stem}.*"):
        path.unlink()


def lose_last_batch(disk: Disk) -> None:
    text(logs(disk)[-1], b"".join(batches(logs(disk)[-1])[:-1]))


def repeat_batch(disk: Disk) -> None:
    first, *others = batches(logs(disk)[0])
    text(logs(disk)[0], b"".join([first, first, *others]))


def zero_page(disk: Disk) -> None:
    data = logs(disk)[0].read_bytes()
    text(logs(disk)[0], data[:300] + bytes(600) + data[900:])


def mistake_segment(disk: Disk) -> None:
    """Put the segment of another partition in the place of one."""
    other = max(disk.second.glob(f"{TOPIC}-*"))
    text(logs(disk)[0], b"".join(batches(min(other.glob("*.log")))[:-1]))


def dangle(disk: Disk) -> None:
    path = logs(disk)[0]
    path.unlink()
    path.symlink_to("/nowhere")


ZEROS = b"\0" * 40
OTHER_ID = "zzzzzzzzzzzzzzzzzzzzzA"
RETAIN = ("log.retention.ms=86400000", "log.retention.check.interval.ms=1000", "log.segment.delete.delay.ms=100")

CASES: dict[str, Case] = {
    # meta.properties
    "meta-properties-gone": Case("meta-properties", "start", "write the file again",
        lambda d: first_meta(d).unlink(), ENDS, again(first_meta)),
    "meta-properties-of-the-second-gone": Case("meta-properties", "start", "the directory.id that the directory had",
        lambda d: meta(d).unlink(), ENDS, again(meta)),
    "meta-properties-zeros": Case("meta-properties", "start", "write the file again",
        lambda d: text(meta(d), ZEROS), ENDS, again(meta)),
    "meta-properties-empty": Case("meta-properties", "start", "write the file again",
        lambda d: text(meta(d), b""), ENDS, again(meta)),
    "meta-properties-of-another-cluster": Case("meta-properties", "start", "cluster.id and node.id of this broker",
        lambda d: change(meta(d), r"cluster\.id=\S+", f"cluster.id={OTHER_ID}"), ENDS, again(meta)),
    "meta-properties-of-another-node": Case("meta-properties", "start", "cluster.id and node.id of this broker",
        lambda d: change(meta(d), r"node\.id=\S+", "node.id=9"), ENDS, again(meta)),
    "directory-id-twice": Case("meta-properties", "start", "the directory.id that the directory had",
        lambda d: change(meta(d), r"directory\.id=\S+", re.search(r"directory\.id=\S+", first_meta(d).read_text())[0]),
        ENDS, again(meta)),
    "directory-id-reserved": Case("meta-properties", "start", "the directory.id that the directory had",
        lambda d: change(meta(d), r"directory\.id=\S+", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ"), ENDS, again(meta)),
    # folders
    "foreign-folder": Case("foreign-folder", "start", "move it out of the log directory",
        lambda d: (d.second / "old copy").mkdir(), ENDS,
        lambda d, whole: shutil.move(d.second / "old copy", d.folder / "away")),
    "partition-twice": Case("twice", "start", "move the folder that is older or shorter out of its log directory",
        copy_partition, ENDS,
        lambda d, whole: shutil.move(d.second / d.partition(d.first).name, d.folder / "away")),
    "folder-for-a-file": Case("unreadable", "start", "move the folder out of the partition",
        folder_for_file, FEWER, move_folder),
    # logs
    "data-as-marker": Case("control", "start", "take the partition from another replica",
        data_as_marker, ENDS, from_replica),
    "segment-gone": Case("missing", "lost", "take the partition from another replica",
        lose_segment, FEWER, from_replica),
    "last-batch-gone": Case("missing", "lost", "take the partition from another replica",
        lose_last_batch, FEWER, from_replica),
    "batch-twice": Case("order", "lost", "take the partition from another replica",
        repeat_batch, FEWER, from_replica),
    "page-of-zeros": Case("crc", "lost", "take the partition from another replica", zero_page, FEWER, from_replica),
    "segment-of-another-partition": Case("gap", "lost", "take the partition from another replica",
        mistake_segment, FEWER, from_replica),
    "segment-that-dangles": Case("unreadable", "start", "check the disk, and the targets of links",
        dangle, FEWER, from_replica),
    # partition.metadata
    "topic-id-of-another-topic": Case("topic-id", "start", "write the topic's id into partition.metadata",
        lambda d: change(topic_id(d), r"topic_id: \S+", f"topic_id: {OTHER_ID}"), FEWER, again(topic_id)),
    "topic-id-gone": Case("topic-id", "start", "write the topic's id into partition.metadata",
        lambda d: topic_id(d).unlink(), FEWER, again(topic_id)),
    "set-aside": Case("set-aside", "lost", "pylogseg restore", set_aside, FEWER, put_back),
    "partition-metadata-zeros": Case("metadata", "start", "write the file again",
        lambda d: text(topic_id(d), ZEROS), FEWER, again(topic_id)),
    "partition-metadata-empty": Case("metadata", "start", "write the file again",
        lambda d: text(topic_id(d), b""), ENDS, again(topic_id)),
    # the cluster's metadata
    "quorum-state-garbage": Case("metadata", "start", "write the file again",
        lambda d: text(quorum(d), b"{"), ENDS, again(quorum)),
    "quorum-state-empty": Case("metadata", "start", "write the file again",
        lambda d: text(quorum(d), b""), ENDS, again(quorum)),
    "bootstrap-garbage": Case("bootstrap", "start", "delete it where the metadata log is whole",
        lambda d: text(bootstrap(d), b"xx"), ENDS, delete(bootstrap)),
    "snapshot-empty": Case("kraft-snapshot", "start", "delete it if an older one is there",
        lambda d: text(snapshot(d), b""), WAITS, delete(snapshot), golden="metadata"),
    "snapshot-zeros": Case("kraft-snapshot", "start", "delete it if an older one is there",
        lambda d: text(snapshot(d), ZEROS), ENDS, delete(snapshot), golden="metadata"),
    "snapshot-cut": Case("torn", "lost", "delete it if an older one is there",
        lambda d: text(snapshot(d), snapshot(d).read_bytes()[:-20]), SERVES, delete(snapshot), golden="metadata"),
    "first-snapshot-empty": Case("", "", "",
        lambda d: text(first_snapshot(d), b""), SERVES, None),
    "first-snapshot-zeros": Case("kraft-snapshot", "start", "take the file from another controller",
        lambda d: text(first_snapshot(d), ZEROS), ENDS, again(first_snapshot)),
    "metadata-without-its-beginning": Case("metadata-start", "start", "take the snapshots",
        lambda d: [path.unlink() for path in d.snapshots()], ENDS,
        lambda d, whole: [shutil.copy(path, d.metadata) for path in whole.snapshots()], golden="metadata-trimmed"),
    "segments-below-a-mebibyte": Case("setting", "mend", "raise the topic's segment.bytes",
        small_segments_in_metadata, ENDS, None),
    "older-snapshot-empty": Case("kraft-snapshot", "mend", "delete it if an older one is there",
        lambda d: text(d.snapshots()[0], b""), SERVES, None, golden="metadata"),
    "snapshot-flipped": Case("kraft-snapshot", "start", "delete it if an older one is there",
        flip, ENDS, delete(snapshot), golden="metadata"),
    # leader epochs
    "leader-epochs-zeros": Case("leader-epoch-file", "start", "reindex",
        lambda d: text(epochs(d), ZEROS), FEWER, reindex("epochs")),
    "leader-epochs-wrong-count": Case("leader-epoch-file", "start", "reindex",
        lambda d: text(epochs(d), "0\n5\n0 0\n"), FEWER, reindex("epochs")),
    "leader-epochs-wrong-version": Case("leader-epoch-file", "start", "reindex",
        lambda d: text(epochs(d), "1\n1\n0 0\n"), FEWER, reindex("epochs")),
    "leader-epochs-empty": Case("leader-epoch", "mend", "reindex",
        lambda d: text(epochs(d), b""), SERVES, reindex("epochs")),
    "leader-epochs-gone": Case("leader-epoch", "mend", "reindex",
        lambda d: epochs(d).unlink(), SERVES, reindex("epochs")),
    # offset checkpoints
    "high-watermarks-zeros": Case("checkpoint", "start", "delete it while the broker is stopped",
        lambda d: text(watermarks(d), ZEROS), FEWER, delete_and_start(watermarks)),
    "high-watermarks-empty": Case("high-watermark", "mend", "start a broker",
        lambda d: text(watermarks(d), b""), SERVES, start_and_stop),
    "high-watermarks-gone": Case("high-watermark", "mend", "start a broker",
        lambda d: watermarks(d).unlink(), SERVES, start_and_stop),
    "recovery-points-zeros": Case("checkpoint", "start", "delete it while the broker is stopped",
        lambda d: text(checkpoint("recovery-point-offset")(d), ZEROS), FEWER,
        delete(checkpoint("recovery-point-offset"))),
    "log-starts-zeros": Case("checkpoint", "start", "delete it while the broker is stopped",
        lambda d: text(checkpoint("log-start-offset")(d), ZEROS), FEWER, delete(checkpoint("log-start-offset"))),
    "cleaner-offsets-zeros": Case("checkpoint", "start", "delete it while the broker is stopped",
        lambda d: text(checkpoint("cleaner-offset")(d), ZEROS), FEWER, delete(checkpoint("cleaner-offset"))),
    # indexes
    "time-index-ends-in-zeros": Case("time-index-end", "early", "reindex",
        lambda d: text(time_index(d), time_index(d).read_bytes() + bytes(24)), FEWER, reindex("time"), RETAIN),
    "time-index-of-zeros": Case("time-index-end", "early", "reindex",
        lambda d: text(time_index(d), bytes(time_index(d).stat().st_size)), FEWER, reindex("time"), RETAIN),
    "time-index-ends-in-1970": Case("time-index-end", "early", "reindex",
        in_1970, FEWER, reindex("time"), RETAIN),
    "time-index-without-its-last-entry": Case("time-index-end", "early", "reindex",
        lambda d: text(time_index(d), time_index(d).read_bytes()[:-12]), SERVES, reindex("time"), RETAIN),
}  # fmt: skip


def shell(*arguments: object) -> None:
    """Run a command of pylogseg that a remedy names."""
    command = [sys.executable, "-m", "pylogseg", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        print(f"    {arguments}: exit code {done.returncode}: {done.stdout}{done.stderr}", flush=True)


def findings(disk: Disk) -> tuple[int, list[dict[str, object]]]:
    """What `verify` says of both log directories."""
    command = [sys.executable, "-m", "pylogseg", "verify", "--json", disk.first, disk.second]
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, [row for row in rows if row.get("type") == "finding"]


@contextmanager
def disk_of(base: Path, scratch: Path):
    """A copy of the base, which is removed in the end."""
    folder = scratch / "disk"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder, symlinks=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "run").mkdir()
    try:
        yield Disk(folder)
    finally:
        Broker(folder).stop("kill")
        shutil.rmtree(folder, ignore_errors=True)


def outcome_of(disk: Disk, settings: tuple[str, ...], expected: Rows) -> tuple[str, str]:
    """Start a broker; return what it does, and what it says of it."""
    broker = Broker(disk.folder)
    outcome = broker.start("log.dir.failure.timeout.ms=3000", "log.cleaner.enable=true", *settings)
    if outcome == SERVES:
        if settings:
            time.sleep(5)
        rows = broker.rows(expected)
        short = [f"{name}: {len(rows[name])} of {len(each)}" for name, each in expected.items() if rows[name] != each]
        if short:
            return FEWER, f"{', '.join(short)}; {broker.last_words()}"
    words = broker.last_words() if outcome != SERVES else ""
    if outcome == SERVES:
        broker.stop()
    return outcome, words


def run(name: str, case: Case, base: Path, expected: Rows, scratch: Path) -> list[str]:
    """Try a case; return what is wrong."""
    wrong: list[str] = []
    with disk_of(base, scratch) as disk:
        case.harm(disk)
        code, rows = findings(disk)
        if case.kind:
            fitting = [row for row in rows if row["kind"] == case.kind and row["urgency"] == case.urgency
                       and case.words in str(row["remedy"])]  # fmt: skip
            if not fitting or bool(code) != any(row["level"] == "damage" for row in rows):
                said = [f"{row['kind']} ({row['urgency']}): {row['reason']}" for row in rows]
                wrong.append(f"verify: exit code {code}, {said or 'nothing'}")
        elif code:
            wrong.append(f"verify: false alarm: {[row['reason'] for row in rows]}")
        outcome, words = outcome_of(disk, case.settings, expected)
        print(f"    {name}: a broker {outcome}. {words}", flush=True)
        if outcome != case.outcome:
            wrong.append(f"a broker {outcome}, not {case.outcome}")
    if case.mend is not None:
        with disk_of(base, scratch) as disk:
            case.harm(disk)
            case.mend(disk, Disk(base))
            code, rows = findings(disk)
            if code:
                said = [f"{row['kind']}: {row['reason']}" for row in rows if row["level"] != "notice"]
                wrong.append(f"verify of the mended disk: exit code {code}, {said}")
            outcome, words = outcome_of(disk, case.settings, expected)
            print(f"    {name}, mended: a broker {outcome}. {words}", flush=True)
            if outcome != SERVES:
                wrong.append(f"after the remedy a broker {outcome}")
    return wrong


def main() -> int:
    """Try the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="keep the directories of the base here, and use those that are there")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="; ".join(CASES))
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    untried = set(NO_START) - {case.kind for case in CASES.values()}
    assert not untried, f"no case tries {untried}"
    table = []
    with tempfile.TemporaryDirectory(prefix="pylogseg-remedies-", dir=os.environ.get("TMPDIR")) as folder:
        scratch = Path(folder)
        base = arguments.keep or scratch / "base"
        known = base / "rows.json"
        if known.exists():
            kept = json.loads(known.read_text())
            expected = {name: [(offset, value.encode()) for offset, value in rows] for name, rows in kept.items()}
        else:
            base.mkdir(parents=True, exist_ok=True)
            expected = make_base(base)
            readable = {name: [(offset, value.decode()) for offset, value in rows] for name, rows in expected.items()}
            known.write_text(json.dumps(readable))
        for name, case in CASES.items():
            if arguments.cases and name not in arguments.cases:
                continue
            began, place, rows = time.monotonic(), base, expected
            if case.golden:
                place, rows = scratch / case.golden, {}
                if not place.exists():
                    unpack([GOLDEN / "broker-4.3" / f"{case.golden}.tar.xz"], scratch / "unpacked")
                    shutil.move(scratch / "unpacked" / "broker-4.3" / case.golden, place)
                    shutil.rmtree(scratch / "unpacked")
            wrong = run(name, case, place, rows, scratch)
            seconds = time.monotonic() - began
            table.append((name, case.kind or "none", case.urgency, case.outcome, "; ".join(wrong) or "ok", seconds))
            print(f"{name}: {table[-1][4]} ({seconds:.0f} s)", flush=True)
    print("\n| case | finding | urgency | a broker | as expected |\n|---|---|---|---|---|")
    for name, kind, urgency, outcome, said, _ in table:
        print(f"| {name} | {kind} | {urgency} | {outcome} | {said} |")
    failed = sum(row[4] != "ok" for row in table)
    print(f"{len(table)} cases, {failed} not as expected")
    return int(failed > 0 or not table)


if __name__ == "__main__":
    sys.exit(main())
