"""Tests of log/indexes.py. A log of a Kafka that is yet to come, with offset indexes of 12 bytes an entry, is left as
it is.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from helpers import shell

import pylogseg

WIDE = b"".join(struct.pack(">iq", 3 + 7 * i, 4096 * (i + 1)) for i in range(40))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with pylogseg.open_log(tmp_path / "orders-0", segment_bytes=2000) as log:
        for n in range(40):
            log.append([(1000 * n, b"k", b"x" * 100)])
    (path, *_) = sorted((tmp_path / "orders-0").glob("*.index"))
    path.write_bytes(WIDE)
    return tmp_path / "orders-0"


@pytest.mark.parametrize("zeros", [0, 1200, 12 * 10_001])
def test_loading(folder: Path, zeros: int) -> None:
    """Clean or not: nothing is rebuilt over them."""
    (path, *_) = sorted(folder.glob("*.index"))
    path.write_bytes(WIDE + bytes(zeros))
    before = contents(folder)
    with pytest.raises(pylogseg.CorruptionError, match=r"entries of 12 bytes \(KIP-1333\), which are not read"):
        pylogseg.open_log(folder)
    assert contents(folder) == before


def test_recover(folder: Path) -> None:
    before = contents(folder)
    done = shell.pylogseg("recover", folder.parent)
    assert done.code != 0
    assert "KIP-1333" in done.text + done.err
    assert "Traceback" not in done.err
    assert {name: data for name, data in contents(folder).items() if name in before} == before
