"""Tests of archive/one_broker.py. `restore --node-id`: a folder gets all of a new cluster or nothing, and a run that
was killed can be run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import some_of
from helpers.shell import Done
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError

#: What a restore does to a disk.
STEPS = "make_folder", "write_whole", "write_synced", "rename", "remove", "remove_folder", "sync_folder"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("new-cluster")
    with pylogseg.Broker(root / "disk") as broker:
        for topic in ("orders", "users"):
            broker.create_topic(topic, 1)
            for number in range(5):
                broker.produce(topic, b"%d" % number)
    assert shell("archive", root / "disk", root / "archive").code == 0
    return root / "archive"


def restored(archive: Path, target: Path, *more: object) -> Done:
    return shell("restore", archive, target, "--node-id", 7, *more)


def files_of(target: Path) -> dict[str, int]:
    paths = [path for path in target.rglob("*") if path.is_file() and path.name not in (".lock", "meta.properties")]
    return {path.relative_to(target).as_posix(): path.stat().st_size for path in paths}


@pytest.fixture(scope="module")
def whole(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    target = tmp_path_factory.mktemp("whole")
    assert restored(archive, target).code == 0
    return files_of(target)


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, Callable[[], None]], list[str]]]:
    """Has something happen before a step of a restore, by its number; returns the names of those that were made."""

    def happens_at(number: int, happening: Callable[[], None]) -> list[str]:
        steps = list[str]()
        for name in STEPS:
            real = originals[name]

            def step(self: LocalStorage, *given: Any, real: Any = real, name: str = name) -> Any:
                steps.append(name)
                if len(steps) == number:
                    happening()
                return real(self, *given)

            monkeypatch.setattr(LocalStorage, name, step)
        return steps

    originals = {name: getattr(LocalStorage, name) for name in STEPS}
    yield happens_at
    monkeypatch.undo()


def count_steps(archive: Path, target: Path, at_step: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    target.mkdir()
    steps = at_step(-1, lambda: None)
    assert restored(archive, target).code == 0
    monkeypatch.undo()
    return len(steps)


@pytest.mark.parametrize("node_id", [2**31, 2**32, 2**63, -1])
def test_a_number_that_no_broker_has(archive: Path, tmp_path: Path, node_id: int) -> None:
    """It is refused before the first write, with the numbers that a broker may have."""
    done = shell("restore", archive, tmp_path, "--node-id", node_id)
    assert (done.code, "2147483647" in done.err, list(tmp_path.iterdir())) == (2, True, [])
    with pytest.raises(RequestError, match=f"2147483647, not {node_id}"):
        pylogseg.archive.restore_point(archive, tmp_path, node_id=node_id)
    assert list(tmp_path.iterdir()) == []
    assert shell("broker", tmp_path / "other", "--node-id", max(node_id, 2**31)).code == 2


def test_the_greatest_number(archive: Path, tmp_path: Path) -> None:
    assert shell("restore", archive, tmp_path, "--node-id", 2**31 - 1).code == 0
    assert "node.id=2147483647" in (tmp_path / "meta.properties").read_text()


def test_killed_at_each_step(
    archive: Path, whole: dict[str, int], tmp_path: Path, at_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again completes it, also where the first one had begun to move partitions into place."""
    steps = count_steps(archive, tmp_path / "count", at_step, monkeypatch)
    codes = set[int]()
    for number in some_of(range(1, steps + 1), 15):
        target = tmp_path / str(number)
        target.mkdir()
        process = os.fork()
        if process == 0:
            at_step(number, lambda: os._exit(9))
            restored(archive, target)
            os._exit(0)
        os.waitpid(process, 0)
        assert restored(archive, target, "-n").code in (0, 2)
        done = restored(archive, target)
        codes.add(done.code)
        # All was in place, and the run was about to remove what was temporary.
        assert done.code == 0 or "it is not empty" in done.err, (number, done.err)
        assert files_of(target) == whole, number
        assert "node.id=7" in (target / "meta.properties").read_text()
    assert (0 in codes, steps > 30) == (True, True)


def test_a_failure_at_each_step(
    archive: Path, whole: dict[str, int], tmp_path: Path, at_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing appears, or the plan of a commit that the same command goes on with."""

    def fail() -> None:
        raise StorageError("disk", "write", "no space left", 28)

    steps = count_steps(archive, tmp_path / "count", at_step, monkeypatch)
    for number in some_of(range(1, steps + 1), 15):
        target = tmp_path / str(number)
        target.mkdir()
        at_step(number, fail)
        done = restored(archive, target)
        monkeypatch.undo()
        there = {path.name for path in target.iterdir()} - {".lock"}
        if done.code and there:
            assert list(target.glob("pylogseg-staging-0.*/commit.json")) or files_of(target) == whole, number
        if files_of(target) != whole:
            again = restored(archive, target)
            assert (again.code, files_of(target)) == (0, whole), (number, again.err)


def test_the_newest_point_is_the_default(archive: Path, tmp_path: Path) -> None:
    """As with --node-id, also for partitions that come into a log directory, and for an archive by its URL."""
    for number, source in enumerate((archive, f"file://{archive}")):
        target = tmp_path / str(number)
        target.mkdir()
        done = shell("restore", source, target, "orders")
        assert (done.code, (target / "orders-0").is_dir()) == (0, True), done.err


def test_another_restore_is_at_work(archive: Path, tmp_path: Path) -> None:
    """Its staging folder stays: of a process that runs, or of another machine."""
    staging = tmp_path / f"pylogseg-staging-0.{'0' * 32}-delete"
    for name in (f".{os.getppid()}@{os.uname().nodename}.tmp", ".77@elsewhere.tmp"):
        (staging / name).mkdir(parents=True)
        done = restored(archive, tmp_path)
        assert (done.code, "another restore" in done.err, staging.name in done.err) == (2, True, True)
        (staging / name).rmdir()
