"""read_committed beside a live writer: nothing aborted is shown, nothing committed is missed, nothing stalls.

python tests/soak live-committed [--minutes N] [--seed S] [--broker]

Rounds of half a minute. In each, a process writes random transactions of several producers, overlapping, some of them
aborted, to a log of tiny segments: by `open_log`, or with --broker to a real Kafka (Java; tests/kafka/broker). Beside
it one reader follows, and others read from the start and from near the end, again and again.
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
from pathlib import Path

from helpers.shell import process

import pylogseg
from soak import BROKER, itself

#: Within so many seconds after the last transaction a reader that follows has all of it.
_PATIENCE_SECONDS = 180


# ---- writers: each prints "abort ID" or "commit ID" for each transaction ----


def write_log(folder: str, seed: int, seconds: float) -> None:
    """Transactions of three producers to a log that this process owns."""
    rng = random.Random(seed)
    segment_bytes = rng.choice((1000, 5000, 30_000))
    with pylogseg.open_log(folder, segment_bytes=segment_bytes, index_interval_bytes=500, retention_ms=-1) as log:
        producers = [log.producer(number) for number in range(3)]
        open_ids: dict[int, int] = {}
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end or open_ids:
            i = rng.randrange(3)
            ends = time.monotonic() >= end or rng.random() < 0.4
            if i in open_ids and ends:
                kind = rng.choice(("commit", "abort"))
                print(kind, open_ids.pop(i))
                (producers[i].commit if kind == "commit" else producers[i].abort)()
            elif not ends:
                if i not in open_ids:
                    number += 1
                    open_ids[i] = number
                    producers[i].begin()
                value = b"%d " % open_ids[i] + b"x" * rng.randrange(200)
                producers[i].append([(None, b"k", value)] * rng.randint(1, 5))
                if rng.random() < 0.2:
                    log.append([(None, b"k", b"0 plain")] * rng.randint(1, 3))
            if rng.random() < 0.3:
                time.sleep(rng.random() * 0.01)


def write_broker(server: str, topic: str, seed: int, seconds: float) -> None:
    """The same to a broker."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    rng = random.Random(seed)
    admin = KafkaAdminClient(bootstrap_servers=server)
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"internal.segment.bytes": "16384"})])
    producers = [
        KafkaProducer(bootstrap_servers=server, transactional_id=f"{topic}-{i}", linger_ms=0) for i in range(3)
    ]
    for producer in producers:
        producer.init_transactions()
    open_ids: dict[int, int] = {}
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end or open_ids:
        i = rng.randrange(3)
        ends = time.monotonic() >= end or rng.random() < 0.4
        if i in open_ids and ends:
            kind = rng.choice(("commit", "abort"))
            print(kind, open_ids.pop(i))
            (producers[i].commit_transaction if kind == "commit" else producers[i].abort_transaction)()
        elif not ends:
            if i not in open_ids:
                number += 1
                open_ids[i] = number
                producers[i].begin_transaction()
            for _ in range(rng.randint(1, 5)):
                producers[i].send(topic, key=b"k", value=b"%d " % open_ids[i] + b"x" * rng.randrange(200))
            producers[i].flush()
        if rng.random() < 0.1:
            time.sleep(rng.random() * 0.02)


# ---- a round ----


class Found:
    """What a round saw, and what was wrong."""

    def __init__(self) -> None:
        self.reads = self.records = self.transactions = self.aborted = 0
        self.wrong: list[str] = []


def rows(folder: Path, isolation_level: str, first: int = 0) -> list[tuple[int, int]]:
    """Offsets of the records from `first` on, and the transactions that they are of."""
    found = pylogseg.read(folder, offset=first, isolation_level=isolation_level)
    return [(record.offset, int((record.value or b"").split()[0])) for record in found]


