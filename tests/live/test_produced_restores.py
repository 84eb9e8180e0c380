"""Tests of live/administering.py, live/connection.py, live/files.py, live/producing.py,
offline/restoring/offset_plan.py, offline/restoring/planned_log.py, offline/restoring/produced.py and
offline/restoring/to_cluster.py. Tests of offline/restoring/to_cluster.py, its plan, and live/producing.py: a log comes
back at its own offsets.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.produced import CODECS, MadeLog, play
from helpers.servers import url_of
from helpers.shell import expect
from helpers.shell import pylogseg as run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg import offline
from pylogseg.errors import CorruptionError, IncompleteError, RequestError, StorageError
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.live import administering, producing
from pylogseg.live.connection import BrokerConnection
from pylogseg.live.files import open_cluster
from pylogseg.offline.restoring.offset_plan import OffsetPlan, OffsetStep, Outcomes, consecutive
from pylogseg.reading.transaction_markers import MarkerRow
from pylogseg.values.internal.cluster import ClusterMetadata

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
LEVELS = ("read_uncommitted", "read_committed")
NUMBERS = itertools.count()
#: Which requests an interruption comes at: all of them take half a minute.
EVERY = 7


@pytest.fixture
def broker() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def shared() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker() as broker:
        yield broker


def rows_of(source: Any, level: str, name: str = "t-0") -> list[tuple[Any, ...]]:
    reader = pylogseg.read(source, name, isolation_level=level)
    return [(each.offset, each.key, each.value, each.timestamp, each.headers) for each in reader]


def restore(source: Path, broker: pylogseg.Broker, **how: Any) -> Any:
    return offline.restore_to_cluster(source, url_of(broker), **how)


def check_same(source: Path, broker: pylogseg.Broker, name: str = "t-0") -> None:
    """Compare by what readers and consumers see, and not by the comparison that the command makes."""
    for level in LEVELS:
        assert rows_of(url_of(broker), level, name) == rows_of(source, level, name)


def mixed_log() -> MadeLog:
    """A log with all that a plan knows: retention, cleaned batches, holes, transactions side by side."""
    log = MadeLog(7)
    log.records(3, "lz4")
    log.records(2, producer=5)
    log.records(2, producer=6)
    log.records(6, "gzip", kept=(0, 1, 4))
    log.records(1, producer=5)
    log.marker(6, commits=True)
    log.records(1, producer=8)
    log.marker(5, commits=False)
    log.hole(3)
    log.records(2, producer=5)
    log.marker(8, commits=False)
    log.records(2, "zstd")
    log.marker(5, commits=False)
    log.hole(2)
    log.records(1)
    return log


# ---- plans ----


def table_of(batches: str) -> tuple[BatchTable, list[MarkerRow]]:
    """Make headers of words: ``10-14`` a batch, ``p3:10-14`` one of a transaction, ``abort3:15``, ``commit3:15``."""
    rows, markers = np.zeros(len(batches.split()), BATCH_DTYPE), []
    for row, word in zip(rows, batches.split(), strict=True):
        who, _, offsets = word.rpartition(":")
        first, _, last = offsets.partition("-")
        row["base_offset"], row["last_offset"], row["magic"] = int(first), int(last or first), 2
        row["count"], row["producer_id"] = (
            row["last_offset"] - row["base_offset"] + 1,
            int(who.strip("abortcmip") or -1),
        )
        row["attributes"] = (0x10 if who else 0) | (0 if who[:1] in ("", "p") else 0x20)
        if who[:1] in ("a", "c"):
            kind = ControlKind.ABORT if who.startswith("abort") else ControlKind.COMMIT
            markers.append(MarkerRow(int(row["producer_id"]), int(first), kind, 0))
    return BatchTable(rows), markers


def text_of(step: OffsetStep) -> str:
    slot = "" if step.slot < 0 else f"@{step.slot}"
    return f"{step.kind}{slot} {step.first_offset}-{step.next_offset - 1}"


@pytest.mark.parametrize(
    ("batches", "ends", "steps"),
    [
        ("", (0, 0), ""),
        ("", (0, 9), "burn 0-8"),
        ("0-4 5-9", (0, 10), "records 0-4, records 5-9"),
        ("3-4", (3, 5), "burn 0-2, records 3-4"),
        ("3-9", (5, 10), "burn 0-2, records 3-9"),
        ("0-2 3-9", (3, 12), "burn 0-2, records 3-9, holes 10-11"),
        ("0-1 5-6", (0, 7), "records 0-1, holes 2-4, records 5-6"),
        ("p1:0-1 commit1:2 3", (0, 4), "records 0-1, holes 2-2, records 3-3"),
        ("p1:0-1 abort1:2", (0, 3), "records@0 0-1, abort@0 2-2"),
        ("commit1:0 abort2:1 2", (0, 3), "burn 0-1, records 2-2"),
        ("0 abort2:1 2", (0, 3), "records 0-0, holes 1-1, records 2-2"),
        ("p1:0 p2:1 3 abort1:4 p2:5 abort2:6", (0, 7),
         "records@0 0-0, records@1 1-1, holes 2-2, records 3-3, abort@0 4-4, records@1 5-5, abort@1 6-6"),
        ("p1:0 abort1:1 p1:2 commit1:3 p1:4 abort1:5", (0, 6),
         "records@0 0-0, abort@0 1-1, records 2-2, holes 3-3, records@0 4-4, abort@0 5-5"),
        ("p1:0 p2:1 abort1:2 p3:3 abort2:4 abort3:5", (0, 6),
         "records@0 0-0, records@1 1-1, abort@0 2-2, records@0 3-3, abort@1 4-4, abort@0 5-5"),
        ("p1:0-4 5 abort1:6", (5, 7), "burn 0-4, records 5-5, holes 6-6"),
        ("p1:0 2 p2:3", (0, 4), "records@0 0-0, holes 1-1, records 2-2, records@1 3-3, abort@0 4-4, abort@1 5-5"),
    ],
)  # fmt: skip
def test_plans(batches: str, ends: tuple[int, int], steps: str) -> None:
    """What is open at the end is aborted behind it; slots are used again."""
    rows, markers = table_of(batches)
    outcomes = Outcomes()
    outcomes.add(rows[rows.last_offset >= ends[0]], markers)
    plan = OffsetPlan(outcomes, ends[0], outcomes.abort_open(ends[1]))

    def runs_of(row: int) -> list[tuple[int, int]]:
        return [(int(rows.base_offset[row]), int(rows.last_offset[row]) + 1)]

    found = [*plan.steps(rows, runs_of), *plan.last_steps()]
    assert ", ".join(map(text_of, found)) == steps
    assert [step.first_offset for step in found] == [0, *(step.next_offset for step in found[:-1])][: len(found)]


def test_runs_of_a_cleaned_batch() -> None:
    assert consecutive([3, 4, 7, 9, 10]) == [(3, 5), (7, 8), (9, 11)]
    assert consecutive([]) == []


# ---- equality ----

producers = st.integers(1, 3)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(1, 5), st.sampled_from(CODECS), st.one_of(st.just(-1), producers)),
        st.tuples(
            st.just("records"), st.just(6), st.sampled_from(CODECS), st.just(-1),
            st.sets(st.integers(0, 5), min_size=1).map(sorted),
        ),
        st.tuples(st.just("marker"), producers, st.booleans()),
        st.tuples(st.just("hole"), st.integers(1, 4)),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations, st.integers(0, 9), st.integers(0, 4))
def test_any_log(
    shared: pylogseg.Broker, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], first: int, above: int
) -> None:
    """Readers of the source and of the cluster see the same, if its transactions were ended."""
    log, name = MadeLog(first), f"t{next(NUMBERS)}-0"
    play(log, drawn)
    for producer in list(log.open):
        log.marker(producer, commits=producer % 2 == 0)
    source = log.write(tmp_path_factory.mktemp("log"), name, log_start=min(first + above, log.end))
    done = restore(source, shared, topic=name)
    assert done.exit_code == 0, [row.reason for row in done]
    check_same(source, shared, name)
    (part,) = pylogseg.open_dir(url_of(shared))[name]
    assert part.files.ends_of(part.path).end == log.end
    assert [row.state for row in restore(source, shared, topic=name)] == ["unchanged" if log.end else "done"]


def test_topics_of_a_broker(broker: pylogseg.Broker) -> None:
    """All that Kafka has written: codecs, old formats, compaction, retention, transactions."""
    topics = ["cmp-txn", "codec-*", "del-records", "legacy", "timestamps", "txn-a", "__consumer_offsets"]
    done = restore(DATA, broker, topic=topics, force=True, abort_open_transactions=True, jobs=2)
    assert done.exit_code == 1, [row.reason for row in done]
    names = [row.name for row in done if row.state == "done"]
    assert len(names) == 11
    for name in names:
        assert rows_of(url_of(broker), LEVELS[0], name) == rows_of(DATA, LEVELS[0], name)
    for name in ("cmp-txn-0", "legacy-0", "timestamps-0"):  # in the others transactions are open
        check_same(DATA, broker, name)
    states = {row.name: row.state for row in done}
    assert states["__consumer_offsets-0"] == "skipped"
    assert "1 partition skipped: the cluster writes this topic by itself" in list(done.lines())


# ---- interruptions ----


class Killed(BaseException):
    """The process ends here."""


def interrupt(monkeypatch: pytest.MonkeyPatch, when: int, *, before: bool) -> None:
    """End the process at the n-th request of a kind that changes something, before or after it is sent."""
    send, left = BrokerConnection.send, [when]
    changes = {producing.PRODUCE, producing.ADD_PARTITIONS, producing.END_TRANSACTION, producing.DELETE_RECORDS,
               producing.INIT_PRODUCER}  # fmt: skip

    def count(link: BrokerConnection, key: int, version: int, values: dict[str, Any]) -> None:
        if key in changes:
            left[0] -= 1
            if left[0] == 0 and before:
                raise Killed
        send(link, key, version, values)
        if key in changes and left[0] == 0:
            link.receive() if key != producing.PRODUCE else None  # the broker has done it
            raise Killed

    monkeypatch.setattr(BrokerConnection, "send", count)


@pytest.mark.parametrize("before", [True, False])
def test_an_interruption_at_any_request(
    broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The next run goes on: no record twice, no marker too many."""
    is_interrupted = True
    for when in itertools.count(1 if before else 3, EVERY):
        if not is_interrupted:
            break
        name = f"t{when}-0"
        source = mixed_log().write(tmp_path / str(when), name, log_start=8)
        with monkeypatch.context() as patch:
            interrupt(patch, when, before=before)
            with contextlib.suppress(Killed):
                is_interrupted = restore(source, broker).exit_code != 0
        done = restore(source, broker)
        assert done.exit_code == 0, (when, [row.reason for row in done])
        check_same(source, broker, name)
        (part,) = pylogseg.open_dir(url_of(broker))[name]
        assert part.files.ends_of(part.path).end == mixed_log().end
    assert when > 25


