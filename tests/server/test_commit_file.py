"""Commits that last: kept in a file from one run to the next, whatever happened to its end."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.shell import run

import pylogseg
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.messages.framing import decode_coordinator
from pylogseg.server.commit_file import CommitFile
from pylogseg.server.coordinator import Committed

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
COMMIT, FETCH_OFFSETS = 8, 9


def commit(client: RawClient, group: str, topic: str, offset: int, metadata: str = "") -> int:
    """Commit an offset of partition 0; the error."""
    row = {"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": metadata}
    asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": [{"name": topic, "partitions": [row]}]}
    found = client.ask(COMMIT, 8, asked)["topics"][0]["partitions"][0]["errorCode"]
    assert isinstance(found, int)
    return found


def committed(server: pylogseg.Server, group: str) -> dict[str, tuple[int, str]]:
    with RawClient(server.bootstrap_servers) as client:
        (found,) = client.ask(FETCH_OFFSETS, 8, {"groups": [{"groupId": group, "topics": None}]})["groups"]
    return {
        topic["name"]: (each["committedOffset"], each["metadata"])
        for topic in found["topics"]
        for each in topic["partitions"]
    }


def test_a_group_goes_on_in_the_next_run(tmp_path: Path) -> None:
    for wanted in (300, 205):
        with pylogseg.serve(DATA, commits=tmp_path / "commits") as server:
            client = confluent_kafka.Consumer(
                {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
                 "enable.auto.commit": False, "log_level": 2}
            )  # fmt: skip
            client.subscribe(["codec-zstd"])
            rows = client.consume(wanted, PATIENCE_S)
            assert len(rows) == wanted
            assert rows[0].offset() == 505 - wanted - (0 if wanted == 205 else 205)
            client.commit(rows[-1], asynchronous=False)
            client.close()
    with pylogseg.serve(DATA, commits=tmp_path / "commits") as server:
        assert committed(server, "g") == {"codec-zstd": (505, "")}


def test_it_lies_over_the_copied_offsets(tmp_path: Path) -> None:
    with pylogseg.serve(DATA, group_offsets=True) as server, RawClient(server.bootstrap_servers) as client:
        group = client.ask(16, 4, {})["groups"][0]["groupId"]
        copied = committed(server, group)
    topic = "codec-none"
    assert topic not in copied
    path = tmp_path / "commits"
    with (
        pylogseg.serve(DATA, group_offsets=True, commits=path) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        assert committed(server, group) == copied
        assert commit(client, group, topic, 3, "mine") == 0
    with pylogseg.serve(DATA, group_offsets=True, commits=path) as server:
        assert committed(server, group) == {**copied, topic: (3, "mine")}
    with pylogseg.serve(DATA, commits=path) as server:
        assert committed(server, group) == {topic: (3, "mine")}


def test_the_file_is_one_of_kafka(tmp_path: Path) -> None:
    """Records of __consumer_offsets: Kafka's decoders, and ours, read them."""
    path = tmp_path / "commits"
    kept = CommitFile(path)
    kept.add("g", {("t", 3): Committed(7, 2, "é"), ("t", 4): Committed(8)})
    kept.close()
    rows = []
    for record in pylogseg.read(path):
        key, value = decode_coordinator("__consumer_offsets", record.key or b"", record.value)
        assert (key.number, value.version) == (1, 3)
        fields = {**(key.fields or {}), **(value.fields or {})}
        assert fields.pop("commitTimestamp") == record.timestamp
        rows.append((record.offset, *list(fields.values())[:6]))
    assert rows == [(0, "g", "t", 3, 7, 2, "é"), (1, "g", "t", 4, 8, -1, "")]


