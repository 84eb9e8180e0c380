"""Tests of reading/removed_segments.py. Folders that a broker is writing, or that are not ours to write; slow reading;
files behind URLs.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from helpers import live, shell
from helpers.depth import IS_DEEP
from reference import build
from reference.batch import Record

import pylogseg
from pylogseg.env.filesystem import LocalFiles, PositionedFile
from pylogseg.errors import StorageError
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listing_windows import segment_row
from pylogseg.inspect.stats.segment import segment_stats
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.state import Throttle
from pylogseg.walker.gaps import GapKind

TESTS = Path(__file__).resolve().parents[1]
linux = pytest.mark.skipif(sys.platform != "linux", reason="a POSIX file system and its rules")


# ---- a broker that is alive ----


def read_while(folder, writer, seconds):
    """Run the reader in a process of its own beside the writer; what it saw."""
    command = [sys.executable, "-m", "helpers.live", folder, str(seconds)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        writer.run(seconds + 0.5)
        out, complaint = reader.communicate(timeout=300)
    assert reader.returncode == 0, complaint[-2000:]  # negative: a signal, SIGBUS most likely
    return json.loads(out)


@linux
@pytest.mark.parametrize("preallocate", [False, True])
def test_a_broker_appends_and_rolls(tmp_path, preallocate):
    """Nothing is wrong with such a log, so nothing may be reported; and what was there once stays there."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    writer = live.Writer(folder, 5, rough=False, preallocate=preallocate)
    for _ in range(200):
        writer.step()
    seen = read_while(folder, writer, 2.5 if IS_DEEP else 0.8)
    assert writer.done["roll"] > 1
    assert seen["passes"] > 2
    assert seen["records"] > 0
    assert (seen["alarms"], seen["shorter"]) == (0, 0), seen
    assert not any("Error" in name for name in seen), seen
    assert [record.offset for record in pylogseg.read(folder)] == list(range(writer.end))


@linux
@pytest.mark.parametrize("preallocate", [False, True])
def test_a_broker_truncates_and_deletes(tmp_path, preallocate):
    """Reading never gives a record that was not written there; what retention deletes is no error."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    writer = live.Writer(folder, 6, rough=True, preallocate=preallocate)
    for _ in range(200):
        writer.step()
    seen = read_while(folder, writer, 3 if IS_DEEP else 0.8)
    assert min(writer.done[name] for name in ("append", "roll", "truncate", "delete")) > 0
    assert seen["passes"] > 2
    assert seen["records"] > 0
    assert seen.get("StorageError", 0) == 0, seen
    first = writer.segments[0]
    assert [record.offset for record in pylogseg.read(folder)] == list(range(first, writer.end))


@pytest.mark.reads
def test_nothing_that_others_write_is_mapped(tmp_path):
    """To touch a page that was cut off, or that the disk cannot read, kills the process."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in (0, 3):
        (folder / f"{base:020d}.log").write_bytes(build.batch_v2([live.record(base + i, 5) for i in range(3)]))
    (partition,) = pylogseg.open_dir(folder).partitions
    with partition.segments[0].open() as sealed, partition.segments[1].open() as active:
        assert isinstance(sealed, PositionedFile)
        assert isinstance(active, PositionedFile)


