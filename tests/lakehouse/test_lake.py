"""Tests of cli/lake.py, lakehouse/delta.py, lakehouse/ducklake.py, lakehouse/files.py, lakehouse/iceberg.py,
lakehouse/lake.py and lakehouse/sinks.py. What `pylogseg.lake` writes to tables, and which logs it refuses.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import lake_tables
from helpers.depth import IS_DEEP
from helpers.lake_tables import consumed, log_rows, name_of, plain, rows_of, told
from helpers.shell import expect
from helpers.shell import pylogseg as shell
from helpers.typed_logs import append_later_orders, write_orders

import pylogseg
from pylogseg.env.executor import Threads
from pylogseg.errors import CorruptionError, IncompleteError, RequestError, StorageError
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs, encode_offset_checkpoint
from pylogseg.lakehouse import lake
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.sinks import ConflictError, sink_of

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


def write_log(root: Path, count: int, topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ") -> None:
    """Append records, an hour apart, to a partition of `orders`, with the id of its topic."""
    folder = root / "orders-0"
    with pylogseg.open_log(folder, segment_bytes=4_000, index_interval_bytes=500) as log:
        first = log.log_end_offset
        times = pa.array([3_600_000 * n for n in range(first, first + count)], pa.timestamp("ms", "UTC"))
        values = pa.array([b"value %d" % n for n in range(first, first + count)], pa.binary())
        log.append(pa.table({"timestamp": times, "value": values}), batch_bytes=400)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def set_watermark(root: Path, offset: int) -> None:
    (root / "replication-offset-checkpoint").write_bytes(encode_offset_checkpoint({("orders", 0): offset}))


@pytest.mark.parametrize("scenario", ["codecs", "txn", "compact-5-cleaned"])
def test_rows_are_what_a_consumer_got(golden: Path, tmp_path: Path, kind: str, scenario: str) -> None:
    """Of a real Kafka 4.3, with read_committed: all codecs, aborted and open transactions, compacted topics."""
    if scenario == "codecs" and kind != "delta":
        pytest.skip("three formats have the same files: the largest of the three is written once")
    folder = golden / "broker-4.3" / scenario
    expected: dict[str, list[dict[str, Any]]] = {}
    for row in consumed(folder):
        expected.setdefault(row["topic"], []).append(row)
    disks = [folder / "data0", folder / "data1"]
    # Their checkpoints know more topics, whose folders are not here.
    topics = [topic for topic in pylogseg.open_dir(disks).topics if not topic.startswith("__")]
    done = pylogseg.lake(disks, name_of(kind, tmp_path / "out", "{topic}"), topics)
    assert {each.topic for each in done if each.records} == {name for name in expected if not name.startswith("__")}
    for each in (each for each in done if each.records):
        rows = [told(row) for row in plain(rows_of(name_of(kind, tmp_path / "out", each.topic)))]
        assert rows == sorted(expected.get(each.topic, []), key=lambda row: (row["partition"], row["offset"]))
        assert each.records == len(rows)
        assert pylogseg.audit(disks, each.table, each.topic).is_right


def test_a_run_goes_on_where_the_table_ends(tmp_path: Path, kind: str) -> None:
    table = name_of(kind, tmp_path / "out", "orders")
    for count in (300, 0, 250, 1):
        write_log(tmp_path / "data", count)
        (done,) = pylogseg.lake(tmp_path / "data", table, commit_bytes=3_000, file_bytes=2_000)
        assert (done.records, done.commits > 1) == (count, count > 1)
        assert plain(rows_of(table)) == log_rows(tmp_path / "data", "orders")


def test_an_unchanged_second_run_reads_no_record(tmp_path: Path, kind: str) -> None:
    write_log(tmp_path / "data", 300)
    set_watermark(tmp_path / "data", 300)
    table = name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(tmp_path / "data", table)
    for path in (tmp_path / "data" / "orders-0").glob("*.log"):
        path.write_bytes(b"?" * path.stat().st_size)
    (done,) = pylogseg.lake(tmp_path / "data", table)
    assert (done.commits, done.offsets) == (0, {0: (0, 300)})


def test_progress_counts_what_the_table_has_already(tmp_path: Path) -> None:
    """A bar of the size of the log comes to its end, however much of that is new."""
    data, table = tmp_path / "data", name_of("delta", tmp_path / "out", "orders")
    for count in (300, 50, 0):
        write_log(data, count)
        whole, disk = sum(path.stat().st_size for path in data.glob("*/*.log")), pylogseg.open_dir(data)
        sizes: list[int] = []
        assert [
            each.error for each in lake.write_tables(disk, disk, table, lake.LakeOptions(), Threads(), sizes.append)
        ]
        assert whole <= sum(sizes) <= 1.2 * whole  # an index tells where to begin to within some batches
        assert (sizes[0] > whole / 2) == (count < 300)


def test_the_high_watermark_is_the_end_of_what_is_written(tmp_path: Path, kind: str) -> None:
    write_log(tmp_path / "data", 300)
    set_watermark(tmp_path / "data", 123)
    table = name_of(kind, tmp_path / "out", "orders")
    (done,) = pylogseg.lake(tmp_path / "data", table)
    assert (done.records, done.offsets, done.waiting) == (123, {0: (0, 123)}, {0: 177})
    assert pylogseg.lake(tmp_path / "data", table, to_end=True)[0].records == 177
    assert plain(rows_of(table)) == log_rows(tmp_path / "data", "orders")


def test_files_have_one_day_each(tmp_path: Path, kind: str) -> None:
    write_log(tmp_path / "data", 100)  # of four days and four hours
    table = name_of(kind, tmp_path / "out", "orders")
    assert pylogseg.lake(tmp_path / "data", table)[0].files == 5
    if kind == "iceberg":
        parts = lake_tables.catalog_of(tmp_path / "out").load_table(("kafka", "orders")).inspect.partitions()
        assert sorted(parts.column("record_count").to_pylist()) == [4, 24, 24, 24, 24]
    if kind == "delta":
        found = rows_of(table)
        assert found.column("date").equals(found.column("timestamp").cast(pa.date32()))


def test_days_in_any_order_make_no_more_files_than_days(tmp_path: Path) -> None:
    days = np.random.default_rng(5).permutation(np.arange(400) % 40)
    with pylogseg.open_log(tmp_path / "data" / "orders-0") as log:
        times = pa.array(days * 86_400_000 + np.arange(400), pa.timestamp("ms", "UTC"))
        log.append(pa.table({"timestamp": times, "value": pa.array([b"value"] * 400, pa.binary())}), batch_bytes=400)
    table = name_of("delta", tmp_path / "out", "orders")
    assert pylogseg.lake(tmp_path / "data", table)[0].files == 40
    assert plain(rows_of(table)) == log_rows(tmp_path / "data", "orders")


def other_topic_id(data: Path) -> None:
    (data / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")


def begins_later(data: Path) -> None:
    write_log(data, 100)
    (data / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint({("orders", 0): 320}))


def another_leader(data: Path) -> None:
    """The epoch of the table's last row ends before it: a leader was elected that did not have that."""
    write_log(data, 100)
    entries = [EpochEntry(0, 0), EpochEntry(7, 290)]
    (data / "orders-0" / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))


