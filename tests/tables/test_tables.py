"""Tests of tables/batch_rows.py, tables/rows.py and tables/table_scan.py. The tables of batches, segments, partitions
and indexes: against what other commands print, pruned and lazy.
"""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.checks import some
from helpers.counted_reads import count_reads
from helpers.golden_brokers import BROKERS
from helpers.shell import damaged, pylogseg
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg as package
from pylogseg.disk.disk import Segment
from pylogseg.errors import RequestError
from pylogseg.tables import batch_rows

TABLES = ("batches", "segments", "partitions", "indexes")


def rows(path: Path, of: str, **how: Any) -> list[dict[str, Any]]:
    """All rows of a table."""
    found: list[dict[str, Any]] = ms(package.dataset(path, of=of).to_table(**how)).to_pylist()
    return found


def ms(table: pa.Table) -> pa.Table:
    """A table with timestamps as milliseconds."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.timestamp("ms")).cast(pa.int64()))
    return table


@pytest.mark.parametrize("broker", BROKERS)
def test_listed_as_ls(golden: Path, broker: str) -> None:
    """Partitions and segments are those of `ls`, word for word."""
    for log_dir in some(sorted(p for p in (golden / broker).glob("data*") if p.is_dir()))[:2]:
        listed = pylogseg("ls", log_dir, "--json").rows
        for of, options in (("partitions", []), ("segments", ["-l"])):
            expected = listed if of == "partitions" else pylogseg("ls", log_dir, "--json", *options).rows
            paths = {segment.path for segment in package.open_dir(log_dir).segments}
            expected = [row for row in expected if of == "partitions" or row["path"] in paths]
            made = {row["path"]: row for row in rows(log_dir, of)}
            assert len(made) == len(expected)
            for row in expected:
                given_row = {name: made[row["path"]][name] for name in row}
                given_row["companions"] = row.get("companions")
                assert {**row, "companions": row.get("companions")} == given_row


def test_batches_as_dump(examples: Path) -> None:
    """Batches are those of `dump`: the same places, offsets, producers."""
    for segment in package.open_dir(examples).segments:
        printed = [row for row in pylogseg("dump", segment.path, "--json").rows if row["type"] == "batch"]
        made = rows(Path(segment.path), "batches")
        assert [(r["position"], r["size"], r["lastOffset"], r["codec"]) for r in printed] == [
            (r["position"], r["size"], r["lastOffset"], r["codec"]) for r in made
        ]
        for row, there in zip(printed, made, strict=True):
            assert row["maxTimestamp"] == there["maxTimestamp"]
            for name in ("producerId", "producerEpoch", "leaderEpoch", "baseSequence"):
                assert row.get(name) == (None if there[name] == -1 else there[name])


def test_indexes_as_dump(examples: Path) -> None:
    names = {"index": "offsetIndexEntry", "timeindex": "timeIndexEntry", "txnindex": "abortedTransaction"}
    made = rows(examples, "indexes")
    for segment in package.open_dir(examples).segments:
        for index, kind in names.items():
            path = Path(segment.path).with_suffix(f".{index}")
            if path.exists():
                printed = [row for row in pylogseg("dump", path, "--json").rows if row["type"] == kind]
                of = [
                    row
                    for row in made
                    if (row["index"], row["segment"]) == (index, segment.name)
                    and (row["topic"], row["partition"]) == (segment.topic, segment.partition)
                ]
                assert len(of) == len(printed)
                for expected, row in zip(printed, of, strict=True):
                    assert {name: row[name] for name in expected if name in row} == {
                        name: value for name, value in expected.items() if name in row
                    }
    assert {row["index"] for row in made} == set(names)


FILTERS = st.recursive(
    st.one_of(
        st.builds(
            lambda name, value, way: getattr(pc.field(name), way)(value),
            st.sampled_from(["baseOffset", "lastOffset", "position", "count", "partition"]),
            st.integers(-5, 600),
            st.sampled_from(["__ge__", "__lt__", "__eq__", "__gt__", "__le__", "__ne__"]),
        ),
        st.sampled_from(["mixed", "txn-a", "none"]).map(lambda topic: pc.field("topic") == topic),
        st.sampled_from(["lastOffset", "problem", "maxTimestamp"]).map(lambda name: pc.field(name).is_null()),
        st.integers(0, 2**42).map(lambda ms: pc.field("maxTimestamp") >= pa.scalar(ms, pa.timestamp("ms", "UTC"))),
        st.lists(st.integers(0, 600), max_size=4).map(lambda some: pc.field("lastOffset").isin(some)),
    ),
    lambda inside: st.one_of(
        st.builds(lambda a, b: a & b, inside, inside),
        st.builds(lambda a, b: a | b, inside, inside),
        inside.map(lambda each: ~each),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def broken(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of which one segment has a batch that nobody can read."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("mixed-0", "txn-a-0", "txn-a-1", "legacy-0", "cmp-short-0", "timestamps-0"):
        shutil.copytree(examples / name, folder / name)
    shutil.rmtree(folder / "mixed-0")
    damaged(examples / "mixed-0", folder / "mixed-0", "00000000000000000080.log", 16)
    return folder


@settings(max_examples=max(30, settings().max_examples // 10))
@given(condition=FILTERS)
def test_filters_are_exact(broken: Path, condition: Any) -> None:
    """Whatever is left out by names and indexes, the rows are those of a table in memory."""
    whole = package.dataset(broken, of="batches").to_table()
    made = package.dataset(broken, of="batches").to_table(filter=condition)
    assert made == whole.filter(condition)


@pytest.mark.parametrize("of", TABLES)
def test_parts_and_copies(broken: Path, of: str) -> None:
    """Fragments together, a pickled copy, and scans without columns have the same rows."""
    table = package.dataset(broken, of=of)
    whole = table.to_table()
    whole.validate(full=True)
    parts = [fragment.to_table() for fragment in table.get_fragments()]
    assert pa.concat_tables(parts) == whole
    assert pickle.loads(pickle.dumps(table)).to_table() == whole
    assert table.count_rows() == len(whole) > 0
    for fragment in table.get_fragments():
        assert fragment.to_table(filter=fragment.partition_expression).num_rows == fragment.count_rows()
    for name in table.schema.names:
        assert table.to_table(columns=[name]).column(name) == whole.column(name) or name in ("size",)


def test_damage_is_a_row(broken: Path) -> None:
    table = package.dataset(broken, "mixed", of="batches")
    problems = table.to_table(filter=~pc.field("problem").is_null()).to_pylist()
    assert len(problems) == 1
    assert problems[0]["segment"] == "00000000000000000080.log"
    assert [gap.kind.value for gap in table.gaps] == [problems[0]["problem"].partition(":")[0]]


def test_damaged_index_is_a_row(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0")
    path = folder / "00000000000000000000.txnindex"
    path.write_bytes(b"\7" + path.read_bytes()[1:])  # a version that nobody knows
    (folder / "00000000000000000043.index").write_bytes(b"abc")
    problems = [row for row in rows(folder, "indexes") if row["problem"]]
    assert {(row["segment"][-6:-4], row["index"]) for row in problems} == {("00", "txnindex"), ("43", "index")}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is unreadable for this user")
def test_unreadable_partition(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0")
    shutil.copytree(examples / "mixed-0", tmp_path / "mixed-0")
    (tmp_path / "mixed-0").chmod(0)
    try:
        for of in TABLES:
            (row,) = [each for each in rows(tmp_path, of) if each["topic"] == "mixed"]
            assert row.get("problem") or row.get("error")
    finally:
        (tmp_path / "mixed-0").chmod(0o755)


def test_lists_are_lazy(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the names of files tell opens no file; what is pruned is not opened either."""

    def refuse(self: Segment) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(Segment, "open", refuse)
    assert len(rows(examples, "segments", columns=["topic", "size", "companions", "modified", "state"])) == 70
    assert len(rows(examples, "partitions", columns=["topic", "segments", "diskBytes", "logStartOffset"])) == 19
    assert rows(examples, "batches", filter=pc.field("topic") == "nobody") == []
    assert rows(examples, "batches", filter=pc.field("lastOffset") < 0) == []


