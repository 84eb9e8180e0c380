"""Tests of reading/bounds.py, reading/filters.py, reading/scan.py and tables/dataset.py. The dataset without an engine:
the rows of `read_arrow`, whatever is pruned, cut, sent elsewhere or read ahead.
"""

import inspect
import pickle
import shutil
import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from helpers.checks import begun_since, some
from helpers.damaged_logs import change_byte
from helpers.depth import diagonals
from helpers.golden_brokers import BROKERS

import pylogseg
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.reading import bounds as reading_bounds
from pylogseg.reading.scan import LogScan
from pylogseg.tables import dataset as classes

BATCH = 50
OFFSET = pc.field("offset")


def log_at(folder, count, first=0, **settings):
    """Append records to a partition's log, 50 a batch, one a second."""
    settings = {"segment_bytes": 60_000, "index_interval_bytes": 1000, "retention_ms": -1, **settings}
    with pylogseg.open_log(folder, **settings) as log:
        for start in range(first, first + count, BATCH):
            numbers = range(start, min(start + BATCH, first + count))
            table = pa.table({
                "timestamp": pa.array([1000 * n for n in numbers], pa.timestamp("ms", "UTC")),
                "key": pa.array([b"%d" % (n % 7) if n % 5 else None for n in numbers], pa.binary()),
                "value": pa.array([b"%d " % n * 10 for n in numbers]),
            })  # fmt: skip
            log.append(table, batch_bytes=1 << 20)
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset")
    log_at(root / "orders-0", 5000)
    log_at(root / "orders-1", 1000)
    return log_at(root / "other-0", 100).parent


@pytest.fixture
def small_tasks(monkeypatch):
    """Many tasks and fragments of a small log."""
    monkeypatch.setattr(classes, "TASK_BYTES", 5_000)
    monkeypatch.setattr(classes, "ALONE_BYTES", 20_000)
    monkeypatch.setattr(classes, "FRAGMENT_BYTES", 20_000)
    monkeypatch.setattr(classes, "processors", lambda: 3)


def expected(path, columns=None, **how):
    return pylogseg.read_arrow(path, columns=columns or pylogseg.dataset(path).schema.names, **how).read_all()


def test_schema(log):
    found = pylogseg.dataset(log)
    assert isinstance(found, pads.Dataset)
    assert {(f.name, f.type) for f in found.schema} >= {(f.name, f.type) for f in pylogseg.read_arrow(log).schema}
    assert "batchOffset" in found.schema.names
    assert pylogseg.dataset(log, columns=["value", "offset"]).to_table().column_names == ["value", "offset"]


@pytest.mark.parametrize(("name", "isolation_level"), diagonals(BROKERS, ["read_uncommitted", "read_committed"], 2))
def test_golden_brokers(golden, small_tasks, name, isolation_level):
    for log_dir in some(sorted((golden / name).glob("data*"))):
        how = {"isolation_level": isolation_level, "on_corrupt": "skip"}
        found = pylogseg.dataset(log_dir, **how)
        rows = expected(log_dir, **how)
        assert found.to_table().equals(rows)
        assert found.to_table(use_threads=False, columns=["offset"]).equals(rows.select(["offset"]))
        assert found.count_rows() == rows.num_rows
        fragments = [part.to_table() for part in found.get_fragments()]
        assert pa.concat_tables([found.schema.empty_table(), *fragments]).equals(rows)


def test_a_corpus_of_many_versions(corpus, small_tasks):
    for log_dir in some(sorted(path for path in corpus.iterdir() if path.is_dir())):
        try:
            rows = expected(log_dir, on_corrupt="skip")
        except RequestError:
            continue
        assert pylogseg.dataset(log_dir, on_corrupt="skip").to_table().equals(rows), log_dir


def test_filters_and_columns(log, small_tasks):
    found, rows = pylogseg.dataset(log), expected(log)
    for keep in [OFFSET == 777, (OFFSET < 5) | (pc.field("topic") == "other"), pc.field("key").is_null(),
                 OFFSET.isin([3, 999, 4900]), ~(OFFSET < 4990), pc.field("partition") > 0,
                 pc.field("timestamp") > pa.scalar(4_900_000_000, pa.timestamp("us", "UTC")),
                 pc.field(2) >= 4990]:  # fmt: skip
        want = rows.filter(keep)
        assert 0 < want.num_rows < rows.num_rows
        assert found.to_table(filter=keep).equals(want)
        assert found.filter(keep).to_table(columns=["value"]).equals(want.select(["value"]))
        assert found.count_rows(keep) == want.num_rows
        parts = [part.to_table(filter=keep) for part in found.get_fragments(keep)]
        assert pa.concat_tables(parts).equals(want)
    made = found.to_table(columns={"twice": OFFSET + OFFSET}, filter=OFFSET == 7)
    assert made.column("twice").to_pylist() == [14, 14, 14]
    assert found.filter(OFFSET < 9).filter(OFFSET > 6).count_rows() == 6


