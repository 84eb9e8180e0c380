"""Tests of offline/aligned_findings.py, offline/aligned_result.py, offline/aligning.py, offline/comparing_content.py
and values/internal/mirror_map.py. Tests of offline/comparing_content.py, offline/aligning.py and
values/internal/mirror_map.py: logs and their mirrors.

Edits of a log are known here; the comparison has to find them, or to say more: it never calls two logs the same that
differ, and each run of its map has the same records on both sides.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import expect
from helpers.shell import pylogseg as shell
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.offline import aligning, diff_by_content
from pylogseg.values.internal.mirror_map import read_map

Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def write_log(folder: Path, records: list[Record], first: int = 0, most: int = 7, codec: str = "none") -> Path:
    """A log with these records at consecutive offsets, so many in a batch."""
    folder.mkdir(parents=True)
    with (folder / f"{first:020}.log").open("wb") as out:
        for at in range(0, len(records), most):
            out.write(bytes(pylogseg.encode(records[at : at + most], base_offset=first + at, compression=codec)))
    return folder


def compare(a: list[Record], b: list[Record], first: int = 0, **how):
    with tempfile.TemporaryDirectory() as folder:
        left = write_log(Path(folder) / "a" / "t-0", a)
        right = write_log(Path(folder) / "b" / "t-0", b, first, 5, "gzip")
        (row,) = diff_by_content(left, right, **how)
    return row


def record(number: int, value: bytes = b"") -> Record:
    return 1000 + number // 3, b"k%d" % (number % 50), b"v%d" % number + value, ()


def check(row, a: list[Record], b: list[Record], first: int = 0) -> None:
    """What is true of every comparison."""
    pairs = []
    for low, high, target in row.map.runs.tolist():
        if low < len(a):
            pairs += [(offset, target + offset - low - first) for offset in range(low, high + 1)]
    same = [pair for pair in pairs if a[pair[0]] == b[pair[1]]]
    assert all(a[i][:2] == b[j][:2] for i, j in pairs)
    assert len(pairs) - len(same) == row.changed
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(pairs))
    assert (row.records_a, row.records_b) == (len(a), len(b))
    assert len(pairs) + row.moved + row.missing == len(a)
    assert len(pairs) + row.moved + row.extra + row.double == len(b)
    assert row.is_same == (a == b)
    counted = dict.fromkeys(("missing", "extra", "double", "moved", "changed"), 0)
    for part in row.ranges:
        counted[part.kind] += part.records
        side, low = (b, first) if part.kind in ("extra", "double") else (a, 0)
        assert low <= part.first_offset <= part.last_offset < low + len(side)
        assert part.last_offset - part.first_offset + 1 == part.records
    assert all(counted[kind] == getattr(row, kind) for kind in counted)


EDITS = st.lists(
    st.tuples(st.sampled_from(["missing", "extra", "double", "changed"]), st.integers(0, 14), st.integers(1, 6)),
    max_size=6,
    unique_by=lambda edit: edit[1],
)


@given(edits=EDITS, first=st.sampled_from([0, 17]), window=st.sampled_from([400, 64]))
def test_edits(edits: list[tuple[str, int, int]], first: int, window: int) -> None:
    """Each edit has ten records of its own, of which at most six change: every pair is where it was."""
    a = [record(number) for number in range(150)]
    b: list[Record] = []
    counts = dict.fromkeys(("missing", "extra", "double", "changed"), 0)
    at = 0
    for kind, place, count in sorted(edits, key=lambda edit: edit[1]):
        b += a[at : place * 10]
        at = place * 10
        counts[kind] += count
        if kind == "extra":
            b += [(9, b"new", b"%d %d" % (place, number), ()) for number in range(count)]
        elif kind == "double":
            b += a[at : at + count]
        elif kind == "changed":
            b += [(*each[:2], b"other", each[3]) for each in a[at : at + count]]
            at += count
        else:
            at += count
    b += a[at:]
    row = compare(a, b, first, window=window)
    check(row, a, b, first)
    assert {kind: getattr(row, kind) for kind in counts} == counts
    assert row.moved == 0


RECORDS = st.lists(st.integers(0, 12).map(record), max_size=40)


@given(a=RECORDS, b=RECORDS, window=st.sampled_from([2, 5, 16, 1000]))
@settings(max_examples=100)
def test_any_two_logs(a: list[Record], b: list[Record], window: int) -> None:
    check(compare(a, b, window=window), a, b)


@given(data=st.data(), window=st.sampled_from([3, 10, 1000]))
@settings(max_examples=60)
def test_shuffled(data: st.DataObject, window: int) -> None:
    a = [record(number) for number in range(30)]
    b = data.draw(st.permutations(a))
    row = compare(a, b, window=window)
    check(row, a, b)
    assert (row.missing, row.extra, row.double, row.changed) == (0, 0, 0, 0) or window < 30
    if window == 1000:
        order = [a.index(each) for each in b]
        best = [1] * len(order)  # the longest sequence in order is what need not be moved
        for i in range(len(order)):
            best[i] = 1 + max((best[j] for j in range(i) if order[j] < order[i]), default=0)
        assert row.moved == 30 - max(best)


def test_one_moved_and_twice() -> None:
    a = [record(number) for number in range(60)]
    row = compare(a, [*a[:10], *a[11:40], a[10], *a[40:55], *a[30:]], window=20)
    assert (row.moved, row.missing) == (1, 0)
    assert row.double == 25
    (moved,) = (part for part in row.ranges if part.kind == "moved")
    assert moved[:5] == ("moved", 10, 10, 1, 39)


def test_headers_alone() -> None:
    a = [(5, b"k", None, (("h", b"1"),)), (6, None, b"", ())]
    row = compare(a, [(5, b"k", None, (("h", None),)), (6, None, None, ())])
    assert [part.fields for part in row.ranges] == [("headers",), ("value",)]
    assert (row.changed, row.is_same) == (2, False)


def test_mirror_that_began_later_and_lags() -> None:
    """More records than a window has are missing at both ends, and in the middle."""
    a = [record(number) for number in range(3000)]
    b = [*a[1000:1500], *a[2200:2900]]
    row = compare(a, b, window=64)
    check(row, a, b)
    assert (row.missing, row.before, row.behind, row.extra) == (1800, 1000, 100, 0)
    assert [tuple(run) for run in row.map.runs.tolist()] == [(1000, 1499, 0), (2200, 2899, 500)]
    assert row.map.translate(0) == 0
    assert row.map.translate(1200) == 200
    assert row.map.translate(1500) == 500
    assert row.map.translate(2900) is None
    inside = compare(a, a[1000:2900], window=64, common=True)
    assert (inside.is_same, inside.before, inside.behind) == (True, 1000, 100)
    assert not compare(a, b, window=64, common=True).is_same
    assert not compare(a[:50], a[50:], common=True).is_same


def test_nothing_is_the_same() -> None:
    a = [record(number) for number in range(500)]
    b = [(1, b"x", b"%d" % number, ()) for number in range(400)]
    row = compare(a, b, window=50)
    check(row, a, b)
    assert (row.missing, row.extra) == (500, 400)
    assert row.not_aligned
    assert any("were not aligned" in line for line in row.lines())
    assert not len(row.map.runs)


def test_empty_sides() -> None:
    a = [record(1)]
    for left, right in ((a, []), ([], a), ([], [])):
        with tempfile.TemporaryDirectory() as folder:
            logs = [write_log(Path(folder) / side / "t-0", records) for side, records in (("a", left), ("b", right))]
            (row,) = diff_by_content(*logs, common=True)
        assert row.is_same == (left == right)


def test_times_of_the_broker() -> None:
    a = [record(number) for number in range(100)]
    b = [(7, *each[1:]) for each in a]
    assert compare(a, b).missing == 100
    assert compare(a, b, ignore_timestamps=True).is_same


def test_memory_has_a_bound() -> None:
    """So much as for windows and what the map needs, however long the logs are."""
    count, window = 400_000, 2000

    def opened(step: int) -> aligning.Stream:
        def read(first: int) -> Iterator[aligning.HashRows]:
            for at in range(first, count, 1000):
                rows = np.zeros(1000, aligning.ROW)
                rows["offset"] = np.arange(at, at + 1000)
                rows["whole"] = rows["identity"] = rows["offset"] * step
                yield rows

        return aligning.Stream(read, 0)

    peaks = []
    for steps in ((1, 1), (1, 2)):
        tracemalloc.start()
        records = sum(len(step.a) for step in aligning.align(*map(opened, steps), window))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert records == count
    assert max(peaks) < 3_000_000


# ---- the commands ----


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[pylogseg.Broker, pylogseg.Broker]]:
    """A cluster with transactions, and its mirror as MirrorMaker makes it."""
    from confluent_kafka import Producer

    with pylogseg.Broker() as here, pylogseg.Broker() as there:
        here.create_topic("orders", partitions=2)
        there.create_topic("source.orders", partitions=2)
        there.create_topic("heartbeats", partitions=1)
        producer = Producer({"bootstrap.servers": here.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions()
        for turn in range(6):
            producer.begin_transaction()
            for number in range(20):
                partition = number % 2
                time = 1_700_000_000_000 + turn * 100 + number
                producer.produce("orders", b"%d-%d" % (turn, number), b"k", partition=partition, timestamp=time)
            producer.flush()
            (producer.abort_transaction if turn == 2 else producer.commit_transaction)()
        mirror = Producer({"bootstrap.servers": there.bootstrap_servers})
        for each in pylogseg.read(f"kafka://{here.bootstrap_servers}/orders", isolation_level="read_committed"):
            mirror.produce("source.orders", each.value, each.key, partition=each.partition, timestamp=each.timestamp)
        mirror.flush()
        yield here, there


def test_a_mirror_and_its_map(clusters, tmp_path: Path) -> None:
    here, there = (f"kafka://{broker.bootstrap_servers}" for broker in clusters)
    path = tmp_path / "map.csv"
    rename = ("--rename", "*=source.*")
    done = shell("diff", here, there, "orders", "--by-content", *rename, "--map", path, "--json")
    assert done.code == 0, done
    rows = {row["partition"]: row for row in done.rows if row["type"] == "partition"}
    assert {name: row["recordsA"] for name, row in rows.items()} == {"orders-0": 50, "orders-1": 50}
    assert all(row["same"] and row["runs"] == 5 for row in rows.values())
    lines = path.read_text().splitlines()
    assert lines[0] == "topic,partition,firstOffset,lastOffset,targetTopic,targetPartition,targetOffset"
    assert lines[1:4] == [
        "orders,0,0,9,source.orders,0,0",
        "orders,0,11,20,source.orders,0,10",
        "orders,0,33,42,source.orders,0,20",
    ]
    runs = read_map(str(path))["orders", 0]
    assert [runs.translate(offset) for offset in (0, 9, 10, 21, 22, 33, 66, 67)] == [0, 9, 10, 20, 20, 20, 50, None]
    assert shell("diff", here, there, "orders", "--by-content", *rename, "--map", path).code == 2
    other = tmp_path / "map.jsonl"
    assert shell("diff", here, there, "orders", "--by-content", *rename, "--map", other).code == 0
    assert {key: value.runs.tolist() for key, value in read_map(str(other)).items()} == {
        key: value.runs.tolist() for key, value in read_map(str(path)).items()
    }
    aborted = shell("diff", here, there, "orders", "--by-content", *rename, "--isolation-level", "read_uncommitted")
    assert aborted.code == 1
    assert "orders-0: 10 missing (60 records in A, 50 in B)" in aborted.text


def test_groups_by_a_map(clusters, tmp_path: Path) -> None:
    """Each translated offset is that of the record that the group reads next."""
    from confluent_kafka import Consumer, TopicPartition

    here, _there = clusters
    path, out = tmp_path / "map.csv", tmp_path / "offsets.csv"
    urls = [f"kafka://{broker.bootstrap_servers}" for broker in clusters]
    assert shell("diff", *urls, "orders", "--by-content", "--rename", "orders=source.orders", "--map", path).code == 0
    committed = {"at-record": 35, "at-marker": 10, "in-aborted": 25, "at-end": 66, "beyond": 70}
    for group, offset in committed.items():
        consumer = Consumer({"bootstrap.servers": here.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        consumer.close()
    done = shell("groups", urls[0], "--map-to", path, "--export", out)
    assert done.code == 1
    assert "beyond, orders-0, 70: the map ends at offset 66" in done.err
    assert sorted(out.read_text().splitlines()) == [
        "at-end,source.orders,0,50",
        "at-marker,source.orders,0,10",
        "at-record,source.orders,0,22",
        "in-aborted,source.orders,0,20",
    ]
    for line in out.read_text().splitlines():
        group, topic, partition, offset = line.split(",")
        old, new = (
            next(
                iter(pylogseg.read(url, name, int(partition), offset=(first, None), isolation_level="read_committed")),
                None,
            )
            for url, name, first in ((urls[0], "orders", committed[group]), (urls[1], topic, int(offset)))
        )
        assert (old and old.value) == (new and new.value)
    rows = shell("groups", urls[0], "at-record", "--map-to", path, "--json").rows
    assert [(row["mappedTopic"], row["mappedPartition"], row["mappedOffset"]) for row in rows] == [
        ("source.orders", 0, 22)
    ]


def test_damage_gives_no_map(tmp_path: Path) -> None:
    records = [record(number) for number in range(100)]
    a, b = write_log(tmp_path / "a" / "t-0", records), write_log(tmp_path / "b" / "t-0", records, 5)
    change_byte(a / f"{0:020}.log")
    path = tmp_path / "map.csv"
    done = shell("diff", a, b, "--by-content", "--map", path, "--on-corrupt", "skip")
    assert done.code == 2
    assert "the map has no offsets of it" in done.err
    assert len(path.read_text().splitlines()) == 1
    assert shell("diff", a, b, "--by-content").code == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--map", "x.csv"), "need --by-content"),
        (("--by-content", "--map", "x.txt"), ".csv file"),
        (("--by-content", "--latest"), "cannot be combined"),
        (("--by-content", "--rename", "x"), "expected A=B"),
        (("--by-content", "--rename", "*=x"), "one * each"),
        (("--by-content", "--rename", "a=b"), "B has no topic of such a name"),
        (("--by-content", "nowhere"), "on either side"),
        (("--by-content", "--overwrite"), "--overwrite needs --map"),
    ],
)
def test_refused(options: tuple[str, ...], reason: str, examples: Path) -> None:
    expect(shell("diff", examples, examples, *options), 2, reason)


HEAD = "topic,partition,firstOffset,lastOffset,targetTopic,targetPartition,targetOffset\n"
LINE = {"topic": "t", "partition": 0, "firstOffset": 0, "lastOffset": 4, "targetTopic": "u", "targetPartition": 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ""),
        ("a.csv", "topic,partition\n"),
        ("a.csv", f"{HEAD}t,0,5,4,u,0,1\n"),
        ("a.csv", f"{HEAD}t,0,5,6,u,0,1\nt,0,6,8,u,0,9\n"),
        ("a.csv", f"{HEAD}t,0,5,6,u,0,1\nt,0,7,8,v,0,9\n"),
        ("a.csv", f"{HEAD}t,0,5\n"),
        ("a.jsonl", "{"),
        ("a.jsonl", "[]"),
        ("a.jsonl", json.dumps(LINE)),
        ("a.jsonl", json.dumps({**LINE, "targetOffset": "x"})),
        ("a.jsonl", json.dumps({**LINE, "targetOffset": -1})),
        ("a.txt", ""),
    ],
)
def test_a_file_that_is_no_map(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RequestError, match=f"{name}: "):
        read_map(str(tmp_path / name))


def test_disk_against_itself(examples: Path) -> None:
    done = shell("diff", examples, examples, "txn-a", "legacy", "--by-content")
    assert done.code == 0, done
