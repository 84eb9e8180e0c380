"""Tests of archive/from_cluster.py. A running cluster is archived without a copy of it."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import url_of
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg import offline
from pylogseg.archive import list_points, read_point, writing
from pylogseg.archive.writing import write
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs
from pylogseg.live import fetching

pytestmark = pytest.mark.usefixtures("soon")
SMALL = {"internal.segment.bytes": 4000}


def produce(broker: pylogseg.Broker, topic: str, count: int, seed: int = 0) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        values = [chance.randbytes(chance.randrange(400)) for _ in range(chance.randrange(1, 4))]
        broker.produce(topic, *values, key=str(chance.randrange(9)), partition=0)


def segments_of(archive: Path) -> dict[str, list[tuple[int, int, str, bytes]]]:
    """Return the segments of each partition of the newest point, with their bytes."""
    point = read_point(archive, list_points(archive)[-1])
    return {
        part.name: [
            (each.base_offset, each.end_offset, each.segment_id, (archive / f"{part.stem(each)}.log").read_bytes())
            for each in part.segments
        ]
        for part in point.partitions
        if part.topic != "__cluster_metadata"
    }


def facts_of(archive: Path) -> list[Any]:
    """Return what all points say of each partition, but for the pieces of segments, and the times of their uploads."""
    facts = []
    for name in list_points(archive):
        point = read_point(archive, name)
        rows = [replace(part, segments=(), files={}) for part in point.partitions if part.topic != "__cluster_metadata"]
        facts.append((rows, dict(point.settings), point.above_end, point.cluster_id, point.not_seen))
    return facts


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def test_points_are_those_of_a_copy(broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run after run, the points say the same, and the segments have the same bytes."""
    broker.create_topic("orders", 2, {**SMALL, "retention.ms": 12345678})
    broker.create_topic("cleaned", 1, {**SMALL, "cleanup.policy": "compact", "min.compaction.lag.ms": 3600000})
    broker.create_topic("empty", 1)
    spool = tmp_path / "spool"
    spool.mkdir()
    direct, copied = tmp_path / "direct", tmp_path / "copied"
    for seed in range(14):
        for topic in ("orders", "cleaned") if seed < 13 else ():
            produce(broker, topic, 2 if seed < 10 else 30, seed)
        if seed == 2:
            broker.create_topic("late", 1)
            broker.produce("late", b"x")
        for words in ((direct, "--spool", spool), (copied, "--copy", tmp_path / "copy")):
            done = run("archive", url_of(broker), *words)
            assert done.code == 0, done.err
        assert list(spool.iterdir()) == []
    assert facts_of(direct) == facts_of(copied)
    ours, theirs = segments_of(direct), segments_of(copied)
    assert len(ours["orders-0"]) > 5
    assert 1 < len(ours["cleaned-0"]) < 14, "small ones are joined where they are"
    for found in (ours, theirs):  # in a copy each segment that is sealed goes up again
        found["cleaned-0"] = [(0, 0, "", b"".join(each[3] for each in found["cleaned-0"]))]
    assert ours == theirs
    assert run("verify", direct, "--read-all").code == 0
    (tmp_path / "restored").mkdir()
    assert run("restore", direct, tmp_path / "restored").code == 0
    for name in ("orders-0", "orders-1", "late-0"):
        assert stored(tmp_path / "restored" / name) == stored(tmp_path / "broker" / name)
    assert run("verify", tmp_path / "restored").code == 0