def lost_segment(data: Path) -> None:
    write_log(data, 300)
    logs = sorted((data / "orders-0").glob("*.log"))
    for path in (data / "orders-0").glob(f"{logs[-3].stem}.*"):
        path.unlink()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (other_topic_id, RequestError, "id AAAAAAAAAAAAAAAAAAAAAQ, and the log has the id AAAAAAAAAAAAAAAAAAAAAg"),
        (begins_later, RequestError, "offsets 300 to 319 were deleted before they were written"),
        (another_leader, RequestError, "leaves epoch 0 at offset 290"),
        (lost_segment, IncompleteError, "to go on with what there is, force it"),
    ],
)  # fmt: skip
def test_refused_logs(
    tmp_path: Path, kind: str, change: Callable[[Path], None], error: type[Exception], says: str
) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_log(data, 300)
    pylogseg.lake(data, table)
    before = rows_of(table)
    change(data)
    with pytest.raises(error, match=says):
        pylogseg.lake(data, table)
    assert rows_of(table).equals(before)


def test_what_is_forced_is_said_in_the_ledger(tmp_path: Path) -> None:
    data, table = tmp_path / "data", name_of("delta", tmp_path / "out", "orders")
    write_log(data, 300)
    pylogseg.lake(data, table)
    begins_later(data)
    assert pylogseg.lake(data, table, force=True)[0].records == 80
    ledger = json.loads(lake_tables.newest_commit(table)["pylogseg.ledger"])
    assert ledger["partitions"] == {"0": [0, 400, 0, [[300, 320]]]}


