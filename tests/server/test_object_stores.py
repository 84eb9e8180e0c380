"""Tests of env/listed_storage.py, env/remote.py, env/window_cache.py and server/sources.py. Logs in an object store,
here fsspec's memory: read as those on a disk, by windows, through one cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from helpers.certificates import make
from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, row_of

import pylogseg
from pylogseg import Security
from pylogseg.env.filesystem import Entry
from pylogseg.env.listed_storage import ListedStorage
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.remote import RemoteFiles, without_login
from pylogseg.env.window_cache import Remote, WindowCache
from pylogseg.errors import RequestError, StorageError

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


@pytest.fixture
def store() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.put(f"{DATA}/", "/serve/data", recursive=True)
    yield system
    system.rm("/serve", recursive=True)


def test_all_topics_as_from_a_disk(store: Any) -> None:
    with pylogseg.serve("memory://serve/data", group_offsets=True) as far, pylogseg.serve(DATA) as near:
        assert far.topics == near.topics
        assert (far.catalog.node_id, far.catalog.cluster_id) == (near.catalog.node_id, near.catalog.cluster_id)
        assert far.catalog.log_dirs == ["memory:///serve/data"]
        for topic in far.topics:
            assert far.catalog.topics[topic].id == near.catalog.topics[topic].id
            assert assigned(far, topic) == assigned(near, topic)
            for isolation in ("read_uncommitted", "read_committed"):
                found = [committed(server, topic, isolation) for server in (far, near)]
                assert found[0] == found[1]
        with RawClient(far.bootstrap_servers) as client:
            assert client.ask(16, 4, {})["groups"]
            (row,) = client.ask(35, 4, {"topics": None})["results"]
            assert (row["logDir"], row["errorCode"]) == ("memory:///serve/data", 0)


def committed(server: pylogseg.Server, topic: str, isolation: str) -> list[Any]:
    """Log starts, high watermarks, last stable offsets and aborted transactions of a topic."""
    with RawClient(server.bootstrap_servers) as client:
        numbers = sorted(server.catalog.topics[topic].partitions)
        starts = [server.catalog.topics[topic].partitions[each].log().log_start_offset for each in numbers]
        asked = [{"partition": number, "fetchOffset": start, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}
                 for number, start in zip(numbers, starts, strict=True)]  # fmt: skip
        fetch = {"maxBytes": 8 << 20, "replicaId": -1, "sessionEpoch": -1,
                 "isolationLevel": int(isolation == "read_committed"),
                 "topics": [{"topic": topic, "partitions": asked}]}  # fmt: skip
        rows = client.ask(1, 12, fetch)["responses"][0]["partitions"]
        return [{**row, "records": bytes(row["records"])} for row in rows]


def test_folders_and_urls_side_by_side(store: Any) -> None:
    with pylogseg.serve(DATA / "codec-zstd-0", "memory://serve/data/codec-gzip-0") as server:
        assert server.topics == ["codec-gzip", "codec-zstd"]
        for topic in server.topics:
            assert assigned(server, topic) == [row_of(each) for each in pylogseg.read(DATA / f"{topic}-0")]


def test_by_tls(store: Any, tmp_path: Path) -> None:
    files = make(tmp_path)
    security = Security(files.server, files.server_key)
    with pylogseg.serve("memory://serve/data", security=security) as server:
        rows = assigned(server, "codec-zstd", security_protocol="SSL", ssl_cafile=files.ca)
        assert rows == [row_of(each) for each in pylogseg.read(DATA / "codec-zstd-0")]


def test_damage_in_the_store_is_left_out(store: Any) -> None:
    path = max(store.glob("/serve/data/codec-zstd-0/*.log"), key=store.size)
    data = bytearray(store.cat_file(path))
    data[len(data) // 2] ^= 0xFF
    store.pipe_file(path, bytes(data))
    wanted = [row_of(each) for each in pylogseg.read("memory://serve/data/codec-zstd-0", on_corrupt="skip")]
    with pylogseg.serve("memory://serve/data", on_corrupt="skip") as server:
        assert assigned(server, "codec-zstd") == wanted
        assert server.left_out[0] == 1


def test_an_object_that_vanishes(store: Any) -> None:
    """An error for its partition; the others go on."""
    with pylogseg.serve("memory://serve/data") as server, RawClient(server.bootstrap_servers) as client:
        for path in store.glob("/serve/data/codec-gzip-0/*"):
            store.rm(path)
        for topic, error in (("codec-gzip", 56), ("codec-zstd", 0)):
            asked = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}]
            fetch = {"maxBytes": 1 << 20, "replicaId": -1, "sessionEpoch": -1,
                     "topics": [{"topic": topic, "partitions": asked}]}  # fmt: skip
            (row,) = client.ask(1, 12, fetch)["responses"][0]["partitions"]
            assert row["errorCode"] == error


def test_one_that_vanishes_while_it_is_sent(store: Any, tmp_path: Path) -> None:
    """The size of the answer was sent: the connection is closed, and the server lives."""
    with pylogseg.open_log(tmp_path / "large-0") as log:
        for _ in range(40):
            log.append([(None, None, bytes(900_000))])
    store.put(f"{tmp_path}/", "/serve/large", recursive=True)
    with pylogseg.serve("memory://serve/large") as server, RawClient(server.bootstrap_servers) as client:
        server.catalog.topics["large"].partitions[0].log()
        asked = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 64 << 20, "currentLeaderEpoch": -1}]
        client.send(1, 12, {"maxBytes": 64 << 20, "replicaId": -1, "sessionEpoch": -1,
                            "topics": [{"topic": "large", "partitions": asked}]})  # fmt: skip
        assert client.socket.recv(1000)
        store.rm("/serve/large", recursive=True)
        assert client.is_closed()
        with RawClient(server.bootstrap_servers) as another:
            assert another.ask(3, 9, {"topics": None})["topics"]


def test_a_listing_that_fails() -> None:
    with pytest.raises((StorageError, RequestError), match="nothing-here"):
        pylogseg.serve("memory://nothing-here")
    with pytest.raises(RequestError, match="nosuch://here") as caught:
        pylogseg.serve("nosuch://alice:secret@here/x")
    assert "secret" not in str(caught.value)
    assert without_login("ftp://a:b@host/x@y") == "ftp://host/x@y"
    assert without_login("s3://bucket/x@y") == "s3://bucket/x@y"


# ---- the cache ----


class Counted:
    """A file of known bytes that counts what is read of it."""

    def __init__(self, data: bytes, wait: threading.Event | None = None) -> None:
        self.path, self.data, self.reads, self._wait = "counted", data, [], wait

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, size: int) -> bytes:
        self.reads.append((position, size))
        if self._wait is not None:
            self._wait.wait(PATIENCE_S)
        return self.data[position : position + size]


def test_windows_are_bounded_and_read_ahead() -> None:
    data = bytes(range(256)) * 40
    file = Counted(data)
    remote = Remote("counted", len(data), lambda: file)
    cache = WindowCache(limit_bytes=3000, window_bytes=1000)
    assert bytes(cache.read(remote, 10, 20)) == data[10:30]
    assert file.reads == [(0, 1000)]  # a look at the beginning of a window brings no other
    assert bytes(cache.read(remote, 600, 300)) == data[600:900]
    wait_for(lambda: file.reads == [(0, 1000), (1000, 1000)])  # reading on does
    assert bytes(cache.read(remote, 900, 3000)) == data[900:3900]
    assert cache.held_bytes <= 4000
    assert bytes(cache.read(remote, 10_200, 1000)) == data[10_200:]
    assert bytes(cache.read(remote, 20_000, 10)) == b""
    wait_for(lambda: cache.held_bytes <= 3000)
    cache.close()
    assert cache.held_bytes == 0


def test_a_window_that_many_want_is_fetched_once() -> None:
    go = threading.Event()
    file = Counted(bytes(500), go)
    remote = Remote("counted", 500, lambda: file)
    cache = WindowCache(window_bytes=1000)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(bytes(cache.read(remote, 0, 500)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: file.reads)
    go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [bytes(500)] * 8
    assert len(file.reads) == 1


def test_a_failure_is_not_kept() -> None:
    file = Counted(bytes(400))
    remote = Remote("counted", 500, lambda: file)
    cache = WindowCache(window_bytes=1000)
    with pytest.raises(StorageError, match="it had 500 bytes when it was listed, and is shorter now"):
        cache.read(remote, 0, 10)
    file.data = bytes(500)
    assert len(cache.read(remote, 0, 10)) == 10


def test_a_listed_folder(store: Any, tmp_path: Path) -> None:
    """What lies below an overlay: no name but those listed, and what is written stays above."""
    files = RemoteFiles(store, "memory")
    entries = [Entry("a", False, 3, 5), Entry("b", True, 0, -1)]
    store.pipe_file("/serve/x/a", b"abc")
    store.pipe_file("/serve/x/unseen", b"")
    overlay = OverlayStorage(ListedStorage(files, "/serve/x", entries, WindowCache()))
    assert overlay.list_folder("/serve/x") == entries
    assert [overlay.exists(f"/serve/{name}") for name in ("x", "x/a", "x/b", "x/unseen", "y")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert overlay.read_all("/serve/x/a") == b"abc"
    assert overlay.stat("/serve/x/a").size == 3
    overlay.write_plain("/serve/x/a", b"other")
    assert overlay.read_all("/serve/x/a") == b"other"
    assert store.cat_file("/serve/x/a") == b"abc"


def test_a_group_reads_from_a_store(store: Any) -> None:
    with pylogseg.serve("memory://serve/data") as server:
        options = {"bootstrap.servers": server.bootstrap_servers, "group.id": "far", "auto.offset.reset": "earliest"}
        client = confluent_kafka.Consumer(options)
        client.subscribe(["codec-lz4"])
        rows = client.consume(505, PATIENCE_S)
        client.close()
    assert [row.offset() for row in rows] == list(range(505))
