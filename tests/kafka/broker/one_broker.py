"""A real broker by broker.sh on one folder, what consumers get of it, and what our reader gives of the same files."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pylogseg

HERE = Path(__file__).resolve().parent
#: The broker neither compacts nor deletes: a consumer gets all that is there.
QUIET = ("log.cleaner.enable=false", "log.retention.check.interval.ms=86400000")
Record = tuple[int, int, bytes | None, bytes | None]


class Broker:
    """broker.sh on one folder, with variables of the environment."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.variables = folder, variables

    def __call__(self, word: str, *arguments: object) -> str:
        command = ["bash", HERE / "broker.sh", word, self.folder, *arguments]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, encoding="utf-8", check=False, timeout=900,
            env={**os.environ, **self.variables},
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"broker.sh {word}: {done.stderr[-3000:]}")
        return done.stdout

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{(self.folder / 'run' / 'port').read_text().strip()}"

    def start(self) -> None:
        """Without a cleaner and retention of its own."""
        self("start", *QUIET)

    def consumed(self, topics: Iterable[str], isolation_level: str) -> dict[str, list[Record]]:
        """Records of each partition."""
        found: dict[str, list[Record]] = {}
        for topic in topics:
            for line in self("consume", topic, "--isolation", isolation_level).splitlines():
                row = json.loads(line)
                key, value = (None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value"))
                name = f"{topic}-{row['partition']}"
                found.setdefault(name, []).append((row["offset"], row["timestamp"], key, value))
        return found

    def words(self, pattern: str = "") -> list[str]:
        """Lines that it said since it was started."""
        lines = (self.folder / "run" / "server.log").read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(pattern, line)]

    def warned_and_recovered(self, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Lines at the level of a warning about partitions of some topics, and those of segments that it recovered."""
        ours = rf"\b({'|'.join(topics)})-\d"
        lines = [line for line in self.words(ours) if re.search(r"\b(WARN|ERROR|FATAL)\b", line)]
        return lines, [line for line in self.words("Recovering unflushed segment") if re.search(ours, line)]


def read(log_dirs: Iterable[Path], topics: list[str], isolation_level: str) -> dict[str, list[Record]]:
    """Records of each partition that has any, read from the files."""
    found: dict[str, list[Record]] = {}
    for record in pylogseg.read(list(map(str, log_dirs)), topics, isolation_level=isolation_level):
        name = f"{record.topic}-{record.partition}"
        found.setdefault(name, []).append((record.offset, record.timestamp, record.key, record.value))
    return found


def check(what: str, expected: Mapping[str, list[Record]], got: Mapping[str, list[Record]]) -> None:
    """Say how much was compared; end at the first difference."""
    for name in sorted({*expected, *got}):
        want, have = expected.get(name, []), got.get(name, [])
        if want != have:
            first = next((pair for pair in zip(want, have, strict=False) if pair[0] != pair[1]), None)
            sys.exit(f"{what}: {name}: {len(want)} records expected, {len(have)} there; the first that differ: {first}")
    print(f"{what}: {sum(map(len, got.values()))} records in {len(got)} partitions, all equal", flush=True)


def go_on(what: str, broker: Broker, log_dirs: list[Path], before: Mapping[str, list[Record]], topic: str) -> None:
    """Let producers append, and stop the broker: what was there is there, and more; our reader has it too."""
    broker("client", "produce", topic, 50, "more")
    after = broker.consumed([topic], "read_uncommitted")
    broker("stop")
    for part, records in after.items():
        assert len(records) > len(before.get(part, [])), part
        assert records[: len(before.get(part, []))] == before.get(part, []), part
    check(f"{what}, appended to by producers", read(log_dirs, [topic], "read_uncommitted"), after)
