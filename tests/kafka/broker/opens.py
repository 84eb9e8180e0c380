#!/usr/bin/env python3
"""A real broker opens what our engine wrote, consumes it, appends to it; and we open what it left.

    opens.py [DIR]

Writes partitions with the engine (every codec, transactions, idempotent producers, many segments, indexes that are
gone, a log start inside a segment, a log that was not closed, images of crashes, what redact, recode and repair
leave), puts them into the log directories of a broker in DIR (default: a fresh folder that is removed), and then, each
time with every record compared:

1. the broker starts as after a crash, and a consumer reads all partitions, read_uncommitted and read_committed;
2. producers append to all of them, idempotent and transactional; the broker stops;
3. the engine opens the folders, reads everything, and appends; the broker starts as after a clean stop, and is read;
4. producers append again, and the broker is killed; the engine recovers the folders.

What the broker says of these partitions at the level of a warning is printed; what is not expected is a failure.
Takes about two minutes. Exit code 0 if all is well.
"""

import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import pylogseg
from pylogseg import offline
from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import Start
from pylogseg.offline import Blank
from pylogseg.offline.restoring.partition import PartitionWriter, RestoreOptions
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.memory import MemoryStorage
from pylogseg.transfer.staging import Staging

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from crash.images import crash_images
from helpers.descriptions import described

# A neighbour, which is no package:
from one_broker import Broker

TOPIC = "ours"
NOW = 1_700_000_000_000
SMALL = {"segment.bytes": "4096", "index.interval.bytes": "200", "segment.index.bytes": "4096"}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: What a broker says of files that a crash left; nothing else is expected at the level of a warning.
EXPECTED = re.compile(
    "Found invalid messages in log segment|Corruption found in segment|Could not find offset index file"
    "|No checkpointed highwatermark|Found an orphaned index file|Deleting all segments because"
)


def settings(**more):
    return LogConfig.from_properties({**SMALL, **more})


def opened(folder, config=None, *, clean=True, storage=None, start=0, point=0):
    """A log of ours."""
    clock = ManualClock(NOW) if storage is not None else SystemClock()
    scheduler = ManualScheduler(clock if storage is not None else ManualClock(NOW))
    return Log.open(
        Environment(storage or LocalStorage(), clock, scheduler),
        str(folder),
        config or settings(),
        Start(clean, start, point),
    )


def rows(first, count, keys=10**9):
    return [
        {"timestamp": NOW + i, "key": f"key-{i % keys}", "value": f"value-{i}".ljust(20 + i % 50, ".")}
        for i in range(first, first + count)
    ]


def fill(log, codec="none", batches=120, first=0, keys=10**9, **fields):
    for i in range(first, first + batches):
        log.append_as_leader(described([{"records": rows(3 * i, 3, keys), "compression": codec, **fields}]), 0)


def marker(log, kind, pid):
    spec = {"control": kind, "producer_id": pid, "producer_epoch": 0, "timestamp": NOW}
    log.append_as_leader(described([spec]), 0, origin=Origin.COORDINATOR)


def codec(name):
    def write(folder):
        log = opened(folder)
        fill(log, name)
        log.close()

    return write


def transactions(folder):
    log = opened(folder)
    sequences = {9_000_001: 0, 9_000_002: 0}
    for i in range(60):
        for pid in sequences:
            spec = {"records": rows(10 * i, 2), "producer_id": pid, "producer_epoch": 0, "transactional": True}
            log.append_as_leader(described([{**spec, "base_sequence": sequences[pid]}]), 0)
            sequences[pid] += 2
        fill(log, "lz4", 1, i)
        marker(log, "commit" if i % 2 else "abort", 9_000_001)
        marker(log, "abort" if i % 3 else "commit", 9_000_002)
    log.close()


def idempotent(folder):
    log = opened(folder)
    for i in range(100):
        for pid in (9_000_003, 9_000_004):
            spec = {"records": rows(3 * i, 3), "producer_id": pid, "producer_epoch": 0, "base_sequence": 3 * i}
            data = described([{**spec, "compression": CODECS[i % 5]}])
            first = log.append_as_leader(data, 0)
            assert log.append_as_leader(data, 0).first_offset == first.first_offset
    log.close()


def without_indexes(folder):
    codec("none")(folder)
    for path in Path(folder).iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            path.unlink()


