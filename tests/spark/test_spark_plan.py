"""Tests of spark/logs.py and spark/plan.py. Plans: each offset once, tasks of about the wanted size, and nothing but
names, indexes and headers read for it.
"""

import json
import shutil

import pyarrow as pa
import pytest

import pylogseg
from pylogseg.env import filesystem
from pylogseg.errors import RequestError
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan

BATCH = 50


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log directory with one partition of 20 segments and 20,000 records, 50 a batch, one a second."""
    root = tmp_path_factory.mktemp("plan")
    settings = {"segment_bytes": 60_000, "index_interval_bytes": 1000, "retention_ms": -1}
    with pylogseg.open_log(root / "orders-0", **settings) as log:
        for first in range(0, 20_000, BATCH):
            stamps = pa.array([1000 * n for n in range(first, first + BATCH)], pa.timestamp("ms", "UTC"))
            values = pa.array([b"%d" % n * 10 for n in range(first, first + BATCH)])
            log.append(pa.table({"timestamp": stamps, "value": values}), batch_bytes=1 << 20)
    return root


def planned(paths, **options):
    return plan(str(paths), parse(options), cores=1)


def ranges(tasks):
    return [part for task in tasks for part in task]


def assert_covers(tasks, first, end):
    """The ranges follow each other without a gap and without an overlap."""
    at = first
    for part in sorted(ranges(tasks), key=lambda part: part.first_offset):
        assert part.first_offset == at
        assert part.end_offset > at
        at = part.end_offset
    assert at == end


@pytest.mark.parametrize(
    "options",
    [{}, {"rangeBytes": "50000"}, {"minPartitions": 7}, {"minPartitions": 100}, {"maxRecordsPerPartition": 333},
     {"onCorrupt": "stop"}],
    ids=str,
)  # fmt: skip
def test_each_offset_once(log, options):
    tasks = planned(log, **options)
    assert_covers(tasks, 0, 20_000)
    assert len(tasks) >= options.get("minPartitions", 1)
    if "maxRecordsPerPartition" in options:
        assert all(sum(part.end_offset - part.first_offset for part in task) <= 333 for task in tasks)
    if "onCorrupt" in options:
        assert len(tasks) == 1


def test_small_segments_are_packed_and_large_ones_are_split(log):
    (task,) = planned(log)
    assert len(task) > 10
    tasks = planned(log, rangeBytes="30000")
    assert all(len(task) == 1 and task[0].size < 32_000 for task in tasks)
    assert {part.first_offset % BATCH for part in ranges(tasks)} == {0}


def test_offsets_choose_bytes(log):
    tasks = planned(log, startingOffsets='{"orders":{"0":7777}}', endingOffsets='{"orders":{"0":7800}}')
    assert_covers(tasks, 7777, 7800)
    assert sum(part.size for part in ranges(tasks)) < 10_000


def test_times_choose_offsets(log):
    tasks = planned(log, startingTimestamp=5_000_500, endingTimestamp=5_100_000)
    assert_covers(tasks, 5001, 5100)
    with pytest.raises(RequestError, match="orders-0: found no record with a timestamp of 20000000 or later"):
        planned(log, startingTimestamp=20_000_000)
    assert planned(log, startingTimestamp=20_000_000, startingOffsetsByTimestampStrategy="latest") == []
    assert_covers(planned(log, endingTimestamp=20_000_000), 0, 20_000)


def test_without_an_index_nothing_is_cut(log, tmp_path):
    copy = shutil.copytree(log, tmp_path / "copy")
    for path in copy.rglob("*.index"):
        path.unlink()
    tasks = planned(copy, rangeBytes="30000")
    assert_covers(tasks, 0, 20_000)
    assert len(ranges(tasks)) == len(list(copy.rglob("*.log")))


def test_an_index_of_nonsense_cuts_nothing_wrong(log, tmp_path):
    copy = shutil.copytree(log, tmp_path / "copy")
    for i, path in enumerate(sorted(copy.rglob("*.index"))):
        path.write_bytes((bytes(range(1, 201)) * 2)[i:] if i % 2 else path.read_bytes()[16:])
    assert_covers(planned(copy, rangeBytes="30000"), 0, 20_000)


@pytest.mark.reads
def test_no_payload_is_read(log, monkeypatch):
    """Indexes apart, what is read of the log is behind the last index entry of the active segment."""
    opened = []
    make = filesystem.PositionedFile
    monkeypatch.setattr(filesystem, "PositionedFile", lambda path, **how: opened.append(path) or make(path, **how))
    assert_covers(planned(log, rangeBytes="30000"), 0, 20_000)
    assert opened == [str(max((log / "orders-0").glob("*.log")))]


def test_what_is_asked_for_is_there(examples):
    assert {part.topic for part in ranges(planned(examples, subscribe="txn-a,txn-b"))} == {"txn-a", "txn-b"}
    assert {part.topic for part in ranges(planned(examples, subscribePattern="txn-.|__cons.*"))} == {"txn-a", "txn-b"}
    # As in the Kafka source, a part of the name is enough.
    assert {part.topic for part in ranges(planned(examples, subscribePattern="n-"))} == {"txn-a", "txn-b"}
    assert {part.topic for part in ranges(planned(examples, subscribePattern="^xn-"))} == set()
    chosen = ranges(planned(examples, assign='{"txn-a":[1]}'))
    assert {(part.topic, part.partition) for part in chosen} == {("txn-a", 1)}
    with pytest.raises(RequestError, match="subscribe: no nowhere here; there are: __cluster_metadata"):
        planned(examples, subscribe="nowhere,txn-a")
    with pytest.raises(RequestError, match="assign: no txn-a-7 here"):
        planned(examples, assign='{"txn-a":[7]}')


def test_offsets_name_every_partition(examples):
    given = {"txn-a": {"0": -2, "1": -2}}
    assert planned(examples, subscribe="txn-a", startingOffsets=json.dumps(given))
    with pytest.raises(RequestError, match=r"must name every partition.*does not name txn-b-0"):
        planned(examples, subscribePattern="txn-.", startingOffsets=json.dumps(given))
    with pytest.raises(RequestError, match="it names txn-a-0, which is not read"):
        planned(examples, assign='{"txn-a":[1]}', startingOffsets=json.dumps(given))


def test_offsets_behind_a_log(log):
    behind = json.dumps({"orders": {"0": 30_000}})
    with pytest.raises(RequestError, match="ends at 20000, before the requested end 30000"):
        planned(log, endingOffsets=behind)
    assert_covers(planned(log, endingOffsets=behind, failOnDataLoss=False), 0, 20_000)
    with pytest.raises(RequestError, match="ends at 20000, before the start 30000"):
        planned(log, startingOffsets=behind)


def test_a_start_behind_the_end_is_refused_whatever_may_be_lost(log):
    """Even if one of them is a time, and records may be lost, as in the Kafka source."""
    behind, middle = (json.dumps({"orders": {"0": offset}}) for offset in (30_000, 15_000))
    early = {"endingTimestamp": "0", "failOnDataLoss": "false"}
    for given in ({"startingOffsets": behind, "failOnDataLoss": "false"}, {"startingOffsets": middle, **early}):
        with pytest.raises(RequestError, match=r"orders-0 .* would start at \d+, after its end"):
            planned(log, **given)


def test_offsets_below_the_log_start(examples):
    start = {p.name: p.log_start_offset for p in pylogseg.open_dir(examples).partitions}["del-records-0"]
    given = {"subscribe": "del-records", "startingOffsets": '{"del-records":{"0":0}}'}
    with pytest.raises(RequestError, match=f"starts at {start}, records from 0 on are gone"):
        planned(examples, **given)
    assert ranges(planned(examples, **given, failOnDataLoss=False))[0].first_offset == start
    assert not planned(examples, **given, failOnDataLoss=False, endingOffsets='{"del-records":{"0":7}}')


def test_a_time_within_an_open_transaction_is_none_of_read_committed(examples):
    last = max(pylogseg.read(examples, "txn-a", 0), key=lambda record: record.offset)
    given = {"assign": '{"txn-a":[0]}', "startingTimestamp": str(last.timestamp)}
    assert planned(examples, **given)
    committed = {**given, "isolationLevel": "read_committed"}
    with pytest.raises(RequestError, match="txn-a-0: found no record with a timestamp of"):
        planned(examples, **committed)
    assert not planned(examples, **committed, startingOffsetsByTimestampStrategy="latest")


def test_a_time_whose_record_was_cleaned_away_is_none_as_on_a_broker(golden, caplog):
    """The broker that wrote these files said so (`expected.json`), though later segments have records."""
    (log,) = (golden / "broker-4.3" / "compact-1-cleaned").glob("data*/cmp-idem-0")
    with pytest.raises(RequestError, match="cmp-idem-0: found no record with a timestamp of 0 or later"):
        planned(log, startingTimestamp=0)
    assert "no offset for time 0, though record 270 is as late" in caplog.text
    assert planned(log, startingTimestamp=0, startingOffsetsByTimestampStrategy="latest") == []
    assert ranges(planned(log, endingTimestamp=0)) == ranges(planned(log))


def test_a_partition_in_two_folders(log, tmp_path):
    shutil.copytree(log, tmp_path / "broker2")
    with pytest.raises(RequestError, match="orders-0 lies in two folders"):
        plan([str(log), str(tmp_path / "broker2")])


def test_without_the_active_segment(log):
    last = max(int(path.stem) for path in log.rglob("*.log"))
    assert_covers(planned(log, includeActive=False), 0, last)
