"""Tests of disk/stores.py, reading/marks.py, tables/export/notes.py and tables/export/tables.py. Exports to a store:
whole objects, a state that readers see, and a run that dies at any request.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any
from zlib import crc32

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from helpers.dying_stores import Dies, dying, memory
from helpers.shell import pylogseg

import pylogseg as package
from pylogseg.disk.stores import Fingerprint, FolderStore, ObjectStore, store_of
from pylogseg.errors import RequestError, StorageError
from pylogseg.offline import compact
from pylogseg.reading.logs import logs_of
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading
from pylogseg.tables.export import notes
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.notes import (
    NOTES,
    lock_place,
    note_names,
    noted_losses,
    paths_in_note,
    read_note,
    read_state,
)
from pylogseg.tables.export.tables import COLUMNS, TableExport, export_parts, plan_parts
from pylogseg.tables.short_forms import read_arrow

__all__ = ["memory"]
URL = "memory://lake"
CHANGES = ("put", "delete")


@pytest.fixture(params=["folder", "memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A folder of this machine, fsspec's memory, and a file system of fsspec that has no tags and refuses nothing."""
    place = {"folder": f"file://{tmp_path}", "memory": URL, "file": f"local://{tmp_path}"}[request.param]
    return store_of(place, {"auto_mkdir": True} if request.param == "file" else None)


def test_a_store(store: ObjectStore, tmp_path: Path) -> None:
    assert (store.list(), store.read("a/b"), store.list("a")) == ({}, None, {})
    small = store.put("a/b", b"one")
    with store.scratch() as folder:
        (folder / "x").write_bytes(b"other")
        large = store.put("a/c/d", folder / "x")
        assert not (folder / "x").exists()
    assert not folder.exists()
    assert {name: each.size for name, each in store.list().items()} == {"a/b": 3, "a/c/d": 5}
    assert list(store.list("a/c")) == list(store.list("a/c/d")) == ["a/c/d"]
    assert (store.read("a/b"), small.size, large.size) == (b"one", 3, 5)
    assert store.has("a/c/d", large)
    assert not store.has("a/c/d", Fingerprint(6, large.tag))
    assert not store.has("a/nothing", large)
    store.put("a/c/d", b"OTHER")
    assert store.has("a/c/d", large) == isinstance(store, FolderStore)  # where the size decides
    for name in ("a/b", "a/b", "a/c/d"):
        store.delete(name)
    assert store.list() == {}


def make(folder: Path, count: int, first: int = 0) -> None:
    day = 86_400_000
    with package.open_log(folder, segment_bytes=3000, message_timestamp_before_max_ms=2**62, retention_ms=-1) as log:
        for n in range(first, first + count):
            log.append([(n // 25 * day, b"k%d" % (n % 40), b"v" * 40)])


def export(disk: Path, url: str = URL, **how: Any) -> list[str]:
    """Export as Spark's job does; the states."""
    table = TableExport(url, Form("parquet", COLUMNS), "read_uncommitted", **how)
    logs = logs_of(package.open_dir(disk))
    with table.open_run([log.name for log in logs]):
        groups = plan_parts(logs, table, Selection(), Reading().start())
        return [part.state for group in groups for part in export_parts(group, table)]


def rows(url: str = URL) -> list[tuple[Any, ...]]:
    """All rows, of all files."""
    system, path = fsspec.core.url_to_fs(url)
    files = [name for name in system.find(path) if name.endswith(".parquet")]
    if not files:
        return []
    table = ds.dataset(files, format="parquet", filesystem=system).to_table()
    return sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "key", "value")), strict=True))


def in_log(disk: Path) -> list[tuple[Any, ...]]:
    table = read_arrow(str(disk)).read_all()
    return sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "key", "value")), strict=True))


def test_again_and_what_changed(tmp_path: Path) -> None:
    disk = tmp_path / "data"
    make(disk / "t-0", 60)
    assert set(export(disk, dry_run=True)) == {"to do"}
    assert rows() == []
    assert set(export(disk)) == {"written"}
    assert rows() == in_log(disk)
    assert set(export(disk)) == {"unchanged"}
    store = store_of(URL)
    assert sorted(name.split("/")[1] for name in store.list(NOTES) if "t-0" not in name) == ["table.json"]
    # The same size, and something else in it.
    name = next(name for name in store.list() if name.endswith(".parquet"))
    data = store.read(name) or b""
    store.put(name, bytes(len(data)))
    assert export(disk).count("written") == 1
    assert rows() == in_log(disk)
    store.delete(name)
    assert [(each.path, "is not there" in each.reason) for each in noted_losses(URL)] == [(f"{URL}/{name}", True)]
    make(disk / "t-0", 3, 60)
    assert export(disk)[-1] == "written"
    assert (rows(), noted_losses(URL)) == (in_log(disk), [])
    assert set(export(disk, overwrite=True)) == {"written"}
    assert rows() == in_log(disk)


