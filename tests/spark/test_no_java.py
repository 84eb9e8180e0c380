"""Tests of spark/session.py. `--spark` on a machine without Java: a line, and exit code 2."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers.shell import command, environment

import pylogseg

pytest.importorskip("pyspark")


@pytest.mark.parametrize("words", [("stats", "DISK"), ("archive", "DISK", "OUT")], ids=lambda words: words[0])
def test_no_java(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pylogseg.open_log(tmp_path / "disk" / "t-0") as log:
        log.append([(None, None, b"v")])
    texts = {"DISK": str(tmp_path / "disk"), "OUT": str(tmp_path / "archive")}
    line = command(*(texts.get(word, word) for word in words), "--spark", "local[1]")
    without = {name: value for name, value in environment().items() if name != "JAVA_HOME"}
    done = subprocess.run(line, env={**without, "PATH": os.devnull}, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr
    assert b"no session of Spark at local[1]" in done.stderr
    assert b"it needs Java: set JAVA_HOME" in done.stderr
    assert not (tmp_path / "archive" / "points").exists()
