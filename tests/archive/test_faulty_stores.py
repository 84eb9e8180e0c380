"""Tests of disk/stores.py. Stores that fail, hang, or answer after the fact, met by fsspec's own client of S3 with its
patience and its retries.

With kills, and in a store of others (moto): ``python tests/soak archive-kills``.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from helpers import depth
from helpers.brokers import replicas
from helpers.object_servers import BUCKET, FAULTS, Fault, ObjectServer, Request
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points, open_archive, prune, write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.stores import store_of
from pylogseg.errors import StorageError
from pylogseg.inspect.verify.findings import Level
from pylogseg.tables.export.notes import lock_place

s3fs = pytest.importorskip("s3fs")
URL = f"s3://{BUCKET}/archive"
#: What is said of each of these disks, where all is well.
NO_METADATA = "pylogseg: note: no disk has the metadata of the cluster: missing partitions are unknown\n"
#: What a run stores, in this order.
KINDS = ("_pylogseg/lock-", "archive.json", ".log", ".indexes", ".rsm-manifest", "points/")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replicas(tmp_path_factory.mktemp("disks"), 5, segments=3)[0][0]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    found = ObjectServer()
    monkeypatch.setitem(fsspec.config.conf, "s3", found.options)  # for the shell
    yield found
    found.close()
    s3fs.S3FileSystem.clear_instance_cache()


def is_of(request: Request, method: str, kind: str) -> bool:
    return request.method == method and kind in request.name


def checked(store: ObjectServer, disk: Path, points: int) -> None:
    """So many points are there, each has what the disk has, and nothing is wrong."""
    names = list_points(URL, store.options)
    assert len(names) == points
    rows = list(pylogseg.read(disk))
    for name in names:
        assert list(pylogseg.read(open_archive(URL, point=name.id, storage_options=store.options))) == rows
    summary = ArchiveSummary(Level.INDEXES)
    found = list(verify_archive(URL, summary, read="all", storage_options=store.options))
    assert [each for each in found if each.is_damage] == []
    assert {name.rpartition("-")[2] for name in store.objects if "/lock" in name} == set()


@pytest.mark.parametrize(("kind", "fault"), depth.diagonals(KINDS, FAULTS, 9))
def test_once(kind: str, fault: Fault, disk: Path, store: ObjectServer) -> None:
    """One request in vain: the client asks again, and the run does not see it; nor does it take itself for another."""
    met: list[str] = []

    def meets(request: Request) -> Fault | None:
        if is_of(request, "PUT", kind) and not met:
            met.append(request.name)
            return fault
        return None

    store.meets = meets
    done = write(disk, URL, storage_options=store.options)
    store.do_after()
    assert (len(met), done.faults, done.segments) == (1, [], 3)
    if "lock" in kind and fault == "after":  # it came again when it had been removed
        assert write(disk, URL, storage_options=store.options).segments == 0
    checked(store, disk, len(list_points(URL, store.options)))
    noted = {name: count for name, count in store.puts.items() if name.endswith("_pylogseg/points.json")}
    assert set(noted.values()) == {2}  # before the point, and behind it
    assert set(store.puts.values()) <= {1, 2}
    assert [name for name, count in store.puts.items() if count > 1 and name not in met and name not in noted] == []


@pytest.mark.parametrize(("kind", "fault"), depth.diagonals(KINDS, FAULTS[1:] + FAULTS[:1], 9))
def test_always(kind: str, fault: Fault, disk: Path, store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put is never answered well: the error names it and says what to do, and the next run goes on."""
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    store.meets = lambda request: fault if is_of(request, "PUT", kind) else None
    is_there = kind in ("archive.json", "points/") and fault in ("lost", "late")
    ran = shell("archive", disk, URL)
    store.do_after()
    if is_there:  # it is created, and looked up
        assert ran.code == 0, ran.err
    else:
        expect(ran, 2, f"{URL}/", kind)
        assert ran.err.endswith(", and the next run uses them\n") or "lock-" in kind, ran.err
        assert "Traceback" not in ran.err
    points = len(list_points(URL, store.options))
    assert points == (1 if is_there or (kind, fault) == ("points/", "after") else 0)
    whole = dict(store.objects)
    store.meets, before = (lambda request: None), store.puts.copy()
    assert write(disk, URL, storage_options=store.options).faults == []
    checked(store, disk, points + 1)
    again = [name for name in whole if store.puts[name] > before[name] and not name.endswith("_pylogseg/points.json")]
    assert again == [], "what was whole is uploaded again"


@pytest.mark.parametrize(
    ("kind", "fault"),
    depth.diagonals(
        [("GET", ""), ("GET", "points/"), ("HEAD", ".log"), ("DELETE", "lock-")], ["busy", "broken", "hangs"]
    ),
)
def test_what_is_read(
    kind: tuple[str, str], fault: Fault, disk: Path, store: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list or an object that does not come is an error that names it; a lock that stays is said, and no error."""
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    if kind[0] == "GET":
        write(disk, URL, storage_options=store.options)
    store.meets = lambda request: fault if is_of(request, *kind) and bool(request.name) == bool(kind[1]) else None
    ran = expect(shell("archive", disk, URL), 0 if kind[0] == "DELETE" else 2)
    assert f"{URL}/" in ran.err if ran.code else ran.err == NO_METADATA
    assert "Traceback" not in ran.err
    store.meets = lambda request: None
    assert write(disk, URL, storage_options=store.options).faults == []
    checked(store, disk, 1 + (kind[0] != "HEAD"))


def test_a_lock_that_its_own_process_left(disk: Path, store: ObjectServer, caplog: pytest.LogCaptureFixture) -> None:
    """With `--every`, a store that is away for a while does not lock its own process out; two threads are two runs."""
    is_away = itertools.count()
    store.meets = lambda request: "broken" if is_of(request, "DELETE", "lock-") and next(is_away) < 99 else None
    with caplog.at_level(logging.WARNING):
        write(disk, URL, storage_options=store.options)
    assert [record.args[0].operation for record in caplog.records if record.args] == ["delete"]
    store.meets = lambda request: None
    assert len([name for name in store.objects if "/lock-" in name]) == 1
    write(disk, URL, storage_options=store.options)
    checked(store, disk, 2)
    seen: list[str] = []

    def other() -> None:
        with pytest.raises(StorageError, match="another run writes") as caught:
            prune(URL, keep_last=1, storage_options=store.options)
        seen.append(str(caught.value))

    with lock_place(store_of(URL, store.options)):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_a_store_that_is_not_there(disk: Path, store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever class the client's errors are, they are one line, and a run of `--every` would go on."""
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    store.close()
    for words in (("archive", disk, URL), ("archive", "points", URL), ("verify", URL), ("ls", f"aiven+{URL}")):
        ran = shell(*words)
        assert (ran.code, "Traceback" in ran.err) == (2, False)
        assert URL in ran.err
        assert "Could not connect to the endpoint URL" in ran.err
