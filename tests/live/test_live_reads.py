"""Tests of live/cluster.py and live/fetching.py. Tests of live/files.py, live/fetching.py and live/cluster.py: a
running cluster gives the rows of its disks.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.live import cluster as live_cluster
from pylogseg.live import fetching

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
#: Topics with all partitions on this disk; the others have partitions without a leader here.
TOPICS = ["cmp-short", "cmp-txn", "codec-gzip", "del-records", "legacy", "mixed", "ret-bytes", "timestamps", "txn-a"]
LEVELS = ["read_uncommitted", "read_committed"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with pylogseg.serve(DATA) as server:
        yield f"kafka://{server.bootstrap_servers}"


@pytest.fixture
def broker() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without a leader is given up soon."""
    monkeypatch.setattr(live_cluster, "ELECTION_S", 0.2)


def url_of(broker: pylogseg.Broker, path: str = "") -> str:
    return f"kafka://{broker.bootstrap_servers}/{path}"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("topic", TOPICS)
def test_rows_are_those_of_the_disk(cluster: str, topic: str, level: str) -> None:
    on_disk = pylogseg.read(DATA, topic, isolation_level=level).to_arrow()
    assert on_disk.num_rows
    assert pylogseg.read(f"{cluster}/{topic}", isolation_level=level).to_arrow() == on_disk
    assert pylogseg.read(cluster, topic, isolation_level=level, jobs=2).to_arrow() == on_disk
    table = pylogseg.dataset(f"{cluster}/{topic}", isolation_level=level).to_table(columns=on_disk.column_names)
    assert table == on_disk
    assert pylogseg.read(f"{cluster}/{topic}", isolation_level=level).count() == on_disk.num_rows


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("topic", TOPICS)
def test_rows_in_pieces_of_one_batch(cluster: str, topic: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer has at least one batch, however few bytes are asked for."""
    monkeypatch.setattr(fetching, "PIECE_BYTES", 1)
    expected = pylogseg.read(DATA, topic, isolation_level=level).to_arrow()
    assert pylogseg.read(f"{cluster}/{topic}", isolation_level=level).to_arrow() == expected


@pytest.mark.parametrize("first", [0, 1, 7, 49, 106, 147])
@pytest.mark.parametrize("level", LEVELS)
def test_ranges_and_filters(cluster: str, first: int, level: str) -> None:
    for end in (first, first + 1, first + 30, 1000):
        asked = {"offset": (first, end), "isolation_level": level}
        expected = pylogseg.read(DATA, "txn-a", 0, **asked).to_arrow()
        assert pylogseg.read(cluster, "txn-a", 0, **asked).to_arrow() == expected
        keep = (pc.field("offset") >= first) & (pc.field("offset") < end)
        table = pylogseg.dataset(f"{cluster}/txn-a-0", isolation_level=level).to_table(filter=keep)
        assert table["offset"].to_pylist() == expected["offset"].to_pylist()


@pytest.mark.parametrize("topic", ["timestamps", "txn-a", "codec-gzip"])
def test_times(cluster: str, topic: str) -> None:
    times = pylogseg.read(DATA, topic).to_arrow()["timestamp"].cast("int64").to_pylist()
    middle = sorted(time for time in times if time is not None)[len(times) // 2] // 1000
    for since in (0, middle, middle + 1, 1 << 43):
        expected = pylogseg.read(DATA, topic, timestamp=(since, None)).to_arrow()
        assert pylogseg.read(f"{cluster}/{topic}", timestamp=(since, None)).to_arrow() == expected


def test_a_limit_reads_one_answer(broker: pylogseg.Broker) -> None:
    broker.create_topic("orders", 1)
    for _ in range(50):
        broker.produce("orders", bytes(1_000))
    broker.clear_requests()
    assert pylogseg.read(url_of(broker, "orders"), limit=3).to_arrow().num_rows == 3
    assert sum(request.api == "Fetch" for request in broker.requests) == 1


def test_files_of_a_cluster(cluster: str) -> None:
    disk = pylogseg.open_dir(cluster)
    unreadable = sorted(partition.name for partition in disk if partition.error is not None)
    assert unreadable == ["codec-lz4-0", "codec-none-0"], "they have no leader here"
    (log_dir,) = disk.log_dirs
    starts = {(part.topic, part.partition): part.log_start_offset for part in log_dir.partitions}
    assert starts["del-records", 0] == 123
    again = pickle.loads(pickle.dumps(disk["txn-a"]))
    assert pylogseg.read(again).to_arrow() == pylogseg.read(DATA, "txn-a").to_arrow()


@pytest.mark.parametrize("words", ["ls", "stats", "verify", "dump", "latest", "cat --tail 2", "grep -e c0"])
def test_commands(cluster: str, words: str) -> None:
    name, *options = words.split()
    expect(run(name, f"{cluster}/txn-a", *options), 0)


def test_commands_that_compare(cluster: str, tmp_path: Path) -> None:
    assert "txn-a-0: the same, 148 records, offsets 0 to 147" in run("diff", f"{cluster}/txn-a", DATA / "txn-a-0").text
    assert run("lake", f"{cluster}/txn-a", f"delta:{tmp_path}/table").code == 0
    assert run("audit", f"{cluster}/txn-a", f"delta:{tmp_path}/table").code == 0


def test_names(cluster: str) -> None:
    assert {part.name for part in pylogseg.open_dir(f"{cluster}/c*-txn")} == {"cmp-txn-0"}
    assert [part.name for part in pylogseg.open_dir(f"{cluster}/txn-a-1")] == ["txn-a-1"]
    with pytest.raises(RequestError, match="no such topic or partition"):
        pylogseg.open_dir(f"{cluster}/nope")
    with pytest.raises(RequestError, match="only files of this machine can be mapped"):
        pylogseg.open_dir(f"{cluster}/txn-a", memory_map=True)


def test_a_name_of_two_things(broker: pylogseg.Broker) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("orders-1", 1)
    with pytest.raises(RequestError, match="this is a topic, and a partition of orders"):
        pylogseg.open_dir(url_of(broker, "orders-1"))


# ---- what happens while a log is read ----


def filled(broker: pylogseg.Broker, count: int = 40) -> str:
    broker.create_topic("orders", 1)
    for number in range(count):
        broker.produce("orders", bytes(1000), key=b"%d" % number)
    return url_of(broker, "orders")


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 3000)


def test_records_that_come_later_are_not_read(broker: pylogseg.Broker) -> None:
    """A reading ends where the log ended when it was listed."""
    disk = pylogseg.open_dir(filled(broker, 5))
    broker.produce("orders", b"late")
    assert pylogseg.read(disk).count() == 5
    assert pylogseg.read(url_of(broker, "orders")).count() == 6


def test_connections_that_break(broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    url = filled(broker)
    expected = pylogseg.read(url).to_arrow()
    broker.disconnect("Fetch", times=3)
    broker.disconnect("ListOffsets", times=1)
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert pylogseg.read(url).to_arrow() == expected


def test_retention_that_overtakes(broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed offsets are a gap with their range: no error, and not silence."""
    small_pieces(monkeypatch)
    reading = pylogseg.read(filled(broker))
    records = iter(reading)
    assert next(records).offset == 0
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([TopicPartition("orders", 0, 30)]).values():
        done.result()
    rest = [record.offset for record in records]
    assert rest[-1] == 39
    (gap,) = [gap for gap in reading.gaps if gap.kind.value == "removed"]
    assert (gap.first_offset, gap.next_offset) == (rest[rest.index(30) - 1] + 1, 30)


def test_a_topic_that_was_made_again(broker: pylogseg.Broker) -> None:
    from confluent_kafka.admin import AdminClient

    disk = pylogseg.open_dir(filled(broker))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result()
    filled(broker, 3)
    with pytest.raises((StorageError, CorruptionError), match="deleted and made again"):
        pylogseg.read(disk).to_arrow()


def test_a_log_that_was_cut(broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that ends below what was listed: an election of a leader that was not in sync."""
    disk = pylogseg.open_dir(filled(broker, 5))
    files = disk.partitions[0].files
    ends = files.ends_of(disk.partitions[0].path)
    files._ends["orders", 0] = ends._replace(end=9)
    monkeypatch.setattr(live_cluster, "PATIENCE_S", 0.5)
    with pytest.raises((StorageError, CorruptionError), match="OFFSET_NOT_AVAILABLE"):
        pylogseg.read(disk).to_arrow()


def test_nobody_answers(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot connect"):
        pylogseg.open_dir("kafka://127.0.0.1:1/orders")
    expect(run("cat", "kafka://127.0.0.1:1/orders"), 2, "127.0.0.1:1")


def test_follow(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """`cat --follow` prints records that clients write later."""
    url = filled(broker, 2)
    words = [sys.executable, "-m", "pylogseg", "cat", url, "--follow", "--limit", "3"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        broker.produce("orders", b"late")
        lines.append(process.stdout.readline())
        assert process.wait(30) == 0
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]


def test_an_old_cluster_has_no_topic_ids(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ids there is no partition.metadata, rather than one with zeros."""
    disk = pylogseg.open_dir(f"{cluster}/txn-a")
    files = disk.partitions[0].files
    assert "partition.metadata" in [entry.name for entry in files.list_folder(disk.partitions[0].path)]
    files._topics = {name: topic._replace(topic_id=bytes(16)) for name, topic in files._topics.items()}
    assert [entry.name for entry in files.list_folder(disk.partitions[0].path)] == [f"{0:020d}.log"]
    with pytest.raises(StorageError, match="no such file"):
        files.read_all(f"{disk.partitions[0].path}/partition.metadata")


def test_offsets_without_a_batch_end_a_log(broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has the end and sends nothing before it has nothing; of remote offsets that proves nothing."""
    disk = pylogseg.open_dir(filled(broker, 5))
    view = disk.partitions[0].segments[0].open()
    monkeypatch.setattr(view, "_next", 5)
    monkeypatch.setattr(view, "_end", 5)
    assert not len(view.read(0, 100))
    monkeypatch.setattr(fetching, "_WAIT_MS", 1)
    monkeypatch.setattr(fetching, "_MOST_EMPTY_ANSWERS", 5)
    monkeypatch.setattr(fetching.FetchedView, "_is_remote", lambda view: True)
    view = disk.partitions[0].segments[0].open()
    monkeypatch.setattr(view, "_take", lambda answer: False)
    with pytest.raises(StorageError, match="no answer with batches from offset 0 on, which lies in remote storage"):
        view.read(0, 100)
    monkeypatch.setattr(fetching.FetchedView, "_is_remote", lambda view: False)
    assert not len(view.read(0, 100))
