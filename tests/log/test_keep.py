"""Tests of log/recovery.py, log/recovery_keep.py, log/recovery_loss.py, log/segment_removal.py and
walker/broker_windows.py. Copies of what a load takes away: whole and durable before the original is touched, whatever
happens meanwhile.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.images import crash_images

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import RequestError
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.log.recovery_keep import LIST_NAME, FolderKeeper, KeepError
from pylogseg.log.recovery_report import Action, ActionKind, LoadReport
from pylogseg.testing.clock import ManualClock
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

FOLDER, KEPT = "/logs/damaged-1", "/state/kept/now"
CLOCK = ManualClock(1_700_000_000_000)


def damaged(golden: Path, case: str) -> MemoryStorage:
    """A storage in which a damaged partition lies, durably."""
    storage = MemoryStorage(clock=CLOCK)
    storage.make_folder(FOLDER)
    for path in (golden / "broker-4.3" / "damage" / case / "in").iterdir():
        storage.write_plain(f"{FOLDER}/{path.name}", path.read_bytes())
    return MemoryStorage(storage.state, CLOCK)


def load(storage: MemoryStorage, keeper: FolderKeeper | None) -> LoadReport:
    scheduler = CollectingScheduler()
    config = LogConfig.of(index_interval_bytes=512, segment_index_bytes=1200)
    log = Log.open(Environment(storage, CLOCK, scheduler), FOLDER, config, hooks=LoadHooks(keeper))
    log.close()
    scheduler.finish()
    return log.report


def logs(storage: MemoryStorage) -> dict[str, bytes]:
    names = [entry.name for entry in storage.list_folder(FOLDER) if ".log" in entry.name]
    return {name: storage.read_all(f"{FOLDER}/{name}") for name in names}


def copies(storage: MemoryStorage) -> Iterator[tuple[str, bytes]]:
    folder = f"{KEPT}/damaged-1"
    if storage.exists(folder):
        for entry in storage.list_folder(folder):
            yield entry.name, storage.read_all(f"{folder}/{entry.name}")


def is_there(name: str, data: bytes, found: dict[str, bytes], kept: dict[str, bytes]) -> bool:
    """Whether every byte of a segment is in its file, or in copies of its end."""
    here = found.get(name, found.get(f"{name}.deleted", b""))
    ends = [data] if here == data or kept.get(name) == data else []
    for copy, tail in kept.items():
        if copy.startswith(f"{name}.") and not copy.endswith(".part"):
            start, _, end = copy.rpartition(".")[2].partition("-")
            if here[: int(start)] == data[: int(start)] and int(end) == len(data):
                ends.append(here[: int(start)] + tail)
    return data in ends


@pytest.mark.parametrize("case", ["bit-second", "torn-tail", "garbage-tail", "huge-length", "transactions-torn"])
def test_a_crash_at_any_moment_loses_nothing(golden: Path, case: str) -> None:
    """In every state that a crash may leave, each byte of each segment lies in its file or in a copy."""
    storage = damaged(golden, case)
    before = logs(storage)
    load(storage, FolderKeeper(storage, KEPT))
    assert logs(storage) != before
    count = 0
    for image in crash_images(storage.trace, limit=200):
        opened = image.open()
        found, kept = logs(opened), dict(copies(opened))
        for name, data in before.items():
            assert is_there(name, data, found, kept), (name, image)
        count += 1
    assert count > 50


def test_without_copies_the_same_check_fails(golden: Path) -> None:
    """So the check above can see a loss."""
    storage = damaged(golden, "bit-second")
    before = logs(storage)
    load(storage, None)
    assert not all(is_there(name, data, logs(storage), {}) for name, data in before.items())


@pytest.mark.parametrize("case", ["bit-second", "torn-tail"])
def test_a_failure_at_any_moment_loses_nothing(golden: Path, case: str) -> None:
    """The k-th operation on the folder of copies fails, for every k: then nothing goes that has no copy."""
    number = 0
    while True:
        number += 1
        storage = damaged(golden, case)
        before = logs(storage)
        try:
            load(storage, FolderKeeper(FaultyStorage(storage, number), KEPT))
        except KeepError:
            kept = dict(copies(storage))
            for name, data in before.items():
                assert is_there(name, data, logs(storage), kept), (name, number)
            continue
        break
    assert number > 10


def test_names(golden: Path) -> None:
    """A copy is named by its segment and the bytes; a second one of the same name gets a number."""
    storage = MemoryStorage()
    storage.make_folder(FOLDER)
    file = storage.open_log(f"{FOLDER}/00000000000000000007.log")
    file.append(bytes(range(100)))
    keeper = FolderKeeper(storage, KEPT)
    for start, end in ((90, 100), (0, 100), (0, 100)):
        keeper.keep(Action(ActionKind.CUT, file.path, "why", True, start, end, 9, None), file)
    again = FolderKeeper(storage, KEPT)
    again.keep(Action(ActionKind.REPLACED, file.path, "why"), file)
    kept = dict(copies(storage))
    listed = [json.loads(line) for line in kept.pop(LIST_NAME).splitlines()]
    assert kept == {
        "00000000000000000007.log.90-100": bytes(range(90, 100)),
        "00000000000000000007.log": bytes(range(100)),
        "00000000000000000007.log.2": bytes(range(100)),
        "00000000000000000007.log.3": bytes(range(100)),
    }
    assert [row["copy"] for row in listed] == [
        "00000000000000000007.log.90-100",
        "00000000000000000007.log",
        "00000000000000000007.log.2",
        "00000000000000000007.log.3",
    ]


def test_open_log_keeps_copies(golden: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "damaged-1"
    shutil.copytree(golden / "broker-4.3" / "damage" / "garbage-tail" / "in", folder)
    with pytest.raises(RequestError, match="copies cannot be kept in"):
        pylogseg.open_log(folder, keep=tmp_path / "data" / "kept")
    tail = (folder / "00000000000000000180.log").read_bytes()[1233:]
    with pylogseg.open_log(folder, keep=tmp_path / "kept") as log:
        (cut,) = [action for action in log.report.actions if action.kind is ActionKind.CUT]
        assert log.report.cut_bytes == len(tail) == 300
    assert cut.kept == str(tmp_path / "kept" / "damaged-1" / "00000000000000000180.log.1233-1533")
    assert Path(cut.kept).read_bytes() == tail
