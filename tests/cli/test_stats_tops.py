"""Tests of inspect/stats/top_lines.py and inspect/stats/tops.py. `pylogseg stats` of a range of time, sorted, and its
heaviest keys and largest records.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers.shell import damaged, expect, pylogseg

import pylogseg as package
from pylogseg.inspect.stats import sketch, tops
from pylogseg.inspect.stats.tops import again


def batches(examples: Path, topic: str) -> list[tuple[int, int, int]]:
    """Largest timestamp, size and records of each batch of a topic."""
    found = []
    for path in sorted(examples.glob(f"{topic}-[0-9]/*.log")):
        rows = package.scan(path.read_bytes()).batches
        counts = [0 if control else int(count) for control, count in zip(rows.is_control, rows.count, strict=True)]
        found += list(zip(rows.max_timestamp.tolist(), rows.size.tolist(), counts, strict=True))
    return found


@pytest.mark.parametrize(
    ("since", "until"),
    [(1700000010000, None), (None, 1700000010000), (1700000008000, 1700000030000), (4000000000000, None), (5, 6)],
)
@pytest.mark.parametrize("jobs", [1, 3])
def test_what_was_appended_in_a_range_of_time(since: int | None, until: int | None, jobs: int, examples: Path) -> None:
    options = [*(["--since", since] if since else []), *(["--until", until] if until else [])]
    done = expect(pylogseg("stats", examples, *options, "--by", "topic", "--json", "-j", jobs), 0)
    rows = {row["name"]: row for row in done.rows}
    for name in ("codec-none", "codec-zstd", "txn-a", "timestamps", "del-records", "cmp-txn"):
        held = [b for b in batches(examples, name) if b[0] >= (since or -1) and b[0] < (until or 2**63)]
        assert rows[name]["batches"] == len(held)
        assert rows[name]["size"] == sum(size for _, size, _ in held)
        assert rows[name]["records"] == sum(count for *_, count in held)
        assert "missingOffsets" not in rows[name]


def test_segments_before_the_range_are_not_read(examples: Path, tmp_path: Path) -> None:
    folder = damaged(examples / "codec-none-1", tmp_path / "codec-none-1", "00000000000000000000.log", 5000)
    assert pylogseg("stats", folder).code == 1
    late = pylogseg("stats", folder, "--since", 1700000060000)
    assert (late.code, late.err) == (0, "")
    assert "MISSING" not in late.text


def test_lines_are_sorted(examples: Path) -> None:
    def names(*options: str) -> list[str]:
        return [row["name"] for row in pylogseg("stats", examples, "--by", "topic", "--json", *options).rows]

    rows = {row["name"]: row for row in pylogseg("stats", examples, "--by", "topic", "--json").rows}
    assert names("--sort", "name") == sorted(rows)
    assert [rows[name]["size"] for name in names("--sort", "size")] == sorted(
        (row["size"] for row in rows.values()), reverse=True
    )
    by_records = names("--sort", "records", "--since", "1")
    assert [rows[name]["records"] for name in by_records[:5]] == [505] * 5
    lines = pylogseg("stats", examples, "--by", "topic", "--sort", "size", "--since", "1").text.splitlines()
    assert lines[-1].startswith("TOTAL ")
    assert "GAPS" not in lines[0]


@pytest.mark.parametrize(
    "options",
    [["--sort", "size"], ["--gaps", "--since", "1h"], ["--since", "10", "--until", "5"], ["--top-keys", "0"]],
)
def test_wrong_requests(options: list[str], examples: Path) -> None:
    assert pylogseg("stats", examples, *options).code == 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_top_keys_and_largest_records(jobs: int, examples: Path) -> None:
    (row,) = pylogseg("stats", examples, "--top-keys", 7, "--largest", 9, "--json", "-j", jobs).rows
    counts: Counter[bytes] = Counter()
    sizes: Counter[bytes] = Counter()
    # Also those below log starts: `stats` counts what is in the files.
    records = [r for path in sorted(examples.glob("*-[0-9]/*.log")) for r in package.read(path)]
    for record in records:
        if record.key is not None:
            counts[record.key] += 1
            sizes[record.key] += len(record.key) + len(record.value or b"")
    assert sorted((r["records"] for r in row["topKeysByRecords"]), reverse=True) == [
        n for _, n in counts.most_common(7)
    ]
    assert sorted((r["size"] for r in row["topKeysByBytes"]), reverse=True) == [n for _, n in sizes.most_common(7)]
    for found in row["topKeysByRecords"]:
        assert counts[found["key"].encode()] == found["records"]
    for found in row["topKeysByBytes"]:
        assert sizes[found["key"].encode()] == found["size"]
    assert row["topKeysByRecordsMissed"] == row["topKeysByBytesMissed"] == 0
    by_size = sorted(records, key=lambda r: -(len(r.key or b"") + len(r.value or b"")))
    assert [found["size"] for found in row["largest"]] == [len(r.key or b"") + len(r.value or b"") for r in by_size[:9]]
    known = {(f"{r.topic}-{r.partition}", r.offset): r for r in records}
    for found in row["largest"]:
        record = known[found["partition"], found["offset"]]
        assert found["keyBytes"] == (-1 if record.key is None else len(record.key))
        assert found["valueBytes"] == (-1 if record.value is None else len(record.value))
        assert found["timestamp"] == record.timestamp


def test_tables(examples: Path, tmp_path: Path) -> None:
    lines = pylogseg("stats", examples, "codec-none", "--top-keys", 1, "--largest", 1).text.splitlines()
    tail = [" ".join(line.split()) for line in lines[-8:]]
    assert tail == [
        "TOP KEY BY RECORDS RECORDS SHARE",
        "idem 15 3.0 %",
        "",
        "TOP KEY BY SIZE SIZE SHARE",
        "idem 510 B 1.5 %",
        "",
        "PARTITION LARGEST SIZE KEY BYTES VALUE BYTES TIME KEY",
        "codec-none-1 120 113 B 4 109 2023-11-14T22:13:30.020Z k110",
    ]
    (tmp_path / "t-0").mkdir()
    keys = [b"\xff", b"a\nb\x1b", b"", b"k" * 500]
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(package.encode([(1, key, None) for key in keys]))
    text = pylogseg("stats", tmp_path, "--top-keys", 9).text
    for shown in ("base64:/w==", r"a\nb\x1b", "(empty)", "k" * 60 + "... (500 bytes)"):
        assert f"\n{shown}  " in text


def test_a_bound_is_told_where_there_are_too_many_keys(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketch, "_KEPT_VALUES", 20)
    done = pylogseg("stats", examples, "codec-none", "--top-keys", 1)
    assert "all: too many keys to count exactly: each count may be up to" in done.text
    (row,) = pylogseg("stats", examples, "codec-none", "--top-keys", 1, "--json").rows
    (first,) = row["topKeysByRecords"]
    assert first["records"] <= 15 <= first["records"] + row["topKeysByRecordsMissed"]


def test_a_record_that_is_gone_meanwhile(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment, *_) = package.open_dir(examples / "txn-b-0").segments
    assert again(segment, 3) is not None
    assert again(segment, 300) is None
    monkeypatch.setattr(tops, "again", lambda *_: None)
    done = expect(pylogseg("stats", examples, "txn-b", "--top-keys", 1, "--largest", 1), 0)
    assert done.text.count("(deleted meanwhile)") == 3
