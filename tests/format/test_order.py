"""Tests of reading/offset_order.py. Segments that are not what their names say: whoever reads them, however divided,
gives the same records or error.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg.reading.log_reader import LogReader

NAMES = [f"{base:020d}.log" for base in (0, 190, 382)]


def swap(folder: Path) -> None:
    a, b = folder / NAMES[1], folder / NAMES[2]
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)


def misname(folder: Path) -> None:
    (folder / NAMES[1]).rename(folder / f"{100:020d}.log")


def duplicate(folder: Path) -> None:
    shutil.copy(folder / NAMES[0], folder / f"{334:020d}.log")


def rename_last(folder: Path) -> None:
    (folder / NAMES[2]).rename(folder / f"{400:020d}.log")


def repeat(folder: Path) -> None:
    """A batch once more behind those that follow it."""
    path = folder / NAMES[0]
    data = path.read_bytes()
    end = package.scan(data).batches.position[2]
    path.write_bytes(data + data[:end])


def lift(folder: Path, name: str = NAMES[0]) -> None:
    """A base offset far too high, and damage after it: neither hides what follows."""
    path = folder / name
    data = bytearray(path.read_bytes())
    first, second = package.scan(bytes(data)).batches.position[2:4].tolist()
    data[first + 2] ^= 1
    data[second : second + 62] = bytes(62)
    path.write_bytes(data)


def lift_in_last(folder: Path) -> None:
    lift(folder, NAMES[2])


#: What is done to the files of codec-none-1, and the offsets that are left.
CASES: list[tuple[Callable[[Path], None], list[int]]] = [
    (swap, [*range(190)]),
    (misname, [*range(94), *range(190, 505)]),
    (duplicate, [*range(334), *range(382, 505)]),
    (rename_last, [*range(382), *range(406, 505)]),
    (repeat, [*range(505)]),
    (lift, [*range(22), *range(46, 505)]),
    (lift_in_last, [*range(406), *range(430, 505)]),
]


@pytest.mark.parametrize(("change", "left"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_one_rule_for_every_reader(
    examples: Path, tmp_path: Path, change: Callable[[Path], None], left: list[int]
) -> None:
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "in" / "codec-none-1")
    change(folder)
    whole = package.read(folder, on_corrupt="skip")
    records = list(whole)
    assert [record.offset for record in records] == left
    matching = sum(record.key is not None or record.value is not None for record in records)
    with pytest.raises(package.CorruptionError):
        list(package.read(folder))
    stopping = package.read(folder, on_corrupt="stop")
    until_damage = [record.offset for record in stopping]
    parts = LogReader(whole.scope.logs[0], 0, 2**63, state=whole.scope.state).parts()
    assert [o for part in parts for chunk in part.chunks() for o in chunk.columns.offset.tolist()] == left
    assert [gap for part in parts for gap in part.gaps] == whole.gaps
    for jobs in (1, 2, 4):
        assert pylogseg("cat", folder, "-j", jobs).code == 1
        done = pylogseg("cat", folder, "-j", jobs, "--on-corrupt", "skip", "--fields", "offset")
        assert ([json.loads(line)["offset"] for line in done.out.splitlines()], done.code) == (left, 1)
        assert done.err.count("damage:") == len(whole.gaps)
        done = pylogseg("cat", folder, "-j", jobs, "--on-corrupt", "stop", "--fields", "offset")
        assert ([json.loads(line)["offset"] for line in done.out.splitlines()], done.code) == (until_damage, 1)
        done = pylogseg("grep", "-c", "", "--empty", folder, "-j", jobs, "--on-corrupt", "skip")
        assert (done.out.strip(), done.code) == (b"%d" % matching, 2)
        assert pylogseg("grep", "-c", "", "--empty", folder, "-j", jobs).code == 2
        done = expect(pylogseg("export", folder, "--out", tmp_path / f"raise{jobs}", "-j", jobs), 1)
        done = pylogseg(
            "export", folder, "--out", tmp_path / str(jobs), "--to", "jsonl", "-j", jobs, "--on-corrupt", "skip"
        )
        lines = [
            line for path in sorted((tmp_path / str(jobs)).rglob("*.jsonl")) for line in path.read_text().splitlines()
        ]
        assert (sorted(json.loads(line)["offset"] for line in lines), done.code) == (left, 1)
    done = pylogseg("stats", folder, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert {row["records"] for row in rows if row.get("partition") == 1 or "records" in row} == {len(left)}
    assert package.read_arrow(folder, on_corrupt="skip").read_all().column("offset").to_pylist() == left


def exchange(folder: Path) -> None:
    """The first segment and the last have changed places."""
    a, b = folder / NAMES[0], folder / NAMES[2]
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)


def exchange_and_zero(folder: Path) -> None:
    """Besides, a batch that is not of the first segment has lost its records."""
    exchange(folder)
    path = folder / NAMES[0]
    data = bytearray(path.read_bytes())
    begin, end = package.scan(bytes(data)).batches.position[2:4].tolist()
    data[begin + 61 : end] = bytes(end - begin - 61)
    path.write_bytes(data)


def raise_offset(folder: Path) -> None:
    """A batch has an offset that is too high, still below the next segment's."""
    path = folder / NAMES[0]
    data = bytearray(path.read_bytes())
    position = int(package.scan(bytes(data)).batches.position[2])
    data[position : position + 8] = (150).to_bytes(8, "big")
    path.write_bytes(data)


