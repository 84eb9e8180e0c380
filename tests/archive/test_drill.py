"""Tests of archive/consuming.py, archive/drilling.py, archive/evidence.py, archive/kafka_home.py,
archive/record_digest.py, archive/trying_transactions.py and cli/drill.py. `drill`: a restored copy is consumed over the
protocol and compared; what differs is named in the evidence.
"""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archive.histories import ISOLATIONS, History
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import drill, write, write_evidence
from pylogseg.archive.consuming import DrillClient
from pylogseg.archive.kafka_home import StartedKafka
from pylogseg.archive.record_digest import RecordDigest
from pylogseg.archive.trying_transactions import TransactionClient
from pylogseg.disk.tier.point import SUFFIXES
from pylogseg.disk.tier.points import archive_store, new_id, write_point
from pylogseg.env.file_errors import storage_error
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.reading.logs import logs_of
from pylogseg.reading.producers import raise_refused
from pylogseg.reading.seek import end_offset
from pylogseg.values.internal.producers import producers_of


def test_all_points(history: History, tmp_path: Path) -> None:
    for point in history.archiver.points:
        result = drill(history.url, point=point.id, folder=tmp_path)
        assert (result.all_problems, result.exit_code) == ([], 0)
        counted = {
            (each.name, isolation): each.records[isolation]
            for each in result.brokers[0].partitions
            for isolation in ISOLATIONS
        }
        assert counted == {place: len(rows) for place, rows in history.rows[point.id].items()}
        assert result.brokers[0].group_offsets == 2
        assert list(tmp_path.iterdir()) == []


def test_a_log_whose_last_batches_a_cleaner_removed_is_read_up_to_them(tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "data" / "t-0") as log:
        log.append([{"timestamp": 1, "key": b"k", "value": b"v"}] * 3)
    (tmp_path / "data" / "t-0" / f"{50:020d}.log").touch()
    with pylogseg.serve(tmp_path / "data") as server, DrillClient(server.bootstrap_servers, 0.6) as client:
        assert client.ends("t", 0)[1] == 50
        with pytest.raises(StorageError, match="nothing came from offset 3 on, and the log ends at 50"):
            list(client.records("t", 0, "read_uncommitted", 50))
        found = list(client.records("t", 0, "read_uncommitted", 50, lacks_end=True))
    assert [each.offset.tolist() for each in found] == [[0, 1, 2]]


def test_digests_tell_records_apart(tmp_path: Path) -> None:
    """What is the same in other batches has the same digest; each part of a record counts."""
    rows = [(1, b"k", b"v", {"h": b"x"}), (2, None, b"", {}), (3, b"", None, {})]
    texts = set()
    first = [(9, b"k", b"v", {"h": b"x"}), (1, b"kv", b"", {"h": b"x"}), (1, b"k", b"v", {"h": b"y"})]
    others = [[each, *rows[1:]] for each in first] + [[*rows[:2], (3, None, None, {})]]
    for number, (changed, cut) in enumerate([(rows, 1), *((each, 3) for each in (rows, *others))]):
        with pylogseg.open_log(tmp_path / f"t-{number}") as log:
            for at in range(0, 3, cut):
                log.append(
                    [{"timestamp": t, "key": k, "value": v, "headers": h} for t, k, v, h in changed[at : at + cut]]
                )
        digest = RecordDigest()
        for chunk in pylogseg.read(tmp_path / f"t-{number}").chunks():
            digest.add(chunk.columns)
        texts.add(digest.text())
    assert len(texts) == 5


def test_evidence(history: History, tmp_path: Path) -> None:
    done = shell("drill", history.archiver.root, "orders", "--evidence", tmp_path / "evidence", "--kafka-home", "")
    assert done.code in (0, 2)
    done = shell("drill", history.archiver.root, "orders", "--evidence", tmp_path / "evidence")
    assert done.code == 0, done.text + done.err
    found = json.loads((tmp_path / "evidence" / "evidence.json").read_text())
    assert (found["point"], found["exitCode"], found["problems"]) == (history.archiver.points[-1].id, 0, [])
    assert [each["name"] for each in found["brokers"][0]["partitions"]] == ["orders-0", "orders-1"]
    page = (tmp_path / "evidence" / "evidence.html").read_text()
    for each in found["expected"]:
        assert all(digest in page for digest in each["sha256"].values())
    assert found["pointSha256"] in page


