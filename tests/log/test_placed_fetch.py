"""Tests of log/read_result.py. A fetch that says where the bytes are, for a server that sends them: the same bytes as
one that reads.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.handles import Handles
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import StorageError
from pylogseg.log.log import FetchIsolation, Log
from pylogseg.log.state import Start

ISOLATIONS: tuple[FetchIsolation, ...] = ("log_end", "high_watermark", "txn_committed")


def opened(folder: Path, handles: Handles | None = None) -> Log:
    environment = Environment(OverlayStorage(handles=handles), SystemClock(), CollectingScheduler())
    log = Log.open(environment, str(folder), LogConfig(), Start(clean=True))
    log.update_high_watermark(log.log_end_offset)
    return log


def test_the_bytes_are_those_of_a_fetch(golden: Path) -> None:
    handles, looked = Handles(2), 0
    folders = sorted((golden / "broker-4.3" / "txn" / "data0").glob("txn-*-*"))
    for folder in folders:
        log = opened(folder, handles)
        log.update_high_watermark((log.log_start_offset + log.log_end_offset) // 2)
        for isolation in ISOLATIONS:
            for offset in range(log.log_start_offset, log.log_end_offset + 1):
                for most in (0, 100, 5_000, 1 << 20):
                    for min_one in (True, False):
                        read = log.fetch(offset, most, isolation, min_one=min_one)
                        found = log.fetch(offset, most, isolation, min_one=min_one, placed=True)
                        data = b"" if found.place is None else found.place.file.read(*found.place[1:])
                        assert data == bytes(read.data)
                        assert found._replace(place=None, data=read.data) == read
                        looked += len(data) > 0
        log.close_handles()
    assert folders
    assert looked > 300
    assert len(handles) == 0


def test_bytes_go_from_the_disk_to_a_socket(golden: Path) -> None:
    folder = golden / "broker-4.3" / "codecs" / "data1"
    log = opened(next(path for path in sorted(folder.glob("codec-*-0"))))
    here, there = socket.socketpair()
    with here, there:
        place = log.fetch(log.log_start_offset, 10_000, placed=True).place
        assert place is not None
        file, position, size = place
        assert file.send_to(here, position, size) == size
        assert there.recv(size + 1) == file.read(position, size)
    log.close_handles()


def test_a_file_that_was_cut_meanwhile(golden: Path, tmp_path: Path) -> None:
    """What was found is not there any more: nothing is sent, and reading says so."""
    source = next(iter(sorted((golden / "broker-4.3" / "codecs" / "data1").glob("codec-*-0"))))
    folder = tmp_path / source.name
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    log = opened(folder)
    place = log.fetch(log.log_start_offset, 10_000, placed=True).place
    assert place is not None
    with open(place.file.path, "r+b") as file:
        file.truncate(place.position)
    here, there = socket.socketpair()
    with here, there:
        assert place.file.send_to(here, place.position, place.size) == 0
    with pytest.raises(StorageError, match="cut to 0 bytes by another program"):
        place.file.read(place.position, place.size)
    log.close_handles()
