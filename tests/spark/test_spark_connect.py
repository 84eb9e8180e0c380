"""Tests of spark/session.py. Spark Connect: a process of its own, since one that has a classic session cannot have a
remote one.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.spark_logs import needs_sources

SOAK = Path(__file__).parents[1] / "soak"


@pytest.mark.spark
@needs_sources
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 on the path")
def test_all_parts_give_what_plain_python_gives():
    pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")
    pytest.importorskip("grpc_status", reason="needs pip install 'pyspark[connect]'")
    done = subprocess.run([sys.executable, SOAK, "spark-connect"], capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert done.stdout.count(": ok") == 8
