#!/usr/bin/env python3
"""Writes decode.jsonl.xz: how Kafka's own reader reads every distinct record file of a golden folder.

    decode.py GOLDEN

A line per distinct file: ``sha256``, ``batches`` (rows of ``kafka.sh decode``) and ``end`` (its closing row: position,
size and trailing bytes, or an error). A key or value above 256 bytes is ``{"size": ..., "sha1": ...}`` instead of hex.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LONG_BYTES = 256


def short(text: str | None) -> str | dict[str, Any] | None:
    """Return hex as it is, or the size and digest of what it stands for when that is long."""
    if text is None or len(text) <= 2 * LONG_BYTES:
        return text
    data = bytes.fromhex(text)
    return {"size": len(data), "sha1": hashlib.sha1(data).hexdigest()}


def shortened(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch row without the file's name and with short keys and values."""
    batch.pop("file", None)
    for record in batch["records"]:
        record["key"], record["value"] = short(record["key"]), short(record["value"])
    return batch


def is_record_file(path: Path) -> bool:
    """Say whether ``path`` holds batches: a segment in any state, or a KRaft snapshot."""
    return path.is_file() and any(part in (".log", ".checkpoint") for part in path.suffixes)


def main() -> None:
    """Decode every distinct file in one run and write the rows, ordered by path."""
    golden = Path(sys.argv[1])
    distinct: dict[str, Path] = {}
    for path in sorted(filter(is_record_file, golden.rglob("*"))):
        distinct.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    command = ["bash", HERE.parent / "kafka" / "kafka.sh", "decode", *distinct.values()]
    rows = iter(
        map(
            json.loads,
            subprocess.run(command, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout.splitlines(),
        )
    )
    out = []
    for digest, path in distinct.items():
        batches = []
        for row in rows:
            if "position" not in row:
                break
            batches.append(shortened(row))
        assert Path(row.pop("file")).name == path.name, (row, path)
        if "message" in row:
            row["message"] = row["message"].replace(f"{path.parent}/", "")
        out.append(json.dumps({"sha256": digest, "end": row, "batches": batches}, separators=(",", ":")) + "\n")
    packed = lzma.compress("".join(out).encode(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / "decode.jsonl.xz").write_bytes(packed)
    lines = [
        line
        for line in (HERE / "SHA256SUMS").read_text(encoding="ascii").splitlines()
        if not line.endswith("decode.jsonl.xz")
    ]
    lines = sorted([*lines, f"{hashlib.sha256(packed).hexdigest()}  decode.jsonl.xz"], key=lambda line: line.split()[1])
    (HERE / "SHA256SUMS").write_text("".join(line + "\n" for line in lines), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
