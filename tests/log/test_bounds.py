"""Tests of format/codec_error.py. Small files that become large: memory is bounded by what was asked for, not by what a
few bytes can declare.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.depth import IS_DEEP, some_of
from helpers.handmade import batch, partition, varint
from helpers.shell import command, environment, expect, pylogseg

import pylogseg as package
from pylogseg import offline
from pylogseg.errors import RequestError
from pylogseg.format import records as format_records
from pylogseg.format.batches import scan
from pylogseg.format.codec_error import CodecError
from pylogseg.format.compression import compress
from pylogseg.format.records import RecordColumns, decode, decode_slices
from pylogseg.format.scratch import Scratch

#: A record of 7 bytes: no key, no value, all deltas 0.
TINY = b"\x0c\0\0\0\1\1\0"
MANY = (63 << 20) // 7
BATCHES = 4 if IS_DEEP else 1
MOST_MB = 700


def record(offset_delta: int, key: bytes, value: bytes, headers: int = 0, time_delta: int = 0) -> bytes:
    body = b"\0" + varint(time_delta) + varint(offset_delta) + varint(len(key)) + key + varint(len(value)) + value
    body += varint(headers) + b"\2h\2v" * headers
    return varint(len(body)) + body


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return partition(tmp_path_factory.mktemp("tiny"), tiny_batches(BATCHES))


def tiny_batches(count: int) -> bytes:
    """Six KB for each batch of nine million records."""
    packed = zstandard.compress(TINY * MANY)
    return b"".join(batch(packed, MANY, base=i * MANY) for i in range(count))


#: Starts a program and says what it took. A small process of its own: what a forked child of the tests has at first,
#: all their pages, would count as the program's.
_LAUNCHER = """
import json, os, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024], file)
"""


def peak_mb(*words: str) -> tuple[int, float, str]:
    """Run a program: its exit code, the most memory that it had in MB, and the end of what it said on stderr."""
    with tempfile.NamedTemporaryFile("r") as answer:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, answer.name, *words]
        done = subprocess.run(launcher, stderr=subprocess.PIPE, env=environment(), text=True, check=True)
        code, memory = json.load(answer)
    return code, memory, done.stderr[-500:]


@pytest.mark.parametrize(
    "words",
    [("stats",), ("cat", "-n", "10"), ("verify",), ("latest",), ("grep", "-c", "zz")],
    ids=lambda words: words[0],
)
def test_the_shell_on_millions_of_records_in_a_few_bytes(tiny: Path, words: tuple[str, ...]) -> None:
    pattern, options = (words[-1:], words[1:-1]) if words[0] == "grep" else ((), words[1:])
    code, memory, said = peak_mb(*command(words[0], *pattern, tiny, *options))
    assert code in (0, 1), said  # verify: offsets do not ascend; grep: nothing was found
    assert "Traceback" not in said
    assert memory < MOST_MB


@pytest.mark.parametrize(
    "loop",
    [
        "sum(len(chunk.columns) for chunk in package.read(path).chunks())",
        "sum(batch.num_rows for batch in package.read_arrow(path))",
        "sum(batch.num_rows for batch in package.read_arrow(path, views=True))",
    ],
)
def test_streams_of_millions_of_records_in_a_few_bytes(tiny: Path, loop: str) -> None:
    program = f"import pylogseg as package; path = {str(tiny)!r}; assert {loop} == {BATCHES * MANY}"
    code, memory, said = peak_mb(sys.executable, "-c", program)
    assert (code, said) == (0, "")
    assert memory < MOST_MB


def test_a_long_topic_of_millions_of_records(tmp_path: Path) -> None:
    """The topic is repeated for each: more than 2 GiB of it in one batch are no Arrow array."""
    path = partition(tmp_path, batch(zstandard.compress(TINY * MANY), MANY), "x" * 247 + "-0")
    program = f"import pylogseg; print(sum(b.num_rows for b in pylogseg.read_arrow({str(path)!r})))"
    code, memory, said = peak_mb(sys.executable, "-c", program)
    assert (code, said) == (0, "")
    assert memory < MOST_MB


def headers_of(count: int) -> bytes:
    body = b"\0\0\0\1\1" + varint(count) + b"\0\1" * count
    return batch(zstandard.compress(varint(len(body)) + body), 1)


@pytest.mark.parametrize("words", [("cat",), ("grep", "zz"), ("latest",), ("stats",)], ids=lambda words: words[0])
def test_millions_of_headers(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = partition(tmp_path, headers_of(30 << 20))
    code, memory, said = peak_mb(*command(*words, path, *(() if words[0] == "stats" else ("--on-corrupt", "skip"))))
    assert code == (2 if words[0] == "grep" else 1)
    assert "1048576, the limit" in said
    assert memory < MOST_MB


def test_many_records_with_many_headers(tmp_path: Path) -> None:
    """No record has too many; together they are more than a chunk may have."""
    count = 60 if IS_DEEP else 20
    body = b"".join(record(i, b"k", b"v", 60_000) for i in range(count))
    path = partition(tmp_path, batch(zstandard.compress(body), count))
    program = (
        f"import pylogseg; sizes = [len(c.columns) for c in pylogseg.read({str(path)!r}).chunks()];"
        f"assert sum(sizes) == {count} and max(sizes) <= 17;"
        f"assert sum(len(r.headers) for r in pylogseg.read({str(path)!r})) == {count} * 60_000;"
        f"assert sum(b.num_rows for b in pylogseg.read_arrow({str(path)!r})) == {count}"
    )
    code, memory, said = peak_mb(sys.executable, "-c", program)
    assert (code, said) == (0, "")
    assert memory < MOST_MB


# ---- slices are the same records ----


def facts(columns: RecordColumns) -> list[tuple[Any, ...]]:
    headers = [columns.span(p, s) for p, s in zip(*columns.header_spans()[2:], strict=True)]
    positions = columns.batches.position[columns.batch].tolist()
    keys = [columns.key(i) for i in range(len(columns))]
    values = [columns.value(i) for i in range(len(columns))]
    return [
        *zip(columns.offset.tolist(), columns.timestamp.tolist(), positions, keys, values, strict=True),
        tuple(headers),
    ]


def with_bad_ones() -> bytes:
    """Batches of many records, good and damaged at the beginning, the middle and the end of the records."""
    parts = [record(i, b"k%d" % i, b"v" * (i % 40), i % 3) for i in range(100)]
    good, all_parts = b"".join(parts), []
    for i, (body, count) in enumerate(
        [
            (good, 100),
            (good[:-1], 100),
            (good + b"\0", 100),
            (good, 99),
            (good, 101),
            (good[: len(good) // 2] + b"\xff" * 20 + good[len(good) // 2 + 20 :], 100),
            (b"\x01" + good[1:], 100),
            (b"".join(parts[:60]), 60),
            (good, 2**31 - 1),
            (good, 100),
        ]
    ):
        for codec in (0, 4):
            packed = compress("zstd", body) if codec else body
            all_parts.append(batch(packed, count, base=(2 * i + codec // 4) * 1000, codec=codec, last=max(0, 100)))
    return b"".join(all_parts)


@pytest.mark.parametrize("slots", [1, 7, 64, 99, 100, 101])
@pytest.mark.parametrize("besides", [None, "views", "keys", "values", "payloads"])
def test_slices_are_the_same_records(monkeypatch: pytest.MonkeyPatch, slots: int, besides: Any) -> None:
    data = with_bad_ones()
    whole, damage = decode(scan(data).batches, data)
    bad = [(int(whole.batches.position[row]), reason) for row, reason in damage]
    monkeypatch.setattr(format_records, "SLOTS", slots)
    found: list[Any] = []
    spans: list[Any] = []
    reasons, begun = [], []
    for columns, damage, continues, ends in decode_slices(scan(data).batches, data, scratch=Scratch(besides=besides)):
        assert len(columns) <= max(slots, 1) or len(columns.batches) == 1 or columns.batches.count.sum() <= slots
        *rows, headers = facts(columns)
        found += rows
        spans += headers
        reasons += [(int(columns.batches.position[row]), reason) for row, reason in damage]
        begun += [] if continues else columns.batches.position.tolist()
        assert ends or len(columns) == slots
        copies = columns.values
        if copies is not None:
            sizes = np.diff(copies.ends)
            assert sizes.tolist() == np.maximum(columns.value_size, 0).tolist()
            assert bytes(copies.data) == b"".join(row[4] for row in rows)
    *rows, headers = facts(whole)
    assert (found, tuple(spans), reasons) == (rows, headers, bad)
    assert begun == whole.batches.position.tolist()


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "--on-corrupt", "skip"),
        ("cat", "--on-corrupt", "stop"),
        ("stats", "--json"),
        ("verify", "--json"),
        ("dump", "-r"),
        ("dump", "-r", "--json"),
        ("grep", "v", "--on-corrupt", "skip"),
        ("latest", "--on-corrupt", "skip"),
    ],
    ids=" ".join,
)
def test_commands_say_the_same_of_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    path = partition(tmp_path, with_bad_ones())
    arguments = [*words[:2], path, *words[2:]] if words[0] == "grep" else [words[0], path, *words[1:]]
    if words[0] == "dump":
        arguments[1] = path / f"{0:020}.log"
    before = pylogseg(*arguments)
    monkeypatch.setattr(format_records, "SLOTS", 9)
    after = pylogseg(*arguments)
    assert (after.code, after.out, after.err) == (before.code, before.out, before.err)


def test_verify_joins_the_slices_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest timestamp of a batch, and the order of its offsets, are those of all its slices."""
    first = b"".join(record(i, b"", b"") for i in range(20))
    back = b"".join(record(i, b"", b"") for i in (*range(10), *range(10)))
    early = b"".join(record(i, b"", b"", time_delta=5 if i == 0 else 0) for i in range(20))
    late = batch(early, 20, codec=0, base=40, timestamp=1000)
    path = partition(tmp_path, batch(first, 20, codec=0) + batch(back, 20, codec=0, base=20) + late)
    monkeypatch.setattr(format_records, "SLOTS", 10)
    findings = [row for row in pylogseg("verify", path, "--json").rows if row["type"] != "summary"]
    assert [row["reason"] for row in findings if row["kind"] in ("records", "timestamp")] == [
        "offset 20 follows offset 29 in the same batch",
        "the header's greatest timestamp is 1000, the records' 1005",
    ]


