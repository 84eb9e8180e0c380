#!/usr/bin/env python3
"""A real broker and our manager take turns on two log directories.

    manages.py [DIR]

1. a broker makes three topics in DIR (default: a fresh folder that is removed), producers fill them, and it stops;
2. the manager opens both log directories with the broker's own `server.properties`, appends, compacts, moves a
   partition to the other directory, and closes;
3. the broker starts. It must not recover a log, nor warn of one; consumers get exactly what the manager read last;
4. producers append, the broker is killed, and the manager opens the directories: it recovers, and reads the same as a
   broker that is started after it.

Takes about a minute. Exit code 0 if all is well.
"""

import base64
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pylogseg import BrokerSettings, LogManager

HERE = Path(__file__).resolve().parent
SMALL = {"segment_bytes": 4096, "index_interval_bytes": 200, "min_cleanable_dirty_ratio": 0.01}
TOPICS = {
    "kept": SMALL,
    "compacted": {**SMALL, "cleanup_policy": "compact", "delete_retention_ms": 100},
    "both": {**SMALL, "cleanup_policy": "compact,delete"},
}
PARTITIONS = 3
#: The broker neither compacts nor deletes: what a consumer gets is what was there.
QUIET = ["log.cleaner.enable=false", "log.retention.check.interval.ms=86400000"]


def broker(folder, *arguments):
    command = ["bash", HERE / "broker.sh", arguments[0], folder, *arguments[1:]]
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False, timeout=900)
    if done.returncode:
        sys.exit(f"broker.sh {arguments[0]}: {done.stderr[-3000:]}")
    return done.stdout


def consumed(folder):
    """Records of each partition, as a consumer gets them."""
    found = {}
    for topic in TOPICS:
        found.update({(topic, number): [] for number in range(PARTITIONS)})
        for line in broker(folder, "consume", topic, "--isolation", "read_committed").splitlines():
            row = json.loads(line)
            key, value = (None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value"))
            found[topic, row["partition"]].append((row["offset"], row["timestamp"], key, value))
    return found


def read(manager):
    """The same by our own reader."""
    return {
        key: [(r.offset, r.timestamp, r.key, r.value) for r in manager[key].read(isolation_level="read_committed")]
        for key in manager
        if key[0] in TOPICS
    }


def managed(folder):
    properties = folder / "run" / "server.properties"
    return LogManager(BrokerSettings.from_file(properties, log_cleaner_enable=False), TOPICS)


def same(what, expected, got):
    for key in expected.keys() | got.keys():
        if expected.get(key) != got.get(key):
            sizes = [len(each.get(key, ())) for each in (expected, got)]
            sys.exit(f"{what}: {key[0]}-{key[1]} differs: {sizes[0]} records expected, {sizes[1]} there")
    print(f"{what}: {sum(map(len, got.values()))} records in {len(got)} partitions, all equal", flush=True)


def said(folder, pattern):
    lines = (folder / "run" / "server.log").read_text(errors="replace").splitlines()
    return [line for line in lines if re.search(pattern, line)]


def work(manager):
    """What the manager does: appends, a cleaning, a move."""
    for turn in range(40):
        for key in read(manager):
            records = [(None, b"key-%d" % (i % 7), b"%d of turn %d" % (i, turn)) for i in range(20)]
            manager[key].append(records, compression=["none", "lz4", "zstd"][turn % 3])
        if turn == 20:
            for number in range(PARTITIONS):
                producer = manager["compacted", number].producer(9_000_001)
                with producer.transaction():
                    producer.append([(None, b"key-1", b"in a transaction")])
                manager["compacted", number].append([(None, b"key-6", None)])
    cleaner, cleanings = manager.cleaning.new_cleaner(), 0
    while manager.cleaning.clean_dirtiest(cleaner):
        cleanings += 1
    assert not manager.cleaning.uncleanable, manager.cleaning.uncleanable
    here = next(place for place in manager.places() if place[1] == "kept-0")[0]
    there = next(each for each in manager.directories.online if each is not here)
    manager.move("kept", 0, there.path)
    print(f"the manager cleaned {cleanings} logs, and moved kept-0 to {Path(there.path).name}", flush=True)


def run(folder):
    broker(folder, "start", *QUIET)
    for topic, settings in TOPICS.items():
        words = [f"{name.replace('_', '.')}={value}" for name, value in settings.items() if name != "segment_bytes"]
        broker(folder, "client", "create-topic", topic, PARTITIONS, "internal.segment.bytes=4096", *words)
        broker(folder, "client", "produce", topic, 200, "first")
    before = consumed(folder)
    broker(folder, "stop")
    with managed(folder) as manager:
        assert not any(log.report.recovered_segments for _, _, log in manager.places())
        same("1. the manager opens what the broker left", before, read(manager))
        work(manager)
        wanted = read(manager)
    broker(folder, "start", *QUIET)
    skipped = said(folder, "Skipping recovery of .* since clean shutdown file was found")
    ours = rf"\b({'|'.join(TOPICS)})-\d"
    recovered = said(folder, f"Recovering.*{ours}")
    if len(skipped) != 2 or recovered:
        sys.exit("the broker recovered logs:\n" + "\n".join([*skipped, *recovered]))
    if warned := said(folder, rf"\b(WARN|ERROR|FATAL)\b.*{ours}"):
        sys.exit("the broker said:\n" + "\n".join(warned[:20]))
    same("2. the broker starts without recovery, a consumer reads", wanted, consumed(folder))
    for topic in TOPICS:
        broker(folder, "client", "produce", topic, 100, "second")
    broker(folder, "kill")
    with managed(folder) as manager:
        recovered = sum(log.report.recovered_segments > 0 for _, _, log in manager.places())
        print(f"after a kill the manager recovered {recovered} logs", flush=True)
        wanted = read(manager)
    broker(folder, "start", *QUIET)
    same("3. the broker after the manager after a kill", wanted, consumed(folder))
    return 0


def main(arguments):
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    logging.disable(logging.CRITICAL)
    folder = Path(arguments[0] if arguments else tempfile.mkdtemp(prefix="pylogseg-manages-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(folder)
    finally:
        broker(folder, "stop")
        if not arguments:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