def test_a_filter_that_is_known(log):
    """As pyarrow's own datasets, and as DataFusion has it of ``offset = 1 and offset = 0``."""
    found = pylogseg.dataset(log)
    assert found.count_rows(pa.scalar(False)) == 0
    assert found.count_rows(True) == found.count_rows() == found.filter(pa.scalar(True)).count_rows()
    assert [part.count_rows(filter=pa.scalar(False)) for part in found.get_fragments(pa.scalar(True))][:1] == [0]


def test_fragments_say_what_they_hold(log, small_tasks):
    found = pylogseg.dataset(log, "orders")
    for part in some(found.get_fragments()):
        rows, known = part.to_table(), part.partition_expression
        assert rows.filter(known).equals(rows)
        assert part.count_rows() == rows.num_rows
        assert pickle.loads(pickle.dumps(part)).to_table().equals(rows)
    late = pc.field("timestamp") > pa.scalar(4_900_000_000, pa.timestamp("us", "UTC"))
    some_time = [part for part in found.get_fragments() if "timestamp" in str(part.partition_expression)]
    assert some_time
    kept = [part.to_table(filter=late).num_rows for part in found.get_fragments(late)]
    assert sum(kept) == 99
    assert len(kept) <= 2


def test_head_and_take(log, small_tasks):
    found, rows = pylogseg.dataset(log), expected(log)
    assert found.head(70).equals(rows.slice(0, 70))
    assert found.head(0).num_rows == 0
    assert found.take([90, 3, 3]).equals(rows.take([90, 3, 3]))
    assert found.scanner(columns=["offset"], batch_size=7).head(10).column(0).to_pylist() == list(range(10))
    assert max(batch.num_rows for batch in found.to_batches(batch_size=7)) == 7


def test_it_is_a_snapshot(tmp_path):
    folder = log_at(tmp_path / "orders-0", 300)
    found = pylogseg.dataset(tmp_path)
    assert found.count_rows() == 300
    elsewhere = pickle.loads(pickle.dumps(found))
    log_at(folder, 2000, 300)
    assert found.count_rows() == elsewhere.count_rows() == 300
    assert found.to_table().equals(pylogseg.dataset(tmp_path).to_table(filter=OFFSET < 300))
    assert pylogseg.dataset(tmp_path).count_rows() == 2300


def test_whole_tables(log):
    found = pylogseg.dataset(log, "other", columns=["offset", "value"])
    assert found.sort_by([("offset", "descending")]).head(1).column("offset").to_pylist() == [99]
    other = pa.table({"offset": [5, 7], "name": ["five", "seven"]})
    assert found.join(other, "offset", join_type="inner").count_rows() == 2


def test_topics_are_named_as_for_read(log):
    doors = [pylogseg.read, pylogseg.read_arrow, pylogseg.dataset, pylogseg.scan_polars]
    (said,) = {tuple(map(str, [*inspect.signature(door).parameters.values()][:3])) for door in doors}
    assert said[1] == "topic: 'str | Sequence[str] | None' = None"
    for topics in (["orders", "other"], ("o*",), "orders"):
        rows = pylogseg.read_arrow(log, topics).read_all().num_rows
        assert pylogseg.dataset(log, topics).count_rows() == rows
    assert pylogseg.dataset(log, "orders", 0).count_rows() == pylogseg.dataset(log, "orders-0").count_rows()
    for door in doors:
        with pytest.raises(RequestError, match="partition"):
            door(log, "orders", "other")


def test_what_it_refuses(log):
    found = pylogseg.dataset(log)
    for wrong, message in [
        (lambda: found.to_table(columns=["ofset"]), "no column 'ofset'; did you mean 'offset'"),
        (lambda: found.to_table(filter=pc.field("valeu") == b""), "no column 'valeu'; did you mean 'value'"),
        (lambda: found.to_table(filter="offset > 3"), "a filter is an expression"),
        (lambda: found.to_table(filter=OFFSET + 1), "the filter"),
        (lambda: found.to_table(columns={"a": pc.field("b")}), "columns"),
        (lambda: found.to_table(batch_size=0), "batch_size"),
        (lambda: found.replace_schema(found.schema), "types"),
        (lambda: pylogseg.dataset(log, "nowhere"), "nowhere"),
        (lambda: pylogseg.dataset(log, of="rows"), "of='rows'"),
        (lambda: pylogseg.dataset(log, columns=["a"]), "columns"),
    ]:
        with pytest.raises(RequestError, match=message):
            wrong()


@pytest.fixture
def damaged(log, tmp_path):
    """A log with a batch in its middle whose CRC does not hold."""
    copy = shutil.copytree(log, tmp_path / "copy")
    change_byte(sorted((copy / "orders-0").glob("*.log"))[3])
    return copy


