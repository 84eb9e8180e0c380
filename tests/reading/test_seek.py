"""Tests of reading/positions.py, reading/seek.py and reading/stable_offset.py. Ranges of offsets and of time: the same
records as reading everything and choosing, whatever the indexes say.
"""

import datetime
import itertools
import json
import random
import shutil

import pytest

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import RequestError
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.names import FileKind
from pylogseg.reading.logs import logs_of
from pylogseg.reading.seek import end_offset, late_segments, offset_of_time, position_of_offset
from pylogseg.reading.stable_offset import last_stable_offset


def records(path, *args, **options):
    return list(pylogseg.read(path, *args, **options))


@pytest.fixture(
    params=["codec-none-1", "codec-gzip-0", "cmp-short-0", "del-records-0", "legacy-0", "mixed-0", "timestamps-0"]
)
def partition(request, examples):
    return examples / request.param


def test_offset_ranges(partition):
    everything = records(partition)
    assert everything
    first, last = everything[0].offset, everything[-1].offset
    chance = random.Random(3)
    bounds = [max(first - 1, 0), first, first + 1, last - 1, last, last + 1, last + 1000]
    bounds += [chance.randint(first, last) for _ in range(12)]
    for start in bounds:
        found = records(partition, offset=start)
        assert found == [r for r in everything if r.offset >= start]
        end = chance.choice(bounds)
        low, high = sorted((start, end))
        found = records(partition, offset=(low, high))
        assert found == [r for r in everything if low <= r.offset < high]
        assert records(partition, offset=(None, end), limit=5) == [r for r in everything if r.offset < end][:5]


def test_time_ranges(partition):
    everything = records(partition, from_log_start=False)
    moments = sorted({r.timestamp for r in everything})
    chance = random.Random(5)
    some = [moments[0] - 1, moments[0], moments[-1], moments[-1] + 1, *(chance.choice(moments) + 1 for _ in range(10))]
    for since in some:
        until = since + chance.choice([1, 1000, 10**6])
        found = records(partition, timestamp=(since, until), from_log_start=False)
        assert found == [r for r in everything if since <= r.timestamp < until]
    moment = datetime.datetime.fromtimestamp(moments[-1] / 1000, datetime.timezone.utc)
    assert records(partition, timestamp=moment)[-1].timestamp == moments[-1]
    with pytest.raises(RequestError, match="no time zone"):
        records(partition, timestamp=datetime.datetime(2020, 1, 1))


