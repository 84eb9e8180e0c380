"""Tests of log/producer_snapshots.py, reading/producers.py and values/internal/producers.py. The producers of a log at
an offset: what no broker would take is refused, or left out by who says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pylogseg
from pylogseg.errors import PylogsegError, TransactionStateError
from pylogseg.format.files.snapshot import encode_snapshot
from pylogseg.log.producer_snapshots import entry_of
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.reading.producers import OnRefused, producers_at, raise_refused


def written(folder: Path) -> LogFiles:
    """A log of two producers; one of them leaves its open transaction with the batch at offset 2."""
    folder.mkdir()
    parts = []
    for offset, (who, sequence, transactional) in enumerate(
        [(7, 0, True), (8, 0, False), (7, 1, False), (8, 1, False)]
    ):
        producer = {"producer_id": who, "producer_epoch": 0, "base_sequence": sequence}
        parts.append(encode([(5, b"k", b"v")], base_offset=offset, transactional=transactional, **producer))
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    return logs_of(pylogseg.open_dir(folder))[0]


def sequences(log: LogFiles, end: int, on_refused: OnRefused) -> dict[int, int]:
    found = producers_at(log.segments, log.snapshots, 0, end, on_refused=on_refused)
    return {who: state.last_sequence for who, state in found.active.items()}


def test_a_batch_that_no_broker_takes(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    assert sequences(log, 2, raise_refused) == {7: 0, 8: 0}
    with pytest.raises(TransactionStateError):
        sequences(log, 4, raise_refused)
    refused = list[PylogsegError]()
    assert sequences(log, 4, refused.append) == {7: 0, 8: 1}
    assert [type(error) for error in refused] == [TransactionStateError]


def test_a_snapshot_that_cannot_be_opened_is_refused_and_a_damaged_one_passed_over(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    state = producers_at(log.segments, {}, 0, 2).active[8]
    good, damaged, folder = (tmp_path / name for name in ("good", "damaged", "folder"))
    good.write_bytes(encode_snapshot([entry_of(state)]))
    damaged.write_bytes(good.read_bytes()[:-1])
    folder.mkdir()
    log = log._replace(snapshots={1: str(good), 2: str(damaged)})
    assert sequences(log, 2, raise_refused) == {8: 0}
    log = log._replace(snapshots={1: str(good), 2: str(folder)})
    with pytest.raises(PylogsegError, match="folder"):
        sequences(log, 2, raise_refused)
    refused = list[PylogsegError]()
    assert sequences(log, 2, refused.append) == {8: 0}
    assert len(refused) == 1
    log = log._replace(snapshots={1: str(good), 2: str(tmp_path / "gone")})
    assert sequences(log, 2, raise_refused) == {8: 0}
