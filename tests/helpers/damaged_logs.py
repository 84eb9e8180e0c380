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