def test_what_is_missing(history: History, tmp_path: Path) -> None:
    archive = Path(shutil.copytree(history.archiver.root, tmp_path / "archive"))
    (gone,) = [each for each in history.archiver.points[-1].partitions if each.name == "orders-1"]
    (archive / (gone.stem(gone.segments[0]) + SUFFIXES[0])).unlink()
    result = drill(archive)
    assert result.exit_code == 1
    assert all("orders-1" in text or ".log" in text for text in result.all_problems)
    page = write_evidence(result, tmp_path / "evidence")[1].read_text()
    assert "differences" in page, (result.all_problems, result.not_run)


def test_incomplete_points(history: History, tmp_path: Path) -> None:
    archive = Path(shutil.copytree(history.archiver.root, tmp_path / "archive"))
    last = history.archiver.points[-1]
    write_point(
        archive_store(archive), replace(last, id=new_id(last.time_ms + 1), time_ms=last.time_ms + 1, not_seen=None)
    )
    result = drill(archive, topic="empty")
    assert (result.exit_code, result.all_problems) == (2, [])
    assert any("metadata is not in the archive" in text for text in result.not_checked)
    with pytest.raises(RequestError, match="no Kafka here"):
        drill(archive, kafka_home=tmp_path)
    with pytest.raises(RequestError, match="a whole cluster is tried with a Kafka"):
        drill(archive, cluster=True)
    with pytest.raises(RequestError, match="and with all partitions"):
        drill(archive, cluster=True, kafka_home=tmp_path, topic="orders")


def test_partitions_that_no_disk_had(examples: Path, tmp_path: Path) -> None:
    """Of some topics only one of two partitions is there: what is there is compared, and the others are named."""
    write(examples, tmp_path / "archive")
    result = drill(tmp_path / "archive")
    assert (result.all_problems, result.exit_code) == ([], 2)
    assert sum(each.records["read_uncommitted"] for each in result.brokers[0].partitions) > 4000
    assert "codec-none-0: the archive does not have it at this point: it begins empty" in result.not_checked


def test_a_consumer_of_committed_records() -> None:
    """The client leaves out what was aborted, as Java's does: it is told by the broker which producers."""
    with pylogseg.Broker(topics={"t": 1}) as broker, DrillClient(broker.bootstrap_servers) as client:
        broker.produce("t", b"plain")
        found = [columns.value(0) for columns in client.records("t", 0, "read_committed", 10)]
        assert found == [b"plain"]
        assert client.topic_ids({("t", 0)})["t"] == broker.catalog.topics["t"].id


def test_what_a_kafka_complains_of(tmp_path: Path) -> None:
    """Each line is as Kafka 4.4 wrote it: it began to read a coordinator's log before it was registered."""
    not_loaded = (
        "2026-11-28 03:43:14,293 ERROR [GroupCoordinator id=1] Failed to load metadata from __consumer_offsets-1 with"
        " epoch 2 due to Stopped loading records from __consumer_offsets-1 because the partition is not online or is no"
        " longer the leader.. (CoordinatorRuntime)"
    )
    loaded = (
        "2026-11-28 03:43:14,423 INFO [GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-{}"
        " with epoch {} in 12ms where 1ms was spent in the scheduler. Loaded 993 records which total to 85 bytes."
    )
    log = tmp_path / "server.log"
    names = ["__consumer_offsets-1", "__consumer_offsets-10"]
    for later, is_one in ((loaded.format(1, 4), False), (loaded.format(1, 1), True), (loaded.format(10, 4), True)):
        log.write_text(f"{not_loaded}\n{later}\n")
        assert StartedKafka("", str(log)).complaints(names) == ([not_loaded] if is_one else [])


