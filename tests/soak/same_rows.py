"""The same rows whichever way one asks: random disks with random damage, read in every way.

python tests/soak same-rows [--seed S] [--minutes N | --disks N]

Each disk is drawn from its seed alone. What differs is printed with the seed, and the disk is kept.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import json
import logging
import operator
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from helpers.shell import pylogseg

import pylogseg as package
from pylogseg import offline
from pylogseg.format.columns import to_row
from soak import EXAMPLES

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
MODES = ("raise", "stop", "skip")
ISOLATIONS = ("read_uncommitted", "read_committed")
AS_TEXT = ("--key-as", "base64", "--value-as", "base64", "--fields", "topic,partition,offset,timestamp,key,value")


class Outcome(NamedTuple):
    """Rows, whether damage was an error, and where it is: sentences as in messages; None is not compared."""

    rows: list[tuple[Any, ...]]
    failed: bool
    places: list[str] | None = None


class _Abort(Exception):
    pass


# ---- disks ----


def draw(rng: random.Random, root: Path) -> list[str]:
    """A log directory; what was done to it."""
    done = []
    root.mkdir()
    for number in range(rng.randint(1, 3)):
        folder = root / f"t-{number}"
        if rng.random() < 0.3:
            source = rng.choice(sorted(path for path in EXAMPLES.iterdir() if list(path.glob("*.log"))))
            shutil.copytree(source, folder)
            done.append(f"{folder.name}: a copy of {source.name}")
            continue
        _write(rng, folder)
        if rng.random() < 0.3:
            with contextlib.suppress(package.PylogsegError):
                list(offline.compact(root, topic=[folder.name], config={"cleanup.policy": "compact"}))
                done.append(f"{folder.name}: compacted")
    for path in root.iterdir():  # locks and markers
        if path.is_file() and path.name.startswith("."):
            path.unlink()
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        done.append(damage(rng, root))
    return done


def _write(rng: random.Random, folder: Path) -> None:
    settings = {"segment_bytes": rng.choice((600, 2000, 10_000)), "index_interval_bytes": rng.choice((1, 300, 4096))}
    clock = 1_000_000
    with package.open_log(folder, retention_ms=-1, **settings) as log:
        producers = [log.producer(number) for number in range(3)]
        for _ in range(rng.randint(3, 60)):
            clock += rng.randrange(-50, 200)
            records = [
                (
                    clock + rng.randrange(-20, 20),
                    rng.choice((None, b"k%d" % rng.randrange(9))),
                    rng.choice((None, rng.randbytes(rng.randrange(60)))),
                )
                for _ in range(rng.randint(1, 8))
            ]
            codec = rng.choice(CODECS)
            if rng.random() < 0.5:
                log.append(records, compression=codec)
                continue
            producer = rng.choice(producers)
            with contextlib.suppress(_Abort), producer.transaction():
                producer.append(records)
                if rng.random() < 0.3:
                    log.append(records, compression=codec)
                if rng.random() < 0.4:
                    raise _Abort


def damage(rng: random.Random, root: Path) -> str:
    """One thing that happens to disks."""
    folder = rng.choice(sorted(path for path in root.iterdir() if path.is_dir()))
    logs = sorted(folder.glob("*.log"))
    others = sorted(path for path in folder.iterdir() if path.suffix != ".log")
    kind = rng.choice(
        ("flip", "flip", "cut", "zero", "swap", "misname", "copy", "missing", "beside", "lose", "foreign")
    )
    if not logs or (kind in ("beside", "lose") and not others):
        return "nothing"
    path = rng.choice(logs if kind not in ("beside", "lose") else others)
    data = bytearray(path.read_bytes())
    if kind in ("flip", "beside") and data:
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return f"{kind} {path.parent.name}/{path.name} at {at}"
    if kind == "cut" and data:
        path.write_bytes(data[: rng.randrange(len(data))])
    elif kind == "zero" and data:
        at = rng.randrange(len(data))
        size = min(rng.choice((1, 20, 300, 5000)), len(data) - at)
        data[at : at + size] = bytes(size)
        path.write_bytes(data)
    elif kind == "swap":
        other = rng.choice(logs)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind in ("misname", "copy"):
        base = max(0, int(path.stem) + rng.randrange(-40, 40))
        target = path.with_name(f"{base:020d}.log")
        if not target.exists():
            (shutil.copy if kind == "copy" else shutil.move)(path, target)
    elif kind in ("missing", "lose"):
        path.unlink()
    elif kind == "foreign":
        (folder / rng.choice(("notes.txt", "00000000000000000007.bak", f"{5:020d}.swap"))).write_bytes(
            rng.randbytes(99)
        )
    return f"{kind} {path.parent.name}/{path.name}"


# ---- ways ----


def by_reader(make: Callable[[], package.Reader]) -> Outcome:
    rows: list[tuple[Any, ...]] = []
    try:
        for record in make():
            rows.append((record.topic, record.partition, record.offset, record.timestamp, record.key, record.value))
    except package.CorruptionError as error:
        return Outcome(rows, True, [_place(str(error))])
    return Outcome(rows, False)


def _place(message: str) -> str:
    """File, position and offset of an error's message: its reason names another remedy in each interface."""
    return ": ".join(message.split(": ")[:2])