def three_segments(folder):
    folder.mkdir()
    for base in (0, 3, 6):
        (folder / f"{base:020d}.log").write_bytes(build.batch_v2([live.record(base + i, 5) for i in range(3)]))
    return [folder / f"{base:020d}.log" for base in (0, 3, 6)]


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_retention_between_listing_and_opening(tmp_path, isolation_level):
    paths = three_segments(tmp_path / "t-0")
    disk = pylogseg.open_dir(tmp_path / "t-0")
    for path in paths[:2]:
        path.unlink()
    for start in ({}, {"timestamp": 1_000_000}):
        reader = pylogseg.read(disk, isolation_level=isolation_level, **start)
        assert [record.offset for record in reader] == [6, 7, 8]
    reader = pylogseg.read(disk, isolation_level=isolation_level, offset=4)
    assert [record.offset for record in reader] == [6, 7, 8]
    (gap,) = reader.gaps
    assert (gap.kind, gap.path, gap.is_damage) == (GapKind.REMOVED, str(paths[1]), False)
    assert (gap.first_offset, gap.next_offset) == (4, 6)
    reader = pylogseg.read(disk, isolation_level=isolation_level, offset=6)
    assert ([record.offset for record in reader], reader.gaps) == ([6, 7, 8], [])
    parts = [part.log for log in reader.scope.logs for part in LogReader(log, 0, 9).parts()]
    assert [(log.segments[0].base_offset, log.segments[0].next_base) for log in parts] == [(0, 3), (3, 6), (6, None)]
    for part in (part for log in reader.scope.logs for part in LogReader(log, 0, 9).parts()):
        offsets = [offset for chunk in part.read() for offset in chunk.columns.offset.tolist()]
        assert (offsets, [gap.next_offset for gap in part.gaps]) == {
            0: ([], [3]), 3: ([], [6]), 6: ([6, 7, 8], []),
        }[part.log.segments[0].base_offset]  # fmt: skip
    (partition,) = disk.partitions
    row = partition_row(partition)
    assert (row.log_end_offset, row.first_timestamp) == (9, 1_000_006)
    assert [segment_row(segment).size > 0 for segment in partition.segments] == [False, False, True]
    summary = VerifySummary(Level.INDEXES)
    findings = list(verify_disk(disk, summary))
    assert summary.damaged == 0
    assert [finding.path for finding in findings if finding.kind == "removed"] == list(map(str, paths[:2]))
    assert [segment_stats(segment).records for segment in partition.segments] == [0, 0, 3]


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_truncation_while_another_process_reads(tmp_path, isolation_level):
    """What the reader has opened it reads to its end; the read ends where the log ended, and names what is gone."""
    folder = tmp_path / "data" / "t-0"
    with pylogseg.open_log(folder, segment_bytes=100, file_delete_delay_ms=0) as log:
        for value in (b"first", b"second", b"third", b"fourth"):
            log.append([(1_000_000, None, value)])
        assert len(log.engine.segments) == 4
        paths = [segment.path for segment in log.engine.segments]
        script = (
            "import pylogseg, sys\n"
            f"reader = pylogseg.read(sys.argv[1], isolation_level={isolation_level!r})\n"
            "records = iter(reader)\n"
            "print(next(records).offset, flush=True)\n"
            "sys.stdin.readline()\n"
            "print([record.offset for record in records])\n"
            "print([(gap.kind.value, gap.path, gap.first_offset, gap.next_offset) for gap in reader.gaps])\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reading:
            assert reading.stdout.readline() == "0\n"
            log.truncate_to(2)
            out, _ = reading.communicate("go on\n", timeout=60)
        assert reading.returncode == 0
        assert out.splitlines() == [
            "[1]",
            str([("removed", paths[3], 3, None)]),
        ]


def test_a_listing_from_before_a_truncation(tmp_path):
    """Jobs say the same of the segments that are gone; the log ends where the last one ends that is left."""
    paths = three_segments(tmp_path / "t-0")
    disk = pylogseg.open_dir(tmp_path / "t-0")
    for path in paths[1:]:
        path.unlink()
    (partition,) = disk.partitions
    row = partition_row(partition)
    assert (row.log_end_offset, row.first_timestamp) == (3, 1_000_000)
    assert [segment_row(segment).size > 0 for segment in partition.segments] == [True, False, False]
    assert [segment_stats(segment).records for segment in partition.segments] == [3, 0, 0]
    summary = VerifySummary(Level.INDEXES)
    findings = list(verify_disk(disk, summary))
    assert summary.damaged == 0
    assert [finding.path for finding in findings if finding.kind == "removed"] == list(map(str, paths[1:]))
    reader = pylogseg.read(disk, offset=4)
    assert [record.offset for record in reader] == []
    assert [(gap.first_offset, gap.next_offset) for gap in reader.gaps] == [(4, 6), (6, None)]
    assert [record.offset for record in pylogseg.read(disk, timestamp=1_000_001)] == [1, 2]


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_what_is_pending_deletion_is_read(tmp_path, isolation_level):
    """A broker renames what it deletes, and removes it a minute later: till then nothing is missing."""
    paths = three_segments(tmp_path / "t-0")
    disk = pylogseg.open_dir(tmp_path / "t-0")
    for path in paths[:2]:
        path.rename(f"{path}.deleted")
    for start, found in (
        ({}, list(range(9))),
        ({"timestamp": 1_000_000}, list(range(9))),
        ({"offset": 4}, [4, 5, 6, 7, 8]),
    ):
        reader = pylogseg.read(disk, isolation_level=isolation_level, **start)
        assert ([record.offset for record in reader], reader.gaps) == (found, [])
    (partition,) = disk.partitions
    assert partition_row(partition).first_timestamp == 1_000_000
    assert all(segment_row(segment).size > 0 for segment in partition.segments)
    assert [segment_stats(segment).records for segment in partition.segments] == [3, 3, 3]
    assert {finding.kind for finding in verify_disk(disk, VerifySummary(Level.INDEXES))} == {"missing-index"}


def test_a_segment_that_vanishes_in_the_middle_is_a_gap(tmp_path):
    """No file has its records: the cleaner found a later one for each of their keys, or somebody deleted it."""
    paths = three_segments(tmp_path / "t-0")
    disk = pylogseg.open_dir(tmp_path / "t-0")
    paths[1].unlink()
    reader = pylogseg.read(disk)
    assert [record.offset for record in reader] == [0, 1, 2, 6, 7, 8]
    assert [(gap.kind, gap.path, gap.first_offset, gap.next_offset) for gap in reader.gaps] == [
        (GapKind.REMOVED, str(paths[1]), 3, 6)
    ]
    for path in (paths[0], paths[2]):
        path.unlink()
    with pytest.raises(StorageError, match=f"{paths[0].name}: .*cannot open"):
        list(pylogseg.read(disk))


def test_a_log_that_was_truncated_and_grew_again(tmp_path):
    """What its new segments have of the offsets of one that is gone is read, in the order of the offsets."""
    folder = tmp_path / "t-0"
    paths = three_segments(folder)
    disk = pylogseg.open_dir(folder)
    for path in paths[1:]:
        path.unlink()
    more = {0: range(5), 5: range(5, 7), 7: range(7, 12)}
    for base, offsets in more.items():
        batches = [build.batch_v2([live.record(offset, 5)]) for offset in offsets]
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    reader = pylogseg.read(disk)
    assert ([record.offset for record in reader], reader.gaps) == (list(range(12)), [])
    paths[0].write_bytes(paths[0].read_bytes()[:-1])  # torn, as while a broker writes
    for base in (5, 7):
        (folder / f"{base:020d}.log").unlink()
    (partition,) = disk.partitions
    assert [segment_stats(segment).records for segment in partition.segments[1:]] == [1, 0]


def test_a_segment_that_the_cleaner_is_replacing_is_waited_for(tmp_path):
    paths = three_segments(tmp_path / "t-0")
    disk = pylogseg.open_dir(tmp_path / "t-0")
    swap = paths[0].with_name(paths[0].name + ".swap")
    paths[0].rename(swap)
    timer = threading.Timer(0.1, lambda: swap.rename(paths[0]))
    timer.start()
    reader = pylogseg.read(disk)
    assert ([record.offset for record in reader], reader.gaps) == (list(range(9)), [])
    timer.join()


@linux
@pytest.mark.reads
def test_a_file_that_shrinks_between_two_reads(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 10_000)
    with LocalFiles().open(str(path), sealed=False) as view:
        os.truncate(path, 100)
        assert (view.size, bytes(view.read(50, 1000)), bytes(view.read(5000, 10))) == (100, b"x" * 50, b"")


@pytest.mark.parametrize("seed", range(12 if IS_DEEP else 4))
def test_a_log_that_rolls_while_its_folder_is_listed(tmp_path, monkeypatch, seed):
    """Some names are passed before a roll, some after it: no segment in the middle is missed, no index stands alone.

    What was there before is found, and verify finds nothing wrong.
    """
    monkeypatch.setattr("pylogseg.disk.listing.MOST_LISTINGS", 4)  # it never rests
    chance, whole = random.Random(seed), LocalFiles.list_folder
    folder = tmp_path / "kafka" / "t-0"
    with pylogseg.open_log(folder, segment_bytes=300) as log:

        def append(files, path):
            """A listing during which the log grows by up to three segments."""
            before = whole(files, path)
            if path != str(folder):
                return before
            for _ in range(chance.randrange(1, 7)):
                log.append([(1_700_000_000_000, b"k", b"v" * 100)])
            passed = {entry.name: chance.random() < 0.5 for entry in whole(files, path)}
            after = [entry for entry in whole(files, path) if not passed[entry.name]]
            return sorted([entry for entry in before if passed.get(entry.name, True)] + after)

        log.append([(1_700_000_000_000, b"k", b"v")])
        for _ in range(6):
            before = log.log_end_offset
            with monkeypatch.context() as patched:
                patched.setattr(LocalFiles, "list_folder", append)
                (partition,) = disk = pylogseg.open_dir(tmp_path / "kafka")
                summary = VerifySummary(Level.INDEXES)
                findings = list(verify_disk(disk, summary))
            bases = [segment.base_offset for segment in partition.segments]
            assert bases == [segment.base_offset for segment in log.engine.segments][: len(bases)]
            assert list(range(before)) == [record.offset for record in pylogseg.read(disk)][:before]
            assert (findings, summary.damaged) == ([], 0)


@pytest.mark.parametrize("is_made", [True, False])
def test_an_index_that_was_made_before_its_log(tmp_path, is_made):
    """What was listed as an index alone is looked for once more before its records count as lost."""
    paths = three_segments(tmp_path / "t-0")
    last = paths[2].read_bytes()
    paths[2].with_suffix(".index").write_bytes((2).to_bytes(4, "big") + (0).to_bytes(4, "big"))
    paths[2].unlink()
    disk = pylogseg.open_dir(tmp_path / "t-0")
    if is_made:
        paths[2].write_bytes(last)
    findings = list(verify_disk(disk, VerifySummary(Level.INDEXES)))
    assert [finding.kind for finding in findings if "orphan" in finding.kind] == ([] if is_made else ["orphan-lost"])
    assert any(finding.is_damage for finding in findings) is not is_made


def test_a_log_that_begins_again_while_its_folder_is_listed(tmp_path, monkeypatch):
    """A follower deletes all that it has and goes on at a higher offset: the new log is what is found."""
    folder, whole = tmp_path / "t-0", LocalFiles.list_folder
    three_segments(folder)

    def begin_again(files, path):
        listed = whole(files, path)
        if (folder / f"{0:020d}.log").exists():
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / f"{50:020d}.log").write_bytes(build.batch_v2([live.record(50, 5)]))
        return listed

    monkeypatch.setattr(LocalFiles, "list_folder", begin_again)
    (partition,) = pylogseg.open_dir(folder)
    assert [segment.base_offset for segment in partition.segments] == [50]


