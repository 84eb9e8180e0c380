"""Tests of spark/schema.py, spark/source.py and spark/stream.py. The streaming reader by itself: what Spark asks of it,
without Spark.
"""

import json
import shutil
import warnings

import pytest
from helpers.depth import draws
from helpers.spark_logs import NO_SOURCES, append
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.spark import lag
from pylogseg.spark._compat import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pylogseg.spark.options import parse
from pylogseg.spark.schema import RECORD_COLUMNS, spark_schema, with_options

stream = pytest.importorskip("pylogseg.spark.stream", reason=NO_SOURCES)

COLUMNS = ("topic", "partition", "offset")


@pytest.fixture
def root(tmp_path):
    append(tmp_path / "logs" / "orders-0", 1000, segment_bytes=20_000)
    append(tmp_path / "logs" / "orders-10", 300)
    append(tmp_path / "logs" / "orders-2", 0)
    return tmp_path / "logs"


def reader(root, **options):
    return stream.SegmentStreamReader([str(root)], parse(options, streaming=True), COLUMNS)


def offsets(*numbers):
    return {"orders": dict(zip(("0", "2", "10"), numbers, strict=True))}


def rows(source, start, end):
    found = [row for task in source.partitions(start, end) for batch in source.read(task) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"]) for row in found]


def expected(start, end):
    return [
        (int(number), offset)
        for number, stop in end["orders"].items()
        for offset in range(start["orders"].get(number, 0), stop)
    ]


def test_offsets_begin_and_end_as_asked(root):
    assert reader(root).initialOffset() == offsets(1000, 0, 300)
    assert reader(root, startingOffsets="earliest").initialOffset() == offsets(0, 0, 0)
    given = '{"orders":{"0":7,"10":-1,"2":-2}}'
    source = reader(root, startingOffsets=given)
    assert source.initialOffset() == offsets(7, 0, 300)
    assert source.latestOffset(source.initialOffset(), ReadAllAvailable()) == offsets(1000, 0, 300)
    assert source.reportLatestOffset() == offsets(1000, 0, 300)
    with pytest.raises(RequestError, match=r"must name every partition.*not name orders-2"):
        reader(root, startingOffsets='{"orders":{"0":7,"10":-1}}').initialOffset()


@pytest.mark.parametrize("table", [{}, {"startingOffsets": "earliest"}], ids=["unsaid", "said by the table"])
@pytest.mark.parametrize("query", [{}, {"startingOffsets": "latest"}, {"path": ""}], ids=["", "said", "with a path"])
def test_a_stream_of_a_table_says_where_it_begins(root, caplog, table, query):
    """A table with rows that gives a stream without any would look empty."""
    from pylogseg.spark.source import PylogsegSource

    schema = with_options(spark_schema(COLUMNS), {"path": str(root), **table})
    given = {**query, "path": str(root)} if "path" in query else query
    made = PylogsegSource(given).streamReader(schema)
    made.initialOffset()
    expected = int(not table and not query)
    assert caplog.text.count("a stream of a table begins at the end of the logs") == expected


def test_offsets_are_text_in_one_order(root):
    """Spark compares them as text: partitions by number, as the Kafka source writes them."""
    text = json.dumps(reader(root).latestOffset())
    assert text == '{"orders": {"0": 1000, "2": 0, "10": 300}}'


def test_batches_are_what_was_appended(root):
    source = reader(root, startingOffsets="earliest")
    start = source.initialOffset()
    for count in (0, 700, 1, 1300):
        append(root / "orders-0", count, first=1000)
        append(root / "orders-2", count // 2)
        end = source.latestOffset(start, ReadAllAvailable())
        assert rows(source, start, end) == expected(start, end)
        assert rows(reader(root), start, end) == expected(start, end)  # a query that starts again
        start = end
    assert source.partitions(start, start) == []


def test_nothing_is_read_where_nothing_changed(root, monkeypatch):
    source = reader(root)
    start = source.initialOffset()
    source.latestOffset(start)
    monkeypatch.setattr(stream, "latest_end", None)
    assert source.latestOffset(start) == start


def test_at_most_so_many(root):
    source = reader(root, startingOffsets="earliest", maxOffsetsPerTrigger=130)
    assert isinstance(source.getDefaultReadLimit(), ReadMaxRows)
    start, found = source.initialOffset(), []
    while (end := source.latestOffset(start, source.getDefaultReadLimit())) != start:
        found.append(rows(source, start, end))
        start = end
    assert len(found[0]) == 130
    assert len(found) == 10
    assert sorted(row for of_batch in found for row in of_batch) == expected(offsets(0, 0, 0), offsets(1000, 0, 300))
    assert source.latestOffset(offsets(0, 0, 0), ReadAllAvailable()) == start


def test_before_spark_4_2_limits_are_those_of_the_options(root):
    source = reader(root, startingOffsets="earliest", maxOffsetsPerTrigger=130)
    source.initialOffset()
    end = source.latestOffset()
    assert end == offsets(100, 0, 30)
    source.partitions(offsets(0, 0, 0), end)
    assert source.latestOffset() == offsets(200, 0, 60)
    again = reader(root, startingOffsets="earliest", maxOffsetsPerTrigger=130)
    again.partitions(end, end)  # what Spark asks first when a query starts again
    assert again.latestOffset() == offsets(200, 0, 60)


def test_at_least_so_many_or_wait(root, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    source = reader(root, minOffsetsPerTrigger=100, maxTriggerDelay="10m")
    assert isinstance(source.getDefaultReadLimit(), ReadMinRows)
    start = source.initialOffset()
    limit = source.getDefaultReadLimit()
    source.latestOffset(start, limit)  # the first look does not wait
    append(root / "orders-0", 50, first=1000)
    assert source.latestOffset(start, limit) == start
    now[0] += 601
    assert source.latestOffset(start, limit) == offsets(1050, 0, 300)
    append(root / "orders-0", 50, first=1050)
    assert source.latestOffset(start, limit) == offsets(1100, 0, 300)


def test_available_now_ends_where_the_logs_ended(root):
    source = reader(root, startingOffsets="earliest", maxOffsetsPerTrigger=900)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    append(root / "orders-0", 500, first=1000)
    append(root / "orders-7", 500)
    ends = [start]
    while (end := source.latestOffset(ends[-1], source.getDefaultReadLimit())) != ends[-1]:
        ends.append(end)
    assert ends[-1] == offsets(1000, 0, 300)
    assert len(ends) == 3


def test_a_new_partition_is_read_from_its_start(root):
    source = reader(root)
    start = source.initialOffset()
    append(root / "orders-3", 200)
    end = source.latestOffset(start, ReadAllAvailable())
    assert rows(source, start, end) == [(3, offset) for offset in range(200)]


def test_what_is_lost_is_an_error_that_names_the_offsets(root, examples):
    lenient, strict = reader(root, failOnDataLoss="false"), reader(root)
    start, end = offsets(500, 0, 300), offsets(1000, 0, 300)
    first, second = sorted((root / "orders-0").glob("*.log"))[:2]
    begin = offsets(0, 0, 300)
    for path in (root / "orders-0").glob(f"{first.stem}.*"):
        path.unlink()
    base = int(second.stem)
    with pytest.raises(RequestError, match=f"orders-0 starts at {base}, records from 0 on were not read"):
        strict.partitions(begin, end)
    assert rows(lenient, begin, end) == [(0, offset) for offset in range(base, 1000)]
    with pytest.raises(RequestError, match="orders-0 ends at 400 and was read up to 500"):
        strict.partitions(start, offsets(400, 0, 300))
    assert lenient.partitions(start, offsets(400, 0, 300)) == []
    shutil.rmtree(root / "orders-10")
    gone = {"orders": {"0": 1000, "2": 0}}
    with pytest.raises(RequestError, match="orders-10 is gone, it was read up to offset 200"):
        strict.partitions(offsets(1000, 0, 200), gone)
    with pytest.raises(RequestError, match="orders-10 is gone, it was to be read up to offset 300"):
        strict.partitions(offsets(1000, 0, 200), end)
    assert lenient.partitions(offsets(1000, 0, 200), end) == []
    late = stream.SegmentStreamReader([str(examples)], parse({"subscribe": "del-records"}, streaming=True), COLUMNS)
    begin = pylogseg.open_dir(examples).topics["del-records"][0].log_start_offset
    with pytest.raises(RequestError, match=f"del-records-0 is new and starts at {begin}"):
        late.partitions({}, late.latestOffset())


def test_read_committed_ends_before_an_open_transaction(examples, tmp_path):
    options = {"subscribe": "txn-a", "startingOffsets": "earliest", "isolationLevel": "read_committed"}
    source = stream.SegmentStreamReader([str(examples)], parse(options, streaming=True), COLUMNS)
    start = source.initialOffset()
    found = rows(source, start, source.latestOffset(start))
    plain = pylogseg.read(examples, "txn-a", isolation_level="read_committed")
    assert found == [(record.partition, record.offset) for record in plain]


def test_limits_are_not_called_useless_before_it_is_known_that_a_stream_begins(root):
    from pylogseg.spark.source import PylogsegSource

    limits = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1m"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuple(PylogsegSource({"path": str(root), **limits}).schema().names) == RECORD_COLUMNS


def test_a_stream_cannot_stop_at_damage(root):
    with pytest.raises(RequestError, match="onCorrupt=stop"):
        reader(root, onCorrupt="stop")


SIZES = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(-5, 1000)), min_size=1)


@given(SIZES, st.integers(1, 2000))
@settings(max_examples=draws(100))
def test_shares(sizes, most):
    first = {("t", number): begin for number, (begin, _) in sizes.items()}
    latest = {("t", number): begin + count for number, (begin, count) in sizes.items()}
    ends = stream.limit_ends(first, latest, most)
    taken = {key: ends[key] - first[key] for key in first}
    left = {key: max(0, latest[key] - first[key]) for key in first}
    assert all(taken[key] == latest[key] - first[key] for key in first if not left[key])
    assert all(0 < taken[key] <= left[key] for key in first if left[key])
    # A share below one is rounded up, so that there may be one more for each partition.
    assert sum(max(0, count) for count in taken.values()) <= most + len(sizes)
    assert (sum(left.values()) <= most) <= (taken == {key: latest[key] - first[key] for key in first})


def test_shares_are_rounded_as_those_of_the_kafka_source():
    # 100 * (29 / 100) is a little less than 29 in floating point, and the Kafka source takes 28.
    first, latest = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 29, ("t", 1): 71}
    assert stream.limit_ends(first, {key: 10 * end for key, end in latest.items()}, 100) == {("t", 0): 28, ("t", 1): 71}


