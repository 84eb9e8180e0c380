"""Tests of archive/partitions.py. Runs that are killed anywhere, as processes; more of them: ``python tests/soak
archive-kills``.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from helpers import depth
from helpers.killed_archives import Bucket, Folder, KilledRuns
from helpers.object_servers import ObjectServer

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")


def test_killed_at_calls(tmp_path: Path) -> None:
    """The newest point is restored, the next run goes on, and what was whole is not stored twice."""
    checked(KilledRuns(tmp_path, Folder(tmp_path / "archived"), random.Random(3)), 2)


def test_killed_at_requests(tmp_path: Path) -> None:
    """The same of objects in a store; before or after a request was done."""
    pytest.importorskip("s3fs")
    server = ObjectServer()
    try:
        checked(KilledRuns(tmp_path, Bucket(server), random.Random(0)), 1)
    finally:
        server.close()


def checked(runs: KilledRuns, rounds: int) -> None:
    rounds *= 10 if depth.IS_DEEP else 1
    for _ in range(rounds):
        runs.round()
    assert runs.count["whole runs"] == rounds
    assert sum(count for what, count in runs.count.items() if what.startswith("killed")) > 0
