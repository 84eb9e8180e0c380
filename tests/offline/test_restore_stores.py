"""Tests of offline/restoring/partition.py, offline/restoring/rows.py and offline/restoring/uploading.py. Restores into
a store: what is uploaded, what readers see until all is there, and a run that dies at any request.
"""

from __future__ import annotations

import json
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import IS_DEEP
from helpers.dying_stores import Dies, dying, memory
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg.disk.folders import RESTORING
from pylogseg.disk.stores import store_of
from pylogseg.errors import RequestError, StorageError
from pylogseg.offline import restore
from pylogseg.offline.restoring.partition import RestoreOptions
from pylogseg.offline.restoring.rows import WriteOptions, write_rows
from pylogseg.offline.restoring.uploading import StoreUpload
from pylogseg.transfer.staging import Staging, by_offsets

__all__ = ["memory"]
URL = "memory://restored"
NAMES = ["codec-zstd", "txn-a"]


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def objects(url: str = URL) -> dict[str, bytes]:
    store = store_of(url)
    return {name: store.read(name) or b"" for name in store.list()}


@pytest.mark.parametrize("kind", ["logs", "table"])
def test_what_a_store_gets_is_what_a_folder_gets(kind: str, examples: Path, tmp_path: Path) -> None:
    source = examples
    if kind == "table":
        source = tmp_path / "table"
        assert pylogseg("export", examples, *NAMES, "-O", source, "--isolation-level", "read_committed").code == 0
    (tmp_path / "near").mkdir()
    near = restore(source, tmp_path / "near", topic=NAMES)
    plan = restore(source, URL, topic=NAMES, dry_run=True)
    assert {part.state for part in plan} == {"done"}
    assert objects() == {}
    far = restore(source, URL, topic=NAMES)
    assert objects() == files(tmp_path / "near")
    assert [part.path for part in far] == [f"{URL}/{part.name}" for part in near]
    assert (far.log_dir, far.notes) == (URL, [note.replace(str(tmp_path / "near"), URL) for note in near.notes])
    for isolation in ("read_committed", "read_uncommitted"):
        wanted = list(package.read(tmp_path / "near", isolation_level=isolation))
        assert list(package.read(URL, isolation_level=isolation)) == wanted
    expect(pylogseg("verify", URL), 0)


def test_what_is_there(examples: Path, memory: Any) -> None:
    """It stays, and its lines of the checkpoints; what is restored over it leaves no object of before."""
    restore(examples, URL, topic=["txn-a"])
    before = objects()
    with pytest.raises(RequestError, match=r"memory://restored/txn-a-0: it already exists; overwrite"):
        restore(examples, URL, topic=["txn-a"])
    memory.pipe("/restored/txn-a-0/00000000000000009999.log", b"")
    memory.pipe("/restored/log-start-offset-checkpoint", b"0\n2\ntxn-a 0 9\nother 0 7\n")
    memory.pipe("/restored/other-0/00000000000000000007.log", b"")
    restore(examples, URL, topic=["txn-a"], overwrite=True)
    after = objects()
    assert after.pop("other-0/00000000000000000007.log") == b""
    assert after.pop("log-start-offset-checkpoint") == b"0\n1\nother 0 7\n"
    before.pop("log-start-offset-checkpoint", None)
    assert after == before


def written(upload: StoreUpload, rows: Any, scratch: Path) -> None:
    """Write rows as Spark's tasks and its driver do: of two tasks, the second has the higher offsets."""
    parts = []
    with upload.open_scratch() as root:
        for number, table in enumerate(rows):
            staging = Staging(str(scratch / str(number)))
            staging.begin()
            options = WriteOptions(staging.root, restore=RestoreOptions(segment_bytes=2000, batch_bytes=500))
            parts += [upload.stage(each) for each in write_rows([table], staging, "t", options)]
        upload.commit_staged(by_offsets(parts), root)


