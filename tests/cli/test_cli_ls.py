"""Tests of cli/ls.py and inspect/stats/listed.py. `pylogseg ls`: offsets, sizes and times, against what the records
themselves say.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.forked import command
from helpers.shell import environment, pylogseg

import pylogseg as package
from pylogseg.disk.listing import open_dir
from pylogseg.inspect.stats.listing_windows import segment_row


def test_partitions(examples: Path) -> None:
    rows = {(row["topic"], row["partition"]): row for row in pylogseg("ls", examples, "--json").rows}
    disk = open_dir(examples)
    assert list(rows) == [(p.topic, p.partition) for p in disk.partitions]
    for p in disk.partitions:
        row = rows[p.topic, p.partition]
        records = list(package.read(p.path, from_log_start=False, control=True))
        assert row["state"] == "live"
        assert row["segments"] == len(list(Path(p.path).glob("*.log")))
        assert row["size"] == sum(path.stat().st_size for path in Path(p.path).glob("*.log"))
        assert row["logEndOffset"] >= records[-1].offset + 1
        assert row["logStartOffset"] == {"del-records": 123, "ret-bytes": 288}.get(p.topic, 0)
        assert row["firstTimestamp"] == next(r.timestamp for r in records if r.timestamp >= 0)


@pytest.mark.parametrize(("name", "end"), [("cmp-short", 1965), ("txn-a-0", 148), ("legacy", 55), ("timestamps", 350)])
def test_log_end_offsets(name: str, end: int, examples: Path) -> None:
    assert pylogseg("ls", examples, name, "--json").rows[0]["logEndOffset"] == end


def test_segments(examples: Path) -> None:
    rows = pylogseg("ls", examples, "-l", "--json").rows
    segments = list(open_dir(examples).segments)
    assert [row["path"] for row in rows] == [segment.path for segment in segments]
    for row, segment in zip(rows, segments, strict=True):
        found = package.scan(Path(segment.path).read_bytes()).batches
        timestamps = [r.timestamp for r in package.read(segment.path, control=True) if r.timestamp >= 0]
        assert row["nextOffset"] == (int(found.last_offset.max()) + 1 if len(found) else segment.base_offset)
        assert row["largestTimestamp"] == (int(found.max_timestamp.max()) if timestamps else None)
        assert row["firstTimestamp"] == (timestamps[0] if timestamps else None)
        assert row["state"] == ("active" if segment.is_last else "sealed")


def test_a_time_index_that_lies_is_not_believed(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "timestamps-0", tmp_path / "timestamps-0")
    honest = [segment_row(segment).largest_timestamp for segment in open_dir(folder).segments]
    for path in folder.glob("*.timeindex"):
        data = bytearray(path.read_bytes())
        data[-12:-4] = (2**50).to_bytes(8, "big")
        path.write_bytes(data)
    assert [segment_row(segment).largest_timestamp for segment in open_dir(folder).segments] == honest


def test_leftovers_and_states(examples: Path, tmp_path: Path) -> None:
    unique = "0123456789abcdef" * 2
    shutil.copytree(examples / "ret-bytes-0", tmp_path / "ret-bytes-0")
    shutil.copytree(examples / "txn-b-0", tmp_path / f"txn-b-0.{unique}-stray")
    shutil.copytree(examples / "txn-b-0", tmp_path / f"txn-b-0.{unique}-delete")
    rows = pylogseg("ls", tmp_path, "--json", "--all").rows
    assert [(row["topic"], row["state"]) for row in rows] == [
        ("ret-bytes", "live"),
        ("txn-b", "delete"),
        ("txn-b", "stray"),
    ]
    leftovers = rows[0]["leftovers"]
    assert {row["suffix"] for row in leftovers} == {".deleted"}
    assert sorted(row["path"] for row in leftovers) == sorted(map(str, (tmp_path / "ret-bytes-0").glob("*.deleted")))
    plain = pylogseg("ls", tmp_path).text
    assert "stray" in plain
    assert ".deleted" not in plain
    assert pylogseg("ls", tmp_path, "--all").text.count(".log.deleted") == len(
        list((tmp_path / "ret-bytes-0").glob("*.log.deleted"))
    )


def test_an_empty_partition(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "void-3"
    folder.mkdir(parents=True)
    (folder / f"{17:020d}.log").touch()
    (row,) = pylogseg("ls", tmp_path / "logs", "--json").rows
    assert (row["logStartOffset"], row["logEndOffset"], row["firstTimestamp"]) == (17, 17, None)
    line = pylogseg("ls", tmp_path / "logs").text.splitlines()[1]
    assert " ".join(line.split()) == "void 3 live 1 17 17 0 B - -"
    assert pylogseg("cat", tmp_path / "logs").out == b""


def test_plain_columns_are_aligned(examples: Path) -> None:
    head, *lines, total = pylogseg("ls", examples).text.splitlines()
    assert total.startswith("TOTAL ")
    ends = head.index("END") + len("END")
    assert all(line[:ends].split()[-1].isdigit() for line in lines)
    assert {line[ends] for line in lines} == {" "}


@pytest.mark.skipif(os.name != "posix", reason="a terminal of POSIX")
def test_a_narrow_terminal_cuts_nothing(examples: Path) -> None:
    pty = pytest.importorskip("pty")
    main, other = pty.openpty()
    names = {**environment(), "TERM": "xterm", "COLUMNS": "40"}
    started = subprocess.Popen(command("ls", examples, "-l"), stdout=other, env=names)
    os.close(other)
    shown = b""
    try:
        while piece := os.read(main, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert started.wait(60) == 0
    lines = re.sub(rb"\x1b\[[0-9;]*m", b"", shown).decode().splitlines()
    assert b"\x1b[1m" in shown
    assert [line.split() for line in lines] == [
        line.split() for line in pylogseg("ls", examples, "-l").text.splitlines()
    ]


def test_a_file(examples: Path) -> None:
    path = next((examples / "txn-b-0").glob("*.log"))
    (row,) = pylogseg("ls", path, "--json").rows
    assert (row["topic"], row["nextOffset"]) == ("txn-b", 11)


def test_what_came_from_a_url_is_shown_as_one(examples: Path) -> None:
    pytest.importorskip("fsspec")
    url = f"file://{examples.resolve()}"
    for words in (["--json"], ["-l", "--json"], ["--all", "--json"]):
        paths = [row["path"] for row in pylogseg("ls", url, "txn-a", *words).rows]
        assert paths
        assert all(path.startswith(f"{url}/txn-a-") for path in paths)
    again = pylogseg("ls", paths[0], "--json").rows
    assert [row["path"] for row in again] == paths[:1]


def test_topics_by_size(examples: Path) -> None:
    rows = pylogseg("ls", examples, "--by", "topic", "--sort", "size", "--json").rows
    sizes = {row["topic"]: row["diskBytes"] for row in rows}
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    for topic, size in sizes.items():
        folders = [p.path for p in open_dir(examples).partitions if p.topic == topic]
        assert size == sum(path.stat().st_size for folder in folders for path in Path(folder).iterdir())
    *lines, total = pylogseg("ls", examples, "--by", "topic").text.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(sizes)
    assert total.split()[:3] == ["TOTAL", str(len(open_dir(examples))), str(sum(row["segments"] for row in rows))]
    found = pylogseg("ls", examples, "--sort", "size", "--json").rows
    assert [row["diskBytes"] for row in found] == sorted((row["diskBytes"] for row in found), reverse=True)


def test_several_log_directories_are_told_apart(examples: Path, tmp_path: Path) -> None:
    for number in (0, 1):
        shutil.copytree(examples / "txn-b-0", tmp_path / f"data-{number}" / "txn-b-0")
    head, *lines = pylogseg("ls", tmp_path).text.splitlines()
    assert head.endswith("LOG DIR")
    assert [line.rpartition("Z  ")[2] for line in lines] == [f"{tmp_path}/data-0", f"{tmp_path}/data-1", "-"]
    assert "LOG DIR" not in pylogseg("ls", tmp_path / "data-0").text


def test_the_time_of_a_batch_that_is_too_large_to_look_into(tmp_path: Path) -> None:
    """Its header tells, as the other times of the list are from headers."""
    folder = tmp_path / "big-0"
    folder.mkdir()
    large = package.encode([(1_700_000_000_123, b"k", bytes(65 << 20))], compression="zstd")
    small = package.encode([(1_700_000_000_456, b"k", b"v")], base_offset=1)
    (folder / f"{0:020d}.log").write_bytes(large + small)
    for options in ((), ("-l",)):
        (row,) = pylogseg("ls", tmp_path, *options, "--json").rows
        assert row["firstTimestamp"] == 1_700_000_000_123


def test_the_time_of_a_whole_batch_comes_from_its_header(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No codec is loaded for it; a batch that was cleaned is looked into."""

    def decode(*_: object, **__: object) -> None:
        raise AssertionError("records were decoded")

    monkeypatch.setattr("pylogseg.format.records.decode", decode)
    segments = list(open_dir(examples).segments)
    times = [segment_row(segment).first_timestamp for segment in segments if segment.topic.startswith("codec-")]
    assert [(time or 0) - 1_700_000_000_000 for time in times] == [
        *(0, 35_000, 0, 26_000, 0, 16_000, 32_000, 0, 28_000, 0, 33_000)
    ]
    cleaned = next(segment for segment in segments if segment.topic == "cmp-short")
    with pytest.raises(AssertionError, match="were decoded"):
        segment_row(cleaned)