@pytest.mark.parametrize("api", ["Produce", "AddPartitionsToTxn", "EndTxn", "ListOffsets", "InitProducerId"])
def test_broken_connections(broker: pylogseg.Broker, tmp_path: Path, api: str) -> None:
    source = mixed_log().write(tmp_path, log_start=8)
    broker.disconnect(api, 3)
    assert restore(source, broker).exit_code == 0
    check_same(source, broker)


@pytest.mark.parametrize(
    ("api", "error"),
    [("Produce", "NOT_LEADER_OR_FOLLOWER"), ("Produce", "NOT_ENOUGH_REPLICAS"), ("EndTxn", "CONCURRENT_TRANSACTIONS"),
     ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"), ("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
     ("InitProducerId", "COORDINATOR_NOT_AVAILABLE")],
)  # fmt: skip
def test_errors_that_pass(broker: pylogseg.Broker, tmp_path: Path, api: str, error: str) -> None:
    source = mixed_log().write(tmp_path, log_start=8)
    broker.fail(api, error, 2)
    assert restore(source, broker).exit_code == 0
    check_same(source, broker)


def test_an_error_that_does_not_pass(broker: pylogseg.Broker, tmp_path: Path) -> None:
    source = mixed_log().write(tmp_path)
    broker.fail("Produce", "MESSAGE_TOO_LARGE", 1)
    done = restore(source, broker)
    assert done.exit_code == 2
    assert "MESSAGE_TOO_LARGE" in done.partitions[0].reason
    assert restore(source, broker).exit_code == 0


