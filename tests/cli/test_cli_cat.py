"""Tests of cli/cat.py, cli/follow.py, cli/output.py and cli/tail.py. `pylogseg cat`: ranges, filters, forms, tail and
follow, against what `pylogseg.read` gives.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.forked import process
from helpers.shell import damaged, environment, expect, pylogseg
from reference import text as reference

import pylogseg as package
from pylogseg.cli.query import Query
from pylogseg.cli.tail import FollowedReader, last_records
from pylogseg.disk.listing import open_dir
from pylogseg.format.text import payload_of
from pylogseg.reading.logs import logs_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading

NAMES = [
    "codec-none-1",
    "codec-zstd-0",
    "codec-snappy-0",
    "mixed-0",
    "txn-a-0",
    "cmp-short-0",
    "legacy-0",
    "ret-bytes-0",
]


def offsets(*arguments: object) -> list[int]:
    done = expect(pylogseg("cat", *arguments, "--fields", "offset"), 0)
    return [row["offset"] for row in done.rows]


def text(data: bytes | None) -> str | None:
    """Bytes as JSON text gives them."""
    return reference.plain(data, "text")


@pytest.mark.parametrize("name", NAMES)
def test_json_lines_are_the_records(name: str, examples: Path) -> None:
    rows = pylogseg("cat", examples, name).rows
    kinds = {0: "CreateTime", 1: "LogAppendTime", -1: "NoTimestampType"}
    records = list(package.read(examples, name))
    assert len(rows) == len(records) > 0
    for row, record in zip(rows, records, strict=True):
        assert row["topic"] == record.topic
        assert (row["partition"], row["offset"], row["timestamp"]) == (
            record.partition,
            record.offset,
            record.timestamp,
        )
        assert row["timestampType"] == kinds[record.timestamp_type]
        assert (row["key"], row["value"]) == (text(record.key), text(record.value))
        assert [(h["key"], h["value"]) for h in row["headers"]] == [(k, text(v)) for k, v in record.headers]


def test_all_partitions_one_after_the_other(examples: Path) -> None:
    rows = pylogseg("cat", examples, "--no-headers").rows
    assert len(rows) == len(list(package.read(examples)))
    assert "headers" not in rows[0]
    names = [(row["topic"], row["partition"]) for row in rows]
    assert names == sorted(names)


@pytest.mark.parametrize("style", ["base64", "hex"])
def test_payload_styles(style: str, examples: Path) -> None:
    back: Any = {"base64": base64.b64decode, "hex": bytes.fromhex}[style]
    rows = pylogseg("cat", examples, "codec-none", "--key-as", style, "--value-as", style).rows
    records = list(package.read(examples, "codec-none"))
    decoded = [[None if row[f] is None else back(row[f]) for f in ("key", "value")] for row in rows]
    assert decoded == [[record.key, record.value] for record in records]


def test_csv(examples: Path) -> None:
    done = pylogseg("cat", examples, "codec-zstd", "--csv", "--fields", "offset,key,value", "--value-as", "hex")
    head, *lines = csv.reader(io.StringIO(done.text, newline=""))
    records = list(package.read(examples, "codec-zstd"))
    assert head == ["offset", "key", "value"]
    found = [[offset, payload_of(key), value] for offset, key, value in lines]
    assert found == [[str(r.offset), r.key or b"", (r.value or b"").hex()] for r in records]


def test_template(examples: Path) -> None:
    done = pylogseg("cat", examples, "txn-a-1", "-f", r"%t/%p@%o %k=%s\n")
    assert done.text.splitlines() == [
        f"{r.topic}/{r.partition}@{r.offset} {text(r.key)}={text(r.value)}" for r in package.read(examples, "txn-a-1")
    ]


def test_segment_field_changes_with_the_segment(examples: Path) -> None:
    rows = pylogseg("cat", examples, "codec-none", "--fields", "offset,segment").rows
    names = [segment.name for segment in open_dir(examples).select(["codec-none-1"]).segments]
    assert list(dict.fromkeys(row["segment"] for row in rows)) == names
    assert all(int(row["segment"].split(".")[0]) <= row["offset"] for row in rows)


def test_a_file_by_itself(examples: Path) -> None:
    path = sorted((examples / "codec-none-1").glob("*.log"))[1]
    base = int(path.stem)
    assert offsets(path)[0] == base


def test_offset_ranges(examples: Path) -> None:
    whole = offsets(examples, "codec-zstd")
    assert whole == list(range(505))
    assert offsets(examples, "codec-zstd", "--offset", "100:200") == whole[100:200]
    assert offsets(examples, "codec-zstd", "-o", "500") == whole[500:]
    assert offsets(examples, "codec-zstd", "-o", ":3") == whole[:3]
    assert offsets(examples, "codec-zstd", "-o", "-5:") == whole[-5:]
    assert offsets(examples, "codec-zstd", "-o", "-5:-2") == whole[-5:-2]
    assert offsets(examples, "codec-zstd", "-o", "7:+3") == whole[7:10]
    assert offsets(examples, "codec-zstd", "-o", "600:") == []
    assert offsets(examples, "codec-zstd", "-o", "-9999:2") == whole[:2]


def test_times(examples: Path) -> None:
    records = list(package.read(examples, "codec-zstd"))
    middle = records[250].timestamp
    after = [r.offset for r in records if r.timestamp >= middle]
    assert offsets(examples, "codec-zstd", "--since", middle) == after
    before = offsets(examples, "codec-zstd", "--until", middle)
    assert before == [r.offset for r in package.read(examples, "codec-zstd", timestamp=(None, middle))]
    assert before == list(range(after[0]))
    assert offsets(examples, "codec-zstd", "--since", "2100-01-01T00:00:00Z") == []


def test_limit_is_over_all_partitions(examples: Path) -> None:
    assert len(offsets(examples, "codec-*", "--limit", 600)) == 600
    assert offsets(examples, "--limit", 0) == []


def test_key(examples: Path) -> None:
    records = list(package.read(examples, ["codec-zstd", "mixed"]))
    keys = {r.key for r in records if r.key} - {b"idem"}
    for key in [*sorted(keys)[:3], b"idem"]:
        got = [
            (row["topic"], row["offset"])
            for row in pylogseg("cat", examples, "codec-zstd", "mixed", "-k", text(key)).rows
        ]
        assert got == [(r.topic, r.offset) for r in sorted(records, key=lambda r: (r.topic, r.offset)) if r.key == key]
    hexed = pylogseg("cat", examples, "codec-zstd", "--key", b"k90".hex(), "--key-as", "hex", "--fields", "key")
    assert hexed.rows == [{"key": b"k90".hex()}]


def test_control_and_isolation(examples: Path) -> None:
    for isolation_level in ("read_uncommitted", "read_committed"):
        wanted = [r.offset for r in package.read(examples, "txn-a-0", isolation_level=isolation_level)]  # type: ignore[arg-type]
        assert offsets(examples, "txn-a-0", "--isolation-level", isolation_level) == wanted
    plain, control = offsets(examples, "txn-a-0"), offsets(examples, "txn-a-0", "--control")
    assert len(control) == len(plain) + 28


def test_below_log_start(examples: Path) -> None:
    assert offsets(examples, "del-records")[0] == 123
    assert offsets(examples, "del-records", "--below-log-start")[0] == 96


def test_throttle_takes_its_time(examples: Path) -> None:
    begin = time.monotonic()
    pylogseg("cat", examples, "codec-none", "--max-bytes-per-second", "100k")
    assert time.monotonic() - begin > 0.3  # 41 kB


# ---- the end of a log ----


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 7, 100, 1000])
def test_tail(name: str, count: int, examples: Path) -> None:
    whole = offsets(examples, name)
    assert offsets(examples, name, "--tail", count) == whole[max(0, len(whole) - count) :]


def test_tail_with_filters(examples: Path) -> None:
    """The last records of those that are wanted, however far back."""
    wanted = offsets(examples, "ret-bytes", "--key", "k3")
    assert len(wanted) > 5
    assert offsets(examples, "ret-bytes", "--key", "k3", "--tail", 3) == wanted[-3:]
    committed = offsets(examples, "txn-a-0", "--isolation-level", "read_committed")
    assert offsets(examples, "txn-a-0", "--isolation-level", "read_committed", "--tail", 5) == committed[-5:]
    assert offsets(examples, "codec-zstd", "--offset", ":100", "--tail", 5) == list(range(95, 100))


def test_tail_reads_only_the_end(examples: Path) -> None:
    query = Query(Selection(), Reading())
    (log,) = logs_of(open_dir(examples / "codec-none-1"))
    part = last_records(query.of(log), 3)
    assert part.first_offset == 502
    read: list[int] = []
    list(part.apart(read.append).chunks())
    assert sum(read) < 6000 < 41_000


def grow(source: Path, target: Path, upto: int, cut: int | None = None) -> None:
    """Let a copy of a partition hold the first segments, the last of them cut."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.glob("*.log"))[:upto]:
        copied = target / path.name
        if not copied.exists() or copied.stat().st_size != path.stat().st_size:  # somebody may be reading it
            shutil.copyfile(path, copied)
    if cut is not None:
        path = sorted(target.glob("*.log"))[-1]
        os.truncate(path, cut)