@pytest.mark.parametrize("kind", ["files", "staged"])
def test_a_restore_that_is_killed_at_each_request(
    kind: str, examples: Path, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What readers open is what was there, or all that is new; else they name what is not finished."""
    with package.open_log(tmp_path / "old" / "t-0") as log:
        log.append([(1, b"old", b"old")] * 3)
    with package.open_log(tmp_path / "new" / "t-0", segment_bytes=2000) as log:
        for n in range(60):
            log.append([(n, b"k", b"%d" % n * 40)])
    shutil.copytree(tmp_path / "old" / "t-0", tmp_path / "old" / "other-0")
    restore(tmp_path / "old", URL)
    before = objects()
    rows = package.read_arrow(tmp_path / "new", columns=["topic", "partition", "offset", "timestamp", "key", "value"])
    table = rows.read_all().combine_chunks().to_batches()[0]
    unfinished, runs = 0, count()

    def run() -> None:
        if kind == "files":
            restore(tmp_path / "new", URL, overwrite=True)
        else:
            written(StoreUpload(URL), [table.slice(0, 30), table.slice(30)], tmp_path / f"scratch-{next(runs)}")

    def values(url: Any) -> list[Any]:
        return [(each.topic, each.offset, each.value) for each in package.read(url)]

    old = values(tmp_path / "old")
    new = [each for each in old if each[0] == "other"] + values(tmp_path / "new")
    for at in range(0, 200, 1 if IS_DEEP else 3):
        with monkeypatch.context() as patch:
            dying(patch, at, ("put", "delete", "copy"))
            try:
                run()
            except Dies:
                pass
            else:
                break
        if RESTORING in objects():
            unfinished += 1
            for place in (URL, f"{URL}/t-0", f"{URL}/other-0"):
                with pytest.raises(RequestError, match="a restore of t-0 did not finish"):
                    package.open_dir(place)
            done = pylogseg("cat", URL)
            assert (done.code, "a restore of t-0 did not finish" in done.err) == (2, True)
        else:
            assert values(URL) in (old, new)
        run()
        assert values(URL) == new
        assert not [name for name in objects() if name.startswith("_pylogseg")]
        memory.store.clear()
        for name, data in before.items():
            memory.pipe(f"/restored/{name}", data)
    assert unfinished > (5 if IS_DEEP else 1)
    assert values(URL) == new


def test_an_unfinished_directory_is_refused_wherever_it_lies(examples: Path, tmp_path: Path) -> None:
    """Also by what changes a disk: a copy of what was not whole."""
    shutil.copytree(examples / "txn-a-0", tmp_path / "data" / "txn-a-0")
    (tmp_path / "data" / RESTORING).parent.mkdir()
    (tmp_path / "data" / RESTORING).write_text(json.dumps({"unfinished": ["txn-a-0"]}))
    (tmp_path / "out").mkdir()
    for words in (
        ("cat", tmp_path / "data"), ("verify", tmp_path / "data" / "txn-a-0"), ("ls", tmp_path),
        ("compact", tmp_path / "data", "-n"), ("repair", tmp_path / "data", "-n"),
        ("copy", tmp_path / "data", tmp_path / "out"), ("restore", tmp_path / "data", tmp_path / "out"),
    ):  # fmt: skip
        done = pylogseg(*words)
        assert (done.code, "a restore of txn-a-0 did not finish" in done.err) == (2, True), (words, done)
    assert not os.listdir(tmp_path / "out")


def test_one_restore_at_a_time(examples: Path) -> None:
    with StoreUpload(URL).open_scratch(), pytest.raises(StorageError, match="writes to memory://restored"):
        restore(examples, URL, topic=NAMES)
    assert objects() == {}


def test_the_command(examples: Path) -> None:
    expect(pylogseg("restore", examples, URL, "codec-zstd", "--json"), 0)
    refused = pylogseg("restore", examples, URL, "codec-zstd")
    assert (refused.code, "already exists; overwrite (--overwrite) replaces it" in refused.err) == (2, True)
    assert pylogseg("restore", examples, URL, "codec-zstd", "--overwrite").code == 0
    assert pylogseg("cat", URL, "codec-zstd").out == pylogseg("cat", examples, "codec-zstd").out