def test_dump_in_kafkas_style_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(record(i, b"k%d" % i, b"v") for i in range(50))
    path = partition(tmp_path, batch(body, 50, codec=0) + batch(body, 50, codec=0, base=50)) / f"{0:020}.log"
    before = pylogseg("dump", "--style", "kafka", "--print-data-log", path)
    monkeypatch.setattr(format_records, "SLOTS", 7)
    assert pylogseg("dump", "--style", "kafka", "--print-data-log", path).out == before.out
    assert before.text.count("payload: v") == 100


# ---- the limit is told from damage ----


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_over_the_limit_says_so(codec: str) -> None:
    data = np.random.default_rng(1).integers(0, 4, 300_000, np.uint8).tobytes()
    packed = compress(codec, data)
    for limit in (1000, 100_000, 299_999):
        with pytest.raises(CodecError, match=r"more than .* the limit .*raise max_decompressed_bytes") as error:
            _decompress(codec, packed, limit)
        assert error.value.is_limit
    assert _decompress(codec, packed, 300_000) == data


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_broken_does_not_blame_the_limit(codec: str) -> None:
    data = np.random.default_rng(1).integers(0, 4, 300_000, np.uint8).tobytes()
    packed = bytearray(compress(codec, data))
    with pytest.raises(CodecError, match=codec) as error:
        _decompress(codec, bytes(packed[:20_000]), 299_999)
    assert not error.value.is_limit
    assert "the limit" not in str(error.value)


