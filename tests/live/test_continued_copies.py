"""Tests of offline/copying/ledger.py. Tests of copies of a cluster that go on: what came since then, what cannot go on,
and runs that are killed.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.servers import url_of
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg import offline
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs
from pylogseg.offline.copying.ledger import FILE
from pylogseg.values.internal.cluster import ClusterMetadata

pytestmark = pytest.mark.usefixtures("soon")
SMALL = {"internal.segment.bytes": 4000}


def produce(broker: pylogseg.Broker, topic: str, count: int, seed: int = 0) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        broker.produce(topic, *(chance.randbytes(chance.randrange(400)) for _ in range(chance.randrange(1, 4))))


def segments(folder: Path) -> dict[str, bytes]:
    """Return the segments of a partition that have batches, by their names."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log")) if path.stat().st_size}


def stored(folder: Path) -> bytes:
    """Return the bytes of the segments of a partition, one after the other."""
    return b"".join(segments(folder).values())


def elect(broker: pylogseg.Broker, folder: Path, end: int) -> int:
    """Let the log of a partition be cut by a leader that was not in sync; return where."""
    broker.stop()
    (row,) = offline.truncate(folder, end)
    end = row.log_end
    entries = [EpochEntry(0, 0), EpochEntry(5, end - 1)]  # an epoch without a record would be forgotten
    (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))
    broker.start()
    return end - 1