def test_producers_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions and producers that are older than a run are in its snapshots: those of a copy."""
    monkeypatch.setattr(fetching, "PIECE_BYTES", 1500)
    data = Path(__file__).resolve().parents[2] / "examples" / "data"
    direct, copied = tmp_path / "direct", tmp_path / "copied"
    for end in (6, None):
        shown = tmp_path / f"shown-{end}"
        offline.copy(data, shown)
        if end is not None:
            offline.truncate(shown / "txn-a-0", end)
        with pylogseg.serve(shown) as server:
            url = f"kafka://{server.bootstrap_servers}/txn-a"
            for words in ((direct,), (copied, "--copy", tmp_path / "copy")):
                done = run("archive", url, *words)
                assert done.code == 0, done.err
    assert segments_of(direct) == segments_of(copied)
    point = read_point(direct, list_points(direct)[-1])
    assert all(len(part.segments) > 1 for part in point.partitions if part.topic == "txn-a" and part.partition == 0)


def elect(broker: pylogseg.Broker, folder: Path, end: int) -> int:
    """Let the log of a partition be cut by a leader that was not in sync; return where."""
    broker.stop()
    (row,) = offline.truncate(folder, end)
    end = row.log_end
    entries = [EpochEntry(0, 0), EpochEntry(5, end - 1)]  # an epoch without a record would be forgotten
    (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))
    broker.start()
    return end - 1


def test_a_log_that_was_cut(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """The run says it once, and goes on with the log of the cluster; the older point has what was lost."""
    place, folder = tmp_path / "archive", tmp_path / "broker" / "orders-0"
    broker.create_topic("orders", 1, SMALL)
    for seed in range(3):
        produce(broker, "orders", 10, seed)
        assert run("archive", url_of(broker), place).code == 0
    before = segments_of(place)["orders-0"]
    cut = elect(broker, folder, before[-1][0] + 4)
    produce(broker, "orders", 40, 3)
    done = run("archive", url_of(broker), place)
    assert done.code == 1
    assert f"orders-0: the log was cut at offset {cut} by an unclean election" in done.err
    assert run("archive", url_of(broker), place).code == 0
    assert [row["faults"] for row in run("archive", "points", place, "--json").rows] == [0, 0, 0, 1, 0]
    assert b"".join(each[3] for each in segments_of(place)["orders-0"]) == stored(folder)
    assert run("verify", place, "--read-all").code == 0
    (tmp_path / "old").mkdir()
    assert run("restore", place, tmp_path / "old", "--point", list_points(place)[2].id).code == 0
    assert stored(tmp_path / "old" / "orders-0") == b"".join(each[3] for each in before)


def test_records_that_retention_removed_first(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """They are a fault of the run that missed them; the point begins where the log does, and older ones stay right."""
    place = tmp_path / "archive"
    broker.create_topic("orders", 1, SMALL)
    produce(broker, "orders", 10)
    assert run("archive", url_of(broker), place).code == 0
    end = segments_of(place)["orders-0"][-1][1]
    produce(broker, "orders", 40, 1)
    delete_below(broker, end + 20)
    done = run("archive", url_of(broker), place)
    assert done.code == 1
    assert f"orders-0: offsets {end} to {end + 19} are not in the archive: retention removed them first" in done.err
    point = read_point(place, list_points(place)[-1])
    (part,) = [each for each in point.partitions if each.topic == "orders"]
    assert part.start_offset == end + 20
    assert run("archive", url_of(broker), place).code == 0
    delete_below(broker, part.end_offset)
    assert run("archive", url_of(broker), place).code == 0
    assert segments_of(place)["orders-0"] == []
    assert run("verify", place, "--read-all").code == 0


def delete_below(broker: pylogseg.Broker, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition("orders", 0, offset)]).values():
        future.result(10)


def test_topics_that_went_or_were_made_again(broker: pylogseg.Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    place = tmp_path / "archive"
    for topic in ("orders", "gone", "same"):
        broker.create_topic(topic, 1, SMALL)
        produce(broker, topic, 3)
    assert run("archive", url_of(broker), place).code == 0
    old = segments_of(place)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_topics(["orders", "gone"]).values():
        future.result(10)
    broker.create_topic("orders", 1, SMALL)
    produce(broker, "orders", 9, 5)
    done = run("archive", f"{url_of(broker)}/same", place)
    assert (done.code, segments_of(place)) == (0, old), "nothing else was asked for"
    done = run("archive", url_of(broker), place)
    assert done.code == 1
    assert "orders: the topic was deleted and made again: it was" in done.err
    assert "gone-0: it is on none of the disks" in done.err
    assert segments_of(place)["gone-0"] == old["gone-0"]
    assert b"".join(each[3] for each in segments_of(place)["orders-0"]) == stored(tmp_path / "broker" / "orders-0")
    done = run("archive", url_of(broker), place)
    assert "made again" not in done.err
    assert run("archive", url_of(broker), place, "--forget", "gone").code == 0
    assert "gone-0" not in segments_of(place)
    assert run("archive", url_of(broker), place).code == 0
    assert run("verify", place, "--read-all").code == 0


def test_lost_objects_come_again(broker: pylogseg.Broker, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    broker.create_topic("orders", 1, SMALL)
    for seed in range(3):
        produce(broker, "orders", 15, seed)
        assert run("archive", url_of(broker), place).code == 0
    before = segments_of(place)
    for suffix in (".log", ".indexes"):
        next(place.glob(f"orders-*/0/*{before['orders-0'][3][2]}{suffix}")).unlink()
    done = run("archive", url_of(broker), place)
    assert done.code == 0, done.err
    assert "the run uploaded again what was in it" in done.err
    joined = [b"".join(each[3] for each in found["orders-0"]) for found in (before, segments_of(place))]
    assert joined[0] == joined[1]
    assert run("verify", place, "--read-all").code == 0


def test_a_partition_that_fails(broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays as it was, with a fault; the others go on."""
    place = tmp_path / "archive"
    for topic in ("orders", "other"):
        broker.create_topic(topic, 1, SMALL)
        produce(broker, topic, 20)
    assert run("archive", url_of(broker), place).code == 0
    old = segments_of(place)
    for topic in ("orders", "other"):
        produce(broker, topic, 20, 1)
    take = fetching.FetchedView._add

    def damage(view: fetching.FetchedView, data: memoryview, *rest: Any) -> None:
        copy = bytearray(data)
        copy[-1] ^= 0x7F * ("orders" in view.path)
        take(view, memoryview(copy), *rest)

    with monkeypatch.context() as patched:
        patched.setattr(fetching.FetchedView, "_add", damage)
        done = run("archive", url_of(broker), place)
    assert done.code == 1
    assert "orders-0 ends at offset" in done.err
    assert "in the archive: " in done.err
    assert "CRC mismatch" in done.err
    assert segments_of(place)["other-0"][: len(old["other-0"])] == old["other-0"]
    assert run("archive", url_of(broker), place).code == 0
    for name in old:
        assert b"".join(each[3] for each in segments_of(place)[name]) == stored(tmp_path / "broker" / name)
    assert run("verify", place, "--read-all").code == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_spool_has_a_segment_of_each_partition_at_work(
    broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    names = [f"t{number}" for number in range(5)]
    for topic in names:
        broker.create_topic(topic, 1, SMALL)
        produce(broker, topic, 60)
    seen: list[tuple[int, int, int]] = []
    write_partition = writing.write_partition

    def watch(*given: Any) -> Any:
        logs = [each for each in (tmp_path / "spool").rglob("*.log") if "__cluster" not in str(each)]
        sizes = [each.stat().st_size for each in logs]
        seen.append((len({each.parent for each in logs}), sum(size > 0 for size in sizes), sum(sizes)))
        return write_partition(*given)

    monkeypatch.setattr(writing, "write_partition", watch)
    monkeypatch.setattr(fetching, "PIECE_BYTES", 3000)
    (tmp_path / "spool").mkdir()
    write(url_of(broker), tmp_path / "archive", storage_options={"spool": tmp_path / "spool"}, jobs=jobs)
    assert len(seen) > 20
    assert max(count for count, _, _ in seen) <= jobs
    assert max(count for _, count, _ in seen) <= jobs
    assert max(size for _, _, size in seen) <= jobs * 4000
    assert list((tmp_path / "spool").iterdir()) == []


def test_an_encrypted_archive_goes_on_with_its_key(
    broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producers are in an encrypted snapshot: without the key there is no point, and that is said."""
    private, public = tmp_path / "ops-private.pem", tmp_path / "ops.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "ops.pem").write_bytes(private.read_bytes())
    place = tmp_path / "archive"
    broker.create_topic("orders", 1, SMALL)
    words = ("archive", url_of(broker), place, "--encrypt-to", public, "--compress", "zstd")
    produce(broker, "orders", 20)
    assert run(*words).code == 0
    produce(broker, "orders", 20, 1)
    done = run(*words)
    assert done.code == 2
    assert "PYLOGSEG_TIER_KEYS" in done.err
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(keys))
    done = run(*words)
    assert done.code == 0, done.err
    assert run("verify", place, "--read-all").code == 0
    (tmp_path / "restored").mkdir()
    assert run("restore", place, tmp_path / "restored").code == 0
    assert stored(tmp_path / "restored" / "orders-0") == stored(tmp_path / "broker" / "orders-0")


def test_wrong_uses(broker: pylogseg.Broker, tmp_path: Path) -> None:
    broker.create_topic("orders", 1)
    url, place = url_of(broker), tmp_path / "archive"
    for wrong in (
        (url, url, place),
        (tmp_path / "broker", place, "--copy", tmp_path / "copy"),
        (url, place, "--copy", tmp_path / "copy", "--spool", tmp_path),
    ):
        refused = run("archive", *wrong)
        assert refused.code == 2
        assert "a running cluster is archived alone" in refused.err
    with pytest.raises(RequestError, match="a spool is for a running cluster"):
        write(tmp_path / "broker", place, storage_options={"spool": tmp_path})
    with pytest.raises(RequestError, match="no such topic"):
        write(f"{url}/nope", place)
    with pytest.raises(PylogsegError, match="cannot connect"):
        write("kafka://127.0.0.1:1", place)


#: Runs that die at one of their changes of the disk, as forks of a process without threads, until one comes through.
_KILLED = """
import os, random, sys
from pylogseg.archive.writing import write
from pylogseg.live import fetching
fetching.PIECE_BYTES = 3000
url, target, spool, chance = sys.argv[1], sys.argv[2], sys.argv[3], random.Random(sys.argv[4])
kills, steps = 0, chance.randrange(1, 12)
write(url, target + ".whole")  # what is imported for it stays in the forks
while True:
    process = os.fork()
    if not process:
        left = steps
        def hook(event, given):
            global left
            changes = event in ("os.rename", "os.mkdir", "os.remove", "os.truncate", "os.link")
            if changes or (event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), 9)
        sys.addaudithook(hook)
        os._exit(write(url, target, storage_options={"spool": spool}).exit_code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code != -9:
        break
    kills, steps = kills + 1, steps + chance.randrange(20, 90)
print(code, kills)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a fork is killed")
@pytest.mark.parametrize("seed", [0])
def test_killed_runs_go_on(broker: pylogseg.Broker, tmp_path: Path, seed: int) -> None:
    """After each kill the points that there are stay right, and the next run goes on."""
    place, spool = tmp_path / "archive", tmp_path / "spool"
    spool.mkdir()
    broker.create_topic("orders", 1, SMALL)
    old = {}
    for turn in range(2):
        produce(broker, "orders", 25, 10 * seed + turn)
        words = [sys.executable, "-c", _KILLED, url_of(broker), str(place), str(spool), f"{seed}{turn}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        code, kills = map(int, done.stdout.split())
        assert code == 0
        assert kills > 2
        found = b"".join(each[3] for each in segments_of(place)["orders-0"])
        assert found == stored(tmp_path / "broker" / "orders-0")
        old[list_points(place)[-1].id] = found
        assert run("verify", place, "--read-all").code == 0
    for point, data in old.items():
        folder = tmp_path / f"restored-{point}"
        folder.mkdir()
        assert run("restore", place, folder, "--point", point).code == 0
        assert stored(folder / "orders-0") == data


def test_it_goes_on_with_the_archive_of_a_copy(broker: pylogseg.Broker, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    broker.create_topic("orders", 1, SMALL)
    produce(broker, "orders", 20)
    assert run("archive", url_of(broker), place, "--copy", tmp_path / "copy").code == 0
    old = segments_of(place)["orders-0"]
    broker.create_topic("late", 1, SMALL)
    for topic in ("orders", "late"):
        produce(broker, topic, 20, 1)
    for _ in range(2):
        done = run("archive", url_of(broker), place)
        assert (done.code, "note" in done.err) == (0, False), done.err
    found = segments_of(place)
    assert found["orders-0"][: len(old)] == old
    for name in ("orders-0", "late-0"):
        assert b"".join(each[3] for each in found[name]) == stored(tmp_path / "broker" / name)
    assert run("verify", place, "--read-all").code == 0
