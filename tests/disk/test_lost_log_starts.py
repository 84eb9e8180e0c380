"""Tests of disk/offset_checkpoints.py. A checkpoint of log starts that lost its entries: each reader says so, and does
not end with 0.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package

STARTS = "log-start-offset-checkpoint"


@pytest.mark.parametrize("command", ["ls", "cat", "stats"])
@pytest.mark.parametrize("data", [b"", bytes(17), b"0\n2\nt 0 5\n"], ids=["empty", "zeros", "cut"])
def test_readers_say_it(tmp_path: Path, command: str, data: bytes) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([(None, b"k", b"v")] * 9)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 9\n")
    (tmp_path / STARTS).write_bytes(b"0\n0\n")
    assert pylogseg(command, tmp_path).code == 0
    (tmp_path / STARTS).write_bytes(data)
    expect(pylogseg(command, tmp_path), 1, f"{STARTS}: at position ", "records that were deleted may show")