def test_a_deleted_topic_has_no_lag(root):
    append(root / "gone-0", 100)
    source = reader(root, startingOffsets="earliest", failOnDataLoss="false")
    end = source.latestOffset(source.initialOffset())
    assert source.reportLatestOffset()["gone"] == {"0": 100}
    shutil.rmtree(root / "gone-0")
    later = source.latestOffset(end)
    assert source.reportLatestOffset() == later == offsets(1000, 0, 300)
    assert lag({"sources": [{"endOffset": later, "latestOffset": source.reportLatestOffset()}]}).total == 0


NOTED = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.parametrize("options", [{}, {"isolationLevel": "read_committed"}])
def test_a_log_that_ends_below_a_checkpoint(root, caplog, name, options):
    """As a batch read says it: the checkpoint shows that there were records, and no broker runs that would add them."""
    (root / name).write_text("0\n1\norders 10 400\n")
    source = reader(root, startingOffsets="earliest", **options)
    with pytest.raises(RequestError, match=r"orders-10 .*the log ends at 300, but .*says .* 400.*failOnDataLoss=false"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    with pytest.raises(RequestError, match=r"the log ends at 300"):
        source.prepareForTriggerAvailableNow()
    source = reader(root, startingOffsets="earliest", failOnDataLoss="false", **options)
    assert source.latestOffset(source.initialOffset(), ReadAllAvailable()) == offsets(1000, 0, 300)
    assert "the log ends at 300" in caplog.text
    (root / name).write_text("0\n1\norders 10 300\n")
    source = reader(root, startingOffsets="earliest", **options)
    assert source.latestOffset(source.initialOffset(), ReadAllAvailable()) == offsets(1000, 0, 300)


def test_a_log_that_is_written_to_may_end_below_a_checkpoint(root):
    """A broker notes an end after the listing: the next look has it."""
    (root / NOTED[0]).write_text("0\n1\norders 10 400\n")
    lock = LocalStorage().lock(str(root))
    try:
        source = reader(root, startingOffsets="earliest")
        assert source.latestOffset(source.initialOffset(), ReadAllAvailable()) == offsets(1000, 0, 300)
    finally:
        lock.release()


def test_a_segment_that_has_become_empty(root, caplog):
    """Its index shows that it had records; the next segment says up to where."""
    first, second, *_ = sorted((root / "orders-0").glob("*.log"))
    first.write_bytes(b"")
    end = int(second.stem)
    source = reader(root, startingOffsets="earliest")
    with pytest.raises(RequestError, match=rf"orders-0 .*offsets 0 to {end - 1}.*empty"):
        source.partitions(offsets(0, 0, 0), offsets(1000, 0, 300))
    source = reader(root, startingOffsets="earliest", failOnDataLoss="false")
    assert len(rows(source, offsets(0, 0, 0), offsets(1000, 0, 300))) == 1300 - end
    assert "has lost records" in caplog.text
