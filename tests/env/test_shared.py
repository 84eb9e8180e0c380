"""Tests of env/shared.py. Folders that machines share: marks in them, and files that are not there when a driver looks
for them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.lake_tables import has_format, name_of, rows_of
from helpers.typed_logs import append_later_orders, write_orders

import pylogseg
from pylogseg import offline
from pylogseg.archive import list_points, write
from pylogseg.disk.listing import open_dir
from pylogseg.env.executor import UNSAID, Threads
from pylogseg.env.shared import SharedFolder, check_marks, mark_folders
from pylogseg.errors import StorageError
from pylogseg.lakehouse.lake import LakeOptions, write_tables
from pylogseg.values.decoding import Decoding


def test_marks(tmp_path: Path) -> None:
    """They are there for as long as the work; a folder that another machine has in this place has none."""
    folders = [SharedFolder(str(tmp_path / "one")), SharedFolder(str(tmp_path / "two"), "set TMPDIR")]
    with mark_folders(folders) as marks:
        check_marks(marks)
        assert [len(list(Path(each.path).iterdir())) for each in folders] == [1, 1]
        assert all(path.name.startswith(".") for each in folders for path in Path(each.path).iterdir())
        (tmp_path / "two").rename(tmp_path / "mounted")
        (tmp_path / "two").mkdir()
        with pytest.raises(StorageError, match=r"two: .*does not share the folder with .*: set TMPDIR$"):
            check_marks(marks)
        (tmp_path / "two").rmdir()
        (tmp_path / "two").touch()
        with pytest.raises(StorageError, match="does not share the folder"):
            check_marks(marks)
    assert [*(tmp_path / "one").iterdir()] == []


def test_a_mark_that_cannot_be_looked_for_is_no_folder_that_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mark_folders([SharedFolder(str(tmp_path))]) as marks:

        def fail(path: str) -> Any:
            raise OSError(errno.EIO, "Input/output error", path)

        monkeypatch.setattr("pylogseg.env.shared.os.stat", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            check_marks(marks)


def test_marks_of_killed_processes_go_and_those_of_others_stay(tmp_path: Path) -> None:
    text = (
        "import os, sys; from pylogseg.env.shared import SharedFolder, mark_folders\n"
        "with mark_folders([SharedFolder(sys.argv[1])]): os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", text, tmp_path], check=False, env=environment)
    (killed,) = tmp_path.iterdir()
    other = tmp_path / re.sub(r"\d+@.*\.tmp$", "1@elsewhere.tmp", killed.name)
    other.touch()
    with mark_folders([SharedFolder(str(tmp_path))]):
        assert not killed.exists()
    assert [*tmp_path.iterdir()] == [other]


Harm = Callable[[Path], None]
HARMS: dict[str, Harm] = {
    "gone": Path.unlink,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 1),
}


class Losing(Threads):
    """Threads whose work on a file is undone before its results are there, as by a disk of another machine."""

    def __init__(self, folder: Path, pattern: str, harm: Harm) -> None:
        super().__init__(1)
        self.__dict__.update(folder=folder, pattern=pattern, harm=harm)

    def map(self, function: Any, items: Any, load: Any = UNSAID) -> Iterator[Any]:
        before = {*self.folder.rglob(self.pattern)}
        done = [*super().map(function, items, load)]
        new = sorted({*self.folder.rglob(self.pattern)} - before)
        if new:
            self.harm(new[-1])
        yield from done

    folder: Path
    pattern: str
    harm: Harm


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders of which some do not decode, on a disk that was closed cleanly."""
    root = write_orders(tmp_path_factory.mktemp("orders") / "data", 200)
    (root / ".kafka_cleanshutdown").write_text('{"version": 0}')
    return root


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
@pytest.mark.parametrize("url", ["", "local://"])
def test_no_point_of_objects_that_are_not_there(data: Path, tmp_path: Path, url: str, suffix: str, harm: str) -> None:
    archive, how = tmp_path / "archive", {"auto_mkdir": True} if url else {}
    losing = Losing(archive, f"*.{suffix}", HARMS[harm])
    with pytest.raises(StorageError, match=rf"\.{suffix}: .* a job wrote .*no point is written"):
        write(data, f"{url}{archive}", executor=losing, storage_options=how)
    assert list_points(archive) == []
    assert write(data, archive).segments > 0
    assert [row.value for row in pylogseg.read(f"aiven+file://{archive}", "orders")] == [
        row.value for row in pylogseg.read(data, "orders")
    ]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["delta", "iceberg", "ducklake"])
@pytest.mark.parametrize("dead", ["", "~dlq"])
def test_no_commit_of_files_that_are_not_there(data: Path, tmp_path: Path, kind: str, dead: str, harm: str) -> None:
    """Neither of rows nor of dead letters, in a new table and in one that goes on; the next run writes them all."""
    if not has_format(kind):
        pytest.skip(f"the packages of {kind} are not here")
    log, out = Path(shutil.copytree(data, tmp_path / "data")), tmp_path / "out"
    decoding = Decoding.of("value", registry=log / "schemas", schema=7)
    table, how = name_of(kind, out, "orders"), LakeOptions(decoding=decoding)
    files = f"*{dead}/**/*.parquet" if dead else "*orders/**/*.parquet"
    for count in (0, 100):
        if count:
            append_later_orders(log, count)
            with pylogseg.open_log(log / "orders-0") as other:
                other.append([(None, None, b"what?")])
        before = rows_of(table) if count else []
        (done,) = _lake(log, table, how, Losing(out, files, HARMS[harm]))
        assert re.search(r"\.parquet: .* a job wrote .*nothing of it is committed", str(done.error))
        assert (rows_of(table) if count else []) == before
        (done,) = _lake(log, table, how, Threads())
        assert done.error is None
        assert done.records > 0
    assert pylogseg.audit(log, table).is_right


def _lake(log: Path, table: str, how: Any, executor: Any) -> list[Any]:
    whole = open_dir(log)
    return list(write_tables(whole, whole.select("orders"), table, how, executor))


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_is_restored_of_files_that_are_not_there(data: Path, tmp_path: Path, harm: str) -> None:
    (tmp_path / "disk").mkdir()
    losing = Losing(tmp_path / "disk", "*.log", HARMS[harm])
    with pytest.raises(StorageError, match=r"a job wrote .*nothing is put in place"):
        offline.restore(data, tmp_path / "disk", executor=losing)
    assert not (tmp_path / "disk" / "orders-0").exists()
    offline.restore(data, tmp_path / "disk")
    assert offline.restore(data, tmp_path / "disk", topic="orders").partitions[0].state == "unchanged"