# ---- folders of others ----


@pytest.fixture
def folder_of_root(examples):
    """The examples in a folder that everyone may enter and nobody may write, in plain sight."""
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-"))
    shutil.copytree(examples, folder / "data")
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder / "data"
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(folder)


def states(folder):
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in [folder, *sorted(folder.rglob("*"))]}


def values(folder, **options):
    return [(r.topic, r.partition, r.offset, r.key, r.value) for r in pylogseg.read(folder, **options)]


@linux
def test_a_folder_that_cannot_be_written(folder_of_root, examples):
    before = states(folder_of_root)
    assert values(folder_of_root, isolation_level="read_committed") == values(
        examples, isolation_level="read_committed"
    )
    assert states(folder_of_root) == before


@linux
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_as_a_user_who_owns_nothing(folder_of_root, examples):
    wanted = len(values(examples))  # before the fork: all modules are loaded then

    def count():
        return len(values(folder_of_root))

    assert as_nobody(count) == wanted
    secret = next(folder_of_root.glob("codec-none-1/*0.log"))
    secret.chmod(0)

    def refused():
        with pytest.raises(StorageError, match=f"{secret.name}: .*cannot open: Permission denied"):
            values(folder_of_root, topic="codec-none-1")
        return 1

    assert as_nobody(refused) == 1


