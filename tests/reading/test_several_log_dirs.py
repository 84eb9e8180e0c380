"""Tests of reading/logs.py. Offline commands on a folder of several log directories, as a broker with several disks has
them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helpers.shell import expect, locked, pylogseg
from helpers.trees import contents

from pylogseg import offline
from pylogseg.disk.listing import open_dir
from pylogseg.env.locks import FolderLock
from pylogseg.errors import RequestError
from pylogseg.reading.seek import end_offset

COMMANDS: dict[str, tuple[object, ...]] = {
    "recover": ("--no-keep",),
    "repair": ("--no-keep",),
    "reindex": (),
    "recode": ("--compression", "lz4"),
    "redact": ("--key", "nobody"),
    "compact": ("-c", "cleanup.policy=compact", "cmp-*"),
    "retain": ("--bytes", 10**9, "--force"),
    "delete-records": ("--offset", "cmp-short-0=1", "--offset", "cmp-txn-0=1", "--force"),
}


@pytest.fixture
def disks(examples: Path, tmp_path: Path) -> Path:
    """A folder with two log directories of one broker."""
    for number, names in enumerate((("cmp-short-0", "txn-b-0"), ("cmp-txn-0", "levels-0"))):
        folder = tmp_path / "jb" / f"data-{number}"
        folder.mkdir(parents=True)
        lines = (examples / "meta.properties").read_text().splitlines(keepends=True)
        (folder / "meta.properties").write_text(
            "".join(f"directory.id={number}{'A' * 21}\n" if "directory" in line else line for line in lines)
        )
        (folder / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":5}')
        for name in names:
            shutil.copytree(examples / name, folder / name)
        ends = {f"{p.topic} {p.partition}": end_offset(p.segments) for p in open_dir(folder).partitions}
        for kind, lines in (
            ("replication", [f"{name} {end}\n" for name, end in ends.items()]),
            ("recovery-point", [f"{name} 0\n" for name in ends]),
        ):
            (folder / f"{kind}-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    return tmp_path / "jb"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_is_done(command: str, disks: Path) -> None:
    done = pylogseg(command, disks, *COMMANDS[command])
    assert done.code == 0, (done.text, done.err)
    for name in ("cmp-short-0", "cmp-txn-0"):
        assert name in done.text
    for number in (0, 1):
        assert (disks / f"data-{number}" / ".kafka_cleanshutdown").exists()
    assert not [path.name for path in disks.iterdir() if path.is_file()]
    assert pylogseg("verify", disks, "--quiet").code == 0
    assert len(open_dir(disks).partitions) == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_is_locked_refuses_all(command: str, disks: Path) -> None:
    with locked(disks / "data-1"):
        before = contents(disks)
        expect(pylogseg(command, disks, *COMMANDS[command]), 2, "has the lock")
        assert contents(disks) == before
    FolderLock(str(disks / "data-0")).release()


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_fails_does_not_stop_the_others(command: str, disks: Path) -> None:
    (disks / "data-0" / "recovery-point-offset-checkpoint").unlink()
    (disks / "data-0" / "recovery-point-offset-checkpoint").mkdir()  # nothing can be renamed to that name
    done = expect(pylogseg(command, disks, *COMMANDS[command]), 2)
    assert "data-0" in done.text + done.err
    assert "cmp-txn-0" in done.text
    assert (disks / "data-1" / ".kafka_cleanshutdown").exists()


def test_names_choose_in_all_of_them(disks: Path) -> None:
    results = offline.reindex(disks, topic=["cmp-*"])
    assert [result.name for result in results] == ["cmp-short-0", "cmp-txn-0"]
    (result,) = offline.truncate(disks, 100, topic=["levels"])
    assert result.log_end <= 100
    with pytest.raises(RequestError, match="2 partitions are selected"):
        offline.truncate(disks, 100, topic=["cmp-*"])
    with pytest.raises(RequestError, match="no topic or partition 'cmp'"):
        offline.reindex(disks, topic=["cmp"])
    assert [o.name for o in offline.reindex(disks, topic=["txn-b"])] == ["txn-b-0"]


def test_a_partition_in_two_of_them_is_refused(disks: Path) -> None:
    shutil.copytree(disks / "data-0" / "txn-b-0", disks / "data-1" / "txn-b-0")
    before = contents(disks)
    for topics in (None, ("txn-b",)):
        with pytest.raises(RequestError, match=r"txn-b-0 lies in .*data-0 and in .*data-1"):
            offline.reindex(disks, topic=topics)
    assert contents(disks) == before
    assert [o.name for o in offline.reindex(disks, topic=["levels"])] == ["levels-0"]


def test_into_keeps_them_apart(disks: Path, tmp_path: Path) -> None:
    before = contents(disks)
    done = pylogseg("recode", disks, "--compression", "lz4", "--into", tmp_path / "new")
    assert done.code == 0, (done.text, done.err)
    assert contents(disks) == before
    assert sorted(os.listdir(tmp_path / "new")) == ["data-0", "data-1"]
    assert pylogseg("diff", disks, tmp_path / "new").code == 0
    assert pylogseg("recode", disks, "--compression", "lz4", "--into", tmp_path / "new").code == 2


def test_a_copy_keeps_them_apart(disks: Path, tmp_path: Path) -> None:
    done = pylogseg("copy", disks, tmp_path / "copied")
    assert done.code == 0, (done.text, done.err)
    assert "copied 4 partitions" in done.text
    assert sorted(os.listdir(tmp_path / "copied")) == ["data-0", "data-1"]
    assert pylogseg("diff", disks, tmp_path / "copied").code == 0
    assert (tmp_path / "copied" / "data-1" / "meta.properties").exists()
    assert pylogseg("copy", disks, tmp_path / "copied").code == 2
    assert [p.name for p in offline.copy(disks, tmp_path / "one", topic=["levels"])] == ["levels-0"]
    assert os.listdir(tmp_path / "one") == ["data-1"]
