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

import logging
import shutil
import sys
import tempfile
from pathlib import Path

# A neighbour, which is no package:
from one_broker import Broker

from pylogseg import BrokerSettings, LogManager

SMALL = {"segment_bytes": 4096, "index_interval_bytes": 200, "min_cleanable_dirty_ratio": 0.01}
TOPICS = {
    "kept": SMALL,
    "compacted": {**SMALL, "cleanup_policy": "compact", "delete_retention_ms": 100},
    "both": {**SMALL, "cleanup_policy": "compact,delete"},
}
PARTITIONS = 3


def consumed(broker):
    """Records of each partition, as a consumer gets them."""
    found = broker.consumed(TOPICS, "read_committed")
    names = {(topic, number): f"{topic}-{number}" for topic in TOPICS for number in range(PARTITIONS)}
    return {key: found.get(name, []) for key, name in names.items()}


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


def run(broker):
    broker.start()
    for topic, settings in TOPICS.items():
        words = [f"{name.replace('_', '.')}={value}" for name, value in settings.items() if name != "segment_bytes"]
        broker("client", "create-topic", topic, PARTITIONS, "internal.segment.bytes=4096", *words)
        broker("client", "produce", topic, 200, "first")
    before = consumed(broker)
    broker("stop")
    with managed(broker.folder) as manager:
        assert not any(log.report.recovered_segments for _, _, log in manager.places())
        same("1. the manager opens what the broker left", before, read(manager))
        work(manager)
        wanted = read(manager)
    broker.start()
    skipped = broker.words("Skipping recovery of .* since clean shutdown file was found")
    ours = rf"\b({'|'.join(TOPICS)})-\d"
    recovered = broker.words(f"Recovering.*{ours}")
    if len(skipped) != 2 or recovered:
        sys.exit("the broker recovered logs:\n" + "\n".join([*skipped, *recovered]))
    if warned := broker.words(rf"\b(WARN|ERROR|FATAL)\b.*{ours}"):
        sys.exit("the broker said:\n" + "\n".join(warned[:20]))
    same("2. the broker starts without recovery, a consumer reads", wanted, consumed(broker))
    for topic in TOPICS:
        broker("client", "produce", topic, 100, "second")
    broker("kill")
    with managed(broker.folder) as manager:
        recovered = sum(log.report.recovered_segments > 0 for _, _, log in manager.places())
        print(f"after a kill the manager recovered {recovered} logs", flush=True)
        wanted = read(manager)
    broker.start()
    same("3. the broker after the manager after a kill", wanted, consumed(broker))
    return 0


def main(arguments):
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    logging.disable(logging.CRITICAL)
    folder = Path(arguments[0] if arguments else tempfile.mkdtemp(prefix="pylogseg-manages-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder)
    try:
        return run(broker)
    finally:
        broker("stop")
        if not arguments:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