def test_segments_that_are_missing_are_named(examples: Path, tmp_path: Path) -> None:
    """By indexes that are left, and by offsets between segments; not what retention or a deletion took."""
    folder = Path(shutil.copytree(examples / "txn-a-0", tmp_path / "kafka" / "txn-a-0"))
    assert not pylogseg("ls", folder).err
    assert not pylogseg("ls", folder, "-l").err
    (folder / "00000000000000000043.log").unlink()
    done = pylogseg("ls", tmp_path / "kafka")
    assert (done.code, "00000000000000000043.log" in done.err) == (0, True), done.err
    assert "00000000000000000081" not in done.err
    assert pylogseg("ls", tmp_path / "kafka", "--json").rows[0]["missingSegments"] == [43]
    assert "offsets 43 to 80 are in no segment" in pylogseg("ls", folder, "--segments").err
    (folder / "00000000000000000043.log.deleted").touch()
    assert not pylogseg("ls", folder).err


def test_a_long_name_moves_only_its_own_row(tmp_path: Path) -> None:
    for name in ("t-0", "u-0", "n" * 240 + "-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").touch()
    head, long, *others = pylogseg("ls", tmp_path).text.splitlines()
    assert long.startswith("n" * 240 + "  ")
    assert all(len(line) < 120 for line in (head, *others))
    assert head.index("STATE") == others[0].index("live")


def test_all_lists_folders_that_await_deletion_also_of_a_name(tmp_path: Path) -> None:
    deleted = f"again-0.{'a' * 32}-delete"
    for name in ("again-0", "again-1", "other-0", deleted, f"other-0.{'b' * 32}-delete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").touch()

    def listed(*words: str) -> list[tuple[int, str]]:
        rows = pylogseg("ls", tmp_path, "--json", *words).rows
        assert {row["topic"] for row in rows} == {"again"}
        return [(row["partition"], row["state"]) for row in rows]

    assert listed("again", "--all") == [(0, "live"), (1, "live"), (0, "delete")]
    assert listed("--topic", "again", "-p", "1", "--all") == [(1, "live")]
    assert listed("again") == [(0, "live"), (1, "live")]
