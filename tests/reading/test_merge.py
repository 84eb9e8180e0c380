"""Tests of reading/merged.py and reading/partition.py. Several partitions by time: against a sort in plain Python, in
bounded memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import pytest
from helpers.shell import damaged, environment, expect, pylogseg
from hypothesis import given
from hypothesis import strategies as st

import pylogseg as package
from pylogseg import scan
from pylogseg.disk.listing import open_dir
from pylogseg.format.records import decode
from pylogseg.reading import merged
from pylogseg.reading.merged import merge_by_time
from pylogseg.reading.partition import Chunk

SEGMENT = next(iter(open_dir(Path(__file__).resolve().parents[2] / "examples" / "data" / "txn-b-0").segments))


def ordered(records: Sequence[package.Record]) -> list[package.Record]:
    """By the latest time so far in the partition, then by name, number and offset."""
    keyed = []
    for _, found in groupby(records, key=lambda r: (r.topic, r.partition)):
        partition = list(found)
        times = accumulate((record.timestamp for record in partition), max)
        keyed += [((time, r.topic, r.partition, r.offset), r) for time, r in zip(times, partition, strict=True)]
    return [record for _, record in sorted(keyed, key=lambda pair: pair[0])]


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ([], {}),
        (["--since", "1700000000010", "--until", "1700000060000"], {"timestamp": 1700000000010}),
        (["--isolation-level", "read_committed"], {"isolation_level": "read_committed"}),
        (["--limit", "777"], {}),
        (["--csv", "--limit", "3000"], {}),
    ],
)
def test_records_of_all_partitions_by_time(options: list[str], reads: dict[str, object], examples: Path) -> None:
    expected = ordered(
        [r for r in package.read(examples, **reads) if "--until" not in options or r.timestamp < 1700000060000]
    )
    if "--limit" in options:
        expected = expected[: int(options[-1])]
    done = pylogseg("cat", examples, "--merge", "time", "-f", r"%t %p %o\n", *(o for o in options if o != "--csv"))
    assert done.code == 0
    found = [(t, int(p), int(o)) for t, p, o in (line.split() for line in done.text.splitlines())]
    assert found == [(record.topic, record.partition, record.offset) for record in expected]
    lines = pylogseg("cat", examples, "--merge", "time", *options)
    assert len(lines.out.splitlines()) >= len(expected)
    for other in ("1", "4"):
        assert pylogseg("cat", examples, "--merge", "time", *options, "-j", other) == lines


def test_each_record_is_written_as_without_a_merge(examples: Path) -> None:
    for form in ([], ["--csv"], ["--value-as", "json"], ["-f", r"%t %o %k %s %h\n--\n"]):
        plain, merge = (pylogseg("cat", examples, *form, *more) for more in ([], ["--merge", "time"]))
        assert merge.code == plain.code == 0
        assert sorted(merge.out.splitlines()) == sorted(plain.out.splitlines())
        assert merge.out != plain.out


def test_tail_and_latest_are_chosen_first(examples: Path) -> None:
    for option in (["--tail", "3"], ["--latest", "--tombstones"], ["--key", "k90"]):
        plain, merge = (
            pylogseg("cat", examples, "codec-none", "codec-zstd", *option, "--fields", "topic,offset", *more)
            for more in ([], ["--merge", "time"])
        )
        assert sorted(merge.out.splitlines()) == sorted(plain.out.splitlines()) != []


def test_a_late_record_stays_where_it_is(tmp_path: Path) -> None:
    for name, times in {"a-0": [10, 50, 20, 60], "a-1": [15, 50, 55], "b-0": [5, 90, 30]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(package.encode([(t, None, name.encode()) for t in times]))
    done = pylogseg("cat", tmp_path, "--merge", "time", "-f", "%s:%T ")
    assert done.text.split() == [
        *("b-0:5", "a-0:10", "a-1:15", "a-0:50", "a-0:20", "a-1:50", "a-1:55", "a-0:60", "b-0:90", "b-0:30")
    ]


def test_lines_in_payloads(tmp_path: Path) -> None:
    """A backslash and an n are no line feed, and one in each value ends no record."""
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
        records = [(t, None, f"{name}{t}\n|".encode()) for t in (1, 2, 3)]
        (tmp_path / name / f"{0:020d}.log").write_bytes(package.encode(records))
    expected = [f"{name}{t}\n|" for t in (1, 2, 3) for name in ("a-0", "b-0")]
    for form, end in ((r"%s\\n", "\\n"), (r"%s\n", "\n")):
        done = pylogseg("cat", tmp_path, "--merge", "time", "-f", form)
        assert done.text == "".join(each + end for each in expected)


def test_what_does_not_go_together(examples: Path) -> None:
    expect(pylogseg("cat", examples, "--merge", "time", "--follow"), 2, "--merge cannot be combined with --follow")
    assert pylogseg("cat", examples, "--merge", "offset").code == 2


def test_damage_is_told(examples: Path, tmp_path: Path) -> None:
    damaged(examples / "codec-none-1", tmp_path / "codec-none-1", "00000000000000000190.log", 100)
    done = pylogseg("cat", tmp_path, examples / "txn-b-0", "--merge", "time", "--on-corrupt", "skip")
    expect(done, 1, "CRC mismatch")
    plain = pylogseg("cat", tmp_path, examples / "txn-b-0", "--on-corrupt", "skip")
    assert sorted(plain.out.splitlines()) == sorted(done.out.splitlines())
    assert pylogseg("cat", tmp_path, "--merge", "time").code == 1


TIMES = st.lists(st.lists(st.integers(-1, 6), min_size=1, max_size=5), max_size=4)


@given(st.lists(TIMES, max_size=5), st.integers(1, 7))
def test_any_chunks(logs: list[list[list[int]]], most: int) -> None:
    """Chunks of any sizes, and blocks of any: records of a log are numbered, and come in their order."""

    def chunks(number: int, log: list[list[int]]) -> Iterator[Chunk]:
        at = 0
        for times in log:
            data = package.encode([(t, None, b"%d" % number) for t in times], base_offset=at)
            yield Chunk(decode(scan(data).batches, data)[0], SEGMENT)
            at += len(times)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged, "_BLOCK_RECORDS", most)
        found = []
        for pieces, order in merge_by_time([chunks(number, log) for number, log in enumerate(logs)]):
            assert 0 < len(order) <= most
            there = [
                (int(c.columns.value(i) or b""), int(c.columns.offset[i])) for c, a, b in pieces for i in range(a, b)
            ]
            assert sorted(order.tolist()) == list(range(len(there)))
            found += [there[i] for i in order]
    keyed = []
    for number, log in enumerate(logs):
        times = [time for chunk in log for time in chunk]
        keyed += [(time, number, offset) for offset, time in enumerate(accumulate(times, max))]
    assert found == [(number, offset) for _, number, offset in sorted(keyed)]


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak that Linux tells")
def test_memory_and_files_are_bounded(tmp_path: Path) -> None:
    """Three hundred partitions of 1 MB, where 200 open files are allowed: a window of each, and no more."""
    batches = [
        package.encode([(at * 1000 + i, None, b"x" * 1000) for i in range(100)], base_offset=at * 100)
        for at in range(10)
    ]
    for number in range(300):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(b"".join(batches))

    code = (
        "import re, resource, sys\nfrom pylogseg.cli import shell\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, int(sys.argv[2])))\n"
        "try: shell(['cat', sys.argv[1], '--merge', 'time', '-f', '%T\\n'])\n"
        "except SystemExit as end: print(end.code, file=sys.stderr)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1], file=sys.stderr)"
    )

    def run(most: int) -> tuple[list[str], list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(most)],
            env=environment(),
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.split(), done.stderr.splitlines()

    found, (code_line, peak) = run(400)
    times = np.array(found, np.int64)
    assert len(times) == 300_000
    assert (np.diff(times) >= 0).all()
    assert code_line == "0"
    assert int(peak) << 10 < 300 << 20
    found, (said, code_line, _) = run(300)
    assert (found, code_line) == ([], "2")
    assert "merging 300 partitions needs 364 open files, and the limit is 300" in said