def one(seed: int, root: Path, places: list[Path], writer: list[str], found: Found) -> None:
    """Let a writer write to one of some places, and read meanwhile."""
    rng = random.Random(seed)
    followed = root / f"followed-{seed}"
    with followed.open("wb") as out, (root / f"told-{seed}").open("wb") as told:
        writing = subprocess.Popen(writer, stdout=told, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        while not (there := [place for place in places if list(place.glob("*.log"))]):
            time.sleep(0.05)
        folder = there[0]
        follower = process(
            "cat", folder, "--follow", "--isolation-level", "read_committed", "-f", "%o %s\n", stdout=out, stderr=None
        )
        reads: list[list[tuple[int, int]]] = []
        last = 0
        while writing.poll() is None:
            first = rng.choice((0, max(0, last - rng.randrange(300))))
            seen = rows(folder, "read_committed", first)
            last = max([last, *(offset for offset, _ in seen)])
            reads.append([(first, -1), *seen])
        if writing.returncode:
            found.wrong.append(f"seed {seed}: the writer ended with {writing.returncode}")
        ends = dict(reversed(line.split()) for line in (root / f"told-{seed}").read_text().splitlines())
        aborted = {int(number) for number, kind in ends.items() if kind == "abort"}
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            # What must be there, by what the writer said.
            expected = [row for row in rows(folder, "read_uncommitted") if row[1] not in aborted]
            whole = rows(folder, "read_committed")
            # A broker writes its markers a moment after the producer's last call.
            if whole == expected or time.monotonic() > end:
                break
            time.sleep(0.2)
        while len(followed.read_bytes().splitlines()) < len(whole) and time.monotonic() < end:
            time.sleep(0.2)
        follower.terminate()
        follower.wait(60)
    if whole != expected:
        found.wrong.append(f"seed {seed}: at the end {len(whole)} records, {len(expected)} were committed")
    lines = [(int(line.split()[0]), int(line.split()[1])) for line in followed.read_text().splitlines()]
    if lines != expected:
        extra, missing = sorted(set(lines) - set(expected)), sorted(set(expected) - set(lines))
        found.wrong.append(
            f"seed {seed}: followed {len(lines)} of {len(expected)}; {extra[:5]} extra, {missing[:5]} missing"
        )
    for (first, _), *seen in reads:
        wanted = [row for row in expected if row[0] >= first][: len(seen)]
        if seen != wanted:
            extra = sorted(set(seen) - set(expected))
            found.wrong.append(f"seed {seed}: a reading from {first} saw {len(seen)} records; {extra[:5]} extra")
    found.reads += len(reads)
    found.records += len(expected)
    found.transactions += len(ends)
    found.aborted += len(aborted)


def run(minutes: float, seed: int, broker: bool, seconds: float = 30) -> Found:
    """Rounds until the time is over."""
    root, found = Path(tempfile.mkdtemp(prefix="live-committed-")), Found()
    end = time.monotonic() + 60 * minutes
    start = [*itself(__file__), "--write"]
    script = BROKER
    try:
        if broker:
            subprocess.run(["bash", script, "start", root / "broker"], check=True, stdout=subprocess.DEVNULL)
            server = "127.0.0.1:" + (root / "broker" / "run" / "port").read_text().strip()
        while True:
            where = ["broker", server, f"t{seed}"] if broker else ["log", str(root / f"log-{seed}" / "q-0")]
            places = [root / "broker" / f"data{i}" / f"t{seed}-0" for i in range(2)] if broker else [Path(where[1])]
            one(seed, root, places, [*start, *where, str(seed), str(seconds)], found)
            if not (broker or found.wrong):
                shutil.rmtree(root / f"log-{seed}")
            seed += 1
            if time.monotonic() >= end or found.wrong:
                return found
    finally:
        if broker:
            subprocess.run(["bash", script, "stop", root / "broker"], check=False, stdout=subprocess.DEVNULL)
        if not found.wrong:
            shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Run the rounds, and say what was seen; exit code 1 if something was wrong."""
    if sys.argv[1:2] == ["--write"]:
        kind, *where, seed, seconds = sys.argv[2:]
        (write_broker if kind == "broker" else write_log)(*where, int(seed), float(seconds))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the others follow")
    parser.add_argument("--broker", action="store_true", help="write to a real Kafka")
    options = parser.parse_args()
    found = run(options.minutes, options.seed, options.broker)
    print("\n".join(found.wrong))
    print(
        f"{found.transactions} transactions, {found.aborted} of them aborted, {found.records} committed records, "
        f"{found.reads} readings beside the followers: {len(found.wrong)} wrong"
    )
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
