"""Tests of env/overlay.py and env/overlay_files.py. The overlay: all that a storage does, on a disk that stays as it
is.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.depth import some_of
from helpers.shell import locked
from helpers.storage_conformance import StorageConformance
from helpers.trees import tree

from pylogseg.env.locks import check_unlocked
from pylogseg.env.overlay import FileChange, OverlayStorage
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import StorageError


@pytest.fixture
def storage() -> OverlayStorage:
    return OverlayStorage()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


class TestOverlayStorage(StorageConformance):
    """The conformance tests, and the folder is empty at their end."""

    @pytest.fixture(autouse=True)
    def nothing_is_written(self, folder: str) -> object:
        before = tree(Path(folder))
        yield
        assert tree(Path(folder)) == before


def some_files(folder: Path) -> None:
    folder.mkdir()
    rng = random.Random(1)
    for name in ("a.log", "b.log", "c.index"):
        (folder / name).write_bytes(rng.randbytes(10_000))
    (folder / "sub").mkdir()
    (folder / "sub" / "deep").write_bytes(b"deep")


def random_operation(storage: Storage, folder: str, rng: random.Random) -> object:
    """One operation on one of a few names; what it gave, the kind of error included."""
    path, other = (storage.join(folder, rng.choice(["a.log", "b.log", "c.index", "sub/deep", "new"])) for _ in "12")
    data, position = rng.randbytes(rng.choice([0, 1, 100, 20_000])), rng.randrange(12_000)
    kind = rng.randrange(9)
    try:
        if kind == 0:
            return storage.remove(path)
        if kind == 1:
            return storage.rename(path, other)
        if kind == 2:
            return storage.write_whole(path, data)
        if kind == 3:
            return storage.write_plain(path, data)
        if kind == 4:
            file = storage.open_log(path)
            return file.append(data), file.size, file.read(position, 5000), bytes(file.view(max(0, position - 50), 99))
        if kind == 5:
            file = storage.open_log(path)
            file.truncate(min(position, file.size))
            return file.size, file.read(0, 10)
        if kind == 6:
            index = storage.open_index(path, 100)
            if index.size:
                index.put(max(0, index.size - 8), b"12345678"[: min(8, index.size)])
            return bytes(index.buffer)
        if kind == 7:
            index = storage.open_index(path, 100)
            index.resize(position)
            return bytes(index.buffer[-5:])
        return storage.read_all(path), storage.exists(other)
    except StorageError as error:
        return error.operation.split()[0]


@pytest.mark.parametrize("seed", some_of(range(20), 6))
def test_as_the_disk(tmp_path: Path, seed: int) -> None:
    """The same operations, on the disk and on an overlay of a copy, give the same answers and the same files."""
    for name in ("disk", "overlaid"):
        some_files(tmp_path / name)
    before = tree(tmp_path / "overlaid")
    disk, overlay = LocalStorage(), OverlayStorage()
    rngs = random.Random(seed), random.Random(seed)
    for _ in range(40):
        done = [
            random_operation(storage, str(tmp_path / name), rng)
            for storage, name, rng in ((disk, "disk", rngs[0]), (overlay, "overlaid", rngs[1]))
        ]
        assert done[0] == done[1]
    here, there = str(tmp_path / "disk"), str(tmp_path / "overlaid")
    names = [entry[:3] for entry in disk.list_folder(here)]
    assert names == [entry[:3] for entry in overlay.list_folder(there)]
    assert tree(tmp_path / "overlaid") == before

    after = {name: disk.read_all(disk.join(here, name)) for name, is_dir, _ in names if not is_dir}
    old = {path.name: path.read_bytes() for path in (tmp_path / "overlaid").iterdir() if path.is_file()}
    changed = {os.path.basename(change.path) for change in overlay.changes() if "deep" not in change.path}
    assert changed == {name for name in {*old, *after} if old.get(name) != after.get(name)}


def test_changes(tmp_path: Path) -> None:
    some_files(tmp_path / "d")
    overlay = OverlayStorage()
    a, b, c, new = (str(tmp_path / "d" / name) for name in ("a.log", "b.log", "c.index", "new"))
    assert overlay.changes() == []
    overlay.open_log(a).truncate(9000)
    overlay.write_plain(c, overlay.read_all(c))  # no change
    overlay.write_plain(new, b"123")
    assert overlay.changes() == [FileChange(a, 10_000, 9000, 9000), FileChange(new, None, 3, None)]
    overlay.open_index(c).put(5000, bytes([overlay.read_all(c)[5000] ^ 1]))
    overlay.rename(b, a)
    assert overlay.changes() == [
        FileChange(a, 10_000, 10_000, 0),
        FileChange(b, 10_000, None, None),
        FileChange(c, 10_000, 10_000, 5000),
        FileChange(new, None, 3, None),
    ]
    overlay.rename(str(tmp_path / "d" / "sub"), str(tmp_path / "d" / "moved"))
    overlay.write_plain(str(tmp_path / "d" / "moved" / "more"), b"m")
    moved = [change for change in overlay.changes() if "deep" in change.path or "moved" in change.path]
    assert [(Path(c.path).name, c.before, c.after) for c in moved] == [
        ("deep", None, 4),
        ("more", None, 1),
        ("deep", 4, None),
    ]


def test_cut_and_grown(tmp_path: Path) -> None:
    """What is left of the disk's bytes and what was appended behind are read as one."""
    path = tmp_path / "a.log"
    path.write_bytes(bytes(range(256)) * 40)
    file = OverlayStorage().open_log(str(path))
    old = file.view(0, 1 << 20)
    file.truncate(1000)
    file.append(b"x" * 500)
    assert bytes(file.view(990, 20)) == bytes(range(256))[990 % 256 :][:10] + b"x" * 10
    file.truncate(1200)
    file.append(b"y")
    assert file.read(1190, 100) == b"x" * 10 + b"y"
    file.truncate(10)
    assert file.read(0, 100) == bytes(range(10))
    assert bytes(old) == bytes(range(256)) * 40 == path.read_bytes()


def test_a_lock_that_somebody_has(tmp_path: Path) -> None:
    """Another process, and an object of this one; to ask does not give up the lock that this process has."""
    overlay = OverlayStorage()
    with locked(tmp_path) as pid:
        before = tree(tmp_path)
        overlay.lock(str(tmp_path)).release()  # nothing is written, so nobody is in the way
        with pytest.raises(StorageError, match=f"process {pid} has the lock.*stop it first"):
            check_unlocked(str(tmp_path))
        assert tree(tmp_path) == before
    overlay.lock(str(tmp_path)).release()  # the file is still there, as a killed broker leaves it
    (tmp_path / ".lock").unlink()

    mine = LocalStorage().lock(str(tmp_path))
    with pytest.raises(StorageError, match="this process has the lock"):
        check_unlocked(str(tmp_path))
    asked = f"import sys; from pylogseg.env.locks import check_unlocked; check_unlocked({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 1
    assert b"has the lock" in done.stderr
    mine.release()
