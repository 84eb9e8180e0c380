"""Tests of cli/stats.py, inspect/stats/counting.py, inspect/stats/groups.py, inspect/stats/missing.py,
inspect/stats/shown.py and tables/counting.py. `pylogseg stats`: counts against plain Python over the records, and the
reasons of missing offsets.
"""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.shell import damaged, expect, pylogseg

import pylogseg as package
from pylogseg.disk.listing import open_dir
from pylogseg.inspect.stats.missing import MissingOffsets
from pylogseg.inspect.stats.segment import Stats, segment_stats


def only(*arguments: object) -> dict[str, Any]:
    done = expect(pylogseg("stats", *arguments, "--json"), 0)
    (row,) = done.rows
    return row


def test_counts(examples: Path) -> None:
    row = only(examples)
    disk = open_dir(examples)
    records = [r for p in disk.partitions for r in package.read(p.path, from_log_start=False)]
    control = [r for p in disk.partitions for r in package.read(p.path, from_log_start=False, control=True)]
    sizes = [len(r.key or b"") + len(r.value or b"") for r in records]
    keys = [r.key for r in records if r.key is not None]
    assert row["partitions"] == len(disk.partitions)
    assert row["size"] == sum(path.stat().st_size for path in examples.rglob("*.log"))
    assert row["records"] == len(records)
    assert sum(row["controlRecords"].values()) == len(control) - len(records) == row["missingOffsets"]["markers"]
    assert row["nullKeys"] == len(records) - len(keys)
    assert row["distinctKeys"] == len(set(keys))
    assert row["distinctKeysExact"]
    assert row["tombstones"] == sum(r.value is None and r.key is not None for r in records)
    assert row["headers"] == sum(len(r.headers) for r in records)
    assert row["recordBytes"]["total"] == sum(sizes)
    assert row["recordBytes"]["mean"] == round(float(np.mean(sizes)), 2)
    assert (row["recordBytes"]["min"], row["recordBytes"]["max"]) == (min(sizes), max(sizes))
    assert row["keyBytes"]["total"] == sum(map(len, keys))
    timestamps = [r.timestamp for r in records if r.timestamp >= 0]
    assert (row["leastTimestamp"], row["largestTimestamp"]) == (min(timestamps), max(timestamps))


@pytest.mark.parametrize("by", ["hour", "key"])
def test_records_by_hour_and_key(examples: Path, by: str) -> None:
    expected: dict[tuple[str, Any], list[int]] = {}
    for record in package.read(examples, ["codec-*", "timestamps"]):
        time = None if record.timestamp < 0 else record.timestamp // 3_600_000 * 3_600_000
        found = expected.setdefault((record.topic, time if by == "hour" else record.key), [0, 0])
        found[0] += 1
        found[1] += len(record.key or b"") + len(record.value or b"")
    words = ("stats", examples, "codec-*", "timestamps", "--by", by)
    for jobs in (1, 3):
        done = pylogseg(*words, "--json", "--jobs", jobs)
        assert [*done.rows[0]] == ["topic", by, "records", "bytes"]
        got = {(row["topic"], row["hour"] if by == "hour" else of_key(row["key"])): row for row in done.rows}
        assert {key: [row["records"], row["bytes"]] for key, row in got.items()} == expected
        assert len(got) == len(done.rows)
    assert len(pylogseg(*words).text.splitlines()) == len(expected) + 1
    for more in (["--gaps"], ["--top-keys", 2], ["--sort", "size"]):
        assert pylogseg(*words, *more).code == 2


def of_key(text: str | None) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text.removeprefix("base64:")) if text.startswith("base64:") else text.encode()


def test_batches(examples: Path) -> None:
    row = only(examples)
    found = [package.scan(path.read_bytes()).batches for path in examples.rglob("*.log")]
    assert row["batches"] == sum(map(len, found))
    magics = Counter(str(magic) for batches in found for magic in batches.magic.tolist())
    assert row["magics"] == dict(sorted(magics.items()))
    codecs = Counter(n for batches in found for n in batches.codec.tolist())
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert {name: codec["batches"] for name, codec in row["codecs"].items()} == {
        names[n]: codecs[n] for n in sorted(codecs)
    }
    assert sum(codec["storedBytes"] for codec in row["codecs"].values()) == row["size"]
    assert row["producers"] == len({p for batches in found for p in batches.producer_id.tolist() if p >= 0})
    assert row["codecs"]["none"]["ratio"] == 1.0
    assert row["transactionalBatches"] == sum(int(batches.is_transactional.sum()) for batches in found)