def _told(err: str) -> list[str]:
    """What a command said on stderr of damage."""
    lines = [line.removeprefix("pylogseg: ") for line in err.splitlines()]
    return sorted(
        line.removeprefix("damage: ") if line.startswith("damage: ") else _place(line)
        for line in lines
        if line.startswith("damage: ") or ": at position " in line
    )


def by_arrow(make: Callable[[], Any]) -> Outcome:
    rows: list[tuple[Any, ...]] = []
    names = ("topic", "partition", "offset", "timestamp", "key", "value")
    try:
        for batch in make():
            table = batch.to_pydict()
            table["timestamp"] = batch.column("timestamp").cast("int64").fill_null(-1000).to_pylist()
            table["timestamp"] = [moment // 1000 for moment in table["timestamp"]]
            rows += zip(*(table[name] for name in names), strict=True)
    except package.CorruptionError as error:
        return Outcome(rows, True, [_place(str(error))])
    return Outcome(rows, False)


def _row(line: str) -> tuple[Any, ...]:
    row = json.loads(line)
    key, value = (None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value"))
    return row["topic"], row["partition"], row["offset"], row["timestamp"], key, value


def by_shell(*arguments: object) -> Outcome:
    done = pylogseg(*arguments)
    return Outcome([_row(line) for line in done.out.decode().splitlines()], done.code != 0, _told(done.err))


def by_export(root: Path, *arguments: object) -> Outcome:
    with tempfile.TemporaryDirectory() as out:
        done = pylogseg(
            "export", root, "--out", out, "--to", "jsonl", "--columns", AS_TEXT[-1], *AS_TEXT[:4], *arguments
        )
        files = sorted(Path(out).rglob("*.jsonl"))
        rows = [_row(line) for path in files for line in path.read_text().splitlines()]
        return Outcome(rows, done.code != 0, _told(done.err))


def differences(rng: random.Random, root: Path) -> Iterator[str]:
    """What two ways give differently."""
    for isolation_level in ISOLATIONS:
        for mode in MODES:
            yield from _in_mode(rng, root, isolation_level, mode)
    yield from _counts(root)


def _in_mode(rng: random.Random, root: Path, isolation_level: Any, mode: Any) -> Iterator[str]:
    how = {"isolation_level": isolation_level, "on_corrupt": mode}
    options = ("--isolation-level", isolation_level, "--on-corrupt", mode)
    try:
        reader = package.read(root, **how)
    except package.PylogsegError as error:
        done = pylogseg("cat", root, *options)
        if done.code == 0:
            yield f"read: {error}; cat: fine"
        return
    whole = by_reader(lambda: reader)
    is_damaged = whole.failed or any(gap.is_damage for gap in reader.gaps)
    places = sorted(str(gap) for gap in reader.gaps if gap.is_damage) if mode != "raise" else whole.places or []
    expected = Outcome(whole.rows, is_damaged, places)
    name = f"{isolation_level} {mode}"
    ways: dict[str, Outcome] = {
        f"cat -j {jobs}": by_shell("cat", root, *AS_TEXT, *options, "-j", jobs) for jobs in (1, 2)
    }
    ways["read_arrow"] = by_arrow(lambda: package.read_arrow(root, **how))
    if mode != "raise":
        ways["read_arrow"] = ways["read_arrow"]._replace(failed=is_damaged)
    for way, found in ways.items():
        yield from _compared(f"{name} {way}", expected, found)
    exported = by_export(root, *options)
    if mode != "raise":
        yield from _compared(f"{name} export", expected, exported)
    elif exported.failed != is_damaged:
        yield f"{name} export: failed is {exported.failed}, of read {is_damaged}"
    counted = pylogseg("grep", "-v", "-c", "no such thing anywhere", root, *options)
    if (counted.code == 2) != is_damaged:
        yield f"{name} grep: code {counted.code}, damage {is_damaged}"
    elif counted.code != 2 or mode != "raise":
        total = sum(int(line.rpartition(":")[2]) for line in counted.out.decode().splitlines())
        if total != len(whole.rows):
            yield f"{name} grep -c: {total}, of read {len(whole.rows)}"
    yield from _spark(root, isolation_level, mode, expected, name)
    if mode == "skip":
        yield from _ranges(rng, root, how, options, whole.rows, name)
        yield from _ends(rng, root, options, whole.rows, name)
        yield from _latest(root, how, options, whole.rows, name)


def _compared(name: str, expected: Outcome, found: Outcome) -> Iterator[str]:
    if found.failed != expected.failed:
        yield f"{name}: failed is {found.failed}, of read {expected.failed}"
    if None not in (found.places, expected.places) and found.places != expected.places:
        yield f"{name}: damage at {found.places}, of read {expected.places}"
    if found.rows != expected.rows:
        missing, extra = set(expected.rows) - set(found.rows), set(found.rows) - set(expected.rows)
        some = [row[:3] for row in [*sorted(missing, key=str)[:3], *sorted(extra, key=str)[:3]]]
        counts = f"{len(found.rows)} rows, of read {len(expected.rows)}"
        yield f"{name}: {counts}; {len(missing)} missing, {len(extra)} extra: {some}"


def _ranges(
    rng: random.Random, root: Path, how: dict[str, Any], options: tuple[str, ...], rows: list[Any], name: str
) -> Iterator[str]:
    end = max((row[2] for row in rows if row[2] < 2**40), default=0)
    first = rng.randrange(end + 1)
    last = first + rng.randrange(end + 2)
    wanted = [row for row in rows if first <= row[2] < last]
    found = by_reader(lambda: package.read(root, offset=(first, last), **how)).rows
    yield from _compared(f"{name} read offset {first}:{last}", Outcome(wanted, False), Outcome(found, False))
    found = by_shell("cat", root, *AS_TEXT, *options, "-o", f"{first}:{last}").rows
    yield from _compared(f"{name} cat -o {first}:{last}", Outcome(wanted, False), Outcome(found, False))
    times = sorted(row[3] for row in rows) or [0]
    since, until = sorted(rng.choice(times) + rng.randrange(2) for _ in range(2))
    wanted = [row for row in rows if since <= row[3] < until]
    found = by_reader(lambda: package.read(root, timestamp=(since, until), **how)).rows
    yield from _compared(f"{name} read time {since}:{until}", Outcome(wanted, False), Outcome(found, False))
    found = by_shell("cat", root, *AS_TEXT, *options, "--since", since, "--until", until).rows
    yield from _compared(f"{name} cat --since {since} --until {until}", Outcome(wanted, False), Outcome(found, False))
    limit = rng.randrange(len(rows) + 2)
    found = by_shell("cat", root, *AS_TEXT, *options, "-n", limit).rows
    yield from _compared(f"{name} cat -n {limit}", Outcome(rows[:limit], False), Outcome(found, False))


def _ends(rng: random.Random, root: Path, options: tuple[str, ...], rows: list[Any], name: str) -> Iterator[str]:
    """The first and the last records, by several threads too."""
    limit, count, jobs = rng.randrange(len(rows) + 2), rng.randrange(20), rng.choice((2, 3))
    found = by_shell("cat", root, *AS_TEXT, *options, "-n", limit, "-j", jobs).rows
    yield from _compared(f"{name} cat -n {limit} -j {jobs}", Outcome(rows[:limit], False), Outcome(found, False))
    by_partition = [list(group) for _, group in itertools.groupby(rows, key=operator.itemgetter(0, 1))]
    wanted = [row for group in by_partition for row in (group[-count:] if count else [])]
    found = by_shell("cat", root, *AS_TEXT, *options, "--tail", count, "-j", jobs).rows
    yield from _compared(f"{name} cat --tail {count} -j {jobs}", Outcome(wanted, False), Outcome(found, False))


def _latest(root: Path, how: dict[str, Any], options: tuple[str, ...], rows: list[Any], name: str) -> Iterator[str]:
    last = {row[:2] + row[4:5]: row for row in rows if row[4] is not None}
    wanted = [row for row in rows if last.get(row[:2] + row[4:5]) is row and row[5] is not None]
    found = by_reader(lambda: package.read(root, latest=True, **how)).rows
    yield from _compared(f"{name} read latest", Outcome(wanted, False), Outcome(found, False))
    found = by_shell("latest", root, *AS_TEXT, *options).rows
    yield from _compared(f"{name} latest", Outcome(wanted, False), Outcome(found, False))


def _spark(root: Path, isolation_level: str, mode: str, expected: Outcome, name: str) -> Iterator[str]:
    try:
        from pylogseg.spark.options import parse
        from pylogseg.spark.plan import plan
        from pylogseg.spark.task import read_task
    except ImportError:
        return
    names = ("topic", "partition", "offset", "timestamp", "key", "value")
    parsed = parse(
        {"isolationLevel": isolation_level, "onCorrupt": mode, "failOnDataLoss": "false", "rangeBytes": 3000}
    )
    try:
        tasks = plan(str(root), parsed, cores=1)
    except package.CorruptionError as error:  # behind the last good batch: no task would meet it
        if not expected.failed:
            yield f"{name} spark plan: {error}, read is fine"
        return
    found = by_arrow(lambda: (batch for task in tasks for batch in read_task(task, parsed, names)))
    if mode != "raise":
        found, expected = found._replace(failed=False), Outcome(expected.rows, False)
    elif found.rows == expected.rows[: len(found.rows)]:  # what a task has in hand goes with it, when it fails
        expected = expected._replace(rows=found.rows)
    yield from _compared(f"{name} spark", expected, found)


def _counts(root: Path) -> Iterator[str]:
    try:
        rows = by_reader(lambda: package.read(root, on_corrupt="skip", from_log_start=False)).rows
    except package.PylogsegError:
        return
    done = pylogseg("stats", root, "--json")
    records = next((json.loads(line)["records"] for line in done.out.decode().splitlines()), 0)
    if records != len(rows):
        yield f"stats: {records} records, of read {len(rows)}"
    everything = by_reader(lambda: package.read(root, on_corrupt="skip", control=True)).rows
    same = list(offline.diff(root, root, on_corrupt="skip"))
    counted = sum(row.records_a for row in same)
    if any(row.missing or row.extra or row.changed for row in same) or counted != len(everything):
        yield f"diff with itself: {[to_row(row) for row in same]}, of read {len(everything)}"


# ---- the command ----


def one(seed: int, folder: Path) -> list[str]:
    """Draw the disk of a seed, and read it in every way; what differs."""
    rng = random.Random(seed)
    root = folder / f"disk-{seed}"
    done = draw(rng, root)
    found = list(differences(rng, root))
    if not found:
        shutil.rmtree(root)
        return []
    return [f"seed {seed}: {', '.join(done)}", *found]


def main() -> int:
    """Run until the time is over; exit code 1 if something differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first disk; the others follow")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--disks", type=int, help="so many, in place of a time")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="same-rows-"))
    end, seed, bad = time.monotonic() + 60 * options.minutes, options.seed, 0
    while seed < options.seed + options.disks if options.disks else time.monotonic() < end:
        found = one(seed, folder)
        bad += bool(found)
        if found:
            print("\n  ".join(found), flush=True)
        seed += 1
    print(f"{seed - options.seed} disks from seed {options.seed}: {bad} differ{f', kept in {folder}' if bad else ''}")
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
