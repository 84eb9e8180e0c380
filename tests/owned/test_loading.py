"""Tests of env/garbage.py and owned/manager/logs.py. A load of many logs: what it looks at, what it leaves alone, and
what is read ahead of it.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from pylogseg import BrokerSettings, LogManager
from pylogseg._native import _lookup
from pylogseg.env.garbage import pause_collection
from pylogseg.env.storage import Entry, LocalStorage, MappedFile
from pylogseg.log import segment_lookup
from pylogseg.owned.manager.logs import Loading

RECORDS = [(None, b"key", bytes(100))] * 20


class Counting(LocalStorage):
    """Counts what is asked of each folder."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[tuple[str, str]] = Counter()
        listed = self.list_folder

        def list_folder(path: str) -> list[Entry]:
            self.asked["list", os.path.basename(path)] += 1
            return listed(path)

        self.list_folder = list_folder

    def open_index(self, path: str, size: int | None = None) -> MappedFile:
        self.asked["index", os.path.basename(os.path.dirname(path))] += 1
        return super().open_index(path, size)


def make(folder: Path, count: int = 3) -> BrokerSettings:
    """Logs of three segments each, closed in order; the first begins behind where it did once."""
    settings = BrokerSettings(log_dirs=(str(folder / "a"), str(folder / "b")), log_cleaner_enable=False)
    with LogManager(settings) as manager:
        for number in range(count):
            log = manager.log("orders", number)
            for _ in range(2):
                log.append(RECORDS)
                log.engine.roll()
            log.append(RECORDS)
            log.increment_log_start(5)
    return settings


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Node and time of change of every leader epoch checkpoint."""
    return {str(p): (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.rglob("leader-epoch-checkpoint")}


def test_a_load_of_clean_logs_looks_once(tmp_path: Path) -> None:
    """One listing of each folder; of the indexes only the last segment's, which get room for entries."""
    settings = make(tmp_path)
    before, storage = state(tmp_path), Counting()
    with LogManager(settings, storage=storage) as manager:
        asked = dict(storage.asked)
        for number in range(3):
            assert asked["list", f"orders-{number}"] == 1
            assert asked["index", f"orders-{number}"] == 2
            log = manager["orders", number]
            assert (log.log_start_offset, log.log_end_offset, log.report.actions) == (5, 60, [])
            assert sum(1 for _ in log.read()) == 55
    assert state(tmp_path) == before, "epochs that a load does not change were written again"


def test_epochs_that_a_load_changes_are_written(tmp_path: Path) -> None:
    settings = make(tmp_path, 1)
    (path,) = tmp_path.rglob("leader-epoch-checkpoint")
    path.write_bytes(b"0\n2\n0 0\n3 70\n")
    with LogManager(settings):
        pass
    assert path.read_bytes() == b"0\n1\n0 5\n"


@pytest.mark.parametrize("interval", [0, 4096])
@pytest.mark.parametrize("appends", [0, 1, 700])
def test_the_end_is_found_without_a_map(
    tmp_path: Path, interval: int, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a copy of the last bytes where that is short, and with the same answer by a map."""
    settings = make(tmp_path, 1)
    with LogManager(settings, {"orders": {"index_interval_bytes": interval}}) as manager:
        for _ in range(appends):
            manager["orders", 0].append(RECORDS)
    with LogManager(settings) as manager:
        active = manager["orders", 0].engine.active
        found = active.end()
        assert found == (60 + 20 * appends, active.size)
        monkeypatch.setattr(segment_lookup, "_MOST_TAIL_BYTES", -1)
        assert active.end() == found


@pytest.mark.skipif(os.name == "nt", reason="nothing is read ahead there")
def test_what_is_read_ahead(tmp_path: Path) -> None:
    """The last segment, snapshots and checkpoints; not the segments before, and nothing that is no file."""
    make(tmp_path, 1)
    (folder,) = tmp_path.rglob("orders-0")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    wanted = [
        n for n, size in sizes.items() if size and (not n.endswith(("log", "index")) or n.startswith("0" * 18 + "40"))
    ]
    assert _lookup.read_ahead(os.fsencode(folder)) == len(wanted) > 3
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")  # to open it would wait for ever
    (folder / "link").symlink_to(folder / "nowhere")
    (folder / "inside").mkdir()
    assert _lookup.read_ahead(os.fsencode(folder)) == len(wanted)
    assert _lookup.read_ahead(os.fsencode(folder / "nowhere")) == 0
    assert _lookup.read_ahead(os.fsencode(folder / "leader-epoch-checkpoint")) == 0
    with pytest.raises(TypeError):
        _lookup.read_ahead(str(folder))  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("is_local", [False, True])
def test_each_is_loaded_once(threads: int, is_local: bool, tmp_path: Path) -> None:
    seen: list[int] = []
    Loading(range(1000), seen.append, (lambda number: str(tmp_path)) if is_local else None).run(threads)
    assert sorted(seen) == list(range(1000))


def test_an_error_ends_a_load(tmp_path: Path) -> None:
    """What was not begun is left, and the threads that read ahead do not wait for it."""
    seen: list[int] = []

    def load(number: int) -> None:
        seen.append(number)
        if number == 3:
            raise KeyError("it is broken")

    with pytest.raises(KeyError, match="broken"):
        Loading(range(100_000), load, lambda number: str(tmp_path)).run(1)
    assert seen == [0, 1, 2, 3]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pylogseg-load")]


def test_collections_go_on_after_a_load() -> None:
    assert gc.isenabled()
    with pause_collection():
        assert not gc.isenabled()
        with pause_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), pause_collection():
        raise KeyError
    assert gc.isenabled()