@linux
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_one_folder_that_is_refused_does_not_stand_for_the_others(folder_of_root, examples):
    every = values(examples)
    secret = folder_of_root / "txn-b-0"
    others = [row for row in every if row[0] != "txn-b"]
    assert 0 < len(others) < len(every)
    rows = {row["topic"]: row for row in shell.pylogseg("ls", examples, "--json").rows}  # loads the modules, too
    records = shell.pylogseg("stats", examples, "--json").rows[0]["records"]
    for command in ("ls", "verify", "cat", "grep x"):
        assert shell.pylogseg(*command.split(), examples).code == 0
    secret.chmod(0)

    def work():
        refused = f"{secret}: cannot list: Permission denied"
        found = []
        reader = (found.append((r.topic, r.partition, r.offset, r.key, r.value)) for r in pylogseg.read(folder_of_root))
        with pytest.raises(StorageError, match=refused):
            list(reader)
        assert found == others  # all else was given
        for mode in ("skip", "stop"):
            reader = pylogseg.read(folder_of_root, on_corrupt=mode)
            assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in reader] == others
            assert [(gap.path, gap.is_damage) for gap in reader.gaps] == [(str(secret), True)]
            for exactly in ({"path": secret}, {"path": folder_of_root, "topic": "txn-b"}):
                with pytest.raises(StorageError, match=refused):
                    pylogseg.read(**exactly, on_corrupt=mode)

        done = shell.pylogseg("ls", folder_of_root, "--json")
        assert (done.code, done.err) == (2, f"pylogseg: {refused}\n")
        listed = {row["topic"]: row for row in done.rows}
        assert listed.pop("txn-b") == {
            **dict.fromkeys(rows["txn-b"]), "topic": "txn-b", "partition": 0, "state": "unreadable",
            "path": str(secret), "error": refused,
        }  # fmt: skip
        assert all(row["logEndOffset"] == rows[topic]["logEndOffset"] for topic, row in listed.items())
        assert re.search(r"txn-b +0 +unreadable( +-){6}\n", shell.pylogseg("ls", folder_of_root).text)
        done = shell.pylogseg("verify", folder_of_root, "--json")
        findings = [
            (row["kind"], row["path"], row["reason"]) for row in done.rows if row.get("level") in ("damage", "unread")
        ]
        assert (done.code, findings) == (2, [("denied", str(secret), "cannot list: Permission denied")])
        assert "1 object not looked at, for want of" in shell.pylogseg("verify", folder_of_root).text
        done = shell.pylogseg("stats", folder_of_root, "--json")
        assert (done.code, done.err, done.rows[0]["records"]) == (2, f"pylogseg: {refused}\n", records - 10)
        for words, code in (("cat", 2), ("cat --on-corrupt skip", 1), ("grep no-such-thing -v", 2)):
            done = shell.pylogseg(*words.split(), folder_of_root)
            assert (done.code, len(done.rows)) == (code, len(others)), words
            assert f"{secret}: bytes 0 to 0 (unreadable" in done.err
            assert "Permission denied" in done.err
        done = shell.pylogseg("cat", folder_of_root, "--tail", 1)
        assert (done.code, len(done.rows)) == (2, 18)
        assert shell.pylogseg("cat", folder_of_root, "txn-b", "--on-corrupt", "skip").code == 2
        return 1

    assert as_nobody(work) == 1


