"""What a real Kafka wrote, and what its own reader says of it."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def unpack(archives: Iterable[Path], target: Path, only: tuple[str, ...] = ("",)) -> None:
    """Unpack ``archives`` over each other into ``target``, which appears whole or not at all; ``only`` some folders."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    for path in archives:
        with tarfile.open(path) as archive:
            chosen = [each for each in archive if each.name.startswith(only)]
            if hasattr(tarfile, "data_filter"):
                archive.extractall(scratch, chosen, filter="data")
            else:
                archive.extractall(scratch, chosen)  # our own archives, checked by SHA256SUMS
    try:
        scratch.rename(target)
    except OSError:  # another run was faster
        shutil.rmtree(scratch)
        if not target.is_dir():
            raise


class Decoded:
    """What Kafka's own reader says of every golden file, without a JVM."""

    def __init__(self, path: Path) -> None:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            self.rows: dict[str, dict[str, Any]] = {row.pop("sha256"): row for row in map(json.loads, lines)}

    def __call__(self, path: Path) -> dict[str, Any]:
        """Return ``{"batches": [...], "end": {...}}`` of a golden file or a copy of one; see ``golden/decode.py``."""
        return self.rows[hashlib.sha256(path.read_bytes()).hexdigest()]
