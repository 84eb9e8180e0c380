#!/usr/bin/env python3
"""A real broker opens what the recipes of the operator's guide leave.

    recipes.py [RECIPE...]

A recipe is the heading of a section in `docs/operators.md`, or a part of one. A broker makes the topics of the recipe's
log directories and stops; its empty partitions are replaced by those that a real Kafka wrote, in the state that the
recipe is for, so that directories, metadata and ids belong together. The commands of the page run there one after the
other, and have to end with the exit codes that the page shows. Then the broker starts on the result. It may not warn of
the partitions; consumers get with both isolations the records that our reader gives; a producer appends, and both read
once more. A minute for each recipe. Exit code 0 if all is well.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import documents  # noqa: E402
from one_broker import Broker, check, go_on, read  # noqa: E402

CHECKPOINTS = [f"{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "replication", "cleaner")]


class State(NamedTuple):
    """What a recipe works on, and what it leaves.

    Attributes
    ----------
    log_dirs : list of str
        Log directories of one broker in the kitchen of the page, before the commands.
    topics : list of str
        Whose records are compared.
    results : list of str, optional
        The log directories after the commands, where they are others.
    is_clean : bool
        There was a clean shutdown before the commands.
    is_clean_after : bool
        The broker has to trust the directories without a recovery.
    settles : bool
        The broker starts once with all of its directories, before those go that are none of the results.
    """

    log_dirs: list[str]
    topics: list[str]
    results: list[str] | None = None
    is_clean: bool = True
    is_clean_after: bool = True
    settles: bool = False


STATES = {
    "The disk is full": State(["full/kafka"], ["ret-bytes", "txn-a", "codec-none"], None, False, False),
    "A segment is damaged": State(["broken"], ["damaged"], None, False, True),
    "Indexes are missing": State(["unindexed"], ["codec-none"]),
    "A folder that is no partition": State(["foreign"], ["codec-lz4", "txn-a"], ["foreign/data"]),
    "A partition lies in two directories": State(["twice/disk1", "twice/disk2"], ["txn-a", "codec-gzip"]),
    "meta.properties is missing or wrong": State(["nameless/disk1", "nameless/disk2"], ["codec-zstd", "codec-gzip"]),
    "Records that must go at the end": State(["kafka"], ["mixed"]),
    "The best of several replicas": State(["replicas/broker3"], ["damaged"], None, False, False),
    "A partition on another disk of the broker": State(["jbod/disk1", "jbod/disk2"], ["codec-zstd", "codec-gzip"]),
    "A disk has to go": State(["jbod/disk1", "jbod/disk2"], ["codec-zstd", "codec-gzip"], ["jbod/disk1"], settles=True),
    "From a copy": State(["kafka"], ["txn-a", "codec-zstd"]),
    "From an export": State(["kafka"], ["txn-a", "codec-zstd"]),
    "A directory for another broker": State(["target"], ["codec-zstd", "codec-gzip"]),
    "A customer asks to be forgotten": State(["kafka"], ["cmp-short", "codec-none"]),
    "The compaction does not keep up": State(["lagging"], ["cmp-gzip", "cmp-snappy", "cmp-txn"]),
}


def partitions(log_dir: Path) -> list[Path]:
    """Folders of partitions of topics that are no broker's own."""
    found = [path for path in log_dir.iterdir() if re.fullmatch(r"[^_].*-\d+", path.name)]
    return sorted(path for path in found if path.is_dir())


def entries(path: Path) -> dict[str, str]:
    """Lines of a checkpoint by partition."""
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {"-".join(line.split()[:2]): line for line in lines}


def epoch(part: Path) -> int:
    """The last leader epoch of a partition."""
    path = part / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return max((int(line.split()[0]) for line in lines), default=0)