@pytest.mark.parametrize("change", [exchange, exchange_and_zero, raise_offset, *(change for change, _ in CASES)])
def test_times_select_what_is_read_without_them(examples: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    change(folder)
    everything = list(package.read(folder, on_corrupt="skip"))
    moments = sorted({record.timestamp for record in everything})
    assert len(moments) > 50
    for since in moments[:: len(moments) // 20]:
        found = list(package.read(folder, on_corrupt="skip", timestamp=(since, None)))
        assert found == [record for record in everything if record.timestamp >= since]


def test_the_end_is_found_where_the_last_indexed_batch_is_cut_off(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    for path in folder.glob(f"*{NAMES[1][13:20]}.*"):
        path.unlink()
    for path in folder.glob(f"*{NAMES[2][13:20]}.*"):
        path.unlink()
    log = folder / NAMES[0]
    index = log.with_suffix(".index").read_bytes()
    position = int.from_bytes(index[-4:], "big")
    assert position > 0
    log.write_bytes(log.read_bytes()[: position + 100])
    last = list(package.read(folder))[-1].offset
    assert [record.offset for record in package.read(folder, offset=-1)] == [last]


def test_records_below_their_segment_lie_in_no_range(examples: Path, tmp_path: Path) -> None:
    """A compressed batch of magic 1 tells its last offset alone: a segment's first one may begin before the segment."""
    folder = shutil.copytree(examples / "legacy-0", tmp_path / "legacy-0")
    shutil.copy(folder / NAMES[0], folder / f"{30:020d}.log")
    left = [*range(27), *range(30, 55)]  # 27 to 30 are one batch
    assert [record.offset for record in package.read(folder, on_corrupt="skip")] == left
    for first in range(26, 32):
        found = [record.offset for record in package.read(folder, on_corrupt="skip", offset=(first, 32))]
        assert found == [offset for offset in left if first <= offset < 32]
    done = pylogseg("stats", folder, "--json")
    assert json.loads(done.out.splitlines()[0])["records"] == len(left)


def test_a_log_that_begins_inside_of_a_legacy_batch(examples: Path, tmp_path: Path) -> None:
    """A follower that was told to begin there: what it has of the batch is given, the rest is news and no damage."""
    folder = shutil.copytree(examples / "legacy-0", tmp_path / "legacy-0")
    for path in folder.glob(f"{0:020d}.*"):
        path.unlink()
    (folder / f"{32:020d}.log").rename(folder / f"{34:020d}.log")
    reader = package.read(folder)
    assert [record.offset for record in reader] == [*range(34, 55)]
    (gap,) = reader.gaps
    assert (gap.first_offset, gap.next_offset, gap.is_damage) == (32, 34, False)
    assert gap.reason == "a batch begins at offset 32, below 34, the segment's base offset"
    assert pylogseg("cat", folder).code == 0


def leap_behind_damage(folder: Path) -> None:
    """A batch that the offset index names is damaged, and the one behind it has a base offset that is far too high."""
    path = folder / NAMES[2]
    data, index = bytearray(path.read_bytes()), path.with_suffix(".index").read_bytes()
    at = int.from_bytes(index[4:8], "big")
    end = next(end for end in package.scan(bytes(data)).batches.position.tolist() if end > at)
    data[end - 1] ^= 1
    data[end + 2] ^= 1
    path.write_bytes(data)


def test_a_range_does_not_trust_what_lies_behind_a_damaged_batch(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    leap_behind_damage(folder)
    whole = [record.offset for record in package.read(folder, on_corrupt="skip")]
    assert max(whole) == 504
    for first in range(382, 505, 3):
        found = [record.offset for record in package.read(folder, on_corrupt="skip", offset=first)]
        assert found == [offset for offset in whole if offset >= first]


@pytest.mark.parametrize(("first", "bit"), [(0, 6), (64, 0), (96, 6)])
def test_a_base_offset_of_a_legacy_batch_that_damage_follows(
    examples: Path, tmp_path: Path, first: int, bit: int
) -> None:
    """The next good batch denies it, wherever a window ends."""
    folder = shutil.copytree(examples / "legacy-0", tmp_path / "legacy-0")
    for path in folder.glob("*.log"):
        data = bytearray(path.read_bytes())
        data[first::97] = bytes(byte ^ (1 << bit) for byte in data[first::97])
        path.write_bytes(data)
    whole = [record.offset for record in package.read(folder, on_corrupt="skip")]
    assert 5 < len(whole) < 20
    assert max(whole) < 55
    for begin in range(55):
        found = [record.offset for record in package.read(folder, on_corrupt="skip", offset=begin)]
        assert found == [offset for offset in whole if offset >= begin]
