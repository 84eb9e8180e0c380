"""Random lists of operations on a log, with offline commands in the middle, against what each of them promises.

    python tests/soak offline-walks [--seed N] [--walks N] [--minutes M] [--only INDEX] [--folder DIR]

A walk appends, rolls and deletes records of a log, closes it (or lets go of it, as in a crash), runs a command on its
log directory, opens it and goes on. Each walk is made from the seed and its index alone, so what failed can be had
again with ``--seed`` and ``--only``. `test_offline_walks.py` runs a few.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from helpers.offline_logs import KEYS, NOW, Appends, records, state

import pylogseg
from pylogseg import offline
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import UncleanableError
from pylogseg.format.columns import to_row
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable, dirtiness
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.recovery_report import ActionKind
from pylogseg.offline import Blank
from pylogseg.offline.options import FixedClock

CONFIG = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "2000",
    "segment.index.bytes": "4096",
    "index.interval.bytes": "100",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
    "delete.retention.ms": "3000",
}
#: A log is not made longer than that, so that a walk stays short.
MOST_RECORDS = 400


class View(NamedTuple):
    """All that readers and brokers see of a log.

    Attributes
    ----------
    records : list of tuple
        All from the log start on; the offset first, then timestamp, key, value and headers.
    committed : list of tuple
        Offset, timestamp, key and value of what a read_committed reader sees.
    ends : list of int
        Of the batches.
    state : dict
        See `offline_logs.state`.
    """

    records: list[tuple[Any, ...]]
    committed: list[tuple[Any, ...]]
    ends: list[int]
    state: dict[str, Any]

    def last_values(self) -> dict[bytes, tuple[Any, ...]]:
        """The last record of each key, but for tombstones."""
        last = {record[2]: record for record in self.committed if record[2] is not None}
        return {key: record for key, record in last.items() if record[3] is not None}


class World:
    """A log directory with one log, open or closed."""

    def __init__(self, root: Path) -> None:
        self.root, self.path, self.now_ms, self.copies = root, root / "data", NOW, 0
        self.storage = LocalStorage()

    def open(self) -> Log:
        """The log, as a broker opens it; an alarm is an error."""
        self.directory = LogDirectory(self.storage, str(self.path))
        self.start = self.directory.claim("t-0")
        self.clock, self.scheduler = FixedClock(self.now_ms), CollectingScheduler()
        self.log = Log.open(
            Environment(self.storage, self.clock, self.scheduler),
            str(self.path / "t-0"),
            LogConfig.from_properties(CONFIG),
            self.start,
        )
        assert not self.log.report.is_damage, self.log.report.actions
        self.log.update_high_watermark(self.log.log_end_offset)
        self.directory.attach("t-0", self.log)
        return self.log

    def close(self, *, crash: bool = False) -> None:
        """Close in order; or let go, with checkpoints as they happen to be and no marker."""
        if crash:
            self.directory.checkpoint()
            self.log.close_handles()
        else:
            self.log.flush()
            self.log.close()
        self.scheduler.finish()
        self.directory.release("t-0", clean=not crash, write=False)
        self.directory.close()

    def view(self) -> View:
        """What the open log shows; the files are read besides."""
        log = self.log
        start = log.log_start_offset
        ends = [int(end) for part in log.segments for each in part.windows() for end in each.batches.next_offset]
        self.directory.checkpoint()  # where the log begins
        reader = pylogseg.read(self.path / "t-0", isolation_level="read_committed")
        committed = [(each.offset, each.timestamp, each.key, each.value) for each in reader]
        return View([record for record in records(log) if record[0] >= start], committed, ends, state(log))

    def fresh(self) -> Path:
        """A folder that is not there yet."""
        self.copies += 1
        return self.root / f"copy-{self.copies}"

    def twin(self) -> World:
        """A closed one again, in a folder of its own."""
        twin = World(self.root)
        twin.path, twin.now_ms = self.fresh(), self.now_ms
        shutil.copytree(self.path, twin.path)
        return twin

    def move_to(self, path: Path) -> None:
        """Go on in a copy."""
        shutil.rmtree(self.path)
        self.path = path


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the lock."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: data for name, data in found.items() if name != ".lock"}


class Told(NamedTuple):
    """What a command says about its work.

    Attributes
    ----------
    rows : list of dict
        Of partitions and checkpoints.
    files : set of str
        In a dry run: those that it would change.
    """

    rows: list[dict[str, Any]]
    files: set[str]


def told(result: Any) -> Told:
    rows = [{name: value for name, value in to_row(each).items() if name != "changes"} for each in result]
    rows += [change._asdict() for change in result.checkpoints]
    changes = [change.path for each in (result, *result.partitions) for change in each.changes]
    return Told(rows, {os.path.relpath(path, result.log_dir) for path in changes})


def without_snapshots(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if not name.endswith(".snapshot")}


def clean(world: World, map_bytes: int, *, include_active: bool = False) -> None:
    """What a cleaner of ours does with the open log."""
    log, cleaner = world.log, Cleaner(OffsetMap(map_bytes, 0.9))
    if include_active and log.active.size:
        log.roll()
    while True:
        what = cleanable(log, world.directory.cleaned_to("t-0"), world.now_ms)
        if not dirtiness(log, what).cleanable_bytes:
            return
        world.directory.note_cleaned("t-0", cleaner.clean(log, what)[0])


def check_files(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    differ = [name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)]
    assert not differ, differ


def check_records(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Raise with the first record that differs."""
    if found != expected:
        differ = [pair for pair in zip_longest(found, expected) if pair[0] != pair[1]]
        raise AssertionError(f"{len(differ)} records differ, the first is {differ[0][0]} and should be {differ[0][1]}")