def batch_ends(path: Path) -> list[int]:
    found = package.scan(path.read_bytes()).batches
    return (found.position + found.size).tolist()


def test_followed_gives_each_record_once(examples: Path, tmp_path: Path) -> None:
    source, folder = examples / "codec-none-1", tmp_path / "codec-none-1"
    first, second, _ = sorted(source.glob("*.log"))
    (folder).mkdir()
    ends = batch_ends(first)
    grow(source, folder, 1, ends[2] + 30)  # the fourth batch is half written
    disk = open_dir(folder)
    query = Query(Selection(), Reading())
    (log,) = logs_of(disk)
    followed = FollowedReader(query.of(log), disk.partitions[0])
    got: list[int] = []

    def look() -> int:
        before = len(got)
        followed.list_again()
        got.extend(o for chunk in followed.new() for o in chunk.columns.offset.tolist())
        return len(got) - before

    assert look() > 0
    assert look() == 0
    grow(source, folder, 1)
    assert look() > 0
    grow(source, folder, 2, batch_ends(second)[0])  # rolled
    assert look() > 0
    grow(source, folder, 3)
    (folder / first.name).unlink()  # retention
    assert look() > 0
    assert got == list(range(505))
    for path in folder.iterdir():
        path.unlink()
    assert look() == 0


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_follow_shows_what_comes(examples: Path, tmp_path: Path) -> None:
    source, folder = examples / "codec-none-1", tmp_path / "codec-none-1"
    folder.mkdir()
    grow(source, folder, 1)
    started = process("cat", folder, "--tail", 1, "--follow", "--fields", "offset", "--limit", 5)
    assert started.stdout is not None
    last = json.loads(started.stdout.readline())["offset"]
    grow(source, folder, 3)
    out = [json.loads(line)["offset"] for line in started.stdout]
    assert started.wait(60) == 0
    assert out == list(range(last + 1, last + 5))
    assert started.stderr is not None
    assert started.stderr.read() == b""
    started.stdout.close()
    started.stderr.close()


