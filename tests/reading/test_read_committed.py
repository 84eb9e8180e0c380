"""Tests of reading/record.py, reading/transaction_markers.py and reading/transactions.py. read_committed beside a
writer: each step that a writer and a reader take is put where it does harm.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

import pytest
from helpers.forked import process
from helpers.shell import expect
from helpers.shell import pylogseg as pylogseg_shell

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.format.batches import scan
from pylogseg.reading.record import records_of
from pylogseg.reading.transactions import Transactions

SEGMENT_BYTES = 2000


class _Abort(Exception):
    pass


def write(log, rounds: int, first: int = 0) -> None:
    """Plain records, then a transaction; every second one is aborted."""
    producer = log.producer(7)
    for i in range(first, first + rounds):
        log.append([(None, b"plain", b"%d" % i + b"x" * 100)] * 5)
        with contextlib.suppress(_Abort), producer.transaction():
            producer.append([(None, b"tx", b"aborted" if i % 2 else b"committed")] * 3)
            if i % 2:
                raise _Abort


@pytest.mark.parametrize("where", ["start", "middle"])
def test_what_begins_after_open_transactions_were_looked_for_is_not_shown(tmp_path: Path, where: str) -> None:
    """The segment that a transaction goes to is opened later than the others."""
    with pylogseg.open_log(tmp_path / "q-0", segment_bytes=SEGMENT_BYTES) as log:
        write(log, 7)
        end = log.log_end_offset
        assert len(list((tmp_path / "q-0").glob("*.log"))) > 3
        reader = pylogseg.read(tmp_path, isolation_level="read_committed", offset=0 if where == "start" else end // 2)
        chunks = reader.chunks()
        found = list(records_of(next(chunks)))
        producer = log.producer(8)
        with contextlib.suppress(_Abort), producer.transaction():
            producer.append([(None, b"tx", b"aborted")] * 2)
            found += [record for chunk in chunks for record in records_of(chunk)]
            raise _Abort
        assert {record.value for record in found if record.key == b"tx"} == {b"committed"}
        assert max(record.offset for record in found) < end


@pytest.mark.parametrize("entries", [0, 1])
def test_a_marker_whose_index_entry_is_not_written_yet(tmp_path: Path, entries: int) -> None:
    with pylogseg.open_log(tmp_path / "q-0") as log:
        write(log, 4)
        index = tmp_path / "q-0" / f"{0:020d}.txnindex"
        data = index.read_bytes()
        assert len(data) == 2 * 34
        index.write_bytes(data[: 34 * entries])
        found = list(pylogseg.read(tmp_path, isolation_level="read_committed"))
        index.write_bytes(data)
    assert [record.value for record in found if record.key == b"tx"] == [b"committed"] * 6


def test_an_index_whose_entries_a_cleaning_dropped_after_the_segment_was_opened(tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "q-0", segment_bytes=SEGMENT_BYTES) as log:
        write(log, 9)
        whole = {record.offset for record in pylogseg.read(tmp_path, isolation_level="read_committed", control=True)}
        partition = open_dir(tmp_path / "q-0").partitions[0]
        first = partition.segments[0]
        transactions = Transactions(list(partition.segments), {})
        with first.open() as view:
            rows = scan(view.read(0, view.size)).batches
        for path in (tmp_path / "q-0").glob("*.txnindex"):
            entry = bytearray(path.read_bytes()[:34])
            entry[9] = 99  # of another producer's transaction alone
            path.write_bytes(entry)
        kept, _ = transactions.mask_committed(rows, first)
    assert {o for o, is_kept in zip(rows.base_offset.tolist(), kept.tolist(), strict=True) if not is_kept} == {
        o for o in rows.base_offset.tolist() if o not in whole
    }
    assert not kept.all()


TXN = Path(__file__).parents[2] / "examples" / "data" / "txn-a-0"


def flip(pattern: str, first: int, bit: int = 6, step: int = 97):
    """Damage of each file that fits: every so many bytes, one bit."""

    def of(folder: Path) -> None:
        for path in folder.glob(pattern):
            data = bytearray(path.read_bytes())
            data[first::step] = bytes(byte ^ (1 << bit) for byte in data[first::step])
            path.write_bytes(data)

    return of


def lose(pattern: str):
    def of(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()

    return of


def swap(folder: Path) -> None:
    first, second = sorted(folder.glob("*.log"))[1:3]
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


DAMAGE = {
    "none": lambda folder: None,
    **{f"index-{first}": flip("*.txnindex", first, first % 8) for first in (3, 9, 17, 23, 25, 33, 41, 67)},
    "no-indexes": lose("*.txnindex"),
    "no-index": lose("*43.txnindex"),
    "no-snapshots": lose("*.snapshot"),
    "snapshots": flip("*.snapshot", 20),
    "nothing-beside": lose("*.*[xt]"),
    "log": flip("*.log", 390, step=900),
    "no-segment": lose("*43.log"),
    "swap": swap,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_range_has_the_records_that_the_whole_has_of_it(tmp_path: Path, name: str) -> None:
    shutil.copytree(TXN, tmp_path / TXN.name)
    DAMAGE[name](tmp_path / TXN.name)
    how = {"isolation_level": "read_committed", "on_corrupt": "skip"}
    whole = [record.offset for record in pylogseg.read(tmp_path, **how)]
    assert whole
    for first in range(0, 150, 7):
        for end in (first + 9, 2**62):
            found = [record.offset for record in pylogseg.read(tmp_path, offset=(first, end), **how)]
            assert found == [offset for offset in whole if first <= offset < end], (first, end)


@pytest.mark.parametrize("name", ["none", "no-indexes", "no-index", "no-snapshots", "snapshots"])
def test_what_beside_the_log_is_lost_changes_no_outcome(tmp_path: Path, name: str) -> None:
    shutil.copytree(TXN, tmp_path / TXN.name)
    DAMAGE[name](tmp_path / TXN.name)
    wanted = [record.offset for record in pylogseg.read(TXN, isolation_level="read_committed")]
    assert [record.offset for record in pylogseg.read(tmp_path, isolation_level="read_committed")] == wanted


def test_an_open_transaction_that_only_a_snapshot_knows_ends_each_range(tmp_path: Path) -> None:
    """Its first batch is damaged: who reads from the start meets none of it."""
    with pylogseg.open_log(tmp_path / "q-0") as log:
        log.append([(None, b"plain", b"1")])
        producer = log.producer(7)
        producer.begin()
        producer.append([(None, b"tx", b"open")])
        for _ in range(5):
            log.append([(None, b"plain", b"2")])
        log.flush()
        path = log.folder if isinstance(log.folder, Path) else tmp_path / "q-0"
        copied = shutil.copytree(path, tmp_path / "copy" / "q-0")
    (snapshot,) = (path for path in (tmp_path / "q-0").glob("*.snapshot"))
    shutil.copy(snapshot, copied)
    segment = copied / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    at = data.index(b"open")
    data[at] ^= 1
    segment.write_bytes(data)
    how = {"isolation_level": "read_committed", "on_corrupt": "skip"}
    whole = [record.offset for record in pylogseg.read(copied.parent, **how)]
    assert whole == [record.offset for first in (0, 3) for record in pylogseg.read(
        copied.parent, offset=(first, 3 if first == 0 else 2**62), **how)]  # fmt: skip


def test_follow_gives_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "q-0", segment_bytes=SEGMENT_BYTES) as log:
        started = process(
            "cat",
            tmp_path,
            "--follow",
            "--isolation-level",
            "read_committed",
            "--fields",
            "offset",
            "--limit",
            12 * 5 + 18,
        )
        producer = log.producer(9)
        for i in range(12):
            write(log, 1, i)
            with contextlib.suppress(_Abort), producer.transaction():
                producer.append([(None, b"tx", b"aborted")])
                time.sleep(0.05)
                raise _Abort
        out, err = started.communicate(timeout=60)
        assert (started.returncode, err) == (0, b"")
        wanted = [record.offset for record in pylogseg.read(tmp_path, isolation_level="read_committed")]
    assert [json.loads(line)["offset"] for line in out.decode().splitlines()] == wanted


def test_follow_ends_with_a_notice_where_partitions_are_removed_and_finds_new_ones(tmp_path: Path) -> None:
    for name in ("q-0", "q-1", "other-0"):
        pylogseg.open_log(tmp_path / name).close()
    started = process("cat", tmp_path, "q", "--follow", "-f", "%p %s\n")
    assert started.stdout is not None
    with pylogseg.open_log(tmp_path / "q-0") as log:
        log.append([(None, None, b"old")])
    assert started.stdout.readline() == b"0 old\n"
    for name in ("q-2", "other-1"):
        with pylogseg.open_log(tmp_path / name) as log:
            log.append([(None, None, b"new")])
    assert started.stdout.readline() == b"2 new\n"
    for name in ("q-1", "q-2", "q-0"):
        shutil.rmtree(tmp_path / name)
    out, err = started.communicate(timeout=60)
    assert (out, started.returncode) == (b"", 2)
    told = err.decode().splitlines()
    assert sorted(line for line in told if "removed" in line) == [
        f"pylogseg: {tmp_path / f'q-{i}'}: removed, and no longer followed" for i in range(3)
    ]
    assert told[-1] == "pylogseg: no partition is left to follow"


def test_follow_reads_on_where_a_partition_was_moved_to_another_directory(tmp_path: Path) -> None:
    for name in ("a/q-0", "a/z-0", "b/z-1"):
        pylogseg.open_log(tmp_path / name).close()
    with pylogseg.open_log(tmp_path / "a" / "q-0") as log:
        log.append([(None, None, b"1")])
    started = process("cat", tmp_path, "q", "--follow", "-f", "%o %s\n", "--limit", 2)
    assert started.stdout is not None
    assert started.stdout.readline() == b"0 1\n"
    (tmp_path / "a" / "q-0").rename(tmp_path / "b" / "q-0")
    with pylogseg.open_log(tmp_path / "b" / "q-0") as log:
        log.append([(None, None, b"2")])
    out, err = started.communicate(timeout=60)
    assert (out, err, started.returncode) == (b"1 2\n", b"", 0)


@pytest.fixture
def undecided(tmp_path: Path) -> Path:
    """A transaction whose marker lies in a segment that is damaged as a whole; no snapshot knows of it."""
    with pylogseg.open_log(tmp_path / "q-0") as log:
        log.append([(None, b"plain", b"0")] * 5)
        producer = log.producer(7)
        producer.begin()
        producer.append([(None, b"tx", b"1")])
        log.engine.roll()
        producer.commit()
        log.append([(None, b"plain", b"2")])
    path = max((tmp_path / "q-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[70::40] = bytes(byte ^ 0xFF for byte in data[70::40])
    path.write_bytes(data)
    for snapshot in (tmp_path / "q-0").glob("*.snapshot"):
        snapshot.write_bytes(b"")
    return tmp_path


def test_damage_may_hide_the_end_of_a_transaction(undecided: Path) -> None:
    """The reader ends before the transaction, and says why."""
    with pytest.raises(pylogseg.CorruptionError, match="CRC mismatch"):
        list(pylogseg.read(undecided, isolation_level="read_committed"))
    with pytest.raises(pylogseg.CorruptionError, match="CRC mismatch"):
        pylogseg.dataset(undecided, isolation_level="read_committed").to_table()
    for on_corrupt in ("skip", "stop"):
        reader = pylogseg.read(undecided, isolation_level="read_committed", on_corrupt=on_corrupt)
        assert [record.offset for record in reader] == [0, 1, 2, 3, 4]
        assert any(gap.is_damage and gap.first_offset == 6 for gap in reader.gaps)
    expect(pylogseg_shell("cat", undecided, "--isolation-level", "read_committed", "--on-corrupt", "skip"), 1, "damage")