def not_closed(folder):
    log = opened(folder)
    fill(log, "zstd")
    log.close_handles()


def torn(folder):
    not_closed(folder)
    last = max(Path(folder).glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 17)


def preallocated(folder):
    log = opened(folder, settings(preallocate="true"))
    fill(log)
    log.close_handles()


def deleted_records(folder):
    log = opened(folder)
    fill(log)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start(100)
    log.apply_retention()
    log.close()


def truncated(folder):
    log = opened(folder)
    fill(log)
    log.truncate_to(200)
    fill(log, "snappy", 20)
    log.close()


def compacted(folder):
    log = opened(folder, settings(**{"cleanup.policy": "compact"}))
    fill(log, "gzip", keys=20)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    Cleaner(OffsetMap(1 << 16)).clean(log, cleanable(log, None, NOW))
    log.close()


def copied(folder):
    """A copy of a log that is being written to, with half of a batch at its end."""
    with tempfile.TemporaryDirectory() as scratch:
        log = opened(Path(scratch) / "part-0")
        fill(log, "lz4")
        with open(log.active.path, "ab") as file:
            file.write(described([{"records": rows(360, 3)}])[:100])
        offline.copy(log.folder, Path(scratch) / "copy")
        fill(log, "lz4", 20, 120)
        shutil.copytree(Path(scratch) / "copy" / "part-0", folder, dirs_exist_ok=True)


def reindexed(folder):
    transactions(folder)
    for path in Path(folder).glob("*index"):
        path.write_bytes(b"")
    (result,) = offline.reindex(folder, config=SMALL)
    assert result.state == "done", result.reason


def truncated_offline(folder):
    idempotent(folder)
    (result,) = offline.truncate(folder, 251, config=SMALL)
    assert result.state == "done", result.reason


def by_columns(folder):
    """Through the front door."""
    with pylogseg.open_log(folder, segment_bytes=1 << 14, compression_type="zstd") as log:
        for i in range(50):
            log.append([(NOW + j, f"key-{j}".encode(), b"value") for j in range(100 * i, 100 * i + 100)])


def restored(folder):
    """From a table, with gaps between offsets, put in place by renames."""
    folder = Path(folder)
    topic, _, number = folder.name.rpartition("-")
    staging = Staging(str(folder.parent))
    staging.begin()
    options = RestoreOptions(compression="zstd", segment_bytes=4096, batch_bytes=600)
    writer = PartitionWriter(LocalStorage(), staging.attempt_folder("0"), topic, int(number), options)
    for first in range(100, 1000, 100):
        count = range(first, first + 100, 3)
        columns = {
            "offset": list(count),
            "timestamp": [NOW + n for n in count],
            "key": [f"key-{n}" for n in count],
            "value": [f"value-{n}" * 5 for n in count],
        }
        writer.write(pa.RecordBatch.from_pydict(columns))
    staging.commit([writer.close()])


def crash_image(seed):
    def write(folder):
        storage = MemoryStorage()
        log = opened("/log/part-0", storage=storage)
        for i in range(12):
            fill(log, CODECS[i % 5], 6, 6 * i)
            log.flush()
            storage.mark(log.log_end_offset)
        image = next(iter(crash_images(storage.trace, 1, seed)))
        with tempfile.TemporaryDirectory() as scratch:
            image.write_to(scratch)
            found = [path for path in Path(scratch).rglob("part-0") if path.is_dir()]
            shutil.copytree(found[0], folder, dirs_exist_ok=True) if found else Path(folder).mkdir(exist_ok=True)
        return max(image.marks, default=0)  # what was promised

    return write


def offline_of(write, command, **own):
    """What an offline command leaves of a partition."""

    def changed(folder):
        with tempfile.TemporaryDirectory() as scratch:
            part = Path(scratch) / "part-0"
            write(part)
            (result,) = getattr(offline, command)(part, config=SMALL, **own)
            if result.state != "done":
                sys.exit(f"{command}: {result.reason or 'nothing was changed'}")
            shutil.copytree(part, folder)

    return changed


def with_damage(write):
    """A byte of a batch, and the length of another, are not what they were."""

    def damaged(folder):
        write(folder)
        first = min(folder.glob("*.log"))
        data = bytearray(first.read_bytes())
        data[100] ^= 1
        length_at = data.index(b"key-20") - 70
        data[length_at : length_at + 300] = data[length_at + 1 : length_at + 301]
        first.write_bytes(bytes(data))

    return damaged