def test_an_older_copy_of_the_log_is_refused(tmp_path: Path, kind: str) -> None:
    """What it gets next has offsets that the table has of other records; an audit names it, too."""
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_log(data, 300)
    shutil.copytree(data, tmp_path / "older")
    write_log(data, 100)
    pylogseg.lake(data, table)
    for mark in (None, 300, 250):
        if mark is not None:
            set_watermark(tmp_path / "older", mark)
        with pytest.raises(RequestError, match="ends at offset 400 of orders-0, and the log ends at 300"):
            pylogseg.lake(tmp_path / "older", table)
    found = pylogseg.audit(tmp_path / "older", table)
    assert [(each.kind, each.is_wrong) for each in found.findings] == [("ledger", True)]
    assert not found.is_right
    with pylogseg.open_log(tmp_path / "older" / "orders-0") as log:
        log.append([{"value": b"other"}] * 99)
    with pytest.raises(RequestError, match="the log ends at 399"):
        pylogseg.lake(tmp_path / "older", table, force=True)


def test_tables_of_others_and_of_other_options_are_refused(tmp_path: Path, kind: str) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_log(data, 10)
    pylogseg.lake(data, table)
    write_log(data, 10)
    with pytest.raises(RequestError, match="it was written with read_committed, and read_uncommitted is asked for"):
        pylogseg.lake(data, table, isolation_level="read_uncommitted")
    os.rename(data / "orders-0", data / "bills-0")
    with pytest.raises(RequestError, match="it has the topic orders, not bills"):
        pylogseg.lake(data, table)
    if kind == "delta":
        from deltalake import write_deltalake

        rows = pylogseg.read_arrow(data, "bills").read_all()
        write_deltalake(tmp_path / "theirs", rows.append_column("date", rows["timestamp"].cast(pa.date32())),
                        partition_by=["date"])  # fmt: skip
        with pytest.raises(RequestError, match="did not make this table"):
            pylogseg.lake(data, f"delta:{tmp_path}/theirs")


def test_what_does_not_decode_is_a_dead_letter(tmp_path: Path, kind: str) -> None:
    data = write_orders(tmp_path / "data", 500)
    table = name_of(kind, tmp_path / "out", "orders")
    how = {"decoding": "value", "registry": data / "schemas"}
    (done,) = pylogseg.lake(data, table, **how)
    assert (done.records, done.dead_letters) == (495, 5)
    lake_tables.check(data, table)
    typed = pylogseg.read_arrow(data, "orders", decoding="value", registry=data / "schemas").read_all()
    values = [row for row in typed.column("value").to_pylist() if row is not None]
    written = rows_of(table).column("value").to_pylist()
    assert [row["id"] for row in written] == [row["id"] for row in values]
    assert [row["who"] for row in written] == [row["who"] for row in values]
    assert all("not enough" in row or "frame" in row for row in rows_of(f"{table}~dlq").column("error").to_pylist())
    found = pylogseg.audit(data, table)
    assert (found.is_right, found.partitions[0].present, found.partitions[0].missing["deadLetters"]) == (True, 495, 5)


def test_a_schema_that_grows_does_so_in_the_commit_of_its_rows(tmp_path: Path, kind: str) -> None:
    data, table = write_orders(tmp_path / "data", 200), name_of(kind, tmp_path / "out", "orders")
    how = {"decoding": "value", "registry": data / "schemas"}
    pylogseg.lake(data, table, **how)
    append_later_orders(data, 20)
    how["schema"] = 8
    (done,) = pylogseg.lake(data, table, commit_bytes=1_000, file_bytes=500, **how)
    assert (done.records, done.dead_letters) == (20, 0)
    assert pylogseg.lake(data, table, **how)[0].commits == 0
    read = pylogseg.read_arrow(data, "orders", **how).read_all()
    rows = [row for row in read.column("value").to_pylist() if row is not None]
    assert [row["note"] for row in rows] == [None] * 198 + ["note"] * 20
    written = rows_of(table).column("value").to_pylist()
    assert [(row["id"], row["note"]) for row in written] == [(row["id"], row["note"]) for row in rows]
    if kind == "delta":
        assert lake_tables.newest_commit(table)["pylogseg.ledger"]
    if kind == "iceberg":
        theirs = lake_tables.catalog_of(tmp_path / "out").load_table(("kafka", "orders"))
        assert [each.schema_id for each in theirs.snapshots()][-2:] == [0, 1]
        assert len(theirs.metadata.metadata_log) == len(theirs.snapshots())  # no commit without rows but the first
    audit = pylogseg.audit(data, table)
    assert (audit.is_right, audit.partitions[0].present) == (True, 218)
    append_later_orders(data, 5)
    pylogseg.lake(data, table, **{**how, "schema": 7})  # the table keeps what these rows have not
    assert [row["note"] for row in rows_of(table).column("value").to_pylist()[-6:]] == ["note", *[None] * 5]


