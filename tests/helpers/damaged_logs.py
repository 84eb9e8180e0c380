"""Golden logs that somebody damaged before a broker opened them."""

from __future__ import annotations

import shutil
from pathlib import Path


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
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    logs[4].write_bytes(logs[4].read_bytes()[:-5])
    for path in target.rglob("*.index"):
        if path.stat().st_size >= 8:
            path.write_bytes(path.read_bytes()[:-1] + b"\x07")
            break
    return target
