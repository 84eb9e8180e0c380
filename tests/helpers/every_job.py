"""Commands that an executor runs, for sweeps over the executors: words with the places of directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.shell import Done
from helpers.trees import contents

#: Of a directory DIR, another one, OTHER, and a table that was fed from that, TABLE.
READING = [
    "verify DIR --json",
    "verify DIR --level records",
    "stats DIR --json",
    "stats DIR --by topic",
    "stats DIR --by hour --json",
    "stats DIR --by key --json",
    "stats DIR --by partition --json --top-keys 3 --largest 2",
    "stats DIR --since 1000 --until 9999999999999 --by topic --json",
    "report DIR --json --now 1800000000000",
    "report DIR --json --now 1800000000000 --full --sample 2",
    "grep 5 DIR --on-corrupt skip",
    "grep -E [a-z]5$ DIR --in key --count --on-corrupt skip",
    "grep value DIR --names --on-corrupt skip",
    "grep value DIR codec-none --limit 3",
    "grep nowhere DIR --quiet --on-corrupt skip",
    "grep value DIR",
    "diff DIR OTHER --json --on-corrupt skip",
    "diff DIR OTHER --latest --on-corrupt skip",
    "audit DIR TABLE --json",
    "audit DIR TABLE codec-none txn-a --max-ranges 3 --complete",
]
#: Which write to a folder OUT.
WRITING = [
    "export DIR --out OUT --json --on-corrupt skip",
    "export DIR txn-a --out OUT --to jsonl --isolation-level read_committed --overwrite",
    "restore DIR OUT --json --force",
    "restore DIR OUT txn-a codec-gzip --keep-producers",
    "recover DIR --full --into OUT --json --now 1800000000000",
    "compact DIR timestamps --force --include-active --into OUT --json --now 1800000000000",
    "redact DIR codec-none txn-a --match value --blank value --into OUT --json",
    "recode DIR codec-none txn-a --compression zstd --into OUT --json",
    "recode DIR codec-none --compression zstd --into OUT --json --dry-run",
]
#: Times, and the room on the disk.
_PASSING = ("tookMs", "durationMs", "freeBytes")
#: Of a partition that is rewritten by itself: what depends on the directory around it.
_AROUND = ("notes", "recovery", "replicas")


def words(text: str, **places: Path) -> list[str]:
    """The words of a command on some directories."""
    return [str(places.get(word, word)) for word in text.split()]


def told(done: Done, out: Path | None = None) -> tuple[int, Any, str]:
    """What a command said, without where it wrote, and what changes while nothing does."""
    text = done.text if out is None else done.text.replace(str(out), "OUT")
    said = done.err if out is None else done.err.replace(str(out), "OUT")
    if not text.startswith("{"):
        return done.code, text, said
    rows = [json.loads(line) for line in text.splitlines()]
    return done.code, [_lasting(row) for row in rows], said


def _lasting(row: Any) -> Any:
    if isinstance(row, dict):
        return {name: _lasting(value) for name, value in row.items() if name not in _PASSING}
    return [_lasting(each) for each in row] if isinstance(row, list) else row


def written(out: Path) -> dict[str, Any]:
    """What lies below a folder, without what is noted of other files for the next run; checkpoints have no order."""
    return {
        name: sorted(data.splitlines()) if name.endswith("-checkpoint") and "/" not in name else data
        for name, data in contents(out).items()
        if not name.startswith(".")
    }


def partitions(done: Done, out: Path) -> list[dict[str, Any]]:
    """What a command that rewrites said of partitions by themselves."""
    rows = [json.loads(line) for line in done.text.replace(str(out), "OUT").splitlines() if line.startswith("{")]
    hidden = {"failed": (*_AROUND, "path", "reason")}  # which name the copy, or what was copied
    return [
        {name: value for name, value in row.items() if name not in hidden.get(row["state"], _AROUND)}
        for row in rows
        if row.get("type") == "partition"
    ]