def as_nobody(work):
    """What a function returns in a process that has no rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, b"%d" % work())
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return int(told or b"-1")


# ---- slow and gentle reading ----


def log_of(folder, count=3000, size=1000):
    """One segment of about `count` * `size` bytes with an index, in a folder."""
    folder.mkdir(parents=True)
    batches = [
        build.batch_v2([Record(10 * i + k, 10 * i + k, b"k", bytes([i % 251]) * size) for k in range(10)])
        for i in range(count // 10)
    ]
    entries, position = b"", 0
    for i, batch in enumerate(batches):
        if i and i % 5 == 0:
            entries += (10 * i + 9).to_bytes(4, "big") + position.to_bytes(4, "big")
        position += len(batch)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    (folder / f"{0:020d}.index").write_bytes(entries)
    (folder / f"{count:020d}.log").write_bytes(build.batch_v2([Record(count, count, b"k", b"last")]))
    return position


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 100.0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("window_bytes", [50_000, 4 << 20])
def test_no_more_bytes_a_second_than_allowed(tmp_path, window_bytes):
    size = log_of(tmp_path / "t-0")
    time = FakeTime()
    throttle = Throttle(1_000_000, time.clock)
    reader = pylogseg.read(tmp_path / "t-0", max_bytes_per_second=1)
    reader.scope.state.throttle = throttle
    reader.scope.state.window_bytes = reader.scope.state.first_window_bytes = window_bytes
    spend, spent = throttle.spend, []

    def counted(count):
        spent.append(count)
        spend(count, time.sleep)
        assert sum(spent) <= 1_000_000 * (time.now - 100) + 1  # at no moment too many

    throttle.spend = counted
    assert sum(len(chunk.columns) for chunk in reader.chunks()) == 3001
    assert size < sum(spent) < size + 1000
    assert time.now - 100 == pytest.approx(sum(spent) / 1_000_000)


def test_time_that_passes_by_itself_counts():
    time = FakeTime()
    throttle = Throttle(1000, time.clock)
    throttle.spend(500, time.sleep)
    time.now += 10
    throttle.spend(500, time.sleep)
    assert time.now == pytest.approx(111.0)


def test_pages_that_were_given_back_read_the_same(tmp_path):
    """Columns that a caller keeps are right although the pages below them were dropped."""
    log_of(tmp_path / "t-0")
    reader = pylogseg.read(tmp_path / "t-0", drop_behind=True)
    reader.scope.state.window_bytes = reader.scope.state.first_window_bytes = 64 << 10
    kept = list(reader.chunks())
    assert len(kept) > 20
    plain = [record.value for record in pylogseg.read(tmp_path / "t-0")]
    assert [chunk.columns.value(i) for chunk in kept for i in range(len(chunk.columns))] == plain


# ---- behind URLs ----


@pytest.fixture
def in_memory(monkeypatch):
    """An empty ``memory://``, and a list that gets the size of every read of it."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    read, sizes = MemoryFileSystem.cat_file, []

    def counted(self, path, start=None, end=None, **options):
        data = read(self, path, start=start, end=end, **options)
        sizes.append((path, len(data)))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    return sizes