def test_follow_needs_a_folder(examples: Path) -> None:
    path = next((examples / "codec-none-1").glob("*.log"))
    expect(pylogseg("cat", path, "--follow"), 2, "--follow needs a partition's folder")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak that Linux tells")
def test_memory_does_not_grow_with_the_log(examples: Path, tmp_path: Path) -> None:
    """A segment of 64 MB costs no more memory than one of 40 kB, but for windows."""
    folder = tmp_path / "big-0"
    folder.mkdir()
    data = sorted((examples / "codec-none-1").glob("*.log"))[0].read_bytes()
    with open(folder / f"{0:020d}.log", "wb") as file:
        for _ in range((64 << 20) // len(data)):
            file.write(data)
    # The peak of getrusage may be that of the parent: it goes over a fork.
    code = (
        "import re, sys\nfrom pylogseg.cli import shell\n"
        "try: shell(['cat', sys.argv[1]])\nexcept SystemExit: pass\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert int(done.stderr.split()[-1]) << 10 < 100 << 20


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_deleted_records_have_no_say_in_ranges_of_time(tmp_path: Path, option: str) -> None:
    folder = tmp_path / "late-0"
    folder.mkdir()
    times = [10, 90, 20, 30, 40]  # the second is deleted below
    (folder / f"{0:020d}.log").write_bytes(
        b"".join(package.encode([(t, None, b"v")], base_offset=i) for i, t in enumerate(times))
    )
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nlate 0 2\n")
    done = pylogseg("cat", folder, option, 35, "-f", "%o ")
    assert done.text.split() == {"--since": ["4"], "--until": ["2", "3"]}[option]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--csv", "--fields", "segment,offset,key"),
        ("--isolation-level", "read_committed"),
        ("--since", "1700000001000", "--control", "--offset", "20:300"),
        ("--key", "k90"),
    ],
)
def test_order_does_not_depend_on_threads(options: tuple[str, ...], examples: Path) -> None:
    one, several = (pylogseg("cat", examples, "--jobs", jobs, *options) for jobs in (1, 5))
    assert one == several
    assert len(one.out) > 100


def test_damage_met_by_a_thread(examples: Path, tmp_path: Path) -> None:
    folder = damaged(examples / "codec-none-1", tmp_path / "codec-none-1", "00000000000000000190.log", 100)
    for options in ((), ("--on-corrupt", "skip"), ("--on-corrupt", "stop")):
        one, several = (pylogseg("cat", folder, "--jobs", jobs, *options) for jobs in (1, 3))
        assert one == several
        expect(one, 1, "CRC mismatch")


def test_a_start_above_the_end_is_said(examples: Path, tmp_path: Path) -> None:
    """Nothing is printed then, so a line on stderr says why; at the end itself, the next record is awaited."""
    said = "codec-zstd-0 has no records from offset 506 on: it ends at 505"
    for command in (("cat",), ("cat", "--tail", 2), ("latest",), ("export", "--out", tmp_path / "lake", "--json")):
        done = pylogseg(command[0], examples, "codec-zstd", "--offset", "506", *command[1:])
        assert (done.code, done.err.splitlines()[0]) == (0, f"pylogseg: {said}"), command
    done = expect(pylogseg("grep", "k", examples, "codec-*", "--offset", "506:510"), 1)
    assert (
        done.err
        == "pylogseg: codec-gzip-0 has no records from offset 506 on: it ends at 505 (4 more partitions likewise)\n"
    )
    for offsets in ("505", "500:900", "-3", ":999"):
        assert pylogseg("cat", examples, "codec-zstd", "--offset", offsets)[::2] == (0, "")