FORGOTTEN = [f"key-{i}".encode() for i in range(0, 600, 20)]
CASES = {
    "redacted": offline_of(transactions, "redact", keys=FORGOTTEN),
    "redacted-lz4": offline_of(codec("lz4"), "redact", keys=[f"key-{i}".encode() for i in range(9, 90)]),
    "blanked": offline_of(idempotent, "redact", keys=FORGOTTEN, blank=Blank(("value", "key"), b"gone")),
    "recoded": offline_of(transactions, "recode", compression="zstd"),
    "unpacked": offline_of(codec("gzip"), "recode", compression="none"),
    "merged": offline_of(codec("none"), "recode", compression="lz4", merge_bytes=1000),
    "repaired": offline_of(with_damage(transactions), "repair", keep_behind=True),
    **{f"codec-{name}": codec(name) for name in CODECS},
    "transactions": transactions,
    "idempotent": idempotent,
    "without-indexes": without_indexes,
    "not-closed": not_closed,
    "torn": torn,
    "preallocated": preallocated,
    "deleted-records": deleted_records,
    "truncated": truncated,
    "compacted": compacted,
    "copied": copied,
    "reindexed": reindexed,
    "truncated-offline": truncated_offline,
    "by-columns": by_columns,
    "restored": restored,
    **{f"crash-image-{seed}": crash_image(seed) for seed in range(6)},
}
#: They leave offsets without records in a topic that is not compacted, which `verify` cannot tell from a loss: records
#: on request, a damaged batch, the rest of the batch that a truncation was in.
WITH_HOLES = ("redacted-lz4", "repaired", "truncated")


class OpenedBroker(Broker):
    """A broker whose partitions are those of the cases."""

    def partition(self, number):
        return next(self.folder.glob(f"data?/{TOPIC}-{number}"))

    def records(self, isolation):
        """Records of each partition."""
        found = self.consumed([TOPIC], isolation)
        return {number: found.get(f"{TOPIC}-{number}", []) for number in range(len(CASES))}

    def forget(self, starts):
        """No marker of a clean stop, and no offsets of this topic but where logs start."""
        for marker_file in self.folder.glob("data?/.kafka_cleanshutdown"):
            marker_file.unlink()
        for path in self.folder.glob("data?/*-offset-checkpoint"):
            lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith(f"{TOPIC} ")]
            if path.name.startswith("log-start"):
                here = [n for n in starts if self.partition(n).parent == path.parent]
                lines += [f"{TOPIC} {n} {starts[n]}" for n in here]
            path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")

    def complaints(self):
        """Warnings and errors about our partitions, expected ones and others."""
        said = self.words(rf"\b(WARN|ERROR|FATAL)\b.*\b{TOPIC}-\d+")
        return [line for line in said if EXPECTED.search(line)], [line for line in said if not EXPECTED.search(line)]


def ours(broker, isolation):
    """Records of each partition, read from the files."""
    found = {}
    for number in range(len(CASES)):
        folder = broker.partition(number)
        reader = pylogseg.read(pylogseg.open_dir(folder.parent), folder.name, isolation_level=isolation)
        found[number] = [(r.offset, r.timestamp, r.key, r.value) for r in reader]
    return found


def check(what, expected, got):
    for number, name in enumerate(CASES):
        if expected[number] != got[number]:
            pairs = zip(expected[number], got[number], strict=False)
            first = next((pair for pair in pairs if pair[0] != pair[1]), None)
            sizes = f"{len(expected[number])} records expected, {len(got[number])} there"
            sys.exit(f"{what}: {name} (partition {number}): {sizes}; the first that differ: {first}")
    print(f"{what}: {sum(map(len, got.values()))} records in {len(got)} partitions, all equal", flush=True)


def report(broker, what):
    expected, others = broker.complaints()
    print(f"{what}: the broker warned {len(expected)} times of what a crash leaves", flush=True)
    if others:
        sys.exit("it also said:\n" + "\n".join(others[:20]))


def starts_of(broker):
    """The first offset of each partition, as the broker noted it."""
    found = {}
    for path in broker.folder.glob("data?/log-start-offset-checkpoint"):
        for line in path.read_text().splitlines()[2:]:
            topic, number, offset = line.split()
            if topic == TOPIC:
                found[int(number)] = int(offset)
    return found


