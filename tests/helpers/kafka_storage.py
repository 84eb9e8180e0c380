"""A real Kafka's storage classes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


class Kafka:
    """A real Kafka's storage classes as a program. A start costs one or two seconds: give one call all its inputs."""

    script = TESTS / "kafka" / "kafka.sh"

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def run(self, *arguments: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run ``kafka.sh`` with ``arguments``; its output as text."""
        command = ["bash", str(self.script), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout, check=False)

    def checked(self, *arguments: str | Path) -> str:
        """Run ``kafka.sh`` and return what it printed; fail with its words where it failed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def decode(self, *files: str | Path) -> list[dict[str, Any]]:
        """Return a row per batch, and one with ``end`` or ``error`` after each file, files in the order given."""
        return [json.loads(line) for line in self.checked("decode", *files).splitlines()]

    def encode(self, specs: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """Return the bytes of each batch that a description of ``tests/kafka/README.md`` stands for."""
        path = Path(tempfile.mkdtemp(dir=self.scratch)) / "specs.jsonl"
        path.write_text("".join(json.dumps(spec) + "\n" for spec in specs), encoding="utf-8")
        return [bytes.fromhex(line) for line in self.checked("encode", path).splitlines()]

    def parsed(self, settings: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """Return the values that a broker takes for each set of a topic's settings, or ``{"refused": why}``."""
        path = Path(tempfile.mkdtemp(dir=self.scratch)) / "settings.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in settings), encoding="utf-8")
        return [json.loads(line) for line in self.checked("parsed", path).splitlines()]

    def dump(
        self, *files: str | Path, args: Iterable[str] = ("--deep-iteration", "--print-data-log")
    ) -> tuple[str, str]:
        """Return what ``kafka-dump-log.sh`` prints of ``files`` on its two streams."""
        done = self.run("dump", *args, "--files", ",".join(map(str, files)))
        return done.stdout, done.stderr

    def replay(self, operations: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], Path]:
        """Drive a real log through ``operations``; return an answer for each, and the folder that the log worked in."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        (folder / "ops.jsonl").write_text("".join(json.dumps(op) + "\n" for op in operations), encoding="utf-8")
        out = self.checked("replay", folder / "ops.jsonl", folder / "work")
        return [json.loads(line) for line in out.splitlines()], folder / "work"
