"""Tests of reading/header_reader.py. What headers tell is what the records say, and where they do not suffice all is
read.
"""

import shutil

import pyarrow.compute as pc
import pytest
from helpers.checks import some
from helpers.counted_reads import count_reads
from helpers.depth import diagonals
from helpers.golden_brokers import BROKERS

import pylogseg
from pylogseg import encode, scan
from pylogseg._native import _lookup
from pylogseg.errors import CorruptionError
from pylogseg.reading.header_reader import COLUMNS
from pylogseg.tables import dataset as classes

NAMES = sorted(COLUMNS)


def rows(path, columns=NAMES, **how):
    return pylogseg.read_arrow(path, columns=columns, **how).read_all()


@pytest.mark.parametrize(("name", "isolation_level"), diagonals(BROKERS, ["read_uncommitted", "read_committed"], 2))
def test_golden_brokers(golden, monkeypatch, name, isolation_level):
    monkeypatch.setattr(classes, "TASK_BYTES", 4000)
    read = count_reads(monkeypatch)
    for log_dir in some(sorted(path for path in (golden / name).glob("data*") if path.is_dir())):
        for control in (False, True):
            how = {"isolation_level": isolation_level, "control": control, "check_crc": False}
            found, want = pylogseg.dataset(log_dir, **how), rows(log_dir, **how)
            assert found.to_table(columns=NAMES).equals(want)
            assert found.count_rows() == want.num_rows
            assert found.count_rows(pc.field("partition") == 0) == want.filter(pc.field("partition") == 0).num_rows
    assert read["headers"] > 0


def test_legacy_batches_are_read(examples):
    found = pylogseg.dataset(examples, ["legacy", "mixed"])
    assert found.to_table(columns=NAMES).equals(rows(examples, topic=["legacy", "mixed"]))


@pytest.fixture
def copy(examples, tmp_path):
    return shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")


def test_a_log_that_starts_inside_a_batch(tmp_path):
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        log.append([(None, None, b"%d" % n) for n in range(50)])
        log.increment_log_start(20)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    assert pylogseg.dataset(tmp_path).count_rows() == 30
    assert pylogseg.dataset(tmp_path, from_log_start=False).count_rows() == 50


@pytest.mark.parametrize("where", ["length", "end"])
def test_damage_of_headers_is_found(copy, where):
    path = min(copy.glob("*.log"))
    data = bytearray(path.read_bytes())
    if where == "length":
        data[8:12] = b"\xff\xff\xff\xff"
    else:
        data += b"x" * 100
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        pylogseg.dataset(copy).count_rows()
    assert pylogseg.dataset(copy, on_corrupt="skip").count_rows() == rows(copy, on_corrupt="skip").num_rows


def test_a_check_sum_that_does_not_hold(copy):
    """A count does not look at payloads; whatever gives rows does, unless it is told not to."""
    path = min(copy.glob("*.log"))
    count, data = rows(copy).num_rows, bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert pylogseg.dataset(copy).count_rows() == count
    with pytest.raises(CorruptionError):
        pylogseg.dataset(copy).to_table(columns=["offset"])
    assert pylogseg.dataset(copy, check_crc=False).to_table(columns=["offset"]).num_rows == count


@pytest.mark.parametrize("sizes", [[10], [100, 3000], [3900, 4100], [10, 20_000], [16_300, 10, 10], [70_000]], ids=str)
@pytest.mark.parametrize("room", [1, 5, 4096])
def test_headers_of_batches_of_all_sizes(tmp_path, sizes, room):
    """Small batches are read many at a time; the headers and the end are those of a scan."""
    batches = [encode([(n, None, bytes(sizes[n % len(sizes)]))], base_offset=n) for n in range(60)]
    data = b"".join(batches)
    path = tmp_path / "x.log"
    path.write_bytes(data + batches[0][:-1])
    expected = scan(data, crc=False).batches
    with path.open("rb") as file:
        for end, last, count in [(path.stat().st_size, 2**62, 60), (len(data), 2**62, 60), (len(data) - 1, 2**62, 59),
                                 (len(data), 33, 34), (60, 2**62, 0)]:  # fmt: skip
            position, found = 0, b""
            while True:
                memory = memoryview(bytearray(room * 61))
                read, position = _lookup.read_headers(file.fileno(), position, end, last, memory)
                found += memory[: 61 * read]
                if read < room or (len(found) >= 61 and len(found) // 61 > last):
                    break
            assert len(found) // 61 == count
            assert position == sum(map(len, batches[:count]))
            assert found == b"".join(data[at : at + 61] for at in expected.position[:count].tolist())
