"""Tests of cli/restore.py, offline/restoring/from_table.py, offline/restoring/partition.py, offline/restoring/tables.py
and transfer/staging.py. Partitions from tables of records: what they hold, how they are put in place, what a crash in
between leaves.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.kafka_storage import Kafka

import pylogseg
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.inspect.verify.disk import Level, VerifySummary, verify_disk
from pylogseg.offline.restoring.partition import PartitionWriter, RestoreOptions
from pylogseg.tables.short_forms import read_arrow
from pylogseg.transfer.staging import FORGOTTEN_MS, Staging, WrittenPart, finish_commits

COLUMNS = ["key", "value", "offset", "timestamp", "timestampType", "headers"]


def table(first: int, count: int, step: int = 1, **more: Any) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "offset": pa.array([first + i * step for i in range(count)], pa.int64()),
        "key": [None if i % 7 == 0 else b"k%d" % (i % 5) for i in range(count)],
        "value": [None if i % 11 == 3 else b"value %d" % i for i in range(count)],
        "timestamp": pa.array([1_700_000_000_000_000 + i * 1000 for i in range(count)], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict({**columns, **more})


def written(staging: Staging, task: str, topic: str, number: int, *tables: Any, **options: Any) -> WrittenPart:
    writer = PartitionWriter(LocalStorage(), staging.attempt_folder(task), topic, number, RestoreOptions(**options))
    for each in tables:
        writer.write(each)
    return writer.close()


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    """A staging area that is begun."""
    staging = Staging(str(tmp_path))
    staging.begin()
    return staging


def no_damage(root: Path) -> None:
    assert [r for r in verify_disk(pylogseg.open_dir(root), VerifySummary(Level.INDEXES)) if r.is_damage] == []


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_there_and_back(tmp_path: Path, staging: Staging, compression: str) -> None:
    tables = [table(100, 900, 3), table(2800, 50)]
    done = written(staging, "0", "orders", 3, *tables, compression=compression, batch_bytes=500, segment_bytes=4000)
    assert (done.first_offset, done.end_offset, done.records) == (100, 2850, 950)
    assert done.segments > 2
    (placed,) = staging.commit([done])
    assert placed.folder == str(tmp_path / "orders-3")
    got = read_arrow(str(tmp_path), "orders-3", columns=COLUMNS).read_all()
    expected = pa.Table.from_batches(tables)
    for name in ("offset", "key", "value", "timestamp"):
        assert got[name].to_pylist() == expected[name].to_pylist(), name
    assert set(got["timestampType"].to_pylist()) == {0}
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["orders-3"]
    assert (tmp_path / "orders-3" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 100\n"
    no_damage(tmp_path)


def test_assigned_offsets_and_topic_ids(tmp_path: Path, staging: Staging) -> None:
    options = {"offsets": "assign", "base_offset": 40, "topic_ids": {"orders": "qvJxX8QJTdCZPuKqMEMk1w"}}
    done = written(staging, "0", "orders", 0, table(7, 5), table(3, 5), **options)
    staging.commit([done])
    assert read_arrow(str(tmp_path), columns=["offset"]).read_all()["offset"].to_pylist() == list(range(40, 50))
    assert "qvJxX8QJTdCZPuKqMEMk1w" in (tmp_path / "orders-0" / "partition.metadata").read_text()


def test_times_of_the_broker(tmp_path: Path, staging: Staging) -> None:
    """Batches of the broker's time keep it; those beside them, of the producer's, stay what they are."""
    kinds = pa.array([0, 0, 1, 1, 1, 0, 1, None], pa.int32())
    times = pa.array([5, 6, 9, 9, 10, 3, 12, 13], pa.int64())
    rows = table(0, 8, timestampType=kinds, timestamp=times)
    staging.commit([written(staging, "0", "t", 0, rows)])
    got = read_arrow(str(tmp_path), columns=["timestamp", "timestampType"]).read_all()
    assert got["timestampType"].to_pylist() == [0, 0, 1, 1, 1, 0, 1, 0]
    assert [int(t.timestamp() * 1000 + 0.5) for t in got["timestamp"].to_pylist()] == times.to_pylist()
    other = Staging(str(tmp_path / "other"))
    other.begin()
    other.commit([written(other, "0", "t", 0, rows, timestamp_type="create")])
    assert set(read_arrow(other.root, columns=["timestampType"]).read_all()["timestampType"].to_pylist()) == {0}


def test_far_offsets(tmp_path: Path, staging: Staging) -> None:
    """Offsets that do not fit in one batch or one segment begin others."""
    far = [0, 1, 2**31 + 5, 2**31 + 6, 2**40]
    staging.commit([written(staging, "0", "t", 0, table(0, 5, offset=pa.array(far)))])
    assert read_arrow(str(tmp_path), columns=["offset"]).read_all()["offset"].to_pylist() == far
    no_damage(tmp_path)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([table(5, 3), table(7, 1)], "t-0: offset 7 comes after 7; offsets must ascend"),
        ([table(0, 2, offset=pa.array([1, 1]))], "offset 1 comes after 1"),
        ([table(0, 2, offset=pa.array([1, None]))], "an offset is null"),
        ([table(0, 2).drop_columns(["offset"])], "no column .offset. to keep; use offsets=assign"),
        ([table(0, 2, value=[1, 2])], "column 'value'"),
        ([], "t-0: there are no records"),
    ],
)
def test_refusals(tmp_path: Path, staging: Staging, tables: list[Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        written(staging, "0", "t", 0, *tables)
    staging.abort()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offsets": "x"}, "invalid offsets"),
        ({"compression": "brotli"}, "unknown compression 'brotli'"),
        ({"batch_bytes": 10, "segment_bytes": 5}, "must fit"),
        ({"timestamp_type": "now"}, "invalid timestampType"),
        ({"base_offset": -1}, "begin at 0"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RestoreOptions(**options)


def test_a_name_that_leads_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        PartitionWriter(LocalStorage(), str(tmp_path), "../other", 0, RestoreOptions())


def test_parts_of_one_partition(tmp_path: Path, staging: Staging) -> None:
    """Tasks that wrote ranges of one partition; the attempts that do not count leave nothing."""
    second = written(staging, "1", "t", 0, table(50, 30))
    first = written(staging, "0", "t", 0, table(0, 50))
    written(staging, "0", "t", 0, table(0, 50))  # a speculated attempt
    (placed,) = staging.commit([second, first])
    assert (placed.first_offset, placed.end_offset, placed.records, placed.segments) == (0, 80, 80, 2)
    assert read_arrow(str(tmp_path), columns=["offset"]).read_all()["offset"].to_pylist() == list(range(80))
    assert not [path for path in tmp_path.iterdir() if "staging" in path.name]
    no_damage(tmp_path)
    with pylogseg.open_log(tmp_path / "t-0") as log:  # and it goes on
        assert log.append([(None, b"k", b"v")]).first_offset == 80


def test_overlaps_and_what_is_there(tmp_path: Path, staging: Staging) -> None:
    parts = [written(staging, "0", "t", 0, table(0, 50)), written(staging, "1", "t", 0, table(49, 5))]
    with pytest.raises(RequestError, match=r"t-0: two tasks wrote offsets 49 to 49"):
        staging.commit(parts)
    staging.commit(parts[:1])
    again = Staging(str(tmp_path))
    again.begin()
    other = written(again, "0", "t", 0, table(1000, 2))
    with pytest.raises(RequestError, match="it already exists; mode overwrite"):
        again.commit([other])
    again.commit([other], overwrite=True)
    assert read_arrow(str(tmp_path), columns=["offset"]).read_all()["offset"].to_pylist() == [1000, 1001]
    assert not list(tmp_path.glob("*-delete"))


def test_checkpoints_of_what_was_replaced(tmp_path: Path) -> None:
    """A checkpoint of the log that was there must not cut the new one."""
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / name).write_text("0\n2\nt 0 700\nother 1 5\n")
    staging = Staging(str(tmp_path))
    staging.begin()
    staging.commit([written(staging, "0", "t", 0, table(0, 50))])
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nother 1 5\n"
    assert len(read_arrow(str(tmp_path), "t").read_all()) == 50


def test_a_second_commit_changes_nothing(tmp_path: Path, staging: Staging) -> None:
    done = written(staging, "0", "t", 0, table(0, 50))
    placed = staging.commit([done])
    with pylogseg.open_log(tmp_path / "t-0") as log:
        log.append([(None, b"k", b"v")])
    assert Staging(str(tmp_path), staging.write_id).commit([done]) == placed
    assert len(read_arrow(str(tmp_path)).read_all()) == 51
    with pytest.raises(StorageError, match=r"the write has ended, or this machine .* does not share"):
        staging.attempt_folder("2")


class Dies(Exception):
    """The process ends here."""


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_crash_at_any_rename(tmp_path: Path, overwrite: bool) -> None:
    """Before the plan is written nothing counts, behind it everything: whoever comes next finishes it."""
    moves = 0
    for dies_at in range(100):
        root = tmp_path / str(dies_at)
        if overwrite:
            old = Staging(str(root))
            old.begin()
            old.commit([written(old, "0", "t", n, table(500, 3)) for n in range(2)])

        class Storage(LocalStorage):
            renames = 0

            def rename(self, path: str, new_path: str) -> None:
                if self.renames == dies_at:  # noqa: B023
                    raise Dies
                type(self).renames += 1
                super().rename(path, new_path)

        storage = Storage()
        staging = Staging(str(root), storage=storage)
        staging.begin()
        parts = [written(staging, "0", "t", n, table(10 * n, 5)) for n in range(3)]
        parts.append(written(staging, "1", "t", 0, table(5, 5)))
        try:
            staging.commit(parts, overwrite=overwrite)
            break
        except Dies:
            moves += 1
        planned = (Path(staging.folder) / "commit.json").exists()
        assert bool(finish_commits(str(root))) == planned
        got = (
            {p.name: len(read_arrow(p.path).read_all()) for p in pylogseg.open_dir(root).topics.get("t", [])}
            if (planned or overwrite)
            else {}
        )
        before = {"t-0": 3, "t-1": 3} if overwrite else {}
        assert got == ({"t-0": 10, "t-1": 5, "t-2": 5} if planned else before)
        assert planned or Path(staging.folder).exists()
    assert moves > 3


def test_what_is_forgotten_goes(tmp_path: Path, staging: Staging) -> None:
    written(staging, "0", "t", 0, table(0, 5))
    now = Path(staging.folder).stat().st_mtime_ns // 1_000_000
    assert finish_commits(str(tmp_path), now_ms=lambda: now + FORGOTTEN_MS - 60_000) == []
    assert finish_commits(str(tmp_path), now_ms=lambda: now + FORGOTTEN_MS + 60_000) == []
    assert list(tmp_path.iterdir()) == []


def test_readers_and_brokers_pass_by(tmp_path: Path, examples: Path) -> None:
    """What is written apart is none of the live partitions, and has a name that a broker removes."""
    shutil.copytree(examples, tmp_path / "data")
    before = [p.name for p in pylogseg.open_dir(tmp_path / "data").partitions if not p.state]
    staging = Staging(str(tmp_path / "data"))
    staging.begin()
    written(staging, "0", "t", 0, table(0, 5))
    disk = pylogseg.open_dir(tmp_path / "data")
    assert [p.name for p in disk.partitions if not p.state] == before
    assert [p.state for p in disk.partitions if p.state] == ["delete"]


def test_kafka_opens_it(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka's own log opens a restored partition without touching it, and takes the next record."""
    staging = Staging(str(tmp_path / "data"))
    staging.begin()
    options = {"compression": "lz4", "batch_bytes": 600, "segment_bytes": 3000}
    staging.commit([written(staging, "0", "t", 0, table(100, 400, 2), **options)])
    files = sorted((tmp_path / "data" / "t-0").iterdir())
    answers, work = kafka.replay(
        [
            {"op": "create", "topic": "t", "partition": 0, "now": 1_700_000_100_000, "config": {}},
            {"op": "crash"},
            {"op": "file", "action": "delete", "name": f"{0:020}.log"},
            *({"op": "file", "action": "write", "name": path.name, "hex": path.read_bytes().hex()} for path in files),
            {"op": "open", "clean": False, "log_start": 100},
            {"op": "capture", "keep": "opened"},
            {"op": "append", "hex": pylogseg.encode([(5, None, b"one more")]).hex(), "epoch": 0},
        ]
    )
    assert [answer["error"] for answer in answers if "error" in answer] == []
    opened = answers[-3]["state"]
    assert (opened["start"], opened["end"], opened["epochs"]) == (100, 899, [[0, 100]])
    assert answers[-1]["result"]["first_offset"] == 899
    kept = {path.name: path.read_bytes() for path in (work / "opened").rglob("*.log")}
    assert kept == {path.name: path.read_bytes() for path in files if path.suffix == ".log"}
