"""Tests of reading/state.py. The reader: selection, limits, damage, isolation, bounded memory, arguments."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import shutil
import tarfile
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from helpers.checks import some
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import ClosedError, RequestError
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.state import SKIPPING, Throttle
from pylogseg.walker.gaps import GapKind


def test_selection(examples):
    def names(**options):
        return sorted({(r.topic, r.partition) for r in pylogseg.read(examples, **options)})

    assert names(topic="txn-a") == [("txn-a", 0), ("txn-a", 1)]
    assert names(topic="txn-a-1") == [("txn-a", 1)]
    assert names(topic="txn-a", partition=1) == [("txn-a", 1)]
    assert names(topic=["txn-b", "legacy-*"]) == [("legacy", 0), ("txn-b", 0)]
    assert len(names()) > 10
    with pytest.raises(RequestError, match=r"no topic or partition 'nothing' here; there are: .*cmp-short"):
        names(topic="nothing")
    with pytest.raises(RequestError, match="no partition 7"):
        names(topic="txn-a", partition=7)


def test_one_file_and_several_paths(examples):
    folder = examples / "codec-none-1"
    whole = list(pylogseg.read(folder))
    files = sorted(folder.glob("*.log"))
    assert len(files) > 1
    assert list(pylogseg.read(files)) == whole
    assert list(pylogseg.read(str(folder / "*.log"))) == whole
    assert list(pylogseg.read(pylogseg.open_dir(folder))) == whole
    assert {r.topic for r in pylogseg.read(files[0])} == {"codec-none"}


def test_limit(examples):
    everything = list(pylogseg.read(examples))
    for limit in (0, 1, 5, 500, len(everything), len(everything) + 1):
        assert list(pylogseg.read(examples, limit=limit)) == everything[:limit]
    with pytest.raises(RequestError, match="limit"):
        pylogseg.read(examples, limit=-1)


def test_columns(examples):
    plain = next(iter(pylogseg.read(examples, "txn-a-0")))
    few = next(iter(pylogseg.read(examples, "txn-a-0", columns=["value", "offset"])))
    assert (few.value, few.key, few.headers) == (plain.value, None, ())


def test_control_records_are_no_data(examples):
    data = list(pylogseg.read(examples, "txn-a-0"))
    all_of_it = list(pylogseg.read(examples, "txn-a-0", control=True))
    assert len(all_of_it) > len(data)
    markers = [r for r in all_of_it if r not in data]
    assert {len(r.key) for r in markers} == {4}


def test_arguments(examples):
    with pytest.raises(RequestError, match="on_corrupt='ignore': must be one of 'raise', 'stop', 'skip'"):
        pylogseg.read(examples, on_corrupt="ignore")
    with pytest.raises(RequestError, match="isolation_level"):
        pylogseg.read(examples, isolation_level="committed")
    with pytest.raises(RequestError, match="a pair"):
        pylogseg.read(examples, offset=(1, 2, 3))
    with pytest.raises(pylogseg.StorageError, match=r"no-such-dir: no such file or folder"):
        pylogseg.read(examples / "no-such-dir")


def test_what_two_paths_name_is_read_once(examples, tmp_path):
    folder = examples / "codec-none-1"
    link = tmp_path / "link"
    link.symlink_to(examples, target_is_directory=True)
    whole = [record.offset for record in pylogseg.read(folder)]
    segments = sorted(folder.glob("*.log"))
    for paths in (
        [folder, f"{folder}/"],
        [examples, folder],
        [folder, link / folder.name],
        [link, examples],
        [folder, *segments],
        [*segments, *segments],
    ):
        disk = pylogseg.open_dir(paths)
        found = [r.offset for r in pylogseg.read(disk) if (r.topic, r.partition) == ("codec-none", 1)]
        assert found == whole, paths
    copies = [tmp_path / name / folder.name for name in "ab"]
    for copy in copies:
        shutil.copytree(folder, copy)
    with pytest.raises(RequestError, match="codec-none-1 lies in two folders"):
        pylogseg.read(copies)
    files = [path for copy in copies for path in sorted(copy.glob("*.log"))]
    assert len(list(pylogseg.read(files))) == 2 * len(whole)


def test_a_folder_that_is_roots_alone_is_passed_over(examples, tmp_path, monkeypatch):
    shutil.copytree(examples / "txn-b-0", tmp_path / "data" / "txn-b-0")
    (tmp_path / "lost+found").mkdir()
    listed = LocalFiles.list_folder

    def list_folder(self, path):
        if path.endswith("lost+found"):
            raise pylogseg.StorageError(path, "list", "Permission denied")
        return listed(self, path)

    monkeypatch.setattr(LocalFiles, "list_folder", list_folder)
    assert [p.name for p in pylogseg.open_dir(tmp_path).partitions] == ["txn-b-0"]


WRONG = [lambda base: base | 1 << 40, lambda base: base - 2**63, lambda base: base - 100, lambda base: base + 1]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_base_offset_is_damage(examples, tmp_path, wrong):
    """No check sum covers it; what is believed to lie out of the range would be left out in silence."""
    whole = list(pylogseg.read(examples / "codec-none-1"))
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    path = folder / "00000000000000000190.log"
    data = bytearray(path.read_bytes())
    batch = pylogseg.scan(data).batches[4:5]
    base = int(batch.base_offset[0])
    at = int(batch.position[0])
    data[at : at + 8] = wrong(base).to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    before = [r for r in whole if r.offset < base]
    with pytest.raises(pylogseg.CorruptionError, match=r"base offset .* is (below|too high)"):
        list(pylogseg.read(folder))
    end = int(batch.last_offset[0]) + 1
    behind = int(pylogseg.scan(data).batches[6:7].base_offset[0])
    assert list(pylogseg.read(folder, offset=behind)) == [r for r in whole if r.offset >= behind]
    for on_corrupt in ("stop", "skip"):
        reader = pylogseg.read(folder, on_corrupt=on_corrupt)
        assert list(reader) == before + [r for r in whole if r.offset >= end and on_corrupt == "skip"]
        assert [(g.kind, g.first_offset, g.next_offset) for g in reader.gaps if on_corrupt == "skip"] in (
            [], [(GapKind.ORDER, base, end)]
        )  # fmt: skip


@pytest.mark.parametrize("row", [0, 1, 2, 6, 14, 15])
@pytest.mark.parametrize("window_bytes", [1000, 2000, 3000, 5000, 1 << 20])
def test_a_base_offset_that_is_too_high_at_the_end_of_a_window(examples, tmp_path, row, window_bytes):
    """What the range does not reach would end the reading, in silence, before the next window is looked at."""
    whole = [r.offset for r in pylogseg.read(examples / "codec-none-1")]
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    batches = pylogseg.scan(data).batches
    assert len(batches) == 16
    base, last, at = (int(column[row]) for column in (batches.base_offset, batches.last_offset, batches.position))
    data[at : at + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    for end in (len(whole), None, last + 50):
        if end is not None and end <= last + 1:
            continue
        reader = pylogseg.read(folder, offset=(0, end))
        reader.scope.state.window_bytes = reader.scope.state.first_window_bytes = window_bytes
        with pytest.raises(pylogseg.CorruptionError, match=r"base offset .* is (below|too high)"):
            list(reader)
        reader = pylogseg.read(folder, offset=(0, end), on_corrupt="skip")
        reader.scope.state.window_bytes = reader.scope.state.first_window_bytes = window_bytes
        found = [r.offset for r in reader]
        kept = [offset for offset in kept_of(whole, base, last) if end is None or offset < end]
        assert found == kept
        assert [gap.kind for gap in reader.gaps] == [GapKind.ORDER]
    for part in (part for log in reader.scope.logs for part in LogReader(log, 0, len(whole)).parts()):
        part = replace(part, state=SKIPPING.start())
        offsets = [offset for chunk in part.read() for offset in chunk.columns.offset.tolist()]
        first, following = part.log.segments[0].base_offset, part.log.segments[0].next_base or len(whole)
        assert [gap.kind for gap in part.gaps] == ([GapKind.ORDER] if first == 0 else [])
        assert offsets == [offset for offset in kept_of(whole, base, last) if first <= offset < following]


def kept_of(offsets, base, last):
    return [offset for offset in offsets if not base <= offset <= last]


#: Of a first segment.
NAME = f"{0:020}.log"


@pytest.mark.parametrize("text", [b"h", b"hello\n", b"hello world\n"])
def test_a_few_bytes_of_text_are_no_header_that_is_cut_off(tmp_path, text):
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(pylogseg.CorruptionError, match="do not begin a batch: its offset would be 7"):
        list(pylogseg.read(tmp_path / NAME))


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("gzip", gzip.compress),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zip", lambda data: archive(zipfile.ZipFile, "writestr", data)),
        ("tar", lambda data: archive(tar_file, "addfile", data)),
    ],
)
@pytest.mark.parametrize("path", ["00000000000000000000.log", "old"])
def test_a_packed_file(examples, tmp_path, name, pack, path):
    data = (examples / "codec-none-1" / "00000000000000000000.log").read_bytes()
    (tmp_path / path).write_bytes(pack(data))
    with pytest.raises(pylogseg.CorruptionError, match=f"this is a {name} file, not a log: unpack it first"):
        list(pylogseg.read(tmp_path / path))


def tar_file(file, mode):
    return tarfile.open(fileobj=file, mode=mode)


def archive(kind, add, data):
    out = io.BytesIO()
    with kind(out, "w") as file:
        if add == "addfile":
            entry = tarfile.TarInfo("00000000000000000000.log")
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
        else:
            file.writestr("00000000000000000000.log", data)
    return out.getvalue()


@pytest.mark.parametrize("name", [NAME, "rest of a log"])
def test_a_few_bytes_are_a_header_that_is_cut_off(tmp_path, name):
    (tmp_path / name).write_bytes(bytes(5) + b"\1")
    reader = pylogseg.read(tmp_path / name)
    assert list(reader) == []
    assert [gap.reason for gap in reader.gaps] == [
        "the header of a batch is cut off after 6 bytes by the end of the file"
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_no_file(examples, tmp_path):
    """It cannot be read by position, and to open it would wait for ever."""
    folder = shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")
    os.mkfifo(folder / "00000000000000000100.log")
    with pytest.raises(pylogseg.StorageError, match="not a file"):
        list(pylogseg.read(folder))
    assert list(pylogseg.read(folder, on_corrupt="skip")) == list(pylogseg.read(examples / "txn-b-0"))
    with pytest.raises(pylogseg.StorageError, match="not a file"):
        list(pylogseg.read(folder / "00000000000000000100.log"))


def test_errors_cross_processes():
    for error in (
        pylogseg.StorageError("p", "read", "bad"),
        pylogseg.CorruptionError("p", 1, "bad", 2),
        RequestError("bad"),
        ClosedError("bad"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.filterwarnings("error")
def test_the_highest_offsets(tmp_path):
    base = 2**63 - 3
    folder = tmp_path / "top-0"
    folder.mkdir()
    (folder / f"{base:020d}.log").write_bytes(pylogseg.encode([(1, b"k", b"v")] * 3, base_offset=base))
    assert [r.offset for r in pylogseg.read(folder)] == [base, base + 1, base + 2]
    assert [r.offset for r in pylogseg.read(folder, offset=2**63 - 1)] == [2**63 - 1]
    assert [r.offset for r in pylogseg.read(folder, offset=(base, 2**63 - 1))] == [base, base + 1]
    assert list(pylogseg.read(folder, offset=2**63)) == []
    assert len(list(pylogseg.read(folder, isolation_level="read_committed", timestamp=1))) == 3


def test_columns_that_there_are_not(examples):
    for read in (pylogseg.read, pylogseg.read_arrow):
        with pytest.raises(RequestError, match="unknown column 'kee'; the columns are key, value"):
            read(examples, "txn-b", columns=["kee"])


def test_what_is_no_log(tmp_path):
    with pytest.raises(RequestError, match="no Kafka log directory"):
        pylogseg.read(tmp_path)
    for name in ("text.txt", NAME):
        (tmp_path / name).write_text("this is not a log, whatever the name of it may be")
    with pytest.raises(RequestError, match=r"text\.txt: not a Kafka file, by its name and by its first bytes"):
        pylogseg.read(tmp_path / "text.txt")
    with pytest.raises(pylogseg.CorruptionError, match=r"0\.log: at position 0, offset 0: magic"):
        list(pylogseg.read(tmp_path / NAME))
    (tmp_path / "empty").write_bytes(b"")
    assert list(pylogseg.read(tmp_path / "empty")) == []


@pytest.fixture
def damaged(examples, tmp_path):
    """A partition whose second segment has a flipped bit in its first batch, and a copy of it that is whole."""
    copy = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    change_byte(sorted(copy.glob("*.log"))[1], 75)
    return copy


def test_damage_by_choice(examples, damaged):
    whole = list(pylogseg.read(examples / "codec-none-1"))
    base = pylogseg.open_dir(damaged).partitions[0].segments[1].base_offset
    before = [r for r in whole if r.offset < base]

    seen = []
    with pytest.raises(pylogseg.CorruptionError) as error:
        seen.extend(pylogseg.read(damaged))
    assert seen == before
    assert (error.value.position, error.value.offset) == (0, base)
    assert "CRC mismatch" in str(error.value)
    assert 'on_corrupt="skip"' in str(error.value)

    reader = pylogseg.read(damaged, on_corrupt="stop")
    assert list(reader) == before
    assert [gap.kind for gap in reader.gaps] == [GapKind.CRC_BAD]

    reader = pylogseg.read(damaged, on_corrupt="skip")
    found = list(reader)
    gap = reader.gaps[0]
    assert found == [r for r in whole if not gap.first_offset <= r.offset < gap.next_offset]
    assert len(found) < len(whole)
    assert list(reader) == found  # again, from the start
    assert len(reader.gaps) == 1

    # A range that does not touch the damage does not see it.
    assert list(pylogseg.read(damaged, offset=gap.next_offset)) == [r for r in whole if r.offset >= gap.next_offset]
    assert list(pylogseg.read(damaged, offset=(0, base))) == before
    # Without the CRC nothing is noticed: what was asked for.
    assert len(list(pylogseg.read(damaged, check_crc=False))) == len(whole)


def test_every_damage_of_a_broker_is_reported(golden):
    """What a real broker did with a damaged folder is known; here no damage passes in silence, and none crashes."""
    for case in some(sorted((golden / "broker-4.3" / "damage").iterdir())):
        folder = case / "in"
        if not folder.is_dir():
            continue
        partitions = pylogseg.open_dir(folder).partitions
        for partition in some(partitions):
            reader = pylogseg.read(partition.path, on_corrupt="skip")
            count = sum(1 for _ in reader)
            assert count or reader.gaps, case


def test_decompression_is_bounded(examples):
    with pytest.raises(pylogseg.CorruptionError, match="more than 100 bytes"):
        list(pylogseg.read(examples / "codec-zstd-0", max_decompressed_bytes=100))
    reader = pylogseg.read(examples / "codec-zstd-0", max_decompressed_bytes=100, on_corrupt="skip")
    list(reader)
    assert {gap.kind for gap in reader.gaps} == {GapKind.RECORDS_BAD}


def test_log_start(examples):
    folder = examples / "del-records-0"
    start = pylogseg.open_dir(folder).partitions[0].log_start_offset
    assert start == 123
    assert next(iter(pylogseg.read(folder))).offset == start
    assert next(iter(pylogseg.read(folder, from_log_start=False))).offset < start


def test_log_start_that_cannot_be_read(examples, tmp_path, caplog):
    """One malformed line does not close the disk; what it hides is said."""
    folder = shutil.copytree(examples, tmp_path / "data") / "del-records-0"
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\nno offset here\n")
    for path in (folder, folder.parent):
        (note,) = pylogseg.open_dir(path).notes
        assert "position 4: line 3 is malformed" in note
        assert next(iter(pylogseg.read(path, "del-records"))).offset < 123
    assert "log-start-offset-checkpoint" in caplog.text


def test_memory_of_no_known_kind(examples):
    with pytest.raises(RequestError, match="invalid reuse_buffers='rows'"):
        pylogseg.read(examples, reuse_buffers="rows")


def test_throttle():
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000, clock=lambda: now[0])
    throttle.spend(500, sleep)
    throttle.spend(1500, sleep)
    assert slept == pytest.approx([0.5, 1.5])
    now[0] += 10
    throttle.spend(100, sleep)  # what was not used does not add up
    assert slept[-1] == pytest.approx(0.1)
    with pytest.raises(RequestError):
        Throttle(0)


def test_a_throttled_read_takes_its_time(examples):
    size = pylogseg.open_dir(examples / "codec-none-1").partitions[0].size
    began = time.monotonic()
    count = sum(1 for _ in pylogseg.read(examples / "codec-none-1", max_bytes_per_second=size * 2, drop_behind=True))
    assert time.monotonic() - began > 0.4
    assert count == sum(1 for _ in pylogseg.read(examples / "codec-none-1"))


def test_read_committed_from_the_middle(golden):
    """Wherever a reader begins, it sees what one from the start sees from there on, up to an open transaction."""
    for folder in some(sorted((golden / "broker-4.3" / "txn").glob("data[01]/txn-*"))):
        whole = list(pylogseg.read(folder, isolation_level="read_committed"))
        everything = list(pylogseg.read(folder))
        for record in some(everything[:: max(1, len(everything) // 15)]):
            start = record.offset
            found = list(pylogseg.read(folder, isolation_level="read_committed", offset=start))
            assert found == [r for r in whole if r.offset >= start], (folder, start)


@pytest.mark.parametrize("missing", ["*.txnindex", "*.snapshot", "*.*index", "*.txnindex *.snapshot"])
def test_read_committed_from_markers_alone(golden, tmp_path, missing):
    for folder in some(sorted((golden / "broker-4.3" / "txn-old").glob("data[01]/txn-*"))):
        copy = shutil.copytree(folder, tmp_path / folder.name)
        for pattern in missing.split():
            for path in copy.glob(pattern):
                path.unlink()
        whole = list(pylogseg.read(folder, isolation_level="read_committed"))
        assert list(pylogseg.read(copy, isolation_level="read_committed")) == whole
        middle = whole[len(whole) // 2].offset if whole else 0
        if "snapshot" not in missing:
            found = list(pylogseg.read(copy, isolation_level="read_committed", offset=middle))
            assert found == [r for r in whole if r.offset >= middle]


@pytest.mark.parametrize("with_snapshots", [True, False])
def test_read_committed_where_some_indexes_are_missing(examples, tmp_path, with_snapshots):
    folder = examples / "txn-a-0"
    whole = list(pylogseg.read(folder, isolation_level="read_committed"))
    indexes = sorted(path.name for path in folder.glob("*.txnindex"))
    assert len(indexes) > 2
    for kept in range(2 ** len(indexes)):
        copy = shutil.copytree(folder, tmp_path / str(kept) / folder.name)
        for i, name in enumerate(indexes):
            if not kept >> i & 1:
                (copy / name).unlink()
        for path in [] if with_snapshots else copy.glob("*.snapshot"):
            path.unlink()
        assert list(pylogseg.read(copy, isolation_level="read_committed")) == whole, f"{kept:b}"


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_many_bombs_are_not_held_at_once(tmp_path, monkeypatch, codec):
    """Batches that each keep to the limit are decompressed a few at a time."""
    from pylogseg.format import compression

    batch = pylogseg.encode([(1, None, bytes(1 << 20))], compression=codec)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(bytes([0] * 7 + [i]) + bytes(batch[8:]) for i in range(40)))
    monkeypatch.setattr(compression, "ARENA_BYTES", 4 << 20)
    sizes = []
    for chunk in pylogseg.read(path, max_decompressed_bytes=2 << 20).chunks():
        sizes.append(len(chunk.columns))
        assert len(chunk.columns.sources[1]) <= 4 << 20
    assert sum(sizes) == 40
    assert max(sizes) <= 4


def test_patterns_mean_live_partitions(golden):
    paths = sorted((golden / "broker-4.3" / "retention").glob("data[01]"))
    disk = pylogseg.open_dir(paths)
    assert any(p.state for p in disk.partitions)
    assert all(not p.state for p in disk.select(["*"]).partitions)
    assert {p.state for p in disk.select(["*-delete"]).partitions} == {"delete"}
    named = next(p for p in disk.partitions if p.state == "stray")
    assert disk.select([named.name]).partitions == (named,)


@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": "5"},
        {"offset": 2.5},
        {"offset": (0, "5")},
        {"timestamp": "2026-01-31"},
        {"timestamp": (None, 1e12)},
        {"limit": "1"},
        {"limit": 1.0},
        {"partition": "0"},
        {"partition": [0, 1.5]},
    ],
)
def test_a_number_is_a_whole_one(examples, arguments):
    with pytest.raises(RequestError, match=r"must be a whole number, not .*['.]"):
        pylogseg.read(examples, "txn-a", **arguments)


def test_numbers_of_numpy_are_numbers(examples):
    found = pylogseg.read(examples, "txn-a", np.int32(0), (np.int64(10), np.uint8(13)), limit=np.int16(2))
    assert [r.offset for r in found] == [10, 11]
    assert len(list(pylogseg.read(examples, "txn-a", partition=np.array([0, 1]), limit=1))) == 1