def test_a_torn_tail_is_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cut anywhere in the last commit, those before it stay, and the next goes where it was."""
    path = tmp_path / "commits"
    kept = CommitFile(path)
    kept.add("g", {("t", 0): Committed(1)})
    first = path.stat().st_size
    kept.add("g", {("t", 0): Committed(2)})
    kept.close()
    whole = path.read_bytes()
    for size in range(first + 1, len(whole)):
        for tail in (b"", bytes(50)) if size + 1 < len(whole) else (b"",):  # its last byte is 0
            path.write_bytes(whole[:size] + tail)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "pylogseg.server"):
                kept = CommitFile(path)
            assert kept.offsets == {"g": {("t", 0): Committed(1)}}, size
            assert "its last commit was not written whole" in caplog.text
            kept.add("g", {("t", 0): Committed(3)})
            kept.close()
            kept = CommitFile(path)
            assert kept.offsets == {"g": {("t", 0): Committed(3)}}
            kept.close()


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    kept = CommitFile(path)
    for offset in range(5):
        kept.add("g", {("t", 0): Committed(offset)})
    kept.close()
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="move the file away"):
        CommitFile(path)
    assert path.read_bytes() == data
    path.write_text("short")
    with pytest.raises(CorruptionError, match="choose another name"):
        CommitFile(path)
    assert path.read_text() == "short"
    path.write_text("these are no commits, but a text of a few lines\n" * 10)
    with pytest.raises(CorruptionError):
        CommitFile(path)
    shutil.copy(next((DATA / "codec-none-1").glob("*.log")), path)
    with pytest.raises(CorruptionError, match="it is no file of commits"):
        CommitFile(path)
    done = run(f"serve {DATA} --commits {path}")
    assert done.code == 1
    assert "it is no file of commits" in done.err


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.commit_file._SLACK_BYTES", 2000)
    path = tmp_path / "commits"
    kept = CommitFile(path)
    sizes = []
    for offset in range(200):
        kept.add("g", {("t", offset % 3): Committed(offset)})
        sizes.append(path.stat().st_size)
    kept.close()
    assert max(sizes) < 3000
    assert not Path(f"{path}.tmp").exists()
    kept = CommitFile(path)
    assert kept.offsets == {"g": {("t", each): Committed(197 + (each - 197) % 3) for each in range(3)}}
    kept.close()


def test_one_server_has_it(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    with pylogseg.serve(DATA, commits=path):
        if sys.platform != "win32":
            with pytest.raises(StorageError, match="another server keeps its commits there"):
                pylogseg.serve(DATA, commits=path)
    with pylogseg.serve(DATA, commits=path):
        pass
    with pytest.raises(RequestError, match="is no address"):
        pylogseg.serve(DATA, commits=path, listen="nowhere")
    CommitFile(path).close()


def test_not_where_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(DATA, folder)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder / "commits", folder / "codec-none-1" / "commits", tmp_path / "link" / "commits"):
        with pytest.raises(RequestError, match="may not lie in"):
            pylogseg.serve(folder, commits=path)
        assert not path.exists()
    with pytest.raises(RequestError, match="may not lie in"):
        pylogseg.serve(folder / "codec-none-1", commits=folder / "codec-none-1" / "commits")
    with pytest.raises(StorageError, match="nothing"):
        pylogseg.serve(folder, commits=tmp_path / "nothing" / "commits")


def test_a_disk_that_fails(tmp_path: Path) -> None:
    """The client is told, and the commit is written with the next one."""
    path = tmp_path / "commits"
    groups: Any
    with pylogseg.serve(DATA, commits=path) as server, RawClient(server.bootstrap_servers) as client:
        groups = server._service.groups
        good = groups._store._descriptor
        groups._store._descriptor = os.open(path, os.O_RDONLY)  # may not be written
        assert commit(client, "g", "codec-none", 4) == 15
        assert path.read_bytes() == b""
        os.close(groups._store._descriptor)
        groups._store._descriptor = good
        assert commit(client, "g", "codec-gzip", 5) == 0
    with pylogseg.serve(DATA, commits=path) as server:
        assert committed(server, "g") == {"codec-none": (4, ""), "codec-gzip": (5, "")}
