"""Tests of archive/writing.py. A short history of three real brokers: each point that is written while clients write is
restored into a fresh one.

`tests/kafka/broker/archives.py` says what happens and what is compared, and plays long ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP
from helpers.shell import environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not IS_DEEP, reason="three brokers keep two cores busy for minutes: make deep")
@pytest.mark.usefixtures("kafka")
def test_a_short_history(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("kafka")
    program = ROOT / "tests" / "kafka" / "broker" / "archives.py"
    command = [sys.executable, program, "--seed", "7", "--events", "2", "--points", "2", "--drills", "0"]
    done = subprocess.run(
        [*command, "--keep", tmp_path], cwd=ROOT, env=environment(), capture_output=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("all is well")