def a_full_disk(tmp_path: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    full = OSError(errno.ENOSPC, "No space left on device")

    def write_whole(self: LocalStorage, path: str, data: bytes) -> None:
        raise storage_error(path, "write", full) from full

    patch.setattr(LocalStorage, "write_whole", write_whole)
    return {}


def a_folder_that_cannot_be_written(tmp_path: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "file").touch()
    return {"folder": tmp_path / "file"}


def no_java(tmp_path: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "kafka" / "libs").mkdir(parents=True)
    (tmp_path / "kafka" / "libs" / "kafka-clients-4.3.0.jar").touch()
    (tmp_path / "kafka" / "bin").mkdir()
    (tmp_path / "kafka" / "bin" / "kafka-server-start.sh").touch(mode=0o755)
    patch.setenv("PATH", "/nowhere")
    patch.delenv("JAVA_HOME", raising=False)
    return {"kafka_home": tmp_path / "kafka"}


@pytest.mark.parametrize("trouble", [a_full_disk, a_folder_that_cannot_be_written, no_java])
def test_a_drill_that_could_not_be_run(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    """The trouble of this machine is no difference: the exit code is 2, and the evidence says why it was not run."""
    with monkeypatch.context() as patch:
        how = trouble(tmp_path, patch)
        result = drill(history.url, topic="orders", **how)
    assert (result.exit_code, result.all_problems) == (2, [])
    assert len(result.not_run) == 1
    assert "not run" in result.verdict
    write_evidence(result, tmp_path / "evidence")
    found = json.loads((tmp_path / "evidence" / "evidence.json").read_text())
    assert (found["exitCode"], found["problems"], found["notRun"]) == (2, [], result.not_run)
    assert "Not run" in (tmp_path / "evidence" / "evidence.html").read_text()


def test_rows_of_json(history: History) -> None:
    """`--json` prints lines, the first of which has the verdict."""
    done = shell("drill", history.url, "orders", "--json")
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert rows[0]["type"] == "drill"
    assert rows[0]["exitCode"] == done.code
    assert {row["type"] for row in rows[1:]} == {"broker", "partition"}
    assert {row["of"] for row in rows if row["type"] == "partition"} == {"archive", "pylogseg serve"}


@pytest.mark.parametrize("is_ended", [True, False], ids=["restored", "not-ended"])
def test_a_transaction_of_each_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ended: bool) -> None:
    """The coordinator's log of the point ends before a transaction that is open in a topic, and was never committed.

    A restore that leaves it open is found by the next transaction of the id.
    """
    home = tmp_path / "home"
    with pylogseg.Broker(home) as broker:
        broker.create_topic("tx", 1)
        with TransactionClient(broker.bootstrap_servers) as client:
            client.commit_one("app", [("tx", 0)])
    (state,) = (part for part in pylogseg.open_dir(home).select("__transaction_state") if part.size)
    with pylogseg.open_log(home / "tx-0") as log:
        ((producer, row),) = producers_of(logs_of(pylogseg.open_dir(home / "tx-0"))[0], 99, raise_refused).items()
        epoch = row.epoch
        data = pylogseg.encode([(1, None, b"never committed")], base_offset=0, producer_id=producer,
                               producer_epoch=epoch, base_sequence=1, transactional=True)  # fmt: skip
        log.engine.append_as_leader(data, 0)
    assert end_offset(state.segments) > 2
    write(home, tmp_path / "archive")
    if not is_ended:
        monkeypatch.setattr("pylogseg.offline.restoring.ending.apply_ends", lambda *given: {})
    result = drill(tmp_path / "archive", folder=tmp_path)
    assert result.brokers[0].transactional_ids == 1
    if is_ended:
        assert (result.all_problems, result.exit_code) == ([], 2)  # no metadata says which partitions there are
    else:
        assert result.exit_code == 1
        (problem,) = result.all_problems
        assert "tx-0: after a transaction of each id read_committed gives 2 records" in problem
        assert "1 are committed" in problem
