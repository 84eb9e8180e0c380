"""Tests of disk/folders.py, env/filesystem.py and env/urls.py. What a folder is, by what is in it: the same for readers
and for commands that write.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg
from helpers.trees import entries

import pylogseg as package
from pylogseg.disk.listing import open_dir
from pylogseg.disk.target import Target
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError

HEX = "0123456789abcdef" * 2
#: Names that log directories have, and that could be those of partitions.
LIKE_PARTITIONS = ("data-0", "broker-1", "server-3", "kafka-logs-1", "disk-00")
SMALL = ("txn-a-0", "txn-b-0", "codec-none-1")


def log_dir(examples: Path, folder: Path, *, bare: bool = False, names: tuple[str, ...] = SMALL) -> Path:
    """A log directory of a few partitions, with the files of one or without."""
    folder.mkdir(parents=True)
    for name in names:
        shutil.copytree(examples / name, folder / name)
    if not bare:
        for path in examples.iterdir():
            if path.is_file() and path.name != ".lock":
                shutil.copy(path, folder / path.name)
    return folder


@pytest.mark.parametrize("bare", [False, True], ids=["with meta.properties", "without"])
@pytest.mark.parametrize("name", LIKE_PARTITIONS)
def test_a_log_directory_named_like_a_partition(examples: Path, tmp_path: Path, name: str, bare: bool) -> None:
    folder = log_dir(examples, tmp_path / "jb" / name, bare=bare)
    expected = ["codec-none-1", "txn-a-0", "txn-b-0"]
    for path in (folder, folder.parent):
        disk = open_dir(path)
        assert [p.name for p in disk.partitions] == expected
        assert [d.path for d in disk.log_dirs] == [str(folder)]
        (place,) = Target.find_all(LocalStorage(), str(path))
        assert (place.parent, place.log_dir, sorted(place.names)) == (str(folder), str(folder), expected)
        assert [row["topic"] for row in pylogseg("ls", path, "--json").rows] == ["codec-none", "txn-a", "txn-b"]
        assert pylogseg("cat", path, "--fields", "offset").out.count(b"\n") == sum(1 for _ in package.read(folder))


def test_several_log_directories(examples: Path, tmp_path: Path) -> None:
    a = log_dir(examples, tmp_path / "jb" / "data-0", names=("txn-a-0",))
    b = log_dir(examples, tmp_path / "jb" / "data-1", names=("txn-b-0",))
    (tmp_path / "jb" / "lost+found").mkdir()
    (tmp_path / "jb" / "data-2").mkdir()  # a disk that is still empty
    disk = open_dir(tmp_path / "jb")
    assert [d.path for d in disk.log_dirs] == [str(a), str(b)]
    assert [p.name for p in disk.partitions] == ["txn-a-0", "txn-b-0"]
    with pytest.raises(RequestError, match="no Kafka log directory"):
        open_dir(tmp_path / "jb" / "data-2")
    with pytest.raises(RequestError, match="neither a log directory"):
        Target.find(LocalStorage(), str(tmp_path / "jb" / "data-2"))


@pytest.mark.parametrize("bare", [False, True], ids=["with meta.properties", "without"])
@pytest.mark.parametrize(
    "stray", ["00000000000000000000.log", "00000000000000000007.timeindex", "leader-epoch-checkpoint"]
)
def test_a_stray_file_hides_no_partition(examples: Path, tmp_path: Path, stray: str, bare: bool) -> None:
    folder = log_dir(examples, tmp_path / "kafka", bare=bare)
    (folder / stray).touch()
    disk = open_dir(folder)
    assert len(disk.partitions) == len(SMALL)
    assert any(stray in note for note in disk.notes)
    assert Target.find(LocalStorage(), str(folder)).is_whole
    done = pylogseg("ls", folder)
    assert len(done.text.splitlines()) == 2 + len(SMALL)  # the names of the columns, and a TOTAL
    assert stray in done.err
    (folder.parent / stray).touch()  # nor beside log directories
    assert len(open_dir(folder.parent).partitions) == len(SMALL)


@pytest.mark.parametrize("command", ["recover", "compact", "repair", "reindex", "recode", "retain", "copy"])
def test_no_command_writes_to_a_log_directory_as_to_a_partition(examples: Path, tmp_path: Path, command: str) -> None:
    for name in ("data-0", "data-1"):
        log_dir(examples, tmp_path / "jb" / name, names=("txn-b-0",))
    outer = log_dir(examples, tmp_path / "outer", names=("txn-a-0",))
    log_dir(examples, outer / "data-0", names=("txn-b-0",))
    words: dict[str, tuple[object, ...]] = {
        "retain": ("--ms", 10**15),
        "recode": ("--to", "zstd"),
        "copy": (tmp_path / "copied",),
    }
    for path in (tmp_path / "jb", outer):
        pylogseg(command, path, *words.get(command, ()))
    for folder in (tmp_path / "jb", tmp_path / "jb" / "data-0", tmp_path / "jb" / "data-1", outer / "data-0"):
        assert not [p.name for p in folder.iterdir() if p.suffix in (".log", ".index", ".snapshot")]
        assert not (folder / "leader-epoch-checkpoint").exists()
    assert not (tmp_path / "jb" / "recovery-point-offset-checkpoint").exists()


def test_a_log_directory_inside_of_one_is_named(examples: Path, tmp_path: Path) -> None:
    outer = log_dir(examples, tmp_path / "outer", names=("txn-a-0",))
    inner = log_dir(examples, outer / "data-0", names=("txn-b-0",))
    disk = open_dir(outer)
    assert [p.name for p in disk.partitions] == ["txn-a-0"]
    assert any(str(inner) in note for note in disk.notes)
    expect(pylogseg("recover", outer), 1, out="data-0: this is a log directory, not a partition")
    assert [p.name for p in open_dir(inner).partitions] == ["txn-b-0"]


def test_files_of_both_are_ambiguous(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0")
    shutil.copy(examples / "meta.properties", folder)
    before = entries(tmp_path)
    for command in ("ls", "cat", "verify", "recover", "repair"):
        done = pylogseg(command, folder)
        assert done.code == 2, command
        assert "a log directory (meta.properties) or the folder of a partition (0000" in done.err
    assert entries(tmp_path) == before
    # In a log directory its name decides for readers, as for a broker; what writes does not touch it.
    around = log_dir(examples, tmp_path / "kafka")
    shutil.copy(examples / "meta.properties", around / "txn-a-0")
    assert [p.name for p in open_dir(around).partitions] == sorted(SMALL)
    done = pylogseg("recover", around)
    assert done.code == 1
    assert "txn-a-0: a log directory (meta.properties) or the folder of a partition" in done.text


def test_partitions_beside_log_directories(examples: Path, tmp_path: Path) -> None:
    log_dir(examples, tmp_path / "data-0", names=("txn-a-0",))
    shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")
    assert [p.name for p in open_dir(tmp_path).partitions] == ["txn-a-0", "txn-b-0"]
    with pytest.raises(RequestError, match=r"side by side here: name the log directory"):
        Target.find(LocalStorage(), str(tmp_path))


def test_partitions_by_themselves(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(examples / "txn-a-0", tmp_path / "any name")
    (partition,) = open_dir(tmp_path / "any name").partitions
    assert len(partition.segments) > 1
    stray = shutil.copytree(examples / "txn-a-0", tmp_path / "logs" / f"txn-a-0.{HEX}-stray")
    assert [p.state for p in open_dir(stray.parent).partitions] == ["stray"]
    emptied = tmp_path / "logs" / "txn-b-0"
    emptied.mkdir()
    assert [p.name for p in open_dir(emptied).partitions] == ["txn-b-0"]
    monkeypatch.chdir(emptied)
    assert [p.name for p in open_dir(".").partitions] == ["txn-b-0"]


def test_links_to_a_log_directory_show_it_once(examples: Path, tmp_path: Path) -> None:
    log_dir(examples, tmp_path / "kafka-3.7")
    (tmp_path / "current").symlink_to("kafka-3.7")
    assert [p.name for p in open_dir(tmp_path).partitions] == sorted(SMALL)


def test_what_is_still_being_written_is_not_there(examples: Path, tmp_path: Path) -> None:
    log_dir(examples, tmp_path / "data-0")
    log_dir(examples, tmp_path / ".data-1.pylogseg-unfinished")
    assert len(open_dir(tmp_path).log_dirs) == 1


def test_a_path_is_split_as_the_system_does() -> None:
    """A path that is whole already is split without a look at the folder of the process: with the same parts."""
    parts = ("/", "a", "..", ".", "//", "b-1", ".x", " ")
    for path in map("".join, itertools.product(parts, repeat=4)):
        assert LocalFiles().split(path) == os.path.split(os.path.abspath(path)), path
