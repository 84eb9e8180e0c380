"""Tests of server/committed.py, server/group_coordinator.py, server/group_offsets.py and server/writing/commits.py.
Commits that last: kept in a directory from one run to the next, whatever happened to the end of its log.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import some_of
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.shell import expect, run
from helpers.trees import tree

import pylogseg
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.messages.framing import decode_coordinator
from pylogseg.format.uuids import format_uuid
from pylogseg.server.catalog import Catalog
from pylogseg.server.committed import Committed, CommittedByTopic
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.writing.commits import lasting_groups

confluent_kafka = pytest.importorskip("confluent_kafka")

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


def kept(path: Path, copied: CommittedByTopic | None = None) -> GroupCoordinator:
    """Groups over a directory of commits, of a server that shows the examples."""
    return lasting_groups(path, Catalog.open([DATA]), copied or {})


def commits_of(path: Path) -> CommittedByTopic:
    groups = kept(path)
    found = {group: groups.fetch_offsets(group) for group in sorted(each.name for each in groups.groups())}
    groups.close()
    return found


def log_of(path: Path) -> Path:
    (found,) = (path / "__consumer_offsets-0").glob("*.log")
    return found


def test_the_records_are_those_of_kafka(tmp_path: Path) -> None:
    """As in __consumer_offsets, with the ids of the topics that are served: Kafka's decoders, and ours, read them."""
    path = tmp_path / "commits"
    groups = kept(path)
    assert groups.commit("g", {("codec-none", 3): Committed(7, 2, "é"), ("t", 4): Committed(8)}) == {}
    groups.close()
    rows = []
    for record in pylogseg.read(log_of(path)):
        key, value = decode_coordinator("__consumer_offsets", record.key or b"", record.value)
        assert (key.number, value.version) == (1, 4)
        fields = {**(key.fields or {}), **(value.fields or {})}
        assert fields.pop("commitTimestamp") == record.timestamp
        rows.append((record.offset, *list(fields.values())[:6], fields.get("topicId")))
    topic_id = format_uuid(Catalog.open([DATA]).topics["codec-none"].id)
    assert [row[:7] for row in rows] == [(0, "g", "codec-none", 3, 7, 2, "é"), (1, "g", "t", 4, 8, -1, "")]
    assert rows[0][7] == topic_id
    found = pylogseg.cluster_state(path).rows("group_offsets")
    assert [(row["group"], row["topic"], row["partition"], row["offset"]) for row in found] == [
        ("g", "codec-none", 3, 7), ("g", "t", 4, 8)
    ]  # fmt: skip


def test_a_torn_tail_is_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cut anywhere in the last commit, those before it stay, and the next goes where it was."""
    path = tmp_path / "commits"
    groups = kept(path)
    groups.commit("g", {("t", 0): Committed(1)})
    first = log_of(path).stat().st_size
    groups.commit("g", {("t", 0): Committed(2)})
    groups.close()
    whole = log_of(path).read_bytes()
    for size in some_of(range(first + 1, len(whole)), 40):
        for tail in (b"", bytes(50)) if size % 7 == 0 and size + 1 < len(whole) else (b"",):  # its last byte is 0
            log_of(path).write_bytes(whole[:size] + tail)
            (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "pylogseg.server"):
                assert commits_of(path) == {"g": {("t", 0): Committed(1)}}, size
            assert f"bytes {first} to " in caplog.text
    groups = kept(path)
    groups.commit("g", {("t", 0): Committed(3)})
    groups.close()
    assert [record.offset for record in pylogseg.read(log_of(path))] == [0, 1]
    assert commits_of(path) == {"g": {("t", 0): Committed(3)}}


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    groups = kept(path)
    for offset in range(5):
        groups.commit("g", {("t", 0): Committed(offset)})
    groups.close()
    data = bytearray(log_of(path).read_bytes())
    data[80] ^= 1
    log_of(path).write_bytes(data)
    with pytest.raises(CorruptionError, match=r"a batch is damaged|no batch is readable"):
        kept(path)
    assert log_of(path).read_bytes() == data
    expect(run(f"serve {DATA} --commits {path}"), 1, str(log_of(path).parent))


def test_what_is_no_directory_of_commits(tmp_path: Path) -> None:
    """Nothing of it is changed: a file, as an earlier version kept them in, and logs of others."""
    path = tmp_path / "commits"
    path.write_text("short")
    with pytest.raises(RequestError, match="is a file: commits are kept in a directory"):
        kept(path)
    assert path.read_text() == "short"
    with pylogseg.Broker(tmp_path / "own", topics=["orders"]):
        pass
    before = tree(tmp_path / "own")
    with pytest.raises(RequestError, match="has the topic orders"):
        kept(tmp_path / "own")
    assert tree(tmp_path / "own") == before


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.writing.commits._SMALL", {"segment.bytes": str(1 << 20)})
    path = tmp_path / "commits"
    for _ in range(2):
        groups: Any = kept(path)
        for offset in range(600):
            assert groups.commit("g", {("t", offset % 3): Committed(offset, metadata="m" * 4000)}) == {}
        cleaning = groups._journal._topics.store.manager.cleaning
        while cleaning.clean_dirtiest(cleaning.new_cleaner()) is not None:
            pass
        groups.close()
        left = [each.stat().st_size for each in (path / "__consumer_offsets-0").glob("*.log")]
        assert sum(left) < 1.1 * (1 << 20), "of 2.4 MB"
    wanted = {("t", each): Committed(597 + each, metadata="m" * 4000) for each in range(3)}
    assert commits_of(path) == {"g": wanted}


def test_one_server_has_it(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    with pylogseg.serve(DATA, commits=path):
        if sys.platform != "win32":
            with pytest.raises(StorageError, match=r"\.lock"):
                pylogseg.serve(DATA, commits=path)
    with pylogseg.serve(DATA, commits=path):
        pass
    with pytest.raises(RequestError, match="is not an address"):
        pylogseg.serve(DATA, commits=path, listen="nowhere")
    kept(path).close()


def test_not_where_nothing_is_written(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA, tmp_path / "data")
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
    """The client is told, and the commit has not happened, as in a broker; it is there when it is asked again."""
    path = tmp_path / "commits"
    groups: Any
    with pylogseg.serve(DATA, commits=path) as server, RawClient(server.bootstrap_servers) as client:
        groups = server._service.groups
        store, data = groups._journal._topics.store, log_of
        assert commit(client, "g", "codec-none", 3) == 0
        before = data(path).read_bytes()
        log = store.manager["__consumer_offsets", 0].engine
        file = next(iter(log.segments)).log
        good, file._descriptor = file._descriptor, os.open(data(path), os.O_RDONLY)  # may not be written
        assert commit(client, "g", "codec-none", 4) == 15
        assert committed(server, "g") == {"codec-none": (3, "")}
        assert data(path).read_bytes() == before
        os.close(good)  # the other one is closed by the engine, which takes the log offline
    with pylogseg.serve(DATA, commits=path) as server, RawClient(server.bootstrap_servers) as client:
        assert committed(server, "g") == {"codec-none": (3, "")}
        assert commit(client, "g", "codec-none", 4) == 0
    with pylogseg.serve(DATA, commits=path) as server:
        assert committed(server, "g") == {"codec-none": (4, "")}
