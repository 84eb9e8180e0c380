"""Tests of offline/restoring/command.py. A broker of several log directories: `restore` never makes a second copy of a
partition.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def label(folder: Path, node: int = 1, cluster: str = CLUSTER, directory: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    text = f"version=1\nnode.id={node}\ncluster.id={cluster}\n"
    (folder / "meta.properties").write_text(text + (f"directory.id={directory}\n" if directory else ""))
    return folder


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Two log directories of one broker; the second has partitions."""
    one = label(tmp_path / "disk 1", directory="AAAAAAAAAAAAAAAAAAAAAg")
    two = label(tmp_path / "disk 2", directory="AAAAAAAAAAAAAAAAAAAAAw")
    for name in ("orders-0", "orders-1", "pay-0"):
        with pylogseg.open_log(two / name) as log:
            log.append([(None, b"k", name.encode())])
    return one, two


def sources(tmp_path: Path, two: Path) -> dict[str, Path | str]:
    assert shell("archive", two, tmp_path / "archive").code == 0
    (tmp_path / "backup").mkdir(exist_ok=True)
    assert shell("copy", two, tmp_path / "backup" / "copy").code == 0
    assert shell("export", two, "orders", "--out", tmp_path / "table").code == 0
    return {
        "archive": f"aiven+file://{tmp_path / 'archive'}#latest",
        "copy": tmp_path / "backup" / "copy",
        "table": tmp_path / "table",
    }


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("-n",), ("--force",)], ids=str)
def test_no_second_copy(tmp_path: Path, disks: tuple[Path, Path], more: tuple[str, ...]) -> None:
    """From each kind of source; the partition goes where it is, and one that no directory has goes anywhere."""
    one, two = disks
    for kind, source in sources(tmp_path, two).items():
        committed = ("--committed",) if kind == "table" else ()
        done = shell("restore", source, one, "orders-1", *committed, *more)
        assert done.code == 2, (kind, done.err)
        assert f"orders-1 is also in {two}, another log directory of the same broker" in done.err
        assert sorted(path.name for path in one.iterdir()) == ["meta.properties"]
        assert shell("restore", source, two, "orders-1", "--overwrite", *committed).code == 0
    shutil.rmtree(two / "orders-1")
    assert shell("restore", tmp_path / "backup" / "copy", one, "orders-1").code == 0


@pytest.mark.parametrize("other", [{"node": 2}, {"cluster": "AAAAAAAAAAAAAAAAAAAAAQ"}])
def test_directories_of_others(tmp_path: Path, disks: tuple[Path, Path], other: dict[str, object]) -> None:
    """A directory of another broker or cluster beside it, such as a backup, is no place where the partition lives."""
    one, two = disks
    (tmp_path / "backup").mkdir(exist_ok=True)
    assert shell("copy", two, tmp_path / "backup" / "copy").code == 0
    label(two, **other)  # type: ignore[arg-type]
    assert shell("restore", tmp_path / "backup" / "copy", one, "orders-1").code == 0


HARMS = {"absent": None, "empty": b"", "zeros": bytes(40), "garbage": b"\xffx\n\\u12", "another text": b"a=b\n"}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["archive", "copy", "table"])
def test_a_directory_that_does_not_say_whose_it_is(
    tmp_path: Path, disks: tuple[Path, Path], kind: str, harm: str
) -> None:
    """It may be the broker's: nothing is restored beside it, and the file is named; an export is no log directory."""
    one, two = disks
    source = sources(tmp_path, two)[kind]
    (tmp_path / "photos" / "orders-1").mkdir(parents=True)
    for place in (two, one) if harm != "absent" else (two,):
        label(one), label(two)
        meta = place / "meta.properties"
        content = HARMS[harm]
        meta.unlink() if content is None else meta.write_bytes(content)
        done = shell("restore", source, one, "orders-1", *(("--committed",) if kind == "table" else ()))
        assert (done.code, str(meta) in done.err, "orders-1: " in done.err) == (2, True, True), done.err
        assert not (one / "orders-1").exists()
    shutil.rmtree(two / "orders-1")
    done = shell("restore", source, one, "orders-1", *(("--committed",) if kind == "table" else ()))
    assert done.code in (0, 1), done.err
    assert (one / "orders-1").exists()


def test_what_is_restored_from_is_no_sibling(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    """A backup beside the disks that the restore reads; another one there is named, with what to do."""
    one, two = disks
    assert shell("copy", two, tmp_path / "copy").code == 0
    assert shell("archive", two, tmp_path / "archive").code == 0
    done = shell("restore", tmp_path / "copy", one, "pay-0")
    assert (done.code, str(two) in done.err) == (2, True)
    shutil.rmtree(two / "pay-0")
    done = shell("restore", f"aiven+file://{tmp_path / 'archive'}#latest", one, "pay-0")
    assert (done.code, "a backup that no broker opens" in done.err) == (2, True)
    assert shell("restore", tmp_path / "copy", one, "pay-0").code == 0


def test_what_comes_of_a_table_is_committed(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    """Its high watermark is noted, as of what comes from an archive: `verify` has nothing to say of the directory."""
    _, two = disks
    assert shell("export", two, "orders", "--out", tmp_path / "table").code == 0
    (tmp_path / "elsewhere").mkdir()
    new = label(tmp_path / "elsewhere" / "new")
    (new / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER}\n")
    done = shell("restore", tmp_path / "table", new, "--committed")
    assert (done.code, shell("verify", new, "--json").rows[:-1]) == (0, [])
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert (new / name).read_text() == "0\n2\norders 0 1\norders 1 1\n"
    assert shell("archive", new, tmp_path / "archive").code == 0