def test_ratio_is_that_of_the_same_records(examples: Path) -> None:
    """The same records were written with each codec: their decompressed bytes are the same."""
    raw = {
        name: sum(codec["rawBytes"] for codec in only(examples, f"codec-{name}")["codecs"].values())
        for name in ("none", "gzip", "snappy", "zstd")
    }
    assert max(raw.values()) - min(raw.values()) < 0.02 * raw["none"]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("txn-a-0", {"markers": 28}),
        ("cmp-short", {"compaction": 1656}),
        ("cmp-txn", {"markers": 124, "compaction": 1101}),
        ("ret-bytes", {"belowLogStart": 288}),
        ("del-records", {"belowLogStart": 123, "belowLogStartStillInFiles": 27}),
        ("legacy", {}),
        ("codec-zstd", {}),
    ],
)
def test_missing_offsets_are_explained(name: str, reasons: dict[str, int], examples: Path) -> None:
    missing = only(examples, name)["missingOffsets"]
    assert {reason: count for reason, count in missing.items() if count} == reasons
    records = list(package.read(examples, name, from_log_start=False, control=True))
    listed = pylogseg("ls", examples, name, "--json").rows[0]
    # The offsets before the first and after the last kept record of a compacted log are missing as well.
    begin = min(records[0].offset, listed["logStartOffset"])
    assert missing["compaction"] == listed["logEndOffset"] - begin - len(records)


def test_a_hole_without_a_reason(examples: Path, tmp_path: Path) -> None:
    """A segment of the middle is gone, and nothing tells of a cleaner."""
    folder = tmp_path / "codec-none-1"
    folder.mkdir()
    first, middle, last = sorted((examples / "codec-none-1").glob("*.log"))
    for path in (first, last):
        (folder / path.name).write_bytes(path.read_bytes())
    row = only(folder)
    assert row["missingOffsets"]["unexplained"] == int(last.stem) - int(middle.stem)
    assert row["missingOffsets"]["compaction"] == 0


def test_the_cleaners_checkpoint_is_a_reason(examples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "codec-none-1"
    folder.mkdir(parents=True)
    first, _, last = sorted((examples / "codec-none-1").glob("*.log"))
    for path in (first, last):
        (folder / path.name).write_bytes(path.read_bytes())
    (tmp_path / "logs" / "cleaner-offset-checkpoint").write_text("0\n1\ncodec-none 1 500\n")
    missing = only(tmp_path / "logs")["missingOffsets"]
    assert missing["compaction"] > 0
    assert missing["unexplained"] == 0


def test_damage_is_a_reason(examples: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (examples / "codec-none-1").glob("*.log"))
    size = (examples / "codec-none-1" / names[1]).stat().st_size
    for i, (name, position) in enumerate([(names[0], 100), (names[1], size - 10), (names[2], 8)]):
        folder = damaged(examples / "codec-none-1", tmp_path / str(i) / "codec-none-1", name, position)
        done = expect(pylogseg("stats", folder, "--json"), 1)
        assert done.err.count("\n") == 1
        missing = done.rows[0]["missingOffsets"]
        assert missing["damage"] > 0
        assert done.rows[0]["records"] + missing["damage"] == 505
        assert missing["unexplained"] == missing["compaction"] == 0


def test_groups(examples: Path) -> None:
    whole = only(examples)
    for by, count in (("topic", 18), ("partition", 19)):
        rows = pylogseg("stats", examples, "--by", by, "--json").rows
        assert len(rows) == count
        for field in ("records", "batches", "segments", "size", "tombstones", "headers"):
            assert sum(row[field] for row in rows) == whole[field]
        table = pylogseg("stats", examples, "--by", by).text.splitlines()
        assert len(table) == count + 2
        assert table.pop().startswith("TOTAL ")


def test_merging_is_counting_together(examples: Path) -> None:
    segments = list(open_dir(examples / "mixed-0").segments)
    left, right, whole = Stats(), Stats(), Stats()
    for i, segment in enumerate(segments):
        whole.merge(segment_stats(segment))
        (left if i < 2 else right).merge(segment_stats(segment))
    left.merge(right)
    assert {n: v for n, v in vars(left).items() if n not in ("keys", "key_sizes", "value_sizes", "record_sizes")} == {
        n: v for n, v in vars(whole).items() if n not in ("keys", "key_sizes", "value_sizes", "record_sizes")
    }
    assert left.keys.count == whole.keys.count
    assert (left.record_sizes.buckets == whole.record_sizes.buckets).all()


def test_nothing() -> None:
    assert MissingOffsets("t-0", 0, False).finish() == ((0, 0, 0, 0, 0, 0, 0), [], 0)
    deleted = MissingOffsets("t-0", 17, False)
    deleted.add(Stats(segments=1))
    assert deleted.finish() == ((0, 17, 0, 0, 0, 0, 0), [("t-0", 0, 17, "log start")], 0)


def test_report_of_an_empty_partition(tmp_path: Path) -> None:
    folder = tmp_path / "void-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").touch()
    expect(pylogseg("stats", folder), 0, out="0: none")
    assert only(folder)["recordBytes"]["p99"] is None


def test_files_by_themselves(examples: Path) -> None:
    path = sorted((examples / "ret-bytes-0").glob("*.log"))[1]
    row = only(path)
    assert row["records"] == 48
    assert not any(row["missingOffsets"].values())