@pytest.mark.parametrize("use_threads", [False, True])
def test_damage_is_the_callers_choice(damaged, small_tasks, use_threads):
    strict = pylogseg.dataset(damaged)
    with pytest.raises(CorruptionError, match="orders-0"):
        strict.to_table(use_threads=use_threads)
    good = expected(damaged, on_corrupt="skip")
    lenient = pylogseg.dataset(damaged, on_corrupt="skip")
    assert lenient.to_table(use_threads=use_threads).equals(good)
    assert lenient.to_table(use_threads=use_threads).equals(good)
    assert [gap.is_damage for gap in lenient.gaps] == [True]
    assert lenient.count_rows() == good.num_rows
    ended = expected(damaged, on_corrupt="stop")
    assert ended.num_rows < good.num_rows
    stopping = pylogseg.dataset(damaged, on_corrupt="stop")
    assert stopping.to_table(use_threads=use_threads).equals(ended)
    late = OFFSET > 4000
    assert stopping.to_table(filter=late).equals(ended.filter(late))


def test_what_is_not_read_is_not_damaged(damaged):
    assert pylogseg.dataset(damaged).to_table(filter=OFFSET < 100).num_rows == 300


def test_a_topic_that_vanishes_is_an_error(log, tmp_path, small_tasks):
    copy = shutil.copytree(log, tmp_path / "copy")
    found = pylogseg.dataset(copy)
    batches = found.to_batches(use_threads=False)
    assert next(batches).num_rows
    shutil.rmtree(copy / "orders-0")
    with pytest.raises(StorageError, match=r"orders-0: .*cannot list: No such file"):
        list(batches)
    shutil.rmtree(copy / "orders-1")
    with pytest.raises(StorageError):
        found.to_table()


def test_closing_early_ends_the_threads(log, small_tasks):
    before = threading.enumerate()
    batches = pylogseg.dataset(log).to_batches()
    next(batches)
    assert not begun_since(before)  # the first task needs none
    while not begun_since(before):
        next(batches)
    batches.close()
    assert not begun_since(before)
    reader = pylogseg.dataset(log).scanner().to_reader()
    while not begun_since(before):
        reader.read_next_batch()
    del reader
    assert not begun_since(before)


def at(microseconds):
    return pa.scalar(microseconds, pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("keep", "bounds"),
    [
        ((OFFSET >= 1_000_000) & (OFFSET < 1_080_000), (1_000_000, 1_080_000, None)),
        ((OFFSET > 2**40) & (pc.field("topic") == "2023-13-45 99:99:99 7"), (2**40 + 1, 2**63, None)),
        (OFFSET.isin([500, 507, 599]), (500, 600, None)),
        (pc.field("timestamp") < at(1_700_000_000_123_000), (0, 2**63, None, 1_700_000_000_122)),
        (pc.field("timestamp") <= at(1_700_000_000_123_456), (0, 2**63, None, 1_700_000_000_123)),
        (~(pc.field("timestamp") < at(1_700_000_000_123_456)), (0, 2**63, 1_700_000_000_123)),
        (~(pc.field("timestamp") <= at(1_700_000_000_000_000)), (0, 2**63, 1_700_000_000_000)),
        (pc.subtract(OFFSET, 0) > 5, (0, 2**63, None)),
        ((OFFSET + pc.scalar(0) > 5) & (OFFSET <= 9), (0, 10, None)),
        (~(OFFSET < 77), (77, 2**63, None)),
        (OFFSET > 5.5, (6, 2**63, None)),
        (OFFSET < -1, None),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_are_found_in_a_few_steps(monkeypatch, keep, bounds):
    """Where the numbers of a filter lie a bound is looked for first, and what the search finds is what there is."""
    asked, real = [], reading_bounds.matching
    monkeypatch.setattr(reading_bounds, "matching", lambda *given: asked.append(1) or real(*given))
    found = reading_bounds.bounds_of(
        keep, pa.schema({"topic": pa.string(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")})
    )
    assert found == (None if bounds is None else reading_bounds.Bounds(*bounds))
    assert len(asked) <= 12


def test_a_range_that_matches_is_not_filtered(log, monkeypatch):
    """Nor are the columns read that only the filter names."""
    found, read = pylogseg.dataset(log), []
    real = LogScan.batches
    monkeypatch.setattr(
        LogScan, "batches", lambda self, task, names, *more: read.append(names) or real(self, task, names, *more)
    )
    keep = (pc.field("topic") == "orders") & (OFFSET >= 100) & (OFFSET < 200)
    assert found.to_table(columns=["key"], filter=keep).num_rows == 200
    assert read
    assert set(map(tuple, read)) == {("key",)}
    for other in [keep & (pc.field("timestampType") == 0), OFFSET.isin([101, 105]), keep & pa.scalar(None, pa.bool_())]:
        del read[:]
        found.to_table(columns=["key"], filter=other)
        assert all("offset" in names for names in read)