def test_a_type_that_does_not_fit_is_refused(tmp_path: Path, kind: str) -> None:
    data, table = write_orders(tmp_path / "data", 100), name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(data, table, decoding="value", registry=data / "schemas")
    write_orders(data, 10)
    with pytest.raises(RequestError, match=r"column value is struct<.*, and rows have binary: write another table"):
        pylogseg.lake(data, table)


def test_a_commit_whose_answer_is_lost_is_not_made_again(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_log(data, 300)
    sink = type(sink_of(TableName.parse(table)))
    real = sink.commit

    def lost(self: Any, *given: Any) -> None:
        real(self, *given)
        raise TimeoutError("no answer")

    monkeypatch.setattr(sink, "commit", lost)
    (done,) = pylogseg.lake(data, table, commit_bytes=3_000, file_bytes=2_000)
    assert done.commits > 1
    assert plain(rows_of(table)) == log_rows(data, "orders")

    def refused(self: Any, *given: Any) -> None:
        raise TimeoutError("no answer")

    write_log(data, 100)
    monkeypatch.setattr(sink, "commit", refused)
    with pytest.raises(StorageError, match="TimeoutError: no answer"):
        pylogseg.lake(data, table)
    monkeypatch.setattr(sink, "commit", real)
    assert pylogseg.lake(data, table, clean=True)[0].removed
    assert plain(rows_of(table)) == log_rows(data, "orders")


def test_runs_that_decode_differently_put_no_record_into_both_tables(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has the schema of some records, the other has not; each ends after its dead letters while the other runs."""
    data = write_orders(tmp_path / "data", 100)
    (tmp_path / "less").mkdir()
    shutil.copy(data / "schemas" / "7.avsc", tmp_path / "less" / "7.avsc")
    append_later_orders(data, 20)
    all_of_it = {"decoding": "value", "schema": 7, "registry": data / "schemas"}
    less = {**all_of_it, "registry": tmp_path / "less"}
    sink = type(sink_of(TableName.parse(name_of(kind, tmp_path / "out", "orders"))))
    real = sink.commit

    def only_letters(self: Any, *given: Any) -> None:
        if not self.name.endswith("~dlq"):
            raise TimeoutError("killed")
        real(self, *given)

    def meanwhile(self: Any, *given: Any) -> None:
        """Of the first run, just before its first commit: the other run, up to its dead letters."""
        monkeypatch.setattr(sink, "commit", only_letters)
        with pytest.raises(StorageError, match="killed"):
            pylogseg.lake(data, table, **less)
        monkeypatch.setattr(sink, "commit", real)
        real(self, *given)

    table = name_of(kind, tmp_path / "out", "orders")
    monkeypatch.setattr(sink, "commit", meanwhile)
    assert pylogseg.lake(data, table, **all_of_it)[0].records == 99
    found = [rows_of(each).column("offset").to_pylist() for each in (table, f"{table}~dlq")]
    assert sorted(found[0] + found[1]) == list(range(120))
    other = name_of(kind, tmp_path / "other", "orders")
    monkeypatch.setattr(sink, "commit", only_letters)
    with pytest.raises(StorageError, match="killed"):
        pylogseg.lake(data, other, **all_of_it)
    monkeypatch.setattr(sink, "commit", real)
    monkeypatch.setattr(lake, "_CONFLICTS", 2)
    with pytest.raises(StorageError, match="offset 100 of orders-0 does not decode, and another run"):
        pylogseg.lake(data, other, **less)
    assert pylogseg.lake(data, other, **all_of_it)[0].records == 119
    assert len(rows_of(f"{other}~dlq")) == 1


def test_another_run_that_comes_first_wins(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before each commit of a run, another one writes what there is; and its files do not stay."""
    data, table = tmp_path / "data", name_of(kind, tmp_path / "out", "orders")
    write_log(data, 300)
    sink = type(sink_of(TableName.parse(table)))
    real, conflicts = sink.commit, []

    def late(self: Any, *given: Any) -> None:
        monkeypatch.setattr(sink, "commit", real)
        assert pylogseg.lake(data, table)[0].records > 0
        try:
            real(self, *given)
        except ConflictError as error:
            conflicts.append(error)
            raise

    for count in (0, 100):
        write_log(data, count)
        monkeypatch.setattr(sink, "commit", late)
        assert pylogseg.lake(data, table)[0].records == 0
        assert plain(rows_of(table)) == log_rows(data, "orders")
    assert len(conflicts) == 2
    assert pylogseg.lake(data, table, clean=True)[0].removed == []


def test_what_others_do_to_a_table_does_not_hide_its_ledger(tmp_path: Path) -> None:
    """Compaction, a restored version, and a log of which old commits were removed."""
    from deltalake import DeltaTable

    data, table = tmp_path / "data", name_of("delta", tmp_path / "out", "orders")
    path = table.removeprefix("delta:")
    for count in (100, 100):
        write_log(data, count)
        pylogseg.lake(data, table)
    before = DeltaTable(path).version()
    DeltaTable(path).optimize.compact()
    write_log(data, 100)
    assert pylogseg.lake(data, table)[0].records == 100
    DeltaTable(path).restore(before - 1)
    assert len(rows_of(table)) == 100
    assert pylogseg.lake(data, table)[0].records == 200
    assert plain(rows_of(table)) == log_rows(data, "orders")
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    for commit in sorted(Path(path, "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    write_log(data, 50)
    assert pylogseg.lake(data, table)[0].records == 50
    assert plain(rows_of(table)) == log_rows(data, "orders")


def test_snapshots_of_others_do_not_hide_the_ledger(tmp_path: Path) -> None:
    """A snapshot of somebody else, a rollback, and snapshots that expired."""
    data, table = tmp_path / "data", name_of("iceberg", tmp_path / "out", "orders")
    first = None
    for count in (100, 100):
        write_log(data, count)
        pylogseg.lake(data, table)
        theirs = lake_tables.catalog_of(tmp_path / "out").load_table(("kafka", "orders"))
        first = first or theirs.current_snapshot().snapshot_id
    theirs.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert len(rows_of(table)) == 100
    assert pylogseg.lake(data, table)[0].records == 100
    theirs.refresh()
    theirs.delete("offset = 7")
    newest = theirs.refresh().current_snapshot().snapshot_id
    others = [each.snapshot_id for each in theirs.snapshots() if each.snapshot_id != newest]
    theirs.maintenance.expire_snapshots().by_ids(others).commit()
    write_log(data, 50)
    assert pylogseg.lake(data, table)[0].records == 50
    assert plain(rows_of(table)) == [row for row in log_rows(data, "orders") if row["offset"] != 7]


def run_program(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, lake_tables.__file__, *map(str, arguments)], capture_output=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_run_that_is_killed_anywhere_is_ended_by_the_next(tmp_path: Path, kind: str) -> None:
    data = write_orders(tmp_path / "data", 400 if IS_DEEP else 250)
    places = 50 if IS_DEEP else 5
    assert f"{places} of" in run_program(kind, data, tmp_path / "out" / "tables", "kill", places)


def test_runs_at_the_same_time(tmp_path: Path, kind: str) -> None:
    data = write_orders(tmp_path / "data", 250)
    run_program(kind, data, tmp_path / "out", "together", 3)


def test_the_command(tmp_path: Path) -> None:
    data, table = tmp_path / "data", name_of("iceberg", tmp_path / "out", "orders")
    write_log(data, 100)
    set_watermark(data, 90)
    done = shell("lake", str(data), "orders", table)
    says = rf"{re.escape(table)}: 90 records in 4 files, \d\.\d kB, 10 offsets not committed in the log yet\n"
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(says, done.text)  # the size is that of a version of pyarrow
    done = expect(shell("lake", data, table, "--json", "--to-end"), 0)
    assert [(row["topic"], row["records"], row["partitions"]) for row in done.rows] == [
        ("orders", 10, [{"partition": 0, "firstOffset": 0, "nextOffset": 100, "waiting": 0}])
    ]
    other_topic_id(data)
    expect(shell("lake", data, table), 2, "the topic was deleted and made again")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_damage_anywhere_is_said(tmp_path: Path, kind: str, on_corrupt: Any) -> None:
    """In a closed segment, in the active one, in its last batch: never a table that silently ends there."""
    write_log(tmp_path / "data", 100)
    logs = sorted((tmp_path / "data" / "orders-0").glob("*.log"))
    places = [(log, at) for log in (logs[0], logs[-1]) for at in (100, log.stat().st_size // 2, log.stat().st_size - 5)]
    for number, (log, at) in enumerate(places):
        whole = log.read_bytes()
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        table = name_of(kind, tmp_path / f"out{number}", "orders")
        if on_corrupt == "raise":
            with pytest.raises(CorruptionError, match=log.name):
                pylogseg.lake(tmp_path / "data", table)
        else:
            (done,) = pylogseg.lake(tmp_path / "data", table, on_corrupt="skip")
            assert [gap.path.endswith(log.name) and gap.is_damage for gap in done.gaps] == [True], at
            read = pylogseg.read_arrow(tmp_path / "data", on_corrupt="skip").read_all()
            assert done.records == read.num_rows
        log.write_bytes(whole)