def _decompress(codec: str, packed: bytes, limit: int) -> bytes:
    from pylogseg.format.codecs import decompress

    return decompress(codec, packed, limit=limit)


def test_a_record_may_have_many_headers_if_the_limit_is_raised(tmp_path: Path) -> None:
    path = partition(tmp_path, headers_of((1 << 20) + 1))
    with pytest.raises(package.CorruptionError, match="1048577 headers, more than 1048576, the limit"):
        next(iter(package.read(path)))
    (found,) = package.read(path, max_decompressed_bytes=128 << 20)
    assert len(found.headers) == (1 << 20) + 1


OVER_THE_LIMIT = 70_000_000


@pytest.fixture(scope="module")
def over_the_limit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with one batch of one record that decompresses to 70 MB."""
    body = zstandard.compress(record(0, b"key", b"v" * OVER_THE_LIMIT))
    return partition(tmp_path_factory.mktemp("over"), batch(body, 1))


READING = {
    "cat": ("cat", "--headers"),
    "cat-since": ("cat", "--since", "1000"),
    "grep": ("grep", "vvv"),
    "export": ("export", "--out"),
    "latest": ("latest",),
    "stats": ("stats",),
    "diff": ("diff",),
    "dump": ("dump", "--records"),
    "dump-json": ("dump", "--records", "--json"),
    "dump-kafka": ("dump", "--style", "kafka", "--print-data-log"),
}


@pytest.mark.parametrize("words", some_of(READING.values(), 5), ids=some_of(READING, 5))
def test_the_shell_reads_what_is_over_the_limit_if_told(
    over_the_limit: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    name, *options = words
    if name == "diff":
        options.append(str(partition(tmp_path, batch(record(0, b"key", b"other"), 1, codec=0))))
    elif name == "export":
        options.append(str(tmp_path / "out"))
    path = over_the_limit / f"{0:020}.log" if name == "dump" else over_the_limit
    refused = expect(pylogseg(name, *options, path), 2 if name in ("grep", "diff") else 1)
    said = refused.err + refused.out[-1000:].decode()
    assert "more than 67108864 bytes, the limit for one batch" in said
    assert "raise --max-decompressed-bytes to read it" in said
    done = pylogseg(name, *options, path, "--max-decompressed-bytes", "100M")
    assert (done.code, done.err) == (1 if name == "diff" else 0, "")
    if name in ("cat", "grep", "latest", "dump"):
        assert len(done.out) > OVER_THE_LIMIT
    elif name == "export":
        assert pq.read_table(tmp_path / "out")["value"].to_pylist() == [b"v" * OVER_THE_LIMIT]
    elif name == "stats":
        assert json.loads(pylogseg("stats", "--json", path, "--max-decompressed-bytes", "100M").out)["records"] == 1
    else:
        assert "1 changed" in done.text


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_verify_names_the_shells_option(over_the_limit: Path, form: tuple[str, ...]) -> None:
    assert "raise --max-decompressed-bytes to read it" in pylogseg("verify", over_the_limit, *form).text
    done = pylogseg("verify", over_the_limit, "--max-decompressed-bytes", "100M", *form)
    assert "the limit" not in done.text


def test_python_names_its_own_parameter(over_the_limit: Path) -> None:
    with pytest.raises(package.CorruptionError, match="raise max_decompressed_bytes to read it"):
        next(iter(package.read(over_the_limit)))
    with pytest.raises(package.CorruptionError, match="raise max_decompressed_bytes to read it"):
        list(offline.diff(over_the_limit, over_the_limit))
    (same,) = offline.diff(over_the_limit, over_the_limit, max_decompressed_bytes=100 << 20)
    assert same.is_same
    assert same.records_a == 1


@pytest.mark.parametrize("stored", ["producer", "gzip"])
def test_a_log_that_allows_large_messages_takes_one_over_the_limit(tmp_path: Path, stored: str) -> None:
    value = b"v" * OVER_THE_LIMIT
    with package.open_log(tmp_path / "t-0", max_message_bytes=200_000_000, compression_type=stored) as log:
        log.append([(1000, b"key", value)], compression="zstd")
        (found,) = log.read(timestamp=1000, max_decompressed_bytes=100 << 20)
        assert found.value == value


def test_a_log_that_does_not_names_the_setting(tmp_path: Path) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        with pytest.raises(RequestError, match=r"the limit for one batch: .*raise max_message_bytes to append"):
            log.append([(1000, b"key", b"v" * OVER_THE_LIMIT)], compression="zstd")
        assert log.log_end_offset == 0


# ---- numbers that are too large ----


@pytest.mark.parametrize(
    ("seconds", "fits"),
    [(9_223_372_036_854_775, True), (9_223_372_036_854_776, False), (2**62, False), (10**17, False), (-(2**62), False)],
)
def test_seconds_that_are_too_many_milliseconds(seconds: int, fits: bool) -> None:
    times = pa.array([1, None, seconds], pa.int64()).view(pa.timestamp("s", "UTC"))
    table = pa.table({"value": pa.array([b"x"] * 3), "timestamp": times})
    if not fits:
        with pytest.raises(RequestError, match=f"record 2: its timestamp, {seconds} s, does not fit"):
            package.encode(table)
        return
    data = package.encode(table)
    assert decode(package.scan(data).batches, data)[0].timestamp.tolist()[2] == seconds * 1000


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_the_greatest_timestamps_of_other_units(unit: str) -> None:
    ticks = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    times = pa.array([2**63 - 1, 0], pa.int64()).view(pa.timestamp(unit, "UTC"))
    data = package.encode(pa.table({"value": pa.array([b"x"] * 2), "timestamp": times}))
    assert decode(package.scan(data).batches, data)[0].timestamp.tolist() == [(2**63 - 1) // ticks, 0]


def near_the_end(folder: Path, how: str) -> Path:
    """A log directory that was closed in order, with a segment whose index or batch leads beyond 2^63."""
    base = 2**63 - 20
    body = record(0, b"k", b"v" * 5000)
    data = batch(body, 1, base=base, codec=0)
    if how == "last batch":
        data = batch(body, 1, base=2**63 - 1, codec=0)
    if how == "sum":
        data = batch(body + record(1, b"k", b"v"), 2, base=2**63 - 2, codec=0)
    path = partition(folder, data)
    (path / f"{0:020}.log").rename(path / f"{base:020}.log")
    (path / f"{base:020}.index").write_bytes(struct.pack(">ii", 100 if how == "index" else 1, 0))
    (path / f"{base:020}.timeindex").write_bytes(struct.pack(">qi", 1000, 100 if how == "timeindex" else 0))
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (folder / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {base + 1}\n")
    return path


@pytest.mark.parametrize("how", ["index", "timeindex", "last batch", "sum"])
@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("cat",),
        ("cat", "--tail", "3"),
        ("verify",),
        ("stats",),
        ("latest",),
        ("recover", "--no-keep"),
        ("recover", "--no-keep", "--full"),
        ("repair", "--no-keep"),
        ("reindex",),
        ("compact", "--force", "--include-active"),
        ("recode", "-z", "zstd"),
        ("redact", "--key", "k"),
        ("truncate", "--to", "3"),
    ],
    ids=" ".join,
)
def test_offsets_near_the_greatest(tmp_path: Path, how: str, words: tuple[str, ...]) -> None:
    near_the_end(tmp_path, how)
    done = pylogseg(*words, tmp_path)  # raises what is no error of ours
    assert done.code in (0, 1, 2)


def test_a_command_without_memory_says_so_in_a_line(tmp_path: Path) -> None:
    path = partition(tmp_path, batch(zstandard.compress(record(0, b"k", bytes(60 << 20))), 1))
    limit = (200 << 20, 200 << 20)
    child = subprocess.run(
        command("cat", path, "-j", 1),
        env={**environment(), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
        capture_output=True,
        check=False,
    )
    assert (child.returncode, child.stderr.count(b"\n")) == (2, 1), child.stderr.decode()
    assert child.stderr.startswith(b"pylogseg: out of memory")


def test_a_file_of_keys_from_an_editor_of_windows(tmp_path: Path) -> None:
    path = partition(tmp_path, batch(record(0, b"k", b"v") + record(1, b"x", b"v"), 2, codec=0))
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbfk\r\nx\r\n")
    expect(pylogseg("redact", tmp_path, "--key-file", tmp_path / "keys", "--json"), 0)
    assert list(package.read(path)) == []


# ---- many segments ----


def segments_of(folder: Path, count: int, records: int = 1) -> Path:
    """A partition of tiny segments; with several records each, every second offset is missing, as after a cleaning."""
    folder.mkdir(parents=True)
    body = record(0, b"k", b"v")
    for base in range(0, 2 * count * records, 2 * records):
        data = b"".join(batch(body, 1, base=base + 2 * i, codec=0, last=0) for i in range(records))
        (folder / f"{base:020}.log").write_bytes(data)
    return folder.parent


SEGMENTS = (1000, 5000) if IS_DEEP else (500, 2500)
#: Of a thousand missing offsets each.
RANGES = (50, 350) if IS_DEEP else (20, 140)


@pytest.fixture(scope="module")
def tiny_segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("segments")
    return [segments_of(folder / str(count) / "t-0", count) for count in SEGMENTS]


@pytest.mark.parametrize("words", [("stats",), ("verify",)], ids=" ".join)
def test_what_is_known_of_a_segment_is_small(tiny_segments: list[Path], words: tuple[str, ...]) -> None:
    """Keys, sizes and findings of segments are put together as they come: a list of paths is what grows."""
    few, many = tiny_segments
    (_, least, _), (code, most, said) = (peak_mb(*command(*words, path, "-j", "1")) for path in (few, many))
    assert code == 0, said
    assert (most - least) * (1 << 20) / (SEGMENTS[1] - SEGMENTS[0]) < 4000  # bytes a segment; 14,000 where all was kept


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ranges")
    return [segments_of(folder / str(count) / "t-0", count, 1000) for count in RANGES]


@pytest.mark.parametrize("words", [("stats",), ("verify",)], ids=" ".join)
def test_ranges_of_missing_offsets_are_bounded(ranges: list[Path], words: tuple[str, ...]) -> None:
    few, many = ranges
    (_, least, _), (code, most, said) = (peak_mb(*command(*words, path, "-j", "1")) for path in (few, many))
    assert code in (0, 1), said
    assert (most - least) * (1 << 20) / (RANGES[1] - RANGES[0]) < 70_000  # bytes for a thousand ranges more
    done = pylogseg(*words, many, "--json")
    if words == ("stats",):
        (row,) = done.rows
        assert row["missingOffsets"]["unexplained"] == RANGES[1] * 1000 - 1
        assert len(row["missingRanges"]) + row["missingRangesNotListed"] == RANGES[1] * 1000 - 1
    else:
        gaps = [found for found in done.rows if found.get("kind") == "gap"]
        assert len(gaps) <= 11_000
        told = int(gaps[-1]["reason"].split()[1])
        assert len(gaps) - 1 + told == RANGES[1] * 1000 - 1


# ---- what is written anew ----

REWRITES = {
    "compact": ("--force", "--include-active"),
    "redact": ("--key", "k"),
    "recode": ("-z", "gzip"),
    "repair": ("--no-keep", "--keep-behind"),
}


@pytest.mark.parametrize("name", some_of(sorted(REWRITES), 2))
def test_what_a_rewriting_may_hold_is_bounded_and_can_be_raised(tmp_path: Path, name: str) -> None:
    """100 MB in a few bytes, a good batch: given up, never cut; with the option it is done."""
    path = partition(tmp_path, batch(zstandard.compress(record(0, b"k", bytes(100 << 20)) + record(1, b"k", b"v")), 2))
    log = path / f"{0:020}.log"
    before = log.read_bytes()
    code, memory, said = peak_mb(*command(name, path, *REWRITES[name]))
    assert (code, said) == (1, "")
    assert memory < 140
    refused = pylogseg(name, path, *REWRITES[name])
    assert (refused.code, log.read_bytes()) == (1, before)
    assert "more than 67108864 bytes" in refused.text
    assert "--max-decompressed-bytes" in refused.text
    expect(pylogseg(name, path, *REWRITES[name], "--max-decompressed-bytes", "200M"), 0)
    offsets = [found.offset for found in package.read(path, max_decompressed_bytes=200 << 20)]
    assert offsets == {"compact": [1], "redact": []}.get(name, [0, 1])


@pytest.mark.parametrize("name", some_of(sorted(REWRITES), 2))
def test_rewriting_millions_of_records_in_a_few_bytes(tmp_path: Path, name: str) -> None:
    """One batch of them after the other, however many lie in the few megabytes that are read at a time."""
    path = partition(tmp_path, tiny_batches(max(BATCHES, 2)))
    _, memory, said = peak_mb(*command(name, path, *REWRITES[name]))
    assert said == ""
    assert memory < 1.8 * MOST_MB
