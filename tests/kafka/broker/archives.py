#!/usr/bin/env python3
"""Random histories of three brokers whose disks are archived: each point is restored into a fresh broker.

    archives.py [--seed N] [--seeds N] [--events N] [--points N] [--drills N] [--keep DIR]

A controller and three brokers have topics of several kinds; producers write idempotently, in transactions that are
committed, aborted, held or left open, to a compacted topic with small segments, to one of unclean elections, to one
that is deleted and made again; groups move, to and fro. By the seed things happen: partitions are reassigned and added,
leaders are elected, cleanly and not, brokers are killed, stopped and stalled, alone and at once, their disks are
emptied, added and swapped, records are deleted, by request and by retention, keys are cleaned, settings of topics
change, groups are rebalanced and deleted, metadata snapshots come every few seconds. Meanwhile `pylogseg archive` of
all disks writes a point every few seconds, and is killed now and then. Then the brokers are killed, and a last point is
made of what they left.

`verify --read-all` has to find nothing. Points are restored by `restore --node-id` into an empty folder, which a new
broker opens: it may not recover anything, or warn of a partition. What was acknowledged and lies in the point has to be
there, at its offset and once; what was acknowledged before the brokers noted what is committed, has to lie in it;
nothing is there that was not sent, or that an election had lost before. No record of an aborted transaction is shown,
and none of a part of one. Groups stand where they stood. Then the same producers write, each transactional id commits
a transaction, open ones end, and the group reads on. Last, `drill` with that Kafka has to agree about some points.

A line says of each seed what happened and what was found. About three minutes each; exit code 0 if all is well. Needs
confluent-kafka and kafka-python.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

# Neighbours, which are no package:
from archive_judge import Judge
from archived_cluster import ArchivedCluster
from three_brokers import Node
from tiers import broker, server

from pylogseg.archive import drill, list_points, read_point, restore_point, write
from pylogseg.archive.kafka_home import StartedKafka
from pylogseg.disk.tier.point import Point

#: A restored broker keeps all that it got.
_KEPT = ("log.cleaner.enable=false", "log.retention.check.interval.ms=2147483647", "offsets.topic.num.partitions=3",
         "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000")  # fmt: skip


class Archiver(threading.Thread):
    """`pylogseg archive --every`, which is killed now and then, and started again."""

    def __init__(self, nodes: list[Node], archive: Path, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._nodes, self._archive, self._chance, self._ends = nodes, archive, chance, threading.Event()
        self._how = [*chance.choice(((), ("--compress", "zstd"))), *chance.choice(((), ("--jobs", "2")))]
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.starts, self.errors = 0, list[str]()

    @property
    def disks(self) -> list[Path]:
        """The disks that the nodes have now."""
        return [disk for node in self._nodes for disk in node.disks]

    def run(self) -> None:
        """Go on until it is stopped."""
        while not self._ends.is_set():
            every = f"{self._chance.uniform(1.5, 4):.1f}s"
            disks = map(str, self._chance.sample(self.disks, len(self.disks)))
            command = [sys.executable, "-m", "pylogseg", "archive", *disks, str(self._archive), "--every", every]
            process = subprocess.Popen(
                [*command, "--json", *self._how], stdout=self._said, stderr=subprocess.STDOUT, encoding="utf-8"
            )
            self.starts += 1
            begun, until = self._size(), time.monotonic() + self._chance.uniform(8, 40)
            while time.monotonic() < until and not self._ends.wait(0.05) and process.poll() is None:
                pass
            if self._ends.is_set():
                # Before the first line of the package an interrupt is Python's: not before it has written a point.
                while self._size() == begun and process.poll() is None and time.monotonic() < until:
                    time.sleep(0.05)
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    self.errors.append("archive did not end within 60 s")
                    process.kill()
                    process.wait()
            elif process.poll() is not None:
                self.errors.append(f"archive ended by itself, with {process.returncode}")
                return
            else:
                process.kill()
                process.wait()

    def _size(self) -> int:
        return os.fstat(self._said.fileno()).st_size

    def stop(self) -> list[str]:
        """End it; what is wrong with what it said."""
        self._ends.set()
        self.join()
        self._said.seek(0)
        said = self._said.read()
        self._said.close()
        if self.errors or "Traceback" in said:
            self.errors.append(said[-3000:])
        return self.errors


class History:
    """One history: what happened, its points, and what is wrong with them."""

    def __init__(self, root: Path, seed: int, events: int, points: int, drills: int) -> None:
        self.chance = random.Random(seed)
        self.root, self.archive = root, root / "archive"
        self.cluster = ArchivedCluster(root, self.chance)
        self.events = self.chance.sample(sorted(self.cluster.all_events), events)
        self._points, self._drills = points, drills
        nodes = [*self.cluster.brokers, *([self.cluster.controller] if self.chance.random() < 0.5 else [])]
        self.archiver = Archiver(nodes, self.archive, random.Random(self.chance.random()))
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def play(self) -> None:
        """Let it happen, with a point every few seconds; then look at points."""
        self.archive.mkdir()
        try:
            self.cluster.begin()
            self.archiver.start()
            time.sleep(3)
            for event in self.events:
                print(f"  {event}", flush=True)
                self.cluster.happen(event)
                time.sleep(self.chance.uniform(0.5, 3))
            self.cluster.clients.stop()
            self.wrong += self.cluster.look_at_the_end()
            time.sleep(1)  # the brokers note what is committed
            self.wrong += self.archiver.stop()
        finally:
            if self.archiver.is_alive():  # the history did not come to its end
                self.archiver.stop()
            self.cluster.end()
        self.wrong += self.cluster.clients.errors
        points = self._made(write(self.archiver.disks, self.archive).point)
        self._shell("verify", self.archive, "--read-all")
        some = sorted(self.chance.sample(points[:-1], min(self._points - 1, len(points) - 1)), key=lambda p: p.id)
        for point in [*some, points[-1]]:
            self._restored(point)
        os.environ["KAFKA_OPTS"] = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
        for point in self.chance.sample(points, self._drills):
            self._drilled(point)

    def _made(self, last: Point) -> list[Point]:
        """Return the points, and count what they have."""
        points = [read_point(self.archive, name) for name in list_points(self.archive)]
        self.counts["points"], self.counts["archivers killed"] = len(points), self.archiver.starts - 1
        for point in points:
            for each in point.partitions:
                self.counts[f"faults of {each.topic}"] += bool(each.fault)
            self.counts["points with groups above ends"] += bool(point.above_end)
        if points[-1] != last:
            self.wrong.append(f"the last point is {points[-1].id}, and {last.id} was made")
        whole = {path.relative_to(self.archive).as_posix() for path in self.archive.glob("*-*/*/*.rsm-manifest")}
        self.counts["segments in no point"] = len(whole - {key for point in points for key in point.objects})
        return points

    def _shell(self, *words: object, codes: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, "-m", "pylogseg", *map(str, words)]
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
        if done.returncode not in codes:
            what = f"pylogseg {' '.join(map(str, words))} ended with {done.returncode}"
            self.wrong.append(f"{what}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def _restored(self, point: Point) -> None:
        """Restore a point into a fresh broker, and look at it."""
        ended_s, begun_s = os.stat(self.archive / point.name.key).st_mtime, time.monotonic()
        judge = Judge(self.cluster, point, ended_s)
        judge.check_point()
        folder = self.root / f"restored-{point.id}"
        (folder / "data0").mkdir(parents=True)
        (folder / "run").mkdir()
        (folder / "run" / "static").touch()  # who votes is in the broker's settings
        try:
            restore_point(self.archive, folder / "data0", point=point.id, node_id=1)
            broker("start", folder, *_KEPT)
            judge.check(server(folder))
            judge.go_on(server(folder))
            names = [each.name for each in point.partitions]
            said = StartedKafka(server(folder), str(folder / "run" / "server.log")).complaints(names)
            judge.wrong += [f"the broker says: {line[:400]}" for line in said]
        except Exception as error:
            judge.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            broker("kill", folder)
        if not judge.wrong:
            shutil.rmtree(folder)
        self.counts += judge.counts
        self.counts["points restored"] += 1
        self.wrong += [f"{point.id}: {each}" for each in judge.wrong]
        print(f"  {point.id}: {dict(+judge.counts)}: {len(judge.wrong)} wrong, "
              f"{time.monotonic() - begun_s:.0f} s", flush=True)  # fmt: skip

    def _drilled(self, point: Point) -> None:
        done = drill(self.archive, point=point.id, kafka_home=kafka_home(self.root), folder=self.root)
        self.wrong += [f"{point.id}: drill: {each}" for each in done.all_problems]
        self.counts["drills"] += 1
        print(f"  {point.id}: drill: {done.verdict}", flush=True)


def kafka_home(root: Path) -> Path:
    """The folder of a Kafka, of the jars that broker.sh has fetched."""
    cache = Path(os.environ.get("ORACLE_HOME", Path.home() / ".cache" / "pylogseg-oracle"))
    libs = root / "kafka" / "libs"
    if not libs.exists():
        libs.mkdir(parents=True)
        for jar in [*(cache / f"kafka-{version()}").glob("*.jar"), *(cache / "broker-log").glob("*.jar")]:
            if "slf4j-nop" not in jar.name:
                (libs / jar.name).symlink_to(jar)
    return libs.parent


def version() -> str:
    """The version of Kafka."""
    return os.environ.get("KAFKA_VERSION", "4.3.0")


def main() -> int:
    """Run histories; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many, one after the other")
    parser.add_argument("--events", type=int, default=7, help="how much happens besides clients")
    parser.add_argument("--points", type=int, default=5, help="how many points are restored, the last one among them")
    parser.add_argument("--drills", type=int, default=1, help="and how many are drilled")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of histories that are not well there")
    options = parser.parse_args()
    os.environ.setdefault("BROKER_HEAP", "256m")
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        root, begun_s = Path(tempfile.mkdtemp(prefix=f"archives-{seed}-", dir=options.keep)), time.monotonic()
        history = History(root, seed, options.events, options.points, options.drills)
        try:
            history.play()
        except Exception as error:
            history.wrong.append(f"the history did not come to its end: {type(error).__name__}: {error}")
        seconds = time.monotonic() - begun_s
        print("\n".join(each[:1500] for each in history.wrong[:40]), end="\n" if history.wrong else "")
        counts = +(history.counts + history.cluster.counts)
        numbers = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        verdict = f"{len(history.wrong)} wrong" if history.wrong else "all is well"
        print(f"seed {seed}, Kafka {version()}: {', '.join(history.cluster.events)}; "
              f"{len(history.cluster.clients.acks):,} records acknowledged; {numbers}; {seconds:.0f} s; {verdict}",
              flush=True)  # fmt: skip
        failed += bool(history.wrong)
        if options.keep is None or not history.wrong:
            shutil.rmtree(root, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