def produced(broker, name, before):
    """What consumers get after producers appended: what was there, 200 records, and two of transactions."""
    broker("client", "produce", TOPIC, 200, name)
    seen = {isolation: broker.records(isolation) for isolation in before}
    for isolation, more in {"read_uncommitted": 202, "read_committed": 201}.items():
        for number, records in before[isolation].items():
            assert seen[isolation][number][: len(records)] == records
            assert len(seen[isolation][number]) == len(records) + more, (isolation, number)
    return seen


def run(folder):
    broker = OpenedBroker(folder)
    broker("start")
    broker("client", "create-topic", TOPIC, len(CASES), "internal.segment.bytes=4096", "index.interval.bytes=200")
    broker("stop")
    truth, starts = {}, {}
    for number, (name, write) in enumerate(CASES.items()):
        part = broker.partition(number)
        metadata = (part / "partition.metadata").read_bytes()
        shutil.rmtree(part)
        promised = write(part)
        (part / "partition.metadata").write_bytes(metadata)
        if name == "deleted-records":
            starts[number] = 100
        # what the engine itself finds after a crash, in a copy
        with tempfile.TemporaryDirectory() as scratch:
            copy = shutil.copytree(part, Path(scratch) / part.name)
            opened(copy, clean=False, start=starts.get(number, 0)).close()
            for isolation in ("read_uncommitted", "read_committed"):
                reader = pylogseg.read(pylogseg.open_dir(scratch), part.name, isolation_level=isolation)
                records = [(r.offset, r.timestamp, r.key, r.value) for r in reader if r.offset >= starts.get(number, 0)]
                truth.setdefault(isolation, {})[number] = records
        if promised is not None and truth["read_uncommitted"][number]:
            assert truth["read_uncommitted"][number][-1][0] + 1 >= promised, name
    broker.forget(starts)
    broker("start")
    for isolation, expected in truth.items():
        check(f"1. after a crash, {isolation}", expected, broker.records(isolation))
    report(broker, "1. after a crash")
    seen = produced(broker, "first", truth)
    broker("stop")
    for isolation, expected in seen.items():
        check(f"2. read from the files that the broker left, {isolation}", expected, ours(broker, isolation))
    starts = starts_of(broker)
    for number in range(len(CASES)):
        log = opened(broker.partition(number), start=starts.get(number, 0))
        spec = {"records": rows(0, 5), "compression": CODECS[number % 5]}
        for _ in range(30):
            log.append_as_leader(described([spec]), log.epochs.latest_epoch)
        log.close()
    wanted = {isolation: ours(broker, isolation) for isolation in truth}
    for isolation in truth:
        for number, records in wanted[isolation].items():
            assert records[: len(seen[isolation][number])] == seen[isolation][number]
            assert len(records) == len(seen[isolation][number]) + 150
    broker("start")
    for isolation, expected in wanted.items():
        check(f"3. after a clean stop and appends of ours, {isolation}", expected, broker.records(isolation))
    report(broker, "3. after a clean stop")
    seen = produced(broker, "second", wanted)
    broker("kill")
    starts = starts_of(broker)
    for number in range(len(CASES)):
        opened(broker.partition(number), clean=False, start=starts.get(number, 0)).close()
    for isolation, expected in seen.items():
        check(f"4. recovered by us after a kill, {isolation}", expected, ours(broker, isolation))
    found = subprocess.run(
        [sys.executable, "-m", "pylogseg", "verify", "--json", *map(str, sorted(folder.glob("data?"))), TOPIC],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    findings = [row for row in map(json.loads, found.stdout.splitlines()) if row.get("level") == "damage"]
    holes = [f"{TOPIC}-{number}" for number, name in enumerate(CASES) if name in WITH_HOLES]
    other = [row for row in findings if row["kind"] != "gap" or not set(holes) & set(Path(row["path"]).parts)]
    print("4. verify:", other or f"{len(findings)} findings, all of them holes that were made", found.stderr)
    return 0 if found.returncode == 1 and findings and not other else 1


def main(arguments):
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    logging.disable(logging.CRITICAL)
    folder = Path(arguments[0]) if arguments else Path(tempfile.mkdtemp(prefix="pylogseg-opens-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(folder.resolve())
    finally:
        Broker(folder.resolve())("stop")
        if not arguments:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