# ---- commands, and what they promise ----


class Walk:
    """One walk.

    Parameters
    ----------
    rng : random.Random
        Decides everything.
    root : Path
        An empty folder.
    counts : Counter
        What was done is counted here.
    """

    def __init__(self, rng: random.Random, root: Path, counts: Counter[str]) -> None:
        self.rng, self.counts = rng, counts
        self.world = World(root)
        self.appends = Appends(rng, (2,) if rng.random() < 0.6 else (2, 2, 2, 1, 0))

    def run(self, rounds: int) -> None:
        """Grow the log, close it, run a command, look, and so on."""
        world, rng = self.world, self.rng
        world.open()
        for _ in range(rounds):
            self.grow()
            was = world.view()
            crash = rng.random() < 0.2
            world.close(crash=crash)
            # What shows when the log is opened without a command in between.
            twin = world.twin()
            twin.open()
            before = twin.view()
            twin.close()
            check_records(before.records, was.records)
            if not crash:  # a recovery knows again of transactions below the log start
                check_records(before.committed, was.committed)
            name = rng.choice(COMMANDS)
            self.counts[name] += 1
            getattr(self, f"do_{name}")(before)
        world.close()

    def grow(self) -> None:
        """Some operations on the open log."""
        log, rng = self.world.log, self.rng
        for _ in range(rng.randint(1, 25)):
            what = rng.random()
            if what < 0.85 and log.log_end_offset - log.log_start_offset < MOST_RECORDS:
                self.appends.append(log)
            elif what < 0.9:
                log.roll()
            elif what < 0.93:
                log.flush()
            elif what < 0.95:
                log.update_high_watermark(log.log_end_offset)
                log.increment_log_start(rng.randint(log.log_start_offset, log.high_watermark))
        log.update_high_watermark(log.log_end_offset)
        self.world.now_ms += rng.choice([0, 10, 1000, 4000])

    def changed(self, command: Any, own: dict[str, Any], *, may_fail: bool = False) -> View:
        """Run a command, sometimes dry first, sometimes into another folder, and look at what it left."""
        world, rng = self.world, self.rng
        common = {"config": CONFIG, "now_ms": world.now_ms, "cluster_metadata": "none"}
        before, into = files(world.path), world.fresh() if rng.random() < 0.3 else None
        was = told(command(world.path, dry_run=True, **common, **own)) if rng.random() < 0.5 else None
        assert files(world.path) == before
        result = command(world.path, into=into, **common, **own)
        (part_result,) = result.partitions
        self.result = part_result
        if part_result.state == "failed":
            assert may_fail, part_result.reason
            assert isinstance(part_result.error, UncleanableError), part_result.reason
            self.counts["uncleanable"] += 1
        elif into is not None:
            assert files(world.path) == before
            world.move_to(into)
        elif was is not None:
            assert was.rows == told(result).rows
            self.counts["dry"] += 1
            after = files(world.path)
            differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            assert differ == was.files, differ ^ was.files
        if part_result.state != "failed":
            # What does not open the log leaves it as trustworthy as it was.
            assert result.is_closed_clean or command is offline.reindex
            left = files(world.path)
            (again,) = command(world.path, **common, **own).partitions
            assert again.state == "unchanged", again
            # As in a broker, the next open sees to the snapshots, and removes an epoch that begins at the end.
            put_in_order = {action.kind for action in again.report.actions}
            assert put_in_order <= {ActionKind.SNAPSHOT, ActionKind.EPOCHS}, again.report.actions
            gone = {os.path.relpath(action.path, world.path): b"" for action in again.report.actions}
            check_files(without_snapshots(files(world.path) | gone), without_snapshots(left | gone))
        world.open()
        assert part_result.state == "failed" or world.start.clean == result.is_closed_clean
        return world.view()

    def do_compact(self, before: View) -> None:
        """The last value of every key, offsets and order; the bytes of the engine's own cleaner."""
        world, rng = self.world, self.rng
        own = {"map_bytes": rng.choice([200, 1000, 1 << 20]), "include_active": rng.random() < 0.5}
        twin = world.twin()
        after = self.changed(offline.compact, own, may_fail=True)
        cleaned_to = world.directory.cleaned_to("t-0") or 0
        self.check_same_state(before, after)
        known = {record[0]: record[:5] for record in before.records}
        assert [record[0] for record in after.records] == sorted({record[0] for record in after.records})
        for record in after.records:
            # Batches of magic 0 come out as magic 2.
            assert known[record[0]] == record[:5]
        if self.result.state != "failed":  # else it ends in the middle of a round, which no checkpoint tells
            check_records(*([r for r in view.records if r[0] >= cleaned_to] for view in (after, before)))
        assert set(after.committed) <= set(before.committed)
        assert after.last_values() == before.last_values()
        twin.open()
        try:
            clean(twin, own["map_bytes"], include_active=own["include_active"])
        except UncleanableError:
            return
        finally:
            twin.close()
        check_files(without_snapshots(self.closed_files()), without_snapshots(files(twin.path / "t-0")))

    def closed_files(self) -> dict[str, bytes]:
        """The files of the log, closed in order."""
        self.world.close()
        found = files(self.world.path / "t-0")
        self.world.open()
        return found

    @property
    def is_mixed(self) -> bool:
        return self.appends.magics != (2,)

    @property
    def no_more_than_the_log(self) -> list[str]:
        """Of the state what is another one when a log is read again from its first byte, as in a broker."""
        # Transactions that begin below the log start are known again; those of which nothing is left are not. A batch
        # of an old magic makes a broker forget the epochs before it, while it runs.
        return ["aborted", "producers", "last stable", *(["epochs"] if self.is_mixed else [])]

    def check_same_state(self, before: View, after: View, but: Sequence[str] = ("aborted",)) -> None:
        for what, was in before.state.items():
            assert what in but or after.state[what] == was, f"{what}: {was} became {after.state[what]}"

    def check_same(self, before: View, after: View, but: Sequence[str] = ()) -> None:
        """All is as it was, but for parts of the state."""
        self.check_same_state(before, after, but)
        check_records(after.records, before.records)
        stable = min(view.state["last stable"] for view in (before, after))
        check_records(*([record for record in view.committed if record[0] < stable] for view in (after, before)))

    def do_reindex(self, before: View) -> None:
        """Whatever indexes were, the log shows the same."""
        for path in sorted((self.world.path / "t-0").glob("*index")):
            kind = self.rng.random()
            if kind < 0.2:
                path.unlink()
            elif kind < 0.4:
                path.write_bytes(self.rng.randbytes(self.rng.randint(0, 60)))
        self.check_same(before, self.changed(offline.reindex, {}), self.no_more_than_the_log)

    def do_retain(self, before: View) -> None:
        """Oldest segments go, and nothing else."""
        rng, start, end = self.rng, before.state["start"], before.state["end"]
        own: dict[str, Any] = {"before_offset": rng.randint(start, end)}
        if rng.random() < 0.5:
            own = {"max_bytes": rng.randint(0, 5000)}
        self.check_below_gone(before, self.changed(offline.retain, own), own.get("before_offset", end))

    def do_delete_records(self, before: View) -> None:
        """The log begins where it was told to."""
        offset = self.rng.choice([-1, self.rng.randint(before.state["start"], before.state["end"])])
        after = self.changed(offline.delete_records, {"offsets": {"t-0": offset}, "force": True})
        expected = before.state["end"] if offset == -1 else offset
        assert after.state["start"] == expected
        self.check_below_gone(before, after, expected)

    def check_below_gone(self, before: View, after: View, highest: int) -> None:
        start = after.state["start"]
        assert before.state["start"] <= start <= max(highest, before.state["start"])
        assert after.state["end"] == before.state["end"]
        check_records(after.records, [record for record in before.records if record[0] >= start])
        # A transaction that was open and of which nothing is left holds back nobody any more.
        stable = before.state["last stable"]
        check_records(*([r for r in view.committed if start <= r[0] < stable] for view in (after, before)))

    def do_truncate(self, before: View) -> None:
        """Whole batches below the offset stay, nothing at or behind it."""
        to = self.rng.randint(before.state["start"], before.state["end"])
        after = self.changed(offline.truncate, {"to": to})
        end = after.state["end"]
        assert max((end for end in before.ends if end <= to), default=0) <= end <= max(to, before.state["start"])
        check_records(after.records, [record for record in before.records if record[0] < end])

    def do_copy(self, before: View) -> None:
        """The copy shows the same; the walk goes on in it or in the original."""
        world, into, was = self.world, self.world.fresh(), files(self.world.path)
        offline.copy(world.path, into)
        assert files(world.path) == was
        if self.rng.random() < 0.5:
            world.move_to(into)
        world.open()
        self.check_same(before, world.view())

    def do_redact(self, before: View) -> None:
        """The key is gone everywhere, all else is as it was."""
        key = self.rng.choice(KEYS[1:]).encode()
        if self.rng.random() < 0.5:
            after = self.changed(offline.redact, {"keys": [key], "force": not key})
            expected = [record for record in before.records if record[2] != key or record[9]]
        else:
            after = self.changed(offline.redact, {"keys": [key], "blank": Blank(("value",)), "force": not key})
            blank = (None,)
            expected = [(*r[:3], *blank, *r[4:]) if r[2] == key and not r[9] else r for r in before.records]
        # The last message of a magic without empty batches stays, blank.
        blank = [r for r in after.records if r[2:5] == (None, None, []) and r[0] not in {r[0] for r in expected}]
        assert len(blank) <= self.is_mixed, blank
        check_records([record for record in after.records if record not in blank], expected)
        self.check_same_state(before, after)

    def do_recode(self, before: View) -> None:
        """The same records in the same batches."""
        codec = self.rng.choice(["none", "gzip", "lz4", "snappy"])
        # A compressed message of an old magic becomes several messages; a log start may lie between them.
        but = ["last stable"] if self.is_mixed else []
        self.check_same(before, self.changed(offline.recode, {"compression": codec}), but)

    def do_repair(self, before: View) -> None:
        """There is nothing to repair."""
        after = self.changed(offline.repair, {"keep_behind": self.rng.random() < 0.5})
        self.check_same(before, after, self.no_more_than_the_log)


COMMANDS = [name[3:] for name in dir(Walk) if name.startswith("do_")]


def run(seed: int, first: int, walks: int, folder: Path, minutes: float = 0, rounds: int = 8) -> Counter[str]:
    """Take walks, and say which one failed; what was done."""
    began, counts = time.monotonic(), Counter[str]()
    for index in range(first, first + walks):
        root = Path(tempfile.mkdtemp(prefix="walk-", dir=folder))
        try:
            Walk(random.Random(seed << 64 | index), root, counts).run(rounds)
        except Exception as error:
            raise AssertionError(f"again with: python tests/soak offline-walks --seed {seed} --only {index}") from error
        finally:
            shutil.rmtree(root)
        counts["walks"] += 1
        if minutes and time.monotonic() - began > 60 * minutes:
            break
    return counts


def main() -> None:
    """Run a soak from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long")
    parser.add_argument("--only", type=int, default=None, help="the index of one walk")
    parser.add_argument("--folder", type=Path, default=None, help="where the logs lie; default: the system's")
    options = parser.parse_args()
    first, walks = (0, options.walks) if options.only is None else (options.only, 1)
    print(f"seed {options.seed}", flush=True)
    counts = run(options.seed, first, walks, options.folder, options.minutes)
    print("all held:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