def with_deaths(run: Callable[[], Any], again: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run, killed at each request in turn, until a run ends; how many deaths there were. After each, call `again`."""
    for at in range(200):
        with monkeypatch.context() as patch:
            dying(patch, at, CHANGES)
            try:
                run()
            except Dies:
                pass
            else:
                return at
        again()
    raise AssertionError("it never ends")


def is_whole(url: str = URL) -> bool:
    """Check that what is noted is what is there."""
    store = store_of(url)
    known = {name for match in note_names(store) for name in paths_in_note(read_note(store, match.string))}
    assert {name for name in store.list() if not name.startswith(NOTES)} == known
    return (read_state(url) or {}).get("state") == "whole" and not any("lock" in name for name in store.list(NOTES))


def test_a_run_that_is_killed_at_each_request(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see the old table or the new one, or that it is not finished; the next run makes the new one."""
    disk = tmp_path / "data"
    make(disk / "t-0", 60)
    make(disk / "t-1", 10)
    export(disk)
    old, before = rows(), dict(memory.store)
    compact(disk, force=True)
    make(disk / "t-0", 8, 60)
    new = in_log(disk)
    assert old != new
    unfinished = 0

    def again() -> None:
        nonlocal unfinished
        if (read_state(URL) or {})["state"] == "writing":
            (first, *_) = noted_losses(URL)
            assert "an export of t-0, t-1 did not finish" in first.reason
            unfinished += 1
            rows()  # each file is a whole one
        else:
            assert rows() in (old, new)
        export(disk)
        assert rows() == new
        assert is_whole()
        memory.store.clear()
        memory.store.update(before)

    assert unfinished > with_deaths(lambda: export(disk), again, monkeypatch) // 2 > 5
    assert (rows(), is_whole()) == (new, True)


def test_what_another_run_left_stays_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "data"
    for number in range(2):
        make(disk / f"t-{number}", 10)
    with monkeypatch.context() as patch:
        dying(patch, 5, CHANGES)
        with pytest.raises(Dies):
            export(disk)
    export(disk / "t-1")
    assert ["an export of t-0 did not finish" in each.reason for each in noted_losses(URL)] == [True]
    assert noted_losses(URL, lambda topic, partition: partition == 1) == []
    export(disk / "t-0")
    assert noted_losses(URL) == []
    assert rows() == in_log(disk)


def test_one_export_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from two machines. A lock of a process that died is no lock."""
    monkeypatch.setattr(notes, "_PATIENCE_SECONDS", 0.2)
    store = store_of(URL)
    with (
        lock_place(store),
        pytest.raises(StorageError, match=r"another run writes to memory://lake: .* delete this object"),
        lock_place(store),
    ):
        pass
    assert store.list() == {}
    for _ in range(2):
        with monkeypatch.context() as patch:
            dying(patch, 1, CHANGES)
            with pytest.raises(Dies), lock_place(store):
                pass
    assert len(store.list()) == 2
    with lock_place(store):
        assert len(store.list()) == 1
    store.put(f"{NOTES}/lock-m.json", b'{"host": "elsewhere", "process": 1, "since": "2026"}')
    with pytest.raises(StorageError, match="process 1 on elsewhere, since 2026"), lock_place(store):
        pass
    assert len(store.list()) == 1


def test_of_many_exports_that_begin_together_one_goes_on_at_most(memory: Any) -> None:
    store, barrier, inside, most = store_of(URL), Barrier(8), [0], [0]

    def begin(number: int) -> None:
        barrier.wait()
        with suppress(StorageError), lock_place(store):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            sleep(0.02)
            inside[0] -= 1

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(begin, range(8)))
    assert most[0] <= 1
    assert store.list() == {}


# ---- the command ----


def test_the_command(examples: Path, tmp_path: Path, memory: Any) -> None:
    words = ("export", examples, "codec-none", "txn-a", "-O")
    done, local = pylogseg(*words, URL, "--json"), pylogseg(*words, tmp_path / "lake", "--json")
    assert (done.code, done.err) == (0, "")
    assert [{**row, "path": row["path"].removeprefix(f"{URL}/")} for row in done.rows] == [
        {**row, "path": Path(row["path"]).relative_to(tmp_path / "lake").as_posix()} for row in local.rows
    ]
    for row in done.rows:
        assert memory.cat(row["path"]) == (tmp_path / "lake" / row["path"].removeprefix(f"{URL}/")).read_bytes()
    refused = pylogseg(*words, URL)
    assert (refused.code, "exists already: replace it with --overwrite" in refused.err) == (2, True)
    assert pylogseg(*words, URL, "--to", "arrow").code == 2
    done = pylogseg(*words, URL, "--to", "arrow", "--overwrite")
    assert (done.code, done.text.startswith(f"{URL}: ")) == (0, True)
    left = [name for name in store_of(URL).list() if not name.startswith(NOTES)]
    assert left
    assert all(name.endswith(".arrow") for name in left)
    # One file.
    one = f"{URL}/one.parquet"
    assert pylogseg(*words, one).code == 0
    assert pylogseg(*words, one).code == 2
    assert pylogseg(*words, one, "--overwrite").code == 0
    with memory.open("/lake/one.parquet") as file:
        assert pa.parquet.read_table(file).num_rows == len(list(package.read(examples, ["codec-none", "txn-a"])))


def test_the_command_is_killed_at_each_request(
    examples: Path, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("export", examples, "codec-none", "txn-a", "-O", URL, "--overwrite", "--jobs", 1)
    assert pylogseg(*words, "--columns", "offset").code == 0
    old = {name: memory.cat(name) for name in memory.find("/lake")}
    assert pylogseg(*words).code == 0
    new = {name: memory.cat(name) for name in memory.find("/lake")}
    assert new != old

    def files() -> dict[str, bytes]:
        return {name: memory.cat(name) for name in memory.find("/lake") if "/lock-" not in name}

    def again() -> None:
        if (read_state(URL) or {})["state"] == "writing":
            assert set(files()) == set(new)
        else:
            assert files() in (old, new)
        assert pylogseg(*words).code == 0
        assert files() == new
        for name, data in old.items():
            memory.pipe(name, data)

    assert with_deaths(lambda: pylogseg(*words), again, monkeypatch) > 5


def test_a_table_of_the_other_export_is_left_alone(examples: Path, tmp_path: Path) -> None:
    make(tmp_path / "t-0", 3)
    export(tmp_path)
    done = pylogseg("export", examples, "txn-a", "-O", URL)
    assert (done.code, "Spark's export wrote this table" in done.err) == (2, True)
    assert pylogseg("export", examples, "txn-a", "-O", "memory://other").code == 0
    with pytest.raises(RequestError, match="the table has columns"):
        export(tmp_path, "memory://other")


# ---- segments in a store ----


@pytest.mark.parametrize("place", ["memory", "etag"])
def test_a_segment_in_a_store_is_marked_by_its_content(
    place: str, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the time that the store gave it, nor by its size."""
    if place == "etag":
        plain = type(memory).info

        def info(self: Any, path: str) -> dict[str, Any]:
            said = plain(self, path)
            return {**said, "ETag": str(crc32(self.cat_file(path)))} if said["type"] == "file" else said

        monkeypatch.setattr(type(memory), "info", info)
    make(tmp_path / "t-0", 5)
    memory.put(f"{tmp_path}/", "/logs", recursive=True)
    (segment,) = package.open_dir("memory://logs").segments
    mark = mark_of(segment)
    data = memory.cat(segment.path)
    memory.pipe(segment.path, data)
    (again,) = package.open_dir("memory://logs").segments
    again = replace(again, modified_ms=segment.modified_ms + 1)
    assert is_marked(again, mark)
    memory.pipe(segment.path, data[:-1] + bytes([data[-1] ^ 1]))
    (other,) = package.open_dir("memory://logs").segments
    assert not is_marked(other, mark)
    assert not is_marked(segment, [segment.size, segment.modified_ms, ""])  # as earlier versions noted it
    memory.rm(segment.path)
    assert not is_marked(segment, mark)