@pytest.mark.parametrize("damage", ["none", "missing", "zeros", "ones", "shuffled", "odd", "late", "short"])
def test_indexes_are_hints(partition, tmp_path, damage):
    copy = shutil.copytree(partition, tmp_path / partition.name)
    for path in [*copy.glob("*.index"), *copy.glob("*.timeindex")]:
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "zeros":
            path.write_bytes(bytes(len(data)))
        elif damage == "ones":
            path.write_bytes(b"\x00\x00\x00\x01" * (len(data) // 4))
        elif damage == "shuffled":
            path.write_bytes(data[::-1])
        elif damage == "odd":
            path.write_bytes(data[:-3] + b"\x7f" * 5)
        elif damage == "late" and path.suffix == ".timeindex":  # each time at the offset of the last
            path.write_bytes(b"".join(data[at : at + 8] + data[-4:] for at in range(0, len(data), 12)))
        elif damage == "short":
            path.write_bytes(data[: 12 if path.suffix == ".timeindex" else 8])
    everything = records(partition, from_log_start=False)
    for record in everything[:: max(1, len(everything) // 9)]:
        assert (
            records(copy, offset=record.offset, limit=3, from_log_start=False)
            == [r for r in everything if r.offset >= record.offset][:3]
        )
        segments = pylogseg.open_dir(copy).partitions[0].segments
        wanted = next(r.offset for r in everything if r.timestamp >= record.timestamp)
        assert offset_of_time(segments, record.timestamp, -1) == wanted
    assert end_offset(pylogseg.open_dir(copy).partitions[0].segments) == end_offset(
        pylogseg.open_dir(partition).partitions[0].segments
    )


original = LocalFiles.open


@pytest.fixture
def opened(monkeypatch):
    """Paths of the logs that were opened."""
    seen = []
    monkeypatch.setattr(
        LocalFiles, "open", lambda self, path, sealed: seen.append(path) or original(self, path, sealed=sealed)
    )
    return seen


@pytest.mark.parametrize("jitter_ms", [0, 50, 5000])
def test_times_of_many_segments(tmp_path, opened, jitter_ms):
    """By their indexes, where times ascend; else by looking. The answer is always the first record that is as late."""
    chance = random.Random(jitter_ms)
    moments = [100 * n + chance.randint(0, jitter_ms) for n in range(900)]
    with pylogseg.open_log(tmp_path / "t-0", segment_bytes=2000, index_interval_bytes=300, retention_ms=-1) as log:
        for first in range(0, 900, 3):
            log.append([(moment, b"k", b"v" * 30) for moment in moments[first : first + 3]])
    segments = pylogseg.open_dir(tmp_path).partitions[0].segments
    assert len(segments) > 20
    for asked in [moments[450], 0, 45_000, 45_001, 89_850, max(moments)]:
        opened.clear()
        wanted = next(n for n, moment in enumerate(moments) if moment >= asked)
        assert offset_of_time(segments, asked, -1) == wanted
        opened.clear()  # a broker's look-up believes the indexes
        assert next(late_segments(segments, asked)) == wanted
        assert jitter_ms or len(opened) == 1
    assert offset_of_time(segments, max(moments) + 1, -1) == -1


def test_a_range_reads_little(golden, opened):
    """Ten records from the middle of the largest partition cost windows around them, not its segments."""
    folder = max(
        (golden / "broker-4.3" / "codecs").glob("data*/*-?"),
        key=lambda p: sum(f.stat().st_size for f in p.glob("*.log")),
    )
    partition = pylogseg.open_dir(folder).partitions[0]
    opened.clear()
    middle = partition.segments[len(partition.segments) // 2]
    assert len(records(folder, offset=(middle.base_offset, middle.base_offset + 1))) == 1
    assert set(opened) == {middle.path}


_ANSWERED = ("codecs", "txn", "txn-old", "retention", "compact-1-cleaned", "unclean")


@pytest.mark.parametrize("name", [*(f"broker-4.3/{name}" for name in _ANSWERED), "broker-4.4/all"])
def test_as_the_broker_says(golden, name):
    """Earliest, latest, last stable and look-ups by time, as a real broker answered (`expected.json`)."""
    folder = golden / name
    topics = json.loads((folder / "expected.json").read_text())["topics"]
    checked = 0
    for partition in pylogseg.open_dir(sorted(folder.glob("data[01]"))).partitions:
        said = topics.get(partition.topic, {"partitions": {}})["partitions"].get(str(partition.partition))
        if partition.state or said is None or partition.topic.startswith("__"):
            continue
        segments = partition.segments
        assert partition.log_start_offset == said["earliest"]["offset"], partition
        assert max(end_offset(segments), partition.log_start_offset) == said["latest"]["offset"], partition
        for moment, answer in said["offsetsForTimes"].items():
            late = list(late_segments(segments, int(moment), partition.log_start_offset))
            told = next(iter(late), None)
            assert answer["offset"] == (-1 if told is None else told), (partition, moment)
            found = offset_of_time(segments, int(moment), -1, partition.log_start_offset)
            if told is None:  # the broker looks into one segment only, even where a cleaning left no such record in it
                there = (r.offset for r in pylogseg.read(partition.path) if r.timestamp >= int(moment))
                assert found == next(there, -1), (partition, moment)
            else:
                assert found == told, (partition, moment)
            checked += 1
        snapshots = logs_of(pylogseg.open_dir(partition.path))[0].snapshots
        stable = last_stable_offset(list(segments), snapshots)
        assert said["latestCommitted"]["offset"] == (said["latest"]["offset"] if stable is None else stable), partition
    assert checked


def test_entries_of_appends(tmp_path):
    """Those of old brokers, with the last offset of an append or its first, and the position of its first batch."""
    with pylogseg.open_log(tmp_path / "t-0", index_interval_bytes=1 << 20) as log:
        for n in range(60):
            log.append([(n, None, f"value {n}".encode() * (n % 7)) for _ in range(n % 3 + 1)])
    (segment,) = pylogseg.open_dir(tmp_path / "t-0").partitions[0].segments
    data = (tmp_path / "t-0" / segment.name).read_bytes()
    batches = pylogseg.scan(data).batches
    everything = records(tmp_path / "t-0")
    cuts = [0, 1, 4, 9, 20, 21, 40, 60]
    for is_last in (True, False):
        rows = []
        for first, stop in list(itertools.pairwise(cuts))[1:]:
            offset = batches.last_offset[stop - 1] if is_last else batches.base_offset[first]
            rows.append((int(offset), int(batches.position[first])))
        write_index(tmp_path / "t-0", rows)
        (segment,) = pylogseg.open_dir(tmp_path / "t-0").partitions[0].segments
        with segment.open() as view:
            for offset, position in rows:
                assert position_of_offset(segment, view, offset) == position
        for start in range(len(everything) + 1):
            assert records(tmp_path / "t-0", offset=start) == everything[start:]
    # One that does not end with the offset, or lies between batches, or behind the end.
    chance = random.Random(3)
    for _ in range(200):
        at, shift = chance.randrange(1, 60), chance.choice([1, 7, 61, -8, len(data)])
        rows = [(int(batches.last_offset[at]), int(batches.position[at]) + shift)]
        write_index(tmp_path / "t-0", rows)
        (segment,) = pylogseg.open_dir(tmp_path / "t-0").partitions[0].segments
        with segment.open() as view:
            assert position_of_offset(segment, view, rows[0][0]) == 0
    inside = next(i for i in range(30, 60) if batches.count[i] == 3)
    write_index(tmp_path / "t-0", [(int(batches.base_offset[inside]) + 1, int(batches.position[20]))])
    (segment,) = pylogseg.open_dir(tmp_path / "t-0").partitions[0].segments
    with segment.open() as view:
        assert position_of_offset(segment, view, int(batches.last_offset[inside])) == 0


def write_index(folder, rows):
    (path,) = folder.glob("*.index")
    path.write_bytes(b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in rows))


def test_entries_of_old_brokers(golden):
    """Readers begin at each entry of a whole disk: none makes them read a segment from its start."""
    count = 0
    for name in ("kafka-2.8.2-stopped/data", "kafka-4.0.0-two-brokers/b1", "kafka-4.0.0-two-brokers/b2"):
        for part in pylogseg.open_dir(golden / "old" / name).partitions:
            for segment in part.segments:
                path = segment.companions.get(FileKind.OFFSET_INDEX)
                if path is None:
                    continue
                index = OffsetIndex(segment.files.read_all(path), segment.base_offset, path)
                with segment.open() as view:
                    for i in range(len(index)):
                        assert position_of_offset(segment, view, index[i].offset) == index[i].position, (path, i)
                count += len(index)
    assert count > 50
