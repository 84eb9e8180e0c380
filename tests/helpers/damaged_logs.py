"""Logs that are damaged: golden ones, as a broker opened them, and those of one changed byte."""

from __future__ import annotations

import shutil
from pathlib import Path


def change_byte(path: Path, position: int | None = None, bits: int = 1) -> None:
    """Change bits of one byte of a file: of that in the middle, or where it is said."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= bits
    path.write_bytes(data)


def log_dir_of(golden: Path, case: str, tmp_path: Path) -> Path:
    """A log directory with the damaged partition, as a broker found it."""
    source = golden / "broker-4.3" / "damage" / case
    folder = tmp_path / "data"
    shutil.copytree(source / "in", folder / "damaged-1")
    if "start: clean" in (source / "broker.log").read_text():
        (folder / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    return folder


def hurt(examples: Path, target: Path) -> Path:
    """The example with a flipped byte, an index that lies, and a torn end."""
    shutil.copytree(examples, target)
    logs = sorted(path for path in target.rglob("*.log") if path.stat().st_size > 1000)
    for path in logs[:3]:
        change_byte(path, bits=0xFF)
    logs[4].write_bytes(logs[4].read_bytes()[:-5])
    for path in target.rglob("*.index"):
        if path.stat().st_size >= 8:
            path.write_bytes(path.read_bytes()[:-1] + b"\x07")
            break
    return target