def upload(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            MemoryFileSystem().pipe_file(f"/{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return f"memory://{folder.name}"


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_urls_give_the_same_records(examples, in_memory, isolation_level):
    wanted = values(examples, isolation_level=isolation_level)
    assert len(wanted) > 1000
    assert values(upload(examples), isolation_level=isolation_level) == wanted
    assert values(examples.as_uri(), isolation_level=isolation_level) == wanted


def test_a_few_records_cost_a_few_bytes(tmp_path, in_memory):
    """Ten records at an offset: the index and a small window, not the segment."""
    size = log_of(tmp_path / "t-0")
    url = upload(tmp_path / "t-0")
    found = [record.offset for record in pylogseg.read(url, offset=2000, limit=10)]
    assert found == list(range(2000, 2010))
    read = sum(count for _, count in in_memory)
    assert size > 3_000_000
    assert 10_000 < read < 100_000
    in_memory.clear()
    assert [record.offset for record in pylogseg.read(url, offset=(2990, 3001))] == list(range(2990, 3001))
    assert sum(count for _, count in in_memory) < 150_000


def test_an_object_that_is_gone(tmp_path, in_memory):
    log_of(tmp_path / "t-0", count=20)
    url = upload(tmp_path / "t-0")
    reader = pylogseg.read(url)
    MemoryFileSystem().rm_file("/t-0/00000000000000000000.log")
    assert [record.offset for record in reader] == [20]
    assert [gap.kind for gap in reader.gaps] == [GapKind.REMOVED]
    with pylogseg.open_dir(url).partitions[0].segments[-1].open() as view:
        MemoryFileSystem().rm_file("/t-0/00000000000000000020.log")
        with pytest.raises(StorageError, match=r"memory:///t-0/0{18}20\.log: cannot read"):
            view.read(0, 10)
    with pytest.raises(StorageError, match="cannot"):
        list(reader)