def test_each_run_goes_on_at_the_end(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """Segments are those of the leader after each run, whatever it had in the active one."""
    broker.create_topic("orders", 2, SMALL)
    copy = tmp_path / "copy"
    for seed in range(6):
        produce(broker, "orders", 25, seed)
        if seed == 3:
            broker.create_topic("late", 1)
            broker.produce("late", b"x")
        done = offline.copy(url_of(broker), copy)
        assert done.exit_code == 0
        for row in done:
            assert segments(copy / row.name) == segments(tmp_path / "broker" / row.name)
        again = offline.copy(url_of(broker), copy)
        assert {row.state for row in again} == {"unchanged"}
        assert again.exit_code == 0
    assert len(segments(copy / "orders-0")) > 5
    assert offline.diff(copy, tmp_path / "broker", topic=["orders", "late"]).exit_code == 0
    assert run("verify", copy).code == 0


def test_a_plan_names_what_is_new(broker: pylogseg.Broker, tmp_path: Path) -> None:
    produce(broker, "orders", 3)
    offline.copy(url_of(broker), tmp_path / "copy")
    before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    produce(broker, "orders", 3)
    (row,) = offline.copy(url_of(broker), tmp_path / "copy", dry_run=True)
    assert row.state == "copied"
    assert row.first_offset == row.log_end > 0
    assert {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()} == before


def test_other_folders_are_refused(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """What no earlier run made is not added to; nor is the copy of another cluster."""
    produce(broker, "orders", 3)
    with pytest.raises(RequestError, match="expected an empty folder"):
        offline.copy(url_of(broker), tmp_path / "broker" / ".." / "broker")
    offline.copy(url_of(broker), tmp_path / "copy")
    ledger = json.loads((tmp_path / "copy" / FILE).read_text())
    ledger["clusterId"] = "another"
    (tmp_path / "copy" / FILE).write_text(json.dumps(ledger))
    with pytest.raises(RequestError, match="this is a copy of cluster another"):
        offline.copy(url_of(broker), tmp_path / "copy")
    for text in ("{", "[]", '{"version": 1}', json.dumps({**ledger, "partitions": {"orders-0": {"end": "1"}}})):
        (tmp_path / "copy" / FILE).write_text(text)
        with pytest.raises(CorruptionError, match="it does not say how far the copy is"):
            offline.copy(url_of(broker), tmp_path / "copy")
    (tmp_path / "copy" / FILE).write_text(json.dumps({**ledger, "version": 2}))
    with pytest.raises(RequestError, match="version 2 is of another pylogseg"):
        offline.copy(url_of(broker), tmp_path / "copy")


def test_a_log_that_was_cut_stops(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """Both offsets are named, also when the log has grown beyond the copy; other partitions go on."""
    for topic in ("orders", "other"):
        produce(broker, topic, 10)
    copy = tmp_path / "copy"
    ends = {row.name: row.log_end for row in offline.copy(url_of(broker), copy)}
    before = segments(copy / "orders-0")
    end = elect(broker, tmp_path / "broker" / "orders-0", 4)
    produce(broker, "orders", 40, 2)
    produce(broker, "other", 1)
    for _ in range(2):
        done = run("copy", url_of(broker), copy)
        assert done.code == 1
        assert f"the log was cut at offset {end} by an unclean election" in done.err
        assert f"orders-0 ends at offset {ends['orders-0']} in the copy" in done.err
    assert segments(copy / "orders-0") == before
    assert segments(copy / "other-0") == segments(tmp_path / "broker" / "other-0")


def test_a_topic_that_was_made_again_stops(broker: pylogseg.Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    produce(broker, "orders", 10)
    produce(broker, "gone", 1)
    copy = tmp_path / "copy"
    offline.copy(url_of(broker), copy)
    before = segments(copy / "orders-0")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_topics(["orders", "gone"]).values():
        future.result()
    produce(broker, "orders", 20, 5)
    done = offline.copy(url_of(broker), copy)
    assert {row.name: row.state for row in done} == {"orders-0": "stopped", "gone-0": "gone"}
    assert done.exit_code == 1
    assert any(f"move {copy / 'orders-0'} away" in line for line in done.warnings())
    assert segments(copy / "orders-0") == before
    (copy / "orders-0").rename(tmp_path / "older")
    offline.copy(url_of(broker), copy)
    assert segments(copy / "orders-0") == segments(tmp_path / "broker" / "orders-0")


def test_retention_overtakes_the_copy(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """The offsets are named, once by the exit code and always in the ledger; the copy goes on behind them."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    produce(broker, "orders", 10)
    copy = tmp_path / "copy"
    (first,) = offline.copy(url_of(broker), copy)
    produce(broker, "orders", 20, 5)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    start = first.log_end + 7
    for future in admin.delete_records([TopicPartition("orders", 0, start)]).values():
        future.result()
    done = run("copy", url_of(broker), copy)
    assert done.code == 1
    assert f"orders-0: offsets {first.log_end} to {start - 1} are not in the copy" in done.err
    assert json.loads((copy / FILE).read_text())["partitions"]["orders-0"]["gaps"] == [[first.log_end, start]]
    produce(broker, "orders", 1)
    assert offline.copy(url_of(broker), copy).exit_code == 0
    expected, found = list(pylogseg.read(tmp_path / "broker", "orders")), list(pylogseg.read(copy, "orders"))
    assert found[-len(expected) :] == expected
    assert run("verify", copy).code == 1, "offsets are missing"


def test_open_transactions_stay_open(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """No marker is in a copy that the leader does not have, so that the next run goes on."""
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    client.init_transactions()
    copy = tmp_path / "copy"
    for is_committed in (True, False):
        client.begin_transaction()
        client.produce("orders", b"x")
        client.flush()
        offline.copy(url_of(broker), copy)
        for name in ("orders-0", "__transaction_state-0"):
            assert segments(copy / name) == segments(tmp_path / "broker" / name)
        assert list(pylogseg.read(copy, "orders", isolation_level="read_committed"))[1:] == []
        if is_committed:
            client.commit_transaction()
        else:
            client.abort_transaction()
    offline.copy(url_of(broker), copy)
    for level in ("read_committed", "read_uncommitted"):
        expected = pylogseg.read(tmp_path / "broker", "orders", isolation_level=level).to_arrow()
        assert pylogseg.read(copy, "orders", isolation_level=level).to_arrow() == expected


def test_something_else_changed_the_copy(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """A log that does not end where the copy did is left alone; a partition that was removed comes again."""
    for topic in ("orders", "other"):
        produce(broker, topic, 5)
    copy = tmp_path / "copy"
    (orders, _) = offline.copy(url_of(broker), copy)
    offline.truncate(copy / "orders-0", 3)
    for path in (copy / "other-0").iterdir():
        path.unlink()
    (copy / "other-0").rmdir()
    produce(broker, "orders", 1)
    done = offline.copy(url_of(broker), copy)
    assert done.exit_code == 2
    assert f"a run has copied it up to {orders.log_end}" in next(iter(done.warnings()))
    assert segments(copy / "other-0") == segments(tmp_path / "broker" / "other-0")


def test_settings_and_topic_ids(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """They are where commands look for those of a broker's disk, and follow the cluster."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    broker.create_topic("orders", 2, {**SMALL, "retention.ms": 123456})
    produce(broker, "orders", 30)
    copy, archived = tmp_path / "copy", tmp_path / "archive"
    assert offline.copy(url_of(broker), copy).exit_code == 0
    snapshot = [*(copy / "__cluster_metadata-0").glob("*.checkpoint")]
    assert offline.copy(url_of(broker), copy).exit_code == 0
    assert [*(copy / "__cluster_metadata-0").glob("*.checkpoint")] == snapshot, "nothing is new"
    topic_id = json.loads((copy / FILE).read_text())["partitions"]["orders-0"]["topic_id"]
    metadata = ClusterMetadata.read(str(copy / "__cluster_metadata-0"))
    assert metadata.topic_ids == {"orders": topic_id}
    assert topic_id in (tmp_path / "broker" / "orders-0" / "partition.metadata").read_text()
    assert metadata.of_topic("orders") == {"internal.segment.bytes": "4000", "retention.ms": "123456"}
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    broker.create_topic("late", 1)
    assert offline.copy(f"{url_of(broker)}/late", copy).exit_code == 0
    metadata = ClusterMetadata.read(str(copy / "__cluster_metadata-0"))
    assert {*metadata.topic_ids} == {"orders", "late"}
    assert "cleanup.policy" not in metadata.of_topic("orders"), "this run was asked for another topic"
    assert offline.copy(url_of(broker), copy).exit_code == 0
    assert run("verify", copy).code == 0
    assert run("archive", copy, archived).code == 0
    (point,) = run("archive", "points", archived, "--json").rows
    shown = json.loads(run("archive", "show", archived, point["point"], "--json").text)
    assert shown["topics"][topic_id]["cleanup.policy"] == "compact" if "topics" in shown else "compact" in str(shown)


def test_an_archive_of_a_running_cluster(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """Points are those of a disk, and have the faults of the copy."""
    broker.create_topic("orders", 1, {**SMALL, "retention.ms": 123456})
    produce(broker, "orders", 30)
    copy, place = tmp_path / "copy", tmp_path / "archive"
    words = ("archive", url_of(broker), place, "--copy", copy)
    for seed in range(2):
        expect(run(*words), 0)
        produce(broker, "orders", 10, seed)
    cut = elect(broker, tmp_path / "broker" / "orders-0", 40)
    produce(broker, "orders", 40, 3)
    expect(run(*words), 1, f"the log was cut at offset {cut} by an unclean election")
    assert [row["faults"] for row in run("archive", "points", place, "--json").rows] == [0, 0, 1]
    assert run("archive", "status", place).code == 1
    assert run("verify", place, "--read-all").code == 0
    shown = run("archive", "show", place, "--json").text
    assert json.loads(shown)["clusterId"] == json.loads((copy / FILE).read_text())["clusterId"]
    (tmp_path / "restored").mkdir()
    assert run("restore", place, tmp_path / "restored").code == 0
    assert stored(tmp_path / "restored" / "orders-0") == stored(copy / "orders-0")


#: Runs that die at one of their changes of the disk, as forks of a process without threads, until one comes through.
_KILLED = """
import os, random, sys
from pylogseg import offline
from pylogseg.live import fetching
fetching.PIECE_BYTES = 3000
url, target, chance = sys.argv[1], sys.argv[2], random.Random(sys.argv[3])
kills, steps = 0, chance.randrange(1, 6)
offline.copy(url, target + ".whole")  # what is imported for it stays in the forks
while True:
    process = os.fork()
    if not process:
        left = steps
        def hook(event, given):
            global left
            changes = event in ("os.rename", "os.mkdir", "os.remove", "os.truncate")
            if changes or (event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), 9)
        sys.addaudithook(hook)
        os._exit(offline.copy(url, target).exit_code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code != -9:
        break
    kills, steps = kills + 1, steps + chance.randrange(1, 25)
print(kills, code)
"""


def test_runs_that_are_killed(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """No offset comes twice, and none is missing: each run goes on with what the killed ones left."""
    broker.create_topic("orders", 2, SMALL)
    copy, kills = tmp_path / "copy", 0
    for seed in range(3):
        produce(broker, "orders", 40, seed)
        words = [sys.executable, "-c", _KILLED, url_of(broker), copy, str(seed)]
        done = subprocess.run(words, capture_output=True, text=True)
        number, code = map(int, done.stdout.split())
        assert code == 0, done.stderr
        kills += number
        for name in ("orders-0", "orders-1"):
            copied, own = segments(copy / name), segments(tmp_path / "broker" / name)
            assert copied == own
    assert kills > 6
    assert run("verify", copy).code == 0
    assert offline.copy(url_of(broker), copy).exit_code == 0


def test_follow(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """A copy that follows has what comes, says only that, and ends whole at Ctrl-C."""
    broker.produce("orders", b"a")
    copy = tmp_path / "copy"
    words = [sys.executable, "-m", "pylogseg", "copy", url_of(broker), copy, "--follow", "--every", "1s"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        broker.produce("orders", b"b")
        second = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "orders-0: 1 segment" in first[0]
    assert "up to offset 2" in second[0]
    assert "copied 1 partition" in second[1]
    assert rest == ""
    assert segments(copy / "orders-0") == segments(tmp_path / "broker" / "orders-0")
    expect(run("copy", tmp_path / "broker", tmp_path / "other", "--follow"), 2, "--follow is for a cluster")
