"""Tests of cli/export.py. `pylogseg export` over an earlier one, and of a disk that cannot be read whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.forked import command
from helpers.shell import Done, environment, expect, pylogseg, without_rights

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rights are others there")


@pytest.fixture
def disk(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three partitions in the folder ``d``: one of three segments, two small ones."""
    monkeypatch.chdir(tmp_path)
    for name in ("codec-none-1", "txn-a-0", "txn-b-0"):
        shutil.copytree(examples / name, tmp_path / "d" / name)
    return tmp_path / "d"


def without(text: str) -> Done:
    """Run words as somebody for whom rights count."""
    words = command(*text.split(), before=without_rights())
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr.decode())


def contents(folder: str = "lake") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def of(partition: str, files: dict[str, bytes]) -> dict[str, bytes]:
    topic, _, number = partition.rpartition("-")
    return {name: data for name, data in files.items() if f"topic={topic}/partition={number}/" in name}


needs_rights = pytest.mark.skipif(
    not hasattr(os, "geteuid") or not shutil.which("setpriv"), reason="root needs setpriv"
)


@needs_rights
@pytest.mark.parametrize("lost", ["d/codec-none-1", "d/codec-none-1/00000000000000000190.log"])
@pytest.mark.parametrize("how", ["", "--on-corrupt skip", "--isolation-level read_committed"])
def test_an_overwrite_keeps_the_files_of_what_cannot_be_read(disk: Path, lost: str, how: str) -> None:
    assert pylogseg("export", "d", "-O", "lake", "--offset", "0:300").code == 0
    before = contents()
    Path(lost).chmod(0)
    try:
        done = without(f"export d -O lake --overwrite --columns offset {how}")
    finally:
        Path(lost).chmod(0o755)
    after = contents()
    expect(done, 2, f"{lost}: ", "Permission denied", "lake/topic=codec-none/partition=1")
    assert of("codec-none-1", after) == of("codec-none-1", before) != {}
    for other in ("txn-a-0", "txn-b-0"):  # the others are replaced
        assert {tuple(pq.read_schema(name).names) for name in of(other, after)} == {("offset",)}
    assert not [name for name in os.listdir("lake") if name.startswith(".")]


@needs_rights
@pytest.mark.parametrize("lost", ["d/codec-none-1", "d/codec-none-1/00000000000000000190.log"])
def test_an_overwrite_keeps_one_file_of_what_cannot_be_read(disk: Path, lost: str) -> None:
    assert pylogseg("export", "d", "-O", "lake/all.csv").code == 0
    before = contents()
    Path(lost).chmod(0)
    try:
        done = without("export d -O lake/all.csv --overwrite --on-corrupt skip")
        new = without("export d -O lake/new.csv")
    finally:
        Path(lost).chmod(0o755)
    assert (done.code, new.code) == (2, 2)
    assert "lake/all.csv is still of the earlier export" in done.err
    assert f"{lost}: " in new.err
    assert "txn-b" in (disk.parent / "lake" / "new.csv").read_text()
    os.remove("lake/new.csv")
    assert contents() == before


@needs_rights
@pytest.mark.parametrize("how", ["", "--on-corrupt skip", "--isolation-level read_committed", "--on-corrupt stop"])
def test_a_partition_that_cannot_be_listed_is_named_and_the_rest_is_written(disk: Path, how: str) -> None:
    shutil.move("d", "disks/1")
    shutil.copytree("disks/1", "disks/2", ignore=shutil.ignore_patterns("txn-*", "codec-*"))
    shutil.move("disks/1/txn-b-0", "disks/2/txn-b-0")
    for lost in (Path("disks/1/txn-a-0"), Path("disks/2")):
        lost.chmod(0)
        try:
            done = without(f"export disks -O {lost.name} {how}")
        finally:
            lost.chmod(0o755)
        expect(done, 2, f"{lost}: cannot list: Permission denied")
        kept = {"txn-a-0", "txn-b-0", "codec-none-1"} - {lost.name if lost.name != "2" else "txn-b-0"}
        assert {name for name in ("txn-a-0", "txn-b-0", "codec-none-1") if of(name, contents(lost.name))} == kept


def test_an_overwrite_replaces_files_of_any_form(disk: Path) -> None:
    assert pylogseg("export", "d", "-O", "lake").code == 0
    before = contents()
    refused = pylogseg("export", "d", "txn-a", "-O", "lake", "--to", "csv")
    assert refused.code == 2
    assert "of an earlier export in another form: replace it with --overwrite" in refused.err
    assert contents() == before
    assert pylogseg("export", "d", "txn-a", "-O", "lake", "--to", "csv", "--overwrite").code == 0
    assert {Path(name).suffix for name in of("txn-a-0", contents())} == {".csv"}
    assert of("txn-b-0", contents()) == of("txn-b-0", before)


def test_partitions_without_records_are_counted(disk: Path) -> None:
    (disk / "empty-0").mkdir()
    (disk / "empty-0" / f"{0:020}.log").touch()
    (disk / "empty-1").mkdir()
    done = expect(pylogseg("export", "d", "-O", "lake"), 0)
    assert done.text.splitlines()[1] == "2 partitions without a record to export: no file is made"
    told = pylogseg("export", "d", "-O", "lake", "--overwrite", "--json")
    assert told.err == "pylogseg: note: 2 partitions without a record to export: no file is made\n"
    assert len(told.rows) == sum(name.endswith(".parquet") for name in contents())