# ---- what is noticed ----


def test_another_producer(broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both offsets are named, and the next run refuses what is there."""
    source = mixed_log().write(tmp_path)
    produce = producing.PartitionProducer.produce

    def disturb(producer: producing.PartitionProducer, *given: Any) -> None:
        if producer.next == 14:
            producer.drain()
            broker.produce("t", b"another")
        produce(producer, *given)

    with monkeypatch.context() as patch:
        patch.setattr(producing.PartitionProducer, "produce", disturb)
        done = restore(source, broker)
    assert done.exit_code == 2
    assert "records that belong to offset 14 went to offset 15" in done.partitions[0].reason
    assert "keeps the settings of the restore" in done.notes[-2] + done.notes[-1]
    with pytest.raises(RequestError, match="the record at offset 14 is another one"):
        restore(source, broker)


def test_other_records_are_refused(broker: pylogseg.Broker, tmp_path: Path) -> None:
    log = MadeLog()
    log.records(4)
    source = log.write(tmp_path)
    broker.create_topic("t", 1)
    broker.produce("t", b"mine")
    with pytest.raises(RequestError, match=r"t-0: it is not empty.*offset 0 is another one.*--offsets new"):
        restore(source, broker)
    with pytest.raises(RequestError, match="is not empty"):
        restore(source, broker, dry_run=True)
    for _ in range(5):
        broker.produce("t", b"mine")
    with pytest.raises(RequestError, match="it ends at offset 6, and the log in the source at 4"):
        restore(source, broker)
    assert len(rows_of(url_of(broker), LEVELS[0])) == 6


def test_records_where_the_log_has_none(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """What an earlier run burned has no key and no value."""
    log = MadeLog(9)
    log.records(4)
    source = log.write(tmp_path, log_start=9)
    broker.create_topic("t", 1)
    broker.produce("t", b"mine")
    with pytest.raises(RequestError, match="it has a record at offset 0, and the log has none there"):
        restore(source, broker)


def test_a_difference_at_the_end(broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched at the end is compared with the source, in both isolations."""
    source = mixed_log().write(tmp_path, log_start=8)
    with monkeypatch.context() as patch:
        patch.setattr(OffsetPlan, "_slot_of", lambda *_: -1)  # aborted records as plain ones
        done = restore(source, broker)
    assert done.exit_code == 1
    assert "with read_committed, the record at offset 10 is only in the cluster" in done.partitions[0].reason


def test_open_transactions(broker: pylogseg.Broker, tmp_path: Path) -> None:
    log = MadeLog()
    log.records(2, producer=4)
    log.records(1)
    source = log.write(tmp_path)
    with pytest.raises(RequestError, match=r"producer 4 is open from offset 0 on.*--abort-open-transactions"):
        restore(source, broker)
    assert pylogseg.read(url_of(broker)).to_arrow().num_rows == 0
    done = restore(source, broker, abort_open_transactions=True)
    assert (done.exit_code, done.partitions[0].log_end) == (0, 4)
    assert [row[0] for row in rows_of(url_of(broker), "read_committed")] == [2]
    assert [row[0] for row in rows_of(url_of(broker), "read_uncommitted")] == [0, 1, 2]


def test_damage_and_losses(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """Nothing is written; a hole that is a loss is not filled as if it were cleaned."""
    log = mixed_log()
    log.data[70] ^= 1
    with pytest.raises(CorruptionError):
        restore(log.write(tmp_path / "damaged"), broker)
    source = mixed_log().write(tmp_path / "lacking")
    (source / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    with pytest.raises(IncompleteError, match="--force"):
        restore(source, broker)
    with pytest.raises(RequestError, match="no topic"):
        restore(source, broker, topic="x")
    assert pylogseg.open_dir(url_of(broker)).topics == {}
    done = restore(source, broker, force=True)
    assert (done.exit_code, len(done.lacking)) == (1, 1)
    with pytest.raises(StorageError, match="cannot connect"):
        offline.restore_to_cluster(source, "kafka://127.0.0.1:1", force=True)


# ---- topics, groups, offsets ----


def settings_of(broker: pylogseg.Broker, topic: str) -> dict[str, str]:
    cluster = open_cluster(url_of(broker), {})[0].cluster
    found, _ = administering.read_topic_settings(cluster, topic)
    return found


def test_settings_of_topics(broker: pylogseg.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic has its own settings again at the end, also if a run was interrupted in between."""
    source = mixed_log().write(tmp_path, log_start=8)
    own = {"cleanup.policy": "compact", "retention.ms": "5000", "segment.bytes": "1234567"}
    broker.create_topic("t", 1, own)
    with monkeypatch.context() as patch:
        interrupt(patch, 9, before=True)
        with pytest.raises(Killed):
            restore(source, broker)
    assert settings_of(broker, "t")["retention.ms"] == "-1"
    assert restore(source, broker).exit_code == 0
    assert settings_of(broker, "t") == own
    assert broker.committed("pylogseg-restore") == {}


def test_settings_of_the_source(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """The metadata log has them, and the number of partitions."""
    source = mixed_log().write(tmp_path, "meta-5-1")
    shutil.copytree(DATA / "__cluster_metadata-0", source / "__cluster_metadata-0")
    metadata = ClusterMetadata.read(str(source / "__cluster_metadata-0"))
    assert restore(source, broker, topic="meta-5").exit_code == 0
    assert settings_of(broker, "meta-5") == metadata.of_topic("meta-5") != {}
    count = sum(topic_id == metadata.topic_ids["meta-5"] for topic_id, _ in metadata.replicas)
    assert len(pylogseg.open_dir(url_of(broker)).topics["meta-5"]) == count


def test_unknown_settings(broker: pylogseg.Broker, tmp_path: Path) -> None:
    done = restore(mixed_log().write(tmp_path), broker)
    assert settings_of(broker, "t") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert any("retention is off" in note for note in done.notes)


@pytest.fixture
def with_groups(tmp_path: Path) -> Path:
    """The disk of a broker with two groups; the one of the second topic is not restored."""
    with pylogseg.Broker(tmp_path / "source") as source:
        source.create_topic("orders", 2)
        source.create_topic("other", 1)
        for number in range(10):
            source.produce("orders", b"%d" % number, partition=0)
        cluster = open_cluster(url_of(source), {})[0].cluster
        for group, offset in (("a", 4), ("b", 10)):
            place, metadata = ("orders", 0), f"metadata of {group}"
            administering.commit_group_offsets(cluster, group, {place: administering.CommittedOffset(offset, metadata)})
        administering.commit_group_offsets(cluster, "c", {("other", 0): administering.CommittedOffset(0, "")})
    return tmp_path / "source"


def test_groups(broker: pylogseg.Broker, with_groups: Path) -> None:
    """They get what they had, with their metadata, if the topic is restored."""
    done = restore(with_groups, broker, topic="orders", dry_run=True)
    assert (done.groups, broker.committed("a")) == (2, {})
    assert restore(with_groups, broker, topic="orders", with_groups=False).groups == 0
    broker.fail("OffsetCommit", "UNKNOWN_MEMBER_ID", 1, group="b")
    done = restore(with_groups, broker, topic="orders")
    assert (done.groups, done.exit_code) == (1, 1)
    assert done.groups_failed[0] == (
        "group b: orders-0 was not committed: UNKNOWN_MEMBER_ID: it has members; stop them, and run the command again"
    )
    done = restore(with_groups, broker, topic="orders")
    assert (done.groups, done.exit_code) == (2, 0)
    assert [broker.committed(group) for group in "abc"] == [{("orders", 0): 4}, {("orders", 0): 10}, {}]
    cluster = open_cluster(url_of(broker), {})[0].cluster
    assert administering.read_group_offsets(cluster, "a", [("orders", 0)])["orders", 0].metadata == "metadata of a"


def test_groups_with_new_offsets(broker: pylogseg.Broker, with_groups: Path) -> None:
    broker.create_topic("orders", 2)
    broker.produce("orders", b"there before", partition=0)
    done = restore(with_groups, broker, topic="orders", offsets="new")
    assert (done.groups, done.exit_code) == (2, 0)
    assert [broker.committed(group)["orders", 0] for group in "ab"] == [5, 11]


def moved_rows(broker: pylogseg.Broker, ranges: list[dict[str, Any]]) -> Callable[[int], int | None]:
    def target_of(offset: int) -> int | None:
        return next((each["target"] + offset - each["first"] for each in ranges
                     if each["first"] <= offset < each["next"]), None)  # fmt: skip

    return target_of


def test_new_offsets(broker: pylogseg.Broker, tmp_path: Path) -> None:
    """Committed records go behind what is there; the map says where each went."""
    source = mixed_log().write(tmp_path, log_start=8)
    broker.create_topic("t", 1, {"message.timestamp.before.max.ms": str(2**62)})
    broker.produce("t", b"there before")
    done = restore(source, broker, offsets="new", map_file=tmp_path / "map.json")
    assert done.exit_code == 0, [row.reason for row in done]
    target_of = moved_rows(broker, json.loads((tmp_path / "map.json").read_text()))
    there = {row[0]: row[1:] for row in rows_of(url_of(broker), "read_committed")}
    rows = rows_of(source, "read_committed")
    assert [there[target_of(offset)] for offset, *_ in rows] == [tuple(rest) for _, *rest in rows]
    assert len(there) == len(rows) + 1
    (row,) = done
    assert [row.target_of(offset) for offset in (0, 8, 9, 10, 12)] == [1, 1, 2, 3, 3]
    assert row.target_of(10**6) == row.log_end == len(rows) + 1
    assert row.map[0] == (8, 10, 1)


# ---- the command ----


def test_the_command(broker: pylogseg.Broker, tmp_path: Path) -> None:
    source = mixed_log().write(tmp_path, log_start=8)
    planned = run("restore", source, "--to", url_of(broker), "t", "-n")
    assert planned.code == 0, planned.text
    assert "PARTITION" in planned.text
    assert "1 partition would be restored" in planned.text
    assert pylogseg.open_dir(url_of(broker)).topics == {}
    done = run("restore", source, "--to", url_of(broker), "--json")
    assert (done.code, [row["type"] for row in done.rows]) == (0, ["partition", "summary"])
    assert (done.rows[0]["logStart"], done.rows[0]["burned"], done.rows[0]["aborted"]) == (8, 7, 3)
    again = run("restore", source, "--to", url_of(broker))
    assert "all of it is there already, the same" in again.text
    expect(run("restore", source, "--to", url_of(broker), "--offsets", "new", "--map", tmp_path / "map.csv"), 0)
    assert (tmp_path / "map.csv").read_text().startswith("topic,partition,first,next,target\nt,0,8,10,")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("SRC URL", "write --to kafka://"),
        ("SRC", "Missing argument 'DST'"),
        ("SRC --to URL --overwrite", "--overwrite: not for a restore into a running cluster"),
        ("SRC --to URL --map x", "a map of offsets is for new offsets"),
        ("SRC --to URL/t", "name topics beside the URL"),
        ("SRC DST --offsets new", "need --to kafka://"),
        ("SRC --to URL --spark local", "works with threads of this machine"),
    ],
)
def test_wrong_usage(broker: pylogseg.Broker, tmp_path: Path, words: str, reason: str) -> None:
    source = mixed_log().write(tmp_path)
    names = {"SRC": source, "DST": tmp_path, "URL": url_of(broker), "URL/t": url_of(broker, "/t")}
    done = expect(run("restore", *(names.get(word, word) for word in words.split())), 2)
    assert reason in done.text + done.err