# ---- which offsets are missing ----


def ranges(row: dict[str, Any], *reasons: str) -> list[tuple[int, int]]:
    return [(r["first"], r["last"]) for r in row["missingRanges"] if r["reason"] in reasons]


@pytest.mark.parametrize("name", ["txn-a-0", "cmp-short-0", "cmp-txn-0", "ret-bytes-0", "legacy-0", "mixed-0"])
def test_each_missing_offset_is_in_one_range(name: str, examples: Path) -> None:
    """What no data record has, below the end, is named exactly, with the same sums as the counts."""
    row = only(examples, name)
    end = pylogseg("ls", examples, name, "--json").rows[0]["logEndOffset"]
    there = {r.offset for r in package.read(examples / name, from_log_start=False)}
    named = [o for r in row["missingRanges"] for o in range(r["first"], r["last"] + 1)]
    assert len(named) == len(set(named))
    assert set(named) == set(range(end)) - there
    assert row["missingRangesNotListed"] == 0
    counts = {"log start": "belowLogStart", "markers": "markers", "compaction": "compaction"}
    for reason, field in counts.items():
        assert sum(last - first + 1 for first, last in ranges(row, reason)) == row["missingOffsets"][field]
    assert all(r["count"] == r["last"] - r["first"] + 1 for r in row["missingRanges"])
    assert all(r["partition"] == name for r in row["missingRanges"])


def test_a_removed_batch_is_named_by_its_offsets(examples: Path, tmp_path: Path) -> None:
    """Not by its segment: in the middle of one, before the first batch, a whole segment."""
    source = examples / "codec-none-1"
    logs = sorted(source.glob("*.log"))
    rows = package.scan(logs[1].read_bytes()).batches
    cut = len(rows) // 2
    begin, end = int(rows.position[cut]), int(rows.position[cut] + rows.size[cut])
    missing = (int(rows.base_offset[cut]), int(rows.last_offset[cut]))
    for case, expected in (
        ("inside", missing),
        ("first", (int(logs[1].stem), int(rows.last_offset[0]))),
        ("segment", (int(logs[1].stem), int(logs[2].stem) - 1)),
        ("begin", (0, int(package.scan(logs[0].read_bytes()).batches.last_offset[0]))),
    ):
        folder = tmp_path / case / "codec-none-1"
        folder.mkdir(parents=True)
        for path in logs:
            data = path.read_bytes()
            first = package.scan(data).batches
            if path == logs[1] and case == "inside":
                data = data[:begin] + data[end:]
            if (path == logs[1] and case == "first") or (path == logs[0] and case == "begin"):
                data = data[int(first.size[0]) :]
            if path != logs[1] or case != "segment":
                (folder / path.name).write_bytes(data)
        row = only(folder)
        assert ranges(row, "unexplained") == [expected], case
        assert row["missingOffsets"]["unexplained"] == expected[1] - expected[0] + 1
        text = f"offsets {expected[0]} to {expected[1]}"
        assert row["gaps"] == [f"codec-none-1: {text} (unexplained)"]
        assert any(text in line and "unexplained" in line for line in pylogseg("stats", folder).text.splitlines())


def test_damage_and_a_gap_are_told_apart(examples: Path, tmp_path: Path) -> None:
    """Damage at the beginning of a log hides no other gap."""
    folder = tmp_path / "codec-none-1"
    folder.mkdir()
    first, middle, last = sorted((examples / "codec-none-1").glob("*.log"))
    data = bytearray(first.read_bytes())
    lost = package.scan(bytes(data)).batches
    data[100] ^= 1
    (folder / first.name).write_bytes(data)
    (folder / last.name).write_bytes(last.read_bytes())
    row = pylogseg("stats", folder, "--json").rows[0]
    assert ranges(row, "damage") == [(0, int(lost.last_offset[0]))]
    assert ranges(row, "unexplained") == [(int(middle.stem), int(last.stem) - 1)]
    assert row["missingOffsets"]["unexplained"] == int(last.stem) - int(middle.stem)


def test_gaps_lists_all_reasons(examples: Path) -> None:
    few, everything = pylogseg("stats", examples, "cmp-txn").text, pylogseg("stats", examples, "cmp-txn", "--gaps").text
    assert "PARTITION" not in few
    listed = everything[everything.index("PARTITION") :].splitlines()[1:]
    row = only(examples, "cmp-txn")
    assert len(listed) == len(row["missingRanges"])
    assert {line.split()[-1] for line in listed} == {"markers", "compaction"}


def test_a_damaged_checkpoint_of_the_cleaner_is_named(tmp_path: Path) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([(1_700_000_000_000, b"k", b"v")])
    (tmp_path / "cleaner-offset-checkpoint").write_text("x\n")
    done = pylogseg("stats", tmp_path, "--json")
    assert (done.code, done.rows[0]["records"]) == (1, 1)
    assert "not known: what the cleaner has cleaned" in done.err
