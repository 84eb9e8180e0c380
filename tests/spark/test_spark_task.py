"""Tests of spark/frames.py. What tasks read, without Spark: the rows of plain Python, however a log is cut, and
whatever happened since.
"""

import collections
import itertools
import shutil

import fsspec
import pyarrow as pa
import pytest
from helpers.checks import some
from helpers.depth import IS_DEEP, diagonals, some_of
from helpers.golden_brokers import BROKERS
from helpers.spark_logs import append, plain, rows, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.reading.arrow.sizes import of_even_size
from pylogseg.spark.frames import plan_batches
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan

ISOLATIONS = ["read_uncommitted", "read_committed"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return append(tmp_path_factory.mktemp("task") / "orders-0", 5000).parent


@pytest.fixture
def copy(log, tmp_path):
    return shutil.copytree(log, tmp_path / "copy")


def segments(root):
    return sorted((root / "orders-0").glob("*.log"))


@pytest.mark.parametrize(("name", "isolation_level"), diagonals(BROKERS, ISOLATIONS, 2))
def test_golden_brokers(golden, name, isolation_level):
    for log_dir in some(sorted((golden / name).glob("data*"))):
        expected = plain(log_dir, isolation_level=isolation_level, on_corrupt="skip")
        options = {"isolationLevel": isolation_level, "onCorrupt": "skip"}
        assert rows(str(log_dir), **options) == expected
        assert rows(str(log_dir), **options, rangeBytes=3000) == expected


@pytest.mark.parametrize("isolation_level", ISOLATIONS)
def test_golden_replays(golden, tmp_path, isolation_level):
    records = 0
    for final in some_of(sorted((golden / "replay").glob("*/final")), 25):
        folder = shutil.copytree(final, tmp_path / f"{final.parent.name}-0")
        expected = plain(folder, isolation_level=isolation_level, on_corrupt="skip")
        options = {"isolationLevel": isolation_level, "onCorrupt": "skip", "rangeBytes": 1000}
        assert rows(str(folder), **options) == expected, folder
        records += len(expected)
    assert records > (1000 if IS_DEEP else 300)


@given(st.data())
@settings(max_examples=min(25, settings().max_examples))
def test_any_cut_gives_the_same_rows(examples, data):
    isolation_level = data.draw(st.sampled_from(ISOLATIONS))
    name = data.draw(st.sampled_from(["txn-a-1", "txn-b-0", "codec-gzip-0", "cmp-txn-0", "mixed-0", "legacy-0"]))
    path, options = str(examples / name), {"isolationLevel": isolation_level}
    expected = plain(path, isolation_level=isolation_level)
    assert rows(path, **options) == expected
    cuts = {"rangeBytes": st.integers(200, 20_000), "minPartitions": st.integers(1, 40),
            "maxRecordsPerPartition": st.integers(3, 60), "batchRows": st.integers(1, 300)}  # fmt: skip
    chosen = data.draw(st.lists(st.sampled_from(sorted(cuts)), unique=True))
    assert rows(path, **options, **{name: data.draw(cuts[name]) for name in chosen}) == expected


def test_urls(log):
    memory = fsspec.filesystem("memory")
    memory.put(str(log), "/spark-task", recursive=True)
    try:
        assert rows("memory://spark-task", rangeBytes=20_000) == plain(log)
        committed = rows("memory://spark-task", isolationLevel="read_committed")
        assert committed == plain(log)
    finally:
        memory.rm("/spark-task", recursive=True)


def test_columns(log):
    (row,) = rows(str(log), ["offset", "position", "segment"], startingOffsets='{"orders":{"0":4999}}')
    assert list(row) == ["offset", "position", "segment"]
    assert row["segment"] == segments(log)[-1].name


def test_batches_are_of_even_size():
    sizes = [1, 1, 99, 5, 250, 3, 1000]
    made = [pa.record_batch({"n": pa.array(range(size))}) for size in sizes]
    found = list(of_even_size(iter(made), 100, 1 << 20))
    assert [batch.num_rows for batch in found] == [101, 5, 125, 125, 3, *[100] * 10]
    whole = pa.Table.from_batches(found)
    assert whole == pa.Table.from_batches(made).cast(whole.schema)
    # Merged up to a quarter of the bytes, cut at all of them; a row that is larger is alone.
    lengths = [1, 1, 300, 2, 3900, 8, 10, 10]
    made = [pa.record_batch({"b": pa.array([bytes(length)] * 10, pa.large_binary())}) for length in lengths]
    found = list(of_even_size(iter(made), 1000, 4000))
    assert [batch.num_rows for batch in found] == [20, 10, 10, *[1] * 10, 30]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(made)


def test_what_retention_renamed_is_still_read(copy):
    expected, tasks = plain(copy), plan(str(copy), parse({}))
    for suffix in (".log", ".index", ".timeindex"):
        path = segments(copy)[0].with_suffix(suffix)
        path.rename(f"{path}.deleted")
    assert rows_of(tasks, parse({})) == expected


def test_what_retention_removed_is_an_error_or_left_out(copy):
    expected, tasks = plain(copy), plan(str(copy), parse({}))
    first, second = segments(copy)[:2]
    first.unlink()
    with pytest.raises(
        StorageError, match=rf"{first.name}: .*offsets 0 to {int(second.stem) - 1} of orders-0 are gone"
    ):
        rows_of(tasks, parse({}))
    left = [row for row in expected if row["offset"] >= int(second.stem)]
    assert rows_of(tasks, parse({"failOnDataLoss": "false"})) == left
    shutil.rmtree(copy / "orders-0")
    with pytest.raises(StorageError, match="are gone"):
        rows_of(tasks, parse({}))
    assert rows_of(tasks, parse({"failOnDataLoss": "false"})) == []


def test_what_the_cleaner_merged_is_found_where_it_is_now(copy):
    expected, tasks = plain(copy), plan(str(copy), parse({"rangeBytes": "20000"}))
    first, second, *_ = segments(copy)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    for suffix in (".log", ".index", ".timeindex"):
        second.with_suffix(suffix).unlink()
    assert rows_of(tasks, parse({"rangeBytes": "20000"})) == expected


def test_a_log_that_was_truncated(copy):
    expected, tasks = plain(copy), plan(str(copy), parse({}))
    last = segments(copy)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.raises(StorageError, match="offsets 4950 to 4999 of orders-0 are gone: removed by the broker"):
        rows_of(tasks, parse({}))
    assert rows_of(tasks, parse({"failOnDataLoss": "false"})) == expected[:-50]


def test_what_was_appended_since_is_not_read(copy):
    expected, tasks = plain(copy), plan(str(copy), parse({}))
    append(copy / "orders-0", 3000, first=5000)
    assert rows_of(tasks, parse({})) == expected


@pytest.fixture
def damaged(copy):
    """One byte of the second batch of the second segment is another one."""
    path = segments(copy)[1]
    data = bytearray(path.read_bytes())
    data[int.from_bytes(data[8:12], "big") + 12 + 100] ^= 1
    path.write_bytes(data)
    return copy


@pytest.mark.parametrize("cut", [{}, {"rangeBytes": "4000"}], ids=str)
def test_damage(damaged, log, cut):
    expected, bad = plain(log), int(segments(damaged)[1].stem) + 50
    with pytest.raises(CorruptionError, match=rf"{segments(damaged)[1].name}: at position \d+, offset {bad}: CRC"):
        rows(str(damaged), **cut)
    assert rows(str(damaged), **cut, onCorrupt="stop") == expected[:bad]
    assert rows(str(damaged), **cut, onCorrupt="skip") == expected[:bad] + expected[bad + 50 :]


def batches(root, options):
    """Rows of `pylogseg.spark.batches`, without Spark."""
    tasks, read = plan_batches([str(root)], parse(options), cores=1)
    return [row for task in tasks for batch in read(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("cut", [{}, {"rangeBytes": "4000"}, {"maxRecordsPerPartition": 7}], ids=str)
def test_rows_of_batches(damaged, cut):
    found = batches(damaged, cut)
    bad = int(segments(damaged)[1].stem) + 50
    assert [row["baseOffset"] for row in found] == list(range(0, 5000, 50))
    (problem,) = [row for row in found if row["problem"]]
    assert (problem["baseOffset"], problem["count"]) == (bad, None)
    assert problem["problem"].startswith("crc: CRC mismatch")
    assert {row["count"] for row in found if not row["problem"]} == {50}


@pytest.mark.parametrize("cut", [{}, {"rangeBytes": "1000"}, {"maxRecordsPerPartition": 3}], ids=str)
@pytest.mark.parametrize("start", [0, 5, 25])
def test_each_damaged_batch_is_a_row(tmp_path, start, cut):
    """Wherever it lies: over the log start, at the end of a segment or of the log, two in a row."""
    folder = tmp_path / "orders-0"
    with pylogseg.open_log(folder, segment_bytes=1500, index_interval_bytes=300) as log:
        for _ in range(8):
            log.append([(None, b"k", b"v" * 30)] * 10)
        log.increment_log_start(start)
    places = [(row["segment"], row["position"]) for row in batches(tmp_path, {})]
    assert len(places) == 8 - start // 10
    files = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    assert len(files) > 2
    for hit in [*([place] for place in places), *map(list, itertools.pairwise(places))]:
        for name, data in files.items():
            harmed = bytearray(data)
            for _, position in [place for place in hit if place[0] == name]:
                harmed[position + 70] ^= 1
            (folder / name).write_bytes(harmed)
        told = [row for row in batches(tmp_path, cut) if row["problem"]]
        reader = pylogseg.read(tmp_path, on_corrupt="skip")
        collections.deque(reader, 0)
        assert [(row["segment"], row["position"]) for row in told] == [
            (gap.path.rpartition("/")[2], gap.position) for gap in reader.gaps
        ]
        for name, position in hit:
            assert any(row["segment"] == name and 0 <= position - row["position"] < row["size"] for row in told)


@pytest.mark.parametrize("number", [1, -1])
def test_a_segment_under_a_wrong_name(tmp_path, number):
    """Its first batches belong before it: they are in no range of the plan, and still damage."""
    append(tmp_path / "orders-0", 3000)
    moved = sorted((tmp_path / "orders-0").glob("*.log"))[number]
    moved.rename(moved.with_name(f"{int(moved.stem) + 10:020d}.log"))
    with pytest.raises(pylogseg.CorruptionError, match=f"{int(moved.stem) + 10:020d}.log.*position 0.*onCorrupt=skip"):
        rows([str(tmp_path)])
    before = [row for row in rows([str(tmp_path)], onCorrupt="skip") if row["offset"] < int(moved.stem)]
    assert rows([str(tmp_path)], onCorrupt="stop") == before


@pytest.mark.parametrize("cut", [{}, {"maxRecordsPerPartition": 7}], ids=str)
def test_a_log_whose_only_segment_has_a_wrong_name(tmp_path, cut):
    """It has no offset that a range could be made of: an empty one meets the damage."""
    append(tmp_path / "orders-0", 5)
    moved = tmp_path / "orders-0" / f"{0:020d}.log"
    moved.rename(moved.with_name(f"{11:020d}.log"))
    with pytest.raises(pylogseg.CorruptionError, match=r"position 0.*below 11"):
        rows([str(tmp_path)], **cut)
    assert rows([str(tmp_path)], onCorrupt="skip", **cut) == []
    assert rows([str(tmp_path)], onCorrupt="stop", **cut) == []


def test_batches_of_the_next_segment_at_the_end_of_one(tmp_path):
    """They are behind the last offset of the range, and still damage."""
    append(tmp_path / "orders-0", 3000)
    first, second = sorted((tmp_path / "orders-0").glob("*.log"))[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(pylogseg.CorruptionError, match=f"{first.name}.*next segment begins.*onCorrupt=skip"):
        rows([str(tmp_path)])
    assert len(rows([str(tmp_path)], onCorrupt="skip")) == 3000
    assert len(rows([str(tmp_path)], onCorrupt="stop")) == int(second.stem)


def test_a_batch_that_decompresses_to_more_than_the_limit(tmp_path):
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        log.append([(1, b"k", bytes(200_000))], compression="zstd")
    with pytest.raises(CorruptionError, match=r"more than 65536 bytes.*raise maxDecompressedBytes to read it"):
        rows(str(tmp_path), maxDecompressedBytes="64k")
    assert rows(str(tmp_path), maxDecompressedBytes="64k", onCorrupt="skip") == []
    assert len(rows(str(tmp_path), maxDecompressedBytes="1m")) == 1


def test_damage_after_the_last_offset_of_a_segment(tmp_path):
    """A task that has a segment to its end sees the end of the file, as a reader of the whole log does."""
    append(tmp_path / "orders-0", 3000)
    hurt = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    hurt.write_bytes(hurt.read_bytes() + b"no batch" * 9)
    with pytest.raises(pylogseg.CorruptionError, match=f"{hurt.name}.*onCorrupt=skip"):
        rows([str(tmp_path)])
    assert len(rows([str(tmp_path)], onCorrupt="skip")) == 3000


def test_damage_where_an_open_transaction_begins(examples, tmp_path):
    """A range ends before it; damage there, and behind, where its end may lie, is met as by a reader of the log."""
    shutil.copytree(examples / "txn-a-1", tmp_path / "txn-a-1")
    hurt = tmp_path / "txn-a-1" / f"{0:020d}.log"
    data = hurt.read_bytes()
    committed = {"isolationLevel": "read_committed"}
    expected = plain(tmp_path, isolation_level="read_committed")
    hurt.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    for read in (lambda: plain(tmp_path, isolation_level="read_committed"), lambda: rows(str(tmp_path), **committed)):
        with pytest.raises(CorruptionError, match="position 716, offset 12: CRC"):
            read()
    assert rows(str(tmp_path), onCorrupt="skip", **committed) == expected
    hurt.write_bytes(data + b"no batch" * 9)
    for read in (lambda: plain(tmp_path, isolation_level="read_committed"), lambda: rows(str(tmp_path), **committed)):
        with pytest.raises(CorruptionError, match="position 789"):
            read()
    assert rows(str(tmp_path), onCorrupt="skip", **committed) == expected
    with pytest.raises(CorruptionError, match="position 789"):
        rows(str(tmp_path))


def test_a_legacy_segment_under_two_names(examples, tmp_path):
    """Its last batch but one has offsets on both sides of the later name; they are given in no range, or in one."""
    shutil.copytree(examples / "legacy-0", tmp_path / "legacy-0")
    first = tmp_path / "legacy-0" / f"{0:020d}.log"
    shutil.copy(first, first.with_name(f"{30:020d}.log"))
    assert rows(str(tmp_path), onCorrupt="skip") == plain(tmp_path, on_corrupt="skip")