def age(broker: Broker, highest: int) -> None:
    """Start and stop a broker until its partitions are in a leader epoch that none of the adopted ones is above.

    The metadata of a cluster is never behind the logs of its brokers; a stop and a start are an epoch each.
    """
    for _ in range((highest - 1) // 2):
        broker.start()
        broker("stop")


def configure(broker: Broker, log_dirs: list[Path]) -> None:
    """Let these be all log directories of a broker."""
    (broker.folder / "run" / "extra.properties").write_text(f"log.dirs={','.join(map(str, log_dirs))}\n")


def adopt(broker: Broker, root: Path, log_dirs: list[Path], *, is_clean: bool) -> None:
    """Let log directories become those of a broker: its metadata, its ids, and their partitions."""
    numbers: dict[str, int] = {}
    for part in (part for log_dir in log_dirs for part in partitions(log_dir)):
        topic, _, number = part.name.rpartition("-")
        numbers[topic] = max(numbers.get(topic, 0), int(number) + 1)
    mine = [broker.folder / f"data{number}" for number in range(len(log_dirs))]
    (broker.folder / "run").mkdir(parents=True)
    configure(broker, mine)
    broker.start()
    for topic, count in sorted(numbers.items()):
        policy = ["cleanup.policy=compact"] if topic.startswith("cmp-") else []
        settings = ["internal.segment.bytes=4096", "index.interval.bytes=512", "retention.ms=-1", *policy]
        broker("client", "create-topic", topic, count, *settings)
    broker("stop")
    age(broker, max((epoch(part) for log_dir in log_dirs for part in partitions(log_dir)), default=0))
    documents.register(root, mine)
    ids = {part.name: (part / "partition.metadata").read_bytes() for log_dir in mine for part in partitions(log_dir)}
    adopted = {part.name for log_dir in log_dirs for part in partitions(log_dir)}
    for own in mine:
        for part in partitions(own):
            if part.name in adopted:
                shutil.rmtree(part)
    for own, log_dir in zip(mine, log_dirs, strict=True):
        for name in CHECKPOINTS:
            lines = {part: line for part, line in entries(own / name).items() if part not in adopted}
            here = {part.name for part in partitions(log_dir)}
            lines.update({part: line for part, line in entries(log_dir / name).items() if part in here})
            (own / name).write_text("\n".join(["0", str(len(lines)), *lines.values()]) + "\n")
        for path in log_dir.iterdir():
            if re.fullmatch(r"__.*-\d+", path.name):
                shutil.rmtree(path)
            elif re.fullmatch(r".*-\d+", path.name) and path.is_dir():
                rename(root, path, ids[path.name])
            elif path.is_file() and path.stat().st_size:
                path.unlink()
        if not is_clean:
            (own / ".kafka_cleanshutdown").unlink()
        for path in own.iterdir():  # an empty meta.properties is what a recipe is for
            if not (log_dir / path.name).exists():
                shutil.move(path, log_dir / path.name)
        shutil.rmtree(own)


def rename(root: Path, part: Path, metadata: bytes) -> None:
    """Give a partition another topic id, and the same to its replicas: all of a topic have one."""
    mine = part / "partition.metadata"
    before = mine.read_bytes() if mine.exists() else None
    for path in root.rglob(f"{part.name}/{mine.name}"):
        if path.read_bytes() == before:
            path.write_bytes(metadata)
    mine.write_bytes(metadata)


def settle(broker: Broker, log_dirs: list[Path], topics: list[str]) -> None:
    """Let a broker see where its partitions are now, and stop it."""
    mine = [broker.folder / f"data{number}" for number in range(len(log_dirs))]
    for own, log_dir in zip(mine, log_dirs, strict=True):
        shutil.move(log_dir, own)
    configure(broker, mine)
    broker.start()
    broker.consumed(topics, "read_uncommitted")  # by then it has told the controller
    broker("stop")
    for own, log_dir in zip(mine, log_dirs, strict=True):
        shutil.move(own, log_dir)


def cook(title: str, root: Path, log_dirs: list[str]) -> None:
    """Run the commands of a section, which are on these directories; their exit codes are those of the page."""
    commands = dict(documents.recipes())[title]
    for log_dir in log_dirs:
        # One of several disks may be meant by the folder around them.
        names = "|".join(re.escape(name) for name in {log_dir, os.path.dirname(log_dir) or log_dir} - {"full"})
        if not any(re.search(rf"(?<![\w/.])({names})\b", command.command) for command in commands):
            sys.exit(f"{title}: no command of the page is on {log_dir}")
    for command in commands:
        said = documents.run(command.command, root)
        code, wanted = (re.search(r"\(exit code \d+\)\n\Z", text) for text in (said, command.shown))
        if (code and code[0]) != (wanted and wanted[0]):
            sys.exit(f"{title}: {command.command}\nended otherwise than on the page:\n{said}")


def check_words(title: str, broker: Broker, state: State) -> None:
    """No warning about the partitions, and no recovery after a clean shutdown."""
    warned, recovered = broker.warned_and_recovered(state.topics)
    if warned or (state.is_clean_after and recovered):
        sys.exit("\n".join([f"{title}: the broker said:", *warned[:20], *recovered[:20]]))
    print(f"{title}: no warning; {len(recovered)} segments recovered", flush=True)


def run(title: str, state: State, scratch: Path) -> None:
    """One recipe, from its state to the producers."""
    scratch.mkdir()
    with documents.kitchen(scratch) as root:
        broker = Broker(scratch / "broker")
        try:
            if (root / "full").is_mount():
                subprocess.run(["mount", "-o", "remount,size=64m", str(root / "full")], check=True)
            adopt(broker, root, [root / name for name in state.log_dirs], is_clean=state.is_clean)
            if (root / "full").is_mount():
                documents.resize(root / "full", os.statvfs(root / "full"))
            cook(title, root, state.log_dirs)
            if state.settles:
                settle(broker, [root / name for name in state.log_dirs], state.topics)
            log_dirs = [root / name for name in state.results or state.log_dirs]
            finish(title, state, broker, log_dirs)
        finally:
            broker("stop")


def finish(title: str, state: State, broker: Broker, log_dirs: list[Path]) -> None:
    """Let the broker start on the result, and compare."""
    for number, log_dir in enumerate(log_dirs):
        shutil.move(log_dir, broker.folder / f"data{number}")
    log_dirs = [broker.folder / f"data{number}" for number in range(len(log_dirs))]
    configure(broker, log_dirs)
    truth = {each: read(log_dirs, state.topics, each) for each in ("read_uncommitted", "read_committed")}
    broker.start()
    assert all(map(len, truth.values())), f"{title}: nothing to compare"
    for isolation_level, expected in truth.items():
        check(f"{title}, {isolation_level}", expected, broker.consumed(state.topics, isolation_level))
    check_words(title, broker, state)
    go_on(title, broker, log_dirs, truth["read_uncommitted"], state.topics[0])


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        print(json.dumps(list(STATES), indent=1))
        return 0
    logging.disable(logging.CRITICAL)
    chosen = [title for title in STATES if not arguments or any(word.lower() in title.lower() for word in arguments)]
    if not chosen:
        sys.exit(f"no recipe has such a name: {', '.join(STATES)}")
    with tempfile.TemporaryDirectory(prefix="pylogseg-recipes-") as scratch:
        for number, title in enumerate(chosen):
            run(title, STATES[title], Path(scratch) / str(number))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