def test_bytes_of_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of offsets reads a part of a segment."""
    with package.open_log(tmp_path / "t-0", segment_bytes=1 << 26) as log:
        for _ in range(200):
            log.append([(1, None, bytes(1000))] * 100, batch_bytes=1 << 14)
    table = package.dataset(tmp_path, of="batches")
    reads = count_reads(monkeypatch)
    found = table.to_table(filter=(pc.field("lastOffset") >= 10_000) & (pc.field("lastOffset") < 10_100))
    assert set(range(10_000, 10_100)) & set(found["lastOffset"].to_pylist())
    assert sum(reads.values()) < 0.2 * sum(segment.size for segment in package.open_dir(tmp_path).segments)
    assert table.planned(pc.field("lastOffset") < 100).size_bytes < table.planned().size_bytes / 5


def test_names_and_numbers(examples: Path) -> None:
    assert {row["topic"] for row in package.dataset(examples, "txn-*", of="segments").to_table().to_pylist()} == {
        "txn-a",
        "txn-b",
    }
    assert package.dataset(examples, "txn-a", of="partitions", partition=1).count_rows() == 1
    with pytest.raises(RequestError, match="no partition 7"):
        package.dataset(examples, "txn-a", of="partitions", partition=7)
    with pytest.raises(RequestError, match="no partition 7"):
        package.dataset(examples, "txn-a", of="batches", partition=7)
    with pytest.raises(RequestError, match="of='rows': must be one of records, batches"):
        package.dataset(examples, of="rows")
    with pytest.raises(RequestError, match="columns"):
        package.dataset(examples, of="batches").to_table(filter=pc.field("nothing") > 1)


def test_headers_are_enough(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches come from headers alone, and are those that a walk of all bytes finds."""
    plain = [f"{each.topic}-{each.partition}" for each in package.open_dir(examples).partitions]
    expected = {}
    with monkeypatch.context() as patch:
        patch.setattr(batch_rows, "plain_batches", lambda *_: None)
        for name in plain:
            for keep in (None, pc.field("lastOffset") >= 20, pc.field("lastOffset") < 33):
                expected[name, str(keep)] = rows(examples / name, "batches", filter=keep)
    reads = count_reads(monkeypatch)
    for name in plain:
        for keep in (None, pc.field("lastOffset") >= 20, pc.field("lastOffset") < 33):
            assert rows(examples / name, "batches", filter=keep) == expected[name, str(keep)]
    assert reads["headers"] > 0
    reads.clear()
    assert rows(examples / "codec-none-1", "batches")
    assert reads["log"] == 0
